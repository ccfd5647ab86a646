"""Which `resource` and `change` documents belong together, and what they do to a set: decided over values.

Two posts are not atomic (DIT-A11): either of a pair may come first, late, or not at all. A state (`resource`) and a
happening (`change`) of one URI are joined when their `lastmod` agree (DIT-A13); what has no partner yet waits as a
`Half` for some seconds, and then goes alone. Happenings are taken in the order of (datetime, arrival) (DIT-A3, DIT-A6),
each is logged once (DIT-A14), one with the same (URI, datetime, change) is dropped where it changes nothing (DIT-A12).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from headwater.catalog.interface import Metadata
from headwater.ingest.dit.document_comparison import (
    agree,
    belong,
    in_order,
    is_after_a_deletion,
    is_older,
    is_outdone,
    key_of,
    key_of_second_deletion,
    key_of_state,
    lives_after,
    may_be_repeated,
    merged,
    moment_of,
    newest,
    remembered,
    replaced_until,
    was_ahead,
)
from headwater.ingest.push.dit_memo import NEVER_US, Note
from headwater.ingest.push.dit_pairs import Action, Fate, Half, Happening, JoinedBatch, KnownState, Present, State
from headwater.ingest.push.inverse_links import INVERSE, with_links
from headwater.spec.records import ChangeKind
from headwater.spec.timestamps import to_microseconds

SETTLED = dt.timedelta(minutes=10)
"""After so long no copy of a shard shows what was before."""
CLOCK_SKEW = dt.timedelta(hours=1)
"""How far a harvester's clock may be ahead of ours."""
_LEAST = dt.timedelta(microseconds=1)
DOUBT = dt.timedelta(hours=1)
"""How long a state that seems outdated waits for a change that says otherwise."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long half a pair waits for its partner, and what seems outdated for a change that says otherwise."""

    patience: dt.timedelta = dt.timedelta(seconds=5)
    doubt: dt.timedelta = DOUBT


def join(
    items: Iterable[State | Happening],
    known: KnownState,
    now: dt.datetime,
    waits: Waits,
    *,
    final: bool = False,
    snapshot: bool = False,
) -> JoinedBatch:
    """What the documents do to the set, together with what waits for them.

    With `final` nothing waits any longer: `items` may then be empty, and every half of `known` goes as it is; what
    seems outdated then goes on waiting for its doubt, for its own change only. With `snapshot` states are what is there
    now (DIT-03), also those that look older than what was known long ago.
    """
    halves = {uri: half.waiting_at_most(now, waits.patience, waits.doubt) for uri, half in known.halves.items()}
    known = msgspec.structs.replace(known, halves=halves)
    joining = _Joining(known, now, waits, snapshot=snapshot, final=final)
    taken = list(items)
    for uri in dict.fromkeys([*known.halves] if final else [one.uri for one in taken]):
        if half := known.halves.get(uri):
            joining.recall(uri, half)
    joining.take(taken)
    joining.end()
    return joining.joined


class _Joining:
    """One batch under way."""

    def __init__(
        self,
        known: KnownState,
        now: dt.datetime,
        waits: Waits,
        *,
        snapshot: bool,
        final: bool,
    ) -> None:
        self.joined = JoinedBatch()
        self._final = final
        self._settled_us = to_microseconds(now - SETTLED) if snapshot else NEVER_US
        self._known = known
        self._now = now
        self._waits = waits
        self._present: dict[str, Present | None] = {}
        self._pool: dict[str, list[State]] = {}
        self._recalled: list[Happening] = []
        self._waiting: dict[str, Happening] = {}
        self._to_come: dict[str, deque[Happening]] = {}

    def recall(self, uri: str, half: Half) -> None:
        """Take up what has waited."""
        self.joined.ended.add(uri)
        if half.state is not None:
            self._pool[uri] = [msgspec.structs.replace(half.state, order=-1, line=0)]
        if half.happening is not None:
            self._recalled.append(msgspec.structs.replace(half.happening, order=-1, line=0, again=True))

    def take(self, items: Sequence[State | Happening]) -> None:
        """Pool the states, then let the happenings have theirs, oldest first."""
        for one in items:
            if isinstance(one, State):
                self._add(one)
        happenings = [*self._recalled, *(one for one in items if isinstance(one, Happening))]
        repeated = {id(one) for one in happenings if not one.again and not self._is_first(one)}
        happenings = in_order(happenings, self._now, lambda uri: self._held(uri) is not None)
        for one in happenings:
            if id(one) not in repeated:
                self._to_come.setdefault(one.uri, deque()).append(one)
        last = {(one.uri, one.at): one for one in happenings if id(one) in repeated}
        for happening in happenings:
            if id(happening) not in repeated:
                self._to_come[happening.uri].popleft()
            elif last[happening.uri, happening.at] is not happening or not self._is_another(happening):
                self._repeat(happening)
                continue
            if happening.change is ChangeKind.DELETED:
                self._delete(happening)
            else:
                self._upsert(happening)

    def end(self) -> None:
        """What has found no partner waits, or goes alone."""
        for uri in {**self._waiting, **self._pool}:
            happening = self._waiting.pop(uri, None)
            if self._final and happening is not None:
                self._alone(happening)
                happening = None
            state = self._left(uri)
            if self._final and state is not None:
                state = self._ahead(state)
            elif state is not None and self._is_repeated(state):
                state = self._doubted(state)
            if state is not None or happening is not None:
                due, since = self._due(uri, state, happening), self._since(uri, state, happening)
                self.joined.halves[uri] = Half(due=due, state=state, happening=happening, since=since)

    def _due(self, uri: str, state: State | None, happening: Happening | None) -> dt.datetime:
        if happening is None and state is not None and state.doubted_until is not None:
            return state.doubted_until
        old = self._known.halves.get(uri)
        waited = old is not None and (old.happening is not None or not (old.state and old.state.is_doubted))
        return old.due if old is not None and waited else self._now + self._waits.patience

    def _since(self, uri: str, state: State | None, happening: Happening | None) -> dt.datetime | None:
        """Since when it waits: what was recalled has before."""
        recalled = (happening is not None and happening.again) or (state is not None and state.order < 0)
        old = self._known.halves.get(uri) if recalled else None
        return self._now if old is None else old.since

    # States

    def _add(self, state: State) -> None:
        pool = self._pool.setdefault(state.uri, [])
        if not state.is_doubted:  # a newer document of the same state
            pool[:] = [one for one in pool if not (one.is_doubted and one.metadata.lastmod == state.metadata.lastmod)]
        last = pool[-1] if pool else None
        if last is not None and last.place != state.place and agree(last.metadata.lastmod, state.metadata.lastmod):
            self.joined.merged.append(state.uri)
            pool[-1] = merged(last, state)
            self._tell(last.line, Fate.WAITING)
            return
        pool.append(state)

    def _match(self, happening: Happening) -> State | None:
        """The first state that came for it; older ones have had their time, newer ones are for what is to come.

        One from before a deletion is taken only when the time has gone by in which a document of its own may come.
        """
        pool = self._pool.get(happening.uri, [])
        to_come = self._to_come.get(happening.uri, ())
        fit = [state for state in pool if belong(state, happening)]
        if fit and len(fit) <= lives_after(happening, to_come, fit[-1]):
            return None  # there is no more than what each resource that is made after it has left
        for place, state in sorted(enumerate(pool), key=lambda one: one[1].is_doubted):
            if state.is_doubted and not self._final:
                continue
            if belong(state, happening) and not is_after_a_deletion(state, happening, to_come):
                self._pool[happening.uri] = [one for one in pool[:place] if not self._is_outdone(one, state)] + pool[
                    place + 1 :
                ]
                return state
        return None

    def _is_outdone(self, state: State, other: State) -> bool:
        outdone = is_outdone(state, other)
        if outdone:
            self._tell(state.line, Fate.SUPERSEDED)
        return outdone

    def _left(self, uri: str) -> State | None:
        """The newest state without a happening, unless it says what is known already."""
        pool: list[State] = []
        present = self._held(uri)
        for state in self._pool.pop(uri, []):
            if present is not None and present.metadata == self._whole(state):
                self._tell(state.line, Fate.UNCHANGED)
                self._keep(uri, present, state.kept)
                pool = [one for one in pool if not is_outdone(one, state)]
            else:
                self._tell(state.line, Fate.SUPERSEDED)
                pool.append(state)
        if not pool:
            return None
        state = newest(pool)
        self._tell(state.line, Fate.WAITING)
        return state

    def _keep(self, uri: str, present: Present, kept: bytes) -> None:
        """Other unknown fields are no event, and kept all the same (DIT-A19)."""
        if kept != present.note.kept:
            self.joined.notes[uri] = msgspec.structs.replace(present.note, kept=kept)
            self._present[uri] = Present(present.metadata, self.joined.notes[uri])

    def _ahead(self, state: State) -> State | None:
        """A state whose happening has not come: it is applied, and the happening is not logged again when it comes.

        One that seems older than what is known is given back, to wait for nothing but its happening.
        """
        present = self._held(state.uri)
        at_us = present.note.at_us if present is not None else self._gone(state.uri)
        if state.is_doubted or (at_us >= self._settled_us and is_older(state, present, at_us)):
            self._tell(state.line, Fate.SUPERSEDED)
            until = state.doubted_until or self._now + self._waits.doubt
            waits = state.metadata.lastmod is not None and self._now < until and bool(self._waits.doubt)
            return msgspec.structs.replace(state, doubted_until=until) if waits else None
        self._put(state, Note(ahead=True, at_us=at_us, kept=state.kept), None, state.line)
        return None

    def _is_repeated(self, state: State) -> bool:
        """Whether it says what has been replaced or deleted since: only its own change brings it back (DIT-A12)."""
        key, uri = key_of_state(state.uri, state.metadata), state.uri
        is_gone = uri in self._known.gone or uri in self.joined.gone
        is_known = key in self._known.seen or key in self.joined.seen
        return is_known and may_be_repeated(state, self._held(uri), is_gone=is_gone)

    # Happenings

    def _is_first(self, happening: Happening) -> bool:
        key = key_of(happening)
        if key is None:
            return True
        if key in self._known.seen or key in self.joined.seen:
            self._tell(happening.line, Fate.DUPLICATE)
            return False
        self.joined.seen[key] = self._us(happening)
        return True

    def _is_another(self, happening: Happening) -> bool:
        """Whether something known has happened once more within its second, so that it changes something (DIT-A12).

        A deletion: something that was made then is there, or waits. The contrary: such a deletion has removed it.
        """
        uri, at_us, present = happening.uri, self._us(happening), self._held(happening.uri)
        again, waiting = key_of_second_deletion(happening), self._waiting.get(happening.uri)
        if happening.seq:
            return False
        if happening.change is not ChangeKind.DELETED:
            is_known = again in self._known.seen or again in self.joined.seen
            return is_known and present is None and self._gone(uri) == at_us and waiting is None
        is_waited_for = waiting is not None and waiting.at == happening.at
        if waiting is not None and is_waited_for:
            self._alone(self._waiting.pop(uri))
        elif present is None or present.note.ahead or present.note.at_us != at_us:
            return False
        self.joined.seen[again] = at_us
        return True

    def _upsert(self, happening: Happening) -> None:
        uri = happening.uri
        present = self._held(uri)
        at_us = self._us(happening)
        newest = present.note.at_us if present is not None else self._gone(uri)
        late = (happening.at is not None and at_us < newest) or self._is_old(present, happening)
        state = self._match(happening) if happening.own is None else None
        told = happening.own if state is None else self._whole(state)
        if late and present is None:
            self._tell(happening.line, Fate.SUPERSEDED)
        elif late and present is not None and (state is None or is_older(state, present, newest)):
            self._log(present.metadata, present.note, happening)  # the newer state stays
        elif present is not None and was_ahead(present, happening, told):
            kept = present.note.kept if state is None else state.kept
            note = Note(at_us=max(at_us, newest), kept=kept, before_us=present.note.before_us)
            self._present[uri] = Present(present.metadata, note)
            self.joined.notes[uri] = note
            for one in (happening, state):
                self._tell(0 if one is None else one.line, Fate.UNCHANGED)
        elif state is not None:
            note = Note(at_us=max(at_us, newest), kept=state.kept)
            self._put(state, note, happening.at, happening.line, state.line)
        elif happening.own is not None:
            note = Note(at_us=max(at_us, newest), kept=b"" if present is None else present.note.kept)
            self._log(happening.own, note, happening)
            self._outdate(happening)
        elif self._to_come.get(uri):  # what is not here yet will be that of a later change
            self._alone(happening)
        else:
            self._waiting[uri] = happening
            self._tell(happening.line, Fate.WAITING)
        if late and state is not None and (present is None or is_older(state, present, newest)):
            self._tell(state.line, Fate.SUPERSEDED)

    def _delete(self, happening: Happening) -> None:
        uri, at_us = happening.uri, self._us(happening)
        present = self._held(uri)
        late = present is not None and happening.at is not None and at_us < present.note.at_us
        if late or self._is_behind(present, happening.at):
            self._tell(happening.line, Fate.SUPERSEDED)
            return
        self._outdate(happening)
        if present is not None:
            self.joined.seen[key_of_state(uri, present.metadata)] = at_us
        self.joined.gone[uri] = max(at_us, self._gone(uri))
        if present is None:
            self._tell(happening.line, Fate.UNKNOWN)
            return
        self._act(Action(uri=uri, metadata=None, statements=(), at=happening.at), happening.line)
        self._present[uri] = None
        if present.note.ahead and present.metadata.lastmod is not None:  # its own change may be one after this
            said = self._known.said.get(uri, ())
            self._pool.setdefault(uri, []).insert(0, self._doubted(remembered(uri, present, said)))

    def _repeat(self, happening: Happening) -> None:
        """A deletion that is told again, or another one of the same second: what came before it and waits is gone."""
        if happening.change is not ChangeKind.DELETED:
            return
        pool = self._pool.get(happening.uri, [])
        for state in [one for one in pool if one.order < happening.order and moment_of(one) == happening.at]:
            pool.remove(state)
            self._tell(state.line, Fate.SUPERSEDED)

    def _is_behind(self, present: Present | None, moment: dt.datetime | None) -> bool:
        """Whether this lies before a state that has gone ahead; a `lastmod` that is still to come tells nothing."""
        if present is None or not present.note.ahead or moment is None or present.metadata.lastmod is None:
            return False
        return moment < present.metadata.lastmod <= self._now

    def _is_old(self, present: Present | None, happening: Happening) -> bool:
        """Whether a change lies before a state that has gone ahead: its file, and its own time as well.

        One of an older file and a later time waits for its state: an older file may have taken the place of a newer.
        """
        return self._is_behind(present, happening.lastmod) and (
            happening.at is None or self._is_behind(present, happening.at - _LEAST)
        )

    def _outdate(self, one: Happening) -> None:
        """Drop states from before what says itself what it came to, and doubt those from before a deletion.

        They came before it and are not stored after it. One that came before a deletion may be of a change after it
        all the same: exports give every `resource` before the first `change`. So it waits, but for its own change only.
        """
        kept = []
        for state in self._pool.get(one.uri, []):
            moment = moment_of(state)
            newer = moment is not None and one.at is not None and moment > one.at
            its_own = one.own is not None and one.at == state.stored_at
            if newer or its_own or state.order > one.order:
                kept.append(state)
            elif one.own is None and state.metadata.lastmod is not None:
                kept.append(self._doubted(state))
            else:
                self._tell(state.line, Fate.SUPERSEDED)
        if one.uri in self._pool:
            self._pool[one.uri] = kept

    def _doubted(self, state: State) -> State:
        """The state as one that waits for its own change only."""
        return msgspec.structs.replace(state, doubted_until=state.doubted_until or self._now + self._waits.doubt)

    def _alone(self, happening: Happening) -> None:
        """A happening whose state has not come, or has gone by: nothing is stated that may be false (DIT-A13).

        What belongs together stays linked both ways (DIT-24): its own statements stand until its state says otherwise.
        """
        present = self._held(happening.uri)
        if present is not None and self._is_behind(present, happening.lastmod):
            self._log(present.metadata, present.note, happening)  # of the history of what has gone ahead
            return
        if present is not None and present.metadata.lastmod == happening.lastmod:
            metadata, kept = present.metadata, present.note.kept
        else:
            links = () if present is None else tuple(one for one in present.metadata.links if one.rel in INVERSE)
            implied = self._known.implied.get(happening.uri, ())
            metadata, kept = with_links(Metadata(lastmod=happening.lastmod, links=links), implied), b""
        newest = present.note.at_us if present is not None else self._gone(happening.uri)
        self._log(metadata, Note(at_us=max(self._us(happening), newest), kept=kept), happening)

    def _us(self, happening: Happening) -> int:
        """The time of a happening; one from far in the future counts as now, or nothing could ever come after it."""
        if happening.at is None:
            return NEVER_US
        return to_microseconds(self._now if happening.at > self._now + CLOCK_SKEW else happening.at)

    # Effects

    def _put(self, state: State, note: Note, at: dt.datetime | None, *lines: int) -> None:
        metadata, present = self._whole(state), self._held(state.uri)
        if present is not None and present.metadata.lastmod == metadata.lastmod:
            self.joined.seen[key_of_state(state.uri, present.metadata)] = note.at_us
        note = self._noted(state.uri, metadata, note)
        self._present[state.uri] = Present(metadata, note)
        action = Action(uri=state.uri, metadata=metadata, note=note, statements=state.statements, at=at)
        self._act(action, *lines)

    def _log(self, metadata: Metadata, note: Note, happening: Happening) -> None:
        note = self._noted(happening.uri, metadata, note)
        self._present[happening.uri] = Present(metadata, note)
        self._act(Action(uri=happening.uri, metadata=metadata, note=note, at=happening.at), happening.line)

    def _noted(self, uri: str, metadata: Metadata, note: Note) -> Note:
        until_us = replaced_until(self._held(uri), self._gone(uri), metadata.lastmod, self._now)
        return msgspec.structs.replace(note, before_us=until_us)

    def _act(self, action: Action, *lines: int) -> None:
        self.joined.notes.pop(action.uri, None)
        self.joined.actions.append(action)
        for line in lines:
            self._tell(line, Fate.RECORDED, len(self.joined.actions) - 1)

    def _tell(self, line: int, fate: Fate, action: int | None = None) -> None:
        if line:
            self.joined.fates[line] = (fate, action)

    def _whole(self, state: State) -> Metadata:
        """What it says, with the links that follow from what others say now, however long it has waited (DIT-24)."""
        return with_links(state.metadata, self._known.implied.get(state.uri, ()))

    def _held(self, uri: str) -> Present | None:
        return self._present[uri] if uri in self._present else self._known.present.get(uri)

    def _gone(self, uri: str) -> int:
        return self.joined.gone.get(uri, self._known.gone.get(uri, NEVER_US))
