"""What may be wrong with a patch, and the measure of work by which making and applying one is bounded."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 16 << 20
"""Octets of a resource, of a patch and of its result: everything is held in memory."""
MOST_OPERATIONS: Final = 10_000
"""In one patch."""
DEEPEST: Final = 200
"""So many levels of arrays and objects are descended into."""
MOST_NODES: Final = 1_200_000
"""What is held of all texts together, each some hundred octets: a value counts as two."""


class PatchRefused(Exception):
    """A patch cannot be applied, or costs too much: it is not for this state, is malformed, or grows beyond bounds.

    Never told as an error: the resource is fetched whole (DST-S1).
    """


class Effort:
    """Counts work, and refuses to go on beyond `most` units. A unit is about a microsecond. Counts nodes as well."""

    def __init__(self, most: int = 5_000_000) -> None:
        self._left = most
        self._nodes_left = MOST_NODES

    def spend(self, units: int) -> None:
        """Note work that is about to be done. Raises PatchRefused."""
        self._left -= units
        if self._left < 0:
            raise PatchRefused("it takes too long")

    def hold(self, nodes: int) -> None:
        """Note nodes that are about to be held. Raises PatchRefused."""
        self._nodes_left -= nodes
        if self._nodes_left < 0:
            raise PatchRefused("it has too many values")
