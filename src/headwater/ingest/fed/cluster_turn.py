"""The turn to take records for a set, where several hosts do: a claim in the catalog, and how it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from headwater.catalog.claims import Claim
from headwater.errors import StoreFault
from headwater.ingest.fed.memory_index import Book, Version
from headwater.storage.cluster_faults import ClusterFault, ClusterUnreachable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25


class IntakeBusy(StoreFault):
    """Another process takes records for the set, for longer than we wait; or has taken over while we were silent."""

    code: ClassVar[str] = "HW-ING-52"
    advice: ClassVar[str] = "Send it again: what was recorded is not recorded twice."


Seen = tuple[Book, Version | None]
"""A book and its version, None when there is none yet."""


class ClusterTurn:
    """Work on one set that one thread of one process does at a time, wherever the others run.

    `finish` ends what others have left, and gives the book as it is then; `meanwhile` is called while it waits.
    """

    def __init__(
        self,
        name: str,
        claim: Claim,
        finish: Callable[[], Seen],
        meanwhile: Callable[[], None],
        busy_seconds: float,
    ) -> None:
        self._name = name
        self._claim = claim
        self._finish = finish
        self._meanwhile = meanwhile
        self._busy_seconds = max(busy_seconds, 2 * self._claim.seconds)
        self._thread_lock = threading.RLock()
        self._depth = 0
        self._taken_at = 0.0
        self.stamp = ""
        """The batch that was begun in this turn."""
        self.seen: Seen | None = None
        """The book as this turn has found or left it: what is decided in the turn holds for this one."""

    def __enter__(self) -> None:
        self._thread_lock.acquire()
        try:
            if self._depth == 0:
                self.stamp = ""
                self._wait()
                self.seen = self._finish()
            self._depth += 1
        except BaseException:
            if self._claim.holds():
                self._give_back()
            self._thread_lock.release()
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._depth -= 1
            if not isinstance(error, ClusterUnreachable):  # else nobody is there to give it back to
                self._give_back()
            elif self._depth == 0:
                self.seen = None
        finally:
            self._thread_lock.release()

    def _give_back(self) -> None:
        if self._depth == 0:
            self.seen = None
            with suppress(ClusterFault):  # then it is over when its time is
                self._claim.release()

    def check(self) -> None:
        """Make sure that the turn is ours for a while; nobody has it who was not seen. Raises IntakeBusy."""
        if (not self._claim.holds() or self._is_half_over()) and not self._take():
            raise self.lost()

    def lost(self) -> IntakeBusy:
        """Somebody else has had the turn while we were silent."""
        return IntakeBusy(f"{self._claim.holder or 'another process'} has taken over", where=self._name)

    def regain(self) -> None:
        """Take the turn when it is not ours, and end what others have left. Raises IntakeBusy."""
        if not self._claim.holds() or self._is_half_over():
            self._wait()
            self._finish()

    def _wait(self) -> None:
        until, pause = time.monotonic() + self._busy_seconds, _FIRST_PAUSE
        while not self._take():
            if time.monotonic() > until:
                raise IntakeBusy(f"{self._claim.holder or 'another process'} is at it", where=self._name)
            self._meanwhile()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _take(self) -> bool:
        self._taken_at = time.monotonic()
        return self._claim.take()

    def _is_half_over(self) -> bool:
        return time.monotonic() - self._taken_at > self._claim.seconds / 2
