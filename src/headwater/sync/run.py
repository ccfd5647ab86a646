"""Runs of `headwater sync`: sets are found, the folder is locked, each set is brought up to date; `--follow`.

A service asks for changes as often as its user wants and as seldom as the source asks by its headers (DST-C6).
"""

import contextlib
import datetime as dt
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater.copy_state import FOLDER
from headwater.errors import Exit, HeadwaterError, SourceFault, UsageFault
from headwater.files.file_copies import Room
from headwater.progress import Listener, Notice, Progress, silent
from headwater.storage.database import Database
from headwater.sync.connection import AnotherSet, Scope, bare_host, checked_proxy, credentials_of, starting_uri
from headwater.sync.copy.destination_folder import DestinationFolder, check_is_free, locked_state, state_copy
from headwater.sync.copy.file_names import base_folder
from headwater.sync.copy.file_tree import Backup, DestinationLocked, FileTree, backup_of
from headwater.sync.copy.held_files import CrashRecovery
from headwater.sync.lists.documents import Documents
from headwater.sync.options import SyncOptions, given_options
from headwater.sync.packages.dump_documents import remove_kept_packages
from headwater.sync.reports import (
    Done,
    DoneBatches,
    SetReport,
    SyncReport,
    gravest_status,
    ignored,
    keep_fault,
    keep_report,
)
from headwater.sync.sets.polling import PollHistory, PollingHints, PollInterval, asked_first, next_wait, polled_by
from headwater.sync.sets.registry import SetRegistry
from headwater.sync.source_times import check_past, format_micros, micros
from headwater.sync.state import AS_OF, IN_PUBLIC, TEMPORARY, SetRow, fact, keep_fact, sets
from headwater.sync.transfer.work_queue import RunContext
from headwater.sync.update.set_sync import SetSync
from headwater.transport.fetch import USER_AGENT, DeadlineMet, HostPermission, TransportOptions
from headwater.transport.transport import Transport

_AHEAD = 128  # sets whose first requests are sent at a time


def utcnow() -> dt.datetime:
    """The local clock; never compared with source times but to sanity-check (DST-C8)."""
    return dt.datetime.now(dt.UTC)


class SyncTask(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one run: source, folder, options, listeners, transport and clock."""

    url: str
    destination: Path | str
    options: SyncOptions = SyncOptions()
    listener: Listener = silent
    each: Callable[[Done], None] = ignored  # hears of every resource that was dealt with
    settle: Callable[[], None] = lambda: None
    """Called before what was done is recorded: whoever hears of it in batches hears of the rest."""

    stopped: Callable[[], bool] | None = None  # asked again and again, whether the run is to end with Interrupted
    transport: Transport | None = None  # what sends the requests; None: one is made as the options say
    now: Callable[[], dt.datetime] = utcnow
    changed_documents: frozenset[str] = frozenset()
    """Documents that are said to have changed (RS-FN-05): a Capability List among them is read anew."""

    hints: PollingHints = msgspec.field(default_factory=PollingHints)
    """Learns how long the source does not want to be asked again, also when a fault is raised."""


def sync(
    url: str,
    destination: Path | str,
    options: SyncOptions | None = None,
    *,
    listener: Listener = silent,
    each: Callable[[Done], None] = ignored,
    each_batch: Callable[[list[Done]], None] | None = None,
    batch_size: int = 500,
    stopped: Callable[[], bool] | None = None,
) -> SyncReport:
    """Bring the copy in `destination` up to date with the source at `url`. After a kill, call it again: it continues.

    The report has failed transfers and most faults of the source (`exit_status`). Raises SourceFault (no ResourceSync),
    UsageFault, StoreFault (your disk, or another run on the folder), and Interrupted when `stopped` returns true.

    `each` is called, in the same thread, for each resource created, adopted, updated, deleted or failed. Commit your
    own work before it returns: Headwater then counts the resource as told. After a kill or an exception in `each`, the
    next call tells the rest, and may repeat some. Know files by `path`: when a source moves, URIs change and nothing is
    told.

    `each_batch` is called instead with lists of up to `batch_size`, each counted as told together.
    """
    task = SyncTask(
        url=url, destination=destination, options=given_options(options), listener=listener, each=each, stopped=stopped
    )
    if each_batch is not None:
        if each is not ignored or batch_size < 1:
            raise UsageFault("each_batch excludes each, and goes with a batch_size of 1 or more")
        batches = DoneBatches(each_batch, batch_size)
        task = msgspec.structs.replace(task, each=batches, settle=batches.settle)
    return synchronise(task)


def synchronise(task: SyncTask) -> SyncReport:
    """One run, as `sync` says of it."""
    began = time.monotonic()
    options, now = task.options, task.now
    root = Path(os.path.abspath(task.destination))
    url = starting_uri(task.url)
    check_is_free(root)
    if options.store is not None:
        _check_stores(options.store, root)
    if options.base is not None:
        base_folder(options.base)
    state = state_copy if options.dry_run else locked_state
    transport = open_transport(url, options, task.transport, task.stopped)
    home = DestinationFolder(root)
    with transport as wire, state(home) as database:
        wire.heard = task.hints.hear
        begin_work(wire, database)
        began_at = micros(now()) or 0
        try:
            report = _run(msgspec.structs.replace(task, url=url, destination=root), wire, database, home.lock)
        except (HeadwaterError, OSError) as fault:
            if not options.dry_run:
                keep_fault(database, url, began_at, micros(now()) or 0, fault)
            raise
        report.seconds = round(time.monotonic() - began, 3)
        if not options.dry_run:
            with database.write() as t:
                if wire.guard.source_in_public is not None:
                    keep_fact(t, IN_PUBLIC, wire.guard.source_in_public)
                keep_report(t, began_at, micros(now()) or 0, report)
    return report


@contextlib.contextmanager
def open_transport(
    url: str,
    options: SyncOptions,
    given: Transport | None,
    stopped: Callable[[], bool] | None = None,
    *,
    contact: str | None = None,
    permission: HostPermission | None = None,
) -> Iterator[Transport]:
    """The transport given, or one made as the options say; it names the `contact`, and asks for `permission`."""
    if given is not None:
        yield given
        return
    settings = TransportOptions(
        concurrency=options.concurrency,
        per_host=options.concurrency,
        rate_per_second=options.rate,
        octets_per_second=options.bwlimit,
        stall_timeout_seconds=options.stall_seconds,
        retries=options.retries,
        credentials=credentials_of(url, options),
        authorities=options.ca,
        proxy=checked_proxy(options.proxy),
        source=url,
        named_hosts=tuple(map(bare_host, options.allow_hosts)),
        stopped=stopped,
        deadline_seconds=options.deadline_seconds,
        permission=permission,
        user_agent=USER_AGENT if contact is None else f"{USER_AGENT.removesuffix(')')}; {contact})",
    )
    with Transport(settings) as made:
        yield made


def begin_work(wire: Transport, database: Database) -> None:
    """Make the temporary tables, and tell the transport whether the source was in public when last asked (DST-S12)."""
    with database.write() as t:
        t.run(TEMPORARY)
        wire.guard.was_public(fact(t, IN_PUBLIC))


@contextlib.contextmanager
def working_copy(
    task: SyncTask,
    transport: Transport,
    database: Database,
    documents: Documents,
    *,
    backup: Backup | None = None,
    lock: int | None = None,
    adopt: bool = False,
) -> Iterator[RunContext]:
    """Open the folder of a copy for a run, whose state is `database`; a dry run only looks at it.

    What an interrupted run has left is repaired first. A run that ends by an exception has not ended for the next one.
    """
    root, options = Path(task.destination), task.options
    temp = root / FOLDER / "tmp"

    def now() -> int:
        return micros(task.now()) or 0

    def counted(path: bytes) -> int:
        with database.read() as t:
            return int(t.value("SELECT max(size, 0) FROM resources WHERE path = ?", (path,)) or 0)

    def told(done: Done) -> None:
        """Tell of a resource, with what the backup has kept of it. Its row is still as it was."""
        if backup is not None and (kept := backup.kept.pop(done.path, None)) is not None:
            with database.read() as t:
                digest = t.value("SELECT digest FROM resources WHERE path = ?", (kept[0],))
            done = msgspec.structs.replace(done, kept=str(kept[1]), old_hash=None if done.repaired else digest)
        task.each(done)

    each = task.each if backup is None or task.each is ignored else told
    with contextlib.ExitStack() as stack:
        tree, number, held = None, 0, 0
        recovery = CrashRecovery(database, root, task.now, task.each, task.settle, task.url)
        if not options.dry_run:
            tree = stack.enter_context(FileTree(root, temp, backup))
            number = recovery.begin(tree)
            if options.max_total is not None:
                with database.read() as t:
                    held = int(t.value("SELECT coalesce(sum(max(size, 0)), 0) FROM resources WHERE path IS NOT NULL"))
            tree.room = Room(os.fsencode(root), options.keep_free, options.max_total, held, counted)
            transport.room = tree.room
            stack.callback(setattr, transport, "room", None)
        elif root.is_dir():
            tree = stack.enter_context(FileTree(root, None))
        yield RunContext(
            documents=documents,
            transport=transport,
            database=database,
            tree=tree,
            temp=str(temp),
            run_number=number,
            options=options,
            source=task.url,
            destination=str(root),
            listener=task.listener,
            each=each,
            settle=task.settle,
            now=now,
            lock=lock,
            adopt=adopt,
        )
        if number:
            recovery.end(number)


def _run(task: SyncTask, transport: Transport, database: Database, lock: int | None) -> SyncReport:
    """One run over all sets, in a folder that is locked."""
    root, options = Path(task.destination), task.options
    documents = Documents(transport, task.listener, now=task.now)
    began_at = micros(task.now()) or 0
    moment = None if options.at is None else check_past(options.at, began_at)
    report = SyncReport(source=task.url, destination=str(root), dry_run=options.dry_run, as_of=format_micros(moment))
    registry = SetRegistry(task.url, root, options, database, documents, task.changed_documents, began_at)
    with database.write() as t:
        if moment is None:
            t.run("DELETE FROM facts WHERE name = ?", (AS_OF,))
        else:
            from headwater.sync.past.set_at import mark_copy  # imported here: few copy the past

            mark_copy(t, moment, str(root))
    backup = None if options.backup_dir is None else backup_of(options.backup_dir, root, task.now())
    adopt = False  # of a copy that holds nothing yet, or cannot be listed, nothing can be adopted
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        adopt = any(entry.name != FOLDER for entry in entries)
    rows = registry.rows()
    begins: list[int] = []
    with working_copy(task, transport, database, documents, backup=backup, lock=lock, adopt=adopt) as context:
        for done, row in enumerate(rows):
            if done % _AHEAD == 0 and len(rows) > 1:
                with database.read() as t:
                    asked = asked_first(
                        t, rows[done : done + _AHEAD], options, registry.scope_of, daily=registry.is_daily
                    )
                if len(asked) > 1:
                    documents.ask_ahead(asked)
            if done % _AHEAD == 0:
                task.listener(Progress("sets", done, len(rows)))
            row = registry.with_fresh_offer(row)
            try:
                found = _sync_set(context, row, registry.scope_of(row.offer), moment, begins)
            except AnotherSet:
                row = registry.as_another(row)
                found = _sync_set(context, row, registry.scope_of(row.offer), moment, begins)
            report.sets.append(found)
    if begins and len(begins) == len(rows):
        what = f"at {report.as_of} there was nothing yet: the source's lists begin at"
        raise UsageFault(f"{what} {format_micros(min(begins))} on", code="HW-SYN-25", where=task.url)
    if report.takes_nothing:
        documents.warn("DST-S12", "the filters leave out all that is listed: nothing is copied", task.url)
    if _has_stores(options) and not any(one.dataset or one.fault for one in report.sets):
        documents.warn("TIM-A5", "no set has an RDF dataset: no store is used", task.url)
    registry.conclude()
    report.faults += registry.faults
    with database.read() as t:
        now = {row.id: row for row in sets(t)}
    task.hints.poll([uri for row in rows if (uri := polled_by(now[row.id])) is not None])
    report.retry_after_seconds = task.hints.retry_after_seconds
    report.max_age_seconds = task.hints.max_age_seconds
    report.requests = documents.requests
    report.document_octets = documents.octets
    if backup is not None and backup.count:
        report.backup, report.backed_up = str(backup.root), backup.count
    statuses = [one.exit_status for one in report.sets]
    report.exit_status = gravest_status([*statuses, Exit.SOURCE] if report.faults else statuses)
    return report


def _sync_set(context: RunContext, row: SetRow, scope: Scope, moment: int | None, begins: list[int]) -> SetReport:
    """Bring one set up to date, or copy it as it was; then the triplestores that are to follow its dataset.

    `begins`: gets the time at which a set had anything first, where it had nothing yet at the `moment`.
    """
    if moment is None:
        report = SetSync(context, row, scope).run()
    else:
        from headwater.sync.past.set_at import SetAt

        past = SetAt(context, row, scope, moment)
        report = past.run()
        if past.begins is not None:
            begins.append(past.begins)
    remove_kept_packages(context.temp)
    if _has_stores(context.options):
        from headwater.sync.dataset_sync import DatasetSync  # takes the RDF library along, which few use

        DatasetSync(context, row, report).run()
    return report


def _has_stores(options: SyncOptions) -> bool:
    return not options.dry_run and (options.store is not None or options.sparql is not None)


def _check_stores(store: str, root: Path) -> None:
    """Raise UsageFault where stores would lie in the copy, in which audits would find them as extra files, or,
    if there are none yet, in folders of other commands."""
    folder = Path(os.path.realpath(store))
    if not any(folder.glob("*/oxigraph")):
        check_is_free(folder, "the folder for stores")
    if folder.is_relative_to(os.path.realpath(root)):
        advice = "Name a folder beside the copy with --store."
        raise UsageFault("the stores would lie in the copy", code="HW-SYN-28", where=store, advice=advice)


# the service loop of `headwater sync --follow`

_LOOK_SECONDS = 0.25


def follow(
    task: SyncTask, interval: PollInterval, tell: Callable[[SyncReport], None], *, stop: threading.Event
) -> None:
    """Synchronise until `stop` is set; `tell` gets the report of each run.

    A run under way is given up at once, by Interrupted; what it has done holds, and the next call continues. A fault of
    the source does not end it, nor a long audit of the copy; any other is raised.
    """
    history = PollHistory()
    while not stop.is_set():
        hints = PollingHints()
        try:
            report = poll(msgspec.structs.replace(task, stopped=stop.is_set, hints=hints), history)
        except DestinationLocked as fault:  # whoever has the copy for long is no reason to wait longer after
            task.listener(Notice(fault.code, f"{fault.what}; it is retried", fault.where))
        else:
            if report is not None:
                tell(report)
        wait = next_wait(interval, history.quiet, hints, failures=history.failures, chance=random.random())
        until = time.monotonic() + wait
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))  # not `Event.wait`: a signal inside of it could not set the event


def poll(task: SyncTask, history: PollHistory) -> SyncReport | None:
    """One run of a service; None where it came to nothing by its source, or had no time left, which is told."""
    try:
        report = synchronise(task)
    except (SourceFault, DeadlineMet) as fault:
        task.listener(Notice(fault.rule or fault.code, f"{fault.what}; it is retried", fault.where))
        history.polled(is_busy=isinstance(fault, DeadlineMet), has_failed=isinstance(fault, SourceFault))
        return None
    statuses = {report.exit_status, *(one.exit_status for one in report.sets)}  # one of many lets no other set wait
    history.polled(is_busy=is_busy(report), has_failed=statuses == {Exit.SOURCE})
    return report


def is_busy(report: SyncReport) -> bool:
    """Whether a run has found changes."""
    return any(report.total(name) for name in ("created", "updated", "deleted"))
