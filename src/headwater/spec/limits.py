"""Bounds on documents that are read: size, depth, counts and lengths, so that a hostile document does no harm."""

from __future__ import annotations

import msgspec

DOCUMENT_ENTRIES = 50_000
"""Entries that one document may have at publication (RS-LIM-01, RS-LIM-02)."""

DOCUMENT_OCTETS = 52_428_800
"""Octets that one document may have at publication, uncompressed (RS-LIM-02)."""


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one reading. Far wider than RS-LIM-01 where real sources break it, narrow where only attacks go.

    `ratio` binds the growth by decompression once `ratio_octets` have come out: real lists shrink 5 to 60 times.
    `token_octets` bounds one tag, comment or other piece of markup; `attribute_length` the attributes of one element
    together, in characters. `barren_octets`: how much may pass without an entry, so that what never ends ends soon.
    """

    octets: int = 2 << 30
    compressed_octets: int = 1 << 30
    ratio: int = 120
    ratio_octets: int = 8 << 20
    gzip_members: int = 200_000
    entries: int = 10_000_000
    barren_octets: int = 32 << 20
    depth: int = 32
    attributes: int = 200
    attribute_length: int = 1 << 17
    text_length: int = 1 << 17
    token_octets: int = 1 << 20
    links: int = 1_000
