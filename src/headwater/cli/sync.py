"""`headwater sync`: copies a source into a folder, verified, and keeps the copy current."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.changes_file import ChangesFile
from headwater.cli.output import complain, json_line, json_option
from headwater.cli.run_output import RunHook, RunOutput
from headwater.cli.shared_options import (
    ACCESS_HEADINGS,
    FOLDER,
    Duration,
    Octets,
    SectionedCommand,
    Share,
    dest_argument,
    given_options,
    option,
    source_options,
    store_options,
    url_argument,
    with_sparql_user,
)
from headwater.cli.stop_signal import StopSignal, hangups_noted
from headwater.errors import UsageFault

if TYPE_CHECKING:
    from headwater.sync.run import SyncTask


_GRACE_SECONDS = 1.5
"""How long a run may take to stop by itself, before it is broken off wherever it is."""


def follow_pushed(
    tasks: Sequence[SyncTask],
    seconds: tuple[float, float | None],
    output: RunOutput,
    callback_url: str | None,
    listen: str | None,
) -> int:
    """Follow until stopped; `seconds` are the interval of polls and the longest one. Returns the exit status."""
    from msgspec.structs import replace

    from headwater.http.follow_push import PushOptions, follow_push
    from headwater.notify.hub.policy import objection_to_url
    from headwater.source.hubs_and_tokens import ANY_HOST, host_and_port
    from headwater.sync.sets.polling import PollInterval

    has_query = "it has a query" if callback_url is not None and "?" in callback_url else None
    if callback_url is not None and (why := objection_to_url(callback_url) or has_query):
        raise UsageFault(f"--callback-url cannot be used: {why}")
    address = host_and_port(listen) if listen is not None else None
    if address is not None and address[0] in ANY_HOST and callback_url is None:
        raise UsageFault("listening on every address needs --callback-url, the URL that hubs use")
    real = [Path(task.destination).resolve() for task in tasks]
    folders = Counter(real)
    for task, one in zip(tasks, real, strict=True):  # sources of two copies in one folder could send files of one name
        if folders[one] > 1 or any(parent in folders for parent in one.parents):
            what = "each copy needs a folder of its own, not in that of another"
            raise UsageFault(what, where=str(task.destination))

    def announce(callbacks: str, at: str) -> None:
        if output.as_json:
            json_line({"event": "listening", "callbacks": callbacks, "address": at})

    push = PushOptions(listen=address, callback_url=callback_url, on_listening=announce, on_fault=complain)
    with output.listening() as progress, hangups_noted(progress), StopSignal(_GRACE_SECONDS) as stop:
        heard = [replace(task, listener=progress) for task in tasks]
        follow_push(heard, PollInterval(*seconds), output.teller(progress), push, stop=stop.event)
    return stop.exit_status


def also_followed(task: SyncTask, url: str, destination: Path) -> SyncTask:
    """One more copy with the same options; credentials that were given for the origin of the first stay there."""
    from msgspec.structs import replace

    from headwater.spec import uris
    from headwater.sync.connection import starting_uri

    options = task.options
    if uris.origin(starting_uri(url)) != uris.origin(starting_uri(task.url)):
        options = replace(options, authorization=None, user=None, password=None, headers=(), cert=None, key=None)
    return replace(task, url=url, destination=destination, options=options)


_HEADINGS = {
    "dry_run": "What is done",
    "sets": "What is copied",
    "at": "How it is compared",
    "largest": "How it is fetched",
    "store": "Triplestores",
    **ACCESS_HEADINGS,
    "follow": "Following",
    "quiet": "What is told",
}


@click.command(name="sync", cls=SectionedCommand, headings=_HEADINGS)
@url_argument
@dest_argument
@option("--dry-run", "Show what would be done; write nothing.")
@option("--delete/--no-delete", "Delete what the source has deleted.", default=True, show_default=True)
@option(
    "--max-delete SHARE",
    "Delete up to this share of the copy, such as 34%.  [default: 20%, or ten files; never all]",
    Share(),
)
@option(
    "--max-update SHARE",
    "Overwrite up to this share of the copy.  [default: all; with empty files 20%, or ten files]",
    Share(),
)
@option("--backup-dir DIR", "Keep replaced and deleted files in DIR, outside DEST.", click.Path(file_okay=False))
@option("--set NAME", "Copy only this set (repeatable).", name="sets", multiple=True)
@option("--include PATTERN", "Copy only resources that match (repeatable).", multiple=True)
@option("--exclude PATTERN", "Leave out resources that match (repeatable).", multiple=True)
@option(
    "--include-type TYPE",
    "Copy only resources of this media type, such as image/* (repeatable).",
    name="include_types",
    multiple=True,
)
@option(
    "--exclude-type TYPE", "Leave out resources of this media type (repeatable).", name="exclude_types", multiple=True
)
@option(
    "--include-link RELATION",
    "Copy only resources with a link of this relation (repeatable).",
    name="include_links",
    multiple=True,
)
@option("--max-length SIZE", "Leave out resources whose listed length is greater (500MB).", Octets())
@option("--since TIME", "Leave out resources last modified before TIME (2026-11-12T10:00:00Z, or a date).")
@option("--only-described", "Copy only resources that have a metadata record, and these records.")
@option("--with-metadata", "Also copy the metadata records of copied resources, each before its resource.")
@option("--base URI", "Remove this URI prefix from file names (first run only).")
@option("--allow-host HOST", "Also fetch from this host (repeatable).", name="allow_hosts", multiple=True)
@option("--any-host", "Fetch from every host that the source lists.")
@option("--skip-host HOST", "Leave out resources on this host (repeatable).", name="skip_hosts", multiple=True)
@option("--sitemap", "Use a plain Sitemap as a Resource List.")
@option("--at TIME", "Copy the source as it was at TIME into a new DEST. A date means its end, in UTC.")
@option("--baseline", "Compare with the whole Resource List, even if the changes suffice.")
@option("--accept-reset", "Accept that the source was set back: follow its lists again, within --max-delete.")
@option("--moved", "Accept URL as the new address of this copy's source.")
@option("--repair", "Hash every file of the copy, and fetch missing and altered files again.")
@option(
    "--max-size SIZE",
    "Maximum size of a resource whose length is not listed (500MB).  [default: 16 GiB]",
    Octets(1),
    name="largest",
)
@option(
    "--keep-free SIZE",
    "Stop before the disk has less free space; 0: use all.  [default: 1 GiB, or 5% of a small disk]",
    Octets(),
)
@option("--max-total SIZE", "Stop before the copy is larger than this.", Octets(1))
@option(
    "--prefer",
    "Fetch single files (lists), packages (dumps), or whichever is quicker.  [default: auto]",
    click.Choice(["auto", "lists", "dumps"]),
)
@option(
    "--prefer-type TYPE",
    "Copy the alternate of this media type instead (repeatable, in order of preference).",
    name="prefer_types",
    multiple=True,
)
@option("--mirrors", "Try the listed mirrors before the source.  [default: on]", click.Choice(["on", "off"]))
@option("--trust-mirrors", "Use mirrors even where no hash or length is listed.")
@option("--trust-lastmod", "Without hash and length, trust lastmod: skip what keeps it, adopt files of that time.")
@option("--accept-html", "Accept HTML in place of another media type where no hash or length is listed.")
@option(
    "--patches",
    "Fetch updates as patches where these are smaller; all: also the first load of a dataset.  [default: on]",
    click.Choice(["on", "off", "all"]),
)
@store_options
@source_options
@option("--follow SECONDS", "Keep running, and poll at this interval (60, 5min).", Duration(0.1))
@option("--longest SECONDS", "With --follow: the longest interval between polls while nothing changes.", Duration(0.1))
@option("--push", "With --follow: subscribe to notifications, apply them at once, and rarely poll.")
@option("--callback-url URL", "With --push: the URL at which hubs reach the listener, if it is not its address.")
@option("--listen HOST:PORT", "With --push: the address to listen on; port 0: any.  [default: a port of 127.0.0.1]")
@option(
    "--also URL DEST", "With --push: also follow this source into this DEST (repeatable).", (str, FOLDER), multiple=True
)
@option("-q, --quiet", "Print nothing unless something is wrong.")
@option("-v, --verbose", "Print a line for each resource dealt with.")
@option(
    "--changes FILE",
    "Append a line of JSON (CSV if FILE ends in .csv) to FILE for each resource dealt with.",
    click.Path(path_type=Path, dir_okay=False),
    name="changes_file",
)
@option(
    "--exec COMMAND",
    "Run COMMAND after changes, without a shell; it reads the report as JSON on standard input.",
    name="hook_command",
)
@json_option
def command(
    url: str,
    dest: Path,
    follow: float | None,
    longest: float | None,
    push: bool,
    callback_url: str | None,
    listen: str | None,
    also: tuple[tuple[str, Path], ...],
    quiet: bool,
    verbose: bool,
    changes_file: Path | None,
    hook_command: str | None,
    as_json: bool,
    **wanted: Any,
) -> int:
    """Copy the source at URL into the folder DEST, verify every file, and keep the copy current.

    URL may be a host, any ResourceSync document, or a page that links to one. The first run copies everything; later
    runs copy what changed.
    """
    if longest is not None and longest < (follow or longest + 1):
        raise click.UsageError("--longest goes with --follow, and is not shorter")
    if wanted["at"] is not None and (follow is not None or wanted["moved"] or wanted["prefer_types"]):
        raise click.UsageError("--at excludes --follow, --moved and --prefer-type")
    if wanted["accept_reset"] and (follow is not None or wanted["at"] is not None):
        raise click.UsageError("--accept-reset excludes --follow and --at: it is for one run")
    if not push and (callback_url or listen or also):
        raise click.UsageError("--callback-url, --listen and --also go with --push")
    if push and (follow is None or wanted["dry_run"]):
        raise click.UsageError("--push goes with --follow, and not with --dry-run")
    if changes_file is not None and (also or wanted["dry_run"]):
        raise click.UsageError("--changes excludes --also and --dry-run; --dry-run --json shows the plan")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other")
    from msgspec.structs import replace

    from headwater.sync.options import SyncOptions

    # Most options of the command line have the names of `SyncOptions`.
    options = SyncOptions(**with_sparql_user(given_options(wanted)), patient=follow is not None)
    hook = None if hook_command is None else RunHook(hook_command)
    changes = None if changes_file is None else ChangesFile(changes_file, dest)
    if changes is not None:
        click.get_current_context().call_on_close(changes.close)
    output = RunOutput(dest=dest, hook=hook, as_json=as_json, quiet=quiet, verbose=verbose, changes=changes)

    gc.disable()  # what is imported stays
    from headwater.sync.run import SyncTask, synchronise

    gc.enable()
    task = SyncTask(url=url, destination=dest, options=options)
    if verbose or changes is not None:
        task = replace(task, each=output.each)
    if push and follow is not None:
        tasks = [task, *(also_followed(task, one, where) for one, where in also)]
        return follow_pushed(tasks, (follow, longest), output, callback_url, listen)
    if follow is not None:
        from headwater.sync.run import follow as follow_source
        from headwater.sync.sets.polling import PollInterval

        with output.listening() as progress, hangups_noted(progress), StopSignal(_GRACE_SECONDS) as stop:
            heard, interval = replace(task, listener=progress), PollInterval(follow, longest)
            follow_source(heard, interval, output.teller(progress), stop=stop.event)
        return stop.exit_status
    gc.freeze()  # what is imported stays; rows by the hundred thousand make no cycles worth looking for
    gc.set_threshold(50_000, 20, 20)
    with output.listening() as progress:
        report = synchronise(replace(task, listener=progress, stopped=progress.beat))
        progress.close(report.exit_status)
    output.show(report)
    return report.exit_status
