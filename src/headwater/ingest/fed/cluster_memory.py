"""The memory of fed sets in the search cluster that has their catalog: for intake on several hosts.

One book for each set, replaced by compare-and-set, says what is under way. What a batch is to be remembered by is
written into the book first (its tail), then done, then struck out: whoever comes next does again what a crash has left.
Every document carries the number of the book's state that wrote it, so that a writer that was overtaken cannot put back
anything older. Nothing is searched for that has to be found: what is asked for by name is read by its name.

A turn only keeps others waiting. That nothing goes wrong when it is lost unnoticed is due to this: a batch is begun
over the very book that was found when the turn began, and recorded over the very state of the set that was seen before;
whoever gives up what somebody else has begun first shuts that one out of the catalog (`ClusterCatalog.fence`).
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import MEMORY
from headwater.catalog.interface import UnknownSet
from headwater.ingest.fed.cluster_turn import ClusterTurn, Seen
from headwater.ingest.fed.memory import (
    MOST_REQUESTS,
    REQUEST_SECONDS,
    SEEN_SECONDS,
    Effects,
    Intent,
    Progress,
    Request,
)
from headwater.ingest.fed.memory_index import Book, MemoryIndex, Operation, kept, line_of, place_of, selecting
from headwater.ingest.fed.pairs import Half, Statement, Unpaired
from headwater.spec.moments import to_microseconds

_SWEEP: Final = 5_000
_SWEEP_EVERY: Final = 64
_STUCK: Final = dt.timedelta(seconds=5)
"""A batch that has been under way for so long may have been left behind."""
_KEPT_DONE: Final = 8

T = TypeVar("T")


_pack = msgspec.msgpack.Encoder().encode


class ClusterMemory:
    """The memory beside a catalog on a cluster; use from any thread. Methods may raise ClusterFault and IntakeBusy."""

    def __init__(
        self, catalog: ClusterCatalog, who: str, clock: Callable[[], dt.datetime], busy_seconds: float = 60.0
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._documents = MemoryIndex(catalog.cluster, f"{catalog.prefix}-{MEMORY}")
        self._who = who
        self._busy_seconds = busy_seconds
        self._turns: dict[str, ClusterTurn] = {}
        self._lock = threading.Lock()
        self._commits = 0

    def turn(self, name: str) -> ClusterTurn:
        """The set for one thread of one process alone, wherever the others run."""
        with self._lock:
            if name not in self._turns:
                claim = self._catalog.claim(f"feed {name}", self._who)
                self._turns[name] = ClusterTurn(
                    name, claim, partial(self._finished, name), partial(self._look, name), self._busy_seconds
                )
            return self._turns[name]

    def intent(self, name: str) -> Intent | None:
        """The batch that was begun and not committed."""
        book = self._seen(name)[0]
        return msgspec.msgpack.decode(book.intent, type=Intent) if book.intent else None

    def begin(self, name: str, intent: Intent) -> None:
        """Write down what is about to be recorded. Raises IntakeBusy when somebody else has had the turn meanwhile."""
        turn = self.turn(name)
        turn.check()
        seen = self._seen(name)
        noted = to_microseconds(self._clock())
        new = replace(seen[0], intent=_pack(intent), stamp=uuid4().hex, pending=True, noted=noted)
        begun = self._put(name, new, seen, lambda found: found.stamp == new.stamp)
        if begun is None:
            raise turn.lost()
        turn.seen, turn.stamp = begun, new.stamp

    def shut_out(self, name: str) -> None:
        """Make sure that whoever began a batch and was paused does not record it any more, wherever that runs."""
        self._catalog.fence(name)

    def abandon(self, name: str) -> None:
        """Forget the intent: nothing of it was recorded, nor will be."""
        turn = self.turn(name)
        stamp = turn.stamp or self._seen(name)[0].stamp
        found = self._documents.look(name)
        if found[0].stamp == stamp:  # else somebody else has done so
            new = replace(found[0], intent=b"", stamp="", pending=bool(found[0].tail))
            turn.seen = self._put(name, new, found, lambda found: not found.stamp) or turn.seen

    def commit(self, name: str, effects: Effects, now: dt.datetime) -> None:
        """Write down what has been recorded; the intent has been carried out. Nothing happens to what was committed.

        Without an intent: raises IntakeBusy when somebody else has had the turn meanwhile.
        """
        turn = self.turn(name)
        stamp = turn.stamp or self._seen(name)[0].stamp
        if stamp:
            turn.regain()  # what was recorded is true whoever has had the turn meanwhile
            found = self._documents.look(name)
            turn.stamp = ""
        else:
            turn.check()
            found = self._seen(name)
        if found[0].stamp == stamp:  # else somebody else has done so
            stamp = stamp or uuid4().hex
            tail = _pack(list(self._operations(name, effects, to_microseconds(now))))
            done = (*found[0].done[1 - _KEPT_DONE :], stamp)
            new = replace(found[0], rev=found[0].rev + 1, tail=tail, done=done, intent=b"", stamp="", pending=True)
            if self._put(name, new, found, lambda found: stamp in found.done) is None:
                raise turn.lost()
        found = self._finished(name)
        if found[0].done[-1:] == (stamp,):
            turn.seen = found
        if self._commits % _SWEEP_EVERY == 0:
            self._sweep(name, now)
        self._commits += 1

    def _look(self, name: str) -> None:
        """While we wait for the turn of a process that may be gone: it may have been writing to the set as well."""
        with suppress(UnknownSet):
            self._catalog.look(name)

    def _seen(self, name: str) -> Seen:
        """The book as this turn has found or left it."""
        return self.turn(name).seen or self._documents.look(name)

    def _put(self, name: str, new: Book, over: Seen, is_done: Callable[[Book], bool]) -> Seen | None:
        """Replace the book that was seen; None when it is another one by now."""
        while True:
            written = self._documents.put(name, new, over[1])
            if written is not None:
                return new, written
            found = self._documents.look(name)
            if is_done(found[0]):  # the answer was lost
                return found
            if found[0] != over[0]:
                return None
            over = found  # the same under another primary

    def _finished(self, name: str) -> Seen:
        """Do what the book says is to be done, again if need be, before anything is read; the book after that."""
        while True:
            found = self._documents.look(name)
            book = found[0]
            if not book.tail:
                return found
            operations = msgspec.msgpack.decode(book.tail, type=list[Operation])
            self._documents.apply(line_of(one, book.rev) for one in operations)
            new = replace(book, tail=b"", pending=bool(book.intent))
            done = self._put(name, new, found, lambda found: False)
            if done is not None:
                return done

    def seen(self, name: str, keys: Iterable[bytes]) -> frozenset[bytes]:
        """Those of the keys that were taken before."""
        ids = {place_of(name, "seen", key.hex()): key for key in keys}
        return frozenset(ids[one] for one in self._documents.get(list(ids)))

    def gone(self, name: str, uris: Iterable[str]) -> dict[str, int]:
        """When those of the resources were deleted that have been."""
        return self._bodies(name, "gone", uris, int)

    def halves(self, name: str, uris: Iterable[str]) -> dict[str, Half]:
        """What waits for a partner, of these resources."""
        return {uri: half for uri, (_, half) in self._bodies(name, "half", uris, tuple[str, Half]).items()}

    def due(self, name: str, until: dt.datetime | None, limit: int) -> dict[str, Half]:
        """What has waited until then; with None all that waits. Oldest first."""
        self._documents.refresh()
        wanted: list[dict[str, Any]] = [{"term": {"set": name}}, {"term": {"kind": "half"}}]
        if until is not None:
            wanted.append({"range": {"due": {"lte": to_microseconds(until)}}})
        found = self._documents.search({**selecting(wanted), "sort": [{"due": "asc"}], "size": min(limit, 10_000)})
        halves = [msgspec.msgpack.decode(one.source.body, type=tuple[str, Half]) for one in found if one.source]
        return dict(halves)

    def unsettled(self, until: dt.datetime) -> frozenset[str]:
        """The sets in which something has waited until then, or a batch was left behind; as of a second ago."""
        halves: list[dict[str, Any]] = [{"term": {"kind": "half"}}, {"range": {"due": {"lte": to_microseconds(until)}}}]
        stuck: list[dict[str, Any]] = [
            {"term": {"pending": True}},
            {"range": {"noted": {"lte": to_microseconds(until - _STUCK)}}},
        ]
        found: set[str] = set()
        for wanted in (halves, stuck):
            query = {**selecting(wanted), "size": 10_000, "collapse": {"field": "set"}, "_source": ["set", "kind"]}
            found.update(one.source.set for one in self._documents.search(query) if one.source is not None)
        return frozenset(found)

    def unpaired(self) -> dict[str, Unpaired]:
        """What waits for a partner, of each set in which something does; as of a second ago."""
        query = {**selecting([{"term": {"kind": "half"}}]), "size": 10_000, "collapse": {"field": "set"}}
        found: dict[str, Unpaired] = {}
        for one in self._documents.search({**query, "sort": [{"noted": {"order": "asc", "missing": "_last"}}]}):
            if one.source is not None:
                name = one.source.set
                count = self._documents.count([{"term": {"set": name}}, {"term": {"kind": "half"}}])
                half = msgspec.msgpack.decode(one.source.body, type=tuple[str, Half])[1]
                found[name] = Unpaired(count, half.since)
        return found

    def statements(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What these resources say of others."""
        return self._bodies(name, "statement", uris, tuple[Statement, ...])

    def about(self, name: str, uris: Iterable[str]) -> dict[str, tuple[Statement, ...]]:
        """What others say of these resources: (relation, who says it)."""
        return self._bodies(name, "about", uris, tuple[Statement, ...])

    def position(self, name: str, feed: str) -> bytes | None:
        """How far a feed was read."""
        found = self._documents.get([place_of(name, "position", feed)])
        return next((one.body for one in found.values()), None)

    def request(self, name: str, key: str) -> Request | None:
        """What became of the request with this key."""
        held = self._bodies(name, "request", [key], _Taken).get(key)
        if held is None:
            return None
        ids = [place_of(name, "answer", key, str(number)) for number in range(held.parts)]
        parts = self._documents.get(ids)
        return Request(
            lines=held.lines, digest=held.digest, complete=held.complete, parts=tuple(parts[one].body for one in ids)
        )

    def lines_taken(self, name: str, key: str) -> int | None:
        """How many lines of the request with this key were taken; None for one that is new."""
        held = self._bodies(name, "request", [key], _Taken).get(key)
        return None if held is None else held.lines

    def close(self) -> None:
        """Nothing is held open beside the catalog."""

    def _operations(self, name: str, effects: Effects, now_us: int) -> Iterator[Operation]:
        for key in effects.seen:
            yield kept(name, "seen", key.hex(), noted=now_us)
        for uri, at_us in effects.gone.items():
            yield kept(name, "gone", uri, _pack(at_us), noted=now_us)
        for uri, half in effects.halves.items():
            if half is None:
                yield Operation(place_of(name, "half", uri), None)
            else:
                since = 0 if half.since is None else to_microseconds(half.since)
                yield kept(name, "half", uri, _pack((uri, half)), due=to_microseconds(half.due), noted=since)
        yield from self._said(name, effects)
        for feed, position in effects.positions.items():
            yield kept(name, "position", feed, position)
        if effects.progress is not None:
            yield from self._progress(name, effects.progress, now_us)

    def _said(self, name: str, effects: Effects) -> Iterator[Operation]:
        """The statements of resources, and the same by whom they are about."""
        made = effects.statements
        if not made:
            return
        before = self.statements(name, made)
        targets = {target for said in (*made.values(), *before.values()) for _, target in said}
        about = {target: dict.fromkeys(said) for target, said in self.about(name, targets).items()}
        for uri, said in made.items():
            for rel, target in before.get(uri, ()):
                about.get(target, {}).pop((rel, uri), None)
            for rel, target in said:
                about.setdefault(target, {})[rel, uri] = None
            yield (
                kept(name, "statement", uri, _pack(tuple(dict.fromkeys(said))))
                if said
                else Operation(place_of(name, "statement", uri), None)
            )
        for target in sorted(targets):
            others = tuple(about.get(target, ()))
            yield (
                kept(name, "about", target, _pack(others))
                if others
                else Operation(place_of(name, "about", target), None)
            )

    def _progress(self, name: str, made: Progress, now_us: int) -> Iterator[Operation]:
        found = self._documents.get([place_of(name, "request", made.key)])
        held = next(iter(found.values()), None)
        parts = msgspec.msgpack.decode(held.body, type=_Taken).parts if held is not None else 0
        noted = held.noted if held is not None else now_us
        if made.part:
            yield kept(name, "answer", made.key, made.part, noted=noted, more=str(parts))
            parts += 1
        taken = _Taken(made.lines, made.digest, made.complete, parts)
        yield kept(name, "request", made.key, _pack(taken), noted=noted)

    def _sweep(self, name: str, now: dt.datetime) -> None:
        """Take away some of what is too old to matter; never more than a commit can bear."""
        for kinds, seconds in ((["seen", "gone"], SEEN_SECONDS), (["request", "answer"], REQUEST_SECONDS)):
            old_us = to_microseconds(now - dt.timedelta(seconds=seconds))
            self._remove([{"terms": {"kind": kinds}}, {"range": {"noted": {"lt": old_us}}}], _SWEEP)
        requests: list[dict[str, Any]] = [{"term": {"set": name}}, {"term": {"kind": "request"}}]
        count = self._documents.count(requests)
        if count > MOST_REQUESTS:
            self._remove(requests, min(count - MOST_REQUESTS, _SWEEP))

    def _remove(self, wanted: list[dict[str, Any]], most: int) -> None:
        query = {**selecting(wanted), "sort": [{"noted": "asc"}], "size": most, "_source": ["set", "kind"]}
        operations = [b'{"delete":{"_id":"%s"}}\n' % one.id.encode() for one in self._documents.search(query)]
        self._documents.apply(iter(operations))

    def _bodies(self, name: str, kind: str, keys: Iterable[str], type_: type[T]) -> dict[str, T]:
        ids = {place_of(name, kind, key): key for key in keys}
        found = self._documents.get(list(ids))
        return {ids[one]: msgspec.msgpack.decode(kept.body, type=type_) for one, kept in found.items()}


class _Taken(msgspec.Struct, frozen=True, array_like=True):
    lines: int
    digest: bytes
    complete: bool
    parts: int
