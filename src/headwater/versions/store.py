"""The version store: octets by their SHA-256, each kept once however many resources had them.

A *version* is the octets of a resource as one change found them. Change Dumps are made of versions, and past states are
served from them. A digest is 64 lower-case hex digits.

`versions.sqlite` has a row for each version, with its octets if they are few; those of larger ones are in a file each
(`ab/cd/abcd…`). `.aside` holds what readers of files have set aside. A row is written before its file gets its name,
and a file is removed before its row: a row without its file counts for nothing, and no file is without a row. A
transaction of the database excludes that a version is removed while a change is about to name it.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import re
import secrets
import shutil
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.errors import StoreFault
from headwater.files.file_copies import refuse_little_room, version_path
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.storage.database import Database, Schema, opened_to_read, private_copy
from headwater.storage.durable import make_folders, sync_folder, sync_many
from headwater.storage.transaction import DatabaseFault, Row, Transaction, Values

FILE: Final = "versions.sqlite"
SCHEMA: Final = Schema(
    application_id=0x48575653,
    migrations=(
        """
CREATE TABLE version(
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, used_us INTEGER NOT NULL, length INTEGER NOT NULL, octets BLOB
)
""",
    ),
    has_log=False,
)
"""`used_us`: when a change last named the version, in microseconds since 1970. `octets` NULL: they are in a file."""

_KEEP = (
    "INSERT INTO version(digest, used_us, length, octets) VALUES(?, ?, ?, ?)"
    " ON CONFLICT(digest) DO UPDATE SET used_us = excluded.used_us, octets = excluded.octets"
)
_TAKE_OVER = "INSERT OR IGNORE INTO version(digest, used_us, length, octets) VALUES(?, ?, ?, ?)"
_PAGE_OCTETS = 64 << 10
"""Fifteen versions of 4 KiB in a page: less than half the time that pages of 4 KiB take, in which one does not fit."""
_ROWS = 5_000
_FREED_PAGES = 256
_ASIDE = ".aside"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class VersionsUnusable(StoreFault):
    """The version store cannot be read or written: no permission, disk full, a damaged file system."""

    code = "HW-VER-01"


class StoredVersion(msgspec.Struct, frozen=True):
    """One version: its digest, its size, and when a change last named it (`used_at`)."""

    digest: str
    octets: int
    used_at: dt.datetime


class SetAside(msgspec.Struct, frozen=True):
    """Octets that a reader has set aside: their digest, what they are called (`files.file_copies`), how many."""

    digest: str
    name: str
    octets: int


class OpenVersion(msgspec.Struct, frozen=True, gc=False):
    """An open version: octets in memory, or a file. Only its digest tells whether the disk has kept it."""

    octets: int
    held: bytes = b""
    descriptor: int = -1
    is_vouched: bool = False

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return self.held[start : start + octets] if self.descriptor < 0 else os.pread(self.descriptor, octets, start)

    def is_unchanged(self) -> bool:
        """Versions never change."""
        return True

    def close(self) -> None:
        """Give the file back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


class VersionStore:
    """The versions below `folder`, which is made when the first one comes.

    Safe for several threads and processes; one process at a time fills it. Methods raise VersionsUnusable.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        """`is_read_only`: nothing is made or changed below the folder, in which this user perhaps must not write."""
        self._folder = folder
        self._kept = os.fsencode(folder)
        self._aside = folder / _ASIDE
        self._is_read_only = is_read_only
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._opened = ExitStack()

    def close(self) -> None:
        """Give up what is held open; it is opened again when it is needed."""
        with self._lock:
            self._database = None
            self._opened.close()

    def open(self, digest: str) -> OpenVersion | None:
        """The octets of this digest, from any place; None when they are not kept. Nothing vouches for them."""
        with self._faults():
            found = self._row(digest)
            if found is None:
                return None
            octets = found[0]
            if octets is not None:
                return OpenVersion(len(octets), octets)
            try:
                descriptor = os.open(version_path(self._kept, digest), _FLAGS)
            except FileNotFoundError:
                return None
            return OpenVersion(os.fstat(descriptor).st_size, descriptor=descriptor)

    def has(self, digest: str) -> bool:
        """Whether octets of this digest are kept."""
        with self._faults():
            found = self._row(digest)
            return found is not None and (found[0] is not None or self._has_file(digest))

    def touch(self, digests: Iterable[str]) -> set[str]:
        """Note versions as used now, durably; which of these are kept. Small ones count if they have their digests."""
        with self._faults(), self._made().write(durable=True) as tx:
            kept = {one for one in digests if self._is_kept(tx, one)}
            tx.many("UPDATE version SET used_us = ? WHERE digest = ?", [(_now_us(), _key(one)) for one in kept])
        return kept

    def delete(self, digests: Iterable[str], unused_since: dt.datetime) -> list[str]:
        """Remove versions unless a change has named them since; those that are gone. Who has one open reads on."""
        with self._faults():
            database = self._existing()
            if database is None:
                return []
            with database.write() as tx:
                bounds = [(_key(one), to_microseconds(unused_since)) for one in digests]
                rows = tx.rows_each("DELETE FROM version WHERE digest = ? AND used_us < ? RETURNING digest", bounds)
                gone = [digest.hex() for (digest,) in rows]
                for one in gone:
                    with suppress(FileNotFoundError):
                        os.unlink(version_path(self._kept, one))
            return gone

    def reclaim(self) -> int:
        """Give the disk what removed versions still take in the database; how many octets."""
        with self._faults():
            database = self._existing()
            freed = 0
            while database is not None:
                with database.write() as tx:
                    before = int(tx.value("PRAGMA freelist_count"))
                    tx.run(f"PRAGMA incremental_vacuum({_FREED_PAGES})")
                    octets = (before - int(tx.value("PRAGMA freelist_count"))) * int(tx.value("PRAGMA page_size"))
                if octets <= 0:
                    database.checkpoint()
                    break
                freed += octets
            return freed

    def versions(self) -> Iterator[StoredVersion]:
        """All of them, as they lie on the disk; what comes or goes meanwhile may be missing."""
        with self._faults():
            database, last = self._existing(), 0
            query = "SELECT id, digest, length, used_us, octets IS NULL FROM version WHERE id > ? ORDER BY id LIMIT ?"
            while database is not None:
                with database.read() as tx:
                    rows = tx.fetch(query, (last, _ROWS))
                if not rows:
                    return
                last = rows[-1][0]
                for _number, key, length, used_us, is_file in rows:
                    digest = key.hex()
                    if not is_file or self._has_file(digest):
                        yield StoredVersion(digest, length, from_microseconds(used_us))

    @contextmanager
    def intake(self) -> Iterator[VersionIntake]:
        """What takes the versions of one scan in; what it has not kept by its end is removed."""
        aside = self._aside / secrets.token_hex(8)
        with suppress(OSError):  # a scan goes on without versions: its readers are told as much for each file
            make_folders(self._aside)
            aside.mkdir()
        try:
            yield VersionIntake(self, aside)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def clean(self) -> int:
        """Remove what killed processes have left; how many files. For whoever alone may fill the store."""
        left = sum(len(files) for _, _, files in os.walk(self._aside))
        shutil.rmtree(self._aside, ignore_errors=True)
        with self._faults():
            if (database := self._existing()) is not None:
                with database.write() as tx:
                    rows = tx.fetch("SELECT id, digest FROM version WHERE octets IS NULL")
                    lost = [(number,) for number, digest in rows if not self._has_file(digest.hex())]
                    tx.many("DELETE FROM version WHERE id = ?", lost)
        return left

    def _row(self, digest: str) -> Row | None:
        key, database = _key(digest), self._existing()
        if database is None:
            return None
        with database.read() as tx:
            return tx.one("SELECT octets FROM version WHERE digest = ?", (key,))

    def _is_kept(self, tx: Transaction, digest: str) -> bool:
        row = tx.one("SELECT octets FROM version WHERE digest = ?", (_key(digest),))
        if row is None:
            return False
        return self._has_file(digest) if row[0] is None else hashlib.sha256(row[0]).hexdigest() == digest

    def _has_file(self, digest: str) -> bool:
        return os.path.lexists(version_path(self._kept, digest))

    def _existing(self) -> Database | None:
        """The database; None while there are no versions."""
        return self._made() if self._database is not None or self._folder.is_dir() else None

    def _made(self) -> Database:
        with self._lock:
            if self._database is None:
                path = self._folder / FILE
                if self._is_read_only:
                    reading = private_copy if _has_packs(self._folder) else opened_to_read
                    database = self._opened.enter_context(reading(path, SCHEMA))
                else:
                    make_folders(self._folder)
                    database = self._opened.enter_context(Database(path, SCHEMA, page_octets=_PAGE_OCTETS))
                self._take_over(database)
                self._database = database
            return self._database

    def _take_over(self, database: Database) -> None:
        """Move what an older program has kept, once: killed at any point, the next opening goes on."""
        with database.read() as tx:
            is_empty = tx.one("SELECT 1 FROM version LIMIT 1") is None
        if is_empty:
            with database.write(durable=True) as tx:
                tx.many(_TAKE_OVER, _older_files(self._folder))
        if not _has_packs(self._folder):
            return
        packs, path = self._folder / _PACKS, self._folder / _INDEX
        with ExitStack() as stack:
            index = stack.enter_context(private_copy(path, _INDEX_SCHEMA)) if path.is_file() else None
            for pack in sorted(packs.glob("*.pack")):
                with suppress(FileNotFoundError):  # another process has moved it meanwhile
                    with database.write(durable=True) as tx:
                        tx.many(_TAKE_OVER, _pack_versions(pack, index))
                    if not self._is_read_only:
                        pack.unlink()
        if not self._is_read_only:
            with suppress(FileNotFoundError):  # another process has done it meanwhile
                sync_folder(packs)  # it is durable that all packs are gone: one without the index has removed versions
                for path in (*self._folder.glob(f"{_INDEX}*"), *packs.glob("*")):
                    path.unlink(missing_ok=True)
                packs.rmdir()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise VersionsUnusable(cause.strerror or str(cause), where=str(self._folder)) from cause
        except DatabaseFault as cause:
            raise VersionsUnusable(cause.what, where=cause.where or str(self._folder)) from cause


class VersionIntake:
    """Takes the versions of one scan in: octets that readers have set aside in `folder` become durable before their
    changes are recorded. Its methods raise nothing: a scan goes on without versions."""

    def __init__(self, store: VersionStore, folder: Path) -> None:
        self.folder = os.fsencode(folder)
        self._store = store
        self._aside = folder

    def keep(self, versions: Iterable[SetAside]) -> list[str]:
        """Make these durable, under their digests; returns the digests of those that could not be kept."""
        wanted = list(versions)
        try:
            self._keep(wanted)
        except (OSError, DatabaseFault):
            kept = set()
            with suppress(VersionsUnusable):
                kept = self._store.touch([one.digest for one in wanted])
            return [one.digest for one in wanted if one.digest not in kept]
        return []

    def _keep(self, wanted: list[SetAside]) -> None:
        if not wanted:
            return
        kept = self._store._kept
        large = [(self._aside / one.name, version_path(kept, one.digest)) for one in wanted if ":" not in one.name]
        refuse_little_room(self.folder, sum(one.octets for one in wanted if ":" in one.name))
        sync_many([path for path, _place in large])
        with self._store._made().write(durable=True) as tx:
            tx.many(_KEEP, self._rows(wanted, _now_us()))
        touched: set[bytes] = set()
        for path, place in large:
            second = os.path.dirname(place)
            for folder in () if os.path.isdir(second) else (os.path.dirname(second), second):
                with suppress(FileExistsError):
                    os.mkdir(folder)
                    touched.add(os.path.dirname(folder))
            os.replace(path, place)
            touched.add(second)
        sync_many([Path(os.fsdecode(folder)) for folder in touched])

    def _rows(self, wanted: list[SetAside], now_us: int) -> Iterator[Values]:
        name, data = "", b""
        for one in wanted:
            of, _, start = one.name.partition(":")
            if not start:
                yield bytes.fromhex(one.digest), now_us, one.octets, None
                continue
            if of != name:
                name, data = of, (self._aside / of).read_bytes()
            octets = data[int(start) : int(start) + one.octets]
            if len(octets) != one.octets:
                raise OSError(errno.EIO, "content that was set aside is missing")
            yield bytes.fromhex(one.digest), now_us, one.octets, octets

    def remove(self, names: Iterable[str]) -> None:
        """Remove what was set aside by these names, once what is needed of it is kept."""
        for name in {one.partition(":")[0] for one in names}:
            with suppress(OSError):
                (self._aside / name).unlink()


def _now_us() -> int:
    return time.time_ns() // 1_000


def _key(digest: str) -> bytes:
    if not _DIGEST.match(digest):
        raise ValueError(f"not a SHA-256 in hex: {digest[:80]!r}")
    return bytes.fromhex(digest)


# What a store of before 2026-12 holds is moved once: packs with an index in SQLite, and files without rows. A pack is a
# file of records: a magic, the number of octets, their SHA-256, the octets. The index says which records are versions;
# where it is missing, those are that have their digests.

_OlderRow = tuple[bytes, int, int, bytes | None]
"""The digest of a version, when a change has last named it (microseconds since 1970), its length, and its octets; None:
they are in a file."""

_PACKS: Final = "packs"
_INDEX: Final = "index.sqlite"
_INDEX_SCHEMA: Final = Schema(application_id=0x48575650, migrations=("",))
_PACK_RECORDS: Final = (
    "SELECT digest, start, versions.octets, used_us FROM packs JOIN versions"
    " ON versions.id BETWEEN first AND last AND pack = packs.id WHERE name = ? ORDER BY versions.id"
)
_PACK_MAGIC: Final = b"HWV1"
_PACK_HEADER: Final = struct.Struct("<4sQ32s")
_MOST_PACKED_OCTETS: Final = 128 << 10
_LEVEL: Final = re.compile(r"[0-9a-f]{2}\Z")


def _has_packs(folder: Path) -> bool:
    return (folder / _PACKS).is_dir()


def _older_files(folder: Path) -> Iterator[_OlderRow]:
    for path in folder.glob("??/??/*"):
        if _DIGEST.match(path.name) and all(_LEVEL.match(one.name) for one in path.parents[:2]):
            found = path.lstat()
            yield bytes.fromhex(path.name), found.st_mtime_ns // 1_000, found.st_size, None


def _pack_versions(path: Path, index: Database | None) -> Iterator[_OlderRow]:
    with path.open("rb") as file:
        while index is None and len(head := file.read(_PACK_HEADER.size)) == _PACK_HEADER.size:
            magic, length, key = _PACK_HEADER.unpack(head)
            if magic != _PACK_MAGIC or length > _MOST_PACKED_OCTETS:
                return
            octets = file.read(length)
            if hashlib.sha256(octets).digest() == key:
                yield key, _now_us(), length, octets
        if index is None:
            return
        with index.read() as tx:
            records = tx.fetch(_PACK_RECORDS, (path.stem,))
        for digest, start, length, used_us in records:
            octets = os.pread(file.fileno(), length, start)
            if len(octets) == length:
                yield digest, used_us, length, octets
