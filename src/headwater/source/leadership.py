"""Leader election: one process has the right to publish a source, wherever the others run; they stand by.

Where the catalog is a file, the lock of the state folder is enough. Where processes of several machines share one, the
right is a claim in the catalog. Whoever has lost it without knowing (paused, cut off) is stopped by `check` before it
puts a document in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ClassVar

from headwater.catalog.claims import Claim
from headwater.errors import HeadwaterError, StoreFault
from headwater.progress import Listener, Notice, silent

RENEW_PART = 3
"""It is renewed when so many-th of its time has passed."""
_LOOK_SECONDS = 1.0


class NotLeader(StoreFault):
    """Another process publishes this source."""

    code: ClassVar[str] = "HW-OWN-05"
    advice: ClassVar[str] = "End the other process, or let this one stand by: `publish --watch` and `serve` do."


class Leadership:
    """Becomes the leader, renews the claim in a thread, and tells when it is lost. Without a claim we always lead."""

    def __init__(self, claim: Claim | None, listener: Listener = silent) -> None:
        self._claim = claim
        self._listener = listener
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: HeadwaterError | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process may publish now."""
        return self._claim is None or self._claim.holds()

    @property
    def holder(self) -> str:
        """Who was the leader when it was last asked for."""
        return "" if self._claim is None else self._claim.holder

    def check(self) -> None:
        """Raises NotLeader."""
        if not self.is_ours:
            raise NotLeader(f"{self.holder or 'another process'} publishes this source")

    def take(self) -> None:
        """Become the leader and stay it. Waits for a holder that is gone; raises NotLeader when it lives."""
        claim = self._claim
        if claim is None:
            return
        until = time.monotonic() + claim.seconds + 2 * _LOOK_SECONDS
        while not claim.take():
            if time.monotonic() > until:
                self.check()
            time.sleep(min(_LOOK_SECONDS, claim.seconds / RENEW_PART))
        self._begin(lambda: None, lambda: None)

    def whenever(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Call `begin` each time we have become the leader and `end` when we no longer are, until `stop`."""
        if self._claim is None:
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
        if self._claim is not None and self._claim.holds():
            try:
                self._claim.release()
            except HeadwaterError as fault:  # then it is over when its time is
                self._listener(Notice(fault.code, fault.what, fault.where))

    def _begin(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._keep, args=(begin, end), name="headwater-turn", daemon=True)
        self._thread.start()

    def _keep(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        claim = self._claim
        assert claim is not None
        had = False
        while not self._stopping.is_set():
            has = self._ask(claim)
            if self._stopping.is_set():
                return
            if has != had:
                (begin if has else end)()
                had = has
            pause = claim.seconds / RENEW_PART
            self._stopping.wait(pause if has else min(pause, _LOOK_SECONDS))

    def _ask(self, claim: Claim) -> bool:
        try:
            claim.take()
        except HeadwaterError as fault:
            if self.error is None:
                self._listener(Notice(fault.code, fault.what, fault.where))
            self.error = fault
        else:
            self.error = None
        return claim.holds()
