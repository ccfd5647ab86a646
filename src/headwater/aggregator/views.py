"""What each page of a service shows, as values: the same for a browser and, as JSON, for a program."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from headwater.aggregator import rendering
from headwater.aggregator.configuration import AggregatorConfig
from headwater.aggregator.source_run import copy_of
from headwater.aggregator.status import SourceStatus, chosen, read_fleet, sink_state, sink_status, source_status
from headwater.aggregator.store import AggregatorStore, RunRecord, SourceState
from headwater.sync.copy_status import SetStatus

PAGE_SIZE: Final = 200
_MOST_ON_A_PAGE: Final = 1_000
_RUNS: Final = 200
_EVENTS: Final = 200
_SAMPLE: Final = 20
_FAILURES: Final = 50
_REPORT_CHARACTERS: Final = 100_000

Query = Mapping[str, str]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its template with the values that it shows, and the same as JSON."""

    template: str
    values: dict[str, Any]
    data: Any
    status: int = 200


def fleet_view(config: AggregatorConfig, store: AggregatorStore, query: Query, *, is_alive: bool | None = None) -> View:
    """All sources: `state`, `tag` and `words` choose, `page` and `size` divide."""
    fleet = read_fleet(config, store, is_alive=is_alive)
    state, tag, words = (query.get(name, "") for name in ("state", "tag", "words"))
    found = chosen(fleet.sources, verdict=state, tag=tag, words=words)
    size = min(_MOST_ON_A_PAGE, max(1, number_of(query, "size", PAGE_SIZE)))
    pages = max(1, -(-len(found) // size))
    page = min(pages, max(1, number_of(query, "page", 1)))
    first = (page - 1) * size
    shown = found[first : first + size]
    kept = {"state": state, "tag": tag, "words": words, "size": query.get("size", "")}
    values = {
        "fleet": fleet,
        "sources": shown,
        "chosen_state": state,
        "chosen_tag": tag,
        "words": words,
        "tags": sorted({one for source in fleet.sources for one in source.tags}),
        "total": len(found),
        "first": first + 1,
        "page": page,
        "pages": pages,
        "size": size,
        "query": rendering.query_of({name: text for name, text in kept.items() if text}),
    }
    data = asdict(fleet) | {"sources": shown, "total": len(found), "page": page, "pages": pages}
    return View(template="fleet.html", values=values, data=data)


def number_of(query: Query, name: str, usual: int) -> int:
    """A whole number of a query; what is none counts as absent."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else usual


def source_of(config: AggregatorConfig, store: AggregatorStore, name: str, now: dt.datetime) -> SourceStatus | None:
    """The state of one source; None: there is none of this name."""
    followed = next((one for one in config.sources if one.name == name), None)
    state = store.source(name)
    if state is None and followed is not None:
        state = SourceState(name=name, url=followed.url)
    if state is None:
        return None
    last = next(iter(store.runs(name, 1)), None)
    running = next((one for one in store.running() if one.name == name), None)
    return source_status(followed, state, last, running, now)


def waiting_paths(one: SetStatus) -> list[str]:
    """The paths of a set that are not deleted or updated without consent."""
    return [*(deletion.path for deletion in one.deletions), *one.updates]


def without_report(record: RunRecord) -> RunRecord:
    """A run for a list of runs."""
    return replace(record, report=None)


def source_view(config: AggregatorConfig, store: AggregatorStore, name: str, done: str = "") -> View | None:
    """A source with its runs, failures, defects and audit; None: there is none of this name."""
    now = dt.datetime.now(dt.UTC)
    source = source_of(config, store, name, now)
    if source is None:
        return None
    runs = store.runs(name, _RUNS)
    audit = next((one for one in store.runs(name, 1, "audit") if one.report and "sets" in one.report), None)
    copy = copy_of(config.state / name)
    failures = [one for each in copy.sets for one in each.failures][:_FAILURES] if copy else []
    held = [path for each in copy.sets for path in waiting_paths(each)] if copy else []

    warnings = defects_of(runs)
    values = {
        "source": source,
        "runs": runs,
        "audit": audit,
        "failures": failures,
        "held_back": held[:_SAMPLE],
        "warnings": warnings,
        "done": DONE.get(done, ""),
        "charts": {
            "durations": rendering.durations(runs),
            "results": rendering.results(runs),
            "changes": rendering.changes_by_day(runs, now),
        },
    }
    data = {
        "source": source,
        "runs": [without_report(one) for one in runs[:_SAMPLE]],
        "failures": failures,
        "held_back": held[:_SAMPLE],
        "defects": [
            {"rule": rule, "count": count, "example": said, "advice": rendering.advice_on(rule)}
            for rule, count, said in warnings
        ],
        "audit": audit,
    }
    return View(template="source.html", values=values, data=data)


def defects_of(runs: list[RunRecord]) -> tuple[tuple[str, int, str], ...]:
    """The defects that the newest run found which read documents of the source; one that read none found none."""
    return next((one.warnings for one in runs if one.warnings), ())


DONE: Final = {
    "approve": "Approved: the next run acts on it.",
    "refuse": "Refused: the next run leaves it as it is.",
    "run": "A run begins as soon as there is room.",
    "pause": "Paused: no run begins until you resume.",
    "resume": "Resumed.",
}
"""What is said after each action."""


def run_view(store: AggregatorStore, number: int) -> View | None:
    """A run that has ended."""
    record = store.run(number)
    if record is None:
        return None
    text = msgspec.json.format(msgspec.json.encode(record.report), indent=2).decode() if record.report else ""
    if len(text) > _REPORT_CHARACTERS:
        text = text[:_REPORT_CHARACTERS] + "\n… (the JSON of this page has the rest)"
    return View(template="run.html", values={"run": record, "report": text.split("\n")}, data=record)


def runs_view(store: AggregatorStore, query: Query) -> View:
    """Runs under way, and the last ones that have ended, of all sources."""
    runs, running = store.runs(limit=min(_MOST_ON_A_PAGE, number_of(query, "size", PAGE_SIZE))), store.running()
    data = {"running": running, "runs": [without_report(one) for one in runs]}
    return View(template="runs.html", values={"runs": runs, "running": running}, data=data)


def sink_view(config: AggregatorConfig, store: AggregatorStore, name: str) -> View | None:
    """A sink, with its dead letters."""
    found = next((one for one in config.sinks if one.name == name), None)
    if found is None:
        return None
    sink = sink_status(found, sink_state(store, name), dt.datetime.now(dt.UTC))
    values = {"sink": sink, "dead_letters": store.dead_letters(name)}
    return View(template="sink.html", values=values, data=values)


def events_view(store: AggregatorStore, query: Query) -> View:
    """Events with numbers above `after`."""
    after, last = number_of(query, "after", 0), store.last_number()
    events = store.events(after, min(_MOST_ON_A_PAGE, number_of(query, "size", _EVENTS)))
    values = {"events": events, "after": after, "last": last}
    return View(template="events.html", values=values, data=values)
