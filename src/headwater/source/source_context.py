"""What the sets of a source that publishes share: catalog, publisher, clock, and whom to tell."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import msgspec

from headwater.catalog.interface import Catalog, Metadata
from headwater.progress import Listener, silent
from headwater.publish.publisher import Publisher
from headwater.source.publication import PublicationEvents
from headwater.versions.history import History
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore


class SourceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a source that its sets work with.

    `state` is its state folder. `may_record` is called before anything is placed or recorded, and raises when this
    process must not any more. `name_published` has the Source Description name the sets that are published, while
    another one cannot be shown; it raises nothing. `versions_of` is where a set keeps the octets of its changes, if it
    does; `keeps_of` says of which resources, `predecessors_of` notes for patches what
    updates replace, `history_of` which state a resource had when.
    """

    catalog: Catalog
    publisher: Publisher
    clock: Callable[[], dt.datetime]
    state: Path
    events: PublicationEvents = msgspec.field(default_factory=PublicationEvents)
    listener: Listener = silent
    may_record: Callable[[], None] = lambda: None
    name_published: Callable[[], None] = lambda: None
    versions_of: Callable[[str], VersionStore | None] = lambda _name: None
    predecessors_of: Callable[[str], Predecessors | None] = lambda _name: None
    history_of: Callable[[str], History | None] = lambda _name: None
    keeps_of: Callable[[str], Callable[[Metadata], bool]] = lambda _name: lambda _metadata: True
