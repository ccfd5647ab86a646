"""Polling of sets: which documents are asked for first, the Capability List anew, and how long to wait.

How long the source asks to wait is told by its answers (DST-C1, DST-C6). Thousands of sets that have not changed cost a
conditional request each; these are sent many at a time, before the sets have their turn one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.connection import Scope, Unreachable, cause_of
from headwater.sync.lists.documents import (
    CAPABILITY_LISTS,
    MOST_ENTRIES,
    ConditionalRequest,
    Documents,
    Probe,
    offer_of,
)
from headwater.sync.options import SyncOptions, signature_of
from headwater.sync.sets.moved_sets import is_move, known_as
from headwater.sync.source_times import DAY, SECOND
from headwater.sync.state import SOURCE, Move, Offer, SetRow, keep_fact, keep_offer, keep_validators, validators
from headwater.transport.fetch import Fetched
from headwater.transport.transport import StreamedAnswer

# the Capability List, asked for anew

_PREFIX = "offer asked for at"
_SINCE = f"{_PREFIX} all"
"""The fact from which the first times of all sets follow."""

_MINUTES = 1_440
_STRIDE = 719
"""Minutes between the times of day of one set and the next: they are spread over the day."""


class RefreshedOffer(msgspec.Struct, frozen=True):
    """What is offered of a set by now, and where its first document is permanently redirected to."""

    offer: Offer
    moved_to: str | None


def place_of(offer: Offer) -> str | None:
    """Where the document of a set is that tells of all others: its Capability List, else its only list."""
    return offer.capability_list or offer.baseline_document or offer.changes_document


def refreshed_offer(documents: Documents, held: Offer, uri: str) -> RefreshedOffer | None:
    """What that document, now asked for at `uri`, offers of a set; None where there is no such document."""
    most = MOST_ENTRIES if held.capability_list is not None else 1
    try:
        probe = documents.probe(uri, most_entries=most)
    except SourceFault:
        return None
    if probe.document is None or (probe.document.kind in CAPABILITY_LISTS) is (held.capability_list is None):
        return None
    if held.capability_list is not None:
        return RefreshedOffer(
            known_as(offer_of(probe, held.description, documents), held, probe.moved_to), probe.moved_to
        )
    where = probe.moved_to or uri
    capability = next(iter(held.documents))  # a document that stands for itself
    return RefreshedOffer(held.with_document(capability, where), probe.moved_to)


class OfferRefresh:
    """Asks for Capability Lists, as seldom as each needs it."""

    def __init__(
        self,
        documents: Documents,
        database: Database,
        now: int,
        unread: Collection[str],
        unreadable: Callable[[str, str, str, SourceFault | None], None],
    ) -> None:
        """`now`: microseconds of the copy's own clock; `unread`: those that failed before in this run; `unreadable`
        hears of others."""
        self._documents = documents
        self._database = database
        self._now = now
        self._unread = unread
        self._unreadable = unreadable
        with database.read() as t:
            rows = t.fetch("SELECT name, value FROM facts WHERE name GLOB ?", (f"{_PREFIX} *",))
        self._asked_at = {name: int(value) for name, value in rows}
        if _SINCE not in self._asked_at:
            self._note_asked(_SINCE)

    def _is_due(self, set_id: int) -> bool:
        """Whether a day has passed since the set was asked for, which is noted. The first day is a part of one."""
        name = f"{_PREFIX} {set_id}"
        first = self._asked_at[_SINCE] - set_id * _STRIDE % _MINUTES * 60 * SECOND
        if self._now - DAY < self._asked_at.get(name, first) <= self._now:
            return False
        self._note_asked(name)
        return True

    def _note_asked(self, name: str) -> None:
        self._asked_at[name] = self._now
        with self._database.write() as t:
            keep_fact(t, name, str(self._now))

    def of(self, row: SetRow) -> SetRow:
        """Where there is no Change List to poll, the Capability List is: it may name one, or another dump, by now.

        Beside one that is polled it is asked for once a day: it may name another, while the former says nothing new.
        """
        if row.move is None and place_of(row.offer) not in (None, row.offer.identity):
            row = self._at_its_address(row)
        if row.move is not None:
            return row  # it was just read
        uri = row.offer.capability_list
        if row.position is None or uri is None or uri in self._unread:
            return row
        is_polled = row.offer.change_list is not None
        if is_polled:
            if not self._is_due(row.id):
                return row
            row = msgspec.structs.replace(row, is_offer_asked=True)
        with self._database.read() as t:
            held = validators(t, SOURCE, uri)
        try:
            probe = self._documents.probe(uri, validators=held)
        except SourceFault as fault:
            what = f"the Capability List cannot be read: {fault.what}"
            self._tell(fault.rule or fault.code, what, uri, fault, is_polled=is_polled)
            return row
        if probe.status == 304:
            return row
        if probe.document is None or probe.document.kind not in CAPABILITY_LISTS:
            why = probe.fault.what if probe.fault is not None else f"HTTP status {probe.status}"
            refused = probe.refused or Unreachable(why, where=uri, cause=cause_of(probe.status))
            self._tell("DST-A6", f"the Capability List cannot be read: {why}", uri, refused, is_polled=is_polled)
            return row
        fresh = offer_of(probe, row.offer.description, self._documents)
        return self._with_offer(row, fresh, probe)

    def _tell(self, rule: str, what: str, uri: str, fault: SourceFault, *, is_polled: bool) -> None:
        """A Change List that is polled tells of changes all the same: then it is no fault of the run."""
        if is_polled:
            self._documents.warn(rule, what, uri)
        else:
            self._unreadable(rule, what, uri, fault)

    def _at_its_address(self, row: SetRow) -> SetRow:
        """Whether the address that the user gave for a set still redirects to where the set is said to be (DST-F10).

        Who could answer in the source's place once, over plain http perhaps, does not keep the copy for good.
        """
        found = refreshed_offer(self._documents, row.offer, row.offer.identity)
        if found is None or found.moved_to == place_of(row.offer) or not is_move(row.offer, found.offer):
            return row
        return msgspec.structs.replace(row, offer=found.offer, move=Move(row.offer))

    def _with_offer(self, row: SetRow, fresh: Offer, probe: Probe) -> SetRow:
        offer = known_as(fresh, row.offer, probe.moved_to)
        if probe.moved_to is not None and is_move(row.offer, offer):
            return msgspec.structs.replace(row, offer=offer, move=Move(row.offer))
        with self._database.write() as t:
            keep_offer(t, row.id, offer)
            keep_validators(t, SOURCE, probe.uri, probe.etag, probe.last_modified, self._documents.moved.get(probe.uri))
        return msgspec.structs.replace(row, offer=offer)


_MOST_DOCUMENTS = 400_000  # a first run asks for a few of each of many sets


def polled_by(row: SetRow) -> str | None:
    """The document of a set that says first that there is something new."""
    if row.position is not None and row.position.open and row.position.list_uri:
        return row.position.list_uri
    return row.offer.changes_document or row.offer.baseline_document or row.offer.capability_list


def asked_first(
    t: Transaction, rows: Sequence[SetRow], options: SyncOptions, scopes: Mapping[int, Scope]
) -> list[ConditionalRequest]:
    """The conditional requests with which these sets begin, as far as that is known beforehand."""
    if options.baseline or options.repair or options.accept_reset:
        return []
    signature = signature_of(options)
    found: list[ConditionalRequest] = []
    for row in rows:
        if row.position is None or row.move is not None or row.scope not in (None, signature):
            continue
        for number, uri in _documents(row):
            held = validators(t, number, uri)
            if held is not None and scopes[row.id].refusal(uri) is None:
                found.append((uri, held, scopes[row.id].objection if number != SOURCE else None))
    return found


def _documents(row: SetRow) -> Iterator[tuple[int, str]]:
    """The documents that are asked for, and whose validators they are asked with."""
    uri = polled_by(row)
    if row.offer.change_list is None and row.offer.capability_list is not None:
        yield SOURCE, row.offer.capability_list
    if uri is not None and (row.offer.changes_document is not None or row.baseline_done):
        yield row.id, uri


class PollingHints:
    """Hears every document of one run, and says how long the source does not want to be asked again."""

    def __init__(self) -> None:
        self.retry_after_seconds: float | None = None
        self.max_age_seconds: float | None = None
        self._fresh: dict[str, float] = {}

    def hear(self, uri: str, answer: StreamedAnswer | Fetched) -> None:
        """Take note of one answer's head."""
        if answer.retry_after_seconds is not None:
            self.retry_after_seconds = max(self.retry_after_seconds or 0.0, answer.retry_after_seconds)
        if len(self._fresh) < _MOST_DOCUMENTS and answer.status in (200, 304):
            self._fresh[uri] = fresh_seconds(answer.headers.get("cache-control"), answer.headers.get("age"))

    def poll(self, uris: Iterable[str]) -> None:
        """Say which documents are polled: the one that goes stale first decides."""
        self.max_age_seconds = min((self._fresh.get(uri, 0.0) for uri in uris), default=0.0) or None


def fresh_seconds(cache_control: str | None, age: str | None) -> float:
    """How long an answer stays fresh by its `max-age`, less the time it has spent in caches; 0 when it does not say."""
    directives = [part.strip().lower().partition("=") for part in (cache_control or "").split(",")]
    names = {name for name, _, _ in directives}
    if names & {"no-cache", "no-store"}:
        return 0.0
    numbers = [value.strip('" ') for name, _, value in directives if name == "max-age"]
    if not numbers or not _is_number(numbers[0]):
        return 0.0
    spent = int(age.strip()[:9]) if age and _is_number(age.strip()) else 0
    return float(max(0, int(numbers[0][:9]) - spent))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# the pause until the next poll

LONGEST_SECONDS = 86_400.0
JITTER = 0.1
_GROWTH = 1.5


class PollInterval(msgspec.Struct, frozen=True):
    """How often the source is asked for changes."""

    seconds: float
    longest_seconds: float | None = None
    """What the interval grows to while nothing changes; None: it does not grow."""


class PollHistory(msgspec.Struct):
    """How many polls in a row have found nothing new, and how many have failed: a failure says nothing of the other."""

    quiet: int = 0
    failures: int = 0

    def polled(self, *, is_busy: bool, has_failed: bool) -> None:
        """A poll has ended."""
        self.failures = self.failures + 1 if has_failed else 0
        if is_busy:
            self.quiet = 0
        elif not has_failed:
            self.quiet += 1


def next_wait(interval: PollInterval, quiet: int, hints: PollingHints, *, failures: int, chance: float) -> float:
    """Seconds until the next poll.

    As asked for while there are changes; up to the longest after `quiet` polls without any, and after `failures` in a
    row to a day at most, however quiet it was before; never sooner than the source has asked for (`Retry-After`), nor
    while what it sent is fresh (`max-age`, which the longest bounds); spread by a tenth with `chance` in 0 to 1.
    """
    wanted, longest = interval.seconds, interval.longest_seconds
    ceiling = min(longest if longest is not None else wanted, LONGEST_SECONDS)
    wait = max(_grown(wanted, quiet, ceiling), _grown(wanted, failures, LONGEST_SECONDS))
    if hints.max_age_seconds is not None:
        wait = max(wait, min(hints.max_age_seconds, LONGEST_SECONDS if longest is None else longest))
    if hints.retry_after_seconds is not None:
        wait = max(wait, min(hints.retry_after_seconds, LONGEST_SECONDS))
    return wait * (1 + JITTER * chance)


def _grown(seconds: float, times: int, longest: float) -> float:
    return min(seconds * _GROWTH ** min(times, 60), max(longest, seconds))
