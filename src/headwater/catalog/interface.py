"""What every catalog promises: sets, resources on stable pages, a change log in segments; and its faults.

Words. A *set* has *resources*; each resource lies on one *page* (one Resource List document). Every accepted event
becomes one *change* with the next sequence number of its set and a time later than all before it. Changes lie in
*segments* (one Change List document each); exactly one segment of an open set is open.

Phases of a set. `loading`: `load` fills it without changes, nothing is published. `open` (after `open`): every event
goes through `record`. The catalog has no clock: callers pass `now`. All times are aware UTC with microseconds. A URI is
stored as text, either absolute or relative to a prefix that only `publish` and `http` know.

All methods are synchronous, safe to call from several threads, and atomic: after a crash at any moment a call has
happened entirely or not at all. Reads see one committed state. Sizes, counts and numbers come from the arguments alone:
two backends given the same calls answer the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec

from headwater.catalog.lease import LEASE_SECONDS
from headwater.errors import StoreFault, UsageFault
from headwater.spec.records import ChangeKind, Extra, Link

# Faults, said to the person who must act


class UnknownSet(UsageFault):
    """The catalog has no set of this name."""

    code = "HW-CAT-01"


class WrongPhase(UsageFault):
    """`load` on a set that is open, or `record` on one that is still loading."""

    code = "HW-CAT-02"


class Unacceptable(UsageFault):
    """A value that a catalog cannot store, because no document could: a time without a zone, an odd type, too much."""

    code = "HW-CAT-04"


class Moved(StoreFault):
    """Another process has recorded changes in the set since it was read; nothing was recorded."""

    code = "HW-CAT-12"


# Resources, changes, sets


class Metadata(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a source states of one resource: the entry's attributes, true for one moment's representation.

    `extra` are attributes of other namespaces (RS-DOC-13). Kept as given, except that a `Coarse` time becomes the start
    of its period.
    """

    lastmod: dt.datetime | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()


class Upsert(msgspec.Struct, frozen=True, gc=False):
    """A resource exists with this metadata. `memo` is the ingest's private note, never published.

    `change` None lets the catalog decide between created and updated by what it holds; a given value is what the
    log says (AMB-81), whether or not the resource was known. `at` is when it happened, where that is known (`record`).
    `seq` is of the last change before a set has moved here (`load`).
    """

    uri: str
    metadata: Metadata
    memo: bytes = b""
    change: ChangeKind | None = None
    at: dt.datetime | None = None
    seq: int = 0


class Delete(msgspec.Struct, frozen=True, gc=False):
    """A resource no longer exists. On a URI that the set does not hold it is no event: it is ignored (DST-5.3).

    `links` are what the change says beside that: where the resource came from (`via`).
    """

    uri: str
    at: dt.datetime | None = None
    links: tuple[Link, ...] = ()


Event = Upsert | Delete


class Resource(msgspec.Struct, frozen=True, gc=False):
    """One live resource of a set."""

    uri: str
    metadata: Metadata
    memo: bytes
    page: int
    seq: int
    """Sequence number of the last change; 0 for one that has not changed since it was loaded, here or elsewhere."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of the log. A deletion carries links at most (AMB-34)."""

    seq: int
    at: dt.datetime
    uri: str
    change: ChangeKind
    metadata: Metadata


class Accepted(msgspec.Struct, frozen=True):
    """The outcome of `record`: sequence numbers first..last (both 0 when nothing was accepted) and ignored URIs."""

    first: int
    last: int
    ignored: tuple[str, ...] = ()


CLOCKS_DIFFER_SECONDS = 10.0  # by so much the clocks of two machines may differ


def ahead_seconds(last_at: dt.datetime | None, now: dt.datetime) -> float:
    """How far the newest time of a set lies ahead of a clock that was set back since; 0 where two clocks may differ so.

    As far do the times of the next changes."""
    ahead = 0.0 if last_at is None else (last_at - now).total_seconds()
    return ahead if ahead > CLOCKS_DIFFER_SECONDS else 0.0


class SetState(msgspec.Struct, frozen=True, kw_only=True):
    """One set: `opened_at` None while it is loading; `last_seq` and `last_at` of the newest change or mark."""

    name: str
    opened_at: dt.datetime | None
    last_seq: int
    last_at: dt.datetime | None
    count: int
    page_count: int
    notes: bytes = b""  # private note of the publisher (what it last published), set by `note`
    fence: int = 0
    """How often somebody else's `record` was shut out, where several hosts share a catalog: see `check_after`."""
    state_version: int = 0  # how often rows were written (`StateUpdate`): see `page_filling.check_after`


class Page(msgspec.Struct, frozen=True):
    """Bookkeeping of one page: `touched` counts events on it, `rendered` is the `touched` that was last rendered.

    A resource that moves touches both pages; loading touches, too. The page's document is stale when
    `touched > rendered`. `at` and `completed` are those of the rendered document. `stale_at` is None when fresh, else
    not later than the first event after that rendering: the first change since the page was fresh, the time of `open`
    for what was loaded, and for a page touched while it was rendered the later of its `stale_at` and the rendering's
    `at`.
    """

    number: int
    count: int
    weight: int
    touched: int
    rendered: int
    at: dt.datetime | None
    completed: dt.datetime | None
    stale_at: dt.datetime | None


class Rendered(msgspec.Struct, frozen=True):
    """What the publisher tells the catalog about one page that it has written."""

    number: int
    touched: int
    at: dt.datetime
    completed: dt.datetime


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One run of changes: `first`..`last` (last < first: empty), from `from_` up to before `until` (None: open).

    `weight` is an upper bound of the rendered entries' octets. Half-open: every change has from_ < at < until, and
    the next segment's `from_` is this `until` (AMB-11, AMB-23).
    """

    number: int
    first: int
    last: int
    from_: dt.datetime
    until: dt.datetime | None
    weight: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a page and a segment (RS-LIM-01, RS-LIM-02). `*_octets` leave room below 52,428,800 for growth.

    They hold for what comes: a page or segment that was filled under wider limits keeps what it has.
    `octets_of_sets` has the sets whose pages and segments take fewer octets, because more is written of each entry.
    """

    page_entries: int = 50_000
    page_octets: int = 40_000_000
    segment_entries: int = 50_000
    segment_octets: int = 45_000_000
    octets_of_sets: Mapping[str, tuple[int, int]] = {}

    def of(self, name: str) -> Limits:
        """The bounds that hold for one set."""
        if (octets := self.octets_of_sets.get(name)) is None:
            return self
        page, segment = min(octets[0], self.page_octets), min(octets[1], self.segment_octets)
        return msgspec.structs.replace(self, page_octets=page, segment_octets=segment, octets_of_sets={})


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a catalog on a cluster; `shards` and `replicas` count only when the indices are created.

    `lease_seconds`: how long a lease lasts. `busy_seconds`: how long a call waits for another writer, then raises
    StoreFault. `patience_seconds`: how long what passes (a node that goes, a full queue) is tried again.
    """

    shards: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    replicas: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    tls: bool = False
    ca: str | None = None
    lease_seconds: Annotated[float, msgspec.Meta(gt=0)] = LEASE_SECONDS
    busy_seconds: Annotated[float, msgspec.Meta(ge=0)] = 120.0
    patience_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0


DEFAULT_OPTIONS = ClusterOptions()


class SetSnapshot(msgspec.Struct, frozen=True):
    """All that a catalog keeps of one set beside its resources and its changes, from one state."""

    state: SetState
    pages: Sequence[Page]
    segments: Sequence[Segment]


# Rows that are stored with a set and in its transactions, never published: octets under a kind and a key
#
# Whatever has to agree with the set's resources and changes, and is neither, is kept here: what an intake has taken,
# how far something was read, who has subscribed to what. The catalog knows kinds and keys as texts only.

RowKey = tuple[str, str]  # kind and key of a row: a set has one row of both at most

LONGEST_KIND = 100
LONGEST_KEY = 8_192  # octets of a key, so that any URI can be one
LARGEST_VALUE = 4 << 20
"""Octets of a value: on a cluster all rows of a batch lie in one document until they are in their places."""


WITHDRAWN = "withdrawn"
"""Rows by the number of a page: up to this time it held a resource that the set's settings have taken out since."""


class StateRow(msgspec.Struct, frozen=True, gc=False):
    """One row. The rows of a kind are ordered by `rank` (a time, a number; 0 where no order is needed), then by key."""

    kind: str
    key: str
    value: bytes = b""
    rank: int = 0


class NumberedChange(msgspec.Struct, frozen=True, gc=False):
    """A change of a batch, with the number and the time (microseconds) that the catalog has given it."""

    seq: int
    at_us: int
    uri: str
    change: ChangeKind


RowsOfChanges = Callable[[Sequence[NumberedChange]], Sequence[StateRow]]
"""Rows that follow from the changes of a batch as they are logged. May be called several times: it has no effects."""


class StateUpdate(msgspec.Struct, frozen=True):
    """What a batch does to the rows of its set: deletions first, then rows in the order given, each over its older one.

    To delete a row that is not there is no error. `of_changes` makes further rows of what `record` logs, put last.
    """

    put: Sequence[StateRow] = ()
    delete: Sequence[RowKey] = ()
    of_changes: RowsOfChanges | None = None


NO_UPDATE = StateUpdate()


class Catalog(Protocol):
    """The source's only truth. Published documents are a cache of it."""

    limits: Limits
    is_remote: bool  # whether a read may wait for the network, so that an event loop leaves it to a thread
    load_batch: int  # so many events at a time are loaded fastest; more cost memory only, about 600 octets each

    def sets(self) -> list[SetState]:
        """Every set, by name."""

    def newest(self) -> dict[str, int]:
        """The number of the newest change of every open set, by name; cheap enough to ask for every second."""

    def state(self, name: str) -> SetState:
        """One set. Raises UnknownSet."""

    def create(self, name: str, *, last_seq: int = 0) -> SetState:
        """Make sure the set exists (loading when new) and return it.

        The changes of a new one are numbered from `last_seq` + 1 on: one that has moved here goes on counting.
        """

    def load(
        self, name: str, events: Sequence[Event], *, after: SetState | None = None, state: StateUpdate = NO_UPDATE
    ) -> int:
        """Apply events without logging changes, while the set is loading; idempotent. Returns the live count.

        Raises WrongPhase on an open set; Unacceptable (nothing is applied then) and Moved as `record` does.
        """

    def open(self, name: str, at: dt.datetime) -> SetState:
        """End the load: the first segment begins with `from_` = `at`, the time of the set's state as loaded.

        Every change gets a time after `at`. No effect on a set that is open.
        """

    def record(
        self,
        name: str,
        events: Sequence[Event],
        now: dt.datetime,
        *,
        after: SetState | None = None,
        state: StateUpdate = NO_UPDATE,
    ) -> Accepted:
        """Log events in order as changes with consecutive sequence numbers and strictly increasing times.

        `state` is written with them, or with none. Even a call of nothing is a write: what it saw in `after` stays.

        An event's time is its `at`, but not later than `now` (and `now` without one), and not earlier than one
        microsecond after the newest time: no event comes before what was marked. Updates resources, touches their
        pages, extends the open segment. When the open segment is full by `limits`, it is closed first and a new
        one opened, as often as needed: no segment ever exceeds the limits. Its `until` is one microsecond after the
        newest time, the next change's time later still.

        Where a resource lies: a new one, or one that comes back after a deletion, takes the next slot of the last
        page, or of a new page when that one is full by `limits`. A known one keeps its slot, unless its new weight
        takes its page beyond `page_octets`: then it takes a slot as a new one does.

        Raises WrongPhase on a loading set; Unacceptable when an event cannot be held: an empty URI or one of more than
        8,192 octets with its prefix, a time without a zone, whatever the strict writer refuses (no media type, no
        digest, a relative link …), a length beyond 63 bits, an Upsert that says deleted, an entry larger than a whole
        page or segment may be, a row beyond its bounds. Nothing of the call is recorded then: `page_filling.weight`
        tells beforehand. Raises Moved when the set is not `after`, as the caller has seen it
        (`page_filling.check_after`).
        """

    def mark(self, name: str, now: dt.datetime) -> dt.datetime:
        """Draw a line: return T, the latest of `now` and all earlier times; every later change gets a time after T."""

    def remember(self, name: str, memos: Sequence[tuple[str, bytes]], *, newest: int | None = None) -> None:
        """Replace the memos of live resources (others are skipped); no change is logged, no page touched.

        With `newest`, those that a later change than this has touched are skipped as well.
        """

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        """The live resources among `uris`."""

    def resources(self, name: str, after: str = "", limit: int = 10_000) -> list[Resource]:
        """Up to `limit` live resources with uri > `after`, in the order of their UTF-8 octets; none if `limit` < 1."""

    def memos(self, name: str, after: str = "", limit: int = 10_000) -> list[tuple[str, bytes]]:
        """URI and memo of each of the resources that `resources` would return: much less work where they are enough."""

    def pages(self, name: str) -> list[Page]:
        """All pages in order, also empty ones (count 0)."""

    def page(self, name: str, number: int) -> Iterator[Resource]:
        """The live resources of one page in slot order, read from one snapshot; none for a page that is not there.

        Writers go on meanwhile. An iterator that is dropped, or whose catalog is closed, holds nothing any longer;
        one that is kept half read holds resources of the backend, so read on or drop it. To know which state was
        rendered, read `pages` first: what comes in between makes the page stale again.
        """

    def rendered(self, name: str, pages: Sequence[Rendered]) -> None:
        """Note that documents of pages were written from the states with these `touched` counts.

        Raises Unacceptable for a page that is not there or was never touched so often; nothing is noted then.
        """

    def changes(self, name: str, after: int = 0, limit: int = 10_000) -> list[Change]:
        """Up to `limit` changes with seq > `after`, in order; none when `limit` < 1."""

    def segments(self, name: str) -> list[Segment]:
        """All segments in order; the last one is open. None while the set is loading."""

    def snapshot_of(self, name: str) -> SetSnapshot:
        """State, pages and segments of one set, from one state. Raises UnknownSet."""

    def snapshots(self, names: frozenset[str] = frozenset()) -> Iterator[SetSnapshot]:
        """The snapshots of these sets, by name, each from one state, in few requests; all, without names."""

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        """When the change of this number happened, for each set that has it."""

    def rows(self, name: str, keys: Iterable[RowKey]) -> dict[RowKey, StateRow]:
        """Those of the rows that are there. Raises UnknownSet."""

    def rows_of(
        self,
        name: str,
        kind: str,
        *,
        after: StateRow | None = None,
        until: int | None = None,
        limit: int = 10_000,
        descending: bool = False,
    ) -> list[StateRow]:
        """Up to `limit` rows of a kind by rank and key: those after the place of `after`, of a rank up to `until`.

        With `descending` in the opposite order: those before the place of `after`, of a rank down to `until`. Raises
        UnknownSet.
        """

    def row_counts(self, name: str) -> dict[str, int]:
        """How many rows the set has of each kind of which it has any. Raises UnknownSet."""

    def sets_with_rows(self, kind: str, until: int | None = None) -> dict[str, int]:
        """The sets that have rows of a kind, of a rank up to `until`, and how many.

        Cheap enough to ask for every second; a catalog on a cluster may answer as of a second ago.
        """

    def close_segment(self, name: str, now: dt.datetime) -> Segment:
        """Close the open segment, also an empty one, and open the next; return the closed one.

        Its `until` is the later of `now` and the newest time plus one microsecond; every later change comes after it.
        Raises WrongPhase while the set is loading.
        """

    def note(self, name: str, notes: bytes) -> None:
        """Replace the publisher's private note of the set."""

    def drop(self, name: str) -> None:
        """Remove a set with everything that is kept of it; one of the same name may be made anew. Raises UnknownSet.

        On a cluster it is empty, and loading, until all is removed; after a fault the next call does what is left.
        """

    def close(self) -> None:
        """Give up connections; what was accepted is on disk."""
