"""`headwater explore`: shows what a source offers, as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import json_document, json_option, listening, printable
from headwater.cli.source_access import given_options, source_options
from headwater.quantities import human_octets

if TYPE_CHECKING:
    from headwater.sync.explore import ExploreNode


@click.command(name="explore")
@click.argument("url")
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this set (may be repeated).")
@click.option(
    "--sets", "most", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of sets to open."
)
@click.option(
    "--parts",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Maximum number of documents to open of an index, and of packages to show of a dump.",
)
@source_options
@json_option
def command(url: str, sets: tuple[str, ...], most: int, parts: int, as_json: bool, **wanted: Any) -> int:
    """Show what the source behind URL offers: sets, capabilities, documents, with times, counts and oddities.

    Of dumps it shows the packages, and whether packages are made on demand. Reads documents only. Exit status 1:
    something that is offered cannot be read.
    """
    from headwater.sync.explore import explore
    from headwater.sync.options import SyncOptions

    options = SyncOptions(sets=sets, **given_options(wanted))
    with listening() as listener:
        found = explore(url, options, parts=parts, most=most, listener=listener)
    if as_json:
        json_document(found)
    else:
        _show(found.tree, "", "")
    return found.exit_status


def _show(node: ExploreNode, lead: str, below: str) -> None:
    name = f" {printable(node.name)}" if node.name else ""
    click.echo(f"{lead}{node.title}{name}  {printable(node.uri)}")
    for line in _details(node):
        click.echo(f"{below}{'│ ' if node.children else '  '}  {line}")
    shown = len(node.children) + (1 if node.left_out else 0)
    for number, child in enumerate(node.children, start=1):
        last = number == shown
        _show(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
    if node.left_out:
        parts = "packages (--parts" if node.package_octets is not None else "documents (--parts"
        what = parts if node.capability else "sets (--sets"
        click.echo(f"{below}└─ … and {node.left_out:,} more {what} opens more)")


def _details(node: ExploreNode) -> list[str]:
    if node.fault is not None:
        return [f"cannot be read: {printable(node.fault)}"]
    times = [f"{name} {value}" for name, value in _times(node) if value]
    counts = [f"{node.entries:,} entries" if node.entries != 1 else "1 entry"] if node.entries is not None else []
    if node.octets is not None:
        counts.append(human_octets(node.octets))
    if node.resource_octets is not None:
        counts.append(f"{human_octets(node.resource_octets)} of resources")
    if node.package_octets is not None:
        counts.append(f"{human_octets(node.package_octets)} of packages")
    if (most := node.limits) is not None:
        counts += [f"{most.resources:,} resources", human_octets(most.octets), f"{most.requests:,} at a time"]
    lines = [", ".join([*counts, *times])] if counts or times else []
    lines += [f"warning: {printable(w.message)}, {w.count} times [{printable(w.rule)}]" for w in node.warnings]
    return lines


def _times(node: ExploreNode) -> list[tuple[str, str | None]]:
    return [("at", node.at), ("completed", node.completed), ("from", node.from_), ("until", node.until)]
