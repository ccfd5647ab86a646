"""Polling of sets: which documents are asked for first, how a Capability List is read anew, and how long to wait.

How long the source asks to wait is told by its answers (DST-C1, DST-C6). Thousands of sets that have not changed cost a
conditional request each; these are sent many at a time, before the sets have their turn one after another.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

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
from headwater.sync.options import SyncOptions
from headwater.sync.state import CHANGE_LIST, SOURCE, Offer, SetRow, Validators, validators
from headwater.transport.fetch import Fetched

# the Capability List, asked for anew


def place_of(offer: Offer) -> str | None:
    """Where the document of a set is that tells of all others: its Capability List, else its only list."""
    return offer.capability_list or offer.baseline_document or offer.changes_document


def ask_for_offer(
    documents: Documents, held: Offer, uri: str, validators: Validators | None = None
) -> tuple[Offer | None, Probe]:
    """Ask at `uri` what is offered of a set by now; None where that is as it was (304). Raises SourceFault."""
    is_listed = held.capability_list is not None
    probe = documents.probe(uri, most_entries=MOST_ENTRIES if is_listed else 1, validators=validators)
    if probe.status == 304:
        return None, probe
    if probe.document is None or (probe.document.kind in CAPABILITY_LISTS) is not is_listed:
        why = probe.unusable if probe.document is None else f"it is {probe.document.called}"
        raise probe.refused or Unreachable(why, where=uri, rule="DST-A6", cause=cause_of(probe.status))
    if not is_listed:  # a document that stands for itself
        return held.with_document(next(iter(held.documents)), probe.moved_to or uri), probe
    fresh = offer_of(probe, held.description, documents)
    where = probe.moved_to or fresh.capability_list
    return msgspec.structs.replace(fresh, name=held.name, identity=held.identity, capability_list=where), probe


# the documents that are asked for first

_MOST_DOCUMENTS = 400_000  # a first run asks for a few of each of many sets


def polled_by(row: SetRow) -> str | None:
    """The document of a set that says first that there is something new."""
    if row.position is not None and row.position.open and row.position.list_uri:
        return row.position.list_uri
    return row.offer.changes_document or row.offer.baseline_document or row.offer.capability_list


def asked_first(
    t: Transaction, rows: Sequence[SetRow], options: SyncOptions, scope_of: Callable[[Offer], Scope], *, daily: bool
) -> list[ConditionalRequest]:
    """The conditional requests with which these sets begin, as far as that is known beforehand.

    `daily`: all Capability Lists are asked for in this run.
    """
    if options.baseline or options.repair or options.accept_reset:
        return []
    signature = options.choice.signature
    found: list[ConditionalRequest] = []
    for row in rows:
        if row.position is None or row.move is not None or row.scope not in (None, signature):
            continue
        offer, polled, scope = row.offer, polled_by(row), scope_of(row.offer)
        asked = [(SOURCE, offer.capability_list)] if daily or CHANGE_LIST not in offer.documents else []
        if offer.changes_document is not None or row.baseline_done:
            asked.append((row.id, polled))
        for number, uri in asked:
            held = None if uri is None else validators(t, number, uri)
            if uri is not None and held is not None and scope.refusal(uri) is None:
                found.append((uri, held, scope.objection if number != SOURCE else None))
    return found


class PollingHints(msgspec.Struct):
    """Hears every document of one run, and says how long the source does not want to be asked again."""

    retry_after_seconds: float | None = None
    max_age_seconds: float | None = None
    fresh: dict[str, float] = {}
    """For how many seconds each document that was asked for stays fresh."""

    def hear(self, uri: str, answer: Fetched) -> None:
        """Take note of one answer's head."""
        if answer.retry_after_seconds is not None:
            self.retry_after_seconds = max(self.retry_after_seconds or 0.0, answer.retry_after_seconds)
        if len(self.fresh) < _MOST_DOCUMENTS and answer.status in (200, 304):
            self.fresh[uri] = fresh_seconds(answer.headers.get("cache-control"), answer.headers.get("age"))

    def poll(self, uris: Iterable[str]) -> None:
        """Say which documents are polled: the one that goes stale first decides."""
        self.max_age_seconds = min((self.fresh.get(uri, 0.0) for uri in uris), default=0.0) or None


def fresh_seconds(cache_control: str | None, age: str | None) -> float:
    """How long an answer stays fresh by its `max-age`, less the time it has spent in caches; 0 when it does not say."""
    directives = [part.strip().lower().partition("=") for part in (cache_control or "").split(",")]
    texts = [value.strip('" ') for name, _, value in directives if name == "max-age"]
    if {"no-cache", "no-store"} & {name for name, _, _ in directives} or not texts:
        return 0.0
    fresh, spent = (
        int(text[:9]) if text.isascii() and text.isdigit() else 0 for text in (texts[0], (age or "").strip())
    )
    return float(max(0, fresh - spent))


# the pause until the next poll

LONGEST_SECONDS = 86_400.0
JITTER = 0.1
_GROWTH = 1.5


class PollInterval(msgspec.Struct, frozen=True):
    """How often the source is asked for changes."""

    seconds: float
    longest_seconds: float | None = None  # what the interval grows to while nothing changes; None: it does not grow


def slow_interval(interval: PollInterval) -> PollInterval:
    """How often is polled as a back-up: as seldom as asked for, else twenty times more seldom, and ten minutes."""
    longest = interval.longest_seconds
    seconds = longest if longest is not None else max(20 * interval.seconds, 600.0)
    return PollInterval(seconds, longest)


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
