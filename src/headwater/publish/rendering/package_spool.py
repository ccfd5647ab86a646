"""A package on its way into the store: members in a spool, then the manifest that is made of them, put first.

The spool is a file without a name, so that nothing is left of a killed process. The same members and manifest give the
same octets, and so the same name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import msgspec

from headwater.catalog.content import ContentChanged
from headwater.files.version_copy import refuse_little_room
from headwater.packages.compression import pays
from headwater.packages.faults import MemberChanged
from headwater.packages.member_paths import MANIFEST
from headwater.packages.zip_writer import PackedMember, ZipWriter
from headwater.publish.store_writer import StoreWriter
from headwater.storage.objects.interface import XML, ZIP, Mark

SMALL_OCTETS = 1 << 20
"""Up to so many octets a member is packed at once, with its sizes in the local header."""
MANIFEST_OCTETS = 40_000_000
"""No manifest is longer, but for its last entry: it has to be a document like others (RS-LIM-01)."""
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

    def __init__(self, file: IO[bytes], stop: Callable[[], None], other: BinaryIO | None = None) -> None:
        """`other`: a file in which somebody else writes members, where they are told to (`append`)."""
        self._file = file
        self._stop = stop
        self._other = other
        self._ranges: list[_Range] = []
        """Where the members lie, in their order."""
        self._writer = ZipWriter()
        self._unlooked = 0
        """Octets written since it was looked how much room there is."""

    @property
    def octets(self) -> int:
        """What the members take, packed."""
        return self._writer.octets

    def add_whole(self, name: str, octets: bytes, media_type: str | None) -> None:
        """Pack one small member."""
        self._stop()
        begin = self._file.tell()
        self._write(self._writer.member(name, octets, deflate=pays(media_type, len(octets))))
        self._extend(self._file, begin, self._file.tell())

    def append(self, members: list[PackedMember], place: int) -> int:
        """Take in members that lie in the other file, one behind the other from a place on; gives their end."""
        if not members:
            return place
        assert self._other is not None
        self._stop()
        before = self._writer.octets
        self._writer.append(members)
        octets = self._writer.octets - before
        self._extend(self._other, place, place + octets)
        self._look_for_room(octets)
        return place + octets

    def add(self, name: str, blocks: Iterable[bytes], length: int | None, media_type: str | None) -> bool:
        """Pack one member; False, with nothing of it left, when the blocks are not what was recorded.

        Raises what `blocks` raises but for ContentChanged; nothing of the member is left then, either.
        """
        self._stop()
        begin = self._file.tell()
        deflate = pays(media_type, length)
        try:
            if length is not None and length <= SMALL_OCTETS:
                self._write(self._writer.member(name, b"".join(blocks), deflate=deflate))
            else:
                for block in self._writer.stream(name, blocks, octets=length, deflate=deflate):
                    self._stop()
                    self._write(block)
        except (ContentChanged, MemberChanged):
            self._forget(begin)
            return False
        except Exception:
            self._forget(begin)
            raise
        self._extend(self._file, begin, self._file.tell())
        return True

    def _write(self, octets: bytes) -> None:
        self._file.write(octets)
        self._look_for_room(len(octets))

    def _look_for_room(self, written: int) -> None:
        self._unlooked += written
        if self._unlooked >= ROOM_OCTETS:
            self._unlooked = 0
            refuse_little_room(self._file.fileno(), 0)

    def _forget(self, begin: int) -> None:
        self._file.seek(begin)
        self._file.truncate()

    def _extend(self, file: IO[bytes], begin: int, end: int) -> None:
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last.file is file and last.end == begin:
            self._ranges[-1] = last._replace(end=end)
        else:
            self._ranges.append(_Range(file, begin, end))

    def put(
        self, store_writer: StoreWriter, manifest: bytes, names: Callable[[str], tuple[str, str]], mark: Mark
    ) -> PackageDigest:
        """Put the package and the copy of its manifest into the store; what lies there already stays.

        `names` gives both names for the SHA-256 of the package. Raises the store's faults.
        """
        self._file.flush()
        first = self._writer.insert_first(MANIFEST, manifest, deflate=True)
        end = self._writer.end()

        def blocks() -> Iterator[bytes]:
            return chain([first], *(_read(*one) for one in self._ranges), [end])

        hasher = hashlib.sha256()
        for block in blocks():
            self._stop()
            hasher.update(block)
        package, copy = names(hasher.hexdigest())
        store_writer.blocks(copy, [manifest], mark, XML)
        store_writer.blocks(package, self._placed(blocks()), mark, ZIP)
        return PackageDigest(self._writer.octets, hasher.hexdigest())

    def _placed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The octets on their way into the store, which may be on the same disk."""
        for block in blocks:
            self._stop()
            self._look_for_room(len(block))
            yield block


class _Range(NamedTuple):
    """A part of a file."""

    file: IO[bytes]
    begin: int
    end: int


def _read(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    while begin < end and (block := os.pread(file.fileno(), min(_BLOCK, end - begin), begin)):
        begin += len(block)
        yield block
    if begin < end:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def package_spool(
    folder: Path | None, stop: Callable[[], None], other: BinaryIO | None = None
) -> Iterator[PackageSpool]:
    """A spool in a folder, or where temporary files lie; it is gone with the context."""
    with tempfile.TemporaryFile(dir=folder, buffering=_BUFFER) as file:
        yield PackageSpool(file, stop, other)


def spool_file(folder: Path | None) -> BinaryIO:
    """A nameless file for members that others write, without a buffer."""
    return tempfile.TemporaryFile(dir=folder, buffering=0)
