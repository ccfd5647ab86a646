"""Leases, and how long they last: a right that is held as long as others hear of its holder, whatever their clocks say.

A lease lies in a document that everybody sees: who holds it, and how long its silence is borne. Whoever waits looks at
the document: as long as its version changes, the holder lives. When it has not changed for as long as the holder said,
by the steady clock of the one who waits, the lease has expired, and the one who waits takes it. A holder renews it well
before; one that could not knows by its own clock that it may have lost it.

The write lease of a set and the leadership over a source are leases of this kind.
"""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import msgspec

from headwater.errors import StoreFault

LEASE_SECONDS: Final = 30.0
"""How long others bear the silence of a leader, or of a writer, before one of them takes over."""
_RENEW_PART: Final = 3  # a holder renews its lease when so many-th of it has passed: two attempts may fail


class NotLeader(StoreFault):
    """Another process publishes this source."""

    code = "HW-OWN-05"


Version = tuple[int, int]
"""What tells two states of a document apart: sequence number and primary term, as compare-and-set wants them."""


class HeldBy(msgspec.Struct, frozen=True):
    """What stands in the document: the holder's token, and how long after each renewal nobody else takes over."""

    token: str
    seconds: float


@dataclass
class LeaseWatch:
    """What one waiting process has seen of a document, by its own steady clock."""

    _token: str
    _seen: tuple[Version, float] | None = None  # the version that was found last, and since when

    def silence(self, found: HeldBy | None, version: Version, now: float) -> float | None:
        """For how long whoever else holds the lease was not heard of; None: nobody does, or one who is gone."""
        seen = self._seen
        if seen is None or seen[0] != version:
            self._seen = seen = (version, now)
        if found is None or found.token == self._token:
            return None
        silence = now - seen[1]
        return silence if silence < found.seconds else None


@dataclass
class LeaseTerm:
    """What a holder knows of its own lease, by its own steady clock; told from any thread."""

    seconds: float
    _renewed: float | None = None

    def renewed(self, asked_at: float) -> None:
        """It was taken or renewed by a request sent at `asked_at`: others count from a later moment on."""
        self._renewed = asked_at

    def end(self) -> None:
        """It was given back, or somebody else has it."""
        self._renewed = None

    def is_held(self, now: float) -> bool:
        """Whether it is surely still ours."""
        return self._renewed is not None and now < self._renewed + self.seconds

    def is_due(self, now: float) -> bool:
        """Whether it must be renewed before anything else is done under it."""
        return self._renewed is None or now - self._renewed >= renewal_seconds(self.seconds)


def renewal_seconds(seconds: float) -> float:
    """How long after the last renewal the next one is due."""
    return seconds / _RENEW_PART


class Lease(Protocol):
    """The right to one role, held or wanted by one process. Not for two threads at once."""

    seconds: float  # so long after it was last renewed nobody else takes it
    turn: int  # another number each time it was taken, not renewed: others may have held it before

    @property
    def holder(self) -> str:
        """Who had it when it was last asked for; empty when nobody did."""

    def holds(self) -> bool:
        """Whether it is surely ours now, told without asking anybody; from any thread."""

    def take(self) -> bool:
        """Ask once: take or renew it; whether it is ours. One that is not free may be in `seconds`: ask again.

        Raises the catalog's StoreFaults; a lease that was held is then still held until its time is over.
        """

    def release(self) -> None:
        """Let others have it at once. No effect when it is not ours."""


@runtime_checkable
class SharedCatalog(Protocol):
    """A catalog that processes on several machines may open: a file lock does not tell them apart, so it has leases."""

    def lease(self, role: str, who: str) -> Lease:
        """The lease of `role`, not asked for yet; `who` tells people which process this is."""

    def fence(self, name: str) -> int:
        """Shut out whoever has seen the set before: the `fence` of its state from now on (`record`, `after`).

        Raises UnknownSet and the catalog's StoreFaults.
        """

    def hurry(self) -> None:
        """Be patient no longer, in any thread: this process is to end, and what is cut off now is whole or not at all.

        What does not answer at once is raised as a StoreFault from now on.
        """
