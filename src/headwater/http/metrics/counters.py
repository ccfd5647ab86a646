"""Counters of requests, publications and records taken; to count a request is one look-up and three additions."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.http.access_record import AccessRecord
from headwater.http.metrics.shared_counters import WRITE_SECONDS, CounterSnapshot, SharedCounters
from headwater.source.publication import Publication

if TYPE_CHECKING:
    from headwater.ingest.push.lines import Account

BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Seconds: from what lies ready to a large file over a slow line."""

_DOCUMENTS: Final = (".xml", "/.well-known/resourcesync", "/robots.txt")
OCTETS, SECONDS, FIRST_BUCKET = 0, 1, 2


class RequestCounters:
    """What is counted while requests are answered, in the thread that answers, and while sets are published.

    With `shared`, other processes answer on the same socket, and the page adds up what all have counted.
    """

    def __init__(self, shared: SharedCounters | None = None) -> None:
        self._shared = shared
        self._due = 0.0
        self.requests: dict[tuple[str, int], list[float]] = {}
        """For each kind and status: octets, seconds, and how many answers took up to each of BOUNDS, and longer."""
        self.publications: dict[str, int] = {}
        self.lines: dict[str, dict[str, int]] = {}
        """What was announced, by set and outcome."""
        self.faults = 0
        self.cut_short = 0

    def served(self, request: AccessRecord) -> None:
        """One answered request."""
        key = kind_of(request.target), request.status
        row = self.requests.get(key)
        if row is None:
            row = self.requests[key] = [0.0] * (FIRST_BUCKET + len(BOUNDS) + 1)
        seconds = request.seconds
        row[OCTETS] += request.octets
        row[SECONDS] += seconds
        row[FIRST_BUCKET + bisect_left(BOUNDS, seconds)] += 1
        if not request.complete:
            self.cut_short += 1
        if self._shared is not None:
            self._write(self._shared)

    def published(self, news: Publication) -> None:
        """A pass has made changes of a set visible."""
        self.publications[news.name] = self.publications.get(news.name, 0) + 1
        if self._shared is not None:
            self._write(self._shared)

    def announced(self, name: str, account: Account) -> None:
        """Lines of one request to a set."""
        self._add(name, account.by_outcome)
        if self._shared is not None:
            self._write(self._shared)

    def _add(self, name: str, counts: Mapping[str, int]) -> None:
        held = self.lines.setdefault(name, {})
        for outcome, count in counts.items():
            held[outcome] = held.get(outcome, 0) + count

    def fault(self, _fault: Exception) -> None:
        """Something of ours went wrong while a request was answered."""
        self.faults += 1

    def everybodys(self) -> RequestCounters:
        """What all processes have counted; this one's own, when there is no other."""
        if self._shared is None:
            return self
        total = RequestCounters()
        for one in (self._own(), *self._shared.others()):
            total.faults += one.faults
            total.cut_short += one.cut_short
            for name, passes in one.publications.items():
                total.publications[name] = total.publications.get(name, 0) + passes
            for name, counts in one.lines.items():
                total._add(name, counts)
            for kind, status, row in one.requests:
                held = total.requests.setdefault((kind, status), [0.0] * len(row))
                total.requests[kind, status] = [here + there for here, there in zip(held, row, strict=False)]
        return total

    def _own(self) -> CounterSnapshot:
        rows = [(kind, status, list(row)) for (kind, status), row in list(self.requests.items())]
        lines = {name: dict(counts) for name, counts in list(self.lines.items())}
        return CounterSnapshot(rows, dict(self.publications), self.faults, self.cut_short, lines)

    def _write(self, shared: SharedCounters) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + WRITE_SECONDS
            shared.write(self._own())


def kind_of(target: str) -> str:
    """What a target asks for, as a label: few values, whatever is asked."""
    path = target.partition("?")[0]
    if "/resources/" in path:
        return "resource"
    if path.endswith(_DOCUMENTS):
        return "document"
    if path.endswith(("/health", "/metrics")):
        return path.rpartition("/")[2]
    if path.endswith("/dump"):
        return "dump"
    return "home" if path == "/" else "other"
