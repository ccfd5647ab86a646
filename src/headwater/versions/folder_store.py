"""The version store in a local folder: small versions in packs (`pack_store`), larger ones in a file each.

`versions/ab/cd/abcd…` are versions, named by their SHA-256 and durable since they have these names;
`versions/.aside/…` is what is being written. Small ones that an earlier program has kept in files are read there.
Removing takes a lock that naming shares: a version that a change is about to name is not removed meanwhile.
"""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from headwater.files.version_copy import VersionFolders, refuse_little_room, version_path
from headwater.files.version_spool import HEADER, MAGIC, PACKED_OCTETS
from headwater.spec.timestamps import from_microseconds, to_microseconds
from headwater.storage.database_faults import DatabaseFault
from headwater.storage.durable import make_folders, sync_file, sync_many
from headwater.versions.interface import SetAside, StoredVersion, VersionsUnusable, WrongOctets
from headwater.versions.pack_appending import Record
from headwater.versions.pack_store import OpenVersion, PackStore, Spools

_ASIDE = ".aside"
_LOCK = ".lock"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_LEVEL = re.compile(r"[0-9a-f]{2}\Z")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class FolderVersionStore:
    """The versions below `folder`, which is made when the first one comes."""

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        """`is_read_only`: versions are only read, by somebody who perhaps must not write here."""
        self._folder = folder
        self._kept = os.fsencode(folder)
        self._aside = folder / _ASIDE
        self._packs = PackStore(folder, is_read_only=is_read_only)

    def close(self) -> None:
        """Give up what is held open."""
        self._packs.close()

    def put(self, digest: str, blocks: Iterable[bytes]) -> None:
        """Keep these octets, durably."""
        with self._faults():
            name = _checked(digest)
            if self._touch(name):
                return
            source = iter(blocks)
            first: list[bytes] = []
            while sum(map(len, first)) <= PACKED_OCTETS and (block := next(source, None)) is not None:
                first.append(block)
            if sum(map(len, first)) <= PACKED_OCTETS:
                self._put_packed(name, b"".join(first))
            else:
                self._put_file(name, chain(first, source))

    def _touch(self, name: str) -> bool:
        """Note a version as used now; whether it is kept."""
        if self._packs.touch([name], _now_us()):
            return True
        return self._has_file(name) and not self._name([(Path(), name)])

    def _put_packed(self, name: str, data: bytes) -> None:
        _refuse_wrong(hashlib.sha256(data).hexdigest(), name)
        digest, now_us = bytes.fromhex(name), _now_us()
        with self._written() as aside:
            aside.write_bytes(HEADER.pack(MAGIC, len(data), digest) + data)
            spools = {aside: [(digest, HEADER.size, len(data), now_us)]}
            self._keep_in_files(spools, self._packs.append(spools, now_us, {}).unlike)

    def _keep_in_files(self, spools: Spools, digests: Collection[bytes]) -> None:
        """Keep those of the records in files of their own."""
        for path, records in spools.items():
            for digest, start, octets, _used_us in records:
                if digest in digests:
                    with path.open("rb") as file:
                        file.seek(start)
                        self._put_file(digest.hex(), [file.read(octets)])

    def _put_file(self, name: str, blocks: Iterable[bytes]) -> None:
        hasher = hashlib.sha256()
        with self._written() as aside:
            with aside.open("xb") as file:
                for block in blocks:
                    refuse_little_room(self._kept, len(block))
                    hasher.update(block)
                    file.write(block)
            _refuse_wrong(hasher.hexdigest(), name)
            sync_file(aside)
            self._name([(aside, name)])

    @contextmanager
    def _written(self) -> Iterator[Path]:
        """A path to write to; what is there in the end is removed."""
        self._make()
        aside = self._aside / secrets.token_hex(8)
        try:
            yield aside
        finally:
            with suppress(OSError):
                aside.unlink()

    def open(self, digest: str) -> OpenVersion | None:
        """The octets of this digest, or None."""
        with self._faults():
            found = self._packs.open(_checked(digest))
            if found is not None:
                return found
            try:
                descriptor = os.open(version_path(self._kept, digest), _FLAGS)
            except FileNotFoundError:
                return None
            return OpenVersion(descriptor, os.fstat(descriptor).st_size)

    def has(self, digest: str) -> bool:
        """Whether octets of this digest are kept."""
        with self._faults():
            return self._packs.has(_checked(digest)) or self._has_file(digest)

    def delete(self, digests: Iterable[str], unused_since: dt.datetime) -> list[str]:
        """Remove versions unless a change has named them since."""
        names = [_checked(one) for one in digests]
        with self._faults():
            gone, stay = self._packs.delete(names, to_microseconds(unused_since))
            stays = {*gone, *stay}
            files = [one for one in names if one not in stays]
            return gone + (self._delete_files(files, int(unused_since.timestamp() * 1e9)) if files else [])

    def _delete_files(self, names: list[str], unused_since_ns: int) -> list[str]:
        gone: list[str] = []
        with self._lock(fcntl.LOCK_EX):
            for name in names:
                path = version_path(self._kept, name)
                with suppress(FileNotFoundError):
                    if os.lstat(path).st_mtime_ns >= unused_since_ns:
                        continue
                    os.unlink(path)
                gone.append(name)
        return gone

    def reclaim(self) -> int:
        """Give the disk what removed versions still take."""
        with self._faults():
            return self._packs.reclaim()

    def versions(self) -> Iterator[StoredVersion]:
        """All of them, as they lie on the disk."""
        with self._faults():
            for packed in self._packs.versions():
                yield StoredVersion(packed.digest.hex(), packed.octets, from_microseconds(packed.used_us))
            for first in _folders(self._kept):
                for second in _folders(first):
                    yield from _versions(second)

    @contextmanager
    def intake(self) -> Iterator[FolderVersionIntake]:
        """What takes the versions of one scan in."""
        aside = self._aside / secrets.token_hex(8)
        error = 0
        try:
            self._make()
            aside.mkdir()
        except OSError as cause:  # a scan goes on without versions: its readers are told as much for each file
            error = cause.errno or errno.EIO
        intake = FolderVersionIntake(self, VersionFolders(self._kept, os.fsencode(aside)), error)
        try:
            yield intake
        finally:
            intake.end()
            shutil.rmtree(aside, ignore_errors=True)

    def clean(self) -> int:
        """Remove what killed processes have set aside."""
        left = sum(len(files) for _, _, files in os.walk(self._aside))
        shutil.rmtree(self._aside, ignore_errors=True)
        with self._faults():
            return left + self._packs.clean()

    def _levels_of_files(self) -> set[str]:
        """The names of the first level of folders in which versions have files of their own."""
        return {os.fsdecode(one[-2:]) for one in _folders(self._kept)}

    def _has_file(self, digest: str) -> bool:
        return os.path.lexists(version_path(self._kept, digest))

    def _make(self) -> None:
        make_folders(self._aside)

    def _name(self, durable: Iterable[tuple[Path, str]]) -> list[str]:
        """Give files that are durable the names of their digests; returns the digests of those that are not there.

        A version that is kept already is noted as used now.
        """
        missing: list[str] = []
        touched: set[bytes] = set()
        with self._lock(fcntl.LOCK_SH):
            for aside, digest in durable:
                path = version_path(self._kept, digest)
                try:
                    if aside.name:
                        _make_levels(path, touched)
                        os.replace(aside, path)
                        touched.add(os.path.dirname(path))
                    else:
                        os.utime(path)
                except FileNotFoundError:
                    missing.append(digest)
        sync_many([Path(os.fsdecode(folder)) for folder in touched])
        return missing

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        self._make()
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise VersionsUnusable(cause.strerror or str(cause), where=str(self._folder)) from cause
        except DatabaseFault as cause:
            raise VersionsUnusable(cause.what, where=cause.where or str(self._folder)) from cause


class FolderVersionIntake:
    """The intake of a FolderVersionStore. `error` is why its folder could not be made, else 0."""

    def __init__(self, store: FolderVersionStore, folders: VersionFolders, error: int = 0) -> None:
        self.folders = folders
        self._store = store
        self._error = error
        self._aside = Path(os.fsdecode(folders.aside))
        self._spools: dict[str, int] = {}
        self._adopted: dict[Path, int] = {}

    def end(self) -> None:
        """All readers have ended. Raises nothing."""
        self._store._packs.cut(self._adopted.values())

    def keep(self, versions: Iterable[SetAside]) -> list[str]:
        """Make these durable, under their digests; returns the digests of those that could not be kept."""
        wanted = list(versions)
        if self._error:
            return [one.digest for one in wanted]
        try:
            return self._keep(wanted)
        except (OSError, DatabaseFault):
            return [one.digest for one in wanted if not self._has(one.digest)]

    def _keep(self, wanted: list[SetAside]) -> list[str]:
        now_us = _now_us()
        in_files = self._store._levels_of_files()
        spools: dict[str, list[Record]] = {}
        files: list[tuple[Path, str]] = []
        unnamed = [one.digest for one in wanted if not one.name and one.octets <= PACKED_OCTETS]
        packed = self._store._packs.touch(unnamed, now_us) if unnamed else set()
        spool, records = "", []
        for one in wanted:
            digest, name = one.digest, one.name
            of, _, start = name.partition(":")
            if start and not (in_files and digest[:2] in in_files and self._store._has_file(digest)):
                if of != spool:
                    spool, records = of, spools.setdefault(of, [])
                records.append((bytes.fromhex(digest), int(start), one.octets, now_us))
            elif start:
                files.append((Path(), digest))
            elif name or digest not in packed:
                files.append((self._aside / name if name else Path(), digest))
        if spools:
            paths = {self._aside / name: records for name, records in spools.items()}
            appended = self._store._packs.append(paths, now_us, self._adopted)
            self._adopted |= appended.adopted
            if appended.unlike:
                self._store._keep_in_files(paths, appended.unlike)
            self._remove_before(spools)
        if not files:
            return []
        sync_many([path for path, _digest in files if path.name])
        return self._store._name(files)

    def _has(self, digest: str) -> bool:
        try:
            content = self._store.open(digest)
            if content is None:
                return False
            with closing(content):
                if content.octets > PACKED_OCTETS:
                    return True
                return hashlib.sha256(content.read(0, content.octets)).hexdigest() == digest
        except (VersionsUnusable, OSError):
            return False

    def drop(self, names: Iterable[str]) -> None:
        """Remove what was set aside and no change needs."""
        spools: dict[str, None] = {}
        for name in names:
            spool, _, start = name.partition(":")
            if start:
                spools[spool] = None
            else:
                with suppress(OSError):
                    (self._aside / name).unlink()
        self._remove_before(spools)

    def _remove_before(self, spools: Iterable[str]) -> None:
        """Remove the spools that their readers wrote before these: nothing in them is needed any more."""
        for name in spools:
            reader, _, number = name.partition("-")
            last = int(number)
            for earlier in range(self._spools.get(reader, last), last):
                with suppress(OSError):
                    (self._aside / f"{reader}-{earlier}").unlink()
            self._spools[reader] = max(last, self._spools.get(reader, last))


def _now_us() -> int:
    return time.time_ns() // 1_000


def _refuse_wrong(found: str, name: str) -> None:
    if found != name:
        raise WrongOctets(f"the octets have the SHA-256 {found}", where=name)


def _checked(digest: str) -> str:
    if not _DIGEST.match(digest):
        raise ValueError(f"not a SHA-256 in hex: {digest[:80]!r}")
    return digest


def _make_levels(path: bytes, touched: set[bytes]) -> None:
    """Make the folders that the path needs; those in which names are new by that are `touched`."""
    second = os.path.dirname(path)
    if os.path.isdir(second):
        return
    first = os.path.dirname(second)
    for folder in (first, second):
        with suppress(FileExistsError):
            os.mkdir(folder)
            touched.add(os.path.dirname(folder))


def _folders(folder: bytes) -> list[bytes]:
    """The folders of the next level, sorted."""
    try:
        names = sorted(name for name in os.listdir(folder) if _LEVEL.match(os.fsdecode(name)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder + b"/" + name for name in names]


def _versions(folder: bytes) -> Iterator[StoredVersion]:
    try:
        names = sorted(os.fsdecode(name) for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        with suppress(FileNotFoundError):
            if _DIGEST.match(name):
                found = os.lstat(folder + b"/" + os.fsencode(name))
                yield StoredVersion(name, found.st_size, dt.datetime.fromtimestamp(found.st_mtime, dt.UTC))
