"""The history of resources: which state each had when, as rows of its set, written in the transactions of its changes.

Every change of a set that keeps versions has a row; so has the state that a resource had before its first change since
the history began. The present state of a resource that has not changed since needs none. A history begins with the set,
or when versions are switched on; where changes were recorded without it, it begins anew: nothing is guessed.
"""

import datetime as dt
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import msgspec

from headwater.catalog.interface import (
    NO_UPDATE,
    Catalog,
    Event,
    Metadata,
    Moved,
    NumberedChange,
    Resource,
    RowKey,
    SetState,
    StateRow,
    StateUpdate,
    UnknownSet,
    Upsert,
)
from headwater.spec.records import sha256_of
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.typed_decoding import msgpack_decoder

KIND = "version"  # the rows of states: ranked by their resource, in the order of their times
HISTORY = "version-history"  # the row of the whole: where the history begins, and up to which change it is complete
_BEGIN, _FLOOR = (HISTORY, "begin"), (HISTORY, "floor")
_OFFSET = 62_135_596_800_000_000  # microseconds from the year 1 to 1970
_ROWS = 5_000


class Keeping(IntEnum):
    """What became of the octets of a state."""

    DELETED = 0  # there were none: the resource was deleted
    KEPT = 1
    LOST = 2  # they could not be kept: no room, or no SHA-256 was stated


class PastState(msgspec.Struct, frozen=True, gc=False):
    """What a resource was from `at_us` on (microseconds since 1970), up to its next state."""

    at_us: int
    keeping: Keeping
    digest: str = ""
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    lastmod_us: int | None = None

    @property
    def at(self) -> dt.datetime:
        """When it began."""
        return from_microseconds(self.at_us)

    @property
    def is_kept(self) -> bool:
        """Whether there are octets of it."""
        return self.keeping is Keeping.KEPT


class _Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    keeping: int
    digest: bytes = b""
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    lastmod_us: int | None = None


class _Begin(msgspec.Struct, frozen=True, array_like=True):
    at_us: int
    seq: int
    last_seq: int


_encode = msgspec.msgpack.Encoder().encode
_stored = msgpack_decoder(_Stored)
_begin = msgpack_decoder(_Begin)


def time_text(at_us: int) -> str:
    """A time as it stands in a memento's address."""
    at = from_microseconds(at_us)
    return f"{at.year:04}{at.month:02}{at.day:02}{at.hour:02}{at.minute:02}{at.second:02}{at.microsecond:06}"


def row_key(uri: str, at_us: int) -> RowKey:
    """The row of the state that a change at this time has left."""
    return KIND, f"{_key_time(at_us)}-{_mark(uri)}"


@dataclass(frozen=True)
class History:
    """The history of one set. Safe for several threads; its faults are the catalog's, and those of `has`.

    `has` says whether the octets with a digest are kept. It is asked of what was there as the history began.
    """

    _catalog: Catalog
    _name: str
    _has: Callable[[str], bool] = lambda _digest: True

    # Written with changes

    def begin(self) -> None:
        """Let the history of an open set begin now, unless it has begun and is complete."""
        try:
            state = self._catalog.state(self._name)
        except UnknownSet:
            return
        if state.opened_at is not None and not _continues(self._begun(), state):
            row = StateRow(*_BEGIN, _encode(_begun_of(state)))
            with suppress(Moved):  # by somebody who records, and notes it as well
                self._catalog.record(self._name, [], state.opened_at, after=state, state=StateUpdate([row]))

    def update(
        self, events: Sequence[Event], lost: Collection[str] = (), state: StateUpdate = NO_UPDATE
    ) -> StateUpdate:
        """What a batch that is about to be recorded does to the rows: what `state` says, and the history.

        `lost` are the digests whose octets are not kept. The set must be the same when the batch is recorded.
        """
        seen = self._catalog.state(self._name)
        begun = self._begun()
        if begun is None or not _continues(begun, seen):
            begun = _begun_of(seen)
        before = self._catalog.get(self._name, list({one.uri for one in events}))
        base = [_row(uri, one) for uri, one in self._first_states(begun, before, lost).items()]
        stated = _metadata_in_order(events, before)
        start = begun

        def rows(changes: Sequence[NumberedChange]) -> list[StateRow]:
            last = start.last_seq
            found: list[StateRow] = []
            taken = {uri: iter(some) for uri, some in stated.items()}
            for one in changes:
                metadata = next(taken[one.uri])
                found.append(_row(one.uri, _state_of(one.at_us, metadata, lost)))
                last = one.seq
            others = state.of_changes(changes) if state.of_changes is not None else ()
            return [*found, *others, StateRow(*_BEGIN, _encode(_Begin(start.at_us, start.seq, last)))]

        return StateUpdate([*state.put, *base], state.delete, rows)

    # Read

    def until(self, uri: str, at_us: int, limit: int = 1) -> list[PastState]:
        """Up to `limit` states that began not later than `at_us`, the last first."""
        return list(islice(self.walk(uri, at_us, limit, is_back=True), limit))

    def after(self, uri: str, at_us: int, limit: int = 1) -> list[PastState]:
        """Up to `limit` states that began later than `at_us`, the first first."""
        return list(islice(self.walk(uri, at_us, limit, is_back=False), limit))

    def walk(self, uri: str, at_us: int, first: int, *, is_back: bool) -> Iterator[PastState]:
        """The states that began not later than `at_us`, the last first, or those that began later, the first first.

        So many as `first` are read at once to begin with.
        """
        begun = self._current()
        if begun is None:
            return
        found = None
        for found in self._read(begun, uri, at_us, first, is_back=is_back):
            yield found
        if found is None and (begun.at_us <= at_us) is is_back:
            yield from self._first_states(begun, self._catalog.get(self._name, [uri])).values()

    def each_until(self, uris: Sequence[str], at_us: int) -> dict[str, PastState]:
        """Of each of these resources the last state that began not later than `at_us`, where there is one."""
        begun = self._current()
        if begun is None:
            return {}
        found: dict[str, PastState] = {}
        for uri in uris:
            if (state := next(self._read(begun, uri, at_us, 1, is_back=True), None)) is not None:
                found[uri] = state
        if begun.at_us <= at_us:
            rest = self._catalog.get(self._name, [uri for uri in uris if uri not in found])
            found |= self._first_states(begun, rest)
        return found

    def floor_us(self) -> int | None:
        """States that ended before this time were removed by retention; None: none was."""
        row = self._catalog.rows(self._name, [_FLOOR]).get(_FLOOR)
        return None if row is None else row.rank

    def _first_states(
        self, begun: _Begin, held: Mapping[str, Resource], lost: Collection[str] = ()
    ) -> dict[str, PastState]:
        """The states since the history began, of those of these resources that have not changed since."""
        unchanged = {uri: one.metadata for uri, one in held.items() if one.seq <= begun.seq}
        stated = {sha256_of(one.hash) for one in unchanged.values()} - {""}
        not_kept = {one for one in stated if one in lost or not self._has(one)}
        return {uri: _state_of(begun.at_us, one, not_kept) for uri, one in unchanged.items()}

    def _read(self, begun: _Begin, uri: str, at_us: int, limit: int, *, is_back: bool) -> Iterator[PastState]:
        """The states of the rows on one side of a time, nearest first."""
        mark, rank, limit = _mark(uri), _rank(uri), min(limit, _ROWS)
        after = StateRow(KIND, f"{_key_time(at_us)}~", rank=rank)
        while rows := self._catalog.rows_of(self._name, KIND, after=after, until=rank, limit=limit, descending=is_back):
            for row in rows:
                if row.rank == rank and row.key.endswith(mark):
                    state = state_of(row)
                    if state.at_us >= begun.at_us:
                        yield state
                    elif is_back:
                        return
            if len(rows) < limit or rows[-1].rank != rank:
                return
            after, limit = rows[-1], max(limit, _MORE)

    def _begun(self) -> _Begin | None:
        row = self._catalog.rows(self._name, [_BEGIN]).get(_BEGIN)
        return None if row is None else _begin(row.value)

    def _current(self) -> _Begin | None:
        begun = self._begun()
        if begun is not None:
            return begun
        try:
            state = self._catalog.state(self._name)
        except UnknownSet:
            return None
        return None if state.opened_at is None else _begun_of(state)

    # Retention

    def states(self) -> Iterator[tuple[StateRow, PastState, PastState | None]]:
        """Every row with its state and the one that came next for its resource, if any."""
        held: tuple[StateRow, PastState] | None = None
        for row in self._rows():
            state = state_of(row)
            if held is not None:
                follows = held[0].rank == row.rank and held[0].key[-32:] == row.key[-32:]
                yield (*held, state if follows else None)
            held = row, state
        if held is not None:
            yield (*held, None)

    def present_digests(self) -> Iterator[tuple[str, int]]:
        """The digests of the resources as they are, and their lengths."""
        after = ""
        while rows := self._catalog.resources(self._name, after, _ROWS):
            for one in rows:
                if digest := sha256_of(one.metadata.hash):
                    yield digest, one.metadata.length or 0
            after = rows[-1].uri

    def remove(self, rows: Sequence[StateRow], floor_us: int) -> None:
        """Forget states that ended before `floor_us`."""
        state = self._catalog.state(self._name)
        if not rows or state.opened_at is None:
            return
        floor = max(floor_us, self.floor_us() or floor_us)
        for first in range(0, len(rows), 1_000):
            gone = [(one.kind, one.key) for one in rows[first : first + 1_000]]
            self._catalog.record(
                self._name, [], state.opened_at, state=StateUpdate([StateRow(*_FLOOR, rank=floor)], gone)
            )

    def forget(self) -> None:
        """Remove the whole history: the set no longer keeps versions."""
        state = self._catalog.state(self._name)
        if state.opened_at is None:
            return
        self._catalog.record(self._name, [], state.opened_at, state=StateUpdate((), [_BEGIN]))
        self.remove(list(self._rows()), 0)
        self._catalog.record(self._name, [], state.opened_at, state=StateUpdate((), [_FLOOR]))

    def _rows(self) -> Iterator[StateRow]:
        after: StateRow | None = None
        while rows := self._catalog.rows_of(self._name, KIND, after=after, limit=_ROWS):
            yield from rows
            after = rows[-1]


def has_history(catalog: Catalog) -> list[str]:
    """The sets with a history."""
    return list(catalog.sets_with_rows(HISTORY))


def _continues(begun: _Begin | None, state: SetState) -> bool:
    return begun is not None and begun.last_seq == state.last_seq


def _begun_of(state: SetState) -> _Begin:
    """A history that begins with the set as it is: since its newest change, nothing has changed."""
    at = state.opened_at if not state.last_seq else state.last_at
    assert at is not None
    return _Begin(to_microseconds(at), state.last_seq, state.last_seq)


def _metadata_in_order(events: Sequence[Event], before: dict[str, Resource]) -> dict[str, list[Metadata | None]]:
    """What each accepted event says of its resource, in order; a deletion of what is not there is no event."""
    found: dict[str, list[Metadata | None]] = {}
    held = set(before)
    for one in events:
        if isinstance(one, Upsert):
            found.setdefault(one.uri, []).append(one.metadata)
            held.add(one.uri)
        elif one.uri in held:
            found.setdefault(one.uri, []).append(None)
            held.discard(one.uri)
    return found


def _state_of(at_us: int, metadata: Metadata | None, lost: Collection[str]) -> PastState:
    if metadata is None:
        return PastState(at_us, Keeping.DELETED)
    digest = sha256_of(metadata.hash)
    keeping = Keeping.KEPT if digest and digest not in lost else Keeping.LOST
    lastmod = None if metadata.lastmod is None else to_microseconds(metadata.lastmod)
    return PastState(at_us, keeping, digest, metadata.length, metadata.type, metadata.encoding, lastmod)


def _rank(uri: str) -> int:
    return int.from_bytes(hashlib.sha256(uri.encode()).digest()[:8], "big") >> 1


def _mark(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:32]


def _key_time(at_us: int) -> str:
    return f"{max(0, at_us + _OFFSET):020}"


def _row(uri: str, state: PastState) -> StateRow:
    stored = _Stored(
        int(state.keeping), bytes.fromhex(state.digest), state.length, state.type, state.encoding, state.lastmod_us
    )
    return StateRow(*row_key(uri, state.at_us), _encode(stored), _rank(uri))


def state_of(row: StateRow) -> PastState:
    """The state that a row is about."""
    one = _stored(row.value)
    at_us = int(row.key[:20]) - _OFFSET
    return PastState(at_us, Keeping(one.keeping), one.digest.hex(), one.length, one.type, one.encoding, one.lastmod_us)


MOST_STATES = 50_000  # so many states of a resource are looked at; beyond, it counts as one of which nothing is kept

_FIRST, _MORE = 16, 1_000


def kept_until(history: History, uri: str, at_us: int) -> PastState | None:
    """The last state that began not later than `at_us` and is kept."""
    states = history.walk(uri, at_us, _FIRST, is_back=True)
    return next((one for one in islice(states, MOST_STATES) if one.is_kept), None)


def kept_after(history: History, uri: str, at_us: int) -> PastState | None:
    """The first state that began later than `at_us` and is kept."""
    states = history.walk(uri, at_us, _FIRST, is_back=False)
    return next((one for one in islice(states, MOST_STATES) if one.is_kept), None)
