"""Sets the octets of files aside while they are hashed: what becomes a version when the file's change is recorded.

Small files are written one behind the other into one file for each block of files that is read, larger ones to a file
each. A version never costs a scan its result: what cannot be written (disk full, no permission) is told by an errno,
and the file is hashed as ever. Standard library only: the hashing processes import it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets

from headwater.files.whole_writes import free_octets, write_all

ALGORITHM = "sha-256"
"""By its digest a version is found."""
SMALL_OCTETS = 128 << 10
"""Versions up to this size lie in the database. Above it, a file costs little beside the octets themselves."""
RESERVE_OCTETS = 64 << 20
"""So much is left free on the disk: the catalog has to grow while versions have no room."""

_HELD_OCTETS = 64 << 10


def version_path(kept: bytes, digest: str) -> bytes:
    """The path of the file of the version with this SHA-256 (64 hex digits): `ab/cd/abcd…`."""
    name = digest.encode("ascii")
    return b"%s/%s/%s/%s" % (kept, name[:2], name[2:4], name)


def refuse_little_room(place: bytes | int, octets: int) -> None:
    """Raise OSError (ENOSPC) when so many octets would leave less than RESERVE_OCTETS free, on the disk of a folder or
    of an open file."""
    if free_octets(place) < octets + RESERVE_OCTETS:
        raise OSError(errno.ENOSPC, why_not_kept(errno.ENOSPC))


def why_not_kept(error: int) -> str:
    """What an errno of a version says to a person: there may be room on the disk, but less than is left free."""
    if error == errno.ENOSPC:
        return f"the disk would have less than {RESERVE_OCTETS >> 20} MiB left"
    return os.strerror(error)


class VersionWriter:
    """Sets octets aside in a folder, for one reader of files; `settle` writes the small ones.

    Octets are called by the name of their file; small ones by `NAME:START`, as they begin there within it.
    """

    def __init__(self, folder: bytes) -> None:
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self._name = secrets.token_hex(8)
        self._descriptor = -1
        self._end = 0
        self._held: list[bytes] = []
        self._held_octets = 0
        self._errno = 0

    def add(self, octets: bytes) -> str:
        """Take the octets of a small file; returns what they are called."""
        name = f"{self._name}:{self._end}"
        self._end += len(octets)
        self._held_octets += len(octets)
        self._held.append(octets)
        if self._held_octets > _HELD_OCTETS:
            self._write()
        return name

    def settle(self) -> int:
        """Write what is still held. Returns 0, or the errno that says why nothing is there since the last call."""
        if self._held:
            self._write()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        error = self._errno
        self._begin()
        return error

    def _write(self) -> None:
        octets, self._held, self._held_octets = b"".join(self._held), [], 0
        if self._errno:
            return
        try:
            refuse_little_room(self.folder, len(octets))
            if self._descriptor < 0:
                self._descriptor = _create(self.folder + b"/" + self._name.encode())
            write_all(self._descriptor, octets)
        except OSError as cause:
            self._errno = cause.errno or errno.EIO


class VersionCopy:
    """Takes the octets of one file as they are read; `name` is what they are called in the end, `errno` what failed.

    Of a small file, `VersionWriter.settle` may fail later.
    """

    def __init__(self, writer: VersionWriter, octets: int) -> None:
        """`octets`: how many there should be."""
        self.name = ""
        self.errno = 0
        self._writer = writer
        self._held: list[bytes] = []
        self._aside = b""
        self._descriptor = -1
        if octets > SMALL_OCTETS:
            self._open(octets)

    def write(self, data: bytes) -> None:
        """Take the next octets. Raises nothing."""
        if self._descriptor < 0:
            self._held.append(data)
            return
        try:
            write_all(self._descriptor, data)
        except OSError as cause:
            self._fail(cause)

    def finish(self) -> None:
        """All octets have been given, and held still. Raises nothing."""
        if self.errno:
            return
        if self._descriptor < 0:
            self.name = self._writer.add(b"".join(self._held))
            return
        try:
            self._close()
            self.name = os.fsdecode(os.path.basename(self._aside))
        except OSError as cause:
            self._fail(cause)

    def discard(self) -> None:
        """Leave nothing behind, unless it is finished. Raises nothing."""
        self._held = []
        if self._aside and not self.name:
            with contextlib.suppress(OSError):
                self._close()
            with contextlib.suppress(OSError):
                os.unlink(self._aside)

    def _open(self, octets: int) -> None:
        try:
            refuse_little_room(self._writer.folder, octets)
            path = self._writer.folder + b"/" + secrets.token_hex(8).encode()
            self._descriptor = _create(path)
            self._aside = path
        except OSError as cause:
            self._fail(cause)

    def _fail(self, cause: OSError) -> None:
        self.discard()
        self.errno = cause.errno or errno.EIO

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _create(path: bytes) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
