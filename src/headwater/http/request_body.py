"""The body of a request, read within bounds of size and time, and the headers of its head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headwater.http.routes import Receive, Scope
from headwater.notify.hub.requests import RequestRefusal

_BODY_SECONDS: Final = 30.0


async def read_body(
    scope: Scope, receive: Receive, most: int, has_room: Callable[[int], bool] = lambda _octets: True
) -> bytes | RequestRefusal:
    """The whole body of a request, or why it is not taken. `has_room` is told of octets that came."""
    stated = header(scope, b"content-length")
    if stated is not None and (not stated.isdigit() or len(stated) > 18 or int(stated) > most):
        return RequestRefusal(413, f"a body has {most:,} octets at most")
    blocks: list[bytes] = []
    octets, more = 0, True
    try:
        async with asyncio.timeout(_BODY_SECONDS):
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
                    return RequestRefusal(503, "too many payloads are under way: come again in some seconds")
    except TimeoutError:
        return RequestRefusal(408, "the body has not come in time")
    if stated is not None and octets != int(stated):
        return RequestRefusal(400, "the body was cut off")
    return b"".join(blocks)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The values of a header of this name, in lower case, joined by commas; None where there is none."""
    found = [value for field, value in scope["headers"] if field == name]
    return b", ".join(found) if found else None
