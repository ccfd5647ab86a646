"""`headwater status` of a service: a table of the sources that it follows, the worst first, or one of them."""

from __future__ import annotations

import datetime as dt
import sys
import time
from contextlib import suppress
from pathlib import Path

import click

from headwater.aggregator.configuration import AggregatorConfig, read_aggregation
from headwater.aggregator.metrics import metrics_page
from headwater.aggregator.sqlite_store import store_to_read
from headwater.aggregator.status import FleetStatus, SourceStatus, SourceVerdict, read_fleet
from headwater.aggregator.store import AggregatorStore
from headwater.cli.output import json_document, json_line, lines_of_all, output_faults, printable, show, show_some
from headwater.errors import UsageFault
from headwater.quantities import human_octets, human_seconds
from headwater.toml_files import read_toml

_MOST_SHOWN = 100
_REASONS = 10
_OWN_KEYS = frozenset({"source", "sources", "defaults", "sink", "alert", "operator_token"})


def is_aggregation(place: str) -> bool:
    """Whether a file is the configuration of a service that follows sources, and not one of a source."""
    if not place.endswith(".toml"):
        return False
    with suppress(UsageFault):
        found = read_toml(Path(place), UsageFault)
        return "set" not in found and bool(_OWN_KEYS & found.keys())
    return False


def show_fleet(
    places: tuple[str, ...], watch: float | None, report: str | None, *, metrics: bool, as_json: bool
) -> int:
    """Show the state of a service, by its configuration, or that of the source that is named after it.

    Returns the exit status. `report`: the file to write the source's report to. Raises UsageFault and StoreFault.
    """
    config = read_aggregation(Path(places[0]))
    if len(places) > 2 or (report is not None and len(places) == 1):
        raise click.UsageError("name one source after the configuration")
    with store_to_read(config.state) as store:
        while True:
            if len(places) == 2:
                return _show_source(config, store, places[1], report, as_json=as_json)
            fleet = read_fleet(config, store)
            if metrics:
                click.echo(metrics_page(fleet, of_service=False), nl=False)
            elif as_json:
                (json_document if watch is None else json_line)(fleet)
            else:
                if watch is not None and sys.stdout.isatty():
                    click.clear()
                _show(fleet)
            if watch is None:
                return fleet.exit_status
            time.sleep(watch)


def _show_source(
    config: AggregatorConfig, store: AggregatorStore, name: str, report: str | None, *, as_json: bool
) -> int:
    from headwater.aggregator.views import report_page, source_view

    fleet = read_fleet(config, store)
    view = source_view(config, store, fleet, name)
    if view is None:
        advice = "`headwater status CONFIG` names all sources."
        raise UsageFault("the service follows no source of this name", where=name, advice=advice)
    if report is not None:
        page = report_page(config, store, fleet, name) or b""
        with output_faults(report):
            Path(report).write_bytes(page)
        click.echo(f"{human_octets(len(page))} for the operator of {printable(name)}: {printable(report)}")
        return 0
    source: SourceStatus = view.data["source"]
    if as_json:
        json_document(view.data)
        return source.exit_status
    also = "paused" if source.is_paused and source.verdict is not SourceVerdict.PAUSED else ""
    also = f"retired ({source.retirement})" if source.retirement else also
    show(source, *_SOURCE, also=also, ago=_ago(source.sound_at, fleet.time), next=_next(source, fleet.time))
    show_some(lines_of_all(view.data["runs"][:5], _RUN), 5, indent="  ")
    if defects := [_DEFECT.format_map(one) for one in view.data["defects"]]:
        click.echo("defects of the source:")
        show_some(defects, 20, indent="  ")
    return source.exit_status


def _show(fleet: FleetStatus) -> None:
    from headwater.cli.status import show_rows

    now = fleet.time
    if not fleet.is_alive:
        click.echo("no service runs with this configuration: nothing here changes until one is started")
    show(fleet, _NOT_PUBLISHED, _FULL)
    telling = [one for one in fleet.sources if one.verdict not in (SourceVerdict.FOLLOWING, SourceVerdict.RETIRED)]
    if telling:
        show_rows(_COLUMNS, [_cells(one, now) for one in telling[:_MOST_SHOWN]])
    if len(telling) > _MOST_SHOWN:
        click.echo(f"… and {len(telling) - _MOST_SHOWN:,} more (--json lists them)")
    click.echo(", ".join(f"{count:,} {verdict}" for verdict, count in fleet.counts.items()) or "no source is followed")
    show(fleet, _TOTAL)
    show_some(lines_of_all(fleet.reasons, _REASON), _REASONS)
    show_some(lines_of_all(fleet.sinks, _SINK), _MOST_SHOWN)


_DEFECT = "{count:,} × {example} [{rule}]"
_NOT_PUBLISHED = "the copies are not published: {publish_fault}"
_COLUMNS = ("source", "state", "proved in step", "resources", "failed", "held back", "next run", "why")
_FULL = "{is_full}the disk is full: {free_octets:octets} are free, and {keep_free:octets} are to stay free"
_TOTAL = "{resources:resource}, {octets:octets}[; {failed} failed][; {held_back} held back][; {running:run} under way]"
_REASON = "{sources:source} failed by {code}[, such as: {example}]"
_SINK = (
    "sink {name}: at event {acknowledged}[; {waiting:event} behind][, the oldest for {lag_seconds}]"
    "[; {dead_letters:dead letter}][; {failures:failure} in a row: {failure}]"
)
_SOURCE = (
    "{name}: {verdict}[; {also}]; proved in step {ago}",
    "  {url}",
    "  {question}: {question_text}[ (you have {answer} it)]",
    "  you have refused: {refused_text}",
    "  last run ended with {last_status}: {reason}[ ({code})]",
    "  {resources:resource}, {octets:octets}[; {failed} failed][; {held_back} held back]",
    "  next run: {next}",
)
_RUN = (
    "run {number}, {kind}, {began_at}, exit status {exit_status}: {created} created, {updated} updated,"
    " {deleted} deleted[; {reason}]"
)


def _ago(at: dt.datetime | None, now: dt.datetime) -> str:
    return "never" if at is None else f"{human_seconds(max(0.0, (now - at).total_seconds()))} ago"


def _next(source: SourceStatus, now: dt.datetime) -> str:
    if source.running_since is not None:
        return f"running since {human_seconds(max(0.0, (now - source.running_since).total_seconds()))}"
    if source.is_paused:
        return "paused"
    if source.next_at is None or source.next_at <= now:
        return "overdue" if source.is_overdue else "at once"
    return f"in {human_seconds((source.next_at - now).total_seconds())}"


def _cells(source: SourceStatus, now: dt.datetime) -> tuple[str, ...]:
    why = source.question_text if source.verdict is SourceVerdict.QUESTION else source.reason
    ago, following = _ago(source.sound_at, now), _next(source, now)
    counts = (f"{source.resources:,}", f"{source.failed:,}", f"{source.held_back:,}")
    return (printable(source.name), str(source.verdict), ago, *counts, following, printable(why)[:80])
