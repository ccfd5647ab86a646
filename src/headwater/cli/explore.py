"""`headwater explore`: shows what a source offers, as a tree."""

from typing import Any

import click

from headwater.cli.output import counted, json_document, json_option, lines_of, listening, printable, show
from headwater.cli.shared_options import SourceAddress, given_options, option, source_options
from headwater.sync.explore import ExploreNode, ExploreReport, ResourceReport, explore, view_resource
from headwater.sync.options import SyncOptions


@click.command(name="explore")
@click.argument("url")
@option("--set NAME", "Show only this set (repeatable).", name="sets", multiple=True)
@option("--sets N", "Maximum number of sets to open.", click.IntRange(1), name="most", default=100, show_default=True)
@option(
    "--parts N",
    "Maximum number of documents to open of an index, and of packages of a dump.",
    click.IntRange(0),
    default=10,
    show_default=True,
)
@option("--resource URI", "Show everything that belongs to this resource; URL may be the folder of a copy.")
@source_options
@json_option
def command(
    url: str, sets: tuple[str, ...], most: int, parts: int, resource: str | None, as_json: bool, **wanted: Any
) -> int:
    """Show what the source at URL offers: sets, capabilities and documents, with times, counts and oddities.

    The command reads documents only; of dumps it shows the packages. With --resource it shows what the lists say of one
    resource: mirrors, representations, metadata records, versions and other links, in both directions.

    Exit statuses: 0 done; 1 something offered cannot be read, or no list has the resource.
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


_DESCRIPTION = "[, type {type}][, encoding {encoding}][, hash {hash}][, {length} octets]"
_STATE = "[, change {change}][, at {datetime}][, lastmod {lastmod}]" + _DESCRIPTION
_LINK = "[, pri {pri}][, modified {modified}]" + _DESCRIPTION
_NODE = (
    "[, {count}][, {octets:octets}][, {resource_octets:octets} of resources][, {package_octets:octets} of packages]"
    "[, {limits.resources:resource}][, {limits.octets:octets}][, {limits.requests} at a time]"
    "[, at {at}][, completed {completed}][, from {from_}][, until {until}]"
)


def _facts(record: object, template: str, **more: object) -> str:
    """What a record says, as a list with commas."""
    return "".join(lines_of(record, template, **more)).removeprefix(", ")


def _show_resource(found: ResourceReport) -> None:
    click.echo(printable(found.uri))
    below = len(found.sets) + len(found.held)
    for number, state in enumerate(found.sets, start=1):
        to, past = _branch(number, below)
        click.echo(f"{to}set {printable(state.set)}: {_facts(state, _STATE) or 'no entry of its own'}")
        links = [(_RELATIONS.get(one.rel, one.rel), one.href, one) for one in state.links]
        inverse = [(_INVERSE.get(one.rel, f"{one.rel} of"), one.stated_by or "", one) for one in state.stated_elsewhere]
        for place, (named, uri, link) in enumerate([*links, *inverse], start=1):
            lead, facts = past + _branch(place, len(links) + len(inverse))[0], _facts(link, _LINK)
            click.echo(f"{lead}{printable(named)}  {printable(uri)}{f' ({facts})' if facts else ''}")
    for number, file in enumerate(found.held, start=len(found.sets) + 1):
        show(file, "{lead}held as {path}, {octets:octets}, {digest}", lead=_branch(number, below)[0])
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
    "describes": "described by (as that one states)",
    "describedby": "describes (as that one states)",
    "alternate": "representation of (as that one states)",
    "canonical": "generic URI of (as that one states)",
}


def _show(node: ExploreNode, lead: str, below: str) -> None:
    name = f" {printable(node.name)}" if node.name else ""
    click.echo(f"{lead}{node.title}{name}  {printable(node.uri)}")
    if node.fault is not None:
        lines = [f"cannot be read: {printable(node.fault)}"]
    else:
        count = None if node.entries is None else counted(node.entries, "entry")
        facts = _facts(node, _NODE, count=count)
        lines = [facts] if facts else []
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
