"""Makes the server of an application: of a source, with its fast path, or of any other."""

from __future__ import annotations

from collections.abc import Callable

from headwater.http.app import Application
from headwater.http.server import fast_path
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
    app: Application,
    limits: ServerLimits | None = None,
    on_ready: Callable[[], None] | None = None,
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    base = fast_path.FastProtocol if fast_path.IS_ON else BoundedProtocol
    return uvicorn_server(app, _limited(base, bounds), bounds, on_ready)


def make_plain_server(
    app: AsgiApplication,
    limits: ServerLimits | None = None,
    on_ready: Callable[[], None] | None = None,
) -> UvicornServer:
    """The same for an application that is not a source's, ready to `await serve(sockets=[…])`."""
    bounds = limits or ServerLimits()
    return uvicorn_server(app, _limited(BoundedProtocol, bounds), bounds, on_ready)


def _limited(base: type[BoundedProtocol], limits: ServerLimits) -> type[BoundedProtocol]:
    most = min(limits.connections, room_for_connections())
    opened = OpenConnections(most, max(1, limits.client_connections * most // limits.connections))
    return type("LimitedProtocol", (base,), {"limits": limits, "opened": opened})
