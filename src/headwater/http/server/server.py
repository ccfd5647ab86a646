"""Makes the server of an ASGI application."""

from __future__ import annotations

from collections.abc import Callable

from headwater.http.server.connections import OpenConnections
from headwater.http.server.open_files import room_for_connections
from headwater.http.server.uvicorn_server import (
    AsgiApplication,
    BoundedProtocol,
    ServerLimits,
    UvicornServer,
    uvicorn_server,
)


def make_server(
    app: AsgiApplication,
    limits: ServerLimits | None = None,
    on_ready: Callable[[], None] | None = None,
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    most = min(bounds.connections, room_for_connections())
    opened = OpenConnections(most, max(1, bounds.client_connections * most // bounds.connections))
    protocol = type("LimitedProtocol", (BoundedProtocol,), {"limits": bounds, "opened": opened})
    return uvicorn_server(app, protocol, bounds, on_ready)
