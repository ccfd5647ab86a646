"""`headwater why`: whether one resource is listed by a source, or is in a copy, and if not, why."""

import click

from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import json_document, json_option, listening, printable, show
from headwater.cli.status import copy_at, state_of
from headwater.errors import Exit
from headwater.source.resource_status import resource_status
from headwater.sync.copied_resource import copied_resource
from headwater.sync.copy_status import copy_status


@click.command(name="why")
@click.argument("place", metavar="PLACE")
@click.argument("asked", metavar="PATH|URI")
@json_option
def command(place: str, asked: str, as_json: bool) -> Exit:
    """Show whether the source at PLACE lists a resource, or the copy in PLACE has it, and if not, why.

    Name the resource by its URI, or by the path of its file. PLACE is as for `status`. Name a source by its
    configuration (.toml) if it has one: other places do not have its patterns. The command writes nothing and sends no
    request.

    Exit statuses: 0 listed, or in the copy; 1 not; 2 usage; 6 the state cannot be read.
    """
    if (copy := copy_at(place)) is not None:
        found = copied_resource(copy, asked)
    else:
        where = CatalogArgument(state_of(place))
        with listening(quiet=True) as listener, existing(where, listener) as catalog:
            found = resource_status(catalog, where.config, asked)
    is_found = any(one.found for one in found)
    if as_json:
        json_document({"place": place, "asked": asked, "found": is_found, "sets": found})
        return Exit.DONE if is_found else Exit.FINDINGS
    for one in found:
        place = ("" if one.found else "not ") + ("listed in" if copy is None else "in the copy of")
        show(one, "{uri}: {place} {set}[ since {since}][; {change}][; changed at {changed_at}]", place=place)
        show(one, "  file: {path}[, {hash}]", "  past states: {versions}")
        for reason in one.reasons:
            show(reason, "  {lead}: {message} ({rule})", lead="but" if one.found else "because")
        for kind in ("document", "package"):
            for uri in getattr(one, f"{kind}s"):
                show(None, "  {kind}: {uri}", kind=kind, uri=uri)
    if not found:
        folders = [] if copy is not None or where.config is None else [one.files for one in where.config.sets]
        looked = f": {printable(', '.join(filter(None, folders)))}" if any(folders) else ""
        if copy is not None and all(one.sound_at is None for one in copy_status(copy).sets):
            looked += f"; no run has been without fault: `headwater status {printable(str(copy))}` says why"
        click.echo(f"{printable(asked)}: no set has it, and it is in no set's folder{looked}")
    return Exit.DONE if is_found else Exit.FINDINGS
