"""Reports of runs, of their sets and of each resource: the exit status, what is remembered, whether there is news.

Of the last run, and of each set, the result is kept for `headwater status`.
"""

import contextlib
import datetime as dt
from collections.abc import Callable

import msgspec

from headwater.errors import Exit, HeadwaterError, disk_fault
from headwater.spec.records import Link, ToDict
from headwater.spec.times import from_optional
from headwater.storage.database import Database
from headwater.storage.transaction import DatabaseFault, Transaction
from headwater.sync.state import fact, keep_fact
from headwater.typed_decoding import from_json, json_decoder
from headwater.version import __version__

_kept_links = json_decoder(tuple[Link, ...])


def stated_links(kept: str | None) -> tuple[Link, ...]:
    """Links of a resource as the state of a copy keeps them."""
    return _kept_links(kept) if kept else ()


class CopyRecord(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """A resource in the folder `copy`: its relative `path`, `hash` (`algorithm:hex`) and `length` of its file."""

    uri: str
    path: str
    hash: str | None
    length: int
    type: str | None
    lastmod: dt.datetime | None
    links: tuple[Link, ...]
    set_name: str
    source: str
    copy: str


class Done(msgspec.Struct, frozen=True):
    """One resource of a run; `action`: created, adopted, updated, deleted or failed.

    `path` is relative to the copy, `octets` the bytes transferred, `reason` why it failed, `source` the address of the
    source. The rest describes the file: `hash` as `algorithm:hex`, the others as the source lists them. After a kill
    only hash and length are known.
    """

    action: str
    uri: str
    path: str
    octets: int = 0
    reason: str = ""
    set_name: str = ""
    kept: str | None = None
    """Where `backup_dir` keeps the replaced or deleted file, and its hash."""

    old_hash: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    lastmod: dt.datetime | None = None
    links: tuple[Link, ...] = ()
    source: str = ""
    repaired: bool = False
    """Whether it only brought back what the copy had lost or had damaged."""


def with_stated(done: Done, type_: str | None, lastmod: int | None, links: str | None) -> Done:
    """The same with what the source states, as it is kept."""
    return msgspec.structs.replace(done, type=type_, lastmod=from_optional(lastmod), links=stated_links(links))


def ignored(_done: Done) -> None:
    """What hears of each resource for a caller that does not want to."""


def each_of_set(each: Callable[[Done], None], name: str, source: str) -> Callable[[Done], None]:
    """What passes each resource on as one of this set and source; `ignored` stays what it is."""
    if each is ignored:
        return each
    return lambda done: each(msgspec.structs.replace(done, set_name=name, source=source))


class DoneBatches:
    """Collects what is done, and tells `most` at a time; whoever records what was done calls `settle` before."""

    def __init__(self, each_batch: Callable[[list[Done]], None], most: int) -> None:
        self._each_batch, self._most = each_batch, most
        self._waiting: list[Done] = []
        self._fault: BaseException | None = None

    def __call__(self, done: Done) -> None:
        self._waiting.append(done)
        if len(self._waiting) >= self._most:
            self.settle()

    def settle(self) -> None:
        """Tell all that waits. What a batch has raised is raised again: nothing of it counts as told."""
        if self._fault is not None:
            raise self._fault
        told, self._waiting = self._waiting, []
        try:
            if told:
                self._each_batch(told)
        except BaseException as fault:
            self._fault = fault
            raise


class PlannedAction(ToDict, msgspec.Struct, frozen=True):
    """One line of a plan."""

    action: str
    uri: str
    path: str


class FailedTransfer(ToDict, msgspec.Struct, frozen=True):
    """A remembered failure; `waits_until`: the time before which the source asked for no request."""

    uri: str
    reason: str
    tries: int
    waits_until: str | None = None


class UnverifiedVersion(msgspec.Struct, frozen=True):
    """An earlier state that only its server vouches for (RFC 7089)."""

    uri: str
    version: str
    memento_datetime: str | None = None


class TransferWay(msgspec.Struct, kw_only=True):
    """A way of fetching several resources at once, whether it was taken, why, and its result."""

    way: str
    """`Resource Dump`, `Change Dump` or `on demand`."""

    why: str
    taken: bool = False
    packages: int = 0
    requests: int = 0
    resources: int = 0
    octets: int = 0
    """Bytes of its packages."""

    fault: str | None = None


class StoreReport(msgspec.Struct, kw_only=True):
    """The result for one triplestore; `store` is its folder or address."""

    store: str
    done: str = "unchanged"
    """`unchanged`, `loaded`, `patched` or `failed`."""

    removed: int = 0
    added: int = 0
    fault: str | None = None


class DatasetReport(msgspec.Struct, kw_only=True):
    """The RDF dataset of a set in canonical N-Quads, and the stores that follow it."""

    uri: str
    sha256: str | None = None
    quads: int | None = None
    stores: list[StoreReport] = []


class SetReport(ToDict, msgspec.Struct, kw_only=True):
    """What a run did for one set: counts of resources; `position` and `at` are times of the source."""

    name: str
    folder: str
    capability_list: str | None = None
    process: str = "none"
    baseline_by: str = "Resource List"
    """`Resource Dump` where there is no Resource List."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    refused: int = 0
    skipped: int = 0
    left_out: int = 0
    held_back: int = 0
    newer_than_listed: int = 0
    adopted: int = 0
    octets: int = 0
    to_fetch_octets: int = 0
    """Bytes that a dry run would fetch, as listed."""

    to_fetch_unmeasured: int = 0
    """Resources without listed length among them."""

    from_mirrors: int = 0
    patched: int = 0
    """Updates by patches, and the bytes saved."""

    octets_saved: int = 0
    ways: list[TransferWay] = []
    held: int = 0
    base: str | None = None
    at: str | None = None
    position: str | None = None
    complete: bool = True
    fault: str | None = None
    failures: list[FailedTransfer] = []
    unverified: int = 0
    """Earlier states without a hash, in a copy of the past."""

    unverified_versions: list[UnverifiedVersion] = []
    dataset: DatasetReport | None = None
    """If a triplestore follows the set."""

    plan: list[PlannedAction] = []
    plan_is_cut: bool = False
    exit_status: int = Exit.DONE

    def way(self, name: str, why: str, *, taken: bool = True) -> TransferWay:
        """The way of this name, added if new."""
        way = next((one for one in self.ways if one.way == name), None)
        if way is None:
            self.ways.append(way := TransferWay(way=name, why=why, taken=taken))
        elif taken and not way.taken:
            way.taken, way.why = True, why
        return way


class SyncReport(ToDict, msgspec.Struct, kw_only=True):
    """What a run did; `exit_status` is that of the command."""

    source: str
    destination: str
    as_of: str | None = None
    """The time of a copy of the past."""

    dry_run: bool = False
    sets: list[SetReport] = []
    faults: list[str] = []
    backup: str | None = None
    """The folder with what this run replaced or deleted, and the number of files."""

    backed_up: int = 0
    requests: int = 0
    document_octets: int = 0
    seconds: float = 0.0
    retry_after_seconds: float | None = None
    """How long the source asks you to wait (`Retry-After`)."""

    max_age_seconds: float | None = None
    """How long the documents stay fresh (`Cache-Control`)."""

    untold: str | None = None
    """A mark while the command of `--exec` has not yet received all changes."""

    exit_status: int = Exit.DONE

    def total(self, name: str) -> int:
        """The sum of one count over all sets."""
        return sum(getattr(one, name) for one in self.sets)

    @property
    def takes_nothing(self) -> bool:
        """Whether the filters left out everything."""
        others = ("held", "failed", "refused", "skipped")
        return self.total("left_out") > 0 and not (any(map(self.total, others)) or any(one.plan for one in self.sets))


_GRAVEST = (Exit.STORE, Exit.SOURCE, Exit.UNDETERMINED, Exit.TRANSFERS_FAILED, Exit.DONE)


def gravest_status(statuses: list[int]) -> int:
    """The exit status that counts when several apply."""
    return next((int(status) for status in _GRAVEST if status in statuses), int(Exit.DONE))


# audits

SAME, MISSING, DIFFERENT, EXTRA = "same", "missing", "different", "extra"
BY_HASH, BY_RECORD, BY_TIME = "same_by_hash", "same_by_record", "same_by_time"
"""What proves that a file is the same: a hash of the source, the copy's own record, length and time alone."""
NORMALISED = "same after normalisation"
UNREADABLE, UNVERIFIABLE, CHANGED = "unreadable", "unverifiable", "changed during audit"
BEHIND = "behind"

IN_SYNC, NOT_IN_SYNC, UNDETERMINED = "in sync", "not in sync", "undetermined"


class Finding(ToDict, msgspec.Struct, frozen=True):
    """A file or folder that is missing, differs, cannot be read, or is in no list.

    `expected` and `found` are digests, `algorithm:hex`. A listener of `each` also gets files that are `same`: `found`
    has their verified digests, `proof` is `same_by_hash`, `same_by_record` or `same_by_time`.
    """

    verdict: str
    uri: str | None
    path: str
    reason: str = ""
    expected: str | None = None
    found: str | None = None
    set_name: str = ""
    proof: str | None = None


class StoreAudit(msgspec.Struct, kw_only=True):
    """The verdict on one triplestore: statements, and SHA-256 of canonical N-Quads, in both places."""

    store: str
    verdict: str
    """`same`, `same after normalisation`, `different`, `missing` or `unreadable`."""

    reason: str | None = None
    quads: int | None = None
    sha256: str | None = None
    dataset_quads: int | None = None
    dataset_sha256: str | None = None


class SetAudit(ToDict, msgspec.Struct, kw_only=True):
    """The audit of one set: counts of resources, and what differs."""

    name: str
    folder: str
    at: str | None = None
    same: int = 0
    """The sum of the next three."""

    same_by_hash: int = 0
    """By the source's hash or content."""

    same_by_record: int = 0
    """Without listed hash: by the hash of the file as placed, and the listed length and time."""

    same_by_time: int = 0
    """Without any hash: by length and time."""

    algorithms: dict[str, int] = {}
    """Files compared, by digest algorithm."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    unreadable: int = 0
    unverifiable: int = 0
    changed_during_audit: int = 0
    behind: int = 0
    """Changed at the source after the last run; not a finding."""

    held_back: int = 0
    """Waits for your consent."""

    consent: dict[str, str] = {}
    """The commands that `delete` or `update` what waits."""

    refused: int = 0
    skipped: int = 0
    left_out: int = 0
    contradicted: int = 0
    """Resources about which the source's lists conflict."""

    told_no_more: int = 0
    """Resources with a newer change that no list has any more."""

    verdict: str = UNDETERMINED
    reason: str | None = None
    findings: list[Finding] = []
    findings_are_cut: bool = False
    stores: list[StoreAudit] = []


class AuditReport(ToDict, msgspec.Struct, kw_only=True):
    """The audit of a copy, begun at `time`; `verdict`: `in sync`, `not in sync` or `undetermined`."""

    time: dt.datetime | None = None
    version: str = __version__
    source: str
    destination: str
    local: bool = False
    """Whether it compares with the copy's own record alone."""

    as_of: str | None = None
    """The time compared with; None: now."""

    copy_as_of: str | None = None
    """The time of the copy itself; None: it follows the source."""

    verdict: str = UNDETERMINED
    sets: list[SetAudit] = []
    requests: int = 0
    seconds: float = 0.0
    exit_status: int = Exit.UNDETERMINED


# the history of runs

_LAST_RUN, _UNTOLD = "last run", "changes not told"


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last run over a copy; times in microseconds since 1970. `fault`: what it ended by, where it came to nothing;
    `reason`: what could not be read, the first of it, where it came to its end.

    `fault_since_at` and `fault_count`: since when, and in how many runs one after another, runs have ended so.
    """

    began_at: int
    ended_at: int
    exit_status: int
    fault: str | None = None
    reason: str | None = None
    fault_since_at: int | None = None
    fault_count: int = 0


_KEEP_HISTORY = (
    "INSERT INTO set_history(set_id, checked_at, sound_at, unsound_since_at, report) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT(set_id) DO UPDATE SET checked_at = ?2, sound_at = coalesce(?3, sound_at),"
    " unsound_since_at = CASE WHEN ?4 IS NULL THEN NULL ELSE coalesce(unsound_since_at, ?4) END, report = ?5"
)


def last_run(t: Transaction) -> LastRun | None:
    """The last run that came to its end, by a fault too; None where there was none."""
    kept = fact(t, _LAST_RUN)
    return None if kept is None else from_json(kept, LastRun)


def keep_report(t: Transaction, began_at: int, now: int, report: SyncReport) -> None:
    """Remember what a run has done, and put into its report whether anybody is to be told of changes."""
    numbers: dict[str, int] = dict(t.rows("SELECT name, id FROM sets"))
    faults = [*report.faults[:1], *(f"{one.name}: {one.fault}" for one in report.sets if one.fault)]
    reason = faults[0][:1_000] if faults else None
    _keep_run(t, LastRun(began_at=began_at, ended_at=now, exit_status=report.exit_status, reason=reason))
    changed = any(report.total(name) for name in ("created", "updated", "deleted", "adopted"))
    cut_short = t.one("SELECT 1 FROM runs WHERE ended_at IS NULL LIMIT 1") is not None  # nobody knows what it did
    if changed or cut_short:
        keep_fact(t, _UNTOLD, str(now))
    report.untold = fact(t, _UNTOLD) or None
    for one in report.sets:
        encoded = msgspec.json.encode(msgspec.structs.replace(one, failures=[], plan=[])).decode()
        t.run(_KEEP_HISTORY, (numbers[one.name], now, *((None, now) if one.exit_status else (now, None)), encoded))


def keep_told(t: Transaction, mark: str) -> None:
    """Remember that somebody has been told of the changes up to a report's `untold`."""
    t.run("DELETE FROM facts WHERE name = ? AND value = ?", (_UNTOLD, mark))


def keep_fault(database: Database, url: str, began_at: int, now: int, fault: HeadwaterError | OSError) -> None:
    """Remember that a run over a copy of `url` came to nothing; a store that cannot be written tells of itself."""
    known = disk_fault(fault) if isinstance(fault, OSError) else fault
    if known is None:
        return
    with contextlib.suppress(DatabaseFault), database.write() as t:
        if t.one("SELECT 1 FROM sets LIMIT 1") is None:  # else another source is known by now
            keep_fact(t, "url", url)
        status, told = int(known.exit_status), str(known)[:1_000]
        _keep_run(t, LastRun(began_at=began_at, ended_at=now, exit_status=status, fault=told))


def _keep_run(t: Transaction, run: LastRun) -> None:
    """Remember a run, and since when and how often runs have ended as this one."""
    if run.fault is not None or run.reason is not None:
        since, count, before = run.ended_at, 0, last_run(t)
        ended = run.fault is None, run.reason is None
        if before is not None and (before.fault is None, before.reason is None) == ended:
            since, count = before.fault_since_at or since, before.fault_count
        run = msgspec.structs.replace(run, fault_since_at=since, fault_count=count + 1)
    keep_fact(t, _LAST_RUN, msgspec.json.encode(run).decode())
