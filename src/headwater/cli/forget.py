"""`headwater forget`: drops failures, deletions held back, or whole sets from what a copy remembers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.output import counted, json_document, json_option, printable, show_some
from headwater.cli.shared_options import Destination, option
from headwater.errors import Exit

if TYPE_CHECKING:
    from headwater.sync.run_history import Forgotten

_SHOWN = 20


class _DryRun(Exception):
    """Rolls back what was only tried."""


@click.command(name="forget")
@click.argument("copy", type=Destination(path_type=Path))
@click.argument("uris", metavar="[URI]...", nargs=-1)
@option("--failed", "Every transfer that failed.")
@option("--held-back", "Every deletion that is held back.")
@option("--set NAME", "This whole set (may be repeated).", name="names", multiple=True)
@option("--dry-run", "Show what would be forgotten; change nothing.")
@json_option
def command(
    copy: Path,
    uris: tuple[str, ...],
    failed: bool,
    held_back: bool,
    names: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> Exit:
    """Make COPY forget failures and deletions held back, by URI, or whole sets. No file is removed.

    What failed is fetched again when the source next lists or changes it (`sync --baseline` compares at once). A file
    whose deletion was held back, and every file of a forgotten set, stays where it is, and is no longer updated or
    deleted; if the source lists it again, it is adopted without a transfer.
    """
    if bool(names) == bool(uris or failed or held_back):
        raise click.UsageError("name URIs, or --failed, or --held-back, or else --set NAME")
    from headwater.sync import run_history as remembered
    from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
    from headwater.sync.sets.selection import pick
    from headwater.sync.state import sets

    done = remembered.Forgotten()
    with writable_state(DestinationFolder(copy.absolute())) as database:
        try:
            with database.write() as t:
                if names:
                    done = remembered.forget_sets(t, pick(sets(t), names, str(copy)))
                else:
                    meant = [*uris, *(remembered.failing(t) if failed else ())]
                    meant += remembered.held_back(t) if held_back else ()
                    done = remembered.forget(t, list(dict.fromkeys(meant)))
                if dry_run:
                    raise _DryRun
        except _DryRun:
            pass
    if as_json:
        json_document({"dry_run": dry_run, "forgotten": done})
    else:
        _show(done, dry_run=dry_run)
    return Exit.DONE


def _show(done: Forgotten, *, dry_run: bool) -> None:
    told = [counted(done.failures, "failure"), f"{counted(done.deletions, 'deletion')} held back"]
    told += [f"set {printable(name)}" for name in done.sets]
    click.echo(f"{'would forget' if dry_run else 'forgot'} {', '.join(told)}")
    if done.files:
        stay = "would stay" if dry_run else "stays" if done.files == 1 else "stay"
        click.echo(f"{counted(done.files, 'file')} {stay}, no longer part of the copy:")
    show_some(done.released, _SHOWN, count=done.files, indent="  ")
