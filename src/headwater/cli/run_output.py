"""Writes the result of `sync` for a person or as JSON, each resource to a file, and starts the command after a run."""

from __future__ import annotations

import datetime as dt
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headwater.cli.changes_file import ChangesFile
from headwater.cli.output import (
    complain,
    counted,
    encoded_json,
    json_document,
    json_line,
    lines_of,
    listening,
    printable,
    sets_to_show,
    show,
)
from headwater.errors import Exit, HeadwaterError, StoreFault, UsageFault
from headwater.quantities import human_octets, human_seconds

if TYPE_CHECKING:
    from headwater.cli.progress_output import ProgressOutput
    from headwater.sync.reports import Done, SetReport, SyncReport


_STANDARD_ERROR = 2
_WRONG: Final = ("failed", "refused", "skipped", "left_out", "held_back", "newer_than_listed")
"""Counts of a set that are told where there are any."""
_MOST_SETS = 100


class RunHook:
    """The words of a command; no shell reads them, and nothing that a source says is ever among them."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as cause:
            raise UsageFault(f"--exec {command!r} cannot be split into words: {cause}") from None
        if not self._words:
            raise UsageFault("--exec names no command")

    def tell(self, report: SyncReport, destination: Path) -> bool:
        """Run the command with the report as JSON, if there are changes to be told; False when it has failed.

        What it writes goes to standard error. Only when it has succeeded the changes count as told.
        """
        if report.untold is None:
            return True
        import subprocess

        sys.stderr.flush()
        try:
            octets = encoded_json(report)
            status = subprocess.run(self._words, input=octets, stdout=_STANDARD_ERROR, check=False).returncode
            fault = f"ended with {f'exit status {status}' if status > 0 else f'signal {-status}'}" if status else None
        except OSError as cause:
            fault = f"cannot be run: {cause.strerror}"
        if fault is not None:
            complain(HeadwaterError(f"the command of --exec {fault}", code="HW-CLI-03", where=self._words[0]))
            return False
        from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
        from headwater.sync.reports import keep_told

        folder = DestinationFolder(destination.absolute())
        # another run may be at work already, or the disk full: then it is told once more
        with suppress(StoreFault), writable_state(folder) as database, database.write() as t:
            keep_told(t, report.untold)
        report.untold = None
        return True


@dataclass(frozen=True, kw_only=True)
class RunOutput:
    """The output of a run: to a person or as JSON, to the file of `--changes`, and to the command of `--exec`."""

    dest: Path
    hook: RunHook | None
    as_json: bool
    quiet: bool
    verbose: bool
    changes: ChangesFile | None

    def listening(self) -> AbstractContextManager[ProgressOutput]:
        """What listens for the time of the run; resource by resource there is no room for bars."""

        def under_way() -> int:
            from headwater.sync.copy_status import partial_files

            return partial_files(self.dest)[1]

        return listening(quiet=self.quiet, bars=not self.verbose, under_way=under_way)

    def each(self, done: Done) -> None:
        """Tell of one resource; standard output is for the result when that is JSON."""
        if self.changes is not None:
            self.changes.tell(done)
        if not self.verbose:
            return
        octets = human_octets(done.octets) if done.octets else ""
        more = f": {printable(done.reason or octets)}" if done.reason or octets else ""
        click.echo(f"{done.action} {printable(done.path)}{more}", err=self.as_json)

    def show(self, report: SyncReport) -> None:
        """Show the result, of a quiet run only when something is wrong; run `--exec`, before JSON that tells of it."""
        if not self.as_json and (report.exit_status or not self.quiet):
            _show(report, with_plan=self.verbose)
        self._run_hook(report)
        if self.as_json:
            json_document(report)

    def teller(self, progress: ProgressOutput) -> Callable[[SyncReport], None]:
        """What tells of each run of a service that follows."""
        from headwater.cli.progress_output import Reminders

        reminders = Reminders()

        def tell(report: SyncReport) -> None:
            progress.close(report.exit_status)
            if self.as_json:
                self._run_hook(report)
                json_line(report)
            else:
                stores = [store for one in report.sets if one.dataset is not None for store in one.dataset.stores]
                is_news = any(report.total(name) for name in ("created", "updated", "deleted")) or any(
                    store.done != "unchanged" for store in stores
                )
                wrong = _wrong(report)
                if (wrong and reminders.due(wrong) is not None) or (is_news and not self.quiet):
                    _show(report)
                self._run_hook(report)

        return tell

    def _run_hook(self, report: SyncReport) -> None:
        """Run the command of `--exec`, if there is one; the report gets what came of it."""
        if self.hook is None or report.dry_run:
            report.untold = None
        elif not self.hook.tell(report, Path(report.destination)):
            report.exit_status = report.exit_status or Exit.FINDINGS


def _wrong(report: SyncReport) -> str:
    """What is wrong with a run, by which it is known again; empty: nothing."""
    sets = [one for one in report.sets if one.exit_status]
    failures = [[(failed.uri, failed.reason) for failed in one.failures] for one in sets]
    counts = [[getattr(one, name) for name in _WRONG] for one in sets]
    names = [(one.name, one.fault) for one in sets]
    return repr((names, counts, failures, report.faults)) if report.exit_status else ""


def _show(report: SyncReport, *, with_plan: bool = False) -> None:
    # more is to be said of a set than that nothing was to be done
    told = ("exit_status", "fault", "plan", "dataset", "adopted", "created", "updated", "deleted", *_WRONG)
    telling, rest = sets_to_show(report.sets, _MOST_SETS, lambda one: any(getattr(one, name) for name in told))
    for set_report in telling:
        _show_set(set_report, dry_run=report.dry_run, with_plan=with_plan)
    if rest:
        summed = type(rest[0])(name=f"{len(rest):,} {'more sets' if telling else 'sets'}", folder="")
        for name in summed.__struct_fields__:
            if type(getattr(summed, name)) is int:
                setattr(summed, name, sum(getattr(set_report, name) for set_report in rest))
        _show_set(summed, dry_run=report.dry_run)
    show(report, *_RUN)
    requests, octets = counted(report.requests, "document request"), human_octets(report.total("octets"))
    ended = f"from {printable(report.source)} at {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    click.echo(f"{requests}, {octets} of content in {human_seconds(report.seconds)}, {ended}")


_RUN = ("as of {as_of}, in {destination}", "{backed_up:file} replaced or deleted kept in {backup}")


def _show_set(one: SetReport, *, dry_run: bool, with_plan: bool = False) -> None:
    deeds = {"fresh": one.created - one.adopted, "incomplete": bool(one.fault)}
    (done,) = lines_of(one, (_WOULD_DO if dry_run else _DONE) + _SEEN, **deeds)
    how = _PROCESSES.get(one.process, "").format(one.baseline_by)
    show(one, "{name}: {done}; {held:file} held[; {how}]", done=done[2:] or "nothing to do", how=how)
    show(one, "  {from_mirrors:resource} from mirrors")
    for way in one.ways:
        template = _NOT_TAKEN if not way.taken else _WOULD_TAKE if dry_run else _TAKEN
        name = "packages on demand" if way.way == "on demand" else way.way
        show(way, template, name=name, count=f"{way.resources:,}")
    show(one, "  {patched} by patches[: {saved:octets} not transferred]", saved=max(0, one.octets_saved))
    for store in one.dataset.stores if one.dataset is not None else ():
        show(store, _STORES[store.done], is_fault=store.done == "failed")
    for action in one.plan if with_plan else ():
        show(action, "  {action} {path}")
    show(one, "{is_cut}  … and more", _UNVERIFIED, is_cut=with_plan and one.plan_is_cut)
    if one.plan and not with_plan:
        click.echo("  -v shows each of them, --json as well")
    for failed in one.failures[:_MOST_FAILURES]:
        show(failed, _FAILED, is_fault=True)
    show(one, _MORE_FAILED, is_fault=True, more=max(0, one.failed - _MOST_FAILURES))
    if one.failed and one.process == "past":
        click.echo(f"  {_NOT_KEPT}", err=True)


_MOST_FAILURES = 10
_DONE = "[, {adopted} adopted][, {fresh} created][, {updated} updated][, {deleted} deleted]"
_WOULD_DO = (
    "[, would adopt {adopted}][, would create {fresh}][, would update {updated}][, would delete {deleted}]"
    "[, would fetch {to_fetch_octets:octets}][, and {to_fetch_unmeasured:file} of no stated length]"
)
_SEEN = (
    "[, {unchanged} unchanged][, {failed} failed][, {refused} refused][, {skipped} skipped][, {left_out} left out]"
    "[, {held_back} held back][, {newer_than_listed} newer than the source's list][, incomplete{incomplete}]"
)
_NOT_TAKEN = "  not by {name} ({why})"
_WOULD_TAKE = "  would fetch by {name}: [{packages:package} of {octets:octets}, ]{why}"
_TAKEN = "  {count} by {name}: {packages:package} of {octets:octets} ({why})[; {fault}]"
_STORES = {
    "unchanged": "{fault}",
    "loaded": "  store {store}: loaded with {added:statement}",
    "patched": "  store {store}: {removed} removed, {added} added",
    "failed": "  store {store}: failed: {fault}",
}
_UNVERIFIED = (
    "  {unverified:version} by TimeGate or TimeMap, not verified: no list tells a hash (--json lists a hundred)"
)
_FAILED = "  failed: {uri}: {reason}[, not to be requested again before {waits_until}]"
_MORE_FAILED = "  … and {more:more failure} (--json lists a hundred)"
_NOT_KEPT = (
    "only the source can keep earlier states (versions, archives, Change Dumps): where it keeps none there is nothing"
    " to copy; whatever else failed is tried again by the same command"
)
_PROCESSES = {
    "baseline": "compared with the {}",
    "increment": "read the changes since last time",
    "baseline+increment": "compared with the {}, then read the changes since",
    "past": "copied as it was",
    "increment+baseline": "read the changes since last time, then compared with the {}",
}
