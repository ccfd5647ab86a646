"""A SPARQL 1.1 endpoint over an in-memory store, with the faults that tests ask for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urljoin

import pyoxigraph as ox

Fault = Callable[[str, str], "tuple[int, str, bytes] | None"]
"""Of the kind of request (`update` or `query`) and its text: the answer in the place of the right one, or None."""


class SparqlServer:
    """Serves `/update` and `/query`. Updates are each a transaction, as in most servers."""

    def __init__(self) -> None:
        self.store = ox.Store()
        self.fault: Fault | None = None
        self.retry_after: str | None = None
        """Sent with each status from 400 on."""

        self.resolves: frozenset[str] = frozenset()
        """The kinds of requests in which dot segments of IRIs are resolved, as Apache Jena does; below `http://example.org/`."""

        self.requests: list[tuple[str, str, str | None]] = []
        """Kind, text, and the `Authorization` of each."""

        self.lock = threading.Lock()
        self.origin = ""

    @property
    def update_url(self) -> str:
        return f"{self.origin}/update"

    @property
    def query_url(self) -> str:
        return f"{self.origin}/query"

    @property
    def updates(self) -> list[str]:
        return [text for kind, text, _ in self.requests if kind == "update"]

    def answer(self, kind: str, text: str, authorization: str | None) -> tuple[int, str, bytes]:
        with self.lock:
            self.requests.append((kind, text, authorization))
            if self.fault is not None and (wrong := self.fault(kind, text)) is not None:
                return wrong
            if kind in self.resolves:
                text = re.sub(r'"(?:[^"\\]|\\.)*"|<http://example.org(/[^<>]*)>', _resolved, text)
            try:
                if kind == "update":
                    self.store.update(text)
                    return 204, "text/plain", b""
                results = self.store.query(text)
                assert not isinstance(results, ox.QueryTriples)
                body = results.serialize(format=ox.QueryResultsFormat.TSV)
                return 200, "text/tab-separated-values; charset=utf-8", body or b""
            except (SyntaxError, ValueError, RuntimeError) as cause:
                return 400, "text/plain", str(cause).encode()


def _resolved(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f"<{urljoin('http://example.org/', found[1])}>"


@contextmanager
def sparql_server() -> Iterator[SparqlServer]:
    """A server for the time of the block."""
    server = SparqlServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            kind = self.path.strip("/")
            status, media_type, body = server.answer(kind, text, self.headers.get("authorization"))
            if status == 0:  # breaks off
                self.send_response(200)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body) + 100))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("content-type", media_type)
            if status >= 400 and server.retry_after is not None:
                self.send_header("retry-after", server.retry_after)
            if status != 204:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    http = Quiet(("127.0.0.1", 0), Handler)
    server.origin = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
