"""Answers as values: a status, headers, and what to send, whole or in part."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from headwater.server.conditions import Span, Unsatisfiable, wanted_span
from headwater.server.files import OpenFile
from headwater.server.shelf import Headers

RETRY_SECONDS = b"2"


class Conditions(msgspec.Struct, gc=False):
    """The header fields of a request that change its answer."""

    if_none_match: bytes | None = None
    if_modified_since: bytes | None = None
    if_range: bytes | None = None
    range: bytes | None = None
    accept_encoding: bytes | None = None
    has_body: bool = False


class Reply(msgspec.Struct, gc=False):
    """One answer: `octets` from `start` on, of `body` or `file`. `is_promised`: a strong tag vouches for the file."""

    status: int
    headers: Headers
    body: bytes | memoryview = b""
    file: BinaryIO | OpenFile | None = None
    start: int = 0
    octets: int = 0
    is_promised: bool = False


def whole_or_part(headers: Headers, etag: bytes, size: int, conditions: Conditions) -> Reply:
    """The answer 200, 206 or 416 for a representation of this size, still without its octets.

    `headers` are those of a 200; they are left as they are.
    """
    span = None if conditions.range is None else wanted_span(conditions.range, conditions.if_range, etag, size)
    if span is None:
        return Reply(200, headers, octets=size)
    if isinstance(span, Unsatisfiable):
        kept = [header for header in headers if header[0] not in (b"content-length", b"content-type")]
        return text(416, "the range lies beyond the end", [*kept, (b"content-range", b"bytes */%d" % size)])
    return Reply(206, _part(headers, span, size), start=span.start, octets=span.octets)


def _part(headers: Headers, span: Span, size: int) -> Headers:
    kept = [header for header in headers if header[0] != b"content-length"]
    return [
        *kept,
        (b"content-length", b"%d" % span.octets),
        (b"content-range", b"bytes %d-%d/%d" % (span.start, span.last, size)),
    ]


def text(status: int, line: str, headers: Headers | None = None) -> Reply:
    """An answer of one line of plain text."""
    body = (line + "\n").encode("utf-8", "replace")
    return data(status, body, b"text/plain; charset=utf-8", headers)


def data(status: int, body: bytes, kind: bytes, headers: Headers | None = None) -> Reply:
    """An answer made for this request alone."""
    fields = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *(headers or ())]
    return Reply(status, fields, body=body, octets=len(body))


def not_yet(what: str) -> Reply:
    """503: it will be there, and soon; never an empty list in its stead."""
    return text(503, f"{what} is being prepared; try again in a moment", [(b"retry-after", RETRY_SECONDS)])
