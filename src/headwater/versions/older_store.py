"""Reads the versions that a store of before 2026-12 holds: in packs with an index in SQLite, and in files without rows.

A pack is a file of records: a magic, the number of octets, their SHA-256, the octets. The index says which records are
versions; where it is missing, those are that have their digests.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from headwater.storage.database import Database, Schema, private_copy
from headwater.storage.durable import sync_folder

OlderRow = tuple[bytes, int, int, bytes | None]
"""The digest of a version, when a change has last named it (microseconds since 1970), its length, and its octets; None:
they are in a file."""

_PACKS: Final = "packs"
_INDEX: Final = "index.sqlite"
_INDEX_SCHEMA: Final = Schema(application_id=0x48575650, migrations=("",))
_RECORDS: Final = (
    "SELECT digest, start, versions.octets, used_us FROM packs JOIN versions"
    " ON versions.id BETWEEN first AND last AND pack = packs.id WHERE name = ? ORDER BY versions.id"
)
_MAGIC: Final = b"HWV1"
_HEADER: Final = struct.Struct("<4sQ32s")
_MOST_OCTETS: Final = 128 << 10
_LEVEL: Final = re.compile(r"[0-9a-f]{2}\Z")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


def has_packs(folder: Path) -> bool:
    """Whether there are packs that have not been moved."""
    return (folder / _PACKS).is_dir()


def packs(folder: Path) -> Iterator[tuple[Path, Iterator[OlderRow]]]:
    """The packs of a store, each with its versions. Raises OSError, and DatabaseFaults of the index."""
    with _opened_index(folder) as index:
        for path in sorted((folder / _PACKS).glob("*.pack")):
            yield path, _versions(path, index)


def remove_index(folder: Path) -> None:
    """Leave no index, once it is durable that all packs are gone: a pack without it has removed versions again."""
    with suppress(FileNotFoundError):  # another process has done it meanwhile
        sync_folder(folder / _PACKS)
        for path in (*folder.glob(f"{_INDEX}*"), *(folder / _PACKS).glob("*")):
            path.unlink(missing_ok=True)
        (folder / _PACKS).rmdir()


def files(folder: Path) -> Iterator[OlderRow]:
    """The versions that lie in files. Raises OSError."""
    for path in folder.glob("??/??/*"):
        if _DIGEST.match(path.name) and all(_LEVEL.match(one.name) for one in path.parents[:2]):
            found = path.lstat()
            yield bytes.fromhex(path.name), found.st_mtime_ns // 1_000, found.st_size, None


@contextmanager
def _opened_index(folder: Path) -> Iterator[Database | None]:
    if not (folder / _INDEX).is_file():
        yield None
        return
    with private_copy(folder / _INDEX, _INDEX_SCHEMA) as index:
        yield index


def _versions(path: Path, index: Database | None) -> Iterator[OlderRow]:
    with path.open("rb") as file:
        if index is None:
            yield from _sound_records(file)
            return
        with index.read() as tx:
            records = tx.fetch(_RECORDS, (path.stem,))
        for digest, start, length, used_us in records:
            octets = os.pread(file.fileno(), length, start)
            if len(octets) == length:
                yield digest, used_us, length, octets


def _sound_records(file: BinaryIO) -> Iterator[OlderRow]:
    now_us = time.time_ns() // 1_000
    while len(head := file.read(_HEADER.size)) == _HEADER.size:
        magic, length, digest = _HEADER.unpack(head)
        if magic != _MAGIC or length > _MOST_OCTETS:
            return
        octets = file.read(length)
        if hashlib.sha256(octets).digest() == digest:
            yield digest, now_us, length, octets
