"""Opens the socket that the server listens on, before anything is published under its address."""

from __future__ import annotations

import errno
import socket
from typing import ClassVar

from headwater.errors import StoreFault


class AddressInUse(StoreFault):
    """The address to listen on is in use, or not permitted."""

    code: ClassVar[str] = "HW-SRV-01"
    advice: ClassVar[str] = (
        "Stop the other program, or choose another address (--host, --port, --listen); port 0 takes any free one."
    )


_RIGHTS = "Take a port from 1024 on: the system keeps those below for programs with more rights."

_NOT_OURS = "Give an address that this machine has, 127.0.0.1 for itself alone, or 0.0.0.0 (::) for all that it has."


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the address, before anything is published under it. Raises AddressInUse."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as cause:
        raise AddressInUse(f"cannot listen: {cause.strerror or cause}", where=f"{host}:{port}") from cause
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1_024)
    except OSError as cause:
        listener.close()
        what = "the address is in use" if cause.errno == errno.EADDRINUSE else f"cannot listen: {cause.strerror}"
        advice = {errno.EACCES: _RIGHTS, errno.EADDRNOTAVAIL: _NOT_OURS}.get(cause.errno or 0)
        raise AddressInUse(what, where=f"{host}:{port}", advice=advice) from cause
    return listener


def address_url(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
