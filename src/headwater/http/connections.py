"""The open connections of a server: how many there may be, who gives way to who comes, which heads are refused.

Who keeps connections open and asks nothing, or sends a request slowly, has them for as long as nobody else needs them.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

from headwater.transport.access import client_network

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


class Stage(IntEnum):
    """What a connection waits for; one of a lower stage gives way first."""

    REQUEST = 0
    """For a request, or the rest of its head."""
    BODY = 1
    """For the rest of a request's body."""
    ANSWER = 2
    """For what we send: it does not give way."""


class Connection(Protocol):
    """What is asked of a connection."""

    @property
    def stage(self) -> Stage:
        """What it waits for at this moment."""
        ...

    def give_way(self) -> None:
        """End at once."""
        ...


class OpenConnections:
    """The connections of one process by client, each from its `admit` to its `leave`."""

    def __init__(self, most: int, most_of_client: int) -> None:
        self._most = most
        self._most_of_client = most_of_client
        self._clients: dict[str, dict[Connection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a connection of a client in; where there is no room, another has to give way. Whether there is room.

        That is one of the same client where it has its share, else one of the client who has most: the one that waits
        for the least, of several the oldest.
        """
        client = client_network(address)
        held = self._clients.get(client, {})
        if len(held) >= self._most_of_client:
            has_room = self._give_way(client)
        elif self._count >= self._most:
            by_count = sorted(self._clients, key=lambda one: len(self._clients[one]), reverse=True)
            has_room = any(self._give_way(one) for one in by_count)
        else:
            has_room = True
        if has_room:
            self._clients.setdefault(client, {})[connection] = None
            self._count += 1
        return has_room

    def leave(self, connection: Connection, address: str) -> None:
        """Count a connection out, if it was in."""
        client = client_network(address)
        held = self._clients.get(client)
        if held is None or connection not in held:
            return
        del held[connection]
        self._count -= 1
        if not held:
            del self._clients[client]

    def _give_way(self, client: str) -> bool:
        held = self._clients[client]
        found: Connection | None = None
        least = Stage.ANSWER
        for connection in held:
            stage = connection.stage
            if stage < least:
                found, least = connection, stage
            if stage is Stage.REQUEST:
                break
        if found is None:
            return False
        self.leave(found, client)
        found.give_way()
        return True
