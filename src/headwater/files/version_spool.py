"""Sets the octets of small files aside, one behind the other, as the records that packs have of them.

A file for each version would cost more than all else that a scan does. Standard library only: the hashing processes
import it. As in `version_copy`, what cannot be written is told by an errno, and costs no file its digests.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import struct
import sys
from typing import Final

from headwater.files.version_copy import VersionCopy, VersionFolders, refuse_little_room
from headwater.files.whole_writes import write_all

PACKED_OCTETS: Final = 128 << 10
"""Versions up to this size are kept in packs. Above it, a file of its own costs little beside the octets themselves."""
MAGIC: Final = b"HWV1"
HEADER: Final = struct.Struct("<4sQ32s")
"""Before the octets of each record: the magic, how many octets there are, and their SHA-256."""
SPOOL_OCTETS: Final = 60 << 20
"""A spool that has so many is not written to any more: it becomes a pack of up to 64 MiB."""

_BUFFER_OCTETS = 4 << 20


class VersionSpool:
    """Takes the versions of one reader of files, into one spool after the other; `settle` has them written.

    A version is called `READER-NUMBER:START`: the name of its spool, and where in it its octets begin. When a later
    spool of a reader is named, all versions in its earlier ones have been.
    """

    def __init__(self, folders: VersionFolders) -> None:
        self._folders = folders
        self._reader = secrets.token_hex(8)
        self._number = 0
        self._name = f"{self._reader}-0"
        self._descriptor = -1
        self._end = 0
        self._buffer = memoryview(b"")
        self._held = 0
        self._failed: dict[str, int] = {}

    def copy(self, octets: int) -> VersionCopy | SpooledCopy:
        """What takes the octets of one file, of which there should be so many."""
        return SpooledCopy(self) if octets <= PACKED_OCTETS else VersionCopy(self._folders, octets)

    def room(self, octets: int) -> memoryview:
        """Where the next version is to be put, of up to PACKED_OCTETS: room for one octet more than these."""
        start = self._held + HEADER.size
        if start + octets >= len(self._buffer):
            if self._held:
                self._write()
                start = HEADER.size
            if not self._buffer:
                self._buffer = memoryview(bytearray(_BUFFER_OCTETS))
        return self._buffer[start : start + octets + 1]

    def take(self, digest: bytes, octets: int) -> str:
        """Take the version that lies in its `room`, with this SHA-256; returns what it is called."""
        HEADER.pack_into(self._buffer, self._held, MAGIC, octets, digest)
        start = self._held + HEADER.size
        self._held = start + octets
        return f"{self._name}:{self._end + start}"

    def add(self, digest: str, parts: list[bytes]) -> str:
        """Take one version; returns what it is called."""
        octets = sum(map(len, parts))
        self.room(octets)[:octets] = b"".join(parts)
        return self.take(bytes.fromhex(digest), octets)

    def settle(self) -> dict[str, int]:
        """Write what is held. Raises nothing: what it returns are the spools that failed since the last call, by name,
        each with an errno."""
        if self._held:
            self._write()
        failed, self._failed = self._failed, {}
        return failed

    def close(self) -> None:
        """Give up the file; the next version begins another one."""
        self._held = 0
        self._begin_next()

    def _write(self) -> None:
        octets, self._held = self._held, 0
        try:
            refuse_little_room(self._folders.aside, octets)
            if self._descriptor < 0:
                path = self._folders.aside + b"/" + os.fsencode(self._name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._descriptor = os.open(path, flags, 0o600)
            write_all(self._descriptor, self._buffer[:octets])
            _begin_writeback(self._descriptor, self._end, octets)
            self._end += octets
        except OSError as cause:
            self._failed[self._name] = cause.errno or errno.EIO
            self._begin_next()
        else:
            if self._end >= SPOOL_OCTETS:
                self._begin_next()

    def _begin_next(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._end = -1, 0
        self._number += 1
        self._name = f"{self._reader}-{self._number}"


class SpooledCopy:
    """Takes the octets of one small file as they come; `name` is what they are called aside in the end, `errno` what
    failed."""

    __slots__ = ("_held", "_octets", "_spool", "errno", "name")

    def __init__(self, spool: VersionSpool) -> None:
        self.name = ""
        self.errno = 0
        self._spool = spool
        self._held: list[bytes] = []
        self._octets = 0

    def write(self, data: bytes) -> None:
        """Take the next octets. Raises nothing."""
        self._octets += len(data)
        if self._octets > PACKED_OCTETS:
            self.errno = errno.EFBIG
            self._held = []
        else:
            self._held.append(data)

    def finish(self, digest: str) -> None:
        """All is read, held still, and has this SHA-256. Raises nothing."""
        if not self.errno:
            self.name = self._spool.add(digest, self._held)

    def discard(self) -> None:
        """Leave nothing behind, unless it is finished. Raises nothing."""
        self._held = []


def _begin_writeback(descriptor: int, start: int, octets: int) -> None:
    """Let the disk begin with what has just been written: who makes it durable later waits for the rest alone.

    On Linux this advice begins to write what is dirty, and leaves what is being written in memory.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, start, octets, os.POSIX_FADV_DONTNEED)
