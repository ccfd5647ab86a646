"""What each page of a service shows, as values: templates make pages of them, and as JSON a program gets the same."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from headwater.aggregator import rendering
from headwater.aggregator.configuration import AggregatorConfig
from headwater.aggregator.source_run import copy_of
from headwater.aggregator.status import FleetStatus, chosen
from headwater.aggregator.store import AggregatorStore, RunRecord
from headwater.sync.copy_status import FailedResource, SetStatus

REPORT_OCTETS: Final = 250_000
_ROWS: Final = 200
_MOST_ROWS: Final = 1_000
_RUNS: Final = 200
_MOST: Final = 100
_EXAMPLES: Final = 5

Query = Mapping[str, str]


class View(NamedTuple):
    """A page: its template, and what it shows."""

    template: str
    data: dict[str, Any]


def number_of(query: Query, name: str, usual: int, most: int = 10**15) -> int:
    """A whole number of a query; what is none counts as absent."""
    text = query.get(name, "")
    return min(most, int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else usual)


def fleet_view(fleet: FleetStatus, query: Query) -> View:
    """All sources: `state`, `tag` and `words` choose, `page` and `size` divide."""
    state, tag, words = (query.get(name, "") for name in ("state", "tag", "words"))
    found = chosen(fleet.sources, verdict=state, tag=tag, words=words)
    size = max(1, number_of(query, "size", _ROWS, _MOST_ROWS))
    pages = max(1, -(-len(found) // size))
    page = max(1, number_of(query, "page", 1, pages))
    data = asdict(fleet) | {
        "sources": found[(page - 1) * size : page * size],
        "tags": sorted({one for source in fleet.sources for one in source.tags}),
        "chosen": {"state": state, "tag": tag, "words": words, "size": size},
        "total": len(found),
        "page": page,
        "pages": pages,
    }
    return View("fleet.html", data)


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that could not be copied for one reason, with some of their addresses."""

    reason: str
    count: int
    since: dt.datetime
    examples: tuple[str, ...]


def failure_groups(sets: list[SetStatus]) -> list[FailureGroup]:
    """The failed resources of a copy by reason, the commonest first."""
    found: dict[str, list[FailedResource]] = defaultdict(list)
    for one in (one for each in sets for one in each.failures):
        found[one.reason].append(one)
    groups = [
        FailureGroup(
            reason=reason,
            count=len(those),
            since=min(one.since for one in those),
            examples=tuple(one.uri for one in those[:_EXAMPLES]),
        )
        for reason, those in found.items()
    ]
    return sorted(groups, key=lambda one: -one.count)


def without_report(record: RunRecord) -> RunRecord:
    """A run for a list of runs."""
    return replace(record, report=None)


def source_view(
    config: AggregatorConfig, store: AggregatorStore, fleet: FleetStatus, name: str, most: int = _MOST
) -> View | None:
    """A source with its runs, failures, defects and audit, `most` of each kind; None: there is none of this name.

    Its defects are those of the newest run that read documents of the source; one that read none found none.
    """
    source = next((one for one in fleet.sources if one.name == name), None)
    if source is None:
        return None
    runs = store.runs(name, _RUNS)
    copy = copy_of(config.state / name)
    sets = list(copy.sets) if copy else []
    defects = next((one.warnings for one in runs if one.warnings), ())
    data = {
        "source": source,
        "runs": [without_report(one) for one in runs],
        "failures": failure_groups(sets)[:most],
        "refusals": [one for each in sets for one in each.refusals][:most],
        "held_back": [path for each in sets for path in (*(one.path for one in each.deletions), *each.updates)][:most],
        "defect_kinds": len(defects),
        "defects": [
            {"rule": rule, "count": count, "example": said, "advice": rendering.advice_on(rule)}
            for rule, count, said in sorted(defects, key=lambda one: -one[1])[:most]
        ],
        "audit": next((one for one in store.runs(name, 1, "audit") if one.report and "sets" in one.report), None),
    }
    return View("source.html", data)


def report_page(config: AggregatorConfig, store: AggregatorStore, fleet: FleetStatus, name: str) -> bytes | None:
    """The report for the operator of a source: what is wrong with it and what to do, as one file that needs no other.

    It is small enough for mail, however much is wrong. None: there is none of this name.
    """
    page = None
    for most in (_MOST, 30, 10, 3):
        view = source_view(config, store, fleet, name, most)
        page = view and rendering.page("report.html", **view.data, most=most, now=fleet.time)
        if page is None or len(page) <= REPORT_OCTETS:
            break
    return page


def run_view(store: AggregatorStore, number: int) -> View | None:
    """A run that has ended."""
    record = store.run(number)
    return None if record is None else View("run.html", asdict(record))


def runs_view(store: AggregatorStore, query: Query) -> View:
    """Runs under way, and the last ones that have ended, of all sources."""
    runs = store.runs(limit=number_of(query, "size", _ROWS, _MOST_ROWS))
    return View("runs.html", {"running": store.running(), "runs": [without_report(one) for one in runs]})


def sink_view(store: AggregatorStore, fleet: FleetStatus, name: str) -> View | None:
    """A sink, with its dead letters."""
    sink = next((one for one in fleet.sinks if one.name == name), None)
    return None if sink is None else View("sink.html", {"sink": sink, "dead_letters": store.dead_letters(name)})


def events_view(store: AggregatorStore, query: Query) -> View:
    """Events with numbers above `after`."""
    after = number_of(query, "after", 0)
    events = store.events(after, number_of(query, "size", _ROWS, _MOST_ROWS))
    return View("events.html", {"events": events, "after": after, "last": store.last_number()})
