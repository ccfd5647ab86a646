"""Makes the server of an application."""

from __future__ import annotations

from collections.abc import Callable

from headwater.http.app import Application
from headwater.http.server import fast_path
from headwater.http.server.uvicorn_server import BoundedProtocol, ServerLimits, UvicornServer, uvicorn_server


def make_server(
    app: Application,
    limits: ServerLimits | None = None,
    on_ready: Callable[[], None] | None = None,
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    base = fast_path.FastProtocol if fast_path.IS_ON else BoundedProtocol
    return uvicorn_server(app, type("LimitedProtocol", (base,), {"limits": bounds}), bounds, on_ready)
