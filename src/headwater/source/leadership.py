"""Who may work on a source: the lock of its state folder, and leader election among processes of several machines.

One process has the right to publish a source, wherever the others run; they stand by. Where the catalog is a file, the
lock of the state folder is enough. Where processes of several machines share one, the right is a lease in the catalog.
Whoever has lost it without knowing (paused, cut off) is stopped by `check` before it puts a document in its place.
"""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from headwater.catalog.interface import Catalog
from headwater.catalog.lease import Lease, NotLeader, SharedCatalog, renewal_seconds
from headwater.copy_state import FOLDER, STATE
from headwater.errors import HeadwaterError, StoreFault
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.progress import Listener, Notice, silent
from headwater.source.set_health import FailureState
from headwater.storage.lock import LockHeld, lock_exclusive


class Locked(StoreFault):
    """Another process works on the same state folder."""

    code: ClassVar[str] = "HW-OWN-01"


class StateUnusable(StoreFault):
    """The state folder cannot be made or written."""

    code: ClassVar[str] = "HW-OWN-02"


def make_state(folder: Path) -> None:
    """Make sure of the state folder, and that whoever publishes a folder above leaves it out. Raises StateUnusable."""
    if (folder / FOLDER / STATE).is_file():
        advice = "Name another folder with --state: inside a copy it would disturb `sync` and audits."
        raise StateUnusable("the folder is a copy that `headwater sync` keeps", where=str(folder), advice=advice)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark_folder(folder, STATE_MARK)
    except OSError as cause:
        raise _unusable(folder, cause) from cause


def _unusable(folder: Path, cause: OSError) -> StateUnusable:
    is_full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Free space there, or name a folder on another file system with --state." if is_full else None
    return StateUnusable(f"cannot be used for state: {cause.strerror}", where=str(folder), advice=advice)


class StateLock:
    """Holds the lock file of a state folder until `release`, or until the process ends, however it does."""

    def __init__(self, folder: Path) -> None:
        make_state(folder)
        try:
            self._descriptor = lock_exclusive(folder / "lock")
        except OSError as cause:
            raise _unusable(folder, cause) from cause
        except LockHeld as cause:
            holder = cause.holder.decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise Locked(f"{who} is using this state folder", where=str(folder)) from cause
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others have the folder. No effect the second time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


NOT_SAID = "the catalog has not said in time who publishes this source"
_LOOK_SECONDS = 1.0


class Leadership:
    """Becomes the leader, renews the lease in a thread, and tells when it is lost. Without a lease we always lead."""

    def __init__(self, lease: Lease | None, listener: Listener = silent) -> None:
        self._lease = lease
        self._listener = listener
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = FailureState()
        """Why this process cannot begin to publish when it may; nothing when it could, or has not tried."""
        self.error: HeadwaterError | None = None
        self._was_ours = False  # whether the catalog said so when it was asked last

    @property
    def is_ours(self) -> bool:
        """Whether this process may publish now."""
        return self._lease is None or self._lease.holds()

    @property
    def words(self) -> str:
        """Why this process does not publish: the catalog may not have answered since our time ran out."""
        if self.error is not None or self._was_ours:
            return NOT_SAID
        return f"{(self._lease and self._lease.holder) or 'another process'} publishes this source"

    def check(self) -> None:
        """Raises NotLeader."""
        if not self.is_ours:
            raise NotLeader(self.words)

    def take(self) -> None:
        """Become the leader and stay it. Waits for a holder that is gone; raises NotLeader when it lives."""
        lease = self._lease
        if lease is None:
            return
        until = time.monotonic() + lease.seconds + 2 * _LOOK_SECONDS
        while not lease.take():
            if time.monotonic() > until:
                self.check()
            time.sleep(min(_LOOK_SECONDS, renewal_seconds(lease.seconds)))
        self._was_ours = True
        self._begin(lambda: None, lambda: None)

    def whenever(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Call `begin` each time we have become the leader and `end` when we no longer are, until `stop`."""
        if self._lease is None:
            begin()
        else:
            self._begin(begin, end)

    def halt(self, timeout: float = 30.0) -> bool:
        """Begin and end nothing any more; False when what is under way has not ended in time."""
        self._stopping.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def release(self) -> None:
        """Let others lead; what it was for has ended."""
        if self._lease is not None and self._lease.holds():
            try:
                self._lease.release()
            except HeadwaterError as fault:  # then it is over when its time is
                self._listener(Notice(fault.code, fault.what, fault.where))

    def _begin(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._keep, args=(begin, end), name="headwater-turn", daemon=True)
        self._thread.start()

    def _keep(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        lease = self._lease
        assert lease is not None
        begun: int | None = None
        while not self._stopping.is_set():
            try:
                lease.take()
            except HeadwaterError as fault:
                if self.error is None:
                    self._listener(Notice(fault.code, fault.what, fault.where))
                self.error = fault
            else:
                self.error, self._was_ours = None, lease.holds()
            if self._stopping.is_set():
                return
            has = lease.holds()
            turn = lease.turn if has else None
            if begun is not None and begun != turn:  # also when it is ours again: it may have been another one's
                end()
                begun = None
            if turn is not None and begun is None:
                try:
                    begin()
                except Exception as fault:  # noqa: BLE001 - a thread's last frame: else we would stand by for ever
                    self.failed.add(fault, self._listener, "this process cannot begin to publish, and tries again")
                    self.release()  # others may lead until then
                    has = False
                else:
                    self.failed.clear()
                    begun = turn
            pause = renewal_seconds(lease.seconds)
            self._stopping.wait(pause if has else min(pause, _LOOK_SECONDS))


def leadership_of(catalog: Catalog, base_url: str, listener: Listener) -> Leadership:
    """The right to publish the source at this base URL: by a lease where processes of several machines may want it."""
    lease = None
    if isinstance(catalog, SharedCatalog):
        lease = catalog.lease(f"publish {base_url}", f"process {os.getpid()} on {socket.gethostname()}")
    return Leadership(lease, listener)
