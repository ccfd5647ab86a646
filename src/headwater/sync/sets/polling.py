"""Polling: the documents that tell first of something new, and how long the source asks to wait (DST-C1, DST-C6).

Thousands of sets that have not changed cost a conditional request each; these are sent many at a time, before the sets
have their turn one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.storage.transaction import Transaction
from headwater.sync.filters import Scope
from headwater.sync.lists.documents import ConditionalRequest
from headwater.sync.options import SyncOptions, signature_of
from headwater.sync.state import SOURCE, SetRow, validators
from headwater.transport.fetch import Fetched
from headwater.transport.transport import StreamedAnswer

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
