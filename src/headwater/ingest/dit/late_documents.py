"""What `resource` and `change` documents do to a set, decided over values.

A `resource` document is an upsert: it says what a resource is. A `change` document says what happened, and when; only
it deletes. Two posts are not atomic (DIT-A11), so each document is applied as it comes:

1. Changes are taken in the order of (datetime, arrival) (DIT-A3, DIT-A6), and each is logged once (DIT-A14). One with
   the same (URI, datetime, change) as an earlier one is dropped where it changes nothing (DIT-A12).
2. In one batch, a change and the state that it left are one event, when their `lastmod` agree (DIT-A13).
3. A state that comes before its change is recorded at once, and its change is no news then. A change that comes before
   its state states nothing that may be false; the state corrects that by another update.
4. A change that is older than what is known undoes nothing. A state with an older `lastmod` than what is known is set
   aside, and so is one that was recorded before its change, when a newer change comes to something else. A newer
   change with the same `lastmod` brings it back; the next state of the resource takes its place.
"""

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby

import msgspec
from msgspec.structs import asdict, replace

from headwater.catalog.interface import Metadata
from headwater.ingest.push.feed import INVERSE, Draft, with_links
from headwater.ingest.push.ingest_state import AsideRow, ChangeDocument, Effects, RememberedRows, ResourceDocument
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import MICROSECOND, to_microseconds
from headwater.typed_decoding import from_msgpack

NEVER_US = -(1 << 63)
CLOCK_SKEW = dt.timedelta(hours=1)  # how far a harvester's clock may be ahead of ours
ASIDE = dt.timedelta(hours=1)  # how long a state that was set aside is remembered
SETTLED = dt.timedelta(minutes=10)  # after so long no copy of a shard shows what was before

_MARK = b"D1"
_WHEN_HELD = (ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.CREATED)
_WHEN_NOT = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED)


class Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is noted beside a resource in the catalog, never published.

    `ahead`: the state was recorded before its change. `at_us`: time of the newest change that was taken. `kept` are the
    fields that the protocol does not know, as JSON (DIT-A19). `before_us`: an older file has taken the place of others,
    and a state with a `lastmod` up to then is from before it; 0 where `lastmod` alone tells.
    """

    ahead: bool = False
    at_us: int = NEVER_US
    kept: bytes = b""
    before_us: int = 0

    def memo(self) -> bytes:
        """The note as the catalog keeps it."""
        return b"" if self == _NONE else _MARK + msgspec.msgpack.encode(self)


_NONE = Note()


def read_note(memo: bytes) -> Note:
    """The note that a memo holds; another ingest's memo is none of ours."""
    if not memo.startswith(_MARK):
        return _NONE
    try:
        return from_msgpack(memo[len(_MARK) :], Note)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _NONE


class Present(msgspec.Struct, frozen=True):
    """A resource as the set holds it."""

    metadata: Metadata
    note: Note


class KnownState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the URIs of a batch: what is remembered of them, which are live, and the links that follow from
    what others say of them (DIT-24)."""

    rows: RememberedRows
    present: Mapping[str, Present] = {}
    implied: Mapping[str, tuple[Link, ...]] = {}


class Fate(Enum):
    """What became of one document."""

    RECORDED = "recorded"
    UNCHANGED = "repeats what is already known"
    DUPLICATE = "the same change was taken before"
    SUPERSEDED = "a newer document was taken before"
    MERGED = "documents of different locations are one resource (DIT-A9)"
    UNKNOWN = "the set does not hold the resource"


class JoinedBatch(msgspec.Struct, kw_only=True):
    """What a batch comes to: events in order, and what to keep in mind."""

    drafts: list[Draft] = msgspec.field(default_factory=list)
    fates: dict[int, tuple[Fate, int | None]] = msgspec.field(default_factory=dict)
    """By the line of a document: its fate, and the index of its event."""
    effects: Effects = msgspec.field(default_factory=Effects)
    notes: dict[str, Note] = msgspec.field(default_factory=dict)  # notes of resources that change without an event


def join(
    items: Iterable[ResourceDocument | ChangeDocument], known: KnownState, now: dt.datetime, *, snapshot: bool = False
) -> JoinedBatch:
    """What the documents do to the set.

    With `snapshot` states are what is there now (DIT-03), also those that look older than what was known long ago.
    """
    joining = _Joining(known, now, snapshot=snapshot)
    joining.take(list(items))
    return joining.joined


def key_of(one: ChangeDocument) -> bytes | None:
    """By what a change is known again (DIT-A12); None without a time, when nothing tells two of them apart."""
    if one.at is None:
        return None
    text = f"{to_microseconds(one.at)} {one.change.value} {one.uri}"
    if one.seq:  # its time may have been written without the fraction that told it from another (DIT-A6)
        text += f" {one.seq}"
    return _digest(text)


def key_of_second_deletion(one: ChangeDocument) -> bytes:
    """By what it is known that a resource was deleted more than once within the second of a change (DIT-A12)."""
    return _digest(f"again {one.at} {one.uri}")


def key_of_state(uri: str, metadata: Metadata) -> bytes:
    """By what a state is known again that was replaced or deleted. Links count for nothing: others add some."""
    told = [uri, *(getattr(metadata, name) for name in ("lastmod", "hash", "length", "type", "encoding", "changefreq"))]
    return hashlib.blake2b(b"state " + msgspec.json.encode(told), digest_size=16).digest()


def keys_of(one: ResourceDocument | ChangeDocument) -> list[bytes]:
    """The keys that tell whether a document was taken before."""
    if isinstance(one, ResourceDocument):
        return [key_of_state(one.uri, one.metadata)]
    key = key_of(one)
    return [] if key is None else [key, key_of_second_deletion(one)]


class _Joining:
    """One batch under way."""

    def __init__(self, known: KnownState, now: dt.datetime, *, snapshot: bool) -> None:
        self.joined = JoinedBatch()
        self._effects = self.joined.effects
        self._known = known
        self._rows = known.rows
        self._now = now
        self._snapshot = snapshot
        self._settled_us = to_microseconds(now - SETTLED) if snapshot else NEVER_US
        self._present: dict[str, Present | None] = {}
        self._deletions: dict[str, list[ChangeDocument]] = {}

    def take(self, items: Sequence[ResourceDocument | ChangeDocument]) -> None:
        """Take the changes in their order, each with its state; then the states that are left."""
        states = self._merged(one for one in items if isinstance(one, ResourceDocument))
        changes = [one for one in items if isinstance(one, ChangeDocument)]
        repeated = set[int]()
        for one in changes:
            if (key := key_of(one)) is not None and self._was_seen(key):
                repeated.add(id(one))
                self._tell(Fate.DUPLICATE, one.line)
            elif key is not None:
                self._effects.seen.add(key)
        changes = _in_order(changes, self._now, lambda uri: self._held(uri) is not None)
        own = _matched(states, changes, repeated)
        last = {(one.uri, one.at): one for one in changes if id(one) in repeated}
        for change in changes:
            if id(change) in repeated:
                if change.change is ChangeKind.DELETED:
                    self._deletions.setdefault(change.uri, []).append(change)
                is_event = self._changes_something(change, is_last=last[change.uri, change.at] is change)
                if not is_event or self._held(change.uri) is not None:
                    own.pop(id(change), None)  # its state is judged as one that comes alone
                if not is_event:
                    continue
            if change.change is ChangeKind.DELETED:
                self._delete(change)
            else:
                self._upsert(change, own.get(id(change)))
        taken = {id(one) for one in own.values()}
        for uri, pool in states.items():
            for place, state in enumerate(pool):
                if id(state) not in taken:
                    if any(_is_outdone(state, other) for other in pool[place + 1 :]):
                        self._tell(Fate.SUPERSEDED, state.line)
                    else:
                        self._take_state(uri, state)

    def _merged(self, items: Iterable[ResourceDocument]) -> dict[str, list[ResourceDocument]]:
        """The states of each URI; two documents with different locations that tell of one state are one (DIT-A9)."""
        states: dict[str, list[ResourceDocument]] = {}
        for state in items:
            pool = states.setdefault(state.uri, [])
            last = pool[-1] if pool else None
            if last is not None and last.location != state.location and _agree(last.metadata, state.metadata.lastmod):
                self._tell(Fate.MERGED, last.line)
                # What the newer document leaves out is taken from the older.
                newer = {name: value for name, value in asdict(state.metadata).items() if value is not None}
                links = tuple(dict.fromkeys((*last.metadata.links, *state.metadata.links)))
                statements = tuple(dict.fromkeys((*last.statements, *state.statements)))
                metadata = replace(last.metadata, **newer | {"links": links})
                pool[-1] = replace(state, metadata=metadata, statements=statements, kept=state.kept or last.kept)
            else:
                pool.append(state)
        return states

    # States

    def _take_state(self, uri: str, state: ResourceDocument) -> None:
        """Record a state without its change, unless it says what is known, or is older."""
        present, metadata = self._held(uri), self._whole(state)
        at_us = present.note.at_us if present is not None else self._gone(uri)
        moment = _moment_of(state)
        is_before_a_deletion = any(  # of this batch
            one.order > state.order and not (moment is not None and one.at is not None and moment > one.at)
            for one in self._deletions.get(uri, ())
        )
        if present is not None and present.metadata == metadata:
            self._tell(Fate.UNCHANGED, state.line)
            if state.kept != present.note.kept:  # other unknown fields are no event, and kept all the same (DIT-A19)
                self._renote(uri, present, replace(present.note, kept=state.kept))
            self._set_aside(uri, None)
        elif (
            is_before_a_deletion
            or (at_us >= self._settled_us and _is_older(state, present, at_us))
            or (not self._snapshot and self._is_repeated(state, present))
        ):
            self._tell(Fate.SUPERSEDED, state.line)
            self._set_aside(uri, state)
        else:
            self._put(state, Note(ahead=True, at_us=at_us, kept=state.kept), None, state.line)

    def _is_repeated(self, state: ResourceDocument, present: Present | None) -> bool:
        """Whether it says what has been replaced or deleted since, and no `lastmod` tells that (DIT-A12).

        Who announces changes announces each. Where none was ever announced, a resource may become what it was.
        """
        if present is None:
            may_be = state.uri in self._rows.gone or state.uri in self._effects.gone
        else:
            may_be = present.note.at_us > NEVER_US and present.metadata.lastmod == state.metadata.lastmod
        return may_be and self._was_seen(key_of_state(state.uri, state.metadata))

    def _set_aside(self, uri: str, state: ResourceDocument | None) -> None:
        if state is None and uri not in self._rows.aside:
            self._effects.aside.pop(uri, None)
            return
        until = self._now + ASIDE
        row = (
            None
            if state is None
            else AsideRow(due=until, state=replace(state, line=0, links=(), remarks=()), since=self._now)
        )
        self._effects.aside[uri] = row

    def _aside(self, change: ChangeDocument) -> ResourceDocument | None:
        """The state that was set aside and has the change's `lastmod`."""
        known = self._rows.aside.get(change.uri)
        row = self._effects.aside.get(change.uri, known)
        state = None if row is None or row.due < self._now else row.state
        return state if state is not None and state.metadata.lastmod == change.lastmod else None

    # Changes

    def _was_seen(self, key: bytes) -> bool:
        return key in self._rows.seen or key in self._effects.seen

    def _changes_something(self, change: ChangeDocument, *, is_last: bool) -> bool:
        """Whether something known has happened once more within its second, so that it changes something (DIT-A12).

        Where there is a second deletion, it removes what was made before it within that second, and what is known came
        after it. A state that was recorded before its change has it now. Of several in one batch the last one counts.
        """
        uri, at_us, present = change.uri, self._us(change), self._held(change.uri)
        again = key_of_second_deletion(change)
        if change.seq or at_us != (self._gone(uri) if present is None else present.note.at_us):
            return False
        if change.change is not ChangeKind.DELETED:
            if present is not None and present.note.ahead:
                return True
            return is_last and self._was_seen(again) and (present is None or self._aside(change) is not None)
        if not is_last or present is None or present.note.ahead:
            return False
        self._effects.seen.add(again)
        return True

    def _upsert(self, change: ChangeDocument, state: ResourceDocument | None) -> None:
        uri, at_us = change.uri, self._us(change)
        present = self._held(uri)
        known_us = present.note.at_us if present is not None else self._gone(uri)
        newest_us = max(at_us, known_us)
        # One of an older file and a later time counts: an older file may have taken the place of a newer.
        is_old = self._is_behind(present, change.lastmod) and (
            change.at is None or self._is_behind(present, change.at - MICROSECOND)
        )
        late = is_old or (change.at is not None and at_us < known_us)
        lines = (change.line,) if state is None else (change.line, state.line)
        told = change.metadata if state is None else self._whole(state)
        if late and present is None:
            self._tell(Fate.SUPERSEDED, *lines)
        elif late and present is not None and (state is None or _is_older(state, present, known_us)):
            self._log(present.metadata, present.note, change)  # the newer state stays
            self._tell(Fate.SUPERSEDED, *lines[1:])
        elif present is not None and (  # the set holds its state already: it is not logged again
            present.note.ahead and _agree(present.metadata, change.lastmod) and told in (None, present.metadata)
        ):
            kept = present.note.kept if state is None else state.kept
            self._renote(uri, present, Note(at_us=newest_us, kept=kept, before_us=present.note.before_us))
            self._tell(Fate.UNCHANGED, *lines)
        elif change.metadata is not None and state is None:
            kept = b"" if present is None else present.note.kept
            self._log(change.metadata, Note(at_us=newest_us, kept=kept), change)
        elif (found := state or self._aside(change)) is not None:
            self._put(found, Note(at_us=newest_us, kept=found.kept), change.at, *lines)
        else:
            self._alone(change, present, newest_us)

    def _alone(self, change: ChangeDocument, present: Present | None, newest_us: int) -> None:
        """A change whose state has not come: nothing is stated that may be false (DIT-A13).

        What belongs together stays linked both ways (DIT-24): its own statements stand until its state says otherwise.
        """
        if present is not None and present.metadata.lastmod == change.lastmod:
            metadata, kept = present.metadata, present.note.kept
        else:
            self._remember_ahead(change.uri, present)
            links = () if present is None else tuple(one for one in present.metadata.links if one.rel in INVERSE)
            implied = self._known.implied.get(change.uri, ())
            metadata, kept = with_links(Metadata(lastmod=change.lastmod, links=links), implied), b""
        self._log(metadata, Note(at_us=newest_us, kept=kept), change)

    def _delete(self, change: ChangeDocument) -> None:
        uri, at_us = change.uri, self._us(change)
        present = self._held(uri)
        late = present is not None and change.at is not None and at_us < present.note.at_us
        if late or self._is_behind(present, change.at):
            self._tell(Fate.SUPERSEDED, change.line)
            return
        self._deletions.setdefault(uri, []).append(change)
        self._effects.gone[uri] = max(at_us, self._gone(uri))
        if present is None:
            self._tell(Fate.UNKNOWN, change.line)
            return
        self._effects.seen.add(key_of_state(uri, present.metadata))
        self._remember_ahead(uri, present)
        self._act(Draft(uri=uri, metadata=None, statements=(), at=change.at), change.line)
        self._present[uri] = None

    def _remember_ahead(self, uri: str, present: Present | None) -> None:
        """Set aside what was recorded before its change: that may still come, of a history after its snapshot."""
        if present is None or not present.note.ahead or present.metadata.lastmod is None:
            return
        said = self._rows.statements.get(uri, ())
        rels = {rel for rel, _ in said}
        links = tuple(one for one in present.metadata.links if one.rel not in INVERSE or one.rel in rels)
        metadata = replace(present.metadata, links=links)
        state = ResourceDocument(uri=uri, metadata=metadata, statements=said, kept=present.note.kept, order=-1)
        self._set_aside(uri, state)

    def _is_behind(self, present: Present | None, moment: dt.datetime | None) -> bool:
        """Whether this lies before a state that came before its change; a `lastmod` still to come tells nothing."""
        if present is None or not present.note.ahead or moment is None or present.metadata.lastmod is None:
            return False
        return moment < present.metadata.lastmod <= self._now

    def _us(self, change: ChangeDocument) -> int:
        """The time of a change; one from far in the future counts as now, or nothing could ever come after it."""
        if change.at is None:
            return NEVER_US
        return to_microseconds(self._now if change.at > self._now + CLOCK_SKEW else change.at)

    # Effects

    def _put(self, state: ResourceDocument, note: Note, at: dt.datetime | None, *lines: int) -> None:
        metadata, present = self._whole(state), self._held(state.uri)
        if present is not None and present.metadata.lastmod == metadata.lastmod:
            self._effects.seen.add(key_of_state(state.uri, present.metadata))
        self._set_aside(state.uri, None)
        self._hold(Draft(uri=state.uri, metadata=metadata, statements=state.statements, at=at), note, *lines)

    def _log(self, metadata: Metadata, note: Note, change: ChangeDocument) -> None:
        self._hold(Draft(uri=change.uri, metadata=metadata, at=change.at), note, change.line)

    def _hold(self, draft: Draft, note: Note, *lines: int) -> None:
        assert draft.metadata is not None
        present, lastmod, until_us = self._held(draft.uri), draft.metadata.lastmod, self._gone(draft.uri)
        if present is not None:  # a `lastmod` that is still to come tells nothing
            known = present.metadata.lastmod
            known_us = to_microseconds(known) if known is not None and known <= self._now else 0
            until_us = max(present.note.before_us, known_us)
        note = replace(note, before_us=until_us if lastmod is not None and until_us > to_microseconds(lastmod) else 0)
        self._present[draft.uri] = Present(draft.metadata, note)
        draft.memo = note.memo()
        self._act(draft, *lines)

    def _renote(self, uri: str, present: Present, note: Note) -> None:
        self.joined.notes[uri] = note
        self._present[uri] = Present(present.metadata, note)

    def _act(self, draft: Draft, *lines: int) -> None:
        self.joined.notes.pop(draft.uri, None)
        self.joined.drafts.append(draft)
        self._tell(Fate.RECORDED, *lines, action=len(self.joined.drafts) - 1)

    def _tell(self, fate: Fate, *lines: int, action: int | None = None) -> None:
        self.joined.fates |= {line: (fate, action) for line in lines if line}

    def _whole(self, state: ResourceDocument) -> Metadata:
        """What it says, with the links that follow from what others say now (DIT-24)."""
        return with_links(state.metadata, self._known.implied.get(state.uri, ()))

    def _held(self, uri: str) -> Present | None:
        return self._present[uri] if uri in self._present else self._known.present.get(uri)

    def _gone(self, uri: str) -> int:
        return self._effects.gone.get(uri, self._rows.gone.get(uri, NEVER_US))


def _matched(
    states: Mapping[str, Sequence[ResourceDocument]], changes: Iterable[ChangeDocument], repeated: Container[int]
) -> dict[int, ResourceDocument]:
    """The states of one batch by the `id` of the change that left them: from the last state and the last change on.

    A state that came after a deletion is none of what was before the deletion.
    """
    of: dict[str, list[ChangeDocument]] = {}
    for change in changes:
        if change.uri in states:
            of.setdefault(change.uri, []).append(change)
    matched: dict[int, ResourceDocument] = {}
    for uri, alike in of.items():
        for state in reversed(states[uri]):
            fit: list[ChangeDocument] = []
            for change in reversed(alike):
                if change.change is ChangeKind.DELETED:
                    if change.order < state.order:
                        break
                elif change.metadata is None and id(change) not in matched and _agree(state.metadata, change.lastmod):
                    fit.append(change)
            if fit:
                lastmod = state.metadata.lastmod
                best = min(fit, key=lambda one: (id(one) in repeated, one.lastmod is None or one.lastmod != lastmod))
                matched[id(best)] = state
    return matched


def _in_order(
    changes: Iterable[ChangeDocument], now: dt.datetime, is_held: Callable[[str], bool]
) -> list[ChangeDocument]:
    """Changes by `datetime`, then by arrival, then as they can have happened to what is held or is not.

    The last for documents of several shards, whose order of arrival nobody knows, within a second of the seed's dates.
    """
    ordered: list[ChangeDocument] = []
    live: dict[str, bool] = {}
    count: Counter[tuple[str, ChangeKind]] = Counter()

    def place(one: ChangeDocument) -> tuple[dt.datetime, int]:
        return one.at or now, one.order

    def rank(one: ChangeDocument) -> tuple[int, int]:
        is_live = live[one.uri] if one.uri in live else is_held(one.uri)
        count[one.uri, one.change] += 1  # deleted, created, deleted: they can have happened in turns only
        return count[one.uri, one.change], (_WHEN_HELD if is_live else _WHEN_NOT).index(one.change)

    for _, group in groupby(sorted(changes, key=place), key=place):
        count.clear()
        alike = sorted(group, key=rank)
        live |= {one.uri: one.change is not ChangeKind.DELETED for one in alike}
        ordered += alike
    return ordered


def _agree(metadata: Metadata, lastmod: dt.datetime | None) -> bool:
    """Whether two `lastmod` are of one state; one that is not stated contradicts nothing."""
    return metadata.lastmod is None or lastmod is None or metadata.lastmod == lastmod


def _moment_of(state: ResourceDocument) -> dt.datetime | None:
    return state.stored_at or state.metadata.lastmod


def _is_outdone(state: ResourceDocument, other: ResourceDocument) -> bool:
    """Whether a state is no newer than another one: by when they were stored, if both say so."""
    if state.stored_at is not None and other.stored_at is not None:
        return state.stored_at <= other.stored_at
    if state.metadata.lastmod is None or other.metadata.lastmod is None:
        return state.metadata.lastmod is None
    return state.metadata.lastmod <= other.metadata.lastmod


def _is_older(state: ResourceDocument, present: Present | None, gone_us: int) -> bool:
    """Whether a state without its change is one from before what is known."""
    if present is None:  # of the same second as the deletion, it is what came after it (DIT-A6)
        moment = _moment_of(state)
        return moment is not None and to_microseconds(moment) < gone_us
    mine, known = state.metadata.lastmod, present.metadata.lastmod
    if mine is None or known is None:
        return False
    return mine < known or (mine != known and to_microseconds(mine) <= present.note.before_us)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
