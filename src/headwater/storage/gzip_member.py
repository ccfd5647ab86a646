"""Writes one gzip member as a stream: the same octets for the same content, with a label that a reader can check first.

The label (the gzip header's FCOMMENT, RFC 1952 2.3.1) carries the digest of the uncompressed document, so that whoever
serves the compressed form can tell that it belongs to the document beside it without inflating it.
"""

import os
import struct
from typing import BinaryIO

from headwater.deflate import BLOCK, SMALL_LEVEL, crc32, raw_deflater

MAGIC = b"\x1f\x8b\x08"
_FCOMMENT = 0x10
_UNKNOWN_SYSTEM = 0xFF
LABEL_OCTETS = 200  # no label is longer; a header longer than this is not ours


def header(label: str) -> bytes:
    """A gzip header without time and name (deterministic), with `label` as its comment."""
    text = label.encode("ascii")
    if len(text) > LABEL_OCTETS or b"\0" in text:
        raise ValueError("a label is at most 200 ASCII characters")
    return MAGIC + struct.pack("<BIBB", _FCOMMENT, 0, 0, _UNKNOWN_SYSTEM) + text + b"\0"


def read_label(file: BinaryIO, octets: int | None = None) -> str | None:
    """The label of a gzip file, which is read from its beginning; None when its header is none that we wrote.

    With `octets` it has to end as the form of so many does (ISIZE, RFC 1952 2.3.1): somebody may have cut it off.
    """
    head = file.read(11 + LABEL_OCTETS)
    end = head.find(b"\0", 10)
    if not head.startswith(MAGIC) or end < 0 or head[3] != _FCOMMENT or not head[10:end].isascii():
        return None
    if octets is not None:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4))
        if file.read(4) != (octets & 0xFFFFFFFF).to_bytes(4, "little"):
            return None
    return head[10:end].decode("ascii")


class GzipCompressor:
    """Compresses one stream. The label is only known at the end, so the body comes first: the file is
    `header(label)` + everything that `add` and `finish` return.

    The stream is deflated in blocks of one size, because where isal is interrupted changes what it writes.
    """

    def __init__(self) -> None:
        self._deflater = raw_deflater(SMALL_LEVEL)
        self._crc = 0
        self._octets = 0
        self._waiting = bytearray()

    def add(self, chunk: bytes) -> bytes:
        """Take one chunk in; returns what is ready of the body."""
        self._crc = crc32(chunk, self._crc)
        self._octets += len(chunk)
        self._waiting += chunk
        ready = b""
        while len(self._waiting) >= BLOCK:
            ready += self._deflater.compress(bytes(self._waiting[:BLOCK]))
            del self._waiting[:BLOCK]
        return ready

    def finish(self) -> bytes:
        """What is left of the body, and the trailer (CRC-32 and length, RFC 1952 2.3.1)."""
        rest = self._deflater.compress(bytes(self._waiting)) + self._deflater.flush()
        return rest + struct.pack("<II", self._crc, self._octets & 0xFFFFFFFF)
