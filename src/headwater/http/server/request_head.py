"""Heads of requests that a proxy before a server might read differently (RFC 9112 3.2, 6.1). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-fv.:]+\])(?::[0-9]*)?")


def check_head(headers: Iterable[tuple[bytes, bytes]], version: str) -> None:
    """Raise ValueError for a head that a proxy and we might read differently: it gets 400 (RFC 9112 3.2, 6.1).

    Each request of HTTP/1.1 has one `Host`, and no body is encoded otherwise than in chunks. Names are in lower case.
    HTTP/0.9, and what calls itself HTTP/2 in a head of HTTP/1, is not spoken.
    """
    if version not in ("1.1", "1.0"):
        raise ValueError("this version of HTTP is not spoken here")
    count = 0
    for name, value in headers:
        if name == b"host":
            count += 1
            if _HOST.fullmatch(value) is None:
                raise ValueError("Host names no host")
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ValueError("this transfer coding is not known here")
    if count > 1 or (count == 0 and version == "1.1"):
        raise ValueError("not one Host")
