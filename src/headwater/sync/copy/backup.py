"""The backup folder: keeps what a run replaces or deletes by its relative name; nothing in it is overwritten.

Each file is kept before it loses its place: by a hard link, or across file systems as a copy that is on the disk. A run
that is killed in between leaves the file in both places.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import UsageFault
from headwater.sync.faults import DestinationUnusable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_LONGEST_NAME = 255


class Backup:
    """The backup of one run: files below `folder/name`, which is made with the first of them."""

    def __init__(self, folder: Path, name: str, copy: Path) -> None:
        inner, outer = os.path.realpath(folder), os.path.realpath(copy)
        if inner == outer or inner.startswith(outer.rstrip("/") + "/"):
            raise UsageFault("the backup folder is inside the copy", code="HW-SYN-22", where=str(folder))
        self.root = Path(os.path.abspath(folder)) / name
        self.count = 0

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
            with self._place_for(path) as kept_in:
                self._keep(folder, name, kept_in)
        except OSError as cause:
            where = os.fsdecode(os.path.join(os.fsencode(self.root), path))
            raise DestinationUnusable(f"cannot keep what is replaced: {cause.strerror}", where=where) from cause
        self.count += 1

    def _keep(self, folder: int, name: bytes, kept_in: int) -> None:
        for free in _names(name):
            try:
                os.link(name, free, src_dir_fd=folder, dst_dir_fd=kept_in, follow_symlinks=False)
            except FileExistsError:
                continue
            except OSError as cause:
                if cause.errno not in _NO_LINKS:
                    raise
                if not _copy(folder, name, kept_in, free):
                    continue
            return

    @contextlib.contextmanager
    def _place_for(self, path: bytes) -> Iterator[int]:
        """The folder that keeps `path`, made and opened part by part, never through a symbolic link."""
        self.root.mkdir(parents=True, exist_ok=True)
        here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in path.split(b"/")[:-1]:
                below = _folder_below(here, part)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def backup_of(folder: str, copy: Path, now: dt.datetime) -> Backup:
    """What keeps the files of a run that begins now below `folder`. Raises UsageFault."""
    return Backup(Path(folder), f"{now:%Y-%m-%dT%H%M%SZ}", copy)


def _folder_below(here: int, part: bytes) -> int:
    """The folder `part`, made when it is not there; where a file has that name already, one with a number."""
    for free in _names(part):
        with contextlib.suppress(FileExistsError):
            os.mkdir(free, dir_fd=here)
        try:
            return os.open(free, _FOLDER, dir_fd=here)
        except OSError as cause:
            if cause.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
    raise AssertionError("unreachable")


def _names(name: bytes) -> Iterator[bytes]:
    """The name itself, then numbered ones: what was kept before is never overwritten."""
    yield name
    for number in itertools.count(2):
        suffix = b"~%d" % number
        yield name[: _LONGEST_NAME - len(suffix)] + suffix


def _copy(folder: int, name: bytes, kept_in: int, free: bytes) -> bool:
    """Keep a copy that is on the disk before it has its name; False when the name is taken."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(free, dir_fd=kept_in, follow_symlinks=False)
        return False
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), free, dir_fd=kept_in)
        return True
    if not stat.S_ISREG(found.st_mode):
        return True
    from shutil import copyfileobj  # with every archive format it knows: the start of each run would pay for it

    unconfirmed = f".headwater-tmp-{os.urandom(8).hex()}"
    try:
        with (
            os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as source,
            os.fdopen(
                os.open(unconfirmed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=kept_in), "wb"
            ) as target,
        ):
            copyfileobj(source, target, 1 << 20)
            target.flush()
            os.utime(target.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(target.fileno())
        os.rename(unconfirmed, free, src_dir_fd=kept_in, dst_dir_fd=kept_in)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unconfirmed, dir_fd=kept_in)
        raise
    os.fsync(kept_in)
    return True
