"""A copy of one state of a SQLite database that others may have open, without a change beside the original."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from headwater.storage.sqlite.busy_wait import BusyWait
from headwater.storage.sqlite.database_file import disk_is_full
from headwater.storage.sqlite.transaction import fault_of

_COPY_SECONDS = 30.0
_FILE_COPIES = 10
"""So often the files of a database that nobody has open are copied anew when they were changed meanwhile."""


def copy_database(original: Path, copy: Path) -> None:
    """Write one committed state of a database to the new file `copy`, whatever is written and checkpointed meanwhile.

    Nothing is made or changed beside the original. Raises DatabaseFaults, and OSError where it cannot be read.
    """
    shared = Path(f"{original}-shm")
    for _ in range(_FILE_COPIES):
        if shared.exists():
            break
        before = _file_states(original)  # nobody has it open; to read it by SQLite would make what is shared, and a log
        _copy_files(original, copy)
        if not shared.exists() and _file_states(original) == before:
            return  # else somebody has opened it meanwhile, and perhaps closed it again
    try:
        copy.unlink(missing_ok=True)
        with (
            contextlib.closing(apsw.Connection(str(original), flags=apsw.SQLITE_OPEN_READONLY)) as source,
            contextlib.closing(apsw.Connection(str(copy))) as target,
        ):
            source.set_busy_handler(BusyWait(_COPY_SECONDS))
            with target.backup("main", source, "main") as backup:
                backup.step()
    except apsw.Error as cause:  # another user's, of a run that was killed; or what SQLite shares has no room there
        if not isinstance(cause, (apsw.CantOpenError, apsw.ReadOnlyError)) and not disk_is_full(original):
            raise fault_of(cause, original) from cause
        for _ in range(_FILE_COPIES):
            before = _file_states(original)
            _copy_files(original, copy)
            if _file_states(original) == before:
                return


def _copy_files(original: Path, copy: Path) -> None:
    from shutil import copyfile  # with every archive format it knows: the start of each run would pay for it

    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
        if (file := Path(f"{original}{suffix}")).is_file():
            with contextlib.suppress(FileNotFoundError):  # a log that was removed just now
                copyfile(file, f"{copy}{suffix}")


def _file_states(database: Path) -> list[tuple[int, int, int] | None]:
    """What of the states of a database's files tells whether they have changed; None: there is no such file."""
    found: list[tuple[int, int, int] | None] = []
    for suffix in ("", "-wal"):
        try:
            state = os.stat(f"{database}{suffix}")
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found
