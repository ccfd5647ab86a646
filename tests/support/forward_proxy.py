"""A forward proxy for tests: passes requests on and connects through, to hosts that only it may know."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from typing import Self
from urllib.parse import urlsplit


class ForwardProxy:
    """Notes the head of each request that it gets. `hosts`: where names lead to. Enter it."""

    def __init__(self, hosts: dict[str, tuple[str, int]] | None = None, says: bytes | None = None) -> None:
        """`says`: answers every request with these octets instead."""
        self._hosts = hosts or {}
        self._says = says
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.heads: list[str] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError), closing(client):
            came = b""
            while b"\r\n\r\n" not in came:
                if not (more := client.recv(65_536)):
                    return
                came += more
            head, _, rest = came.partition(b"\r\n\r\n")
            self.heads.append(head.decode("latin-1"))
            if self._says is not None:
                client.sendall(self._says)
                return
            self._connect(client, head, rest)

    def _connect(self, client: socket.socket, head: bytes, rest: bytes) -> None:
        first, _, fields = head.partition(b"\r\n")
        method, target, version = first.split(b" ")
        parts = urlsplit(target.decode() if method != b"CONNECT" else f"//{target.decode()}")
        at = self._hosts.get(parts.hostname or "", (parts.hostname or "", parts.port or 80))
        with closing(socket.create_connection(at, 30)) as server:
            if method == b"CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                own = target.decode().partition("//")[2].partition("/")[2]
                lines = [b"%s /%s %s" % (method, own.encode(), version), b"Connection: close", fields, b"", rest]
                server.sendall(b"\r\n".join(lines))
            back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            back.start()
            _pass_on(client, server)
            back.join(30)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while octets := one.recv(65_536):
            other.sendall(octets)
    with suppress(OSError):  # also after a reset: else who waits for an answer waits for ever
        other.shutdown(socket.SHUT_WR)
