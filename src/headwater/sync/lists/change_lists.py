"""The reader of Change Lists: stages the changes after the position, oldest first (DST-C).

Lists are read in document order; the first
one that cannot be read ends the reading there, so that the position never moves past what was not seen. Lists may
overlap: each of them is judged by the position with which the reading began, and what two of them tell is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.spec.records import Document
from headwater.sync.alternates import represent_changed
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.lists.archives import shortfall
from headwater.sync.lists.capability_lists import unusable
from headwater.sync.lists.documents import DocumentRead, MissingDocument, UnchangedDocument, is_union
from headwater.sync.lists.entries import ChangeListStaging, EntryFilter, ListContext, fold, set_apart
from headwater.sync.lists.position import (
    Break,
    ChangeListFingerprint,
    IndexedList,
    Interval,
    Position,
    ReadList,
    advance,
    closedness,
    is_gap,
    is_past,
    select,
    supported,
    told_again,
    told_until,
    unprocessed,
)
from headwater.sync.source_times import last_micros, micros, source_clock
from headwater.sync.state import CHANGE_LIST, Offer, validators
from headwater.transport.scheduler import RETRIED_STATUSES

_MOST_LISTS = 1_000
"""Of an index without times, in which every list reaches as far as T; those beyond are judged by times alone."""

_DEEPEST = 2  # an index in an index: one extra level (AMB-65)


class ReadingOutcome(Enum):
    """How the reading of a set's Change Lists has ended."""

    UNCHANGED = "unchanged"
    READ = "read"
    GAP = "gap"
    MISSING = "missing"
    BROKEN = "broken"
    ELSEWHERE = "elsewhere"
    """The lists do not read on from where the copy was (DST-C10)."""


class ChangeListReading(msgspec.Struct, kw_only=True):
    """The result of reading Change Lists: outcome, the position once everything pending is done, what to remember."""

    outcome: ReadingOutcome
    position: Position
    documents: list[tuple[str, str | None, str | None]] = []
    reason: str = ""
    fault: SourceFault | None = None
    pending_count: int = 0
    refused_count: int = 0
    """Changes that the scope refuses, which are in `temp.refused` and not among the pending ones."""

    skipped: list[tuple[str, int]] = []
    """Every document that was read, and its count of entries without a resource (DST-F5)."""

    earliest: int | None = None
    """The begin of the oldest list, if that leaves a gap after the position."""

    archives: str | None = None
    """The archive that the Change List, or its index, links (RS-ARC-05)."""


class ChangeListReader:
    """Reads one set's changes after a position into `temp.changed`."""

    def __init__(
        self,
        context: ListContext,
        set_id: int,
        offer: Offer,
        position: Position,
        *,
        before: Position | None = None,
        also_top: bool = False,
        fresh: bool = False,
    ) -> None:
        """`before`: how far the copy was; the lists are to read on from there (DST-C10). None: they may be any.
        `also_top`: where the known open list says nothing new, what is offered is read as well: it may be another list.
        `fresh`: ask past caches.
        """
        self._context = context
        self._documents = context.documents
        self._database = context.database
        self._scope = context.scope
        self._set_id = set_id
        self._offer = offer
        self._intake = EntryFilter(context.scope)
        self._visited: set[str] = set()
        self._indexes: set[str] = set()
        self._reading = ChangeListReading(outcome=ReadingOutcome.UNCHANGED, position=position)
        self._start = position
        self._before = before or Position()
        self._fresh = fresh
        self._is_chain = False
        """Whether archived lists are read in the place of the Change List."""

        self._reads_on = not self._before.lists
        """Whether a list that was read before is known again."""

        self._first: int | None = None
        """Where the first of the lists begins that were read."""

        self._covers = False
        """Whether they tell of the time up to which changes were done."""

        self._told: set[str] = set()
        """Marks of the changes that they tell of the time at which the copy was."""

        self._also_top = also_top
        self._lists = 0
        self._begins: list[int | None] = []
        """Where each list begins that was read, as it says itself."""

        self._numbers: dict[str, int] = {}
        self._listed: list[str] = []
        self._clock = 0
        self._promised: int | None = None
        """The `until` of a list that was read in this run, where by `Date` it lies in the future (DST-C7)."""

        self._any_rows = False

    @property
    def reaches_back(self) -> bool:
        """Whether the lists state that they tell of everything since the position: not just that they state nothing."""
        begins = [one for one in self._begins if one is not None]
        return 0 < len(begins) == len(self._begins) and not is_gap(min(begins), self._start.time)

    def read(self, chain: Sequence[IndexedList] | None = None) -> ChangeListReading:
        """Read from where the position says: the known open list if there is one (RS-DST-09), else from the top.

        `chain`: archived lists, which are read instead; each must tell of all that its archive promises (RS-ARC-27).
        """
        with self._database.write() as t:
            for table in ("changed", "refused", "represented"):
                t.run(f"DELETE FROM temp.{table}")  # noqa: S608  our own names
            t.run("DROP INDEX IF EXISTS temp.changed_uri")
        if chain is not None:
            self._is_chain = True
            self._parts(chain, None, depth=1)
            return self._finish()
        top = self._offer.changes_document
        position = self._start
        if position.open and position.list_uri and not (top and is_union(top)):
            self._follow(position.list_uri, known=True)
            if self._is_last_elsewhere():
                return self._finish()
            if top in (None, position.list_uri):
                return self._finish()
            if self._reading.outcome is ReadingOutcome.MISSING:
                self._reading.outcome = ReadingOutcome.UNCHANGED  # the known list is gone: back to the top (DST-C5)
                self._visited.discard(position.list_uri)  # it was not read: an index that names it has a hole there
                self._start = msgspec.structs.replace(position, list_uri=top)  # it may go on under another address
                if self._before.lists:
                    self._before = msgspec.structs.replace(self._before, list_uri=top)
            elif not self._also_top or self._reading.outcome is not ReadingOutcome.UNCHANGED:
                return self._finish()
        if top is not None:
            self._follow(top, known=False)
        return self._finish()

    def _finish(self) -> ChangeListReading:
        reading = self._reading
        if reading.outcome is ReadingOutcome.READ:
            self._check_reading_on()
        if reading.outcome is ReadingOutcome.ELSEWHERE:
            return reading
        if reading.outcome is ReadingOutcome.READ:
            reading.position = supported(reading.position, self._start, self._clock)
        if not self._any_rows:
            return reading
        with self._database.write() as t:
            if self._context.restate is not None:
                self._context.restate(t, self._set_id)
            fold(t, [self._numbers[uri] for uri in self._listed if uri in self._numbers], self._lists)
            represent_changed(t, self._set_id, self._context.types, self._scope)
            reading.refused_count = set_apart(t)
            reading.pending_count = int(t.value("SELECT count(*) FROM temp.changed WHERE pending"))
        return reading

    # where to read

    def _follow(self, uri: str, *, known: bool) -> bool:
        """Read the document behind `uri`, list or index; False when another way must be tried."""
        self._visited.add(uri)
        found = self._fetch(uri, "the Change List is gone")
        if found is None:
            return False
        answer, staged = found
        if isinstance(answer, UnchangedDocument):
            return self._unchanged(uri)
        if answer.document.kind is Kind.CHANGE_LIST_INDEX:
            self._indexes.update((answer.uri, answer.final))
            return self._index(answer, staged)
        if answer.document.kind is not Kind.CHANGE_LIST:
            wrong = Unreachable(f"this is {answer.document.called}, not a Change List", where=uri, rule="DST-A7")
            return self._broken(uri, wrong)
        if self._is_elsewhere(answer, staged):
            return False
        from_, start = micros(answer.document.from_), self._start
        same = (start.list_uri, start.list_from) == (uri, from_)  # with coarse times T may lie before its list
        begins = staged.begins(from_, start.time)
        if not same and is_gap(begins, self._reach()):
            return self._moved(answer, known=known)
        return self._list(answer, staged) and self._successor(answer)

    # whether the lists read on (DST-C10)

    def _is_elsewhere(self, answer: DocumentRead, staged: ChangeListStaging) -> bool:
        """Whether a list that was read begins earlier by now, or not with what it told then."""
        from_ = micros(answer.document.from_)
        before = self._before.list_before(answer.uri, from_)
        if before is None or before.from_ == from_:
            seen = staged.print if staged.marks else ChangeListFingerprint(self._before, answer.uri, from_)
            self._reads_on = self._reads_on or before is not None
            return seen.rewritten and self._elsewhere(Break.REWRITTEN)
        is_later = from_ is not None and before.from_ is not None and from_ > before.from_
        if is_later and is_union(self._offer.changes_document or ""):
            return self._elsewhere(Break.LATER)  # of others the position may be further
        if is_later or (from_ is not None and not before.count):
            self._reads_on = self._reads_on or not is_later  # from before all that was read: nothing is left out
            return False
        return self._elsewhere(Break.EARLIER)

    def _is_last_elsewhere(self) -> bool:
        """Whether the last list that told of changes is another by now: the one that is polled may have none yet."""
        told = next((one for one in self._before.others if one.count), None)
        if (
            told is None
            or self._before.count
            or self._reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.ELSEWHERE)
        ):
            return False
        try:
            answer, staged = self._read(told.uri)
        except SourceFault:
            return False  # who needs it says so
        if not isinstance(answer, DocumentRead) or answer.document.kind is not Kind.CHANGE_LIST:
            return False
        return self._is_elsewhere(answer, staged)

    def _check_reading_on(self) -> None:
        """Lists that are all others than before have to tell of the last changes that were done."""
        before = self._before
        if self._reads_on or before.time is None:
            return
        if self._first is not None and before.list_from is not None and self._first < before.list_from:
            self._elsewhere(Break.EARLIER)
        elif self._covers and not before.at_time.keys() <= self._told:
            self._elsewhere(Break.LAST)

    def _see(self, answer: DocumentRead, staged: ChangeListStaging, intervals: Sequence[Interval]) -> None:
        """Take what a list tells of the time at which the copy was, where none is known again."""
        time, from_ = self._before.time, answer.document.from_
        if self._reads_on or time is None:
            return
        begins = min((one.low for one in intervals if one.low is not None), default=None)
        if from_ is not None:
            begins = last_micros(from_)
            self._first = min(begins, self._first or begins)
        begins = staged.begins(begins, time)
        self._covers = self._covers or (begins is not None and begins < time)
        self._told.update(
            mark for one, mark in zip(intervals, staged.marks, strict=True) if one.exact and one.low == time
        )

    def _elsewhere(self, reason: Break) -> bool:
        self._reading.outcome, self._reading.reason = ReadingOutcome.ELSEWHERE, reason.value
        return True

    def _read(self, uri: str) -> tuple[DocumentRead | UnchangedDocument | MissingDocument, ChangeListStaging]:
        """The document behind `uri`, and what it told. Raises SourceFault."""
        with self._database.read() as t:
            held = None if self._fresh or self._is_chain else validators(t, self._set_id, uri)
        staged = ChangeListStaging(self._context, self._intake, self._start, self._before, self._lists, uri)
        objection = self._scope.objection
        return self._documents.read(uri, staged, held, fresh=self._fresh, objection=objection), staged

    def _fetch(self, uri: str, gone: str) -> tuple[DocumentRead | UnchangedDocument, ChangeListStaging] | None:
        """The same; None where it cannot be read, and the outcome then says why."""
        try:
            answer, staged = self._read(uri)
        except SourceFault as fault:
            self._broken(uri, fault)
            return None
        self._reads_on = self._reads_on or isinstance(answer, UnchangedDocument)
        if isinstance(answer, DocumentRead):
            self._reading.skipped.append((uri, answer.skipped))
            archives = answer.document.link("archives")
            self._reading.archives = self._reading.archives if archives is None else archives.href
        if isinstance(answer, MissingDocument):
            self._reading.outcome = ReadingOutcome.MISSING
            self._reading.reason = f"{gone}: HTTP status {answer.status}"
            self._documents.warn("DST-C5", self._reading.reason, uri)
            return None
        return answer, staged

    def _unchanged(self, uri: str) -> bool:
        """A 304: nothing new here. A list that is closed, or says so, may have a successor all the same (DST-C2)."""
        position = self._reading.position
        self._promised = position.closed_at if position.list_uri == uri and position.open else None
        grows = position.open and position.closed_at is None
        if position.list_uri != uri or grows or self._offer.capability_list is None:
            return True
        named = self._named_by(self._offer.capability_list)
        if named and named not in self._visited and self._scope.refusal(named) is None:
            return self._follow(named, known=False)
        return True

    def _broken(self, uri: str, fault: SourceFault) -> bool:
        self._reading.outcome = ReadingOutcome.BROKEN
        self._reading.fault = fault
        self._reading.reason = f"{uri}: {fault.what}"
        return False

    def _moved(self, answer: DocumentRead, *, known: bool) -> bool:
        """A list that begins after the position: its index, or the Capability List's word, may reach further back."""
        from_ = micros(answer.document.from_)
        index = answer.document.link("index")
        self._visited.discard(answer.uri)  # the index may name it too
        read = self._read_so_far()
        for way in (index.href if index else None, self._offer.changes_document if known else None):
            if way and way not in {*self._visited, answer.uri} and self._scope.refusal(way) is None:
                if self._follow(way, known=False) and self._read_so_far() != read:
                    return True
                if self._reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.BROKEN, ReadingOutcome.ELSEWHERE):
                    return False
        return self._gap(from_, "the oldest Change List begins after the position")

    def _gap(self, earliest: int | None, reason: str) -> bool:
        self._reading.outcome, self._reading.earliest, self._reading.reason = ReadingOutcome.GAP, earliest, reason
        return False

    def _reach(self) -> int | None:
        """Up to which time changes were told, by the source's own word: T, or the `until` that its clock has reached.

        A clock that is ahead of `Date` closes lists at times that seem to come yet, and goes on from there in the next.
        """
        time = self._reading.position.time
        return time if time is None or self._promised is None else max(time, self._promised)

    def _read_so_far(self) -> tuple[int, int]:
        """Grows with every document that is read; not with one that is unchanged."""
        return self._lists, len(self._reading.documents)

    def _index(self, answer: DocumentRead, staged: ChangeListStaging, depth: int = 1) -> bool:
        reading, read = self._reading, self._lists
        if not self._parts(staged.parts, micros(answer.document.from_), depth):
            return False
        if is_union(answer.uri):
            reading.outcome = ReadingOutcome.READ if self._lists > read else ReadingOutcome.UNCHANGED
        elif depth == 1 and self._indexes.isdisjoint(part.uri for part in staged.parts):
            reading.documents.append((answer.uri, answer.etag, answer.last_modified))
        return True  # of an index of indexes 304 says nothing: what is new is in those (AMB-65)

    def _parts(self, parts: Sequence[IndexedList], from_: int | None, depth: int) -> bool:
        """Read those of the lists that can tell of changes after the position; False where one cannot be read.

        `from_`: where the index that names them begins, as it says.
        """
        reading = self._reading
        selection = select(parts, from_, reading.position.time)
        chosen = select(parts, None, self._start.done_until).parts
        known = [part.from_ for part in parts if part.from_ is not None]
        if selection.gap:
            earliest = min(known) if known else from_
            return self._gap(earliest, "the Change Lists leave out changes after the position")
        if parts and not chosen and self._before.lists:
            self._elsewhere(Break.SHORT)
            return False
        reading.outcome, begins = ReadingOutcome.READ, len(self._begins)
        for number, part in enumerate(chosen):
            self._listed.append(part.uri)
            if not self._part(part, depth):
                self._hold_before(chosen[number:])
                return False
        stated = [one for one in self._begins[begins:] if one is not None]
        if not known and len(stated) == len(parts) and is_gap(min(stated, default=None), self._start.time):
            reading.position = self._start
            return self._gap(min(stated), "the oldest Change List begins after the position")
        return True

    def _hold_before(self, unread: Sequence[IndexedList]) -> None:
        """Lists were not read: the position stays before the first change that they may hold."""
        reading, start = self._reading, self._start
        begins = [part.from_ for part in unread]
        reached = reading.position.time
        if reached is None or all(begin is not None and begin >= reached for begin in begins):
            return
        known = [begin for begin in begins if begin is not None]
        if start.time is None or len(known) < len(begins) or min(known) <= start.time:
            reading.position = start
        else:
            reading.position = msgspec.structs.replace(start, time=min(known), at_time={}, told=None)

    def _part(self, part: IndexedList, depth: int) -> bool:
        uri = part.uri
        if uri in self._indexes:
            return self._broken(uri, WrongDocument("an index lists itself", where=uri, rule="AMB-65"))
        if uri in self._visited:
            return True
        self._visited.add(uri)
        found = self._fetch(uri, f"{uri} is in the index, and missing")
        if found is None:
            self._visited.discard(uri)  # who comes by it again has not read it
            return False
        answer, staged = found
        if isinstance(answer, UnchangedDocument):
            return True
        if self._is_chain and (fault := shortfall(part, answer.document, staged.parts)) is not None:
            return self._broken(uri, fault)
        if answer.document.kind is Kind.CHANGE_LIST_INDEX and depth < _DEEPEST:
            self._indexes.update((answer.uri, answer.final))
            return self._index(answer, staged, depth + 1)
        if answer.document.kind is not Kind.CHANGE_LIST:
            wrong = Unreachable(f"a component is {answer.document.called}", where=uri, rule="DST-A7")
            return self._broken(uri, wrong)
        if self._is_elsewhere(answer, staged):
            return False
        own_from = micros(answer.document.from_)
        if (
            part.from_ is not None
            and own_from is not None
            and own_from > part.from_
            and is_gap(own_from, self._reach())
        ):
            return self._gap(own_from, "a Change List begins later than its index says")
        return self._list(answer, staged)

    def _successor(self, answer: DocumentRead) -> bool:
        """After a closed list: `index`, else `up`, to the list that begins after its `until` (RS-DST-08, DST-C2)."""
        reading = self._reading
        if answer.document.until is None:
            return True
        index, up = answer.document.link("index"), answer.document.link("up")
        if reading.position.open:
            index = None  # `until` is in doubt: only what the Capability List names by now tells more
        if index is not None and index.href not in self._visited and self._scope.refusal(index.href) is None:
            return self._follow(index.href, known=False)
        named = self._named_by(up.href) if up is not None else None
        if named and named not in self._visited and self._scope.refusal(named) is None:
            return self._follow(named, known=False)
        return True

    def _named_by(self, capability_list: str) -> str | None:
        """The Change List that a Capability List now names; None when it cannot be read: then that is told (DST-C2)."""
        if self._scope.refusal(capability_list) is not None:
            return None
        with self._database.read() as t:
            held = validators(t, self._set_id, capability_list)
        try:
            probe = self._documents.probe(capability_list, validators=held)
        except SourceFault as fault:
            self._broken(capability_list, fault)
            return None
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            why = f"the Capability List cannot be read: {unusable(probe)}"
            self._broken(capability_list, Unreachable(why, where=capability_list, rule="DST-C2"))
            return None
        if probe.status == 304 or probe.document is None or probe.document.kind is not Kind.CAPABILITY_LIST:
            return self._offer.changes_document
        self._reading.documents.append((capability_list, probe.etag, probe.last_modified))
        named = next((entry.loc for entry in probe.entries if entry.capability == CHANGE_LIST), None)
        if named is not None:
            self._offer = self._offer.with_document(CHANGE_LIST, named)
        return named

    # one list

    def _list(self, answer: DocumentRead, staged: ChangeListStaging) -> bool:
        """Mark the entries of one list that are to be done, and move the provisional position over it (DST-5.2).

        False where its times fall: it is not followed (DST-C10).
        """
        reading = self._reading
        passed = _evaluate(answer, staged, self._start, reading.position)
        if passed.falls:
            self._elsewhere(Break.FALLEN)
            return False
        self._see(answer, staged, passed.intervals)
        for rule, remark in passed.remarks:
            self._documents.warn(rule, remark, answer.final)
        if staged.rows:
            pending = set(passed.pending)
            with self._database.write() as t:
                staged.mark(t, passed.intervals, pending)
            self._any_rows = True
        reading.position = passed.position
        self._promised = passed.position.closed_at if passed.position.open else None
        if answer.is_package:
            reading.position = msgspec.structs.replace(passed.position, open=False)  # new changes come in new packages
        reading.documents.append((answer.uri, answer.etag, answer.last_modified))
        reading.outcome = ReadingOutcome.READ
        self._clock = max(self._clock, micros(answer.read_at) or 0)
        self._numbers[answer.uri] = self._lists
        self._begins.append(micros(answer.document.from_))
        self._lists += 1
        return True


# what is to be done of one list, and how far it brings us (DST-5.2)


class _Evaluation(msgspec.Struct, frozen=True):
    """The times of all entries, which of them are pending, the position once those are done, and what was odd.

    `falls`: some time from the first entry after T on is earlier than one before it.
    """

    intervals: list[Interval]
    pending: list[int]
    position: Position
    remarks: list[tuple[str, str]]
    falls: bool = False


def _evaluate(answer: DocumentRead, staged: ChangeListStaging, start: Position, reached: Position) -> _Evaluation:
    """Judge one list by the position with which the reading began. `reached`: what the lists before it have brought."""
    document = answer.document
    from_, until, times = micros(document.from_), micros(document.until), staged.stated.times
    stated = max((one.low for one in times if one.low is not None), default=None)
    clock = source_clock(micros(answer.read_at) or 0, start.time, from_, stated)
    order = staged.stated.changes(staged.begins(from_, start.time), clock)
    intervals, remarks = order.intervals, list(order.remarks())
    begins = None if document.from_ is None else last_micros(document.from_)
    again = told_again(start, answer.uri, from_, begins)
    done = staged.print.done if start.lists else None
    if done is None and start.done_until is not None:  # what a baseline was made after is done, in whatever order
        for n in order.fallen:
            stated = times[n].lastmod if times[n].high is None else times[n].high
            if stated is not None and is_past(stated, start.done_until):
                intervals[n] = Interval(stated, stated, exact=True)
    pending = list(unprocessed(intervals, staged.marks, start, done, again))
    is_closed, remark = closedness(from_, until, _newest(document, intervals, until), clock)
    if remark:
        remarks.append(("DST-C7", remark))
    time, at_time = advance(reached, intervals, staged.marks)
    if is_closed and until is not None and (time is None or until > time):
        time, at_time = until, {}
    position = Position(
        time=time,
        at_time=at_time,
        list_uri=answer.uri,
        list_from=from_,
        count=staged.print.count,
        fingerprint=staged.print.hexdigest(),
        open=not is_closed,
        closed_at=until,
        others=_others(reached, answer.uri, from_, time, has_entries=staged.print.count > 0),
        told=told_until(start, reached, _latest(intervals, from_, until if is_closed else None), time),
    )
    at_t = Interval(start.time, start.time, exact=True)  # of T itself a list may tell what a baseline has
    first = next((n for n in pending if done is not None or intervals[n] != at_t), None)
    falls = first is not None and any(n >= first for n in order.fallen)
    return _Evaluation(intervals, pending, position, remarks, falls)


def _others(reached: Position, uri: str, from_: int | None, time: int | None, *, has_entries: bool) -> list[ReadList]:
    """The lists to be known again beside this one: those that the next reading may come to (DST-C10).

    Where this one has nothing yet by which it is known, the last one that had something is among them.
    """
    here = reached.list_before(uri, from_)
    others = [one for one in reached.lists if one.uri != uri and one is not here]
    kept = [one for one in others if one.until is None or time is None or not is_past(one.until, time)]
    if not has_entries and not any(one.count for one in kept):
        kept += [one for one in others if one.count][:1]
    return kept[:_MOST_LISTS]


def _newest(document: Document, intervals: list[Interval], until: int | None) -> int | None:
    """The latest time of a change; no later than `until` where that names a period, perhaps a day, in which it lies."""
    newest = max((i.low for i in intervals if i.exact and i.low is not None), default=None)
    if newest is None or until is None or document.until is None:
        return newest
    return newest if newest > last_micros(document.until) else min(newest, until)


def _latest(intervals: list[Interval], from_: int | None, until: int | None) -> int | None:
    """The latest moment that a list tells of."""
    stated = [interval.low for interval in intervals] + [from_, until]
    return max((moment for moment in stated if moment is not None), default=None)
