"""HTTP responses as values: a status, the fields of a head, and what to send, whole or in part; their records."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import msgspec

from headwater.errors import HeadwaterError
from headwater.http.requests import Span, Unsatisfiable, is_matched, is_modified, wanted_span
from headwater.storage.objects.interface import OpenOctets

Head = tuple[tuple[bytes, bytes], ...]
"""Header fields of a response: names, in lower case, and values."""

SMALL_OCTETS = 1 << 16
"""What is up to this size is read at once, in the loop: a hop to a thread would cost more than the read."""
RETRY_SECONDS = b"2"
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_FIELDS = {
    b"if-match": "if_match",
    b"if-none-match": "if_none_match",
    b"if-modified-since": "if_modified_since",
    b"if-unmodified-since": "if_unmodified_since",
    b"if-range": "if_range",
    b"range": "range",
    b"accept-encoding": "accept_encoding",
    b"accept": "accept",
    b"accept-datetime": "accept_datetime",
}
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding"})


def line(name: bytes, value: bytes) -> Head:
    """One header field."""
    return ((name, value),)


INERT: Head = (
    line(b"x-content-type-options", b"nosniff")
    + line(b"x-frame-options", b"DENY")
    + line(b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
)
"""Of pages and documents of ours: nothing in them runs or is fetched, and no other page has them in itself."""


@lru_cache(maxsize=1024)
def content_lines(kind: str | None, encoding: str | None) -> Head:
    """What the catalog says of the content; what would end the line is no media type and no coding."""
    said = ((b"content-type", kind or "application/octet-stream"), (b"content-encoding", encoding or ""))
    values = ((name, text.encode("latin-1", "replace")) for name, text in said if text)
    return tuple((name, value) for name, value in values if not _CONTROL.search(value))


def leads_to(capability_list: str) -> Head:
    """The header by which a resource leads to the Capability List of its set, at this URL (RS-DISC-04)."""
    return line(b"link", f'<{capability_list}>; rel="resourcesync"'.encode("ascii"))


class RequestFields(msgspec.Struct, gc=False):
    """The header fields of a request that change its answer."""

    if_match: bytes | None = None
    if_none_match: bytes | None = None
    if_modified_since: bytes | None = None
    if_unmodified_since: bytes | None = None
    if_range: bytes | None = None
    range: bytes | None = None
    accept_encoding: bytes | None = None
    accept: bytes | None = None
    accept_datetime: bytes | None = None
    has_body: bool = False

    @classmethod
    def read(cls, headers: Iterable[tuple[bytes, bytes]]) -> RequestFields:
        """The fields of a head; what comes several times is one list."""
        read = cls()
        for name, value in headers:
            field = _FIELDS.get(name)
            if field is not None:
                held = getattr(read, field)
                setattr(read, field, value if held is None else held + b", " + value)
            elif name in _BODY_FIELDS and value != b"0":
                read.has_body = True
        return read


class BodyStream(Protocol):
    """A body that is made while it is sent, of a length that nobody knows before.

    With `is_given_up` the task that sends it was cancelled to end the answer.
    """

    is_given_up: bool

    async def next_block(self) -> bytes:
        """The next octets; none after the last. Whatever it raises ends the connection."""
        ...

    async def close(self) -> None:
        """Free what is held; it has been sent, or nobody wants it any more."""
        ...


class Response(msgspec.Struct, gc=False):
    """One answer: `octets` from `start` on, of `body` or `file`. `is_promised`: a strong tag vouches for the file.

    With a `stream`, `octets` are those that have been sent.
    """

    status: int
    head: Head
    body: bytes | memoryview = b""
    file: OpenOctets | None = None
    stream: BodyStream | None = None
    start: int = 0
    octets: int = 0
    is_promised: bool = False

    @property
    def is_refusal(self) -> bool:
        """Whether it says why there is nothing of the representation in it."""
        return self.status >= 400

    def has_changed(self) -> bool:
        """Whether a file is no longer the one whose digest was promised. A weak tag promises nothing of the kind."""
        return self.is_promised and self.file is not None and not self.file.is_unchanged()

    def content(self) -> bytes | memoryview:
        """The octets to be sent, of an answer without a file."""
        if len(self.body) == self.octets:
            return self.body
        return memoryview(self.body)[self.start : self.start + self.octets]


def unmet(conditions: RequestFields, etag: bytes, modified_second: int) -> Response | None:
    """The answer 412 where the client wants another version than there is; it comes before a 304 (RFC 9110 13.2.2)."""
    if conditions.if_match is not None:
        is_other = not is_matched(conditions.if_match, etag)
    elif conditions.if_unmodified_since is not None:
        is_other = is_modified(conditions.if_unmodified_since, modified_second)
    else:
        return None
    return text(412, "this is another version", line(b"etag", etag)) if is_other else None


def whole_or_part(head: Head, etag: bytes, size: int, conditions: RequestFields) -> Response:
    """The answer 200, 206 or 416 for a representation of this size, still without its octets; `head` is of a 200."""
    span = None if conditions.range is None else wanted_span(conditions.range, conditions.if_range, etag, size)
    if span is None:
        return Response(200, head, octets=size)
    if isinstance(span, Unsatisfiable):
        kept = _without(head, b"content-length", b"content-type", *(name for name, _ in INERT))
        return text(416, "the range lies beyond the end", kept + line(b"content-range", b"bytes */%d" % size))
    return Response(206, _part(head, span, size), start=span.start, octets=span.octets)


def _part(head: Head, span: Span, size: int) -> Head:
    length = line(b"content-length", b"%d" % span.octets)
    place = line(b"content-range", b"bytes %d-%d/%d" % (span.start, span.last, size))
    return _without(head, b"content-length") + length + place


def _without(head: Head, *names: bytes) -> Head:
    return tuple(one for one in head if one[0] not in names)


def text(status: int, said: str, head: Head = ()) -> Response:
    """An answer of one line of plain text."""
    body = (said + "\n").encode("utf-8", "replace")
    return data(status, body, b"text/plain; charset=utf-8", head)


def bug(head: Head = ()) -> Response:
    """The answer to a request that has met a bug."""
    return text(500, f"a bug of this server [{HeadwaterError.code}]", head)


def data(status: int, body: bytes, kind: bytes, head: Head = ()) -> Response:
    """An answer made for this request alone; `head` has the further lines."""
    own = line(b"content-type", kind) + line(b"content-length", b"%d" % len(body)) + INERT
    return Response(status, own + head, body=body, octets=len(body))


def not_yet(what: str) -> Response:
    """503: it will be there, and soon; never an empty list in its stead."""
    said = f"{what} is being prepared; try again in a moment (where it lasts, /health says whether something is wrong)"
    return text(503, said, line(b"retry-after", RETRY_SECONDS))


class AccessRecord(msgspec.Struct, frozen=True, gc=False):
    """One answered request. `complete` is False when it was cut short."""

    client: str
    method: str
    target: str
    status: int
    octets: int
    seconds: float
    complete: bool


def request_target(path: bytes, query: bytes) -> bytes:
    """What is kept of the target of a request: its path, and whether it had a query, which may have a secret in it."""
    return path + b"?" if query else path


def access_record(
    client: str, method: str, target: bytes, response: Response, began: float, *, complete: bool
) -> AccessRecord:
    """The record of an answer that has just ended; it began at `began` by `time.perf_counter`."""
    return AccessRecord(
        client=client,
        method=method,
        target=target.decode("ascii", "backslashreplace"),
        status=response.status,
        octets=0 if method == "HEAD" else response.octets,
        seconds=time.perf_counter() - began,
        complete=complete,
    )
