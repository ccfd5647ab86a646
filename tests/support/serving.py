"""A server on a socket of its own for a test, and clients that say exactly what they are told to say."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.http.app import Application
from headwater.http.dump_endpoint import DumpEndpoint
from headwater.http.mementos import PastStates, VersionEndpoint
from headwater.http.responses import AccessRecord
from headwater.http.server import ServerLimits, UvicornServer, address_url, listen, make_server
from headwater.progress import Notice
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from tests.support.waiting import DEADLINE, until


class Answer(msgspec.Struct):
    """What came back: header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Face:
    """A running server of one source."""

    def __init__(self, source: Source, url: str) -> None:
        self.source = source
        self.url = url
        self.served: list[AccessRecord] = []
        self.notices: list[Notice] = []
        self.app: Application
        self.server: UvicornServer
        self.dumps: DumpEndpoint

    def get(self, target: str, method: str = "GET", **headers: str) -> Answer:
        """One request on a connection of its own; `_` in header names stands for `-`."""
        return request(self.url, target, method, {name.replace("_", "-"): text for name, text in headers.items()})

    def raw(self, octets: bytes, seconds: float = DEADLINE) -> bytes:
        """Send octets as they are and return what comes back until the server closes or falls silent."""
        with self.connect(seconds) as client:
            client.sendall(octets)
            return drain(client)

    def connect(self, seconds: float = DEADLINE) -> socket.socket:
        """A connection to the server."""
        parts = urlsplit(self.url)
        return socket.create_connection((parts.hostname, parts.port), timeout=seconds)


AnyFace = TypeVar("AnyFace", bound=Face)


def drain(client: socket.socket) -> bytes:
    """Everything until the end, or until nothing more comes."""
    received = b""
    try:
        while block := client.recv(1 << 16):
            received += block
    except (TimeoutError, ConnectionResetError):
        pass
    return received


def request(
    url: str, target: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """One request; the target is sent as it is."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, text in (headers or {}).items():
            connection.putheader(name, text)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())
    finally:
        connection.close()


@contextmanager
def face(
    files: Path,
    state: Path,
    *,
    publish: bool = True,
    limits: ServerLimits | None = None,
    source_options: Mapping[str, object] | None = None,
    **set_options: object,
) -> Iterator[Face]:
    """A server in a thread over a source that has made one round (`publish`)."""
    listener = listen("127.0.0.1", 0)
    url = address_url(listener)
    config = SourceConfig(state=str(state), sets=(SetConfig(files=str(files), **set_options),), base_url=url)  # type: ignore[arg-type]
    config = msgspec.structs.replace(config, **(source_options or {}))
    with Source(config) as source:
        if publish:
            source.run_once()
        running = Face(source, url)
        offers = {one.name: one.dumps for one in source.site.sets if one.dumps is not None}
        states = PastStates(source)
        running.dumps = DumpEndpoint(source, source.contents, offers, states)
        past = VersionEndpoint(states)
        running.app = Application(
            source,
            {one.name: one.files for one in config.sets},
            routes=[*running.dumps.routes(), *past.routes()],
            links=past.links,
            on_served=running.served.append,
        )
        try:
            with answering(running.app, listener, limits) as running.server:
                yield running
        finally:
            running.dumps.close()


@contextmanager
def source_at_work(
    kind: Callable[[Source, str], AnyFace],
    config_for: Callable[[str], SourceConfig],
    *,
    port: int = 0,
    before: Callable[[Source], None] = lambda _source: None,
) -> Iterator[AnyFace]:
    """A source at work in threads, and served; `before` is called once it answers and before it begins to work."""
    listener = listen("127.0.0.1", port)
    url = address_url(listener)
    heard: list[Notice] = []
    with Source(
        config_for(url), listener=lambda event: heard.append(event) if isinstance(event, Notice) else None
    ) as source:
        running = kind(source, url)
        running.notices = heard
        running.app = Application(source, source.roots, on_served=running.served.append)
        with answering(running.app, listener) as running.server:
            before(source)
            source.start()
            yield running


@contextmanager
def answering(app: Application, listener: socket.socket, limits: ServerLimits | None = None) -> Iterator[UvicornServer]:
    """Answer at a socket by an application, in a thread; both are closed at the end."""
    ready = threading.Event()
    server = make_server(app, limits, ready.set)
    thread = threading.Thread(target=server.run, name="serve", kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(DEADLINE)
        yield server
    finally:
        server.should_exit = True
        thread.join(DEADLINE)
        app.close()
        listener.close()
        assert not thread.is_alive()


class Process:
    """`headwater serve` as a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "serve", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONDEVMODE": ""},
        )
        self.url = self.address = self.hub = ""
        self.began = time.monotonic()

    def listening(self) -> str:
        """The URL, once it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        told = json.loads(line)
        self.url, self.address, self.hub = told["url"], told["address"], told.get("hub", "")
        return self.url

    def ready(self) -> str:
        """The URL, once everything is published."""
        url = self.listening()
        until(lambda: request(url, "/health").status == 200, what="the first publication")
        return url

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it in order; status and what it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, said.decode()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, _kind: object = None, error: BaseException | None = None, _trace: object = None) -> None:
        if error is not None:
            self._tell(error)
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _tell(self, error: BaseException) -> None:
        """Add to a failure whether the process had ended by itself, and what it had said."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)  # it may be about to end
        ended = self.process.poll()
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace")[-4_000:]
            error.add_note(f"process {self.process.pid}: status {ended} before the end of the test; it said:\n{said}")
