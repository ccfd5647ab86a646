"""`headwater status`: the state of the sets of a source, or of a copy, as text for a person or as JSON."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
from msgspec.structs import asdict

from headwater.catalog.interface import Catalog
from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import (
    counted,
    json_document,
    json_line,
    json_option,
    listening,
    printable,
    sets_to_show,
    show_some,
    some_of,
)
from headwater.cli.serve_options import states_of
from headwater.cli.shared_options import Duration, option
from headwater.copy_state import FOLDER, STATE
from headwater.datasets.rows import dataset_statuses
from headwater.errors import Exit, UsageFault
from headwater.ingest.copy_intake import copy_lags
from headwater.ingest.push.ingest_state import unpaired
from headwater.ingest.set_problems import UnreadableCount, set_problems
from headwater.notify.hub.store import FILE as HUB
from headwater.notify.subscriber_store import PushStatus, push_status
from headwater.publish.status import SourceSetStatus, set_statuses
from headwater.quantities import human_octets, human_seconds
from headwater.source.configured_source import CATALOG
from headwater.spec.times import format_datetime
from headwater.sync.copy_status import LITTLE_ROOM_OCTETS, CopyStatus, SetStatus, copy_status

_COPY_EXAMPLES = 3
_MOST_SUBSCRIPTIONS = 20
_MOST_SETS = 100


def _show_copy(status: CopyStatus, push: PushStatus | None = None) -> None:
    running = ", a run is in progress" if status.running else ""
    as_of = f" as of {format_datetime(status.as_of)}" if status.as_of is not None else ""
    what = printable(status.source or "nothing yet")
    click.echo(f"copy of {what}{as_of} in {printable(status.destination)}{running}")
    last_run = "none has come to its end"
    if (run := status.last_run) is not None:
        last_run = f"{_at(run.ended_at)} ({_age(status.time - run.ended_at)} ago), exit status {run.exit_status}"
        if run.fault is not None:
            often = f"; so since {_at(run.fault_since)}, {run.fault_count:,} times" if run.fault_count > 1 else ""
            last_run += f": {printable(run.fault)}{often}"
    click.echo(f"last run: {last_run}")
    telling, rest = sets_to_show(status.sets, _MOST_SETS, lambda one: one.exit_status or one.failed or one.held_back)
    for set_status in telling:
        _show_set(set_status, status.time, push)
    if rest:
        files = counted(sum(set_status.files for set_status in rest), "file")
        click.echo(f"{len(rest):,} {'more sets' if telling else 'sets'}: {files}")
    if status.partial_files:
        what = "in progress" if status.running else "to resume"
        click.echo(f"{counted(status.partial_files, 'partial file')} {what}, {human_octets(status.partial_octets)}")
    if status.is_read_only:
        click.echo("read-only: the disk of the copy cannot be written, so nothing more can be placed")
    elif status.free_octets < LITTLE_ROOM_OCTETS:
        click.echo(
            f"no room: {human_octets(status.free_octets)} left where the copy lies, so nothing more can be placed"
        )
    click.echo(f"{counted(status.files, 'file')}, {human_octets(status.octets)}: {_VERDICTS[status.exit_status]}")


_VERDICTS = {
    0: "nothing failed, nothing is held back",
    1: "too old",
    3: "the source could not be read",
    4: "something failed, is refused, held back or not confirmed",
    5: "no run has come to its end",
    6: "the copy, or a store that follows it, could not be written",
}


def _show_set(set_status: SetStatus, now: dt.datetime, push: PushStatus | None) -> None:
    told = [f"{counted(set_status.files, 'file')}, {human_octets(set_status.octets)}"]
    listed, reached = set_status.position, None
    if push is not None and set_status.capability_list is not None:
        reached = push.reached(set_status.capability_list)
    if listed is not None and (reached is None or reached <= listed):
        told.append(f"as the source was at {_at(listed)}")
    elif listed is not None:
        lists = f"(its lists were read up to {_at(listed)})"
        told.append(f"as the source was at {_at(reached)} by its notifications {lists}")
    if set_status.sound_at is not None:
        told.append(f"last run without fault {_age(now - set_status.sound_at)} ago")
    elif set_status.checked_at is not None:
        told.append("no run without fault yet")
    click.echo(f"{printable(set_status.name)}: {'; '.join(told)}")
    if set_status.last is not None and set_status.last.fault:
        since = f" (no run without fault since {_at(set_status.unsound_since)})" if set_status.unsound_since else ""
        click.echo(f"  incomplete: {printable(set_status.last.fault)}{since}")
    for refusal in set_status.refusals:
        click.echo(f"  {printable(refusal)}")
    if set_status.failed:
        click.echo(f"  {set_status.failed:,} failed; `headwater retry` makes them due, `headwater forget` drops them")
    failures = []
    for one in set_status.failures[:_COPY_EXAMPLES]:
        tries = f"{one.tries:,} {'try' if one.tries == 1 else 'tries'} since {_at(one.since)}"
        is_asked = one.waits_until is not None and one.waits_until > now
        again = f"not again before {_at(one.waits_until)}, as asked" if is_asked else "tried by the next run"
        failures.append(f"{one.uri}: {one.reason} ({tries}; {again})")
    _show_examples(failures, set_status.failed)
    if set_status.newer_than_listed:
        what = counted(set_status.newer_than_listed, "file")
        click.echo(f"  {what} newer than listed, which no list of the source confirms so far; the next run looks again")
    if set_status.held_back:
        what = counted(set_status.held_back, "deletion")
        click.echo(f"  {what} held back; `headwater sync --max-delete SHARE` consents")
    _show_examples([kept.path for kept in set_status.deletions[:_COPY_EXAMPLES]], set_status.held_back)


def _show_push(push: PushStatus, now: dt.datetime) -> None:
    told = ["by push" if push.mode == "push" else "by polls"]
    if push.last_delivery is not None:
        told.append(f"last notification {_age(now - push.last_delivery)} ago")
    if push.waiting:
        told.append(f"{counted(push.waiting, 'notification')} to be applied")
    followed = "not followed at present; it was followed" if push.is_followed is False else "followed"
    click.echo(f"{followed} {'; '.join(told)}")
    lines = []
    for one in push.subscriptions:
        state = one.state if one.lease_ends is None else f"{one.state}, lease until {_at(one.lease_ends)}"
        if one.lease_ends is not None and one.lease_ends <= now:
            state = f"the lease ended {_at(one.lease_ends)}"
        fault = f"; {one.fault}" if one.fault else ""
        lines.append(f"{one.channel} at {one.hub}: {state}{fault}: {printable(one.topic)}")
    show_some(lines, _MOST_SUBSCRIPTIONS, indent="  ", rest=" (--json lists them)")


def _show_examples(lines: Sequence[str], count: int) -> None:
    show_some(lines, _COPY_EXAMPLES, count=count, indent="    ", rest=" (--json lists them)")


def _at(moment: dt.datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _age(span: dt.timedelta) -> str:
    return human_seconds(max(0.0, span.total_seconds()))


_COLUMNS = (
    *("set", "phase", "resources", "last change", "published", "lag", "stale pages", "refreshed", "looked at"),
    "open list",
)
_EXAMPLES = 10
_PATIENCE_SECONDS = 5.0  # somebody waits for the answer: who can wait longer says so in the URL
_HUB_TOPICS = 20
_PLACES = 3
_AHEAD = dt.timedelta(seconds=10)
"""Clocks of two machines may differ by less."""
_LEFT = frozenset({"set", "phase"})


@click.command(name="status")
@click.argument("place", metavar="PLACE")
@option("--set NAME", "Only this set (may be repeated).", name="names", multiple=True)
@option("--watch SECONDS", "Repeat at this interval, until Ctrl-C.", Duration(0.1))
@option(
    "--max-age SECONDS",
    "Exit status 1 if the last run without fault, or the last complete look at a set, is older (10m, 24h, 1d).",
    Duration(),
)
@json_option
def command(place: str, names: tuple[str, ...], watch: float | None, max_age: float | None, as_json: bool) -> int:
    """Show the state of the source whose catalog is at PLACE, of the copy in the folder PLACE, or of a hub.

    For a source: what each set has, how much of it is published, and how long anything has been waiting. PLACE is a
    catalog's file, a state folder, the output of `publish`, a folder that `serve` publishes, a configuration (.toml),
    or a cluster's URL. The exit status is 0; 4 when deletions are held back, files cannot be read, an RDF dataset
    cannot be brought up to date, or a copy that is published cannot be read; 6 when there is no room to write; with
    --max-age, 1 when a set was not looked at for longer, as when nobody publishes any more.

    For a copy: how far each set has come, the last run, what failed and what is held back; with --push its
    subscriptions, when their leases end, and whether push is at work. The exit status is that with
    which a run would end as things are: 0 all is well, 3 the source could not be read, 4 something failed or is held
    back, 5 no run has finished, 6 the copy cannot be written, as on a full disk.

    The command only reads PLACE, also while a server or a run uses it. With --watch and --json, it writes one line each
    time.
    """
    if os.path.isfile(os.path.join(place, HUB)):
        if names or watch is not None or max_age is not None:
            raise click.UsageError("--set, --watch and --max-age are not of a hub, and this is the state of one")
        from headwater.cli.hub import show_status

        return show_status(Path(place), _HUB_TOPICS, as_json=as_json)
    path = Path(place)
    is_inside = path.name == FOLDER and (path / STATE).is_file()
    if is_inside or ((path / FOLDER / STATE).is_file() and not (path / CATALOG).is_file()):
        return _copy(path.absolute().parent if is_inside else path, names, watch, max_age, as_json=as_json)
    where = CatalogArgument(state_of(place), patience_seconds=_PATIENCE_SECONDS)
    with listening() as listener, existing(where, listener) as catalog:
        if unknown := set(names) - {state.name for state in catalog.sets()}:
            raise UsageFault(f"the catalog has no set {min(unknown)!r}")
        while True:
            report = _report(catalog, where, names)
            if not _told_as_json(report, watch, as_json=as_json):
                _show(report)
            if watch is None:
                break
            time.sleep(watch)
    # that of a run that leaves a source so
    if report.get("no_room"):
        return Exit.STORE
    is_behind = any(one.fault for key in ("copies", "datasets") for one in report.get(key, ()))
    if is_behind or any(report.get(key) for key in ("held_back", "unreadable", "lost_versions")):
        return Exit.TRANSFERS_FAILED
    sets = [one for one in report["sets"] if one.name not in report["waiting"]]
    looks = [one.last_look_at for one in sets if where.sets is None or one.name in where.sets]
    # One in the future was before the clock was set back: how long ago, nobody knows.
    is_late = max_age is not None and any(
        at is None or abs((report["time"] - at).total_seconds()) > max_age for at in looks
    )
    return Exit.FINDINGS if is_late else Exit.DONE


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


def _copy(place: Path, names: tuple[str, ...], watch: float | None, max_age: float | None, *, as_json: bool) -> int:
    while True:
        status, push = copy_status(place, names, max_age=max_age), push_status(place / FOLDER)
        followed = {"running": True} if push is not None and push.is_followed else {}
        if not _told_as_json({**asdict(status), **followed, "push": push}, watch, as_json=as_json):
            _show_copy(status, push)
            if push is not None:
                _show_push(push, status.time)
        if watch is None:
            return status.exit_status
        time.sleep(watch)


def _told_as_json(report: dict[str, Any], watch: float | None, *, as_json: bool) -> bool:
    """Write the report where it is to be JSON, with `watch` as a line; else make room for it on a terminal."""
    if as_json:
        (json_document if watch is None else json_line)(report)
    elif watch is not None and sys.stdout.isatty():
        click.clear()
    return as_json


def _report(catalog: Catalog, where: CatalogArgument, names: tuple[str, ...]) -> dict[str, Any]:
    """What the manual promises as JSON (docs/operations.md)."""
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
        "held_back": problems.held_back,
        "unreadable": problems.unreadable,
        "lost_versions": problems.lost_versions,
    }
    for key, found in of_sets.items():
        # nobody looks after sets that have left the configuration: they stay as they were
        if kept := [one for one in found if where.sets is None or one.set in where.sets]:
            report[key] = kept
    return report | ({"no_room": full} if (full := where.full) else {})


def _show(report: dict[str, Any]) -> None:
    from headwater.cli.publish import dump_lines  # with it comes all that a source at work needs

    now, sets, octets = report["time"], report["sets"], report["catalog_octets"]
    size = f", {human_octets(octets)}" if octets is not None else ""
    click.echo(f"{printable(report['catalog'])} at {_at(now)}{size}")
    rows = [_COLUMNS, *(_cells(one, now) for one in sets)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(_COLUMNS, row, widths, strict=True)
        aligned = (cell.ljust(width) if name in _LEFT else cell.rjust(width) for name, cell, width in cells)
        click.echo("  ".join(aligned).rstrip())
    show_some([line for one in sets for line in dump_lines(one)], _EXAMPLES, rest=" (--json lists them)")
    ahead = [(one.name, one.last_at - now) for one in sets if one.last_at is not None and one.last_at - now > _AHEAD]
    set_back = "ahead of the clock, which was set back, until it is there"
    lines = [f"{name}: changes get times {_age(span)} {set_back}" for name, span in ahead]
    show_some(lines, _EXAMPLES, rest=" (--json has the times)")
    for key, line in _LINES.items():
        show_some([f"{one.set}: {line(one)}" for one in report.get(key, ())], _EXAMPLES, rest=" (--json lists them)")
    if waiting := report["waiting"]:
        click.echo(f"waiting for first records: {printable(some_of(waiting, _EXAMPLES))}")
    if pairs := report["unpaired"]:
        click.echo("resource documents set aside until their changes come:")
        lines = []
        for one in pairs:
            oldest = one["oldest_seconds"]
            waited = "" if oldest is None else f", the oldest for {human_seconds(oldest)}"
            lines.append(f"{one['set']}: {one['count']:,}{waited}")
        show_some(lines, _EXAMPLES, indent="  ", rest=" (--json lists them)")
    for folder, free in report.get("no_room", {}).items():
        click.echo(f"no room: {human_octets(free)} left in {printable(folder)}, so nothing more can be recorded")


def _unreadable_line(unreadable: UnreadableCount) -> str:
    places = ", ".join(unquote(one) for one in unreadable.examples[:_PLACES])
    more = ", …" if len(unreadable.examples) > _PLACES else ""
    files = f"{counted(unreadable.files, 'file')} cannot be read"
    return f"{files}, and what is published of them stays: {places}{more}"


_LINES: dict[str, Callable[[Any], str]] = {
    "copies": lambda copy: (
        f"publishes the copy of {copy.origin} in {copy.copy}: "
        + (copy.fault or ("to be compared" if copy.waiting is None else f"{copy.waiting:,} changes behind"))
    ),
    "datasets": lambda dataset: ", ".join(
        (
            counted(dataset.statements, "statement"),
            human_octets(dataset.octets),
            counted(dataset.patches, "patch") + (f"; not up to date: {dataset.fault}" if dataset.fault else ""),
        )
    ),
    "held_back": lambda held: f"deletions are held back: {held.reason}",
    "unreadable": _unreadable_line,
    "lost_versions": lambda lost: f"the last {counted(lost.count, 'version')} could not be kept: is there room?",
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
