"""Sets the octets of a file aside while it is hashed: what becomes a version when the file's change is recorded.

Standard library only: the hashing processes import it. A version never costs a scan its result: what cannot be written
(disk full, no permission) is told by an errno, and the file is hashed as ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import NamedTuple

from headwater.files.whole_writes import free_octets, write_all

ALGORITHM = "sha-256"
"""By its digest a version is found."""
SMALL_OCTETS = 1 << 20
"""Up to so many are held in memory until the digest is known, and not written at all when the version is there."""
RESERVE_OCTETS = 64 << 20
"""So much is left free on the disk: the catalog has to grow while versions have no room."""


class VersionFolders(NamedTuple):
    """Where versions are kept (two levels of folders below), and where those of one scan are set aside."""

    kept: bytes
    aside: bytes


def version_path(kept: bytes, digest: str) -> bytes:
    """The path of the version with this SHA-256 (64 hex digits): `ab/cd/abcd…`."""
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


class VersionCopy:
    """Takes the octets of one file as they are read; `name` is what they have aside in the end, `errno` what failed.

    An empty name without an errno: a version of this digest and size is kept already, and its time of use is renewed.
    """

    def __init__(self, folders: VersionFolders, octets: int) -> None:
        self.name = ""
        self.errno = 0
        self._folders = folders
        self._octets = octets
        self._held: list[bytes] = []
        self._aside = ""
        self._descriptor = -1
        if octets > SMALL_OCTETS:
            self._open()

    def write(self, data: bytes) -> None:
        """Take the next octets. Raises nothing."""
        if self.errno:
            return
        if self._descriptor < 0:
            self._held.append(data)
            return
        try:
            write_all(self._descriptor, data)
        except OSError as cause:
            self._fail(cause)

    def finish(self, digest: str) -> None:
        """All is read, held still, and has this SHA-256. Raises nothing."""
        if self.errno:
            return
        try:
            place = version_path(self._folders.kept, digest)
            if _is_kept(place, self._octets):
                self.discard()
                return
            if self._descriptor < 0:
                self._open()
                for data in self._held:
                    self.write(data)
            self._close()
            if not self.errno:
                self.name = self._aside
        except OSError as cause:
            self._fail(cause)

    def discard(self) -> None:
        """Leave nothing behind, unless it is finished. Raises nothing."""
        if not self.name:
            with contextlib.suppress(OSError):
                self._close()
            if self._aside:
                with contextlib.suppress(OSError):
                    os.unlink(self._folders.aside + b"/" + os.fsencode(self._aside))
                self._aside = ""
        self._held = []

    def _open(self) -> None:
        try:
            refuse_little_room(self._folders.aside, self._octets)
            name = secrets.token_hex(8)
            path = self._folders.aside + b"/" + os.fsencode(name)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._aside = name
        except OSError as cause:
            self._fail(cause)

    def _fail(self, cause: OSError) -> None:
        self.discard()
        self.errno = cause.errno or errno.EIO

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _is_kept(place: bytes, octets: int) -> bool:
    try:
        if os.stat(place, follow_symlinks=False).st_size != octets:
            return False
        os.utime(place)
    except FileNotFoundError:
        return False
    return True
