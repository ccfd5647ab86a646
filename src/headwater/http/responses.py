"""HTTP responses as values: a status, the fields of a head, and what to send, whole or in part; their records."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import HeadwaterError, bug, disk_fault, message
from headwater.http.requests import is_fresh, is_matched, is_modified, wanted_span
from headwater.storage.object_store import OpenOctets

if TYPE_CHECKING:
    from headwater.http.dump_endpoint import PackageStream

Head = bytes  # header fields of a response as they are sent: lines, each with its end, names in lower case

SMALL_OCTETS = 1 << 16
"""What is up to this size is read at once, in the loop: a hop to a thread would cost more than the read."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def line(name: bytes, value: bytes) -> Head:
    """One header field. Raises ValueError for a value that would end its line."""
    if _CONTROL.search(value):
        raise ValueError(f"a header field with control characters: {name!r}: {value!r}")
    return b"%b: %b\r\n" % (name, value)


CLOSE: Head = line(b"connection", b"close")  # the connection ends with the response


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
    return b"".join(line(name, value) for name, value in values if not _CONTROL.search(value))


def validators(etag: bytes, second: int | None) -> Head:
    """`ETag`, and `Last-Modified` where there is a time for it, in seconds since 1970."""
    modified = b"" if second is None else line(b"last-modified", formatdate(second, usegmt=True).encode("ascii"))
    return line(b"etag", etag) + modified


_RANGES: Head = line(b"accept-ranges", b"bytes")


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
            elif name in frozenset({b"content-length", b"transfer-encoding"}) and value != b"0":
                read.has_body = True
        return read


_FIELDS = {name.replace("_", "-").encode(): name for name in RequestFields.__struct_fields__ if name != "has_body"}


class Response(msgspec.Struct, gc=False):
    """One answer: `octets` from `start` on, of `body` or `file`. `is_promised`: a strong tag vouches for the file.

    With a `stream`, a body that is made while it is sent, `octets` are those that have been sent.
    """

    status: int
    head: Head
    body: bytes | memoryview = b""
    file: OpenOctets | None = None
    stream: PackageStream | None = None
    start: int = 0
    octets: int = 0
    is_promised: bool = False

    @property
    def wants_octets(self) -> bool:
        """Whether it is a representation, or a part of one, whose octets have to be given."""
        return self.status in (200, 206)

    def give(self, content: OpenOctets, *, is_promised: bool = False) -> None:
        """Send octets of this content, which is closed when they are sent; a few are read at once.

        A file that has changed since it was opened is left to be cut off while it is sent.
        """
        self.is_promised = is_promised
        try:
            if self.octets <= SMALL_OCTETS:
                body = content.read(self.start, self.octets)
                if len(body) == self.octets and (not is_promised or content.is_unchanged()):
                    self.body, self.start = body, 0
                    return
            self.file = content
        finally:
            if self.file is None:
                content.close()

    def message(self, body: bytes | memoryview, *, more: bool = False) -> MutableMapping[str, Any]:
        """What the server is told first, as in ASGI but in one, and the head as octets. To HEAD no body is sent."""
        return {
            "status": self.status,
            "head": self.head,
            "is_chunked": self.stream is not None,
            "body": body,
            "more_body": more,
        }

    def has_changed(self) -> bool:
        """Whether a file is no longer the one whose digest was promised. A weak tag promises nothing of the kind."""
        return self.is_promised and self.file is not None and not self.file.is_unchanged()

    def content(self) -> bytes | memoryview:
        """The octets to be sent, of an answer without a file."""
        if len(self.body) == self.octets:
            return self.body
        return memoryview(self.body)[self.start : self.start + self.octets]


class Representation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What can be sent of one thing in one state, and the fields that tell of it.

    `unchanged` are those of a 304, which a 200 has as well, and `content` those that stand beside octets alone. Before
    the `modified_second` the thing was another one; `stated_second` is what `Last-Modified` says. With `is_exact` only
    the very date counts for a 304 that we state: a file may have come to an older one (`cp -p`, a link that leads
    elsewhere now).
    """

    etag: bytes
    modified_second: int
    stated_second: int
    octets: int
    content: Head
    unchanged: Head
    is_exact: bool = False

    def answer(self, asked: RequestFields) -> Response:
        """The answer 200, 206, 304, 412 or 416 to a request with these fields; the first two are still without octets.

        Where the client wants another version than there is, that comes before a 304 (RFC 9110 13.2.2).
        """
        if asked.if_match is not None:
            is_other = not is_matched(asked.if_match, self.etag)
        else:
            since = asked.if_unmodified_since
            is_other = since is not None and is_modified(since, self.stated_second)
        if is_other:
            return text(412, "this is another version", line(b"etag", self.etag))
        if (asked.if_none_match or asked.if_modified_since) and is_fresh(
            asked.if_none_match, asked.if_modified_since, self.etag, self.modified_second, is_exact=self.is_exact
        ):
            return Response(304, self.unchanged)
        head, size = self.content + _RANGES + self.unchanged, self.octets
        span = None if asked.range is None else wanted_span(asked.range, asked.if_range, self.etag, size)
        if span is None:
            return Response(200, head + b"content-length: %d\r\n" % size, octets=size)
        if not span:
            place = line(b"content-range", b"bytes */%d" % size)
            return text(416, "the range lies beyond the end", self.unchanged + _RANGES + place)
        head += line(b"content-length", b"%d" % len(span))
        head += line(b"content-range", b"bytes %d-%d/%d" % (span.start, span.stop - 1, size))
        return Response(206, head, start=span.start, octets=len(span))


def text(status: int, said: str, head: Head = b"") -> Response:
    """An answer of one line of plain text."""
    body = (said + "\n").encode("utf-8", "replace")
    return data(status, body, b"text/plain; charset=utf-8", head)


def failed(error: Exception, on_fault: Callable[[HeadwaterError], None], head: Head = b"") -> Response:
    """Tell of what went wrong, and the answer: our store may be well again soon, a bug is none that passes."""
    fault = disk_fault(error) if isinstance(error, OSError) else error
    if not isinstance(fault, HeadwaterError):
        fault = bug(error)
    on_fault(fault)
    if fault.code == HeadwaterError.code:
        return text(500, f"a bug of this server [{HeadwaterError.code}]", head + CLOSE)
    return text(503, f"a fault of our own store [{fault.code}]", head + CLOSE + line(b"retry-after", b"10"))


def data(status: int, body: bytes, kind: bytes, head: Head = b"") -> Response:
    """An answer made for this request alone; `head` has the further lines."""
    own = line(b"content-type", kind) + line(b"content-length", b"%d" % len(body)) + INERT
    return Response(status, own + head, body=body, octets=len(body))


def error(fault: HeadwaterError, status: int | None = None, beside: bytes = b"{}", head: Head = b"") -> Response:
    """The answer to a request that a fault has ended, with the status of its code; `beside`, an object of JSON, goes
    with it. The connection ends: the rest of the request's body is not read.
    """
    body = msgspec.json.encode({"error": {"code": fault.code, "what": fault.what, "advice": fault.todo}})
    if (more := beside.strip()) != b"{}":
        body = body[:-1] + b"," + more[1:]
    fields = line(b"cache-control", b"no-store") + CLOSE + head
    return data(status or message(fault.code).http_status or 400, body, b"application/json", fields)


def not_published(set_name: str | None) -> Response:
    """503: a set, or (None) the source, will be there, and soon; never an empty list in its stead."""
    what = set_name or "the source"
    said = f"{what} is being prepared; try again in a moment (where it lasts, /health says whether something is wrong)"
    return text(503, said, line(b"retry-after", b"2"))


class ReaderGone(Exception):
    """Who has asked has closed the connection."""


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""Sends a response: its first `message`, then `body` by `body`, until there is no `more_body`. Raises ReaderGone."""


class AccessRecord(msgspec.Struct, frozen=True, gc=False):
    """One answered request. `complete` is False when it was cut short. `agent` is what the client calls itself.

    Of a package on demand, `asked` says what it was asked for, and `resources` how many of them it has.
    """

    client: str
    method: str
    target: str
    status: int
    octets: int
    seconds: float
    complete: bool
    agent: str | None = None
    asked: str | None = None
    resources: int | None = None


def access_record(
    scope: MutableMapping[str, Any], response: Response, began: float, *, complete: bool = True
) -> AccessRecord:
    """The record of an answer that has just ended; it began at `began` by `time.perf_counter`.

    Of the target its path is kept, and whether it had a query, which may have a secret in it.
    """
    target = scope["raw_path"] + (b"?" if scope.get("query_string") else b"")
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), None)
    package = None if response.stream is None else response.stream.package
    return AccessRecord(
        client=(scope.get("client") or ("-", 0))[0],
        method=scope["method"],
        target=target.decode("ascii", "backslashreplace"),
        status=response.status,
        octets=0 if scope["method"] == "HEAD" else response.octets,
        seconds=time.perf_counter() - began,
        complete=complete,
        agent=None if agent is None else agent[:200].decode("ascii", "backslashreplace"),
        asked=None if package is None else package.asked,
        resources=None if package is None else package.resource_count,
    )
