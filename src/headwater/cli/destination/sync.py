"""`headwater sync`: copies a source into a folder, verified, and keeps the copy current."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.destination.run_output import RunOutput
from headwater.cli.output import complain, json_line, json_option
from headwater.cli.shared_options import (
    Duration,
    Octets,
    SectionedCommand,
    Share,
    dest_argument,
    store_options,
    url_argument,
    with_sparql_user,
)
from headwater.cli.source_access import ACCESS_HEADINGS, given_options, source_options
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.cli.destination.run_output import ChangesFile, RunHook, RunOutput
    from headwater.sync.options import SyncOptions
    from headwater.sync.run import SyncTask


_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound to unasked


def follow_pushed(
    tasks: Sequence[SyncTask],
    seconds: tuple[float, float | None],
    output: RunOutput,
    callback_url: str | None,
    listen: str | None,
) -> int:
    """Follow until stopped; `seconds` are the interval of polls and the longest one. Returns the exit status."""
    from msgspec.structs import replace

    from headwater.cli.stop_signal import hangups_noted
    from headwater.http.follow_push import PushOptions, follow_push
    from headwater.notify.hub.requests import objection_to_url
    from headwater.source.hub_config import host_and_port
    from headwater.sync.follow import PollInterval

    if callback_url is not None and (why := objection_to_url(callback_url) or _has_query(callback_url)):
        raise UsageFault(f"--callback-url cannot be used: {why}")
    address = host_and_port(listen) if listen is not None else None
    if address is not None and address[0] in _ANY_HOST and callback_url is None:
        raise UsageFault("listening on every address needs --callback-url, the URL that hubs use")
    _refuse_overlaps([Path(task.destination) for task in tasks])

    def announce(callbacks: str, at: str) -> None:
        if output.as_json:
            json_line({"event": "listening", "callbacks": callbacks, "address": at})
            sys.stdout.flush()

    push = PushOptions(listen=address, callback_url=callback_url, on_listening=announce, on_fault=complain)
    with output.listening() as progress, hangups_noted(progress):
        heard = [replace(task, listener=progress) for task in tasks]
        return follow_push(heard, PollInterval(*seconds), output.teller(progress), push)


def _refuse_overlaps(destinations: Sequence[Path]) -> None:
    """See that no copy is, or lies in, another one, where their sources could send files of one name."""
    real = [one.resolve() for one in destinations]
    folders = Counter(real)
    for given, one in zip(destinations, real, strict=True):
        if folders[one] > 1 or any(parent in folders for parent in one.parents):
            raise UsageFault("each copy needs a folder of its own, not in that of another", where=str(given))


def also_followed(task: SyncTask, url: str, destination: Path) -> SyncTask:
    """One more copy with the same options; credentials that were given for the origin of the first stay there."""
    from msgspec.structs import replace

    from headwater.spec import uris
    from headwater.sync.connection import starting_uri

    options = task.options
    if uris.origin(starting_uri(url)) != uris.origin(starting_uri(task.url)):
        options = replace(options, authorization=None, user=None, password=None, headers=(), cert=None, key=None)
    return replace(task, url=url, destination=destination, options=options)


def _has_query(url: str) -> str | None:
    return "it has a query" if "?" in url else None


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
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--delete/--no-delete", default=True, show_default=True, help="Delete what the source has deleted.")
@click.option(
    "--max-delete",
    type=Share(),
    metavar="SHARE",
    help="Allow deleting this share of the copy.  [default: a fifth, if that is more than ten files; never all]",
)
@click.option(
    "--backup-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep what is replaced or deleted in DIR, which must be outside DEST.",
)
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this set (may be repeated).")
@click.option("--include", multiple=True, metavar="PATTERN", help="Only what matches (may be repeated).")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches (may be repeated).")
@click.option(
    "--only-described",
    is_flag=True,
    help="Copy only what a metadata record describes (describedby, describes), and these records.",
)
@click.option(
    "--with-metadata",
    is_flag=True,
    help="Copy the metadata records of what is chosen whatever --include and --exclude say, each before its content.",
)
@click.option("--base", metavar="URI", help="The URI prefix to remove for file names (first run only).")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="HOST", help="Also fetch from this host.")
@click.option("--any-host", is_flag=True, help="Fetch from every host that the source lists.")
@click.option("--skip-host", "skip_hosts", multiple=True, metavar="HOST", help="Leave out what is on this host.")
@click.option("--sitemap", is_flag=True, help="Use a plain Sitemap as a Resource List.")
@click.option(
    "--at",
    metavar="TIME",
    help="Copy the source as it was at this time, into a DEST of its own: 2026-11-12T10:00:00Z, or 2026-11-12 for the"
    " end of that day in UTC.",
)
@click.option("--baseline", is_flag=True, help="Compare with the whole Resource List, even if changes would suffice.")
@click.option(
    "--accept-reset",
    is_flag=True,
    help="The source was set back: bring the copy back to what its lists say, within --max-delete.",
)
@click.option("--moved", is_flag=True, help="The source of the copy in DEST has moved to URL.")
@click.option("--repair", is_flag=True, help="Hash every file of the copy, and fetch again what is missing or changed.")
@click.option(
    "--max-size",
    "largest",
    type=Octets(1),
    metavar="OCTETS",
    help="Maximum size of a resource whose list states no length (500MB, 2GiB).  [default: 16 GiB]",
)
@click.option(
    "--keep-free",
    type=Octets(),
    metavar="OCTETS",
    help="End the run rather than leave less free on the disk (500MB, 2GiB; 0: use all).  [default: 1 GiB, or a"
    " twentieth of a small disk]",
)
@click.option(
    "--max-total", type=Octets(1), metavar="OCTETS", help="End the run rather than let the copy have more octets."
)
@click.option(
    "--prefer",
    type=click.Choice(["auto", "lists", "dumps"]),
    help="Fetch resources the quickest way (auto), by single requests alone (lists), or by packages where there are any"
    " of which more than a little is wanted (dumps).  [default: auto]",
)
@click.option(
    "--prefer-type",
    "prefer_types",
    multiple=True,
    metavar="TYPE",
    help="Copy the alternate of this media type in place of a resource (may be repeated, in order of preference).",
)
@click.option(
    "--mirrors",
    type=click.Choice(["on", "off"]),
    help="Ask the mirrors that the source lists, in their order, before the source itself.  [default: on]",
)
@click.option("--trust-mirrors", is_flag=True, help="Ask them also where the list states neither hash nor length.")
@click.option(
    "--accept-html",
    is_flag=True,
    help="Take a page of HTML also in place of XML, JSON, RDF, PDF, an image or an archive of which neither hash nor"
    " length is listed.",
)
@click.option(
    "--patches",
    type=click.Choice(["on", "off", "all"]),
    help="Whether updates are fetched as patches, where the source has some that are smaller; all: an RDF dataset also"
    " the first time, from its first change on.  [default: on]",
)
@store_options
@source_options
@click.option(
    "--follow", type=Duration(0.1), metavar="SECONDS", help="Keep running, and poll for changes this often (60, 5min)."
)
@click.option(
    "--longest",
    type=Duration(0.1),
    metavar="SECONDS",
    help="With --follow: the longest interval between polls, while nothing changes, whatever Cache-Control says.",
)
@click.option(
    "--push",
    is_flag=True,
    help="With --follow: subscribe to the source's notifications, apply them at once, and poll seldom while they come.",
)
@click.option(
    "--callback-url",
    metavar="URL",
    help="With --push: what hubs reach the listener by, if that is not its address; callbacks begin with it.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="With --push: address to listen on for hubs; port 0: any free one.  [default: a port of 127.0.0.1]",
)
@click.option(
    "--also",
    type=(str, click.Path(path_type=Path, file_okay=False)),
    multiple=True,
    metavar="URL DEST",
    help="With --push: keep this copy as well, behind the same listener (may be repeated).",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless something is wrong.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Print each created, adopted, updated, deleted or failed resource on a line."
)
@click.option(
    "--changes",
    "changes_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append a line of JSON to FILE for each created, adopted, updated, deleted or failed resource; of CSV if the"
    " name ends in .csv.",
)
@click.option(
    "--exec",
    "hook_command",
    metavar="COMMAND",
    help="After changes, run COMMAND (words, not read by a shell) with the report as JSON on its standard input.",
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
    """Copy the source behind URL into the folder DEST, verified, and keep it current.

    URL may be a host, a Source Description, a Capability List, any other ResourceSync document, or a page that links to
    one. The first run copies everything, later runs what has changed; run it again after any interruption.
    """
    if longest is not None and longest < (follow or longest + 1):
        raise click.UsageError("--longest goes with --follow, and is not shorter")
    if wanted["at"] is not None and (follow is not None or wanted["moved"] or wanted["prefer_types"]):
        raise click.UsageError("--at excludes --follow, --moved and --prefer-type")
    if wanted["accept_reset"] and (follow is not None or wanted["at"] is not None):
        raise click.UsageError("--accept-reset excludes --follow and --at: it is for one run")
    if (wanted["only_described"] or wanted["with_metadata"]) and (wanted["at"] is not None or wanted["prefer_types"]):
        raise click.UsageError("--only-described and --with-metadata exclude --at and --prefer-type")
    if not push and (callback_url or listen or also):
        raise click.UsageError("--callback-url, --listen and --also go with --push")
    if push and (follow is None or wanted["dry_run"]):
        raise click.UsageError("--push goes with --follow, and not with --dry-run")
    if changes_file is not None and (also or wanted["dry_run"]):
        raise click.UsageError("--changes excludes --also and --dry-run; --dry-run --json shows the plan")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other")
    options = _options(wanted, patient=follow is not None)
    hook = _hook(hook_command)
    changes = _changes_file(changes_file, dest)
    output = RunOutput(dest, hook, as_json=as_json, quiet=quiet, verbose=verbose, changes=changes)
    from msgspec.structs import replace

    gc.disable()  # what is imported stays
    from headwater.sync.run import SyncTask, synchronise

    gc.enable()
    task = SyncTask(url=url, destination=dest, options=options)
    if verbose or changes is not None:
        task = replace(task, each=output.each)
    if push and follow is not None:
        from headwater.cli.destination.sync import also_followed, follow_pushed

        tasks = [task, *(also_followed(task, one, where) for one, where in also)]
        return follow_pushed(tasks, (follow, longest), output, callback_url, listen)
    if follow is not None:
        return _follow(task, follow, longest, output)
    gc.freeze()  # what is imported stays; rows by the hundred thousand make no cycles worth looking for
    gc.set_threshold(50_000, 20, 20)
    with output.listening() as progress:
        report = synchronise(replace(task, listener=progress, stopped=progress.beat))
        progress.close(report.exit_status)
    output.show(report)
    return report.exit_status or (Exit.DONE if output.run_hook(report) else Exit.FINDINGS)


def _hook(command: str | None) -> RunHook | None:
    if command is None:
        return None
    from headwater.cli.destination.run_output import (
        RunHook,  # takes `subprocess` along, which most runs have no use for
    )

    return RunHook(command)


def _changes_file(path: Path | None, destination: Path) -> ChangesFile | None:
    if path is None:
        return None
    from headwater.cli.destination.run_output import ChangesFile

    opened = ChangesFile(path, destination)
    click.get_current_context().call_on_close(opened.close)
    return opened


def _options(wanted: dict[str, Any], *, patient: bool) -> SyncOptions:
    """What the options of the command line come to: most have the names of `SyncOptions`."""
    from headwater.sync.options import SyncOptions

    return SyncOptions(**with_sparql_user(given_options(wanted)), patient=patient)


def _follow(task: SyncTask, seconds: float, longest: float | None, output: RunOutput) -> int:
    from msgspec.structs import replace

    from headwater.cli.stop_signal import hangups_noted
    from headwater.sync.follow import PollInterval, follow

    with output.listening() as progress, hangups_noted(progress):
        return follow(replace(task, listener=progress), PollInterval(seconds, longest), output.teller(progress))
