"""`headwater status`: the state of the sets of a source, or of a copy, as text for a person or as JSON."""

import datetime as dt
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import click
from msgspec.structs import asdict, astuple, replace

from headwater.catalog.interface import Catalog, ahead_seconds
from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import (
    NOT_CONFIGURED,
    STANDARD,
    counted,
    json_document,
    json_line,
    json_option,
    lines_of,
    lines_of_all,
    listening,
    output_faults,
    printable,
    sets_to_show,
    show,
    show_some,
    some_of,
)
from headwater.cli.serve_options import states_of
from headwater.cli.server_log import last_packages
from headwater.cli.shared_options import Duration, option
from headwater.copy_state import FOLDER, STATE
from headwater.datasets.rows import dataset_statuses
from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.ingest.copy_intake import copy_lags
from headwater.ingest.deletion_guard import set_problems
from headwater.ingest.push.ingest_state import unpaired
from headwater.notify.hub.store import FILE as HUB
from headwater.notify.subscriber_store import PushStatus, push_status
from headwater.publish.status import SourceSetStatus, set_statuses
from headwater.quantities import human_octets, human_seconds
from headwater.source.config import SourceConfig
from headwater.source.configured_source import CATALOG
from headwater.sync.copy_status import LITTLE_ROOM_OCTETS, CopyStatus, copy_records, copy_status
from headwater.sync.reports import CopyRecord
from headwater.time_windows import open_seconds, opens_at, windows_of

_COPY_EXAMPLES = 3
_MOST_SUBSCRIPTIONS = 20
_MOST_SETS = 100
_MORE = " (--json lists them)"


def _show_copy(status: CopyStatus, push: PushStatus | None) -> None:
    """What is known of a copy, set by set: of many sets, those of which more is to be said."""
    now, run = status.time, status.last_run
    show(status, *_COPY, source=status.source or "nothing yet")
    if run is None:
        click.echo("last run: no run has finished yet")
    else:
        show(run, _LAST_RUN, ago=_ago(run.ended_at, now))
    telling, rest = sets_to_show(status.sets, _MOST_SETS, lambda one: one.exit_status or one.failed or one.held_back)
    for one in telling:
        reached = None if push is None else push.reached(one.capability_list)
        is_further = one.position is not None and reached is not None and reached > one.position
        show(one, *_SET, reached=reached if is_further else None)
        show_some(one.refusals, len(one.refusals), indent="  ")
        show(one, _FAILED)
        failures = lines_of_all(one.failures[:_COPY_EXAMPLES], _FAILURE)
        show_some(failures, _COPY_EXAMPLES, count=one.failed, indent="    ", rest=_MORE)
        count, kept = one.held_back - one.held_updates, [kept.path for kept in one.deletions]
        waiting = (("update", one.held_updates, list(one.updates)), ("deletion", count, kept))
        for (kind, count, paths), what in zip(waiting, ("update", "delete"), strict=True):
            show(None, _HELD_BACK, count=count and counted(count, kind), command=one.consent.get(what))
            show_some(paths[:_COPY_EXAMPLES], _COPY_EXAMPLES, count=count, indent="    ", rest=_MORE)
    if rest:
        files = counted(sum(one.files for one in rest), "file")
        click.echo(f"{len(rest):,} {'more sets' if telling else 'sets'}: {files}")
    is_full = status.free_octets < LITTLE_ROOM_OCTETS and not status.is_read_only
    show(status, *_ROOM, is_full=is_full)
    click.echo(f"{counted(status.files, 'file')}, {human_octets(status.octets)}: {_verdict(status)}")
    if push is not None:
        show(push, _PUSH, way="push" if push.mode == "push" else "polls", ended=push.is_followed is False)
        lines = lines_of_all(push.subscriptions, _SUBSCRIPTION)
        show_some(lines, _MOST_SUBSCRIPTIONS, indent="  ", rest=_MORE)


def _verdict(status: CopyStatus) -> str:
    (wrong,) = lines_of(status, _WRONG, newer=sum(one.newer_than_listed for one in status.sets))
    is_told = wrong and status.exit_status == Exit.TRANSFERS_FAILED
    if status.exit_status == Exit.UNDETERMINED and status.last_run is None:
        return "no run has finished yet"
    return wrong[2:] if is_told else _VERDICTS[status.exit_status]


_COPY = (
    "copy of {source}[ as of {as_of}] in {destination}[, a run is in progress{running}]",
    "the source has moved to {moved_to}: use this address, the old one may stop redirecting",
)
_LAST_RUN = (
    "last run: {ended_at} ({ago}), exit status {exit_status}[: {fault} (since {fault_since}, runs: {fault_count})]"
)
_SET = (
    "{name}: {files:file}, {octets:octets}[; as the source was at {position}][, and {reached} by its notifications]"
    "[; last run without fault {sound_age_seconds} ago]",
    "  incomplete: {last.fault}[ (no run without fault since {unsound_since})]",
    "  {newer_than_listed:file} newer than the source's lists; the next run checks again",
)
_FAILED = "  {failed} failed; `headwater retry` makes them due, `headwater forget` drops them"
_FAILURE = "{uri}: {reason} ({tries:try} since {since}[; not again before {waits_until}, as asked])"
_HELD_BACK = (
    "  {count} held back: the files stay until you consent, by `{command}` (with your other options, such as --changes)"
)
_ROOM = (
    "{partial_files:partial file} in progress or to be resumed, {partial_octets:octets}",
    "{is_read_only}read-only: the disk of the copy cannot be written, so nothing more can be placed",
    "{is_full}no room: {free_octets:octets} left where the copy lies, so nothing more can be placed",
)
_PUSH = (
    "[{ended}not followed at present; it was ]followed by {way}[; last notification at {last_delivery}]"
    "[; {waiting:notification} to be applied]"
)
_SUBSCRIPTION = "{channel} at {hub}: {state}[, lease until {lease_ends}][; {fault}]: {topic}"
_WRONG = (
    "[, {held_back:file} held back until you consent][, {failed:resource} failed][, {refused:entry} refused]"
    "[, {newer:file} newer than the source's list]"
)
_VERDICTS = {
    0: "nothing failed, nothing is held back",
    1: "too old",
    3: "the source could not be read",
    4: "something failed, was refused, waits for consent, or is not confirmed",
    5: "the last run came to no result",
    6: "the copy, or a store that follows it, could not be written",
}


_COLUMNS = (
    *("set", "phase", "resources", "last change", "published", "lag", "stale pages", "refreshed", "looked at"),
    "open list",
)
_EXAMPLES = 10
_PATIENCE_SECONDS = 5.0  # somebody waits for the answer: who can wait longer says so in the URL
_HUB_TOPICS = 20
_PLACES = 3


@dataclass(frozen=True, kw_only=True)
class _ClosedWindow:
    """A set whose repository is asked again when its window opens."""

    set: str
    opens_at: dt.datetime


_BEHIND = ("copies", "datasets", "feeds")
_LEFT = frozenset({"set", "phase", "place", "state", "source", "why"})


@click.command(name="status")
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@option("--set NAME", "Show only this set (repeatable).", name="names", multiple=True)
@option("--watch SECONDS", "Repeat at this interval, until Ctrl-C.", Duration(0.1))
@option(
    "--max-age SECONDS",
    "End with status 1 if the last run without fault, or the last scan of a set, is older (10m, 24h).",
    Duration(),
)
@option("--records FORM", "Write a line for each resource of the copies.", click.Choice(["json", "csv"]))
@option("--metrics", "Write metrics for the textfile collector of Prometheus's node exporter.")
@option(
    "--report FILE",
    "Write what is wrong with a source of a service as one HTML file, for its operator.",
    name="report_file",
)
@json_option
def command(
    places: tuple[str, ...],
    names: tuple[str, ...],
    watch: float | None,
    max_age: float | None,
    records: str | None,
    metrics: bool,
    report_file: str | None,
    as_json: bool,
) -> int:
    """Show the state of a source, a copy, a hub or a service at PLACE; only read, also while it is used.

    PLACE is a copy's folder, a state folder, a catalog's file, the output of `publish`, or a folder that `serve`
    publishes. It may also be a configuration (.toml) or a cluster's URL. With --watch and --json, each look writes one
    line.

    Exit statuses for a source: 0 all is well; 1 a scan is older than --max-age; 4 deletions are held back, or files, an
    RDF dataset, a copy, index or repository cannot be read; 6 no room to write.

    Exit statuses for a copy: 0 all is well; 1 the last run without fault is older than --max-age; 3 the source cannot
    be read; 4 something failed or is held back; 5 no run has finished, or the last one came to no result; 6 the copy
    cannot be written.

    Of a service, PLACE is its configuration; the name of one source may follow. Exit statuses: 0 all is well; 1 a
    source is out of date or paused; 3 one fails; 4 one is degraded or waits for you, or a sink fails; 5 one has
    no whole copy yet; 6 no service runs, nothing is published, or no room.

    For several places it shows one table, with the sum of the copies. The exit status is the first of 6, 3, 5, 2
    (nothing is there), 4 and 1 that occurs.
    """
    if metrics and (as_json or watch is not None or records is not None):
        raise click.UsageError("--metrics excludes --json, --watch and --records")
    if any(place.startswith(("http://", "https://")) for place in places):
        raise UsageFault(
            "status reads folders and catalogs, and this is an address",
            where=places[0],
            advice="Name the folder of the state (of a hub, too), on its machine. A server answers at /health,"
            " and `headwater explore` shows what it offers.",
        )
    is_narrowed, is_alone = bool(names) or watch is not None or max_age is not None, len(places) == 1
    from headwater.cli.fleet import is_aggregation, show_fleet

    if is_aggregation(places[0]):
        if names or max_age is not None or records is not None:
            raise click.UsageError("--set, --max-age and --records are not of a service that follows sources")
        return show_fleet(places, watch, report_file, metrics=metrics, as_json=as_json)
    if report_file is not None:
        raise click.UsageError("--report is of a source that a service follows: name its configuration first")
    if records is not None:
        if is_narrowed or as_json:
            raise click.UsageError("--records excludes --set, --watch, --max-age and --json")
        return _write_records(places, is_csv=records == "csv")
    if is_alone and os.path.isfile(os.path.join(places[0], HUB)):
        if is_narrowed:
            raise click.UsageError("--set, --watch and --max-age are not of a hub, and this is the state of one")
        from headwater.cli.hub import show_status

        return show_status(Path(places[0]), _HUB_TOPICS, as_json=as_json)
    while True:
        found = [_told_of(place, names, max_age, is_alone=is_alone) for place in places]
        statuses = {one.exit_status for one in found}
        status = min(statuses) if len(statuses) == 1 else next(int(one) for one in _GRAVEST if one in statuses)
        several = [{"place": one.place, **one.report, "exit_status": one.exit_status} for one in found]
        copies = [one for one in several if "destination" in one]
        total = {"copies": len(copies), **{name: sum(one[name] for one in copies) for name in ("files", "octets")}}
        total["not_well"] = sum(one["exit_status"] != Exit.DONE for one in several)
        report = found[0].report if is_alone else {"places": several, "total": total, "exit_status": status}
        if metrics:
            _show_figures(report)
            return status
        if as_json:
            (json_document if watch is None else json_line)(report)
        else:
            if watch is not None and sys.stdout.isatty():
                click.clear()
            if is_alone:
                found[0].show()
            else:
                show_rows(_PLACES_COLUMNS, [one.cells for one in found])
                show(None, _TOTAL, **total)
        if watch is None:
            return status
        time.sleep(watch)


_GRAVEST = (Exit.STORE, Exit.SOURCE, Exit.UNDETERMINED, Exit.USAGE, Exit.TRANSFERS_FAILED, Exit.FINDINGS, Exit.DONE)
_TOTAL = "{copies:copy}: {files:file}, {octets:octets}[; {not_well:place} not well]"
_PLACES_COLUMNS = ("place", "resources", "octets", "failed", "held back", "last good", "state")


class _Told(NamedTuple):
    """What is told of one place; `cells` are its row among several."""

    place: str
    report: dict[str, Any]
    exit_status: int
    cells: tuple[str, ...]
    show: Callable[[], None]


def _told_of(place: str, names: tuple[str, ...], max_age: float | None, *, is_alone: bool) -> _Told:
    """The state of the copy or the source at a place; what is wrong with one of several is told in its row."""
    try:
        copy = copy_at(place)
        return _source(place, names, max_age) if copy is None else _copy(place, copy, names, max_age)
    except HeadwaterError as fault:
        if is_alone:
            raise
        told = {"code": fault.code, "what": fault.what, "where": fault.where, "advice": fault.todo}
        cells = (printable(place), "", "", "", "", "", printable(fault.what))
        return _Told(place, {"error": told}, int(fault.exit_status), cells, lambda: None)


def _write_records(places: tuple[str, ...], *, is_csv: bool) -> int:
    from headwater.cli.changes_file import csv_line, table_line

    columns = ["set" if name == "set_name" else name for name in CopyRecord.__struct_fields__]
    with output_faults(STANDARD):
        if is_csv:
            sys.stdout.buffer.write(csv_line(columns))
        for place in places:
            for record in copy_records(place):
                sys.stdout.buffer.write(table_line(columns, astuple(record), is_csv=is_csv))
        sys.stdout.buffer.flush()
    return Exit.DONE


def _source(place: str, names: tuple[str, ...], max_age: float | None) -> _Told:
    where = CatalogArgument(state_of(place), patience_seconds=_PATIENCE_SECONDS)
    with listening() as listener, existing(where, listener) as catalog:
        if unknown := set(names) - {state.name for state in catalog.sets()}:
            raise UsageFault(f"the catalog has no set {min(unknown)!r}")
        report = _report(catalog, where, names)
    held_back, now = report.get("held_back", ()), report["time"]
    sets = [one for one in report["sets"] if one.name not in report["waiting"]]
    looks = [one.last_look_at for one in sets if where.sets is None or one.name in where.sets]
    # One in the future was before the clock was set back: how long ago, nobody knows.
    is_late = max_age is not None and any(at is None or abs((now - at).total_seconds()) > max_age for at in looks)
    # that of a run that leaves a source so
    status = Exit.FINDINGS if is_late else Exit.DONE
    is_behind = any(one.fault for key in _BEHIND for one in report.get(key, ()))
    if is_behind or any(report.get(key) for key in ("held_back", "unreadable", "lost_versions")):
        status = Exit.TRANSFERS_FAILED
    if report.get("no_room"):
        status = Exit.STORE
    looked = _ago(min((at for at in looks if at is not None), default=None), now)
    state = f"a source: {_SOURCE_VERDICTS[status]}"
    counts = (f"{report['resources']:,}", human_octets(report["catalog_octets"] or 0), "", f"{len(held_back):,} sets")
    return _Told(place, report, status, (printable(place), *counts, looked, state), lambda: _show(report))


_SOURCE_VERDICTS = {
    Exit.DONE: "well",
    Exit.FINDINGS: "not looked at for longer",
    Exit.TRANSFERS_FAILED: "something is held back, unreadable or behind",
    Exit.STORE: "no room",
}


def copy_at(place: str) -> Path | None:
    """The copy that a place is, by its folder or that of its state; None: it is none."""
    path = Path(place)
    if path.name == FOLDER and (path / STATE).is_file():
        return path.absolute().parent
    return path if (path / FOLDER / STATE).is_file() and not (path / CATALOG).is_file() else None


def state_of(place: str) -> str:
    """The one state folder of a folder that is served, where nothing else is known to be at PLACE; or PLACE itself."""
    path = Path(place)
    if not path.exists() or any((path / one / CATALOG).exists() for one in ("", FOLDER)):
        return place
    states = states_of(path)
    if len(states) > 1:
        what = "several sources publish what is here"
        raise UsageFault(what, where=place, advice=f"Name the state of one: {', '.join(map(str, states))}")
    return str(states[0]) if states else place


def _copy(place: str, folder: Path, names: tuple[str, ...], max_age: float | None) -> _Told:
    status, push = copy_status(folder, names, max_age=max_age), push_status(folder / FOLDER)
    followed = {"running": True} if push is not None and push.is_followed else {}
    report = {**asdict(status), **followed, "push": push}
    sound = [one.sound_at for one in status.sets]
    last = None if None in sound else min((at for at in sound if at is not None), default=None)
    counts = (f"{status.files:,}", human_octets(status.octets), f"{status.failed:,}", f"{status.held_back:,}")
    state, run = _verdict(status), status.last_run
    if run is not None and run.exit_status:
        ended = f"the last run ended with {run.exit_status}" + (f": {run.fault}" if run.fault else "")
        state = ended if run.fault and run.exit_status == status.exit_status else f"{state}; {ended}"
    cells = (printable(place), *counts, _ago(last, status.time), printable(state))
    return _Told(place, report, status.exit_status, cells, lambda: _show_copy(status, push))


def _show_figures(report: dict[str, Any]) -> None:
    from headwater.http.metrics import SET_FIGURES, Family, Sample, exposition, gauge, labels

    found: dict[str, list[Sample]] = {}
    for one in report.get("places", [report]):
        copy = {"copy": one["destination"]} if "destination" in one else {}
        rows: list[tuple[str, str, Any]] = []
        if copy:
            values = {**one, "ended_at": one["last_run"] and one["last_run"].ended_at}
            rows = [(f"copy_{name}", labels(**copy), values[key]) for name, key in _COPY_FIGURES.items()]
        for each in one.get("sets", ()):
            of = labels(**copy, set=each.name)
            rows += [(f"copy_{name}", of, getattr(each, key)) for name, key in _COPY_SET_FIGURES.items() if copy]
            rows += [(f"set_{name}", of, getattr(each, key)) for name, key, _ in SET_FIGURES if key and not copy]
            if not copy:
                rows.append(("set_ahead_seconds", of, ahead_seconds(each.last_at, one["time"])))
                rows.append(("set_waiting", of, int(each.name in one["waiting"])))
        for name, of, value in rows:
            found.setdefault(f"headwater_{name}", []).append((of, gauge(value)))
    text = "As docs/reference/outputs.md says."
    click.echo(exposition(Family(name, "gauge", text, samples) for name, samples in found.items()), nl=False)


_COPY_FIGURES = {
    "status_timestamp_seconds": "time",
    "exit_status": "exit_status",
    "free_bytes": "free_octets",
    "last_run_timestamp_seconds": "ended_at",
}
_COPY_SET_FIGURES = {
    "sound_timestamp_seconds": "sound_at",
    "position_timestamp_seconds": "position",
    **{"files": "files", "bytes": "octets", "failed": "failed", "refused": "refused", "held_back": "held_back"},
}


def _report(catalog: Catalog, where: CatalogArgument, names: tuple[str, ...]) -> dict[str, Any]:
    """What the manual promises as JSON (docs/reference/outputs.md)."""
    now = dt.datetime.now(dt.UTC)
    sets, problems = set_statuses(catalog, now, names), set_problems(catalog, names)
    pairs = sorted((name, one) for name, one in unpaired(catalog).items() if not names or name in names)
    report: dict[str, Any] = {
        "catalog": where.place,
        "time": now,
        "catalog_octets": where.octets,
        "free_octets": where.free_octets,
        "resources": sum(one.resources for one in sets),
        "lag_seconds": max((one.lag_seconds for one in sets), default=0.0),
        "pages_lag_seconds": max((one.pages_lag_seconds for one in sets), default=0.0),
        "waiting": sorted({*where.push_sets} - {one.name for one in sets if one.phase != "loading"}),
        "unpaired": [
            {
                "set": name,
                "count": one.count,
                "oldest_seconds": None if one.since is None else max(0.0, (now - one.since).total_seconds()),
            }
            for name, one in pairs
        ],
        "sets": sets,
    }
    of_sets: dict[str, Iterable[Any]] = {
        "copies": copy_lags(catalog, names),
        "datasets": dataset_statuses(catalog, names),
        "feeds": problems.feeds,
        "windows": _closed_windows(where.config, now, names),
        "held_back": problems.held_back,
        "unreadable": problems.unreadable,
        "lost_versions": problems.lost_versions,
    }
    for key, found in of_sets.items():
        # nobody looks after sets that have left the configuration: they stay as they were
        if kept := [one for one in found if where.sets is None or one.set in where.sets]:
            report[key] = kept
    faulty = {one.set for key in _BEHIND for one in report.get(key, ()) if one.fault}
    report["sets"] = [
        replace(one, phase="failing") if one.phase == "loading" and one.name in faulty else one for one in sets
    ]
    if where.sets is not None and (left := {one.name for one in catalog.sets()}.difference(where.sets)):
        report["not_configured"] = sorted(left)
    sent = () if where.file is None else last_packages(where.file.parent, 100)
    packages = [one for one in sent if not names or one["set"] in names]
    more = {"packages": packages, "no_room": where.full}
    return report | {name: one for name, one in more.items() if one}


def _closed_windows(config: SourceConfig | None, now: dt.datetime, names: tuple[str, ...]) -> Iterator[_ClosedWindow]:
    for one in () if config is None else config.sets:
        windows = windows_of(one.window)
        if not open_seconds(now, windows) and (not names or one.name in names):
            yield _ClosedWindow(set=one.name, opens_at=opens_at(now, [windows]))


def _show(report: dict[str, Any]) -> None:
    from headwater.cli.publish import dump_lines  # with it comes all that a source at work needs

    now, sets = report["time"], report["sets"]
    show(None, "{catalog} at {time}[, {catalog_octets:octets}]", **report)
    show_rows(_COLUMNS, [_cells(one, now) for one in sets])
    show_some([line for one in sets for line in dump_lines(one)], _EXAMPLES, rest=_MORE)
    ahead = [(one, span) for one in sets if (span := ahead_seconds(one.last_at, now))]
    show_some([line for one, span in ahead for line in lines_of(one, _AHEAD_LINE, span=span)], _EXAMPLES, rest=_MORE)
    for key, template in _LINES.items():
        lines: list[str] = []
        for one in report.get(key, ()):
            places = [unquote(place) for place in getattr(one, "examples", ())]
            lines += lines_of(one, template, places=some_of(places, _PLACES))
        show_some(lines, _EXAMPLES, rest=_MORE)
    if any("allow-deletions" in one.reason for one in report.get("held_back", ())):
        click.echo(f"to withdraw the files, once: `headwater allow-deletions {shlex.quote(report['catalog'])}`")
    if left := report.get("not_configured"):
        click.echo(NOT_CONFIGURED.format(printable(some_of(left, _EXAMPLES)), left[0]))
    if waiting := report["waiting"]:
        click.echo(f"waiting for first records: {printable(some_of(waiting, _EXAMPLES))}")
    if pairs := report["unpaired"]:
        click.echo("resource documents set aside until their changes come:")
        lines = [line for one in pairs for line in lines_of(None, _UNPAIRED, **one)]
        show_some(lines, _EXAMPLES, indent="  ", rest=_MORE)
    packages = [lines_of(None, _PACKAGE, **{"agent": None, **one}) for one in report.get("packages", ())]
    show_some(list(chain(*packages)), _EXAMPLES, rest=_MORE)
    for folder, free in report.get("no_room", {}).items():
        click.echo(f"no room: {human_octets(free)} left in {printable(folder)}, so nothing more can be recorded")


def show_rows(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Show a table on standard output."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = zip(columns, row, widths, strict=True)
        aligned = (cell.ljust(width) if name in _LEFT else cell.rjust(width) for name, cell, width in cells)
        click.echo("  ".join(aligned).rstrip())


_AHEAD_LINE = "{name}: changes get times {span} ahead of the clock, which was set back, until it is there"
_UNPAIRED = "{set}: {count}[, the oldest for {oldest_seconds}]"
_PACKAGE = "{set}: package[ for {agent}] at {time}, {asked}: {resources:resource}, {octets:octets}"
_LINES = {
    "copies": "{set}[: publishes the copy of {origin} in {copy}][; {waiting:change} behind][: {fault}]",
    "datasets": "{set}: {statements:statement}, {octets:octets}, {patches:patch}"
    "[; {left_out:bad statement} left out][; not up to date: {fault}]",
    "feeds": "{set}: not up to date: {fault}",
    "windows": "{set}: waits for its window, which opens at {opens_at}",
    "held_back": "{set}: deletions are held back: {reason}",
    "unreadable": "{set}: {files:file} cannot be read, and what is published of them stays: {places}",
    "lost_versions": "{set}: the last {count:version} could not be kept: is there room?",
}
"""What is told of a set in the parts of the report that not every source has."""


def _ago(at: dt.datetime | None, now: dt.datetime) -> str:
    if at is None:
        return "never"
    return f"{human_seconds((now - at).total_seconds())} ago" if at <= now else "by a later clock"


def _cells(status: SourceSetStatus, now: dt.datetime) -> tuple[str, ...]:
    waiting = f"{status.changes_waiting:,} behind" if status.changes_waiting else "all"
    segment = status.open_segment
    return (
        printable(status.name),
        status.phase,
        f"{status.resources:,}",
        f"{status.last_seq:,}",
        waiting if status.published else "nothing",
        human_seconds(status.changes_lag_seconds) if status.changes_waiting else "none",
        f"{status.pages_stale:,} of {status.pages:,}"
        + (f", {human_seconds(status.pages_lag_seconds)}" if status.pages_stale else ""),
        _ago(status.refreshed_at, now),
        _ago(status.last_look_at, now),
        f"no. {segment.number}: {segment.changes:,}" if segment is not None else "–",
    )
