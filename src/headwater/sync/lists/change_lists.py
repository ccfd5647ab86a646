"""The reader of Change Lists: stages the changes after the position, oldest first (DST-C).

Lists are read in document order; the first one that cannot be read ends the reading there, so that the position never
moves past what was not seen. Lists may overlap: each of them is judged by the position with which the reading began,
and what two of them tell is done once.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.sync.connection import Unreachable, WrongDocument
from headwater.sync.linked_resources import put_changed
from headwater.sync.lists.archives import shortfall
from headwater.sync.lists.documents import DocumentRead, MissingDocument, UnchangedDocument, is_union, offer_of
from headwater.sync.lists.entries import DEEPEST_INDEX, ChangeListStaging, EntryFilter, ListContext, fold, set_apart
from headwater.sync.lists.position import (
    NEVER,
    Break,
    ChangeListFingerprint,
    ChangeTimes,
    IndexedList,
    Interval,
    Position,
    effective,
    is_gap,
    is_past,
    leaves_gap,
    touching,
)
from headwater.sync.source_times import SECOND, micros, source_clock
from headwater.sync.state import CHANGE_LIST, Offer, validators
from headwater.transport.scheduler import RETRIED_STATUSES

_MOST_LISTS = 1_000
"""Of an index without times, in which every list reaches as far as T; those beyond are judged by times alone."""

_SLACK = 5 * SECOND
"""An `until` up to this far beyond the answer's clock (whole seconds, some skew) is taken as now."""


class ReadingOutcome(Enum):
    """How the reading of a set's Change Lists has ended."""

    UNCHANGED = "unchanged"
    READ = "read"
    GAP = "gap"
    MISSING = "missing"
    BROKEN = "broken"
    ELSEWHERE = "elsewhere"  # the lists do not read on from where the copy was (DST-C10)


class ChangeListReading(msgspec.Struct, kw_only=True):
    """The result of reading Change Lists: outcome, the position once everything pending is done, what to remember."""

    outcome: ReadingOutcome
    position: Position
    documents: list[tuple[str, str | None, str | None]] = []
    reason: str = ""
    fault: SourceFault | None = None
    pending_count: int = 0
    refused_count: int = 0  # changes that the scope refuses, which are in `temp.refused` and not among the pending ones
    skipped: list[tuple[str, int]] = []
    """Every document that was read, and its count of entries without a resource (DST-F5)."""

    earliest: int | None = None  # the begin of the oldest list, if that leaves a gap after the position
    archives: str | None = None  # the archive that the Change List, or its index, links (RS-ARC-05)


@dataclass
class ChangeListReader:
    """Reads one set's changes after a position into `temp.changed`.

    `before`: how far the copy was; the lists are to read on from there (DST-C10). None: they may be any. `also_top`:
    where the known open list says nothing new, what is offered is read as well: it may be another list. `fresh`: ask
    past caches.
    """

    context: ListContext
    set_id: int
    offer: Offer
    position: Position
    _: KW_ONLY
    before: Position | None = None
    also_top: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        self._documents = self.context.documents
        self._database = self.context.database
        self._scope = self.context.scope
        self._intake = EntryFilter(self.context.scope)
        self._visited: set[str] = set()
        self._indexes: set[str] = set()
        self._reading = ChangeListReading(outcome=ReadingOutcome.UNCHANGED, position=self.position)
        self._start = self.position
        self._before = self.before or Position()
        self._is_chain = False
        """Whether archived lists are read in the place of the Change List."""

        self._reads_on = self._before.is_unread
        """Whether a list that was read before is known again, or another one has what was read last."""

        self._read_lists: dict[str, IndexedList] = {}
        """The lists that were read, in their order, each with its period as it says itself."""

        self._listed: list[str] = []

    def read(self, chain: Sequence[IndexedList] | None = None) -> ChangeListReading:
        """Read from where the position says: the known open list if there is one (RS-DST-09), else from the top.

        `chain`: archived lists, which are read instead; each must tell of all that its archive promises (RS-ARC-27).
        """
        with self._database.write() as t:
            for table in ("changed", "refused"):
                t.run(f"DELETE FROM temp.{table}")  # noqa: S608  our own names
            t.run("DROP INDEX IF EXISTS temp.changed_uri")
        if chain is not None:
            self._is_chain = True
            self._parts(chain, None, depth=1)
            return self._finish()
        top = self.offer.changes_document
        position = self._start
        if position.open and position.list_uri and not (top and is_union(top)):
            self._follow(position.list_uri)
            if self._is_last_elsewhere() or top in (None, position.list_uri):
                return self._finish()
            if self._reading.outcome is ReadingOutcome.MISSING:
                self._reading.outcome = ReadingOutcome.UNCHANGED  # the known list is gone: back to the top (DST-C5)
                self._visited.discard(position.list_uri)  # it was not read: an index that names it has a hole there
            elif not self.also_top or self._reading.outcome is not ReadingOutcome.UNCHANGED:
                return self._finish()
        if top is not None:
            self._follow(top)
        return self._finish()

    def _finish(self) -> ChangeListReading:
        reading = self._reading
        if reading.outcome is ReadingOutcome.READ and not self._reads_on:  # all are others than before
            self._elsewhere(Break.LAST)
        if reading.outcome is ReadingOutcome.ELSEWHERE or not self._intake.has_staged:
            return reading
        numbers = {uri: number for number, uri in enumerate(self._read_lists)}
        with self._database.write() as t:
            t.run("DELETE FROM temp.changed WHERE list >= ?", (len(numbers),))  # of one that could not be read
            if self.context.restate is not None:
                self.context.restate(t, self.set_id)
            fold(t, [numbers[uri] for uri in self._listed if uri in numbers], len(numbers))
            if self.context.choice.by_links:
                put_changed(t, self.set_id, self.context.choice.prefer_types, self._scope)
            reading.refused_count = set_apart(t)
            reading.pending_count = int(t.value("SELECT count(*) FROM temp.changed WHERE pending"))
        return reading

    # where to read

    def _follow(self, uri: str, part: IndexedList | None = None, depth: int = 0) -> bool:
        """Read the document behind `uri`, list or index, of which an index says `part`; False when another way must be
        tried."""
        self._visited.add(uri)
        found = self._fetch(uri, "the Change List is gone" if part is None else f"{uri} is in the index, but missing")
        if found is None:
            if part is not None:
                self._visited.discard(uri)  # who comes by it again has not read it
            return False
        answer, staged = found
        if isinstance(answer, UnchangedDocument):
            reached, named_by = self._reading.position, self.offer.capability_list
            grows = reached.open and reached.closed_at is None
            if part is not None or reached.list_uri != uri or grows or named_by is None:
                return True
            return self._follow_named(named_by)  # that is closed, or says so: it may have a successor (DST-C2)
        document = answer.document
        if part is not None and self._is_chain and (fault := shortfall(part, document, staged.parts)) is not None:
            return self._broken(uri, fault)
        if document.kind is Kind.CHANGE_LIST_INDEX and depth < DEEPEST_INDEX:
            self._indexes.update((answer.uri, answer.final))
            return self._index(answer, staged, depth + 1)
        if document.kind is not Kind.CHANGE_LIST:
            what = f"a component is {document.called}" if part else f"this is {document.called}, not a Change List"
            return self._broken(uri, Unreachable(what, where=uri, rule="DST-A7"))
        if not self._is_read_on(answer, staged):
            return False
        if part is not None:
            return self._list(answer, staged)
        from_ = micros(document.from_)
        if is_gap(staged.begins(from_, self._start.time), self._reading.position.reach):
            return self._moved(answer)
        self._reads_on = self._reads_on or (from_ is not None and from_ == self._before.reach)  # all is to be done
        return self._list(answer, staged) and self._successor(answer)

    def _is_new(self, uri: str) -> bool:
        return uri not in self._visited and self._scope.refusal(uri) is None

    # whether the lists read on (DST-C10)

    def _is_read_on(self, answer: DocumentRead, staged: ChangeListStaging) -> bool:
        """Whether no list that was read begins earlier by now, or not with what it told then."""
        from_ = micros(answer.document.from_)
        if self._before.is_unread and from_ is not None:
            known = {one.uri: one.from_ for one in self._before.lists if one.from_ is not None}
            is_earlier = from_ < min(known.values(), default=from_)
            is_there = not self._visited.isdisjoint(known.keys() - {answer.uri})  # another is beside it
            return not is_earlier or is_there or self._gap(from_, Break.EARLIER.value)
        before = self._before.list_before(answer.uri, from_)
        seen = staged.print if staged.times else ChangeListFingerprint(self._before, answer.uri, from_)
        self._reads_on = self._reads_on or seen.has_last or (seen.matches and before in self._before.latest)
        if before is None or seen.comparable:
            return seen.matches or not seen.comparable or self._elsewhere(Break.REWRITTEN)
        is_later = from_ is not None and before.from_ is not None and from_ > before.from_
        if is_later and not is_union(self.offer.changes_document or ""):
            return True  # the position may be further
        return self._elsewhere(Break.LATER if is_later else Break.EARLIER)

    def _is_last_elsewhere(self) -> bool:
        """Whether the last list that told of changes is another by now: the one that is polled may have none yet."""
        told = next((one for one in self._before.others if one.count), None)
        is_settled = self._reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.ELSEWHERE)
        if told is None or self._before.count or is_settled:
            return False
        try:
            answer, staged = self._read(told.uri)
        except SourceFault:
            return False  # who needs it says so
        if not isinstance(answer, DocumentRead) or answer.document.kind is not Kind.CHANGE_LIST:
            return False
        return not self._is_read_on(answer, staged)

    def _end(self, outcome: ReadingOutcome, reason: str, fault: SourceFault | None = None) -> bool:
        self._reading.outcome, self._reading.reason, self._reading.fault = outcome, reason, fault
        return False

    def _elsewhere(self, reason: Break) -> bool:
        return self._end(ReadingOutcome.ELSEWHERE, reason.value)

    def _broken(self, uri: str, fault: SourceFault) -> bool:
        return self._end(ReadingOutcome.BROKEN, f"{uri}: {fault.what}", fault)

    def _gap(self, earliest: int | None, reason: str = "the oldest Change List begins after the last run") -> bool:
        self._reading.earliest = earliest
        return self._end(ReadingOutcome.GAP, reason)

    def _read(self, uri: str) -> tuple[DocumentRead | UnchangedDocument | MissingDocument, ChangeListStaging]:
        """The document behind `uri`, and what it told. Raises SourceFault."""
        with self._database.read() as t:
            held = None if self.fresh or self._is_chain else validators(t, self.set_id, uri)
        staged = ChangeListStaging(self.context, self._intake, self._start, self._before, len(self._read_lists), uri)
        objection = self._scope.objection
        return self._documents.read(uri, staged, held, fresh=self.fresh, objection=objection), staged

    def _fetch(self, uri: str, gone: str) -> tuple[DocumentRead | UnchangedDocument, ChangeListStaging] | None:
        """The same; None where it cannot be read, and the outcome then says why."""
        try:
            answer, staged = self._read(uri)
        except SourceFault as fault:
            self._broken(uri, fault)
            return None
        if isinstance(answer, UnchangedDocument):
            self._reads_on = self._reads_on or any(one.uri == uri for one in self._before.latest)
        if isinstance(answer, DocumentRead):
            self._reading.skipped.append((uri, answer.skipped))
            archives = answer.document.link("archives")
            self._reading.archives = self._reading.archives if archives is None else archives.href
        if isinstance(answer, MissingDocument):
            self._end(ReadingOutcome.MISSING, f"{gone}: HTTP status {answer.status}")
            self._documents.warn("DST-C5", self._reading.reason, uri)
            return None
        return answer, staged

    def _moved(self, answer: DocumentRead) -> bool:
        """A list that begins after the position: its index, or the Capability List's word, may reach further back."""
        index = answer.document.link("index")
        read = len(self._reading.documents)
        for way in (index.href if index else None, self.offer.changes_document):
            if way and way != answer.uri and self._is_new(way):
                self._visited.discard(answer.uri)  # the index may name it too
                if self._follow(way) and len(self._reading.documents) != read:
                    return True
                if self._reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.BROKEN, ReadingOutcome.ELSEWHERE):
                    return False
        return self._gap(micros(answer.document.from_))

    def _index(self, answer: DocumentRead, staged: ChangeListStaging, depth: int = 1) -> bool:
        reading, read = self._reading, len(self._read_lists)
        if not self._parts(staged.parts, micros(answer.document.from_), depth):
            return False
        if is_union(answer.uri):
            reading.outcome = ReadingOutcome.READ if len(self._read_lists) > read else ReadingOutcome.UNCHANGED
        elif depth == 1 and self._indexes.isdisjoint(part.uri for part in staged.parts):
            reading.documents.append((answer.uri, answer.etag, answer.last_modified))
        return True  # of an index of indexes 304 says nothing: what is new is in those (AMB-65)

    def _parts(self, parts: Sequence[IndexedList], from_: int | None, depth: int) -> bool:
        """Read those of the lists that can tell of changes after the position; False where one cannot be read.

        `from_`: where the index that names them begins, as it says.
        """
        reading, reach, done_until = self._reading, self._reading.position.reach, self._start.done_until
        chosen = touching(parts, -NEVER if done_until is None else done_until, NEVER)
        earliest = min((part.from_ for part in parts if part.from_ is not None), default=from_)
        left_out = "the Change Lists lack changes after the last run"
        if leaves_gap(chosen, from_, reach):
            return self._gap(earliest, left_out)
        reading.outcome = ReadingOutcome.READ
        for part in chosen:
            self._listed.append(part.uri)
            if part.uri in self._indexes:
                is_read = self._broken(part.uri, WrongDocument("an index lists itself", where=part.uri, rule="AMB-65"))
            else:
                is_read = part.uri in self._visited or self._follow(part.uri, part, depth)
            if not is_read:
                reading.position = self._start  # whatever was read is done once more with what was not
                return False
        if leaves_gap([self._read_lists.get(part.uri, part) for part in chosen], from_, reach):
            reading.position = self._start  # as the lists themselves say
            return self._gap(earliest, left_out)
        return True

    def _successor(self, answer: DocumentRead) -> bool:
        """After a closed list: `index`, else `up`, to the list that begins after its `until` (RS-DST-08, DST-C2)."""
        index, up = answer.document.link("index"), answer.document.link("up")
        if answer.document.until is None:
            return True
        is_open = self._reading.position.open  # `until` is in doubt: what the Capability List names by now tells more
        if index is not None and not is_open and self._is_new(index.href):
            return self._follow(index.href)
        return up is None or self._follow_named(up.href)

    def _follow_named(self, capability_list: str) -> bool:
        """Follow the Change List that a Capability List now names; one that cannot be read is told (DST-C2)."""
        if self._scope.refusal(capability_list) is not None:
            return True
        with self._database.read() as t:
            held = validators(t, self.set_id, capability_list)
        try:
            probe = self._documents.probe(capability_list, validators=held)
        except SourceFault as fault:
            self._broken(capability_list, fault)
            return True
        if probe.document is None and (probe.status == 200 or probe.status in RETRIED_STATUSES):
            why = f"the Capability List cannot be read: {probe.unusable}"
            self._broken(capability_list, Unreachable(why, where=capability_list, rule="DST-C2"))
            return True
        named = self.offer.changes_document
        if probe.document is not None and probe.document.kind is Kind.CAPABILITY_LIST:
            self._reading.documents.append((capability_list, probe.etag, probe.last_modified))
            named = offer_of(probe, self.offer.description, self._documents).documents.get(CHANGE_LIST)
            if named is not None:
                self.offer = self.offer.with_document(CHANGE_LIST, named)
        return self._follow(named) if named and self._is_new(named) else True

    # one list

    def _list(self, answer: DocumentRead, staged: ChangeListStaging) -> bool:
        """Mark the entries of one list that are to be done, and move the provisional position over it (DST-5.2).

        False where times fall: then the list is not followed (DST-C10).
        """
        reading, start, document = self._reading, self._start, answer.document
        from_, until = micros(document.from_), micros(document.until)
        begins = staged.begins(from_, start.time)
        stated = max((one.low for one in staged.times if one.low is not None), default=None)
        clock = source_clock(micros(answer.read_at) or 0, start.time, from_, stated)
        order = effective(staged.times, begins, staged.until, clock)
        intervals = order.intervals
        pending = self._pending(staged, order)
        if pending is None:
            return self._elsewhere(Break.FALLEN)
        newest = max((time for time in (begins, *(one.low for one in intervals)) if time is not None), default=None)
        is_closed = until is not None and (newest or 0) <= until <= clock + _SLACK
        if order.odd_count:
            odd = "1 change has" if order.odd_count == 1 else f"{order.odd_count:,} changes have"
            self._documents.warn("DST-C9", f"{odd} a time that cannot be right", answer.final)
        if until is not None and not is_closed:
            self._documents.warn("DST-C7", "`until` is in the future, or before the list's changes", answer.final)
        if staged.rows:
            with self._database.write() as t:
                staged.mark(t, intervals, set(pending))
        newest = until if is_closed else newest  # which it is no later than
        is_open = not is_closed and answer.own_kind is not Kind.CHANGE_DUMP_MANIFEST  # new changes: in new packages
        self._read_lists[answer.uri] = IndexedList.of(answer.uri, document)
        last = reading.position.last
        if intervals:  # an entry without a moment of its own may be told again for another change
            last = staged.print.last if intervals[-1].exact else ""
        reading.position = self._after(answer, staged, newest, last, is_open=is_open)
        reading.documents.append((answer.uri, answer.etag, answer.last_modified))
        reading.outcome = ReadingOutcome.READ
        return True

    def _pending(self, staged: ChangeListStaging, order: ChangeTimes) -> list[int] | None:
        """The ordinals of the entries that are to be done; None where a time behind the first of them falls.

        What the digest knows is done, and all behind it is not, whatever its time (DST-C9). Of a list that was not read
        before the time decides; at T itself all is done again, for the hash decides (DST-5.2). What a baseline was made
        after is done, in whatever order; of the very time of one a list may tell what the baseline has.
        """
        start, intervals = self._start, order.intervals
        done, done_until = staged.print.done if start.lists else None, start.done_until
        if done is not None:
            return None if any(n >= done for n in order.fallen) else list(range(done, len(intervals)))
        for n in order.fallen:
            own = staged.times[n]
            at = own.lastmod if own.high is None else own.high
            if at is not None and done_until is not None and is_past(at, done_until):
                intervals[n] = Interval(at, at, exact=True)
        pending = [n for n, one in enumerate(intervals) if done_until is None or not is_past(one.high, done_until)]
        later = (n for n in pending if not intervals[n].exact or intervals[n].low not in (start.time, done_until))
        first = next(later, len(intervals))
        return None if any(n >= first for n in order.fallen) else pending

    def _after(
        self, answer: DocumentRead, staged: ChangeListStaging, newest: int | None, last: str, *, is_open: bool
    ) -> Position:
        """The position once all entries of a list, of which `newest` is the latest time, are done.

        T never goes back (DST-F12). After a baseline only that is certain to be done which was told until then: a list
        may tell later what was before its `at` (DST-4.5).
        """
        reached, uri = self._reading.position, answer.uri
        from_, until = micros(answer.document.from_), micros(answer.document.until)
        done_until = None if reached.list_uri is None else reached.done_until
        told = max((one for one in (done_until, newest) if one is not None), default=None)
        time = max((one for one in (reached.time, told) if one is not None), default=None)
        # the lists to be known again beside this one are those that the next reading may come to (DST-C10); where this
        # one has nothing yet by which it is known, the last one that had something is among them
        here = reached.list_before(uri, from_)
        others = [one for one in reached.lists if one.uri != uri and (one != here or one.uri in self._read_lists)]
        kept = [one for one in others if one.until is None or told is None or not is_past(one.until, told)]
        if not staged.print.count and not any(one.count for one in kept):
            kept += [one for one in others if one.count][:1]
        return Position(
            time=time,
            told=told if told is not None and time is not None and told < time else None,
            list_uri=uri,
            list_from=from_,
            count=staged.print.count,
            fingerprint=staged.print.hexdigest(),
            last=last,
            open=is_open,
            closed_at=until,
            others=kept[:_MOST_LISTS],
        )
