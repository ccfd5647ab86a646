"""Makes rows of the index anew, of the records in packs: what is whole, and has its digest, is kept again."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headwater.files.version_spool import HEADER, MAGIC, PACKED_OCTETS
from headwater.storage.sqlite.transaction import Transaction
from headwater.versions.pack_appending import SUFFIX
from headwater.versions.pack_index import (
    Pack,
    add_pack,
    add_versions,
    find_versions,
    next_id,
    note_appended,
    of_same_key,
    packs,
)


def adopt_packs(folder: Path, tx: Transaction) -> None:
    """Note all packs of a folder, oldest first, in an index that knows none. Raises OSError.

    A version in several packs is taken of the first. All are as if used now: retention begins with them anew.
    """
    paths = [path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file()]
    for path in sorted(paths, key=lambda one: (one.stat().st_mtime_ns, one.name)):
        _adopt(path, tx, None)


def recover_leftovers(folder: Path, tx: Transaction) -> int:
    """Note what lies in packs and in no row, and remove what is not whole; how many files are removed. Raises OSError.

    Killed processes have left it, or it is younger than the index, which somebody has restored: then changes may name
    it. Part of a transaction that writes: nobody appends meanwhile.
    """
    counted = {one.name + SUFFIX: one for one in packs(tx)}
    removed = 0
    for path in sorted(folder.iterdir()):
        pack = counted.get(path.name)
        octets = path.lstat().st_size
        if pack is not None and octets <= pack.octets:
            continue
        is_pack = path.suffix == SUFFIX and path.is_file() and not path.is_symlink()
        end = _adopt(path, tx, pack) if is_pack else None
        if end is None:
            path.unlink()
            removed += 1
        elif end < octets:
            os.truncate(path, end)
    return removed


def _adopt(path: Path, tx: Transaction, pack: Pack | None) -> int | None:
    """Note the sound records of a pack's file that no row counts (`pack` None: none of it has one).

    How many octets count then; None where no row is about the file.
    """
    end = 0 if pack is None else pack.octets
    found: dict[bytes, tuple[int, int]] = {}
    with path.open("rb") as file:
        file.seek(end)
        for start, digest, octets, is_sound in _records(file, end):
            if is_sound:
                end = start + octets
                found.setdefault(digest, (start, octets))
    for digest in [*(one.digest for one in find_versions(tx, list(found))), *of_same_key(tx, list(found))]:
        found.pop(digest)
    if not found:
        return None if pack is None else pack.octets
    number, used_us = next_id(tx), time.time_ns() // 1_000
    pack = pack or add_pack(tx, path.stem, number, is_closed=True)
    rows = [
        (row, digest, pack.id, start, octets, used_us)
        for row, (digest, (start, octets)) in enumerate(found.items(), number)
    ]
    add_versions(tx, rows)
    note_appended(tx, pack, end, sum(HEADER.size + octets for _start, octets in found.values()), rows[-1][0])
    return end


def _records(file: BinaryIO, position: int) -> Iterator[tuple[int, bytes, int, bool]]:
    """The records from here to the first that is not whole: start, digest, octets, whether these have that digest."""
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
