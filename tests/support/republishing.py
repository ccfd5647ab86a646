"""A source that publishes the copy of a destination, at work in threads: what the tests of republishing begin with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.catalog.interface import Change, Resource
from headwater.http.app import Application
from headwater.http.server.server import make_server
from headwater.http.server.sockets import address_url, listen
from headwater.progress import Notice
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from tests.support.serving import Face
from tests.support.waiting import DEADLINE, until


class Hub(Face):
    """A server over a source with one set, or several, that publish copies."""

    def __init__(self, source: Source, url: str) -> None:
        super().__init__(source, url)
        self.notices: list[Notice] = []

    def resources(self, name: str = "files") -> dict[str, Resource]:
        """What the catalog holds, by URI."""
        if all(one.name != name for one in self.source.catalog.sets()):
            return {}
        return {one.uri: one for one in self.source.catalog.resources(name)}

    def changes(self, name: str = "files") -> list[Change]:
        """The changes that were announced."""
        return self.source.catalog.changes(name)

    def shows(self, uris: set[str], name: str = "files") -> None:
        """Wait until exactly these are published."""
        until(lambda: self.resources(name).keys() == uris and self.is_settled(name), what=f"{sorted(uris)}")

    def is_settled(self, name: str = "files") -> bool:
        """Whether all that is recorded is published."""
        if not (self.source.is_published(name) and self.source.is_site_published()):
            return False
        seq = self.source.catalog.state(name).last_seq
        return self.get("/health").body.count(b'"published_changes": %d' % seq) > 0


@contextmanager
def hub(copy: Path, state: Path, *names: str, port: int = 0, **set_options: object) -> Iterator[Hub]:
    """A source over a copy, at work and served; a set for each of `names`, which are those of the copy."""
    listener = listen("127.0.0.1", port)
    url = address_url(listener)
    sets = tuple(
        SetConfig(name=name, copy=str(copy), **set_options)  # type: ignore[arg-type]
        for name in names or ("files",)
    )
    config = SourceConfig(state=str(state), sets=sets, base_url=url)
    heard: list[Notice] = []
    with Source(config, listener=lambda event: heard.append(event) if isinstance(event, Notice) else None) as source:
        running = Hub(source, url)
        running.notices = heard
        running.app = Application(source, source.roots, on_served=running.served.append)
        ready = threading.Event()
        server = make_server(running.app, None, ready.set)
        thread = threading.Thread(target=server.run, name="serve", kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert ready.wait(DEADLINE)
            source.start()
            yield running
        finally:
            server.should_exit = True
            thread.join(DEADLINE)
            running.app.close()
            listener.close()


def entry_of(change: Change) -> tuple[str, str]:
    """What a change says, in short."""
    return change.change.value, msgspec.to_builtins(change.uri)
