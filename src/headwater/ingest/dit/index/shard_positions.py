"""How far one shard of an index has been read, such that no document is lost and none comes twice.

A shard numbers every operation, later ones higher (`_seq_no`), whatever times the documents state: a late document has
a high number. But a number may become visible before a smaller one. So numbers that were passed over are *gaps*; they
are asked for again for as long as something may still be under way, and forgotten afterwards: what was there has been
overwritten or removed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headwater.typed_decoding import from_json

WINDOW: Final = 10_000
"""Gaps so far below the newest number, at most, are taken for operations under way."""
OVERLAP_SECONDS: Final = 120
"""How long a gap is asked for: far longer than an operation takes from its number to the next refresh."""


class ShardPosition(msgspec.Struct, array_like=True):
    """All numbers below `next` are dealt with, but for `gaps`: each with the second at which it was passed over."""

    next: int = 0
    gaps: dict[int, int] = msgspec.field(default_factory=dict)

    def is_new(self, number: int) -> bool:
        """Whether the operation has not been taken yet."""
        return number >= self.next or number in self.gaps

    def take(self, numbers: Iterable[int], second: int) -> None:
        """Note that these were taken; what they pass over are gaps."""
        ordered = sorted(numbers)
        for number in ordered:
            if number < self.next:
                self.gaps.pop(number, None)
                continue
            self.gaps |= dict.fromkeys(range(max(self.next, ordered[-1] + 1 - WINDOW), number), second)
            self.next = number + 1
        self.gaps = {gap: since for gap, since in self.gaps.items() if gap >= self.next - WINDOW}

    def is_far_behind(self, newest: int) -> bool:
        """Whether nothing that was passed over can still be under way, when `newest` is to be seen."""
        return newest - WINDOW > self.next

    def pass_over(self, newest: int) -> None:
        """Move on where nothing up to `newest` is left to take; the numbers below it are asked for again."""
        self.next, self.gaps = newest - WINDOW, {}

    def forget(self, second: int) -> None:
        """Drop the gaps that have been asked for long enough."""
        self.gaps = {gap: since for gap, since in self.gaps.items() if second - since < OVERLAP_SECONDS}


def read_position(octets: bytes | None) -> ShardPosition:
    """The position that was written down; the beginning when none was."""
    return ShardPosition() if octets is None else from_json(octets, ShardPosition)


def write_position(position: ShardPosition) -> bytes:
    """The position as it is written down."""
    return msgspec.json.encode(position)
