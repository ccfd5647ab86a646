"""`headwater sync`: copies a source into a folder, verified, and keeps the copy current."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.destination.store_options import show_dataset, store_options, with_sparql_user
from headwater.cli.output import counted, json_document, json_line, json_option, listening, printable
from headwater.cli.shared_options import Share, dest_argument, url_argument
from headwater.cli.source_access import given_options, source_options
from headwater.errors import Exit
from headwater.quantities import human_octets, human_seconds

if TYPE_CHECKING:
    from headwater.cli.destination.run_hook import RunHook
    from headwater.cli.progress_output import ProgressOutput
    from headwater.progress import Done
    from headwater.sync.options import SetReport, SyncOptions, SyncReport, TransferWay
    from headwater.sync.run import SyncTask

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3_600.0
_MOST_SETS = 100  # of more sets those with something to tell are shown, up to so many, and the others as one line


@click.command(name="sync")
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
@click.option("--moved", is_flag=True, help="The source of the copy in DEST has moved to URL.")
@click.option("--repair", is_flag=True, help="Hash every file of the copy, and fetch again what is missing or changed.")
@click.option(
    "--max-size",
    "largest",
    type=click.IntRange(1),
    metavar="OCTETS",
    help="Maximum size of a resource whose list states no length.",
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
    "--patches",
    type=click.Choice(["on", "off", "all"]),
    help="Whether updates are fetched as patches, where the source has some that are smaller; all: an RDF dataset also"
    " the first time, from its first change on.  [default: on]",
)
@store_options
@source_options
@click.option(
    "--follow", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Keep running, and poll for changes this often."
)
@click.option(
    "--longest",
    type=click.FloatRange(min=0.1),
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
    if (wanted["only_described"] or wanted["with_metadata"]) and (wanted["at"] is not None or wanted["prefer_types"]):
        raise click.UsageError("--only-described and --with-metadata exclude --at and --prefer-type")
    if not push and (callback_url or listen or also):
        raise click.UsageError("--callback-url, --listen and --also go with --push")
    if push and (follow is None or wanted["dry_run"]):
        raise click.UsageError("--push goes with --follow, and not with --dry-run")
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other")
    options = _options(wanted, patient=follow is not None)
    hook = _hook(hook_command)
    output = RunOutput(dest, hook, as_json=as_json, quiet=quiet, verbose=verbose)
    from msgspec.structs import replace

    gc.disable()  # what is imported stays
    from headwater.sync.run import SyncTask, synchronise

    gc.enable()
    task = SyncTask(url=url, destination=dest, options=options)
    if verbose:
        task = replace(task, each=output.each)
    if push and follow is not None:
        from headwater.cli.destination.push import also_followed, follow_pushed

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
    from headwater.cli.destination.run_hook import RunHook  # takes `subprocess` along, which most runs have no use for

    return RunHook(command)


class RunOutput:
    """The output of a run: to a person or as JSON, and to the command of `--exec`."""

    def __init__(self, dest: Path, hook: RunHook | None, *, as_json: bool, quiet: bool, verbose: bool) -> None:
        self._dest = dest
        self._hook = hook
        self.as_json = as_json
        self.quiet = quiet
        self._verbose = verbose

    def listening(self) -> AbstractContextManager[ProgressOutput]:
        """What listens for the time of the run; resource by resource there is no room for bars."""
        return listening(quiet=self.quiet, bars=not self._verbose, under_way=self._under_way)

    def _under_way(self) -> int:
        from headwater.sync.copy_status import partial_files

        return partial_files(self._dest)[1]

    def each(self, done: Done) -> None:
        """Tell of one resource; standard output is for the result when that is JSON."""
        octets = human_octets(done.octets) if done.octets else ""
        more = f": {printable(done.reason or octets)}" if done.reason or octets else ""
        click.echo(f"{done.action} {printable(done.path)}{more}", err=self.as_json)

    def show(self, report: SyncReport) -> None:
        """Show the result; of a quiet run only when something is wrong."""
        if self.as_json:
            json_document(report)
            sys.stdout.flush()
        elif report.exit_status or not self.quiet:
            _show(report)

    def teller(self, progress: ProgressOutput) -> Callable[[SyncReport], None]:
        """What tells of each run of a service that follows."""
        faults = _RepeatedFaults()

        def tell(report: SyncReport) -> None:
            progress.close(report.exit_status)
            if self.as_json:
                json_line(report)
                sys.stdout.flush()
            elif faults.is_to_be_shown(report) or (not self.quiet and _is_news(report)):
                _show(report)
            self.run_hook(report)

        return tell

    def run_hook(self, report: SyncReport) -> bool:
        """Run the command of `--exec`, if there is one; False when that has failed."""
        return self._hook is None or report.dry_run or self._hook.tell(report, Path(report.destination))


def _options(wanted: dict[str, Any], *, patient: bool) -> SyncOptions:
    """What the options of the command line come to: most have the names of `SyncOptions`."""
    from headwater.sync.options import SyncOptions

    return SyncOptions(**with_sparql_user(given_options(wanted)), patient=patient)


def _follow(task: SyncTask, seconds: float, longest: float | None, output: RunOutput) -> int:
    from msgspec.structs import replace

    from headwater.sync.follow import PollInterval, follow

    with output.listening() as progress:
        return follow(replace(task, listener=progress), PollInterval(seconds, longest), output.teller(progress))


def _is_news(report: SyncReport) -> bool:
    stores = [store for one in report.sets if one.dataset is not None for store in one.dataset.stores]
    return any(report.total(name) for name in ("created", "updated", "deleted")) or any(
        store.done != "unchanged" for store in stores
    )


class _RepeatedFaults:
    """Decides which failed polls are shown: the same failure again after a minute, then two, and so on to an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: list[object] = []
        self._due_at = self._pause = 0.0

    def is_to_be_shown(self, report: SyncReport) -> bool:
        wrong = [_fault_of(set_report) for set_report in report.sets if set_report.exit_status] + [*report.faults]
        if not report.exit_status:
            self._told = []
            return False
        if wrong == self._told and self._clock() < self._due_at:
            return False
        self._pause = _FIRST_PAUSE if wrong != self._told else min(2 * self._pause, _LONGEST_PAUSE)
        self._told, self._due_at = wrong, self._clock() + self._pause
        return True


def _fault_of(set_report: SetReport) -> object:
    counts = [number for what, number in _counts(set_report) if what != "unchanged"]
    return set_report.name, set_report.fault, counts, [(failed.uri, failed.reason) for failed in set_report.failures]


def _show(report: SyncReport) -> None:
    telling = report.sets
    if len(telling) > _MOST_SETS:
        telling = [set_report for set_report in telling if _is_telling(set_report)][:_MOST_SETS]
    for set_report in telling:
        _show_set(set_report, dry_run=report.dry_run)
    if report.as_of is not None:
        click.echo(f"as of {report.as_of}, in {printable(report.destination)}")
    told = set(map(id, telling))
    rest = [set_report for set_report in report.sets if id(set_report) not in told]
    if rest:
        _show_set(_sum_of(rest, "more sets" if telling else "sets"), dry_run=report.dry_run)
    if report.backup is not None:
        click.echo(f"{counted(report.backed_up, 'file')} replaced or deleted kept in {printable(report.backup)}")
    octets = report.total("octets")
    click.echo(
        f"{counted(report.requests, 'document request')}, {human_octets(octets)} of content in"
        f" {human_seconds(report.seconds)}"
    )


def _is_telling(set_report: SetReport) -> bool:
    """Whether there is more to say of a set than that nothing was to be done."""
    numbers = dict((*((verb, number) for verb, _, number in _deeds(set_report)), *_counts(set_report)))
    del numbers["unchanged"]
    told = (set_report.exit_status, set_report.fault, set_report.plan, set_report.dataset)
    return any(told) or any(numbers.values())


def _sum_of(sets: list[SetReport], noun: str) -> SetReport:
    """Many sets as one line."""
    from headwater.sync.options import SetReport

    summed = SetReport(name=f"{len(sets):,} {noun}", folder="")
    counts = [name.replace(" ", "_") for name, _ in _counts(summed)]
    for name in ("created", "updated", "deleted", "adopted", "held", "patched", "octets_saved", *counts):
        setattr(summed, name, sum(getattr(set_report, name) for set_report in sets))
    return summed


def _show_set(set_report: SetReport, *, dry_run: bool) -> None:
    deeds = [deed for deed in _deeds(set_report) if deed[2]]
    done = [f"would {verb} {number:,}" if dry_run else f"{number:,} {past}" for verb, past, number in deeds]
    seen = [f"{number:,} {what}" for what, number in _counts(set_report) if number]
    left = ["incomplete"] if set_report.fault else []
    told = [", ".join(done + seen + left) or "nothing to do", f"{counted(set_report.held, 'file')} held"]
    if set_report.process in _PROCESSES:
        told.append(_PROCESSES[set_report.process].format(set_report.baseline_by))
    click.echo(f"{printable(set_report.name)}: {'; '.join(told)}")
    if set_report.from_mirrors:
        click.echo(f"  {counted(set_report.from_mirrors, 'resource')} from mirrors")
    for way in set_report.ways:
        click.echo(f"  {_way(way, dry_run=dry_run)}")
    if set_report.patched:
        click.echo(f"  {set_report.patched:,} by patches: {human_octets(set_report.octets_saved)} not transferred")
    if set_report.dataset is not None:
        show_dataset(set_report.dataset)
    for action in set_report.plan:
        click.echo(f"  {action.action} {printable(action.path)}")
    if set_report.plan_is_cut:
        click.echo("  … and more")
    if set_report.unverified:
        versions = counted(set_report.unverified, "version")
        click.echo(f"  {versions} by TimeGate or TimeMap, not verified: no list tells a hash (--json lists a hundred)")
    for failed in set_report.failures[:10]:
        later = f", not to be requested again before {failed.waits_until}" if failed.waits_until else ""
        click.echo(f"  failed: {printable(failed.uri)}: {printable(failed.reason)}{later}", err=True)
    if set_report.failed > 10:
        click.echo(f"  … and {counted(set_report.failed - 10, 'more failure')} (--json lists a hundred)", err=True)


def _way(way: TransferWay, *, dry_run: bool) -> str:
    """One way beside single requests: what it has brought, or that it was not taken, and why."""
    name = _WAY_NAMES.get(way.way, way.way)
    if not way.taken:
        return f"not by {name} ({printable(way.why)})"
    packages, octets = counted(way.packages, "package"), human_octets(way.octets)
    if dry_run:
        size = f"{packages} of {octets}, " if way.packages else ""
        return f"would fetch by {name}: {size}{printable(way.why)}"
    broken = f"; {printable(way.fault)}" if way.fault else ""
    return f"{way.resources:,} by {name}: {packages} of {octets} ({printable(way.why)}){broken}"


_WAY_NAMES = {"on demand": "packages on demand"}  # in JSON the way is named as it is

_PROCESSES = {
    "baseline": "compared with the {}",
    "increment": "read the changes since last time",
    "baseline+increment": "compared with the {}, then read the changes since",
    "past": "copied as it was",
    "increment+baseline": "read the changes since last time, then compared with the {}",
}


def _deeds(set_report: SetReport) -> list[tuple[str, str, int]]:
    """What was done: as it would be done, as it was, and how often. What was adopted is not told as created too."""
    return [
        ("adopt", "adopted", set_report.adopted),
        ("create", "created", set_report.created - set_report.adopted),
        ("update", "updated", set_report.updated),
        ("delete", "deleted", set_report.deleted),
    ]


def _counts(set_report: SetReport) -> list[tuple[str, int]]:
    return [
        ("unchanged", set_report.unchanged),
        ("failed", set_report.failed),
        ("refused", set_report.refused),
        ("skipped", set_report.skipped),
        ("left out", set_report.left_out),
        ("held back", set_report.held_back),
        ("newer than listed", set_report.newer_than_listed),
    ]
