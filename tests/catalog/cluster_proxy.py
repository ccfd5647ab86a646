"""A small HTTP proxy before an engine: it loses requests, loses answers, says by chance that it is busy, or is away."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

BUSY = b'{"error": {"type": "rejected_execution_exception", "reason": "full, says the proxy"}, "status": 429}'


class Proxy:
    """Between a client and the engine at `target`; `faults` counts what it did, of every kind about one in `rarity`.

    With `rarity` None it does nothing of this.
    """

    def __init__(self, target: str, seed: int, rarity: int | None = 12) -> None:
        chance = random.Random(seed)
        lock = threading.Lock()
        faults: Counter[str] = Counter()
        self._is_away = is_away = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each body waits until its head is acknowledged: 40 ms

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                with lock:
                    number = -1 if rarity is None else chance.randrange(rarity)
                    fault = {0: "request lost", 1: "answer lost", 2: "busy"}.get(number, "")
                    faults[fault] += 1
                if fault == "request lost" or is_away.is_set():
                    self.close_connection = True
                    return
                if fault == "busy":
                    self.tell(429, BUSY)
                    return
                connection = http.client.HTTPConnection(target.removeprefix("http://"), timeout=60)
                try:
                    connection.request(self.command, self.path, body or None, dict(self.headers.items()))
                    answer = connection.getresponse()
                    said = answer.read()
                except (OSError, http.client.HTTPException):  # what is behind the proxy is down
                    self.close_connection = True
                    return
                finally:
                    connection.close()
                if fault == "answer lost":
                    self.close_connection = True
                    return
                self.tell(answer.status, said)

            def tell(self, status: int, said: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """The test says what went wrong."""

        self.faults = faults
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def go_away(self) -> None:
        """Answer nothing until `come_back`."""
        self._is_away.set()

    def come_back(self) -> None:
        """Answer again."""
        self._is_away.clear()

    def close(self) -> None:
        """As if the engine were killed: connections are refused, and who has one gets no more answers."""
        self._is_away.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
