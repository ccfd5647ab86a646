"""The version store in a local folder: a file a version, in two levels of folders, named by its SHA-256.

`versions/ab/cd/abcd…` are versions, durable since they have these names; `versions/.aside/…` is what is being written.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from headwater.files.version_copy import VersionFolders, refuse_little_room, version_path
from headwater.storage.durable import make_folders, sync_file, sync_many
from headwater.versions.interface import SetAside, StoredVersion, VersionsUnusable, WrongOctets

_ASIDE = ".aside"
_LOCK = ".lock"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_LEVEL = re.compile(r"[0-9a-f]{2}\Z")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class OpenVersion(msgspec.Struct, frozen=True, gc=False):
    """An open version. Only its digest tells whether the disk has kept it (`is_vouched`)."""

    descriptor: int
    octets: int
    is_vouched: bool = False

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return os.pread(self.descriptor, octets, start)

    def is_unchanged(self) -> bool:
        """Versions never change."""
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


class FolderVersionStore:
    """The versions below `folder`, which is made when the first one comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = os.fsencode(folder)
        self._aside = folder / _ASIDE

    def put(self, digest: str, blocks: Iterable[bytes]) -> None:
        """Keep these octets, durably."""
        with self._faults():
            name = _checked(digest)
            if self.has(name) and not self._name([(Path(), name)]):
                return
            self._make()
            aside = self._aside / secrets.token_hex(8)
            hasher = hashlib.sha256()
            try:
                with aside.open("xb") as file:
                    for block in blocks:
                        refuse_little_room(self._kept, len(block))
                        hasher.update(block)
                        file.write(block)
                if hasher.hexdigest() != name:
                    raise WrongOctets(f"the octets have the SHA-256 {hasher.hexdigest()}", where=name)
                sync_file(aside)
                self._name([(aside, name)])
            finally:
                with suppress(OSError):
                    aside.unlink()

    def open(self, digest: str) -> OpenVersion | None:
        """The octets of this digest, or None."""
        with self._faults():
            try:
                descriptor = os.open(version_path(self._kept, _checked(digest)), _FLAGS)
            except FileNotFoundError:
                return None
            return OpenVersion(descriptor, os.fstat(descriptor).st_size)

    def has(self, digest: str) -> bool:
        """Whether octets of this digest are kept."""
        return os.path.lexists(version_path(self._kept, _checked(digest)))

    def delete(self, digest: str, unused_since: dt.datetime) -> bool:
        """Remove a version unless a change has named it since."""
        path = version_path(self._kept, _checked(digest))
        with self._faults(), self._lock(fcntl.LOCK_EX):
            try:
                if os.lstat(path).st_mtime_ns >= int(unused_since.timestamp() * 1e9):
                    return False
                os.unlink(path)
            except FileNotFoundError:
                return True
            return True

    def versions(self) -> Iterator[StoredVersion]:
        """All of them, in the order of their digests."""
        with self._faults():
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
        try:
            yield FolderVersionIntake(self, VersionFolders(self._kept, os.fsencode(aside)), error)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def clean(self) -> int:
        """Remove what killed processes have set aside."""
        left = sum(len(files) for _, _, files in os.walk(self._aside))
        shutil.rmtree(self._aside, ignore_errors=True)
        return left

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


class FolderVersionIntake:
    """The intake of a FolderVersionStore. `error` is why its folder could not be made, else 0."""

    def __init__(self, store: FolderVersionStore, folders: VersionFolders, error: int = 0) -> None:
        self.folders = folders
        self._store = store
        self._error = error
        self._aside = Path(os.fsdecode(folders.aside))

    def keep(self, versions: Iterable[SetAside]) -> list[str]:
        """Make these durable, under their digests; returns the digests of those that could not be kept."""
        wanted = list(versions)
        if self._error:
            return [one.digest for one in wanted]
        try:
            sync_many([self._aside / one.name for one in wanted if one.name])
            return self._store._name([(self._aside / one.name if one.name else Path(), one.digest) for one in wanted])
        except OSError:
            return [one.digest for one in wanted if not self._store.has(one.digest)]

    def drop(self, names: Iterable[str]) -> None:
        """Remove what was set aside and no change needs."""
        for name in names:
            with suppress(OSError):
                (self._aside / name).unlink()


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
