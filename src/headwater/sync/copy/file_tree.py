"""Files of the destination folder: written aside, renamed atomically, never through a symbolic link; backups of them.

Folders are opened one by one, each relative to the one before and refusing links, so that whatever lies in the copy,
a name leads nowhere else. A name that is empty, `.`, `..` or reserved is refused in any path, wherever it comes from.
Durability (docs/explanation/how-a-copy-stays-true.md): files are not synced one by one; `flush` makes everything placed
so far survive a power loss. A backup folder keeps what a run replaces or deletes by its relative name; nothing in it is
overwritten.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import errno
import itertools
import os
import stat
import sys
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

from headwater.errors import StoreFault, UsageFault
from headwater.files.file_copies import Room, write_sparse
from headwater.files.folder_marks import STATE_FOLDER, leads_inside

_OPEN_FOLDERS = 200
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEADS_OUT = "the path leads out of the copy, or into its state: another program changed the state"
_PROBE = "folds-\u00e9"
_NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
_IN_THE_WAY = _NO_NAME | {errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP}


class DestinationLocked(StoreFault):
    """Another run works on the same folder."""

    code = "HW-SYN-09"


class DestinationUnusable(StoreFault):
    """The folder cannot be made, read or written."""

    code = "HW-SYN-10"


class PathOccupied(Exception):
    """A file cannot be placed: a folder or a link is in its way, or the file system does not allow its name."""


class FileTree(contextlib.AbstractContextManager["FileTree"]):
    """The copy's folder, written to by relative octet paths, as far as there is `room`. `backup` keeps what is replaced
    or removed."""

    def __init__(self, root: Path, temp: Path | None, backup: Backup | None = None, room: Room | None = None) -> None:
        self.room = room
        self.root = os.fsencode(root)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._temp = os.open(temp, _FOLDER) if temp is not None else -1
        self._folders: OrderedDict[bytes, int] = OrderedDict()
        self._backup = backup
        self.keeps_backup = backup is not None

    @cached_property
    def folds(self) -> bool:
        """Whether names that differ by case or Unicode normal form alone are one file here, as on APFS and NTFS.

        The file system is asked once; where nothing may be written, by the name of the state's folder, of case alone.
        """
        if self._temp >= 0:
            with contextlib.suppress(OSError):
                os.close(os.open(_PROBE, _NEW & ~os.O_EXCL, 0o600, dir_fd=self._temp))
                others = _PROBE.upper(), unicodedata.normalize("NFD", _PROBE)
                found = any(_is_one(self._temp, _PROBE, other) for other in others)
                os.unlink(_PROBE, dir_fd=self._temp)
                return found
        name = os.fsdecode(STATE_FOLDER)
        return _is_one(self._root, name, name.upper())

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up all folders."""
        self._forget()
        os.close(self._root)
        if self._temp >= 0:
            os.close(self._temp)
        if self._backup is not None:
            self._backup.close()

    def write(self, temp: str, content: bytes | Iterable[bytes], mtime_ns: int | None) -> tuple[int, int]:
        """Make a temporary file of octets, or of blocks of them; returns its size and mtime, as the file system keeps
        them."""
        try:
            descriptor = os.open(temp, _NEW, 0o666, dir_fd=self._temp)
            try:
                for block in (content,) if isinstance(content, bytes) else content:
                    if self.room is not None:
                        self.room.check(len(block))
                    write_sparse(descriptor, block)
                if mtime_ns is not None:
                    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                found = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            return found.st_size, found.st_mtime_ns
        except OSError as cause:
            self.discard(temp)
            raise _unusable(cause, os.fsencode(temp)) from cause

    def stamp(self, temp: str, mtime_ns: int | None) -> tuple[int, int]:
        """Give a finished temporary file its modification time; returns its size and mtime."""
        try:
            if mtime_ns is not None:
                os.utime(temp, ns=(mtime_ns, mtime_ns), dir_fd=self._temp)
            found = os.stat(temp, dir_fd=self._temp, follow_symlinks=False)
        except OSError as cause:
            raise _unusable(cause, os.fsencode(temp)) from cause
        return found.st_size, found.st_mtime_ns

    def place(self, temp: str, path: bytes) -> None:
        """Rename a finished temporary file to its place. Raises PathOccupied; and DestinationUnusable, also where there
        is no room for it: then it is removed."""
        try:
            gained = 0
            if self.room is not None and self.room.most is not None:
                gained = os.stat(temp, dir_fd=self._temp).st_size - self.size(path)
                self.room.check(0, gained)
            self._within(self._place, path, temp)
        except OSError as cause:
            if cause.errno in (errno.ENOSPC, errno.EDQUOT):
                self.discard(temp)
            if cause.strerror == _LEADS_OUT:
                raise PathOccupied(_LEADS_OUT) from cause
            if cause.errno in _IN_THE_WAY:
                is_no_name = cause.errno in _NO_NAME
                told = "the file system has no such name" if is_no_name else "something is in the way of this name"
                raise PathOccupied(f"{cause.strerror}: {told}") from cause
            raise _unusable(cause, path) from cause
        if gained and self.room is not None:
            self.room.held += gained

    def size(self, path: bytes) -> int:
        """The octets for which the file at `path` counts, also where it was lost; 0 where nobody counts them."""
        return 0 if self.room is None or self.room.most is None else self.room.counted(path)

    def _within(self, change: Callable[..., None], path: bytes, *more: str) -> None:
        """Make a change in the folder of `path`; once more where the one that is open here was removed meanwhile, since
        there may be another with its name."""
        try:
            change(path, *more)
        except FileNotFoundError:
            if path.rpartition(b"/")[0] not in self._folders:
                raise
            self._forget()
            change(path, *more)

    def _place(self, path: bytes, temp: str) -> None:
        folder, name = _split(path)
        target = self._folder(folder, make=True)
        if self._backup is not None:
            self._backup.keep(target, name, path)
        os.rename(temp, name, src_dir_fd=self._temp, dst_dir_fd=target)

    def discard(self, temp: str) -> None:
        """Remove a temporary file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=self._temp)

    def touch(self, path: bytes, mtime_ns: int) -> int | None:
        """Give a held file another modification time; what the file system makes of it, or None where there is none."""
        with contextlib.suppress(OSError):
            folder, name = _split(path)
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=self._folder(folder), follow_symlinks=False)
        found = self.stat(path)
        return None if found is None else found.st_mtime_ns

    def remove(self, path: bytes) -> None:
        """Remove a held file, if it is there, and the folders that it leaves empty."""
        folder = path.rpartition(b"/")[0]
        try:
            self._within(self._remove, path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as cause:
            if cause.errno not in (errno.EISDIR, errno.EPERM, errno.ELOOP):
                what = f"cannot remove a file: {cause.strerror}"
                raise DestinationUnusable(what, where=printable_path(path)) from cause
        while folder:
            parent, _, name = folder.rpartition(b"/")
            if (held := self._folders.pop(folder, None)) is not None:
                os.close(held)
            try:
                os.rmdir(name, dir_fd=self._folder(parent))
            except OSError:
                return
            folder = parent

    def _remove(self, path: bytes) -> None:
        folder, name = _split(path)
        where = self._folder(folder)
        if self._backup is not None:
            self._backup.keep(where, name, path)
        if self.room is not None:
            self.room.held -= self.size(path)
        os.unlink(name, dir_fd=where)

    def respell(self, path: bytes, held: bytes) -> bool:
        """Whether the file at `path` is the very one that is held as `held`; its name is spelled so from now on.

        A file system that folds names renames nothing to what it takes for the same: hence the two steps.
        """
        found, kept = self.stat(path), self.stat(held)
        if found is None or kept is None or (found.st_dev, found.st_ino) != (kept.st_dev, kept.st_ino):
            return False
        temp = f"{_PROBE}-{found.st_ino}"
        with contextlib.suppress(OSError):
            folder, name = _split(path)
            os.rename(name, temp, src_dir_fd=self._folder(folder), dst_dir_fd=self._temp)
            folder, name = _split(held)
            os.rename(temp, name, src_dir_fd=self._temp, dst_dir_fd=self._folder(folder))
        return True

    def stat(self, path: bytes) -> os.stat_result | None:
        """The plain file at `path`, or None when there is none (also behind a symbolic link)."""
        try:
            folder, name = _split(path)
            found = os.stat(name, dir_fd=self._folder(folder), follow_symlinks=False)
        except OSError:
            return None
        return found if (found.st_mode & 0o170000) == 0o100000 else None

    def open(self, path: bytes) -> int:
        """A descriptor to read the plain file at `path`. Raises OSError."""
        folder, name = _split(path)
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self._folder(folder))

    def folder_of(self, path: bytes) -> int:
        """The open folder of the file at `path`, which is made when it is not there. Raises OSError."""
        return self._folder(_split(path)[0], make=True)

    def _folder(self, path: bytes, *, make: bool = False) -> int:
        """The open folder at `path`, which `make` makes when it is not there. Raises OSError."""
        if not path:
            return self._root
        found = self._folders.get(path)
        if found is not None:
            self._folders.move_to_end(path)
            return found
        parent, name = _split(path)
        above = self._folder(parent, make=make)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        self._folders[path] = descriptor
        while len(self._folders) > _OPEN_FOLDERS:
            os.close(self._folders.popitem(last=False)[1])
        return descriptor

    def _forget(self) -> None:
        for descriptor in self._folders.values():
            os.close(descriptor)
        self._folders.clear()


def _split(path: bytes) -> tuple[bytes, bytes]:
    """The folder of a path, and its last name. Raises OSError for a name that is no file's or folder's of a copy.

    Whoever walks the folder asks the same of each name in it. A state that somebody else has made may hold any path.
    """
    folder, _, name = path.rpartition(b"/")
    if path.startswith(b"/") or not leads_inside(name):
        raise OSError(errno.EINVAL, _LEADS_OUT)
    return folder, name


def _is_one(folder: int, name: str, other: str) -> bool:
    try:
        found, same = (os.stat(one, dir_fd=folder, follow_symlinks=False) for one in (name, other))
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (same.st_dev, same.st_ino)


def _unusable(cause: OSError, path: bytes) -> DestinationUnusable:
    return DestinationUnusable(f"cannot write to the copy: {cause.strerror}", where=printable_path(path))


def printable_path(path: bytes) -> str:
    """A relative path as text."""
    return path.decode("utf-8", "backslashreplace")


def flush(root: bytes) -> bool:
    """Have everything on the copy's file system written; cheap when the kernel has already done it.

    True when it is durable now. Outside Linux a system may only have begun when it says that it has.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "syncfs") or library.syncfs(descriptor) != 0:
            os.sync()
        return sys.platform == "linux"
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """What changes with every start of the machine: while it is the same, no power was lost. Empty when unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


# the backup: each file is kept before it loses its place, by a hard link, or across file systems as a copy that is on
# the disk. A run that is killed in between leaves the file in both places.

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_LONGEST_NAME = 255
_COPIED_OCTETS = 1 << 18


class Backup:
    """The backup of one run: files below `folder/name`, which is made with the first of them."""

    def __init__(self, folder: Path, name: str, copy: Path) -> None:
        inner, outer = os.path.realpath(folder), os.path.realpath(copy)
        if inner == outer or inner.startswith(outer.rstrip("/") + "/"):
            raise UsageFault("the backup folder is inside the copy", code="HW-SYN-22", where=str(folder))
        self.root = Path(os.path.abspath(folder)) / name
        self.count = 0
        self.kept: dict[str, tuple[bytes, Path]] = {}
        """By its name in the copy, as text, what each file is that was kept: the name, and where it lies now."""

        self._tree: FileTree | None = None

    def keep(self, folder: int, name: bytes, path: bytes) -> None:
        """Keep the file `name` of an open folder, whose relative name is `path`; a folder, or nothing, is passed by.

        Raises DestinationUnusable, and the file is then still where it was.
        """
        try:
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:
            return
        if stat.S_ISDIR(kind):
            return
        try:
            if self._tree is None:
                self.root.mkdir(parents=True, exist_ok=True)
                self._tree = FileTree(self.root, None)
            kept_in = self._tree.folder_of(path)
            free = next(one for one in _names(name) if not _is_there(kept_in, one))
            try:
                os.link(name, free, src_dir_fd=folder, dst_dir_fd=kept_in, follow_symlinks=False)
            except OSError as cause:
                if cause.errno not in _NO_LINKS:
                    raise
                _copy(folder, name, kept_in, free)
        except OSError as cause:
            where = os.fsdecode(os.path.join(os.fsencode(self.root), path))
            raise DestinationUnusable(f"cannot keep what is replaced: {cause.strerror}", where=where) from cause
        self.count += 1
        self.kept[printable_path(path)] = path, self.root / os.fsdecode(os.path.join(os.path.dirname(path), free))

    def close(self) -> None:
        """Give up its folders."""
        if self._tree is not None:
            self._tree.close()
            self._tree = None


def backup_of(folder: str, copy: Path, now: dt.datetime) -> Backup:
    """What keeps the files of a run that begins now below `folder`. Raises UsageFault."""
    return Backup(Path(folder), f"{now:%Y-%m-%dT%H%M%SZ}", copy)


def _names(name: bytes) -> Iterator[bytes]:
    """The name itself, then numbered ones: what was kept before is never overwritten."""
    yield name
    for number in itertools.count(2):
        suffix = b"~%d" % number
        yield name[: _LONGEST_NAME - len(suffix)] + suffix


def _is_there(folder: int, name: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _copy(folder: int, name: bytes, kept_in: int, free: bytes) -> None:
    """Keep a copy that is on the disk before it has its name."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), free, dir_fd=kept_in)
    if not stat.S_ISREG(found.st_mode):
        return
    unconfirmed = f".headwater-tmp-{os.urandom(8).hex()}"
    try:
        with (
            os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as source,
            os.fdopen(
                os.open(unconfirmed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=kept_in), "wb"
            ) as target,
        ):
            while octets := source.read(_COPIED_OCTETS):
                write_sparse(target.fileno(), octets)
            os.utime(target.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(target.fileno())
        os.rename(unconfirmed, free, src_dir_fd=kept_in, dst_dir_fd=kept_in)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unconfirmed, dir_fd=kept_in)
        raise
    os.fsync(kept_in)
