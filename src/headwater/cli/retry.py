"""`headwater retry`: makes transfers that failed due, whatever wait was set or asked for."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.output import counted, json_option, printable, show_result
from headwater.cli.shared_options import Destination
from headwater.errors import Exit


@click.command(name="retry")
@click.argument("copy", type=Destination(path_type=Path))
@click.argument("uris", metavar="[URI]...", nargs=-1)
@json_option
def command(copy: Path, uris: tuple[str, ...], as_json: bool) -> Exit:
    """Make the next run over COPY retry what failed: these URIs, or all.

    Every run retries what failed, except resources for which the source has asked to wait (Retry-After); `sync
    --follow` waits longer after each failure. This command ends both waits and transfers nothing: the next run, or the
    next poll of `--follow`, retries.
    """
    from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
    from headwater.sync.run_history import make_due
    from headwater.sync.state import fact

    with writable_state(DestinationFolder(copy.absolute())) as database, database.write() as t:
        due = make_due(t, uris)
        source = fact(t, "url")
    run = f"`headwater sync {printable(source or 'URL')} {printable(str(copy))}`, with the options that you always give"
    words = f"{counted(due, 'failure')} due: {run}, tries again"
    show_result({"due": due}, words if due else "nothing failed: there is nothing to be tried again", as_json=as_json)
    return Exit.DONE
