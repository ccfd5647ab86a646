"""Counts what is answered, published and announced, and shows it at `/metrics`, in the text format of Prometheus.

The format (0.0.4) is written without its client library (docs/decisions/016-own-metrics-text.md says what that would
have cost). To count a request is one look-up and three additions. Of several processes on one socket each writes its
counts to a file of its own, and whoever is asked adds them up: a scrape reaches one of them by chance. The page is made
once a second at most, and seldomer when it takes long.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.http.responses import AccessRecord, Response
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.ingest.set_problems import set_problems
from headwater.publish.status import set_statuses
from headwater.retry import TimeShare
from headwater.source.health import ServableSource, records, shows, waits
from headwater.source.set_health import Publication
from headwater.typed_decoding import from_json
from headwater.version import __version__

if TYPE_CHECKING:
    from headwater.ingest.push.submission import Account

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Family(msgspec.Struct, frozen=True):
    """Samples of one name. `kind` is `gauge` or `counter`; a counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class Histogram(msgspec.Struct, frozen=True):
    """A distribution over `bounds`, which ascend."""

    name: str
    help: str
    bounds: tuple[float, ...]
    samples: Sequence[tuple[Labels, Sequence[int], float]]
    """Labels, `len(bounds) + 1` counts (not added up), and the sum of all that was observed."""


def exposition(families: Iterable[Family | Histogram]) -> bytes:
    """The page. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        kind = family.kind if isinstance(family, Family) else "histogram"
        lines += (f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {kind}")
        if isinstance(family, Family):
            lines += (_line(family.name, labels, value) for labels, value in family.samples)
            continue
        for labels, counts, total in family.samples:
            bounds = zip((*family.bounds, math.inf), accumulate(counts), strict=True)
            name = family.name
            lines += (_line(f"{name}_bucket", (*labels, ("le", _number(bound))), count) for bound, count in bounds)
            lines += (_line(f"{name}_sum", labels, total), _line(f"{name}_count", labels, sum(counts)))
    return "".join(f"{line}\n" for line in lines).encode()


def _line(name: str, labels: Labels, value: float) -> str:
    escaped = ((key, _help(text).replace('"', '\\"')) for key, text in labels)
    inside = ",".join(f'{key}="{text}"' for key, text in escaped)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


WRITE_SECONDS: Final = 1.0
"""How far behind the others' figures may be, at most, while they are asked anything."""


class Counts(msgspec.Struct):
    """What one process has counted, or all of them."""

    requests: dict[str, dict[int, list[float]]] = {}
    """For each kind and status: octets, seconds, and how many answers took up to each of BOUNDS, and longer."""
    publications: dict[str, int] = {}
    faults: int = 0
    cut_short: int = 0
    lines: dict[str, dict[str, int]] = {}
    """What was announced, by set and outcome."""


def _added(one: Any, other: Any) -> Any:
    """The sum of two counts: of numbers, of rows of them, or of tables, in which each may have rows of its own."""
    if isinstance(one, dict):
        both = one.keys() & other.keys()
        return one | other | {key: _added(one[key], other[key]) for key in both}
    return list(map(_added, one, other)) if isinstance(one, list) else one + other


class SharedCounters:
    """A folder that only these processes know. Files of a process that has ended stay: what it counted still counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._aside = folder / f"{os.getpid()}.new"

    def write(self, own: Counts) -> None:
        """Say what this process has counted. A full disk only makes the figures old."""
        with suppress(OSError):
            self._aside.write_bytes(msgspec.json.encode(own))
            self._aside.replace(self._own)

    def others(self) -> Iterator[Counts]:
        """What the others have said last."""
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                with suppress(OSError, msgspec.DecodeError):
                    yield from_json(path.read_bytes(), Counts)


BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Seconds: from what lies ready to a large file over a slow line."""

_DOCUMENTS: Final = (".xml", "/.well-known/resourcesync", "/robots.txt")
OCTETS, SECONDS, FIRST_BUCKET = 0, 1, 2


class RequestCounters:
    """Counts while requests are answered, in the thread that answers, and while sets are published.

    With `shared`, other processes answer on the same socket, and the page adds up what all have counted.
    """

    def __init__(self, shared: SharedCounters | None = None) -> None:
        self._shared = shared
        self._due = 0.0
        self._own = Counts()

    def served(self, request: AccessRecord) -> None:
        """One answered request."""
        kind, status = kind_of(request.target), request.status
        rows = self._own.requests.setdefault(kind, {})
        row = rows.get(status)
        if row is None:
            row = rows[status] = [0.0] * (FIRST_BUCKET + len(BOUNDS) + 1)
        seconds = request.seconds
        row[OCTETS] += request.octets
        row[SECONDS] += seconds
        row[FIRST_BUCKET + bisect_left(BOUNDS, seconds)] += 1
        if not request.complete:
            self._own.cut_short += 1
        self._write()

    def published(self, news: Publication) -> None:
        """A pass has made changes of a set visible."""
        self._own.publications = _added(self._own.publications, {news.name: 1})
        self._write()

    def announced(self, name: str, account: Account) -> None:
        """Lines of one request to a set."""
        self._own.lines = _added(self._own.lines, {name: dict(account.by_outcome)})
        self._write()

    def fault(self, _fault: Exception) -> None:
        """Something of ours went wrong while a request was answered."""
        self._own.faults += 1

    def everybodys(self) -> Counts:
        """What all processes have counted, as it is at this moment."""
        others = () if self._shared is None else self._shared.others()
        total = Counts()
        for one in (self._own, *others):
            for field in Counts.__struct_fields__:
                setattr(total, field, _added(getattr(total, field), getattr(one, field)))
        return total

    def _write(self) -> None:
        if self._shared is not None and (now := time.monotonic()) >= self._due:
            self._due = now + WRITE_SECONDS
            self._shared.write(self._own)


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


FRESH_SECONDS: Final = 1.0
DUTY: Final = TimeShare(0.05)
"""How much of the time the page may take, however often it is asked for: thousands of sets take half a second."""
_STARTED: Final = time.time()

_SETS: Final = (
    ("resources", "resources", "Resources that the set holds."),
    ("last_seq", "last_seq", "Number of the newest change."),
    ("published_seq", "published_seq", "Newest change that the published Change Lists have."),
    ("pages", "pages", "Documents of the Resource List."),
    ("stale_pages", "pages_stale", "Those of them that newer changes have touched."),
    ("changes_lag_seconds", "changes_lag_seconds", "How long the oldest unpublished change has been waiting."),
    ("pages_lag_seconds", "pages_lag_seconds", "How long the oldest stale page has been waiting."),
    ("last_refresh_timestamp_seconds", "refreshed_at", "When pages were rendered last; 0 for never."),
    ("last_look_timestamp_seconds", "last_look_at", "When the origin of the set was last looked at; 0 for never."),
)
"""Of each set: a metric, the field of `SourceSetStatus` that it shows, what it says."""

_HUBS: Final = (
    ("waiting", "waiting_changes", "gauge", "Visible changes that the hub has not taken."),
    ("failures", "failures", "gauge", "Requests to the hub that have failed in a row; 0 when well."),
    ("sent", "sent_total", "counter", "Notifications that the hub has taken."),
)


class MetricsPage:
    """The page of one source; may be asked for from any thread."""

    def __init__(self, source: ServableSource, counts: RequestCounters) -> None:
        self._source = source
        self._counts = counts
        self._lock = threading.Lock()
        self._page = b""
        self._due = 0.0

    def route(self) -> Route:
        """The row of the page."""
        return Route(name="metrics", pattern="/metrics", handler=self.answer, media_type=CONTENT_TYPE, cache=NO_STORE)

    async def answer(self, request: HttpRequest) -> Response:
        """The page as a response."""
        return request.respond(*await request.access.ask(self.report))

    def report(self) -> tuple[int, bytes]:
        """The page with its status, for who asks from a thread."""
        return 200, self.page()

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
        took = os.times()
        cpu = took.user + took.system
        yield Family("process_cpu_seconds_total", "counter", "Processor time, user and system.", [((), cpu)])
        yield Family("process_start_time_seconds", "gauge", "When the process began.", [((), round(_STARTED, 3))])
        with suppress(OSError), open("/proc/self/statm", "rb") as file:  # the system may not tell
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            yield Family("process_resident_memory_bytes", "gauge", "Memory in use.", [((), resident)])

    def _of_sets(self, counted: Counts) -> Iterator[Family]:
        names = [one.name for one in self._source.site.sets]
        found = set_statuses(self._source.catalog, dt.datetime.now(dt.UTC), names)
        for name, field, text in _SETS:
            values = [(_set(one.name), _gauge(getattr(one, field))) for one in found]
            yield Family(f"headwater_set_{name}", "gauge", text, values)
        told = {str(one.get("name")): one for one in records(self._source.health().get("sets"))}
        states = {state.name: state for state in self._source.catalog.sets()}
        waiting = waits(self._source, states)
        problems = set_problems(self._source.catalog, names)
        held = {one.set for one in problems.held_back}
        held |= {name for name, one in told.items() if one.get("held_back") is not None}
        unreadable = {one.set: one.files for one in problems.unreadable}

        def family(name: str, kind: str, text: str, value: Callable[[str], float], of: Iterable[str] = names) -> Family:
            return Family(f"headwater_{name}", kind, text, [(_set(one), value(one)) for one in of])

        text = "1 when the set's documents are served, or it waits for its first records."
        yield family("set_ready", "gauge", text, lambda one: float(one in waiting or shows(self._source, one, states)))
        text = "1 while a push set waits for its first records."
        yield family("set_waiting", "gauge", text, lambda one: float(one in waiting))
        text = "Passes that have published changes since the server was started."
        yield family("set_publications_total", "counter", text, lambda one: counted.publications.get(one, 0))
        lines = [
            ((("set", name), ("outcome", outcome)), count)
            for name, counts in sorted(counted.lines.items())
            for outcome, count in counts.items()
        ]
        text = "Lines and documents that were announced by HTTP, by what became of them."
        yield Family("headwater_ingest_lines_total", "counter", text, lines)
        text = "Attempts that have failed in a row; 0 when well."
        yield family("set_failures", "gauge", text, lambda one: _int(told[one].get("failures")), told)
        text = "1 while deletions of the set are held back."
        yield family("set_held_back", "gauge", text, lambda one: int(one in held))
        text = "Files that cannot be read at present."
        yield family("set_unreadable_files", "gauge", text, lambda one: unreadable.get(one, 0))
        hubs = records(self._source.health().get("hubs"))  # none where another process tells them
        for key, name, kind, text in _HUBS if hubs else ():
            told_of_hubs = [((("hub", str(one.get("hub"))),), _int(one.get(key))) for one in hubs]
            yield Family(f"headwater_notify_{name}", kind, text, told_of_hubs)
        text = "Full scans of the set's folder."
        yield family("set_scans_total", "counter", text, lambda one: _int(told[one].get("scans")), told)


def _of_requests(counted: Counts) -> Iterator[Family | Histogram]:
    kinds = sorted((kind, sorted(rows.items())) for kind, rows in counted.requests.items())
    counts = [
        ((("kind", kind), ("status", str(status))), int(sum(row[FIRST_BUCKET:])))
        for kind, rows in kinds
        for status, row in rows
    ]
    yield Family("headwater_requests_total", "counter", "Requests that were answered.", counts)
    totals = [((("kind", kind),), reduce(_added, (row for _, row in rows))) for kind, rows in kinds]
    sent = [(labels, int(row[OCTETS])) for labels, row in totals]
    yield Family("headwater_response_octets_total", "counter", "Octets of bodies that were sent.", sent)
    took = [(labels, list(map(int, row[FIRST_BUCKET:])), round(row[SECONDS], 6)) for labels, row in totals]
    yield Histogram("headwater_request_seconds", "From the request to the end of its answer.", BOUNDS, took)
    text = "Answers that were cut short, by us or by their readers."
    yield Family("headwater_responses_cut_short_total", "counter", text, [((), counted.cut_short)])
    text = "Faults of our own store while requests were answered."
    yield Family("headwater_request_faults_total", "counter", text, [((), counted.faults)])


def _set(name: str) -> Labels:
    return (("set", name),)


def _gauge(value: float | dt.datetime | None) -> float:
    return value.timestamp() if isinstance(value, dt.datetime) else value or 0


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
