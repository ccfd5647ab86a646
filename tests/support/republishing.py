"""A source that publishes the copy of a destination, at work in threads: what the tests of republishing begin with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.catalog.interface import Change, Resource
from headwater.source.config import SetConfig, SourceConfig
from tests.support.serving import Face, source_at_work
from tests.support.waiting import until


class Hub(Face):
    """A server over a source with one set, or several, that publish copies."""

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
    sets = tuple(
        SetConfig(name=name, copy=str(copy), **set_options)  # type: ignore[arg-type]
        for name in names or ("files",)
    )
    with source_at_work(Hub, lambda url: SourceConfig(state=str(state), sets=sets, base_url=url), port=port) as running:
        yield running


def entry_of(change: Change) -> tuple[str, str]:
    """What a change says, in short."""
    return change.change.value, msgspec.to_builtins(change.uri)
