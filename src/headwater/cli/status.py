"""`headwater status`: how the sets of a source stand, for a person as a table, for a program as JSON."""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import TYPE_CHECKING

import click

from headwater.cli.face import (
    human_octets,
    human_seconds,
    json_document,
    json_line,
    json_option,
    listening,
    printable,
)
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.catalog.interface import Catalog
    from headwater.cli.whereabouts import Whereabouts
    from headwater.publish.standing import Standing

_COLUMNS = ("set", "phase", "resources", "last change", "published", "lag", "stale pages", "refreshed", "open list")
_LEFT = frozenset({"set", "phase"})


@click.command(name="status")
@click.argument("place", metavar="CATALOG")
@click.option("--set", "names", multiple=True, metavar="NAME", help="Only this set (may be repeated).")
@click.option(
    "--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Show it again so often, until Ctrl-C."
)
@json_option
def command(place: str, names: tuple[str, ...], watch: float | None, as_json: bool) -> Exit:
    """Show what each set of CATALOG holds, what is published of it, and how long anything has been waiting.

    CATALOG is a catalog's file, a state folder, a configuration (.toml), or a cluster's URL. It is only read, also
    while a server works on it. With --watch and --json, each time is one line.
    """
    from headwater.cli.whereabouts import Whereabouts, existing

    where = Whereabouts(place)
    with listening() as listener, existing(where, listener) as catalog:
        if unknown := set(names) - {state.name for state in catalog.sets()}:
            raise UsageFault(f"the catalog has no set {min(unknown)!r}")
        while True:
            report = _report(catalog, where, names)
            if as_json:
                (json_document if watch is None else json_line)(report)
                sys.stdout.flush()
            else:
                _show(report, again=watch is not None)
            if watch is None:
                return Exit.DONE
            time.sleep(watch)


def _report(catalog: Catalog, where: Whereabouts, names: tuple[str, ...]) -> dict[str, object]:
    """What the manual promises as JSON (docs/operations.md)."""
    from headwater.publish.standing import standings

    now = dt.datetime.now(dt.UTC)
    sets = standings(catalog, now, names)
    return {
        "catalog": where.place,
        "time": now,
        "catalog_octets": where.octets,
        "resources": sum(one.resources for one in sets),
        "lag_seconds": max((one.lag_seconds for one in sets), default=0.0),
        "sets": sets,
    }


def _show(report: dict[str, object], *, again: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    now, sets = report["time"], report["sets"]
    assert isinstance(now, dt.datetime)
    assert isinstance(sets, list)
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for one in sets:
        table.add_row(*(Text(cell) for cell in _cells(one, now)))
    if again and console.is_terminal:
        console.clear()
    if not console.is_terminal:
        console.width = 200  # a file or a pipe has no width: nothing is cut off for it
    octets = report["catalog_octets"]
    size = f", {human_octets(octets)}" if isinstance(octets, int) else ""
    click.echo(f"{printable(str(report['catalog']))} at {now:%Y-%m-%d %H:%M:%S} UTC{size}")
    console.print(table)


def _cells(one: Standing, now: dt.datetime) -> tuple[str, ...]:
    """One set as a row of the table."""
    waiting = f"{one.changes_waiting:,} behind" if one.changes_waiting else "all"
    segment = one.open_segment
    return (
        printable(one.name),
        one.phase,
        f"{one.resources:,}",
        f"{one.last_seq:,}",
        waiting if one.published else "nothing",
        human_seconds(one.changes_lag_seconds) if one.changes_waiting else "none",
        f"{one.pages_stale:,} of {one.pages:,}"
        + (f", {human_seconds(one.pages_lag_seconds)}" if one.pages_stale else ""),
        f"{human_seconds((now - one.refreshed_at).total_seconds())} ago" if one.refreshed_at else "never",
        f"no. {segment.number}: {segment.changes:,}" if segment is not None else "–",
    )
