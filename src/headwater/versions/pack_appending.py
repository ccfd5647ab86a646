"""Appends records of versions to packs, in one transaction of their index: octets are durable before rows name them.

Few records are copied behind those of the pack that is open; a spool that is wanted for the most part becomes a pack
as it is, and grows while its reader goes on. To a pack with octets that its row does not count nothing is appended:
they may be versions that an older index does not know (`pack_recovery`).
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from headwater.files.version_copy import refuse_little_room
from headwater.files.version_spool import HEADER
from headwater.storage.durable import make_folders, sync_descriptor, sync_file, sync_folder
from headwater.storage.sqlite.transaction import Transaction
from headwater.versions.pack_index import (
    Pack,
    VersionRow,
    add_pack,
    add_versions,
    next_id,
    note_appended,
    open_pack,
    pack_of,
)

PACK_OCTETS: Final = 64 << 20
"""So large a pack may get."""
SUFFIX: Final = ".pack"

Record = tuple[bytes, int, int, int]
"""A record that is about to be appended: its digest, where in its file its octets begin, how many they are, and when a
change has last named it (microseconds since 1970)."""

_RUN_OCTETS = 4 << 20
_COPY_OCTETS = 1 << 20
_ADOPTED_OCTETS = 2 << 20
"""With fewer a spool is no pack: there would be many small ones."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class AlreadyPacked(Exception):
    """Packs have one of these versions already, or one whose digest begins alike."""


class PackAppender:
    """Appends in one transaction; a context manager. Without `finish`, nothing has happened.

    `avoid`: the pack that is being emptied; for that the room may be taken that is left for the catalog. Raises
    OSError, for a full disk too, and the database's faults.
    """

    def __init__(self, folder: Path, tx: Transaction, avoid: Pack | None = None) -> None:
        self.adopted: dict[Path, int] = {}
        """The spools that have become packs, with the numbers of these."""
        self._folder = folder
        self._tx = tx
        self._avoid = avoid
        self._pack: Pack | None = None
        self._descriptor = -1
        self._end = 0
        self._next = next_id(tx)
        self._rows: list[VersionRow] = []
        self._made: list[Path] = []
        self._appended: dict[Path, int] = {}

    def __enter__(self) -> PackAppender:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if kind is not None:
            for path in self._made:
                with suppress(OSError):
                    path.unlink()
            for path, octets in self._appended.items():
                with suppress(OSError):
                    os.truncate(path, octets)

    def take(self, spool: Path, records: Sequence[Record], pack: int | None) -> None:
        """Keep these records of a spool, which has become this pack before (None: has not)."""
        if not self._adopt(spool, records, pack):
            with spool.open("rb", buffering=0) as file:
                self.append(file.fileno(), records)

    def _adopt(self, spool: Path, records: Sequence[Record], number: int | None) -> bool:
        """Have the spool as a pack, unless it is one already; whether that is possible and worth it."""
        pack = None if number is None else pack_of(self._tx, number)
        octets = _octets(records)
        end = records[-1][1] + records[-1][2]
        if pack is None:
            if octets < _ADOPTED_OCTETS or 2 * octets < end:
                return False
            pack = self._linked(spool)
            if pack is None:
                return False
        self._note(pack, records, 0)
        note_appended(self._tx, pack, end, octets, self._next - 1)
        self.adopted[spool] = pack.id
        return True

    def _linked(self, spool: Path) -> Pack | None:
        name = secrets.token_hex(8)
        path = pack_path(self._folder, name)
        try:
            os.link(spool, path)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            return None
        self._made.append(path)
        return add_pack(self._tx, name, self._next, is_closed=True)

    def append(self, source: int, records: Sequence[Record]) -> None:
        """Copy these records of an open file behind those of the open pack, in their order."""
        for run in _runs(records):
            begin, octets = run[0][1] - HEADER.size, _octets(run)
            pack = self._pack_for(octets)
            if self._avoid is None:
                refuse_little_room(self._descriptor, octets)
            _copy(source, begin, self._descriptor, self._end, octets)
            self._note(pack, run, self._end - begin)
            self._end += octets

    def _note(self, pack: Pack, records: Sequence[Record], shift: int) -> None:
        self._rows += [
            (number, digest, pack.id, start + shift, octets, used_us)
            for number, (digest, start, octets, used_us) in enumerate(records, self._next)
        ]
        self._next += len(records)

    def finish(self) -> None:
        """Note what is appended, and make it durable; with the commit it is kept. Raises AlreadyPacked."""
        if not add_versions(self._tx, self._rows):
            raise AlreadyPacked
        for path in self.adopted:
            sync_file(path)
        self._close_pack()
        if self._made:
            sync_folder(self._folder)

    def _pack_for(self, octets: int) -> Pack:
        pack = self._pack
        if pack is None:
            pack = self._found()
        if pack is None or (self._end if pack is self._pack else pack.octets) + octets > PACK_OCTETS:
            self._close_pack()
            make_folders(self._folder)
            pack = add_pack(self._tx, secrets.token_hex(8), self._next, is_closed=False)
            self._made.append(pack_path(self._folder, pack.name))
        if pack is not self._pack:
            self._open(pack)
        return pack

    def _found(self) -> Pack | None:
        """The open pack, unless it is to be emptied, or its file has lost something, or has what no row counts."""
        pack = open_pack(self._tx)
        if pack is None or (self._avoid is not None and pack.id == self._avoid.id):
            return None
        try:
            length = pack_path(self._folder, pack.name).stat().st_size
        except FileNotFoundError:
            return None
        return pack if length == pack.octets else None

    def _open(self, pack: Pack) -> None:
        path = pack_path(self._folder, pack.name)
        self._descriptor = os.open(path, _FLAGS, 0o600)
        if path not in self._made:
            self._appended[path] = pack.octets
        self._pack, self._end = pack, pack.octets

    def _close_pack(self) -> None:
        if self._pack is None:
            return
        sync_descriptor(self._descriptor)
        note_appended(self._tx, self._pack, self._end, self._end - self._pack.octets, self._next - 1)
        os.close(self._descriptor)
        self._pack, self._descriptor = None, -1


def pack_path(folder: Path, name: str) -> Path:
    """The file of a pack."""
    return folder / (name + SUFFIX)


def _octets(records: Sequence[Record]) -> int:
    return HEADER.size * len(records) + sum([one[2] for one in records])


def _runs(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records that follow one another in their file, up to _RUN_OCTETS at a time."""
    first, until = 0, -1
    for number, (_digest, start, octets, _used_us) in enumerate(records):
        if number > first and (start != until + HEADER.size or until - records[first][1] > _RUN_OCTETS):
            yield records[first:number]
            first = number
        until = start + octets
    if records:
        yield records[first:]


def _copy(source: int, start: int, target: int, position: int, octets: int) -> None:
    buffer = memoryview(bytearray(min(octets, _COPY_OCTETS)))
    while octets:
        read = os.preadv(source, [buffer[: min(octets, len(buffer))]], start)
        if not read:
            raise OSError(errno.EIO, "octets that were set aside are not there")
        written = 0
        while written < read:
            written += os.pwrite(target, buffer[written:read], position + written)
        start, position, octets = start + read, position + read, octets - read
