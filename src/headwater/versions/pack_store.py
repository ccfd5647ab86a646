"""Packs of versions: small octets one behind the other in files of up to 64 MiB, found by an index.

`packs/*.pack` have a record for each version (`files.version_spool`), `index.sqlite` beside them says where each is.
Octets are made durable before the index names them, and the index is before a change names them. A transaction of the
index is also the lock: one at a time appends, removes or empties a pack, in whatever process; readers wait for nobody.
The index can be made anew of the packs: where it is missing, that is done.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from headwater.files.version_spool import HEADER
from headwater.storage.database import Database, copy_database
from headwater.storage.database_faults import DatabaseFault
from headwater.storage.durable import make_folders
from headwater.storage.sqlite.transaction import Transaction
from headwater.versions import pack_index
from headwater.versions.pack_appending import SUFFIX, AlreadyPacked, PackAppender, Record, pack_path
from headwater.versions.pack_index import FILE, SCHEMA, Pack, PackedVersion
from headwater.versions.pack_recovery import adopt_packs, recover_leftovers

PACKS: Final = "packs"

_PAGE = 5_000
_MOVE_OCTETS = 8 << 20
_ATTEMPTS = 5
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class OpenVersion(msgspec.Struct, frozen=True, gc=False):
    """An open version: so many octets of a file. Only its digest tells whether the disk has kept it (`is_vouched`)."""

    descriptor: int
    octets: int
    start: int = 0
    is_vouched: bool = False

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return os.pread(self.descriptor, min(octets, max(0, self.octets - start)), self.start + start)

    def is_unchanged(self) -> bool:
        """Versions never change."""
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


Spools = Mapping[Path, Sequence[Record]]


class AppendResult(msgspec.Struct, frozen=True):
    """What came of records: which spools have become packs (with the packs' numbers), how many were `known` already.

    `unlike` are digests that begin like others in packs: they are kept elsewhere.
    """

    adopted: dict[Path, int]
    known: int
    unlike: set[bytes]


class PackStore:
    """The packs below the folder `versions`, which are made when the first version comes.

    Safe for several threads and processes. Methods raise OSError and the database's faults.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        """`is_read_only`: nothing is made or changed below the folder: a copy of the index is read, made elsewhere."""
        self._folder = folder
        self._packs = folder / PACKS
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._expects_known = False
        self._is_read_only = is_read_only
        self._copies = ExitStack()
        self._missed: set[str] = set()

    def close(self) -> None:
        """Give the index up; it is opened again when it is needed."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None
            self._copies.close()

    def open(self, digest: str) -> OpenVersion | None:
        """The octets of this digest; None when no pack has them."""
        for _ in range(_ATTEMPTS):  # a pack that goes has been emptied before: then the index names another
            place = self._place(bytes.fromhex(digest))
            if place is None:
                return None
            with suppress(FileNotFoundError):
                descriptor = os.open(pack_path(self._packs, place.pack), _FLAGS)
                return OpenVersion(descriptor, place.octets, place.start)
            if self._is_read_only:
                self._copy_anew(place.pack)
        return None

    def _copy_anew(self, missing: str) -> None:
        """Have the index copied again, once for each pack that goes meanwhile; who reads a copy reads on."""
        with self._lock:
            if missing not in self._missed and self._database is not None:
                self._missed.add(missing)
                self._copies.callback(self._database.close)
                self._database = None

    def has(self, digest: str) -> bool:
        """Whether a pack has the octets of this digest."""
        return self._place(bytes.fromhex(digest)) is not None

    def _place(self, digest: bytes) -> pack_index.VersionPlace | None:
        index = self._existing()
        if index is None:
            return None
        with index.read() as tx:
            return pack_index.place_of(tx, digest)

    def append(self, spools: Spools, used_us: int, adopted: Mapping[Path, int]) -> AppendResult:
        """Keep records that are in spools, durably; those that packs have already are noted as used now.

        `adopted` are the spools that have become packs, as the calls before have returned them.
        """
        if not self._expects_known:
            with suppress(AlreadyPacked):  # to look each up first costs as much as to note it
                return self._append(spools, None, adopted)
        appended = self._append(spools, used_us, adopted)
        self._expects_known = appended.known > 0
        return appended

    def _append(self, spools: Spools, used_us: int | None, adopted: Mapping[Path, int]) -> AppendResult:
        """With `used_us`, versions are looked up first; without, that none is known is tried. Raises AlreadyPacked."""
        with self._index().write(durable=True) as tx, PackAppender(self._packs, tx) as appender:
            known: set[bytes] = set()
            unlike: set[bytes] = set()
            if used_us is not None:
                digests = {record[0] for records in spools.values() for record in records}
                known = self._known(tx, digests, used_us)
                unlike = pack_index.of_same_key(tx, digests - known)
            skipped = known | unlike
            for path, records in spools.items():
                if fresh := _unknown(records, skipped):
                    appender.take(path, fresh, adopted.get(path))
            appender.finish()
        return AppendResult(appender.adopted, len(known), unlike)

    def _known(self, tx: Transaction, digests: set[bytes], used_us: int) -> set[bytes]:
        """The digests whose octets packs have; those that the disk has lost or altered are forgotten."""
        found = pack_index.find_versions(tx, digests)
        damaged = self._damaged(tx, found)
        kept = [one for one in found if one.id not in damaged]
        self._forget(tx, [one for one in found if one.id in damaged])
        pack_index.touch_versions(tx, kept, used_us)
        return {one.digest for one in kept}

    def _damaged(self, tx: Transaction, versions: Sequence[PackedVersion]) -> set[int]:
        """The rows of those that do not have their digests: reading them costs less than to have kept them once."""
        by_pack: dict[int, list[PackedVersion]] = {}
        for one in versions:
            by_pack.setdefault(one.pack, []).append(one)
        damaged: set[int] = set()
        for number, some in by_pack.items():
            pack = pack_index.pack_of(tx, number)
            try:
                descriptor = os.open(pack_path(self._packs, "" if pack is None else pack.name), _FLAGS)
            except FileNotFoundError:
                damaged |= {one.id for one in some}
                continue
            try:
                damaged |= {one.id for one in some if not _is_sound(descriptor, one)}
            finally:
                os.close(descriptor)
        return damaged

    def cut(self, adopted: Iterable[int]) -> None:
        """Cut off what lies in these packs behind the octets that count: their readers have ended. Raises nothing."""
        numbers = list(adopted)
        with suppress(OSError, DatabaseFault):
            if numbers:
                with self._index().write() as tx:
                    for one in filter(None, (pack_index.pack_of(tx, number) for number in numbers)):
                        os.truncate(pack_path(self._packs, one.name), one.octets)

    def touch(self, digests: Iterable[str], used_us: int) -> set[str]:
        """Note those of these that packs have as used now; which they are."""
        index = self._existing()
        if index is None:
            return set()
        with index.write(durable=True) as tx:
            return {one.hex() for one in self._known(tx, set(map(bytes.fromhex, digests)), used_us)}

    def delete(self, digests: Iterable[str], unused_since_us: int) -> tuple[list[str], list[str]]:
        """Forget versions unless a change has named them since: those that are forgotten, and those that stay."""
        index = self._existing()
        if index is None:
            return [], []
        with index.write(durable=True) as tx:
            found = pack_index.find_versions(tx, map(bytes.fromhex, digests))
            gone = [one for one in found if one.used_us < unused_since_us]
            self._forget(tx, gone)
        stays = [one.digest.hex() for one in found if one.used_us >= unused_since_us]
        return [one.digest.hex() for one in gone], stays

    def versions(self) -> Iterator[PackedVersion]:
        """All of them, in the order of their octets."""
        index, last = self._existing(), 0
        while index is not None:
            with index.read() as tx:
                page = pack_index.versions_after(tx, last, _PAGE)
            if not page:
                return
            yield from page
            last = page[-1].id

    def reclaim(self) -> int:
        """Give back what dead records take: empty packs go, those that are more than half dead are emptied before.

        How many octets that were. Killed at any point, the next call goes on.
        """
        index = self._existing()
        if index is None:
            return 0
        with index.read() as tx:
            wasteful = [one for one in pack_index.packs(tx) if 2 * one.live < one.octets or not one.live]
        freed = 0
        for pack in wasteful:
            while self._move_some(index, pack):
                pass
            freed += self._remove_empty(index, pack)
        return freed

    def _move_some(self, index: Database, pack: Pack) -> bool:
        """Append some of a pack's live records to another; whether there were any."""
        with index.write(durable=True) as tx, PackAppender(self._packs, tx, avoid=pack) as appender:
            rows = _some(pack_index.versions_of(tx, pack, _PAGE))
            if not rows:
                return False
            pack_index.remove_versions(tx, rows)
            pack_index.note_dead(tx, {pack.id: sum(HEADER.size + one.octets for one in rows)})
            descriptor = os.open(pack_path(self._packs, pack.name), _FLAGS)
            try:
                appender.append(descriptor, [(one.digest, one.start, one.octets, one.used_us) for one in rows])
            finally:
                os.close(descriptor)
            appender.finish()
        return True

    def _remove_empty(self, index: Database, pack: Pack) -> int:
        with index.write(durable=True) as tx:
            now = pack_index.pack_of(tx, pack.id)
            if now is None or now.live:
                return 0
            pack_index.forget_pack(tx, now)
        with suppress(FileNotFoundError):
            pack_path(self._packs, pack.name).unlink()
        return now.octets

    def clean(self) -> int:
        """Note or remove what killed processes have left; how many files are removed."""
        index = self._existing()
        if index is None:
            return 0
        with index.write(durable=True) as tx:
            return recover_leftovers(self._packs, tx)

    def _forget(self, tx: Transaction, gone: Sequence[PackedVersion]) -> None:
        pack_index.remove_versions(tx, gone)
        dead: dict[int, int] = {}
        for one in gone:
            dead[one.pack] = dead.get(one.pack, 0) + HEADER.size + one.octets
        pack_index.note_dead(tx, dead)

    def _existing(self) -> Database | None:
        """The index; None when there are no packs yet."""
        return self._index() if self._database is not None or self._packs.is_dir() else None

    def _index(self) -> Database:
        with self._lock:
            if self._database is None:
                database = Database(self._index_path(), SCHEMA)
                try:
                    self._adopt(database)
                except BaseException:
                    database.close()
                    raise
                self._database = database
            return self._database

    def _index_path(self) -> Path:
        if not self._is_read_only:
            make_folders(self._packs)
            return self._folder / FILE
        path = Path(self._copies.enter_context(TemporaryDirectory(prefix="headwater-"))) / FILE
        if (self._folder / FILE).exists():
            copy_database(self._folder / FILE, path)
        return path

    def _adopt(self, database: Database) -> None:
        """Make the index anew of packs when it knows none."""
        with database.read() as tx:
            if pack_index.has_packs(tx):
                return
        if any(name.endswith(SUFFIX) for name in os.listdir(self._packs)):
            with database.write(durable=True) as tx:
                if not pack_index.has_packs(tx):
                    adopt_packs(self._packs, tx)


def _is_sound(descriptor: int, version: PackedVersion) -> bool:
    """Whether the octets of a version have its digest; what cannot be read has not."""
    try:
        octets = os.pread(descriptor, version.octets, version.start)
    except OSError:
        return False
    return hashlib.sha256(octets).digest() == version.digest


def _some(rows: list[PackedVersion]) -> list[PackedVersion]:
    """As many of the first as are moved in one transaction."""
    octets = 0
    for number, one in enumerate(rows):
        octets += one.octets
        if octets > _MOVE_OCTETS:
            return rows[: number + 1]
    return rows


def _unknown(records: Sequence[Record], known: set[bytes]) -> list[Record]:
    """The records whose digests are not `known`; then they are."""
    digests = {one[0] for one in records}
    if len(digests) == len(records) and known.isdisjoint(digests):
        known |= digests
        return list(records)
    fresh = []
    for one in records:
        if one[0] not in known:
            known.add(one[0])
            fresh.append(one)
    return fresh
