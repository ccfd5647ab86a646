"""What one publication of a set works with: the parts of a publisher, and the job.

To publish a further kind of document takes rows in `publish.capabilities`, and two functions for `publish.publisher`:
what writes the documents and gives the state that the next publication finds, and what names them by that state.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import msgspec

from headwater.catalog.interface import Catalog, Change, SetSnapshot
from headwater.progress import Listener, silent
from headwater.publish.plan import Refresh, newest_at
from headwater.publish.publication_state import PublicationState
from headwater.publish.site import SetSettings, Site
from headwater.publish.store_writer import IntegrityCheck, StoreWriter
from headwater.storage.folder_store import FolderStore


def always() -> None:
    """Nobody else writes."""


def nobody(_name: str | None, _documents: tuple[str, ...]) -> None:
    """Nobody wants to know what was written."""


class PublishContext(msgspec.Struct, frozen=True):
    """The parts. `may_write` is called before anything is put in its place, and raises when this process must not."""

    catalog: Catalog
    store: FolderStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener = silent
    may_write: Callable[[], None] = always


class PublicationJob(msgspec.Struct, frozen=True, kw_only=True):
    """One publication of one set.

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


_ROWS_AT_ONCE = 5_000


def changes_between(catalog: Catalog, name: str, after: int, last: int) -> Iterator[Change]:
    """The changes of a set that follow the number `after`, up to `last`. Raises the catalog's faults."""
    while after < last and (rows := catalog.changes(name, after, min(_ROWS_AT_ONCE, last - after))):
        yield from rows
        after = rows[-1].seq
