"""The population of a set: which resources are alive, and which of them changes next; one octet a resource.

The n-th change of a set follows from the seed, n, the mix and who is alive. A run that was killed goes on with exactly
the changes that would have come.
"""

from __future__ import annotations

from headwater.simulate.prng import Prng
from headwater.simulate.settings import ChangeMix
from headwater.spec.records import ChangeKind

_TRIES = 16
"""How often a resource is drawn before the next living one is taken: it fails only where few of many are left."""
_DRAWS = _TRIES + 1
"""Places in the sequence of chance that belong to one change."""


class Population:
    """The resources of one set by number: those below `born` have been there, `count` of them are alive."""

    def __init__(self, key: bytes, initial: int) -> None:
        self._chance = Prng(key)
        self._alive = bytearray(b"\1") * initial
        self.count = initial

    @property
    def born(self) -> int:
        """How many resources there have ever been."""
        return len(self._alive)

    def is_alive(self, number: int) -> bool:
        """Whether the resource is there now."""
        return number < len(self._alive) and bool(self._alive[number])

    def next(self, step: int, mix: ChangeMix) -> tuple[ChangeKind, int] | None:
        """The change of this step, carried out; None when there is nothing that the mix could do.

        Where nothing is alive, something is created instead, if the mix creates anything.
        """
        change = self._kind(step, mix)
        if change is not ChangeKind.CREATED and not self.count:
            if not mix.created:
                return None
            change = ChangeKind.CREATED
        number = self.born if change is ChangeKind.CREATED else self._living(step)
        self.apply(change, number)
        return change, number

    def apply(self, change: ChangeKind, number: int) -> None:
        """Carry out a change, in whatever order and however often they come."""
        if number >= self.born:
            self._alive.extend(bytes(number + 1 - self.born))
        alive = change is not ChangeKind.DELETED
        self.count += alive - self._alive[number]
        self._alive[number] = alive

    def _kind(self, step: int, mix: ChangeMix) -> ChangeKind:
        place = self._chance.share(step * _DRAWS) * (mix.created + mix.updated + mix.deleted)
        # Rounding must not give what the mix excludes.
        if place < mix.created or not (mix.updated or mix.deleted):
            return ChangeKind.CREATED
        return (
            ChangeKind.UPDATED
            if (place < mix.created + mix.updated and mix.updated) or not mix.deleted
            else ChangeKind.DELETED
        )

    def _living(self, step: int) -> int:
        """One of the living, each as likely as any other as long as they are not few among many."""
        number = 0
        for place in range(step * _DRAWS + 1, (step + 1) * _DRAWS):
            number = self._chance.below(self.born, place)
            if self._alive[number]:
                return number
        after = self._alive.find(1, number)
        return after if after >= 0 else self._alive.find(1)
