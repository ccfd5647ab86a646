"""The record of one answered request, for the access log and the metrics."""

from __future__ import annotations

import time

import msgspec

from headwater.http.responses import Response


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
