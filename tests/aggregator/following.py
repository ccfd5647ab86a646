"""Sources on sockets of their own, and a service that follows them, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from headwater.aggregator.configuration import AggregatorConfig, FollowedSource
from headwater.aggregator.dispatcher import Dispatcher, Told
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import Event, SourceState
from headwater.sync.options import SyncOptions
from tests.support.fake_source import Site, Source

SECONDS = 30.0


class Fleet:
    """Sites by name, each on a server of its own, and the configuration that follows them."""

    def __init__(self, state: Path, stack: ExitStack) -> None:
        self.state, self._stack = state, stack
        self.sites: dict[str, Site] = {}
        self.servers: dict[str, Source] = {}
        self._sources: dict[str, FollowedSource] = {}

    def add(self, name: str, files: int = 3, **more: Any) -> Site:
        """A source with some files; `more` are keys of its configuration."""
        server = self.servers[name] = self._stack.enter_context(Source())
        site = self.sites[name] = Site(server)
        for number in range(files):
            site.put(f"{number:03}.txt", f"{name} {number}".encode(), change=False)
        site.publish()
        options = SyncOptions(concurrency=4, **more.pop("options", {}))
        values = {"every": 0.3, "jitter": 0.0, "deadline": 60.0} | more
        self._sources[name] = FollowedSource(name=name, url=server.base, options=options, **values)
        return site

    def set(self, name: str, **more: Any) -> None:
        self._sources[name] = msgspec.structs.replace(self._sources[name], **more)

    def config(self, **more: Any) -> AggregatorConfig:
        values = {"parallel": 4, "keep_free": 0} | more
        return AggregatorConfig(
            path=self.state / "aggregate.toml", state=self.state, sources=tuple(self._sources.values()), **values
        )

    def files(self, name: str) -> dict[str, bytes]:
        """What the copy of a source holds."""
        folder = self.state / name
        return {
            str(one.relative_to(folder)): one.read_bytes()
            for one in sorted(folder.rglob("*"))
            if one.is_file() and ".headwater" not in one.parts
        }

    def is_same(self, name: str) -> bool:
        return sorted(self.files(name).values()) == sorted(self.sites[name].files.values())


class Service:
    """A dispatcher at work in this thread, step by step."""

    def __init__(self, config: AggregatorConfig, **more: Any) -> None:
        config.home.mkdir(parents=True, exist_ok=True)
        self.config = config
        self.store = SqliteStore(config.home / FILE)
        self.told: list[Told] = []
        self.dispatcher = Dispatcher(config, self.store, self.told.append, **more)

    def state(self, name: str) -> SourceState:
        found = self.store.source(name)
        assert found is not None
        return found

    def until(self, reached: Callable[[], object], seconds: float = SECONDS) -> None:
        """Look until something is so."""
        ends = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < ends, self.told[-5:]
            self.dispatcher.look()
            time.sleep(0.02)

    def runs(self, name: str) -> int:
        return len(self.store.runs(name, 200))

    def after_runs(self, name: str, count: int = 1) -> SourceState:
        """The state of a source after so many more runs of it."""
        before = self.runs(name)
        self.until(lambda: self.runs(name) >= before + count)
        return self.state(name)

    def events(self) -> list[Event]:
        return self.store.events(0, 100_000)

    def index(self) -> dict[tuple[str, str], str | None]:
        """What somebody holds who has taken all events in their order."""
        held: dict[tuple[str, str], str | None] = {}
        for event in self.events():
            if event.action == "deleted":
                held.pop((event.source, event.path), None)
            else:
                held[event.source, event.path] = event.hash
        return held

    def close(self) -> None:
        self.dispatcher.close()
        self.store.close()


@contextmanager
def fleet(state: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(state, stack)


@contextmanager
def service(config: AggregatorConfig, **more: Any) -> Iterator[Service]:
    found = Service(config, **more)
    try:
        yield found
    finally:
        found.close()
