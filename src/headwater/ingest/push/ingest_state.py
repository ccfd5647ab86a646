"""What a push set remembers between batches: rows of its state in the catalog, written in the transaction of changes.

Kinds of rows: keys of change documents that were taken (`seen`), times of deletions (`gone`), states of resources that
were set aside (`half`, ranked by the time until which they are remembered), what resources say of others (`statement`,
and by whom they are said of, `about`), how far an index was read (`position`), requests with an idempotency key and
their answers in parts (`request`, `answer`). What is kept for a time is ranked by the time it was noted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from headwater.catalog.interface import Catalog, Metadata, Moved, RowKey, StateRow, StateUpdate, UnknownSet
from headwater.errors import UsageFault
from headwater.ingest.push.resource_locations import Location
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import to_microseconds
from headwater.typed_decoding import from_msgpack

SEEN_SECONDS: Final = 14 * 86_400  # how long a change document is known again when it is sent once more
REQUEST_SECONDS: Final = 2 * 86_400  # how long an idempotency key is remembered …
MOST_REQUESTS: Final = 100_000  # … and how many of them, for each set
SWEEP: Final = 5_000  # rows that are too old and taken away at once, at most …
MOST_SWEEPS: Final = 20  # … and how often in a row: more than the batches between two sweeps bring
MOST_LINKS: Final = 500  # links that an entry gets in this way at most: readers bound what they take of one entry

SEEN, GONE, HALF, POSITION = "seen", "gone", "half", "position"
STATEMENT, ABOUT, REQUEST, ANSWER = "statement", "about", "request", "answer"

Statement = tuple[str, str]
"""What a resource says of another one: the relation, and the catalog's URI of the other (DIT-24)."""

T = TypeVar("T")

UnresolvedLink = tuple[Location, Link]
"""One item of `ln`: where it leads to, and the link with all that is said of that."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds have.

    Resolved, a document has its `uri`, and its links in `metadata`. `order` is that of arrival, `line` the caller's
    number for it (0: none).
    """

    resource_set: str | None = None
    location: Location = Location("")
    metadata: Metadata | None = None
    links: tuple[UnresolvedLink, ...] = ()
    remarks: tuple[str, ...] = ()
    uri: str = ""
    order: int = 0
    line: int = 0


class ResourceDocument(_Document, frozen=True, kw_only=True):
    """The present state of one resource (DIT-05). `stored_at` is `timestamp` (DIT-09), `kept` the fields that the
    protocol does not know, as JSON (DIT-A19)."""

    metadata: Metadata
    stored_at: dt.datetime | None = None
    kept: bytes = b""
    statements: tuple[Statement, ...] = ()


class ChangeDocument(_Document, frozen=True, kw_only=True):
    """One event of the log (DIT-06). `at` is `datetime`, or else `timestamp` (DIT-A3).

    One that a catalog has written (`harvest`) has its number `seq` and its own `metadata` and `links` (DIT-A13).
    """

    change: ChangeKind
    lastmod: dt.datetime | None = None
    at: dt.datetime | None = None
    seq: int = 0


class AsideRow(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a resource that was set aside, until `due`, since `since`. A version before 0.2 may have left none."""

    due: dt.datetime
    state: ResourceDocument | None = None
    since: dt.datetime | None = None


class AsideCount(msgspec.Struct, frozen=True):
    """How many states of a set are set aside, and since when the oldest of those that say so is."""

    count: int
    since: dt.datetime | None


class RequestProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the request with an idempotency key has got: so many lines with this digest, the part of its answer.

    `before` is what was known of it.
    """

    key: str
    lines: int
    digest: bytes
    part: bytes = b""
    complete: bool = False
    before: TakenRequest | None = None


class TakenRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request as far as it was taken; its answer is in so many parts. `noted_us`: when it was first seen."""

    lines: int
    digest: bytes
    complete: bool
    parts: int
    noted_us: int


class Effects(msgspec.Struct, kw_only=True):
    """What is remembered of a batch. Times are microseconds; `aside` None: no longer."""

    seen: set[bytes] = msgspec.field(default_factory=set)
    gone: dict[str, int] = msgspec.field(default_factory=dict)
    aside: dict[str, AsideRow | None] = msgspec.field(default_factory=dict)
    statements: dict[str, tuple[Statement, ...]] = msgspec.field(default_factory=dict)
    positions: dict[str, bytes] = msgspec.field(default_factory=dict)
    progress: RequestProgress | None = None


class RememberedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of some resources and change documents, as of one state."""

    seen: frozenset[bytes] = frozenset()
    gone: dict[str, int] = {}
    aside: dict[str, AsideRow] = {}
    statements: dict[str, tuple[Statement, ...]] = {}
    about: dict[str, tuple[Statement, ...]] = {}


class IngestState:
    """The ingest state of one set. Methods raise what the catalog raises."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def remembered(
        self, uris: Iterable[str] = (), *, seen: Iterable[bytes] = (), statements: Iterable[str] = ()
    ) -> RememberedRows:
        """Deletions, states set aside and what others say of these resources; which keys are known; own statements."""
        resources = list(uris)
        keys: list[RowKey] = [(kind, uri) for uri in resources for kind in (GONE, HALF, ABOUT)]
        keys += [(STATEMENT, uri) for uri in statements]
        taken = {key.hex(): key for key in seen}
        rows = self._catalog.rows(self._name, [*keys, *((SEEN, key) for key in taken)])
        return RememberedRows(
            seen=frozenset(key for text, key in taken.items() if (SEEN, text) in rows),
            gone=_values(rows, GONE, int),
            aside=_values(rows, HALF, AsideRow),
            statements=_values(rows, STATEMENT, tuple[Statement, ...]),
            about=_values(rows, ABOUT, tuple[Statement, ...]),
        )

    def statements(self, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What these resources say of others."""
        return self._read(STATEMENT, uris, tuple[Statement, ...])

    def about(self, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What others say of these resources: (relation, who says it)."""
        return self._read(ABOUT, uris, tuple[Statement, ...])

    def position(self, feed: str) -> bytes | None:
        """How far a feed was read."""
        row = self._catalog.rows(self._name, [(POSITION, feed)]).get((POSITION, feed))
        return None if row is None else row.value

    def taken(self, key: str) -> TakenRequest | None:
        """How far the request with this key was taken; None for one that is new."""
        return self._read(REQUEST, [key], TakenRequest).get(key)

    def request(self, key: str) -> tuple[TakenRequest, tuple[bytes, ...]] | None:
        """How far the request with this key got, and the parts of its answer.

        Whoever relies on it looks whether the set is still as it was.
        """
        taken = self.taken(key)
        if taken is None:
            return None
        keys = [(ANSWER, _part(key, number)) for number in range(taken.parts)]
        rows = self._catalog.rows(self._name, keys)
        return taken, tuple(rows[one].value for one in keys if one in rows)  # a sweep may have been in between

    def update(self, effects: Effects, now: dt.datetime) -> StateUpdate:
        """The rows by which a batch is remembered."""
        now_us = to_microseconds(now)
        put = [StateRow(SEEN, key.hex(), rank=now_us) for key in effects.seen]
        put += [StateRow(GONE, uri, msgspec.msgpack.encode(at_us), now_us) for uri, at_us in effects.gone.items()]
        put += [StateRow(POSITION, feed, position) for feed, position in effects.positions.items()]
        delete: list[RowKey] = []
        for uri, aside in effects.aside.items():
            if aside is None:
                delete.append((HALF, uri))
            else:
                put.append(StateRow(HALF, uri, msgspec.msgpack.encode(aside), to_microseconds(aside.due)))
        for row in self._said(effects.statements) if effects.statements else ():
            if row.value:
                put.append(row)
            else:
                delete.append((row.kind, row.key))
        if (made := effects.progress) is not None:
            parts, noted_us = (0, now_us) if made.before is None else (made.before.parts, made.before.noted_us)
            if made.part:
                put.append(StateRow(ANSWER, _part(made.key, parts), made.part, noted_us))
                parts += 1
            taken = TakenRequest(made.lines, made.digest, made.complete, parts, noted_us)
            put.append(StateRow(REQUEST, made.key, msgspec.msgpack.encode(taken), noted_us))
        return StateUpdate(put, delete)

    def _said(self, made: dict[str, tuple[Statement, ...]]) -> Iterator[StateRow]:
        """The statements of resources, and the same by whom they are about; no value where nothing is said."""
        before = self.statements(made)
        targets = {target for said in (*made.values(), *before.values()) for _, target in said}
        about = {target: dict.fromkeys(said) for target, said in self.about(targets).items()}
        for uri, said in made.items():
            for rel, target in before.get(uri, ()):
                about.get(target, {}).pop((rel, uri), None)
            for rel, target in said:
                about.setdefault(target, {})[rel, uri] = None
            yield StateRow(STATEMENT, uri, msgspec.msgpack.encode(tuple(dict.fromkeys(said))) if said else b"")
        for target in sorted(targets):
            others = tuple(about.get(target, ()))[:MOST_LINKS]  # a row is bounded, and an entry shows no more of them
            yield StateRow(ABOUT, target, msgspec.msgpack.encode(others) if others else b"")

    def _read(self, kind: str, keys: Iterable[str], type_: type[T]) -> dict[str, T]:
        return _values(self._catalog.rows(self._name, [(kind, key) for key in keys]), kind, type_)


def unpaired(catalog: Catalog) -> dict[str, AsideCount]:
    """What is set aside, of each set in which something is."""
    found: dict[str, AsideCount] = {}
    for name in catalog.sets_with_rows(HALF):
        count, times = 0, list[dt.datetime]()
        with suppress(UnknownSet):  # of a restore that has not ended, which nobody sees
            rows = catalog.rows_of(name, HALF)
            while rows:
                count += len(rows)
                times += [since for row in rows if (since := from_msgpack(row.value, AsideRow).since) is not None]
                times = [min(times)] if times else []
                rows = catalog.rows_of(name, HALF, after=rows[-1])
        if count:
            found[name] = AsideCount(count, times[0] if times else None)
    return found


def sweep(catalog: Catalog, now: dt.datetime) -> None:
    """Take away some of what is too old to matter, of all sets; never more than a batch can bear at once."""
    for kind, seconds in ((SEEN, SEEN_SECONDS), (GONE, SEEN_SECONDS), (REQUEST, REQUEST_SECONDS), (HALF, 0)):
        old_us = to_microseconds(now - dt.timedelta(seconds=seconds)) - 1
        for name in catalog.sets_with_rows(kind, old_us):
            _remove(catalog, name, kind, now, old_us)
    for name, count in catalog.sets_with_rows(REQUEST).items():
        if count > MOST_REQUESTS:
            _remove(catalog, name, REQUEST, now, None, min(count - MOST_REQUESTS, SWEEP))


def _remove(
    catalog: Catalog, name: str, kind: str, now: dt.datetime, until: int | None, most: int = SWEEP * MOST_SWEEPS
) -> None:
    """Delete the oldest rows of a kind; whoever writes to the set meanwhile, or restores it, goes first."""
    with suppress(Moved, UnknownSet):
        while most > 0:
            seen = catalog.state(name)
            rows = catalog.rows_of(name, kind, until=until, limit=min(most, SWEEP))
            if not rows:
                return
            keys = [(row.kind, row.key) for row in rows]
            if kind == REQUEST:  # with its answer
                parts = ((row.key, from_msgpack(row.value, TakenRequest).parts) for row in rows)
                keys += [(ANSWER, _part(key, number)) for key, count in parts for number in range(count)]
            update = StateUpdate(delete=keys)
            if seen.opened_at is None:
                catalog.load(name, [], after=seen, state=update)
            else:
                catalog.record(name, [], now, after=seen, state=update)
            most -= len(rows)


def _part(key: str, number: int) -> str:
    """The key of a part of an answer: no idempotency key has a space."""
    return f"{key} {number}"


def _values(rows: dict[RowKey, StateRow], kind: str, type_: type[T]) -> dict[str, T]:
    return {key: from_msgpack(row.value, type_) for (of, key), row in rows.items() if of == kind}


def refuse_old_memory(state: Path) -> None:
    """Raise UsageFault if an older version has left something in the state folder."""
    if (file := state / "ingest.sqlite").exists():
        raise UsageFault("the file is of an older version", code="HW-ING-62", where=str(file))
