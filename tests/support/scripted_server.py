"""A server on a real socket that answers each path as a test tells it, byte for byte, however wrong."""

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from typing import Any


class Fields(dict[str, str]):
    """Header fields by their names in lower case, looked up in any."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class Request:
    """One request as it came over the wire."""

    def __init__(self, head: bytes, connection: int):
        self.head = head
        self.body = b""
        self.connection = connection
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        pairs = (field.partition(":") for field in fields if field)
        self.headers = Fields({name.lower(): value.strip() for name, _, value in pairs})


Behaviour = bytes | Callable[[Request, socket.socket], bytes | None]
"""What is sent for a path; a function may also use the socket itself and return what else is to be sent, or None to
have the connection closed."""


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A well-formed answer."""
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body


NOTHING_HERE = answer(b"nothing here", "404 Not Found")


class ScriptedServer:
    """Listens on an ephemeral port, a thread a connection; `script` maps targets to behaviours."""

    def __init__(self, script: Mapping[str, Behaviour], tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"):
        self.script = script
        self._tls = tls
        self.received: list[Request] = []
        self._listener = socket.create_server((host, 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.scheme, self.host = "https" if tls else "http", host
        self._open: set[socket.socket] = set()
        self.busiest = 0
        self._busy = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        number = 0
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                number += 1
                self._open.add(connection)
                threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        received = b""
        if self._tls:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
        with connection, suppress(OSError):
            while True:
                while b"\r\n\r\n" not in received:
                    block = connection.recv(65536)
                    if not block:
                        return
                    received += block
                head, _, received = received.partition(b"\r\n\r\n")
                request = Request(head, number)
                length = int(request.headers.get("content-length", 0))
                while len(received) < length:
                    block = connection.recv(65536)
                    if not block:
                        return
                    received += block
                request.body, received = received[:length], received[length:]
                if not self._answer(request, connection):
                    return

    def _answer(self, request: Request, connection: socket.socket) -> bool:
        with self._lock:
            self.received.append(request)
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
        try:
            sent = self.respond(request, connection)
            if sent is None:
                return False
            connection.sendall(sent)
            return str(request.headers.get("connection")).lower() != "close"
        finally:
            with self._lock:
                self._busy -= 1

    @property
    def base(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def respond(self, request: Request, connection: socket.socket) -> bytes | None:
        """What is sent; None to have the connection closed."""
        behaviour = self.script.get(request.target, NOTHING_HERE)
        return behaviour(request, connection) if callable(behaviour) else behaviour

    def targets(self) -> list[str]:
        return [request.target for request in self.received]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def scripted(script: Mapping[str, Behaviour], tls: ssl.SSLContext | None = None):
    server = ScriptedServer(script, tls)
    try:
        yield server
    finally:
        server.close()
