"""Distributed locks: at most one process holds a role, where processes on several machines share a catalog.

A file lock tells processes of one machine apart; a catalog that others reach by network keeps claims itself. A claim
is held as long as its holder says so often enough; nobody compares clocks of two machines.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Claim(Protocol):
    """The right to one role, held or wanted by one process. Not for two threads at once."""

    seconds: float
    """So long after it was last renewed nobody else takes it."""

    @property
    def holder(self) -> str:
        """Who had it when it was last asked for; empty when nobody did."""
        ...

    def holds(self) -> bool:
        """Whether it is surely ours now, told without asking anybody; from any thread."""
        ...

    def take(self) -> bool:
        """Ask once: take or renew it; whether it is ours. One that is not free may be in `seconds`: ask again.

        Raises the catalog's StoreFaults; a claim that was held is then still held until its time is over.
        """
        ...

    def release(self) -> None:
        """Let others have it at once. No effect when it is not ours."""
        ...


@runtime_checkable
class Claiming(Protocol):
    """A catalog that processes on several machines may open."""

    def claim(self, role: str, who: str) -> Claim:
        """The claim to `role`, not asked for yet; `who` tells people which process this is."""
        ...

    def fence(self, name: str) -> int:
        """Shut out whoever has seen the set before: the `fence` of its state from now on (`record`, `after`).

        Raises UnknownSet and the catalog's StoreFaults.
        """
        ...

    def hurry(self) -> None:
        """Be patient no longer, in any thread: this process is to end, and what is cut off now is whole or not at all.

        What does not answer at once is raised as a StoreFault from now on.
        """
        ...
