"""A run of a source in a process of its own: it synchronises the copy, adds to the journal, and ends its lease.

State is saved last: events are in the journal before the copy counts them as told, the record of the run and the state
of its source come in one transaction at the end. Whoever has lost the lease writes nothing more.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from headwater.aggregator.audits import run_audit
from headwater.aggregator.configuration import FollowedSource, HostLimits
from headwater.aggregator.events import moved_events, new_events
from headwater.aggregator.host_limits import FOLDER as HOSTS
from headwater.aggregator.host_limits import HostGate
from headwater.aggregator.life import RunOutcome, approved_options, code_of, question_of, state_after
from headwater.aggregator.sqlite_store import HOME
from headwater.aggregator.status import HELD_BACK
from headwater.aggregator.store import AggregatorStore, LeaseLost, Run, SourceState
from headwater.errors import Exit, HeadwaterError, Interrupted, as_fault, disk_fault
from headwater.progress import Notice, Progress
from headwater.quantities import counted
from headwater.sync.connection import starting_uri
from headwater.sync.copy_status import CopyStatus, copy_records, copy_status
from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done, DoneBatches, SyncReport
from headwater.sync.run import SyncTask, open_transport, synchronise, utcnow
from headwater.sync.sets.polling import PollingHints
from headwater.time_windows import Windows, open_seconds, windows_of
from headwater.transport.fetch import DeadlineMet
from headwater.transport.scheduler import host_of, site_of
from headwater.transport.transport import Transport

BATCH: Final = 500
_MOST_WARNINGS: Final = 100
_MOST_SETS: Final = 100
_LONGEST_TEXT: Final = 1_000
_MOVED: Final = "DST-F10"


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to run: a run that has a lease, its source, and where copies lie."""

    run: Run
    source: FollowedSource
    state: str
    hosts: dict[str, HostLimits] = {}

    @property
    def copy(self) -> Path:
        """The folder of the copy."""
        return Path(self.state) / self.source.name


def _move_under_way(name: str) -> str:
    return f"moved {name}"


class RunWarnings:
    """A listener that counts the notices of a run by their rules: the defects of its source."""

    def __init__(self) -> None:
        self.counts: dict[str, tuple[int, str]] = {}

    def __call__(self, event: Progress | Notice) -> None:
        if isinstance(event, Progress) or event.rule == HELD_BACK:  # that is no fault of the source
            return
        count, first = self.counts.get(event.rule, (0, event.message))
        if count or len(self.counts) < _MOST_WARNINGS:
            self.counts[event.rule] = (count + 1, first)

    def told(self) -> tuple[tuple[str, int, str], ...]:
        """Rule, how often, and the first sentence."""
        return tuple((rule, count, first[:_LONGEST_TEXT]) for rule, (count, first) in self.counts.items())


@contextmanager
def shared_transport(
    source: FollowedSource,
    home: Path,
    hosts: dict[str, HostLimits],
    options: SyncOptions | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Iterator[tuple[Transport, HostGate]]:
    """A transport that keeps the limits of hosts over all processes, and names the contact of the source's options.

    `home` is the folder of what the service remembers. A run whose host may not be asked any more is to be stopped.
    """
    options = options or source.options
    with closing(HostGate(home / HOSTS, hosts)) as gate:

        def is_stopped() -> bool:
            return gate.is_closed or (stopped is not None and stopped())

        url = starting_uri(source.url)
        with open_transport(url, options, None, is_stopped, contact=source.contact, permission=gate) as wire:
            yield wire, gate


def windows_for(source: FollowedSource, hosts: dict[str, HostLimits], asked: Iterable[str]) -> list[Windows]:
    """The windows that bind a source: its own, and those of its hosts."""
    site = site_of(starting_uri(source.url))
    own = [] if site is None else [host_of(site)]
    limits = [hosts[name] for name in dict.fromkeys([*own, *asked]) if name in hosts]
    return [windows_of(source.window), *(windows_of(one.window) for one in limits)]


def run_source(
    order: RunOrder, store: AggregatorStore, stopped: Callable[[], bool], now: Callable[[], dt.datetime] = utcnow
) -> None:
    """Run a source that is leased, and end the lease: its record is in the store, and the state of the source.

    Raises LeaseLost where somebody else has the source by now, and StoreFault where the store takes nothing.
    """
    state = store.source(order.source.name)
    if state is None:
        raise LeaseLost(order.run)
    if order.run.kind == "audit":
        with shared_transport(order.source, Path(order.state) / HOME, order.hosts, stopped=stopped) as (wire, _gate):
            outcome = RunOutcome(record=run_audit(order.run, order.source, order.copy, transport=wire, now=now))
    else:
        outcome = _synchronised(order, store, state, stopped, now)
    end_run(order, store, state, outcome)


def end_run(order: RunOrder, store: AggregatorStore, state: SourceState, outcome: RunOutcome) -> None:
    """End the lease of a run, with its record and the state of its source after it. Raises as `run_source`."""
    record = outcome.record
    windows = windows_for(order.source, order.hosts, record.by_host or state.hosts)
    after = state_after(state, order.source, outcome, windows=windows, chance=random.random())
    if record.exit_status == Exit.INTERRUPTED and after.failures > state.failures:
        reason = f"{after.fruitless} runs in a row were stopped before anything came of them"
        record = msgspec.structs.replace(record, reason=reason)
    store.end(order.run, record, after)


class _Work:
    """One run at work: what it tells the journal, and what it finds."""

    def __init__(self, order: RunOrder, store: AggregatorStore, now: Callable[[], dt.datetime]) -> None:
        self.order, self.store, self.now = order, store, now
        self.name = order.source.name
        self.counts: Counter[str] = Counter()
        self.warnings, self.hints = RunWarnings(), PollingHints()
        self.hosts: dict[str, tuple[int, int]] = {}
        self.has_moved = store.fact(_move_under_way(self.name)) is not None

    def tell(self, batch: list[Done]) -> None:
        """Add what was done to the journal, before the copy counts it as told."""
        events = new_events(self.name, batch)
        if events:
            self.store.append(self.order.run, events, self.now())
        self.counts.update(event.action for event in events)

    def hear(self, event: Progress | Notice) -> None:
        """Count a notice; that a source has moved is remembered until the journal has all that it means."""
        if isinstance(event, Notice) and event.rule == _MOVED and not self.has_moved:
            self.has_moved = True
            self.store.keep_fact(_move_under_way(self.name), "")
        self.warnings(event)

    def synchronise(self, options: SyncOptions, stopped: Callable[[], bool]) -> SyncReport:
        """Bring the copy up to date, and add to the journal where resources have moved."""
        order, home = self.order, Path(self.order.state) / HOME
        batches = DoneBatches(self.tell, BATCH)
        with shared_transport(order.source, home, order.hosts, options, stopped) as (wire, gate):
            self.hosts = gate.hosts
            report = synchronise(
                SyncTask(
                    url=order.source.url,
                    destination=order.copy,
                    options=options,
                    listener=self.hear,
                    each=batches,
                    settle=batches.settle,
                    transport=wire,
                    hints=self.hints,
                    now=self.now,
                )
            )
        if self.has_moved:
            moved = moved_events(self.store, self.name, copy_records(order.copy))
            while some := list(islice(moved, BATCH)):
                self.store.append(order.run, some, self.now())
            self.store.keep_fact(_move_under_way(self.name), None)
        return report


def _synchronised(
    order: RunOrder,
    store: AggregatorStore,
    state: SourceState,
    stopped: Callable[[], bool],
    now: Callable[[], dt.datetime],
) -> RunOutcome:
    source, work = order.source, _Work(order, store, now)
    options = approved_options(source.options, state, copy_of(order.copy) if state.answer is not None else None)
    if state.is_to_repair:
        options = msgspec.structs.replace(options, repair=True)
    left = open_seconds(now(), windows_of(source.window)) or source.deadline  # closed: a person wants it now
    left = min(source.deadline, left)
    report: SyncReport | None = None
    try:
        report = work.synchronise(msgspec.structs.replace(options, deadline_seconds=max(1.0, left)), stopped)
        told, status = faults_of(report), report.exit_status
    except LeaseLost:
        raise
    except Exception as error:  # noqa: BLE001  a bug of ours ends the run in sight of people, too
        fault = (disk_fault(error) if isinstance(error, OSError) else None) or as_fault(error)
        if isinstance(fault, DeadlineMet) and left < source.deadline:
            fault = Interrupted("the window of the source has ended")
        told, status = [str(fault)], int(fault.exit_status)
    is_quiet = status == Exit.DONE and not work.counts and state.resources > 0
    copy = None if is_quiet else copy_of(order.copy)
    question, text = question_of(told, copy)
    reason, code = reason_of(told, report)
    record = order.run.ended(
        now(),
        status,
        reason=reason[:_LONGEST_TEXT],
        code=code,
        **work.counts,
        requests=sum(requests for requests, _ in work.hosts.values()),
        by_host=work.hosts,
        warnings=work.warnings.told(),
    )
    if report is not None:
        record = msgspec.structs.replace(
            record,
            failed=report.total("failed") + report.total("refused"),
            held_back=report.total("held_back"),
            octets=report.total("octets") + report.document_octets,
            report=_brief(report),
        )
    return RunOutcome(record=record, question=question, question_text=text, copy=copy, hints=work.hints)


def copy_of(folder: Path) -> CopyStatus | None:
    """What a copy says of itself; None where there is none yet, or the disk does not let it be read."""
    with suppress(HeadwaterError, OSError):
        return copy_status(folder)
    return None


def faults_of(report: SyncReport) -> list[str]:
    """Lines of errors, of the run and of its sets."""
    return [*report.faults, *(one.fault for one in report.sets if one.fault)]


def reason_of(faults: list[str], report: SyncReport | None) -> tuple[str, str | None]:
    """Why a run did not end with 0, in one sentence, and the code or rule of that."""
    if faults:
        code, rule = code_of(faults[0])
        return faults[0].removesuffix(f" [{code}{f', {rule}' if rule else ''}]"), code or rule
    if report is None or report.exit_status == Exit.DONE:
        return "", None
    if held := report.total("held_back"):
        return f"{held:,} deletions or updates are held back", HELD_BACK
    failed, refused = report.total("failed"), report.total("refused") + report.total("skipped")
    first = next((one.reason for each in report.sets for one in each.failures), "")
    if failed:
        return f"{counted(failed, 'resource')} failed" + (f", the first: {first}" if first else ""), None
    if refused:
        return f"{counted(refused, 'entry')} of the lists refused", None
    return "some files are confirmed by no list", None


def _brief(report: SyncReport) -> dict[str, Any]:
    """The report without its lists of resources."""
    sets = [
        msgspec.structs.replace(one, failures=[], plan=[], unverified_versions=[]) for one in report.sets[:_MOST_SETS]
    ]
    return msgspec.structs.replace(report, sets=sets).to_dict()
