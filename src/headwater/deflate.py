"""Raw deflate (RFC 1951) by isal where it is installed, else by zlib: one choice of engine and level for all rooms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

try:
    from isal import isal_zlib as engine
except ImportError:  # pragma: no cover - there are wheels for every platform that we test on
    import zlib as engine  # type: ignore[no-redef]

crc32: Callable[..., int] = engine.crc32
"""CRC-32 of octets, continued from a second argument (RFC 1952 8)."""

DeflateError = cast("type[Exception]", engine.error)
"""What an inflater raises for octets that are no deflate."""

_ZLIB = engine.__name__ == "zlib"

SMALL_LEVEL = 6 if _ZLIB else 2
"""For what is written once and read often: isal's level 2 is 8 to 10 times as fast on lists as zlib's 6, at 0.97 of its
size."""

FAST_LEVEL = 6 if _ZLIB else 1
"""For many small contents: isal's level 1 is 2 to 3 times as fast as its level 2 on 4 KiB, at the same size within a
hundredth."""

FULL_FLUSH = 3
"""A mode of flushing: the stream goes on at a whole octet, and refers to nothing before it (zlib's Z_FULL_FLUSH)."""

BLOCK = 1 << 18
"""Octets that are deflated at a time: what isal writes depends on where it is interrupted, so this must be fixed."""


class RawDeflater(Protocol):
    """One stream of raw deflate: what `compress` and `flush` give, joined."""

    def compress(self, data: bytes, /) -> bytes:
        """Take octets in; gives what is ready."""
        ...

    def flush(self, mode: int = ..., /) -> bytes:
        """The rest of the stream; with `FULL_FLUSH` what is ready, such that nothing later refers to it."""
        ...


def raw_deflater(level: int) -> RawDeflater:
    """A new stream of raw deflate; give it blocks of `BLOCK` octets, so that the same octets come out every time."""
    deflater: RawDeflater = engine.compressobj(level, engine.DEFLATED, -15)
    return deflater


def deflate_whole(content: bytes, level: int) -> bytes:
    """The whole content as raw deflate."""
    octets: bytes = engine.compress(content, level, -15)
    return octets


class RawInflater(Protocol):
    """One stream of raw deflate that is read (as zlib's decompression objects)."""

    eof: bool
    unused_data: bytes
    unconsumed_tail: bytes

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many octets of content; what was not taken of `data` is in `unconsumed_tail`."""
        ...


def raw_inflater() -> RawInflater:
    """A new reader of one stream of raw deflate."""
    inflater: RawInflater = engine.decompressobj(-15)
    return inflater
