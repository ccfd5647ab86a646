"""One node of a real search engine as a test wants it: started, stopped, killed, paused, started again.

    with Engine("opensearch") as engine:
        engine.url      # http://127.0.0.1:P, plain HTTP, no password, loopback only
        engine.kill()   # with -9
        engine.start()  # the same data, the same ports

Each node has its own folders (data, logs, a copy of `config`) and its own two ports; leaving the block, or our death,
ends it and removes the folders.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tools.engines import artifacts, java
from tools.engines.errors import EngineFailed, Unavailable
from tools.engines.launch import (
    FLAVOURS,
    NONE,
    QUICK_START,
    Node,
    class_archive,
    data_folder,
    free_port,
    order,
    prepare,
)
from tools.engines.security import secure

START_SECONDS = 600.0
"""Till a node answers: 9 s on two idle cores, many times that beside a test suite."""

STOP_SECONDS = 180.0
POLL_SECONDS = 0.1

EXERCISES = (
    ("PUT", "/classes", '{"settings": {"number_of_replicas": 0}}'),
    ("POST", "/classes/_bulk?refresh=true", '{"index": {"_id": "1"}}\n{"text": "a", "number": 1}\n'),
    ("PUT", "/classes/_doc/1?if_seq_no=0&if_primary_term=1", '{"text": "b", "number": 2}'),
    ("GET", "/classes/_doc/1", None),
    ("POST", "/classes/_refresh", None),
    ("POST", "/classes/_search", '{"query": {"range": {"number": {"gt": 1}}}, "sort": ["number"]}'),
    ("DELETE", "/classes", None),
)
"""What a node is asked, so that it loads the classes for it."""


class Engine:
    """A node, from the moment it is made until `close`; `settings` are the engine's own, `heap` as Java takes it.

    A `quick` one starts as tests want it (`launch.py`), another one as it comes: what measures throughput takes that.
    Raises `Unavailable` when this machine lacks something, `EngineFailed` when the engine does not come up.
    """

    def __init__(
        self,
        name: str,
        *,
        heap: str = "512m",
        java_options: Sequence[str] = (),
        quick: bool = True,
        port: int | None = None,
        settings: Mapping[str, str] = NONE,
        secured: bool = False,
        start: bool = True,
    ) -> None:
        if name not in FLAVOURS:
            raise Unavailable(f"no engine is called {name}: there are {', '.join(FLAVOURS)}")
        artifact = artifacts.pinned()[f"{name}-secured" if secured else name]
        self.name, self.version = name, artifact.version
        self.java_options = [f"-Xms{heap}", f"-Xmx{heap}", *(QUICK_START if quick else ()), *java_options]
        java_home, home = java.find(artifact.java).home, artifacts.install(artifact)
        self.port, self.transport_port = port or free_port(), free_port()
        self.folder = prepare(name, home, quick=quick)
        self.data = data_folder(self.folder, quick=quick)
        self._node = Node(name, home, java_home, self.folder, self.data, quick)
        self.security = secure(name, self.folder) if secured else None
        self.settings = {**(self.security.settings if self.security else NONE), **settings}
        self._makes_archive = False
        self._guards: list[subprocess.Popen[bytes]] = []
        self._group = 0
        self.close = weakref.finalize(self, discard, os.getpid(), self._guards, (self.folder, self.data))
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}" if self.security is None else f"https://localhost:{self.port}"

    @property
    def running(self) -> bool:
        """True while a process of the node is there, paused or not."""
        return bool(self._guards) and self._guards[-1].poll() is None

    @property
    def pid(self) -> int:
        """The process that answers requests (Elasticsearch's has a launcher above it)."""
        return int((self.folder / "pid").read_text())

    def start(self, *, wait: bool = True) -> None:
        """Start the node with the data and ports that it had; nothing when it runs."""
        if not self.running:
            (self.folder / "pid").unlink(missing_ok=True)
            command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), json.dumps(self._order())]
            guard = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
            )
            self._gone(0)  # the guard of an engine that ended by itself
            self._guards.append(guard)
            assert guard.stdout is not None
            with guard.stdout as said:
                line = said.readline()
            if not line:
                raise EngineFailed(f"{self.name} was not started (status {guard.wait()})")
            self._group = int(line)
        if wait:
            self.wait()

    def stop(self) -> None:
        """End the node as an operator would, waiting until it is gone."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        self._gone(STOP_SECONDS)

    def kill(self) -> None:
        """End the node with -9, waiting until it is gone."""
        self._signal(signal.SIGKILL)
        self._gone(STOP_SECONDS)

    def pause(self) -> None:
        """Stop the node's processes where they are (SIGSTOP), and wait until they stand: nothing answers any more."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while self.running and not standing(self.pid):
            if time.monotonic() > deadline:
                raise EngineFailed(f"{self.name} was not stopped within {STOP_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS / 10)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def wait(self, *, status: str = "yellow", nodes: int = 1, seconds: float = START_SECONDS) -> None:
        """Wait until the node answers, sees that many nodes, and no index is worse than `status`."""
        deadline = time.monotonic() + seconds
        path = f"/_cluster/health?wait_for_status={status}&wait_for_nodes=%3E%3D{nodes}&timeout=1s"
        while time.monotonic() < deadline:
            if self._healthy(path):
                return
            if not self.running:
                raise EngineFailed(f"{self.name} {self.version} ended by itself\n{self.tail()}")
            time.sleep(POLL_SECONDS)
        raise EngineFailed(f"{self.name} {self.version} was not ready after {seconds:.0f} s\n{self.tail()}")

    def leave_archive(self, archive: Path) -> None:
        """Start, load the classes of what an engine is asked, and end; what was loaded is kept at this path."""
        self._makes_archive = True
        self.start()
        for method, path, body in EXERCISES:
            self._ask(method, path, body)
        self.stop()
        self._makes_archive = False
        made = self._node.archive_made
        if not made.exists():
            raise EngineFailed(f"{self.name} {self.version} has left no archive of its classes\n{self.tail()}")
        aside = archive.with_suffix(".new")
        shutil.copyfile(made, aside)
        aside.chmod(0o644)
        aside.rename(archive)

    def tail(self, lines: int = 40) -> str:
        """The last lines that the engine wrote."""
        try:
            text = (self.folder / "console").read_text("utf-8", "replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _healthy(self, path: str) -> bool:
        try:
            return self._ask("GET", path) == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, method: str, path: str, body: str | None = None) -> int:
        connection, headers = self._connection()
        try:
            connection.request(method, path, body, {**headers, "content-type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()

    def _connection(self) -> tuple[http.client.HTTPConnection, dict[str, str]]:
        if self.security is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20), {}
        safe = http.client.HTTPSConnection("localhost", self.port, timeout=20, context=self.security.context())
        return safe, {"authorization": self.security.authorization}

    def _order(self) -> dict[str, object]:
        ports = {"http.port": str(self.port), "transport.port": str(self.transport_port)}
        settings = {**self.settings, **ports}
        return order(self._node, settings, self.java_options, makes_archive=self._makes_archive)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            try:
                os.killpg(self._group, number)
            except ProcessLookupError:
                return  # it went away by itself, a moment ago

    def _gone(self, seconds: float) -> None:
        """Wait for the guard, who waits for the whole tree of processes; what does not go is killed."""
        for guard in self._guards:
            try:
                guard.wait(seconds)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                guard.wait(seconds)
            dismiss(guard)
        self._guards.clear()


def archive_classes(name: str) -> None:
    """Leave the archive from which quick starts of an artifact (`opensearch-secured`) take classes, unless it is there.

    Costs a start and ten seconds of a processor, once for each engine and Java. Raises what `Engine` raises.
    """
    artifact = artifacts.pinned()[name]
    archive = class_archive(artifacts.install(artifact), java.find(artifact.java).home)
    if archive.exists():
        return
    flavour, _, secured = name.partition("-")
    with artifacts.locked(archive), Engine(flavour, secured=bool(secured), start=False) as engine:
        if not archive.exists():
            engine.leave_archive(archive)


def discard(maker: int, guards: list[subprocess.Popen[bytes]], folders: Sequence[Path]) -> None:
    """End a node at once and remove its folders; in a fork of the process that made it, do nothing."""
    if os.getpid() != maker:
        return
    for guard in guards:
        dismiss(guard)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Close the pipe that keeps a guard's engine alive, and wait until both are gone."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(STOP_SECONDS)


def standing(pid: int) -> bool:
    """True when every thread of a process is stopped; also where the system has no /proc to tell."""
    try:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread ended meanwhile
    return all(state in "Tt" for state in states)
