"""`headwater allow-deletions`: consents, for one time, to deletions that a source holds back."""

from __future__ import annotations

import click

from headwater.cli.output import json_option, listening, printable, show_result
from headwater.errors import Exit, UsageFault


@click.command(name="allow-deletions")
@click.argument("place", metavar="PLACE")
@click.argument("sets", metavar="[SET]...", nargs=-1)
@json_option
def command(place: str, sets: tuple[str, ...], as_json: bool) -> Exit:
    """Let the source whose catalog is at PLACE delete what it holds back, once.

    PLACE is as for `status`: a state folder, a configuration (.toml), a catalog's file, the output of `publish`, a
    folder that `serve` publishes, or a cluster's URL. Without SET, it is all sets that hold deletions back.

    A source at work looks within some seconds; `publish` when it runs next; who announces to a push set sends the
    deletions again. The consent ends with the scan that has recorded the deletions, and after an hour.
    """
    from headwater.cli.catalog_argument import CatalogArgument, existing
    from headwater.cli.status import state_of
    from headwater.ingest.set_problems import DeletionGuard, set_problems
    from headwater.source.configured_source import utc_now

    with listening() as listener, existing(CatalogArgument(state_of(place)), listener) as catalog:
        opened = {state.name for state in catalog.sets() if state.opened_at is not None}
        if unknown := set(sets) - opened:
            known = ", ".join(sorted(opened)) or "none"
            raise UsageFault(f"no set {min(unknown)!r} is published here", where=place, advice=f"Its sets: {known}.")
        reasons = {one.set: one.reason for one in set_problems(catalog).held_back}
        names = list(dict.fromkeys(sets)) or sorted(reasons)
        for name in names:
            DeletionGuard(catalog, name, 0, utc_now).allow()
    lines = [f"{printable(name)}: deletions are allowed once, within an hour" for name in names]
    allowed = [{"set": name, "held_back": reasons.get(name)} for name in names]
    show_result({"allowed": allowed}, "\n".join(lines) or "no deletions are held back", as_json=as_json)
    return Exit.DONE
