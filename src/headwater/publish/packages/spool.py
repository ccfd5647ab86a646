"""A package on its way into the store: members in a spool, then the manifest that is made of them, put first.

The spool is a file without a name, so that nothing is left of a killed process. The same members and manifest give the
same octets, and so the same name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from headwater.catalog.content import Absence
from headwater.files.version_copy import refuse_little_room
from headwater.packages.member_paths import MANIFEST
from headwater.packages.zip_writer import ZipWriter
from headwater.publish.store_writer import StoreWriter
from headwater.storage.objects.interface import XML, ZIP, Mark

ROOM_OCTETS = 16 << 20
"""So often it is looked whether the disk has room left: the catalog is on it, and must be able to grow."""
_BUFFER = 1 << 18
_BLOCK = 1 << 20


class PackageDigest(msgspec.Struct, frozen=True):
    """What a finished package is: its octets, and their SHA-256."""

    octets: int
    hash: str


class PackageSpool:
    """The members of one package. `stop` is called now and then, and raises to end early.

    All methods raise OSError: the disk is full, or nearly.
    """

    def __init__(self, file: IO[bytes], stop: Callable[[], None]) -> None:
        self._file = file
        self._stop = stop
        self._unlooked = 0
        """Octets written since it was looked how much room there is."""

    def take(self, zip_file: ZipWriter, blocks: Generator[bytes, None, Absence | None]) -> Absence | None:
        """Take one member of a package in; of one whose content cannot be had nothing is left, and why is returned."""
        begin, is_long = zip_file.octets, False
        self._stop()
        try:
            while True:
                self._write(next(blocks))
                self._stop()
                is_long = True
        except StopIteration as ended:
            why: Absence | None = ended.value
        if why is not None and is_long:
            self._file.seek(begin)
            self._file.truncate()
        return why

    def _write(self, octets: bytes) -> None:
        self._file.write(octets)
        self._look_for_room(len(octets))

    def _look_for_room(self, written: int) -> None:
        self._unlooked += written
        if self._unlooked >= ROOM_OCTETS:
            self._unlooked = 0
            refuse_little_room(self._file.fileno(), 0)

    def put(
        self,
        zip_file: ZipWriter,
        manifest: bytes,
        store_writer: StoreWriter,
        names: Callable[[str], tuple[str, str]],
        mark: Mark,
    ) -> PackageDigest:
        """Put the package and the copy of its manifest into the store; what lies there already stays.

        `names` gives both names for the SHA-256 of the package. Raises the store's faults.
        """
        self._file.flush()
        members = zip_file.octets
        first = zip_file.insert_first(MANIFEST, manifest, deflate=True)
        end = zip_file.end()

        def blocks() -> Iterator[bytes]:
            return chain([first], self._read(members), [end])

        hasher = hashlib.sha256()
        for block in blocks():
            self._stop()
            hasher.update(block)
        package, copy = names(hasher.hexdigest())
        store_writer.blocks(copy, [manifest], mark, XML)
        store_writer.blocks(package, self._placed(blocks()), mark, ZIP)
        return PackageDigest(zip_file.octets, hasher.hexdigest())

    def _placed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The octets on their way into the store, which may be on the same disk."""
        for block in blocks:
            self._stop()
            self._look_for_room(len(block))
            yield block

    def _read(self, end: int) -> Iterator[bytes]:
        begin = 0
        while begin < end and (block := os.pread(self._file.fileno(), min(_BLOCK, end - begin), begin)):
            begin += len(block)
            yield block
        if begin < end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def package_spool(folder: Path | None, stop: Callable[[], None]) -> Iterator[PackageSpool]:
    """A spool in a folder, or where temporary files lie; it is gone with the context."""
    with tempfile.TemporaryFile(dir=folder, buffering=_BUFFER) as file:
        yield PackageSpool(file, stop)
