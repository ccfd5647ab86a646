"""Copies of files: written to the end within the room of the disk, placed in a static tree, set aside as versions.

A static tree has a file as a hard link or as a copy. Versions that are small are written one behind the other into one
file for each block of files that is read, larger ones to a file each; a version never costs a scan its result: what
cannot be written (disk full, no permission) is told by an errno, and the file is hashed as ever. Standard library only:
the hashing processes import it.
"""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable
from io import FileIO
from typing import Final

from headwater.files.nofollow import open_unlinked

_USUALLY_FREE: Final = 1 << 30
"""So many octets a copy leaves free on its disk unless it is told otherwise, on a small disk a twentieth of it."""
_PAGE_OCTETS: Final = 4096


def write_all(descriptor: int, octets: bytes | memoryview) -> None:
    """Write to the end: the kernel may take a part at a time."""
    written = os.write(descriptor, octets)
    if written == len(octets):
        return
    rest = memoryview(octets)
    while rest := rest[written:]:
        written = os.write(descriptor, rest)


def write_new(path: str, octets: bytes) -> str:
    """Write a file; where its name is taken, under another one in its folder. Returns the path; nothing is synced."""
    flags, aside = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, path
    try:
        descriptor = os.open(path, flags | os.O_EXCL, 0o666)
    except FileExistsError:  # somebody may read it, or have another name for it
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.headwater-new-{name}"
        descriptor = os.open(aside, flags | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, octets)
    finally:
        os.close(descriptor)
    return aside


def write_sparse(descriptor: int, octets: bytes) -> None:
    """Write to the end of a file; of a run of zero octets alone there are none on the disk, so that sparse files stay
    sparse."""
    if octets.startswith(b"\0") and len(octets) >= _PAGE_OCTETS and not octets.strip(b"\0"):
        os.ftruncate(descriptor, os.lseek(descriptor, len(octets), os.SEEK_CUR))
    else:
        write_all(descriptor, octets)


def free_octets(place: str | bytes | int | os.PathLike[str]) -> int:
    """Octets that a user may still write on the disk of a folder or open file; no bound where it tells no size."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


_BLOCK_OCTETS = 4_096  # what a file may take on the disk beyond its octets
_MOST_UNASKED = 8 << 20  # so much is written until the disk is asked again what is free


class Room:
    """What the files of a copy may take: so many octets stay free on the disk, and all together are at most `most`."""

    def __init__(
        self,
        folder: bytes,
        keep_free: int | None = None,
        most: int | None = None,
        held: int = 0,
        counted: Callable[[bytes], int] = lambda _path: 0,
    ) -> None:
        """`keep_free` None: as much as is usual. `held`: the octets of all files, as recorded; `counted`: of one."""
        found = os.statvfs(folder)
        self.capacity = found.f_blocks * found.f_frsize
        self.keep_free = min(_USUALLY_FREE, self.capacity // 20) if keep_free is None else keep_free
        self.most = most
        self.held = held
        self.counted = counted
        self._folder = folder
        self._unasked = 0  # octets that have room without another question: a sixteenth of what was free, at most

    def left(self) -> int:
        """How many octets more there may be, by both bounds."""
        free = max(0, free_octets(self._folder) - self.keep_free)
        return free if self.most is None else max(0, min(free, self.most - self.held))

    def check(self, octets: int, gained: int = 0) -> None:
        """Raise OSError where so many octets more have no room on the disk, or the copy none for what it has gained."""
        if self.most is not None and gained > 0 and self.held + gained > self.most:
            raise OSError(errno.EDQUOT, f"the copy would have more than {_said(self.most)} (--max-total)")
        self._unasked -= octets + _BLOCK_OCTETS
        if not self.keep_free or self._unasked >= 0:
            return
        free = free_octets(self._folder) - self.keep_free
        if free < octets:
            told = _said(self.keep_free)
            raise OSError(errno.ENOSPC, f"less than {told} would be left free on the disk (--keep-free)")
        self._unasked = min(free >> 4, _MOST_UNASKED) - octets


def _said(octets: int) -> str:
    from headwater.quantities import human_octets  # not for the processes that read files

    return human_octets(octets)


# a file's place in a static tree: what is linked or copied is the file that is open, whatever lies at its path by now

LINK, COPY, SYNCED_COPY = "link", "copy", "synced copy"
"""How a file gets its place in a static tree: as a hard link (a copy where that cannot be), or always as a copy."""

_PLACING = ".headwater-tmp-"  # names of half-placed files begin so, as those of half-written documents do

GONE = (FileNotFoundError, NotADirectoryError)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DESCRIPTORS = b"/proc/self/fd/%d" if os.path.isdir("/proc/self/fd") else None


class FileChanged(Exception):
    """The file was written to while it was read."""


class PlacementFailed(Exception):
    """The file's place in the static tree could not be made."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.errno = cause.errno or 0


def is_linked(place: bytes, source: os.stat_result) -> bool:
    """Whether the file has its place already, as a link to itself."""
    try:
        return os.path.samestat(os.lstat(place), source)
    except OSError:
        return False


def _link(descriptor: int, aside: bytes) -> bool:
    """Make `aside` a hard link of the open file; False where links cannot be."""
    if _DESCRIPTORS is None:
        return False
    try:
        # A folder has to be named for the call that follows the descriptor's name; the absolute path ignores it.
        os.link(_DESCRIPTORS % descriptor, aside, src_dir_fd=descriptor, follow_symlinks=True)
    except GONE:
        raise
    except OSError:
        return False
    return True


def _room(place: bytes) -> None:
    """Make sure `place` lies in a folder: a file or link in its stead is removed, a link further up is not followed."""
    folder = os.path.dirname(place)
    with contextlib.suppress(OSError):
        os.close(open_unlinked(folder, _FOLDER))
        return
    try:
        try:
            os.close(open_unlinked(os.path.dirname(folder), _FOLDER))
            os.mkdir(folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                os.unlink(folder)
                os.mkdir(folder)
        except GONE:
            _room(folder)
            _room(place)
    except OSError as cause:
        raise PlacementFailed(cause) from cause


def _rename(aside: bytes, place: bytes) -> None:
    try:
        try:
            os.replace(aside, place)
        except IsADirectoryError:  # a folder of the source has become a file
            import shutil  # not for every process that reads files

            shutil.rmtree(place)
            os.replace(aside, place)
    except OSError as cause:
        raise PlacementFailed(cause) from cause


class Placement:
    """A link of the open file, or where that cannot be a copy that is made from the very octets that are hashed.

    It takes its place only when these held still: what changes while it is read may never become a resource.
    """

    def __init__(self, descriptor: int, place: bytes, source: os.stat_result, mode: str | None) -> None:
        self._is_synced = mode == SYNCED_COPY
        self._place = place
        self._source = source
        _room(place)
        self._aside = os.path.join(os.path.dirname(place), os.fsencode(_PLACING + os.urandom(8).hex()))
        self._file: FileIO | None = None
        self.is_link = mode == LINK and _link(descriptor, self._aside)
        if not self.is_link:
            try:
                self._file = _create(self._aside)
            except OSError as cause:
                raise PlacementFailed(cause) from cause

    def write(self, data: bytes) -> None:
        """Take the next octets."""
        if self._file is None:
            return
        try:
            write_sparse(self._file.fileno(), data)
        except OSError as cause:
            raise PlacementFailed(cause) from cause

    def finish(self) -> None:
        """Give the copy the source's time (what a server says of it is then what the list says) and its place."""
        if self._file is not None:
            try:
                os.fchmod(self._file.fileno(), stat.S_IMODE(self._source.st_mode) & 0o777)
                os.utime(self._file.fileno(), ns=(self._source.st_atime_ns, self._source.st_mtime_ns))
                if self._is_synced:
                    os.fsync(self._file.fileno())
                self._file.close()
            except OSError as cause:
                raise PlacementFailed(cause) from cause
        _rename(self._aside, self._place)

    def discard(self) -> None:
        """Leave nothing behind, unless it has its place."""
        if self._file is not None:
            self._file.close()
        with contextlib.suppress(*GONE):  # also where another process has just made the same link: then both names stay
            os.unlink(self._aside)


# octets that are set aside while a file is hashed: what becomes a version when its change is recorded

ALGORITHM = "sha-256"  # by its digest a version is found
SMALL_OCTETS = 128 << 10
"""Versions up to this size lie in the database. Above it, a file costs little beside the octets themselves."""
RESERVE_OCTETS = 64 << 20  # so much is left free on the disk: the catalog has to grow while versions have no room

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
        self._name = os.urandom(8).hex()
        self._file: FileIO | None = None
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
        if self._file is not None:
            self._file.close()
        error = self._errno
        self._begin()
        return error

    def _write(self) -> None:
        octets, self._held, self._held_octets = b"".join(self._held), [], 0
        if self._errno:
            return
        try:
            refuse_little_room(self.folder, len(octets))
            if self._file is None:
                self._file = _create(self.folder + b"/" + self._name.encode())
            write_all(self._file.fileno(), octets)
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
        self._file: FileIO | None = None
        if octets > SMALL_OCTETS:
            try:
                refuse_little_room(writer.folder, octets)
                self._file = _create(writer.folder + b"/" + os.urandom(8).hex().encode())
            except OSError as cause:
                self._fail(cause)

    def write(self, data: bytes) -> None:
        """Take the next octets. Raises nothing."""
        if self.errno:
            return
        if self._file is None:
            self._held.append(data)
            return
        try:
            write_sparse(self._file.fileno(), data)
        except OSError as cause:
            self._fail(cause)

    def finish(self) -> None:
        """All octets have been given, and held still. Raises nothing."""
        if self.errno:
            return
        if self._file is None:
            self.name = self._writer.add(b"".join(self._held))
            return
        try:
            self._file.close()
            self.name = os.fsdecode(os.path.basename(os.fsencode(self._file.name)))
        except OSError as cause:
            self._fail(cause)

    def discard(self) -> None:
        """Leave nothing behind, unless it is finished. Raises nothing."""
        self._held = []
        if self._file is not None and not self.name:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._file.name)

    def _fail(self, cause: OSError) -> None:
        self.discard()
        self.errno = cause.errno or errno.EIO


def _create(path: bytes) -> FileIO:
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
