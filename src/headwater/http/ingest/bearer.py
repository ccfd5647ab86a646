"""Reads the bearer token of a request (RFC 6750)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.source.tokens import LONGEST


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of a request; None when there is none, or more than one."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    token = token.strip()
    return token if scheme.lower() == b"bearer" and 0 < len(token) <= LONGEST else None
