"""The metrics page: how the sets stand and what was counted, in the text format of Prometheus.

It is made once a second at most, and seldomer when it takes long, however often it is asked for.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from headwater.http.metrics.counters import BOUNDS, FIRST_BUCKET, OCTETS, SECONDS, RequestCounters
from headwater.http.metrics.text_format import CONTENT_TYPE, Family, Histogram, Labels, exposition
from headwater.http.responses import Response
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.ingest.set_problems import set_problems
from headwater.publish.status import SourceSetStatus, set_statuses
from headwater.retry import TimeShare
from headwater.source.health import ObservableSource, records, shows, waits
from headwater.version import __version__

FRESH_SECONDS: Final = 1.0
DUTY: Final = TimeShare(0.05)
"""How much of the time the page may take, however often it is asked for: thousands of sets take half a second."""
_STARTED: Final = time.time()

_SETS: Final[tuple[tuple[str, str, Callable[[SourceSetStatus], float]], ...]] = (
    ("resources", "Resources that the set holds.", lambda one: one.resources),
    ("last_seq", "Number of the newest change.", lambda one: one.last_seq),
    ("published_seq", "Newest change that the published Change Lists have.", lambda one: one.published_seq),
    ("pages", "Documents of the Resource List.", lambda one: one.pages),
    ("stale_pages", "Those of them that newer changes have touched.", lambda one: one.pages_stale),
    (
        "changes_lag_seconds",
        "How long the oldest change that is not published has been waiting.",
        lambda one: one.changes_lag_seconds,
    ),
    ("pages_lag_seconds", "How long the oldest stale page has been waiting.", lambda one: one.pages_lag_seconds),
    (
        "last_refresh_timestamp_seconds",
        "When pages were rendered last; 0 for never.",
        lambda one: _timestamp(one.refreshed_at),
    ),
    (
        "last_look_timestamp_seconds",
        "When what the set is made of was last looked at as a whole; 0 for never.",
        lambda one: _timestamp(one.last_look_at),
    ),
)

_HUBS: Final = (
    ("waiting", "waiting_changes", "gauge", "Visible changes that the hub has not taken."),
    ("failures", "failures", "gauge", "Requests to the hub that have failed in a row; 0 when well."),
    ("sent", "sent_total", "counter", "Notifications that the hub has taken."),
)


class MetricsPage:
    """The page of one source; may be asked for from any thread. `first` has it of the first process on the socket."""

    def __init__(
        self, source: ObservableSource, counts: RequestCounters, first: Callable[[], tuple[int, bytes]] | None = None
    ) -> None:
        self._source = source
        self._counts = counts
        self._first = first
        self.report = first or (lambda: (200, self.page()))
        self._lock = threading.Lock()
        self._page = b""
        self._due = 0.0

    def route(self) -> Route:
        """The row of the page."""
        return Route(name="metrics", pattern="/metrics", handler=self.answer, media_type=CONTENT_TYPE, cache=NO_STORE)

    async def answer(self, request: HttpRequest) -> Response:
        """The page as a response."""
        ask = request.access.ask if self._first is None else request.access.ask_first
        return request.respond(*await ask(self.report))

    def page(self) -> bytes:
        """The page as it was a moment ago. Raises what the catalog raises."""
        if self._page and self._lock.locked():  # somebody makes the next one: nobody need wait for it
            return self._page
        with self._lock:
            began = time.monotonic()
            if began >= self._due:
                self._page = exposition(self._families())
                ended = time.monotonic()
                self._due = ended + max(FRESH_SECONDS, DUTY.pause_after(ended - began))
            return self._page

    def _families(self) -> Iterator[Family | Histogram]:
        yield Family("headwater_build_info", "gauge", "The running version.", [((("version", __version__),), 1)])
        counted = self._counts.everybodys()
        yield from self._of_sets(counted)
        yield from _of_requests(counted)
        yield from _of_process()

    def _of_sets(self, counted: RequestCounters) -> Iterator[Family]:
        names = [one.name for one in self._source.site.sets]
        found = set_statuses(self._source.catalog, dt.datetime.now(dt.UTC), names)
        for name, text, value in _SETS:
            yield Family(f"headwater_set_{name}", "gauge", text, [(_set(one.name), value(one)) for one in found])
        told = {str(one.get("name")): one for one in records(self._source.health().get("sets"))}
        states = {state.name: state for state in self._source.catalog.sets()}
        waiting = waits(self._source, states)
        ready = [(_set(name), float(name in waiting or shows(self._source, name, states))) for name in names]
        text = "1 when the set's documents are served, or it waits for its first records."
        yield Family("headwater_set_ready", "gauge", text, ready)
        idle = [(_set(name), float(name in waiting)) for name in names]
        yield Family("headwater_set_waiting", "gauge", "1 while a push set waits for its first records.", idle)
        passes = [(_set(name), counted.publications.get(name, 0)) for name in names]
        text = "Passes that have published changes since the server was started."
        yield Family("headwater_set_publications_total", "counter", text, passes)
        lines = [
            ((("set", name), ("outcome", outcome)), count)
            for name, counts in sorted(counted.lines.items())
            for outcome, count in counts.items()
        ]
        text = "Lines and documents that were announced by HTTP, by what became of them."
        yield Family("headwater_ingest_lines_total", "counter", text, lines)
        failing = [(_set(name), _int(one.get("failures"))) for name, one in told.items()]
        yield Family("headwater_set_failures", "gauge", "Attempts that have failed in a row; 0 when well.", failing)
        problems = set_problems(self._source.catalog, names)
        kept = {one.set for one in problems.held_back}
        kept |= {name for name, one in told.items() if one.get("held_back") is not None}
        held = [(_set(name), int(name in kept)) for name in names]
        yield Family("headwater_set_held_back", "gauge", "1 while deletions of the set are held back.", held)
        closed = {one.set: one.files for one in problems.unreadable}
        files = [(_set(name), closed.get(name, 0)) for name in names]
        yield Family("headwater_set_unreadable_files", "gauge", "Files that cannot be read at present.", files)
        yield from self._of_hubs()
        scans = [(_set(name), _int(one.get("scans"))) for name, one in told.items()]
        yield Family("headwater_set_scans_total", "counter", "Full scans of the set's folder.", scans)

    def _of_hubs(self) -> Iterator[Family]:
        """What the source says of the hubs that it tells; nothing where it has none, or another process tells them."""
        hubs = records(self._source.health().get("hubs"))
        for key, name, kind, text in _HUBS if hubs else ():
            values = [((("hub", str(one.get("hub"))),), _int(one.get(key))) for one in hubs]
            yield Family(f"headwater_notify_{name}", kind, text, values)


def _of_requests(counted: RequestCounters) -> Iterator[Family | Histogram]:
    rows = sorted((key, tuple(row)) for key, row in list(counted.requests.items()))
    counts = [
        ((("kind", kind), ("status", str(status))), sum(map(int, row[FIRST_BUCKET:]))) for (kind, status), row in rows
    ]
    yield Family("headwater_requests_total", "counter", "Requests that were answered.", counts)
    kinds: dict[str, list[float]] = {}
    for (kind, _), row in rows:
        held = kinds.setdefault(kind, [0.0] * len(row))
        kinds[kind] = [one + other for one, other in zip(held, row, strict=True)]
    sent = [((("kind", kind),), int(row[OCTETS])) for kind, row in kinds.items()]
    yield Family("headwater_response_octets_total", "counter", "Octets of bodies that were sent.", sent)
    took = [
        ((("kind", kind),), tuple(map(int, row[FIRST_BUCKET:])), round(row[SECONDS], 6)) for kind, row in kinds.items()
    ]
    yield Histogram("headwater_request_seconds", "From the request to the end of its answer.", BOUNDS, took)
    text = "Answers that were cut short, by us or by their readers."
    yield Family("headwater_responses_cut_short_total", "counter", text, [((), counted.cut_short)])
    text = "Faults of our own store while requests were answered."
    yield Family("headwater_request_faults_total", "counter", text, [((), counted.faults)])


def _of_process() -> Iterator[Family]:
    """What every process tells, under the names that dashboards know."""
    took = os.times()
    cpu = took.user + took.system
    yield Family("process_cpu_seconds_total", "counter", "Processor time, user and system.", [((), cpu)])
    yield Family("process_start_time_seconds", "gauge", "When the process began.", [((), round(_STARTED, 3))])
    resident = _resident_octets()
    if resident is not None:
        yield Family("process_resident_memory_bytes", "gauge", "Memory in use.", [((), resident)])


def _resident_octets() -> int | None:
    """None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _set(name: str) -> Labels:
    return (("set", name),)


def _timestamp(at: dt.datetime | None) -> float:
    return 0.0 if at is None else at.timestamp()


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
