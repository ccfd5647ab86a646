"""Raw deflate (RFC 1951) by isal where it is installed, else by zlib: one choice of engine and level for all rooms."""

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

FINISH: int = engine.Z_FINISH
FULL_FLUSH = 3
"""A mode of flushing: the stream goes on at a whole octet, and refers to nothing before it (zlib's Z_FULL_FLUSH)."""

MOST_STORED = 0xFFFF
"""Most octets of a stored block of deflate (RFC 1951 3.2.4)."""

_HEAD = 8
"""First octets of a stream that are stored."""

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
    return _engine_deflater(level) if _ZLIB else _StoredHeadDeflater(level)


def deflate_whole(content: bytes, level: int) -> bytes:
    """The whole content as raw deflate."""
    if _ZLIB or len(content) <= _HEAD:
        octets: bytes = engine.compress(content, level, -15)
        return octets
    deflater = _engine_deflater(level)
    return b"".join((_begun(deflater, content[:_HEAD]), deflater.compress(content[_HEAD:]), deflater.flush()))


def stored_block(octets: bytes) -> bytes:
    """A block of deflate, not the last, that holds at most 65,535 octets as they are (RFC 1951 3.2.4)."""
    return b"\x00" + len(octets).to_bytes(2, "little") + (len(octets) ^ MOST_STORED).to_bytes(2, "little") + octets


class _StoredHeadDeflater:
    """A stream of isal's whose first octets are stored, because isal does not begin the same way every time.

    Begun with more than 16 octets, isal hashes a processor register that it has not set (ISA-L 2.31, `write_first_byte`
    of its search for repetitions): which octets it writes then depends on where the stack of the thread lies. Begun
    with fewer, which are flushed, it does not come there. Decision 074.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._deflater: RawDeflater | None = None
        self._head = b""

    def compress(self, data: bytes, /) -> bytes:
        if self._deflater is not None:
            return self._deflater.compress(data)
        missing = _HEAD - len(self._head)
        self._head += data[:missing]
        if len(data) <= missing:
            return b""
        self._deflater = _engine_deflater(self._level)
        return _begun(self._deflater, self._head) + self._deflater.compress(data[missing:])

    def flush(self, mode: int = FINISH, /) -> bytes:
        deflater, head = self._deflater, self._head
        if mode == FULL_FLUSH:
            self._deflater, self._head = None, b""
            if deflater is None:
                return stored_block(head) if head else b""
        return deflate_whole(head, self._level) if deflater is None else deflater.flush(mode)


def _engine_deflater(level: int) -> RawDeflater:
    deflater: RawDeflater = engine.compressobj(level, engine.DEFLATED, -15)
    return deflater


def _begun(deflater: RawDeflater, head: bytes) -> bytes:
    """Have a new deflater take these octets in; what it writes for them, to a whole octet, gives way to a stored block
    of the same."""
    deflater.compress(head)
    deflater.flush(engine.Z_SYNC_FLUSH)
    return stored_block(head)


class RawInflater(Protocol):
    """One stream that is read (as zlib's decompression objects)."""

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


def gzip_inflater() -> RawInflater:
    """A new reader of one member of gzip (RFC 1952), whose length and CRC-32 are checked."""
    inflater: RawInflater = engine.decompressobj(31)
    return inflater
