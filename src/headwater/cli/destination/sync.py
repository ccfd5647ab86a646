"""`headwater sync`: copies a source into a folder, verified, and keeps the copy current."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import (
    counted,
    human_octets,
    human_seconds,
    json_document,
    json_line,
    json_option,
    listening,
    printable,
)
from headwater.cli.shared_options import Share, dest_argument
from headwater.cli.source_access import asks_a_source, said
from headwater.errors import Exit

if TYPE_CHECKING:
    from headwater.cli.destination.run_hook import RunHook
    from headwater.cli.progress_output import ProgressOutput
    from headwater.progress import Done
    from headwater.sync.options import SetReport, SyncOptions, SyncReport

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3_600.0
_MOST_SETS = 100  # of more sets those with something to tell are shown, up to so many, and the others as one line


@click.command(name="sync")
@click.argument("url")
@dest_argument
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--delete/--no-delete", default=True, show_default=True, help="Delete what the source has deleted.")
@click.option(
    "--max-delete",
    type=Share(),
    metavar="SHARE",
    help="Let this share of the copy be deleted.  [default: a fifth, where that is more than ten files; never all]",
)
@click.option(
    "--backup-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep what is replaced or deleted below DIR, which is not in DEST.",
)
@click.option("--set", "sets", multiple=True, metavar="NAME", help="Only this set (may be repeated).")
@click.option("--include", multiple=True, metavar="PATTERN", help="Only what matches (may be repeated).")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches (may be repeated).")
@click.option("--base", metavar="URI", help="The folder whose rest of the path names the files (first run only).")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="HOST", help="Also fetch from this host.")
@click.option("--any-host", is_flag=True, help="Fetch from whatever host the source lists.")
@click.option("--skip-host", "skip_hosts", multiple=True, metavar="HOST", help="Leave out what lies on this host.")
@click.option("--sitemap", is_flag=True, help="Take a plain Sitemap for a Resource List.")
@click.option("--baseline", is_flag=True, help="Compare with the whole Resource List, even if changes would do.")
@click.option("--moved", is_flag=True, help="The source that DEST is a copy of is at URL by now.")
@click.option("--repair", is_flag=True, help="Hash every held file, and fetch again what is missing or changed.")
@click.option(
    "--max-size", "largest", type=click.IntRange(1), metavar="OCTETS", help="The largest resource without a length."
)
@asks_a_source
@click.option(
    "--follow", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Stay, and look for changes so often."
)
@click.option(
    "--longest",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --follow: look this seldom while nothing changes, and never more seldom, whatever Cache-Control says.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing unless something is wrong.")
@click.option("-v", "--verbose", is_flag=True, help="Say each resource that was dealt with, on one line.")
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
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other")
    options = _options(wanted, patient=follow is not None)
    hook = _hook(hook_command)
    voice = _Voice(dest, hook, as_json=as_json, quiet=quiet, verbose=verbose)
    if follow is not None:
        return _follow(url, dest, options, follow, longest, voice)
    from headwater.sync.run import sync

    with voice.listening() as teller:
        report = sync(url, dest, options, listener=teller, each=voice.each, stopped=teller.beat)
        teller.close(report.exit_status)
    voice.tell(report)
    return report.exit_status or (Exit.DONE if voice.told_on(report) else Exit.FINDINGS)


def _hook(command: str | None) -> RunHook | None:
    if command is None:
        return None
    from headwater.cli.destination.run_hook import RunHook  # takes `subprocess` along, which most runs have no use for

    return RunHook(command)


class _Voice:
    """How a run is told: to whom, how much, and to the command of `--exec`."""

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
        """Tell of one resource, if that is wanted; standard output is for the result when that is JSON."""
        if self._verbose:
            octets = human_octets(done.octets) if done.octets else ""
            more = f": {printable(done.reason or octets)}" if done.reason or octets else ""
            click.echo(f"{done.action} {printable(done.path)}{more}", err=self.as_json)

    def tell(self, report: SyncReport) -> None:
        """Tell the result; of a quiet run only when something is wrong."""
        if self.as_json:
            json_document(report)
            sys.stdout.flush()
        elif report.exit_status or not self.quiet:
            _show(report)

    def told_on(self, report: SyncReport) -> bool:
        """Tell the command of `--exec`; False when that has failed."""
        return self._hook is None or report.dry_run or self._hook.tell(report, self._dest)


def _options(wanted: dict[str, Any], *, patient: bool) -> SyncOptions:
    """What the options of the command line come to: most have the names of `SyncOptions`."""
    from headwater.sync.options import SyncOptions

    return SyncOptions(**said(wanted), patient=patient)


def _follow(url: str, dest: Path, options: SyncOptions, seconds: float, longest: float | None, voice: _Voice) -> int:
    from headwater.sync.follow import follow

    wrong = _Wrong()
    with voice.listening() as teller:

        def tell(report: SyncReport) -> None:
            teller.close(report.exit_status)
            if voice.as_json:
                json_line(report)
                sys.stdout.flush()
            elif wrong.is_to_be_told(report) or (not voice.quiet and _is_news(report)):
                _show(report)
            voice.told_on(report)

        return follow(url, dest, options, seconds, tell, listener=teller, each=voice.each, longest=longest)


def _is_news(report: SyncReport) -> bool:
    return any(report.total(name) for name in ("created", "updated", "deleted"))


class _Wrong:
    """Which looks that went wrong are told: one like the last after a minute, two more, and so on up to an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: list[object] = []
        self._due_at = self._pause = 0.0

    def is_to_be_told(self, report: SyncReport) -> bool:
        wrong = [_wrong_of(one) for one in report.sets if one.exit_status] + [*report.faults]
        if not report.exit_status:
            self._told = []
            return False
        if wrong == self._told and self._clock() < self._due_at:
            return False
        self._pause = _FIRST_PAUSE if wrong != self._told else min(2 * self._pause, _LONGEST_PAUSE)
        self._told, self._due_at = wrong, self._clock() + self._pause
        return True


def _wrong_of(one: SetReport) -> object:
    counts = [number for what, number in _counts(one) if what != "unchanged"]
    return one.name, one.fault, counts, [(failed.uri, failed.reason) for failed in one.failures]


def _show(report: SyncReport) -> None:
    telling = report.sets
    if len(telling) > _MOST_SETS:
        telling = [one for one in telling if _is_telling(one)][:_MOST_SETS]
    for one in telling:
        _show_set(one, dry_run=report.dry_run)
    told = set(map(id, telling))
    rest = [one for one in report.sets if id(one) not in told]
    if rest:
        _show_set(_sum_of(rest, "more sets" if telling else "sets"), dry_run=report.dry_run)
    if report.backup is not None:
        click.echo(f"{counted(report.backed_up, 'file')} replaced or deleted kept in {printable(report.backup)}")
    octets = report.total("octets")
    click.echo(
        f"{counted(report.requests, 'document request')}, {human_octets(octets)} of content in"
        f" {human_seconds(report.seconds)}"
    )


def _is_telling(one: SetReport) -> bool:
    """Whether there is more to say of a set than that nothing was to be done."""
    numbers = dict((*((verb, number) for verb, _, number in _deeds(one)), *_counts(one)))
    del numbers["unchanged"]
    return bool(one.exit_status or one.fault or one.plan or any(numbers.values()))


def _sum_of(sets: list[SetReport], noun: str) -> SetReport:
    """Many sets as one line."""
    from headwater.sync.options import SetReport

    summed = SetReport(name=f"{len(sets):,} {noun}", folder="")
    counts = [name.replace(" ", "_") for name, _ in _counts(summed)]
    for name in ("created", "updated", "deleted", "adopted", "held", *counts):
        setattr(summed, name, sum(getattr(one, name) for one in sets))
    return summed


def _show_set(one: SetReport, *, dry_run: bool) -> None:
    deeds = [deed for deed in _deeds(one) if deed[2]]
    done = [f"would {verb} {number:,}" if dry_run else f"{number:,} {past}" for verb, past, number in deeds]
    seen = [f"{number:,} {what}" for what, number in _counts(one) if number]
    left = ["incomplete"] if one.fault else []
    told = [", ".join(done + seen + left) or "nothing to do", f"{counted(one.held, 'file')} held"]
    if one.process in _PROCESSES:
        told.append(_PROCESSES[one.process])
    click.echo(f"{printable(one.name)}: {'; '.join(told)}")
    for action in one.plan:
        click.echo(f"  {action.action} {printable(action.path)}")
    if one.plan_is_cut:
        click.echo("  … and more")
    for failed in one.failures[:10]:
        later = f", not to be asked for again before {failed.waits_until}" if failed.waits_until else ""
        click.echo(f"  failed: {printable(failed.uri)}: {printable(failed.reason)}{later}", err=True)
    if one.failed > 10:
        click.echo(f"  … and {counted(one.failed - 10, 'more failure')} (--json lists a hundred)", err=True)


_PROCESSES = {
    "baseline": "compared with the Resource List",
    "increment": "read the changes since last time",
    "baseline+increment": "compared with the Resource List, then read the changes since",
    "increment+baseline": "read the changes since last time, then compared with the Resource List",
}


def _deeds(one: SetReport) -> list[tuple[str, str, int]]:
    """What was done: as it would be done, as it was, and how often. What was adopted is not told as created too."""
    return [
        ("adopt", "adopted", one.adopted),
        ("create", "created", one.created - one.adopted),
        ("update", "updated", one.updated),
        ("delete", "deleted", one.deleted),
    ]


def _counts(one: SetReport) -> list[tuple[str, int]]:
    return [
        ("unchanged", one.unchanged),
        ("failed", one.failed),
        ("refused", one.refused),
        ("skipped", one.skipped),
        ("left out", one.left_out),
        ("held back", one.held_back),
        ("newer than listed", one.newer_than_listed),
    ]
