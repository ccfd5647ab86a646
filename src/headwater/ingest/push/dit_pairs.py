"""The halves of DIT-ES events as values: states (`resource`), happenings (`change`), and what they come to together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from enum import Enum

import msgspec

from headwater.catalog.interface import Metadata
from headwater.ingest.push.dit_memo import Note
from headwater.spec.records import ChangeKind, Link

Statement = tuple[str, str]
"""What a resource says of another one: the relation, and the catalog's URI of the other (DIT-24)."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One `resource` document, resolved. `order` is that of arrival, `line` the caller's number for it (0: none).

    `doubted_until`: something newer seems to be known; until then the change that it belongs to may bring it back.
    """

    uri: str
    metadata: Metadata
    place: str = ""
    statements: tuple[Statement, ...] = ()
    stored_at: dt.datetime | None = None
    kept: bytes = b""
    order: int = 0
    line: int = 0
    doubted_until: dt.datetime | None = None

    @property
    def is_doubted(self) -> bool:
        """Whether something newer seems to be known."""
        return self.doubted_until is not None


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One `change` document, resolved. `again`: it has waited, so its key is known already.

    One with a `seq` was written by a catalog: `own` is what it came to, and it waits for no state (DIT-A13).
    """

    uri: str
    change: ChangeKind
    lastmod: dt.datetime | None = None
    at: dt.datetime | None = None
    order: int = 0
    line: int = 0
    again: bool = False
    seq: int = 0
    own: Metadata | None = None


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for its partner until `due`, and has since `since` (None: as an older version has kept it)."""

    due: dt.datetime
    state: State | None = None
    happening: Happening | None = None
    since: dt.datetime | None = None

    def waiting_at_most(self, now: dt.datetime, patience: dt.timedelta, doubt: dt.timedelta) -> Half:
        """The half, waiting no longer than that from now: a clock that was set back since may have dated it."""
        state, latest = self.state, now + patience
        if state is not None and state.doubted_until is not None:
            state = msgspec.structs.replace(state, doubted_until=min(state.doubted_until, now + doubt))
            latest = now + doubt if self.happening is None else latest
        since = self.since and min(self.since, now)
        return msgspec.structs.replace(self, due=min(self.due, latest), state=state, since=since)


class Unpaired(msgspec.Struct, frozen=True):
    """How many halves of a set wait for their partners, and since when the oldest of those that say so has."""

    count: int
    since: dt.datetime | None


class Present(msgspec.Struct, frozen=True):
    """A resource as the set holds it."""

    metadata: Metadata
    note: Note


class KnownState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the URIs of a batch: the live ones, what waits, keys of happenings, deletions (µs).

    `said` has their own statements, of those that are deleted, and `implied` the links that follow from what others say
    of them (DIT-24).
    """

    present: Mapping[str, Present] = {}
    halves: Mapping[str, Half] = {}
    seen: frozenset[bytes] = frozenset()
    gone: Mapping[str, int] = {}
    said: Mapping[str, tuple[Statement, ...]] = {}
    implied: Mapping[str, tuple[Link, ...]] = {}


class Fate(Enum):
    """What became of one document."""

    RECORDED = "recorded"
    WAITING = "waiting for its partner"
    UNCHANGED = "says what is known already"
    DUPLICATE = "the same change was taken before"
    SUPERSEDED = "something newer was taken before"
    UNKNOWN = "the set does not hold the resource"


class Action(msgspec.Struct, kw_only=True):
    """One event to record: `metadata` None is a deletion; with `statements` None the resource keeps those it made.

    `at` is when it happened, as the harvester states it (DIT-A3).
    """

    uri: str
    metadata: Metadata | None
    note: Note = Note()
    statements: tuple[Statement, ...] | None = None
    at: dt.datetime | None = None


class JoinedBatch(msgspec.Struct, kw_only=True):
    """What a batch comes to: events in order, and what to keep in mind."""

    actions: list[Action] = msgspec.field(default_factory=list)
    fates: dict[int, tuple[Fate, int | None]] = msgspec.field(default_factory=dict)
    """By the line of a document: its fate, and the index of its action."""
    halves: dict[str, Half] = msgspec.field(default_factory=dict)
    ended: set[str] = msgspec.field(default_factory=set)
    """URIs whose half waits no longer."""
    seen: dict[bytes, int] = msgspec.field(default_factory=dict)
    gone: dict[str, int] = msgspec.field(default_factory=dict)
    notes: dict[str, Note] = msgspec.field(default_factory=dict)
    """Notes of resources that change without an event."""
    merged: list[str] = msgspec.field(default_factory=list)
    """URIs to which documents of several locations resolved (DIT-A9)."""
