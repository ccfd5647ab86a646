"""A folder in memory for the files of a run of tests: most of what tests waited for was a disk that syncs.

Files there outlive a process that is killed, as those on a disk do, and the tests that let the power fail say
themselves which octets were synced (`disk`). With TMPDIR set, everything lies there as usual.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 3 << 30
"""Octets that have to be free: some tests write hundreds of MiB, and engines want their own."""
PREFIX = "headwater-tests-"
FOLDER = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, where there is room, before anything is put into one; workers get it by their environment."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK) or free_octets() < ROOM:
        return
    remove_left_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    folder.chmod(0o1777)  # as that of the system: tests and engines write into it as other users, too
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    config.stash[FOLDER] = folder


def free_octets() -> int:
    """The octets that are free in memory that files may take."""
    return shutil.disk_usage(MEMORY).free


def remove_left_folders() -> None:
    """Remove the folders of runs that have ended: of one that failed it is left to be looked at."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if owner.isdigit() and not Path("/proc", owner).exists():
                shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Say where the files of a run are in which something failed."""
    folder = terminalreporter.config.stash.get(FOLDER, None)
    if folder is not None and exitstatus != pytest.ExitCode.OK:
        terminalreporter.line(f"The files of this run are in {folder} until the next run begins.")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove the folder of a run in which nothing failed."""
    folder = session.config.stash.get(FOLDER, None)
    if folder is not None and exitstatus == pytest.ExitCode.OK:
        session.config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
