"""One answered request, as the access log and the metrics hear of it."""

from __future__ import annotations

import time

import msgspec

from headwater.server.replies import Reply


class Served(msgspec.Struct, frozen=True, gc=False):
    """One answered request. `complete` is False when it was cut short."""

    client: str
    method: str
    target: str
    status: int
    octets: int
    seconds: float
    complete: bool


def served(
    client: str, method: str, path: bytes, query: bytes, reply: Reply, began: float, *, complete: bool
) -> Served:
    """The record of an answer that has just ended; it began at `began` by `time.perf_counter`."""
    return Served(
        client=client,
        method=method,
        target=(path + b"?" + query if query else path).decode("ascii", "backslashreplace"),
        status=reply.status,
        octets=0 if method == "HEAD" else reply.octets,
        seconds=time.perf_counter() - began,
        complete=complete,
    )
