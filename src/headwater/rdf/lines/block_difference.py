"""The difference of two blocks of sorted lines: octets that agree are passed over many at once."""

from __future__ import annotations

_LARGEST_STEP = 1 << 16
_SMALLEST_STEP = 1 << 6
_MANY = 1_000
"""After so many lines that differ, all others are compared one by one: that costs less than to look for the next."""


def block_difference(old: bytes, new: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines that the one block alone has, and those that the other has, in order. Each is of lines that end with
    LF, sorted, each once."""
    gone: list[bytes] = []
    fresh: list[bytes] = []
    a = b = 0
    while a < len(old) and b < len(new) and len(gone) + len(fresh) < _MANY:
        a, b = _after_common(old, a, new, b)
        line, other = _line_at(old, a), _line_at(new, b)
        if line == other:
            a, b = a + len(line), b + len(line)
        elif line and (not other or line < other):
            gone.append(line)
            a += len(line)
        else:
            fresh.append(other)
            b += len(other)
    before, after = old[a:].splitlines(keepends=True), new[b:].splitlines(keepends=True)
    held, there = set(before), set(after)
    gone += [line for line in before if line not in there]
    fresh += [line for line in after if line not in held]
    return gone, fresh


def _after_common(old: bytes, a: int, new: bytes, b: int) -> tuple[int, int]:
    """Where in both the first line begins that may differ, from places on that are the beginnings of lines."""
    start, step = a, _SMALLEST_STEP
    most = min(len(old) - a, len(new) - b)
    while a - start + step <= most and old[a : a + step] == new[b : b + step]:
        a, b = a + step, b + step
        step = min(2 * step, _LARGEST_STEP)
    while step > _SMALLEST_STEP:
        step //= 2
        if a - start + step <= most and old[a : a + step] == new[b : b + step]:
            a, b = a + step, b + step
    line = max(start, old.rfind(b"\n", start, a) + 1)
    return line, b - (a - line)


def _line_at(block: bytes, place: int) -> bytes:
    return block[place : block.find(b"\n", place) + 1]
