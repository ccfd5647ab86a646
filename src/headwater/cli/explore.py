"""`headwater explore`: shows what a source offers, as a tree."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.output import json_document, json_option, listening, printable
from headwater.cli.shared_options import SourceAddress, given_options, option, source_options
from headwater.quantities import human_octets
from headwater.sync.explore import ExploreNode, ExploreReport, LinkStatement, ResourceReport, explore, view_resource
from headwater.sync.options import SyncOptions


@click.command(name="explore")
@click.argument("url")
@option("--set NAME", "Only this set (may be repeated).", name="sets", multiple=True)
@option("--sets N", "Maximum number of sets to open.", click.IntRange(1), name="most", default=100, show_default=True)
@option(
    "--parts N",
    "Maximum number of documents to open of an index, and of packages of a dump.",
    click.IntRange(0),
    default=10,
    show_default=True,
)
@option("--resource URI", "Show all that belongs to this resource; URL may be the folder of a copy.")
@source_options
@json_option
def command(
    url: str, sets: tuple[str, ...], most: int, parts: int, resource: str | None, as_json: bool, **wanted: Any
) -> int:
    """Show what the source behind URL offers: sets, capabilities, documents, with times, counts and oddities.

    Of dumps it shows the packages, and whether packages are made on demand. Reads documents only. Exit status 1:
    something that is offered cannot be read. With --resource it reads the lists, and shows of one resource what they
    say of it: mirrors, representations, metadata records, versions and any other links, in both directions. Exit status
    1 then also means that no list has it.
    """
    options = SyncOptions(sets=sets, **given_options(wanted))
    if resource is None:
        SourceAddress().convert(url, None, None)
    found: ExploreReport | ResourceReport
    with listening() as listener:
        if resource is None:
            found = explore(url, options, parts=parts, most=most, listener=listener)
        else:
            found = view_resource(url, resource, options, listener=listener)
    if as_json:
        json_document(found)
    elif isinstance(found, ResourceReport):
        _show_resource(found)
    else:
        _show(found.tree, "", "")
    return found.exit_status


def _show_resource(found: ResourceReport) -> None:
    click.echo(printable(found.uri))
    below = len(found.sets) + len(found.held)
    for number, state in enumerate(found.sets, start=1):
        to, past = _branch(number, below)
        facts = [("change", state.change), ("at", state.datetime), ("lastmod", state.lastmod)]
        facts += [("type", state.type), ("encoding", state.encoding), ("hash", state.hash)]
        told = [f"{name} {printable(value)}" for name, value in facts if value]
        told += [f"{state.length:,} octets"] if state.length is not None else []
        click.echo(f"{to}set {printable(state.set)}: {', '.join(told) or 'no entry of its own'}")
        links = [(_RELATIONS.get(one.rel, one.rel), _target(one, one.href)) for one in state.links]
        inverse = [(_INVERSE.get(one.rel, f"{one.rel} of"), one) for one in state.stated_elsewhere]
        links += [(named, _target(one, one.stated_by or "")) for named, one in inverse]
        for place, (named, target) in enumerate(links, start=1):
            click.echo(f"{past}{_branch(place, len(links))[0]}{printable(named)}  {target}")
    for number, file in enumerate(found.held, start=len(found.sets) + 1):
        held = f"held as {printable(file.path)}, {human_octets(file.octets)}, {printable(file.digest or '')}"
        click.echo(f"{_branch(number, below)[0]}{held}")
    if not found.sets:
        click.echo("no list of the source has this resource", err=True)
    for fault in found.faults:
        click.echo(f"cannot be read: {printable(fault)}", err=True)


def _branch(number: int, count: int) -> tuple[str, str]:
    """What stands before a thing in a tree, and before the lines of what is below it."""
    return ("└─ ", "   ") if number == count else ("├─ ", "│  ")


_RELATIONS = {
    "duplicate": "mirror",
    "alternate": "representation",
    "canonical": "generic URI",
    "describedby": "described by",
    "memento": "this version",
    "via": "original",
    "http://www.openarchives.org/rs/terms/patch": "patch",
}
_INVERSE = {
    "describes": "described by (it says)",
    "describedby": "describes (it says)",
    "alternate": "representation of (it says)",
    "canonical": "generic URI of (it says)",
}


def _target(link: LinkStatement, uri: str) -> str:
    facts = [("pri", link.pri), ("type", link.type), ("modified", link.modified), ("hash", link.hash)]
    told = [f"{name} {printable(str(value))}" for name, value in facts if value is not None]
    told += [f"{link.length:,} octets"] if link.length is not None else []
    return f"{printable(uri)}{' (' + ', '.join(told) + ')' if told else ''}"


def _show(node: ExploreNode, lead: str, below: str) -> None:
    name = f" {printable(node.name)}" if node.name else ""
    click.echo(f"{lead}{node.title}{name}  {printable(node.uri)}")
    if node.fault is not None:
        lines = [f"cannot be read: {printable(node.fault)}"]
    else:
        told = (("at", node.at), ("completed", node.completed), ("from", node.from_), ("until", node.until))
        times = [f"{name} {value}" for name, value in told if value]
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
    for line in lines:
        click.echo(f"{below}{'│ ' if node.children else '  '}  {line}")
    shown = len(node.children) + (1 if node.left_out else 0)
    for number, child in enumerate(node.children, start=1):
        to, past = _branch(number, shown)
        _show(child, below + to, below + past)
    if node.left_out:
        parts = "packages (--parts" if node.package_octets is not None else "documents (--parts"
        what = parts if node.capability else "sets (--sets"
        click.echo(f"{below}{_branch(shown, shown)[0]}… and {node.left_out:,} more {what} opens more)")
