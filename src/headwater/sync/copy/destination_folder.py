"""The destination folder and its `.headwater`: created, locked, its state opened; what broken runs left goes by age."""

import contextlib
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.copy_state import FOLDER, SCHEMA, STATE
from headwater.errors import Exit, UsageFault
from headwater.files.folder_marks import STATE_MARK, is_state, is_tree
from headwater.storage.database import Database, Durability, opened_to_read, private_copy
from headwater.storage.durable import make_folders, sync_folder
from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared, waited_for
from headwater.sync.copy.file_tree import DestinationLocked, DestinationUnusable
from headwater.sync.reports import last_run

WAIT_SECONDS = 10.0
"""For the short runs of a copy that follows its source, and for what a run that was killed has left."""

PARTIAL_PREFIX = "part-"
"""How the names of partial downloads begin: nothing else in `tmp` of a killed run is of use."""

_PARTIAL = re.compile(rf"{PARTIAL_PREFIX}\d+-[0-9a-f]{{32}}")
LONGEST_SECONDS = 14 * 86_400
"""So long they are kept after they last grew."""

_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


class DestinationFolder:
    """The folder DEST and its `.headwater`: made, locked against a second run, and its state opened."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER
        self.temp = self.folder / "tmp"
        self._lock_file = self.folder / "lock"
        self.lock: int | None = None
        """The open file by which the run holds the folder; None where it does not."""

        self.made: list[Path] = []

    def prepare(self) -> None:
        """Make the folders, take the lock, and clear what a killed run left in `tmp`.

        Raises DestinationLocked where the lock is held for long, UsageFault where something else stands in the way, and
        DestinationUnusable.
        """
        with self._faults():
            self.made = [path for path in (self.folder, self.root, *self.root.parents) if not os.path.lexists(path)]
            make_folders(self.root)
            _plain_folder(self.folder)
            self.take(WAIT_SECONDS)
            _plain_folder(self.temp)
            for leftover in os.listdir(self.temp):
                path = self.temp / leftover
                if not _PARTIAL.fullmatch(leftover) or time.time() - os.lstat(path).st_mtime > LONGEST_SECONDS:
                    _remove(path)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except LockHeld as cause:
            raise DestinationLocked("another run works on this folder", where=str(self.root)) from cause
        except OSError as cause:
            where = str(cause.filename or self.root)
            if cause.errno in _IN_THE_WAY:
                raise UsageFault(
                    "the destination is no folder: something else has this name", code="HW-SYN-13", where=where
                ) from cause
            raise DestinationUnusable(
                f"the destination cannot be used: {cause.strerror or cause}", where=where
            ) from cause

    def take(self, wait_seconds: float = 0.0) -> None:
        """Take the lock of a folder that was prepared, and released since. Raises DestinationLocked."""
        with self._faults():
            self.lock = waited_for(lock_exclusive, self._lock_file, wait_seconds)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Keeps runs from changing the copy meanwhile, and makes no file: where no run was, there is none to keep off.

        Raises DestinationLocked while a run is at work, and stays so.
        """
        try:
            descriptor = waited_for(lock_shared, self._lock_file, WAIT_SECONDS)
        except LockHeld as cause:
            raise DestinationLocked("a run is changing this folder", where=str(self.root)) from cause
        except OSError:
            yield
            return
        try:
            yield
        finally:
            os.close(descriptor)

    def open(self) -> Database:
        """The state, for a run that holds the lock."""
        return Database(self.folder / "state.sqlite", SCHEMA, durability=Durability.NORMAL)

    def withdraw(self) -> None:
        """Remove what this run has made, and nothing else: the state, and folders as far as they are empty."""
        for name in ("state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for leftover in os.listdir(self.temp):
                _remove(self.temp / leftover)
        for folder in (self.temp, *self.made):
            with contextlib.suppress(OSError):  # something else is in it by now: then it stays
                folder.rmdir()

    def discard_parts(self, set_id: int) -> None:
        """Remove the partial downloads of a set."""
        for path in self.temp.glob(f"{PARTIAL_PREFIX}{set_id}-*"):
            _remove(path)

    def release(self) -> None:
        """Let another run have the folder."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def locked_state(home: DestinationFolder) -> Iterator[Database]:
    """The state for a run, which holds the lock meanwhile.

    Of a first run that came to nothing no trace is left, unless the source was to blame: then `status` tells of it.
    """
    try:
        home.prepare()
        in_vain = home.folder in home.made  # no run before has made it
        try:
            with home.open() as database:
                try:
                    yield database
                finally:
                    in_vain = in_vain and _holds_nothing(database)
        finally:
            if in_vain:
                home.withdraw()
    finally:
        home.release()


def check_is_free(root: Path, called: str = "the destination") -> None:
    """See that the folder is not the state of a command or a static tree, nor in one. Raises UsageFault.

    A copy that is there goes on: a source may send it files of any name, and its user may have had reasons.
    """
    if (root / FOLDER / STATE).is_file():
        return
    real = Path(os.path.realpath(root))
    for folder in (real, *real.parents):
        if is_state(bytes(folder)):
            raise UsageFault(f"{called} lies in the state of a Headwater command", code="HW-SYN-28", where=str(folder))
        if is_tree(bytes(folder)) or (folder / FOLDER / os.fsdecode(STATE_MARK)).exists():
            raise UsageFault(f"{called} lies in the output of `headwater publish`", code="HW-SYN-28", where=str(folder))


_OF_THE_SOURCE = (Exit.SOURCE, Exit.TRANSFERS_FAILED, Exit.UNDETERMINED)


def _holds_nothing(database: Database) -> bool:
    with database.read() as t:
        run = last_run(t)
        return (run is None or run.exit_status not in _OF_THE_SOURCE) and not any(
            t.one(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608  our own names
            for table in ("resources", "failures", "intents", "sets WHERE position IS NOT NULL")
        )


@contextlib.contextmanager
def writable_state(home: DestinationFolder) -> Iterator[Database]:
    """The state of a copy that is there, for changing what it remembers; no run can begin meanwhile.

    Raises UsageFault, and DestinationLocked while a run is at work, and stays so.
    """
    _is_copy(home)
    home.take(WAIT_SECONDS)
    try:
        with home.open() as database:
            yield database
    finally:
        home.release()


@contextlib.contextmanager
def readable_state(home: DestinationFolder) -> Iterator[Database]:
    """The state of a copy that is there, for reading only, also while a run is at work. Raises UsageFault.

    What an older version has written, what this user may not write to, and what lies on a full disk is read from a
    private copy.
    """
    _is_copy(home)
    with opened_to_read(home.folder / "state.sqlite", SCHEMA) as database:
        yield database


def _is_copy(home: DestinationFolder) -> None:
    if not (home.folder / "state.sqlite").is_file():
        raise UsageFault("this folder is not a copy", code="HW-SYN-20", where=str(home.root))


def no_set(root: str) -> UsageFault:
    """The error of a copy whose sets were all forgotten."""
    advice = "Its records went with its sets. `headwater sync` adopts the files anew, if the source is still there."
    return UsageFault("the copy has no set any more", where=root, advice=advice)


@contextlib.contextmanager
def state_copy(home: DestinationFolder) -> Iterator[Database]:
    """A private copy of the state, or an empty one: for those that may change nothing (`--dry-run`, audit)."""
    with contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(private_copy(home.folder / "state.sqlite", SCHEMA))
        except OSError as cause:
            what = f"the state cannot be read: {cause.strerror}"
            raise DestinationUnusable(what, where=str(cause.filename)) from cause
        yield database


def _plain_folder(path: Path) -> None:
    """Make a folder of ours, never through a symbolic link."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        sync_folder(path.parent)
    if path.is_symlink() or not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "not a plain folder", str(path))
