"""A connection that takes turns with the others: of what one read has brought, a few requests are handled at a time.

A read may bring thousands of requests. What of them is left waits for the next turn of the loop, or until the answers
to those before are read; meanwhile nothing more is read from the connection.
"""

from __future__ import annotations

import asyncio

_REQUESTS = 16
"""So many are handled in a turn, and those that end in the same octets …"""
_OCTETS = 2_048
"""… of which the parser is given so many at a time."""


class TurnTaking(asyncio.Protocol):
    """What a protocol does with octets before it reads them; `feed` is called with as many as a turn may handle."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    messages = 0
    """Requests that have begun."""
    rest: memoryview = memoryview(b"")
    """What has been read and waits."""
    turn: asyncio.Handle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End: what waits is given up."""
        if self.turn is not None:
            self.turn.cancel()
        self.rest = memoryview(b"")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle what has come, as far as this turn goes."""
        self.rest = memoryview(bytes(self.rest) + data if self.rest else data)
        if self.turn is None:
            self.take_turn()

    def feed(self, octets: memoryview) -> None:
        """Parse octets."""
        super().data_received(octets)  # type: ignore[arg-type]  # any buffer

    def take_turn(self) -> None:
        """Handle what waits, as far as a turn goes; the rest waits for the next one."""
        self.turn = None
        if self.transport.is_closing():
            self.rest = memoryview(b"")
        began = self.messages
        while self.rest and self.messages - began < _REQUESTS and not self.is_behind():
            octets, self.rest = self.rest[:_OCTETS], self.rest[_OCTETS:]
            self.feed(octets)
            if self.transport.is_closing():
                self.rest = memoryview(b"")
        self.hold(holds=bool(self.rest))
        if not self.is_behind():
            self.go_on()

    def go_on(self) -> None:
        """Have what waits handled soon: it is a new turn, or an answer was made or read."""
        if self.rest and self.turn is None:
            self.turn = self.loop.call_soon(self.take_turn)

    def resume_writing(self) -> None:
        """The reader goes on."""
        super().resume_writing()
        self.go_on()

    def is_behind(self) -> bool:
        """Whether what waits has to wait for answers: to be made, or to be read; never the body of a request."""
        raise NotImplementedError

    def hold(self, *, holds: bool) -> None:
        """Read no more from the connection, or read on."""
        raise NotImplementedError
