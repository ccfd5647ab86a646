"""A subscriber for tests: a real HTTP server whose callbacks answer as they are told, and that keeps what comes."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import DEADLINE


@dataclass
class Came:
    """One request: how, where, with what."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}


@dataclass
class Answer:
    """An answer; `body` None: the challenge."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


class Subscriber:
    """Listens at `url`. `answers` has a function for each path, which gets the request; others confirm and take."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.came: list[Came] = []
        self.answers: dict[str, Callable[[Came], Answer]] = {}
        self._news = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self, b"")

            def do_POST(self) -> None:
                outer._answer(self, self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 1_024
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def deliveries(self, path: str) -> list[Came]:
        return [one for one in self.came if one.method == "POST" and urlsplit(one.path).path == path]

    def asked(self, path: str) -> list[Came]:
        return [one for one in self.came if one.method == "GET" and urlsplit(one.path).path == path]

    def wait(self, that: Callable[[], Any], seconds: float = DEADLINE) -> Any:
        """What `that` gives as soon as it gives something."""
        deadline = time.monotonic() + seconds
        with self._news:
            while not (found := that()):
                left = deadline - time.monotonic()
                assert left > 0, [(one.method, one.path, one.body[:80]) for one in self.came[-20:]]
                self._news.wait(min(left, 0.2))
        return found

    def wait_for(self, path: str, method: str, count: int) -> None:
        """Wait until so many requests have come to a path."""
        self.wait(lambda: len([one for one in self.came if one.method == method and one.path == path]) >= count)

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        came = Came(handler.command, handler.path, headers, body, time.time())
        with self._news:
            self.came.append(came)
            self._news.notify_all()
        make = self.answers.get(urlsplit(handler.path).path)
        answer = make(came) if make is not None else Answer()
        time.sleep(answer.seconds)
        octets = came.query.get("hub.challenge", "").encode() if answer.body is None else answer.body
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(octets)))
        handler.end_headers()
        handler.wfile.write(octets)
