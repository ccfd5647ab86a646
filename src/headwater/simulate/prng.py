"""A pseudorandom number generator without state: a number depends on a key and a counter alone.

Who stops and goes on, in another process or another order, draws the same numbers. The mixing is that of SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
"""

from __future__ import annotations

import hashlib

_MASK = (1 << 64) - 1
_STRIDE = 0x9E3779B97F4A7C15
_ONE = 1 << 64


def key_of(seed: int, *words: str) -> bytes:
    """A key of 16 octets for one purpose: another seed or another word, and everything drawn from it is another."""
    return hashlib.blake2b("\0".join((str(seed), *words)).encode(), digest_size=16).digest()


class Prng:
    """The draws of one key."""

    def __init__(self, key: bytes) -> None:
        self._start = int.from_bytes(key[:8], "little")

    def draw(self, counter: int) -> int:
        """The number from 0 to 2**64 - 1 at this place of the sequence."""
        mixed = (self._start + counter * _STRIDE) & _MASK
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, end: int, counter: int) -> int:
        """The number from 0 to `end` - 1 at this place of the sequence."""
        return self.draw(counter) * end // _ONE

    def share(self, counter: int) -> float:
        """The number from 0 to below 1 at this place of the sequence."""
        return (self.draw(counter) >> 11) / (1 << 53)
