"""Inflates one member within bounds: octets of the file in, octets of the content out, in blocks or as a whole.

A process that does nothing else imports this, and little beyond the standard library and the inflater.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.deflate import DeflateError, crc32, raw_inflater
from headwater.packages.faults import BadPackage, PackageTooLarge, shown

if TYPE_CHECKING:
    from headwater.packages.limits import PackageLimits

BLOCK = 1 << 18
"""Most octets of content that come out at a time: a short input may become a thousand times as long."""

_INPUT = 1 << 14
"""Octets that are handed to the engine at a time: it copies what it has not used."""


class Inflation:
    """Deflated content of one member as it comes, until its own end. `most`: octets that may come out, because the
    member is said to have so many (`said`) or because no member may have more."""

    def __init__(self, name: str, limits: PackageLimits, most: int, *, said: bool) -> None:
        self._name = name
        self._limits = limits
        self._most = most
        self._said = said
        self._inflater = raw_inflater()
        self.packed = 0
        """Octets of the file that belong to the member, so far."""
        self.plain = 0
        """Octets of content that have come out."""

    @property
    def ended(self) -> bool:
        """Whether the end of the deflated content was met."""
        return self._inflater.eof

    def push(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Inflate; `packed` tells how much of `data` was used. Raises BadPackage, PackageTooLarge."""
        for start in range(0, len(data), _INPUT):
            if self.ended:
                return
            waiting = bytes(data[start : start + _INPUT])
            self.packed += len(waiting)
            while not self.ended:
                out = self._inflate(waiting)
                waiting = self._inflater.unconsumed_tail
                if out:
                    self._check(len(out))
                    yield out
                if not waiting and len(out) < BLOCK:
                    break
            self.packed -= len(self._inflater.unused_data)
            self._check(0)

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._inflater.decompress(data, BLOCK)
        except DeflateError as error:
            raise BadPackage(f"the deflated content of {shown(self._name)} is damaged") from error

    def _check(self, octets: int) -> None:
        limits = self._limits
        self.plain += octets
        if self.plain > self._most and self._said:
            raise BadPackage(f"{shown(self._name)} has more octets than the {self._most:,} that are said")
        if self.plain > self._most:
            raise PackageTooLarge(f"{shown(self._name)} has more than {self._most:,} octets")
        if self.plain > limits.ratio_octets and self.plain > limits.ratio * self.packed:
            raise PackageTooLarge(f"{shown(self._name)} grows more than {limits.ratio} times by inflating")
        if self.packed > self.plain + (self.plain >> 4) + limits.barren_octets:
            raise PackageTooLarge(f"{shown(self._name)} is deflated and longer than its content")


def small_content(name: str, packed: bytes, octets: int, crc: int, *, is_deflated: bool) -> bytes:
    """The content of the member `name`. Raises BadPackage where length or CRC are not as stated."""
    content = inflate_whole(name, packed, octets) if is_deflated else packed
    if crc32(content) != crc:
        raise BadPackage(f"{shown(name)} has another CRC than its local header says")
    return content


def inflate_whole(name: str, body: bytes, octets: int) -> bytes:
    """The content of a small member, which has exactly so many octets. Raises BadPackage."""
    inflater = raw_inflater()
    try:
        content = inflater.decompress(body, octets + 1)
    except DeflateError as error:
        raise BadPackage(f"the deflated content of {shown(name)} is damaged") from error
    if not inflater.eof or inflater.unused_data or len(content) != octets:
        raise BadPackage(f"{shown(name)} has another length than its local header says")
    return content
