"""The open connections of a server: so many in all and of one client; who waits gives way to who comes. Pure.

Who keeps connections open and asks nothing, or sends a request slowly, has them for as long as nobody else needs them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from headwater.address_levels import client_network


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
