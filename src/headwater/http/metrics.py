"""Counts what is answered, published and announced, and shows it at `/metrics`, in the text format of Prometheus.

The format (0.0.4) is written without its client library (docs/decisions/016-own-metrics-text.md says what that would
have cost). To count a request is one look-up and three additions. Of several processes on one socket each writes its
counts to a file of its own, and whoever is asked adds them up: a scrape reaches one of them by chance. The page is made
once a second at most, and seldomer when it takes long.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.catalog.interface import ahead_seconds
from headwater.http.responses import AccessRecord, Response
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.ingest.deletion_guard import set_problems
from headwater.publish.status import set_statuses
from headwater.retry import TimeShare
from headwater.source.health import ServableSource, records, shows, waits
from headwater.source.set_health import Publication
from headwater.typed_decoding import from_json
from headwater.version import __version__, build

if TYPE_CHECKING:
    from headwater.ingest.push.submission import Account

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, float]  # what follows the name of its family, `labels` or a suffix with them, and the value


class Family(msgspec.Struct, frozen=True):
    """Samples of one name. `kind` is `gauge`, `counter` or `histogram`; a counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


def labels(**named: str) -> str:
    """Labels as they stand behind a name."""
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in named.items())
    return f"{{{inside}}}"


def exposition(families: Iterable[Family]) -> bytes:
    """The page. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            said = family.help.replace("\\", "\\\\").replace("\n", "\\n")
            lines += (f"# HELP {family.name} {said}", f"# TYPE {family.name} {family.kind}")
            lines += (f"{family.name}{rest} {value!r}" for rest, value in family.samples)
    return "".join(f"{line}\n" for line in lines).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


WRITE_SECONDS: Final = 1.0  # how far behind the others' figures may be, at most, while they are asked anything

_TOOK: Final = "headwater_request_seconds"
_CUT_SHORT, _FAULTS = "headwater_responses_cut_short_total", "headwater_request_faults_total"
_PUBLICATIONS, _LINES = "headwater_set_publications_total", "headwater_ingest_lines_total"


Counts = dict[str, float]
"""What one process has counted, or all of them, by name and labels. A bucket of the histogram has only those that are
in none below it."""


def _add(counted: Counts, more: Mapping[str, float]) -> None:
    for key, value in more.items():
        counted[key] = counted.get(key, 0) + value


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
_BUCKETS: Final = (*map(repr, BOUNDS), "+Inf")

_DOCUMENTS: Final = (".xml", "/.well-known/resourcesync", "/robots.txt")


@lru_cache(maxsize=4_096)
def _samples_of(kind: str, status: int, bucket: int) -> tuple[str, str, str, str]:
    """The samples of an answer: of requests, of octets, of seconds, and of the bucket of the histogram."""
    of_kind = labels(kind=kind)
    requests = f"headwater_requests_total{labels(kind=kind, status=str(status))}"
    octets, seconds = f"headwater_response_octets_total{of_kind}", f"{_TOOK}_sum{of_kind}"
    return requests, octets, seconds, f"{_TOOK}_bucket{labels(kind=kind, le=_BUCKETS[bucket])}"


class RequestCounters:
    """Counts while requests are answered, in the thread that answers, and while sets are published.

    With `shared`, other processes answer on the same socket, and the page adds up what all have counted.
    """

    def __init__(self, shared: SharedCounters | None = None) -> None:
        self._shared = shared
        self._due = 0.0
        self._own: Counts = {_CUT_SHORT: 0, _FAULTS: 0}

    def served(self, request: AccessRecord) -> None:
        """One answered request."""
        seconds = request.seconds
        keys = _samples_of(kind_of(request.target), request.status, bisect_left(BOUNDS, seconds))
        _add(self._own, dict(zip(keys, (1, request.octets, seconds, 1), strict=True)))
        if not request.complete:
            self._own[_CUT_SHORT] += 1
        self._write()

    def published(self, news: Publication) -> None:
        """A pass has made changes of a set visible."""
        _add(self._own, {f"{_PUBLICATIONS}{labels(set=news.name)}": 1})
        self._write()

    def announced(self, name: str, account: Account) -> None:
        """Lines of one request to a set."""
        _add(self._own, {_LINES + labels(set=name, outcome=one): count for one, count in account.by_outcome.items()})
        self._write()

    def fault(self, _fault: Exception) -> None:
        """Something of ours went wrong while a request was answered."""
        self._own[_FAULTS] += 1

    def everybodys(self) -> Counts:
        """What all processes have counted, as it is at this moment."""
        total = dict(self._own)
        for one in () if self._shared is None else self._shared.others():
            _add(total, one)
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

SET_FIGURES: Final = (
    ("resources", "resources", "Resources that the set holds."),
    ("last_seq", "last_seq", "Number of the newest change."),
    ("published_seq", "published_seq", "Newest change that the published Change Lists have."),
    ("pages", "pages", "Documents of the Resource List."),
    ("stale_pages", "pages_stale", "Documents of the Resource List that newer changes have made stale."),
    ("changes_lag_seconds", "changes_lag_seconds", "How long the oldest unpublished change has been waiting."),
    ("pages_lag_seconds", "pages_lag_seconds", "How long the oldest stale page has been waiting."),
    ("last_refresh_timestamp_seconds", "refreshed_at", "When pages were rendered last; 0 for never."),
    ("last_look_timestamp_seconds", "last_look_at", "When the origin of the set was last looked at; 0 for never."),
    ("ahead_seconds", "", "How far times of changes are ahead of the clock, after it was set back."),
    ("ready", "", "1 when the set's documents are served, or it waits for its first records."),
    ("waiting", "", "1 while a push set waits for its first records."),
    ("publications_total", "", "Passes that have published changes since the server was started."),
    ("failures", "", "Failed attempts in a row; 0 when all is well."),
    ("held_back", "", "1 while deletions of the set are held back."),
    ("unreadable_files", "", "Files that cannot be read at present."),
    ("scans_total", "", "Full scans of the set's folder."),
)
"""Of each set: a metric, the field of `SourceSetStatus` that it shows, if it shows one, what it says."""

_REQUESTS: Final = (
    ("headwater_requests_total", "Requests that were answered."),
    ("headwater_response_octets_total", "Bytes of bodies that were sent."),
    (_CUT_SHORT, "Answers cut short, by the server or the client."),
    (_FAULTS, "Faults of the server's store while it answered requests."),
    (_LINES, "Lines and documents received by HTTP, by result."),
)

_HUBS: Final = (
    ("waiting", "waiting_changes", "gauge", "Visible changes that the hub has not accepted."),
    ("failures", "failures", "gauge", "Failed requests to the hub in a row; 0 when all is well."),
    ("sent", "sent_total", "counter", "Notifications that the hub has accepted."),
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

    def _families(self) -> Iterator[Family]:
        counted = self._counts.everybodys()
        yield from self._of_sets(counted)
        yield from _of_requests(counted)
        yield from of_process()

    def _of_sets(self, counted: Counts) -> Iterator[Family]:
        names = [one.name for one in self._source.site.sets]
        now = dt.datetime.now(dt.UTC)
        found = set_statuses(self._source.catalog, now, names)
        health = self._source.health()
        told = {str(one.get("name")): one for one in records(health.get("sets"))}
        states = {state.name: state for state in self._source.catalog.sets()}
        waiting = waits(self._source, states)
        ready = {name for name in names if name in waiting or shows(self._source, name, states)}
        problems = set_problems(self._source.catalog, names)
        held = {one.set for one in problems.held_back}
        held |= {name for name, one in told.items() if one.get("held_back") is not None}
        unreadable = {one.set: one.files for one in problems.unreadable}
        published = {name: counted.get(f"{_PUBLICATIONS}{labels(set=name)}", 0) for name in names}
        values: dict[str, Mapping[str, float]] = {
            "ahead_seconds": {one.name: ahead_seconds(one.last_at, now) for one in found},
            "ready": {name: float(name in ready) for name in names},
            "waiting": {name: float(name in waiting) for name in names},
            "publications_total": published,
            "failures": {name: _int(one.get("failures")) for name, one in told.items()},
            "held_back": {name: int(name in held) for name in names},
            "unreadable_files": {name: unreadable.get(name, 0) for name in names},
            "scans_total": {name: _int(one.get("scans")) for name, one in told.items()},
        }
        for name, field, text in SET_FIGURES:
            of_sets = values.get(name) or {one.name: gauge(getattr(one, field)) for one in found if field}
            samples = [(labels(set=one), value) for one, value in of_sets.items()]
            yield Family(f"headwater_set_{name}", "counter" if name.endswith("_total") else "gauge", text, samples)
        hubs = records(health.get("hubs"))  # none where another process tells them
        for key, name, kind, text in _HUBS:
            told_of_hubs = [(labels(hub=str(one.get("hub"))), _int(one.get(key))) for one in hubs]
            yield Family(f"headwater_notify_{name}", kind, text, told_of_hubs)


def of_process() -> Iterator[Family]:
    """The version that runs, and what its process has taken of the machine."""
    took = os.times()
    alone: list[tuple[str, str, str, Sample]] = [
        ("headwater_build_info", "gauge", "The running version.", (labels(version=__version__, build=build()), 1)),
        ("process_cpu_seconds_total", "counter", "Processor time, user and system.", ("", took.user + took.system)),
        ("process_start_time_seconds", "gauge", "When the process began.", ("", round(_STARTED, 3))),
    ]
    with suppress(OSError), open("/proc/self/statm", "rb") as file:  # the system may not tell
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        alone.append(("process_resident_memory_bytes", "gauge", "Memory in use.", ("", resident)))
    for name, kind, text, sample in alone:
        yield Family(name, kind, text, [sample])


def _of_requests(counted: Mapping[str, float]) -> Iterator[Family]:
    for name, text in _REQUESTS:
        samples = [(key[len(name) :], value) for key, value in sorted(counted.items()) if key.startswith(name)]
        yield Family(name, "counter", text, samples)
    took: list[Sample] = []
    for key in sorted(key for key in counted if key.startswith(f"{_TOOK}_sum")):
        of_kind = key.removeprefix(f"{_TOOK}_sum")
        buckets = [f'_bucket{of_kind[:-1]},le="{bound}"}}' for bound in _BUCKETS]
        counts = list(accumulate(counted.get(_TOOK + bucket, 0) for bucket in buckets))
        took += zip(buckets, counts, strict=True)
        took += ((f"_sum{of_kind}", round(counted[key], 6)), (f"_count{of_kind}", counts[-1]))
    yield Family(_TOOK, "histogram", "From the request to the end of its answer.", took)


def gauge(value: float | dt.datetime | None) -> float:
    """A value as a sample has it; 0 for none."""
    return value.timestamp() if isinstance(value, dt.datetime) else value or 0


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
