"""Bounded gzip decompression of documents: known by the first octets, at most two layers, growth limited (AMB-14)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.deflate import DeflateError, gzip_inflater
from headwater.spec.faults import BadCompression, LimitExceeded, Truncated
from headwater.spec.limits import ReadLimits

MAGIC: Final = b"\x1f\x8b"
BLOCK: Final = 1 << 16
_SLICE: Final = (
    1 << 12
)  # zlib gives nothing of a call that meets damage: so much is lost at most, however octets arrive
_LAYERS: Final = 2  # a .xml.gz that a server compresses once more; nobody needs a third


class Inflater:
    """Decompresses pushed octets, in blocks of at most 64 KiB; what is not gzip passes through."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._layers = [_Layer(limits) for _ in range(_LAYERS)]
        self._received = 0
        self._produced = 0

    def push(self, data: bytes) -> Iterator[bytes]:
        """The plain octets that `data` gives. Raises BadCompression or LimitExceeded."""
        for start in range(0, len(data), BLOCK):  # growth is judged by what was taken, not by what lies ready
            piece = data[start : start + BLOCK]
            self._received += len(piece)
            for middle in self._layers[0].push(piece):
                for block in self._layers[1].push(middle):
                    self._count(block)
                    yield block
            if self._received > self._limits.compressed_octets and self._layers[0].compressed:
                raise LimitExceeded(f"more than {self._limits.compressed_octets:,} octets in compressed form")

    def finish(self) -> Iterator[bytes]:
        """What is left at the end. Raises Truncated when the compressed form is cut off."""
        for middle in self._layers[0].finish():
            for block in self._layers[1].push(middle):
                self._count(block)
                yield block
        for block in self._layers[1].finish():
            self._count(block)
            yield block

    @property
    def has_trailing(self) -> bool:
        """Whether something other than gzip follows the gzip form, and was left out (AMB-92)."""
        return any(layer.has_trailing for layer in self._layers)

    def _count(self, block: bytes) -> None:
        limits = self._limits
        if not self._produced and block.startswith(MAGIC):
            raise LimitExceeded(f"more than {_LAYERS} layers of gzip", rule="AMB-14")
        self._produced += len(block)
        if self._produced > limits.octets:
            raise LimitExceeded(f"more than {limits.octets:,} octets")
        if self._produced > limits.ratio_octets and self._produced > limits.ratio * self._received:
            raise LimitExceeded(f"grows more than {limits.ratio} times by decompression", rule="AMB-14")


class _Layer:
    """One layer: passes through, or is gzip of one or more members (RFC 1952, 2.2)."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._head = b""
        self._decided = False
        self._members = 0
        self._stream = gzip_inflater()
        self.compressed = False
        self.has_trailing = False

    def push(self, data: bytes) -> Iterator[bytes]:
        if not self._decided:
            data = self._head + data
            if len(data) < len(MAGIC) and MAGIC.startswith(data):
                self._head = data
                return
            self._decided, self._head = True, b""
            self.compressed = data.startswith(MAGIC)
            self._members = 1
        if self.has_trailing:
            return
        if self.compressed:
            for start in range(0, len(data), _SLICE):
                yield from self._inflate(data[start : start + _SLICE])
            return
        yield data

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:
                data = self._next_member(data)
                if not data:
                    return
            try:
                block = self._stream.decompress(data, BLOCK)
            except DeflateError as cause:
                raise BadCompression("the gzip form is damaged") from cause
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if block:
                yield block

    def _next_member(self, data: bytes) -> bytes:
        """Begin another member; padding with zeros is legal at the end of a gzip file."""
        data = (self._head + data).lstrip(b"\0")
        self._head = b""
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            self._head = data
            return b""
        if not data.startswith(MAGIC):
            self.has_trailing = True
            return b""
        self._members += 1
        if self._members > self._limits.gzip_members:
            raise LimitExceeded(f"more than {self._limits.gzip_members:,} gzip members", rule="AMB-14")
        self._stream = gzip_inflater()
        return data

    def finish(self) -> Iterator[bytes]:
        if self.compressed:
            if not self._stream.eof:
                yield from self._flush()
            if not self._stream.eof:
                raise Truncated("the gzip form is cut off", rule="AMB-14")
            self.has_trailing = self.has_trailing or bool(self._head)
        elif self._head:
            yield self._head

    def _flush(self) -> Iterator[bytes]:
        # Output may still be pending when the last block was exactly full; all input has been consumed by then.
        try:
            while block := self._stream.decompress(b"", BLOCK):
                yield block
        except DeflateError as cause:
            raise BadCompression("the gzip form is damaged") from cause
