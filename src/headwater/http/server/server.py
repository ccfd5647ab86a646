"""Makes the server of an application."""

from __future__ import annotations

from collections.abc import Callable

from headwater.http.app import Application
from headwater.http.server.fast_path import FastProtocol
from headwater.http.server.uvicorn_server import BoundedProtocol, ServerLimits, UvicornServer, uvicorn_server


def make_server(
    app: Application,
    limits: ServerLimits | None = None,
    on_ready: Callable[[], None] | None = None,
    *,
    fast_path: bool = True,
) -> UvicornServer:
    """A server for the application, ready to `run(sockets=[…])`; `on_ready` is called when it accepts requests."""
    bounds = limits or ServerLimits()
    base = FastProtocol if fast_path else BoundedProtocol
    return uvicorn_server(app, type("LimitedProtocol", (base,), {"limits": bounds}), bounds, on_ready)
