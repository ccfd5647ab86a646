"""Reads requests: conditions (304, 412), ranges and forms of answers from header fields, and bodies within bounds.

Fields (RFC 9110 8.8, 12.5.3, 13, 14) are read by pure functions over their values; whatever is malformed counts as
absent, as the RFC asks.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any, Final

from headwater.notify.hub.policy import RequestRefusal
from headwater.retry import http_second

_RANGE = re.compile(rb"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*\Z", re.IGNORECASE)
_LONGEST = 4_096
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_WEIGHTED = re.compile(
    rf"\s*({_NAME}(?:/{_NAME})?)\s*(?:;(?!\s*q\s*=)[^;]*)*"
    r"(?:;\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*(?:;.*)?)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]  # what ASGI gives for a request


def is_fresh(
    if_none_match: bytes | None,
    if_modified_since: bytes | None,
    etag: bytes,
    modified_second: int,
    *,
    is_exact: bool = False,
) -> bool:
    """Whether the client holds the present representation: 304 instead of 200.

    Tags are compared weakly; with If-None-Match the date does not count (RFC 9110 13.2.2), nor does it while the tag is
    weak: a file whose octets are not known by digest may have changed under an old date. With `is_exact` only the very
    date counts that we state: a file may have come to an older one (`cp -p`, a link that leads elsewhere now).
    """
    if if_none_match is not None:
        given = [one.removeprefix(b"W/") for one in _tags(if_none_match)]
        return given == [b"*"] or etag.removeprefix(b"W/") in given
    if if_modified_since is None or etag.startswith(b"W/"):
        return False
    since = http_second(if_modified_since.decode("latin-1"))
    return since is not None and (since == modified_second or (since > modified_second and not is_exact))


def is_matched(if_match: bytes, etag: bytes) -> bool:
    """Whether the present representation is one that the client names; else it gets 412 (RFC 9110 13.1.1).

    Tags are compared strongly: who goes on with a part of a file must not get what follows in another one.
    """
    given = _tags(if_match)
    return given == [b"*"] or (etag in given and not etag.startswith(b"W/"))


def _tags(header: bytes) -> list[bytes]:
    return [one.strip() for one in header[:_LONGEST].split(b",")]


def is_modified(if_unmodified_since: bytes, modified_second: int) -> bool:
    """Whether there is a later version than that of the date; what is no date says nothing (RFC 9110 13.1.4)."""
    since = http_second(if_unmodified_since.decode("latin-1"))
    return since is not None and modified_second > since


def wanted_span(range_: bytes | None, if_range: bytes | None, etag: bytes, size: int) -> range | None:
    """The octets that are asked for; none where they lie beyond the end (416). None: the whole.

    Several ranges, other units and malformed ones get the whole. So does an If-Range that is not our strong tag: a date
    there proves nothing within its second, and the whole is always right.
    """
    if range_ is None or (if_range is not None and (etag.startswith(b"W/") or if_range.strip() != etag)):
        return None
    match = _RANGE.match(range_) if len(range_) < 128 else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        return range(max(0, size - int(match[2])), size)
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    if match[2] and end <= start:
        return None
    return range(start, min(end, size))


def weights(header: bytes | None) -> dict[str, float]:
    """The weights of what a client accepts, by names in lower case; none where it says nothing that can be read.

    What is malformed counts as absent, parameters besides the weight for nothing (RFC 9110 12.4.2).
    """
    found: dict[str, float] = {}
    for text in header.decode("latin-1").split(",") if header and len(header) <= _LONGEST else ():
        if match := _WEIGHTED.fullmatch(text):
            name = match[1].lower()
            found[name] = max(float(match[2] or 1.0), found.get(name, 0.0))
    return found


@lru_cache(maxsize=256)
def accepts_gzip(header: bytes | None) -> bool:
    """Whether the client asks for gzip, by name or by `*`, with a weight above 0. Silence means identity.

    (RFC 9110 12.5.3 would let us send any coding to a client that says nothing; clients exist that cannot inflate.)
    """
    asked = weights(header)
    gzip = max((asked[name] for name in ("gzip", "x-gzip") if name in asked), default=asked.get("*", 0.0))
    return gzip > 0 and gzip >= asked.get("identity", 0.0)


_BODY_SECONDS: Final = 30.0


async def read_body(
    scope: Scope,
    receive: Receive,
    most: int,
    has_room: Callable[[int], bool] = lambda _octets: True,
    seconds: Callable[[int], float] = lambda _octets: _BODY_SECONDS,
) -> bytes | RequestRefusal:
    """The whole body of a request, or why it is not taken. `has_room` is told of octets that came.

    `seconds`: how long the body may take of which so many octets have come.
    """
    stated = header(scope, b"content-length")
    if stated is not None and (not stated.isdigit() or len(stated) > 18 or int(stated) > most):
        return RequestRefusal(413, f"a body has {most:,} octets at most")
    blocks: list[bytes] = []
    octets, more = 0, True
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began + seconds(0)) as timeout:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return RequestRefusal(400, "the body was cut off")
                more = bool(message.get("more_body"))
                blocks.append(message.get("body", b""))
                octets += len(blocks[-1])
                if octets > most:
                    return RequestRefusal(413, f"a body has {most:,} octets at most")
                if not has_room(len(blocks[-1])):
                    return RequestRefusal(503, "too many bodies are arriving: try again in some seconds")
                timeout.reschedule(began + seconds(octets))
    except TimeoutError:
        return RequestRefusal(408, "the body did not arrive in time")
    if stated is not None and octets != int(stated):
        return RequestRefusal(400, "the body was cut off")
    return b"".join(blocks)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The values of a header of this name, in lower case, joined by commas; None where there is none."""
    found = [value for field, value in scope["headers"] if field == name]
    return b", ".join(found) if found else None
