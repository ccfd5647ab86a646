"""How many files a server may have open: each connection is one, and what is sent over it another."""

from __future__ import annotations

import resource
from typing import Final

_MOST: Final = 65_536
_OF_CONNECTION: Final = 2


def room_for_connections() -> int:
    """How many connections this process can have open and serve, with as many files as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(1, max(soft, wanted) // _OF_CONNECTION)
