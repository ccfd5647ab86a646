"""What all parts of publishing work with, and the protocol of a renderer.

A renderer writes the documents of some capabilities of one set, during one publication.
To publish a further kind of document takes rows in `publish.capabilities` and a renderer in `publish.publisher`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

import msgspec

from headwater.catalog.interface import Catalog, Change, Rendered, SetSnapshot
from headwater.progress import Listener, silent
from headwater.publish.capabilities import Capability
from headwater.publish.plan import Refresh, newest_at
from headwater.publish.publication_state import PublicationState
from headwater.publish.site import SetSettings, Site
from headwater.publish.store_writer import IntegrityCheck, StoreWriter
from headwater.storage.objects.interface import ObjectStore


def always() -> None:
    """Nobody else writes."""


def nobody(_name: str | None, _documents: tuple[str, ...]) -> None:
    """Nobody wants to know what was written."""


class PublishContext(msgspec.Struct, frozen=True):
    """The parts. `may_write` is called before anything is put in its place, and raises when this process must not."""

    catalog: Catalog
    store: ObjectStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener = silent
    may_write: Callable[[], None] = always


class PublicationJob(msgspec.Struct, frozen=True, kw_only=True):
    """One publication of one set, as its renderers know it.

    `snapshot` is a committed state of the set in which everything is recorded that happened until `at`, `publication`
    what was published before. Segments before number `first` have left the index (retention). `note` writes a state of
    the publication down at once, for the next run should this one be killed.
    """

    context: PublishContext
    settings: SetSettings
    store_writer: StoreWriter
    integrity: IntegrityCheck
    refresh: Refresh
    snapshot: SetSnapshot
    publication: PublicationState
    at: dt.datetime
    now: dt.datetime
    first: int
    note: Callable[[PublicationState], None]

    @property
    def name(self) -> str:
        """The set."""
        return self.settings.name

    @property
    def newest_at(self) -> dt.datetime:
        """The time of the snapshot: what it shows has happened until then, and every later change comes after it."""
        return newest_at(self.snapshot.state, self.publication)


class RenderResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a renderer has done: the documents that are live, and the publication state with its part.

    `dropped` are names that nothing needs any more, besides those that were published before. What of the folder
    `withdrawn` is not live holds what must not be shown any more: it goes at once.
    `rendered` is the bookkeeping of pages that were rendered or dropped; so many pages are `stale`, because they show
    less than is recorded, and so many are `left`, which are due and wait for the next publication.
    """

    names: tuple[str, ...]
    publication: PublicationState
    dropped: tuple[str, ...] = ()
    withdrawn: str | None = None
    rendered: tuple[Rendered, ...] = ()
    stale: int = 0
    left: int = 0


class Renderer(Protocol):
    """Writes the documents of its `capabilities`: parts first, then what names them (AMB-63)."""

    capabilities: ClassVar[tuple[Capability, ...]]

    @staticmethod
    def published(snapshot: SetSnapshot, publication: PublicationState) -> Iterator[str]:
        """The names of the documents that were published: what has to be in the store, as it was left."""
        ...

    def publish(self) -> None:
        """Write what is due."""
        ...

    def result(self, publication: PublicationState) -> RenderResult:
        """What came of it, when all renderers have published; its part goes into `publication`."""
        ...


_ROWS_AT_ONCE = 5_000


def changes_between(catalog: Catalog, name: str, after: int, last: int) -> Iterator[Change]:
    """The changes of a set that follow the number `after`, up to `last`. Raises the catalog's faults."""
    while after < last and (rows := catalog.changes(name, after, min(_ROWS_AT_ONCE, last - after))):
        yield from rows
        after = rows[-1].seq
