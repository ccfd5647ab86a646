"""The difference of two sequences: the shortest edit script by Myers' greedy algorithm, within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.patches.faults import Effort

MOST_EDITS: Final = 400
"""Beyond so many insertions and deletions the parts that differ are taken as one."""


class Block(NamedTuple):
    """Items `old_from` to `old_to` of the old sequence become `new_from` to `new_to` of the new one."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def blocks(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[Block]:
    """What differs, in order; what is between is equal. Raises PatchRefused."""
    begin, shortest = 0, min(len(old), len(new))
    effort.spend(shortest // 4 + 1)
    while begin < shortest and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = Block(begin, len(old) - end, begin, len(new) - end)
    if middle.old_from == middle.old_to or middle.new_from == middle.new_to:
        return [middle] if len(old) - begin - end or len(new) - begin - end else []
    edits = _edits(_numbered(old, new, middle), effort)
    if edits is None:
        return [middle]
    return [Block(a + begin, b + begin, c + begin, d + begin) for a, b, c, d in edits]


def _numbered(old: Sequence[str], new: Sequence[str], middle: Block) -> tuple[list[int], list[int]]:
    """The items between as numbers: long texts are compared once."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(one, len(numbers)) for one in old[middle.old_from : middle.old_to]]
    b = [numbers.setdefault(one, len(numbers)) for one in new[middle.new_from : middle.new_to]]
    return a, b


def _edits(items: tuple[list[int], list[int]], effort: Effort) -> list[Block] | None:
    """The blocks of the shortest script; None when it has too many edits."""
    a, b = items
    reach, trace = {1: 0}, list[dict[int, int]]()
    for edits in range(min(len(a) + len(b), MOST_EDITS) + 1):
        trace.append(dict(reach))
        effort.spend(edits + 2)
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = start = reach.get(diagonal + 1, 0) if down else reach.get(diagonal - 1, 0) + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            effort.spend(1 + (x - start) // 4)
            reach[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _walked_back(trace, len(a), len(b))
    return None


def _walked_back(trace: list[dict[int, int]], x: int, y: int) -> list[Block]:
    """The blocks along the way that the search has found, from its end to its beginning."""
    found: list[Block] = []
    for edits in range(len(trace) - 1, 0, -1):
        reach, diagonal = trace[edits], x - y
        down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        from_x = reach.get(before, 0)
        from_y = from_x - before
        to_x, to_y = (from_x, from_y + 1) if down else (from_x + 1, from_y)
        if found and found[-1].old_from == to_x and found[-1].new_from == to_y:
            found[-1] = Block(from_x, found[-1].old_to, from_y, found[-1].new_to)
        else:
            found.append(Block(from_x, to_x, from_y, to_y))
        x, y = from_x, from_y
    return found[::-1]
