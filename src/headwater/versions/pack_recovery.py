"""Makes the rows of the index anew, of the records in packs: what is whole, and has its digest, is kept again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headwater.files.version_spool import HEADER, MAGIC, PACKED_OCTETS
from headwater.storage.database import Transaction
from headwater.versions.pack_appending import SUFFIX
from headwater.versions.pack_index import (
    add_pack,
    add_versions,
    find_versions,
    next_id,
    note_appended,
    of_same_key,
)


def adopt_packs(folder: Path, tx: Transaction) -> None:
    """Note all packs of a folder, oldest first, in an index that knows none. Raises OSError.

    A version in several packs is taken of the first. All are as if used now: retention begins with them anew.
    """
    paths = [path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file()]
    for path in sorted(paths, key=lambda one: (one.stat().st_mtime_ns, one.name)):
        _adopt_pack(path, tx)


def _adopt_pack(path: Path, tx: Transaction) -> None:
    number = next_id(tx)
    pack = add_pack(tx, path.stem, number, is_closed=True)
    used_us = time.time_ns() // 1_000
    end = 0
    found: dict[bytes, tuple[int, int]] = {}
    with path.open("rb") as file:
        for start, digest, octets, is_sound in _records(file):
            end = start + octets
            if is_sound:
                found.setdefault(digest, (start, octets))
    for digest in [*(one.digest for one in find_versions(tx, list(found))), *of_same_key(tx, list(found))]:
        found.pop(digest)
    rows = [
        (row, digest, pack.id, start, octets, used_us)
        for row, (digest, (start, octets)) in enumerate(found.items(), number)
    ]
    add_versions(tx, rows)
    note_appended(tx, pack, end, sum(HEADER.size + octets for _start, octets in found.values()), number + len(rows))


def _records(file: BinaryIO) -> Iterator[tuple[int, bytes, int, bool]]:
    """The records up to the first that is not whole: start, digest, octets, whether these have that digest."""
    position = 0
    while len(head := file.read(HEADER.size)) == HEADER.size:
        magic, octets, digest = HEADER.unpack(head)
        if magic != MAGIC or octets > PACKED_OCTETS:
            return
        data = file.read(octets)
        if len(data) != octets:
            return
        start = position + HEADER.size
        yield start, digest, octets, hashlib.sha256(data).digest() == digest
        position = start + octets
