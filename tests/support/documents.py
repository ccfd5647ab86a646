"""Small documents for tests: wrapped bodies, the folder of examples, and a document read at once."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from headwater.spec import fast_entries
from headwater.spec import reader as spec_reader
from headwater.spec.reader import Reader, ReadLimits, Warned
from headwater.spec.records import Document, Entry
from headwater.spec.text_values import DocumentFault

EXAMPLES = Path(__file__).parent.parent / "data" / "spec-examples"
BASE = "http://example.com/set/document.xml"

NAMESPACES = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'
UP = '<rs:ln rel="up" href="http://example.com/set/capabilitylist.xml"/>'
LIST = f'{UP}<rs:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>'
CHANGES = f'{UP}<rs:md capability="changelist" from="2024-01-01T00:00:00Z"/>'


def urlset(body: str, head: str = LIST) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {NAMESPACES}>\n{head}\n{body}\n</urlset>\n'.encode()


def index(body: str, head: str = LIST) -> bytes:
    return f"<sitemapindex {NAMESPACES}>{head}{body}</sitemapindex>".encode()


def url(inside: str, loc: str = "http://example.com/a") -> str:
    return f"<url><loc>{loc}</loc>{inside}</url>"


def zeros_in_gzip(mebibytes: int) -> bytes:
    """A whole gzip file of so many zeros: one MiB is deflated, and stands there as often as it takes."""
    zeros = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    crc = 0
    for _ in range(mebibytes):
        crc = zlib.crc32(zeros, crc)
    trailer = struct.pack("<II", crc, mebibytes << 20)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * mebibytes + b"\x03\0" + trailer


class Read:
    """One reading and all that came of it."""

    def __init__(
        self,
        data: bytes,
        *,
        base: str | None = BASE,
        quick: bool = True,
        pieces: list[int] | None = None,
        limits: ReadLimits | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast_entries, "IS_ON", quick)
            reader = Reader(base, limits, headers=headers)
        self.entries: list[Entry] = []
        self.fault: DocumentFault | None = None
        try:
            for piece in cut(data, pieces):
                self.entries += reader.feed(piece)
            self.entries += reader.close()
        except DocumentFault as fault:
            self.fault = fault
        self.document: Document | None = reader.document
        self.warnings: tuple[Warned, ...] = reader.warnings
        self.version = reader.version
        self.counts = (reader.entry_count, reader.skipped_count, reader.octet_count)

    @property
    def rules(self) -> set[str]:
        return {one.rule for one in self.warnings}


def cut(data: bytes, sizes: list[int] | None) -> list[bytes]:
    """The octets in pieces of these sizes, over and over."""
    if not sizes:
        return [data]
    pieces, at, turn = [], 0, 0
    while at < len(data):
        pieces.append(data[at : at + sizes[turn % len(sizes)]])
        at += sizes[turn % len(sizes)]
        turn += 1
    return pieces


def read_bytes(data: bytes, base_uri: str | None = None) -> tuple[Document, list[Entry], tuple[Warned, ...]]:
    """The head, the entries, and what had to be forgiven."""
    read = spec_reader.read_bytes(data, base_uri)
    return read.document, read.entries, read.warnings
