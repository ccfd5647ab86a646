"""The run history: the result of the last run and of each set, for `headwater status`."""

from __future__ import annotations

import contextlib

import msgspec

from headwater.errors import HeadwaterError, disk_fault
from headwater.storage.database import Database
from headwater.storage.transaction import DatabaseFault, Transaction
from headwater.sync.reports import SetReport, SyncReport
from headwater.sync.state.facts import fact, keep_fact
from headwater.typed_decoding import from_json

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


class SetHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one set: when it was last polled, when last without fault, since when not, and the last report."""

    checked_at: int
    sound_at: int | None
    unsound_since_at: int | None
    report: SetReport


def last_run(t: Transaction) -> LastRun | None:
    """The last run that came to its end, by a fault too; None where there was none."""
    kept = fact(t, _LAST_RUN)
    return None if kept is None else from_json(kept, LastRun)


def keep_report(t: Transaction, began_at: int, now: int, report: SyncReport) -> None:
    """Remember what a run has done, and put into its report whether anybody is to be told of changes."""
    numbers: dict[str, int] = dict(t.rows("SELECT name, id FROM sets"))
    _keep_run(t, LastRun(began_at=began_at, ended_at=now, exit_status=report.exit_status, reason=_reason(report)))
    changed = any(report.total(name) for name in ("created", "updated", "deleted", "adopted"))
    cut_short = t.one("SELECT 1 FROM runs WHERE ended_at IS NULL LIMIT 1") is not None  # nobody knows what it did
    if changed or cut_short:
        keep_fact(t, _UNTOLD, str(now))
    report.untold = fact(t, _UNTOLD) or None
    t.many(
        "INSERT INTO set_history(set_id, checked_at, sound_at, unsound_since_at, report) VALUES (?1, ?2, ?3, ?4, ?5)"
        " ON CONFLICT(set_id) DO UPDATE SET checked_at = ?2, sound_at = coalesce(?3, sound_at),"
        " unsound_since_at = CASE WHEN ?4 IS NULL THEN NULL ELSE coalesce(unsound_since_at, ?4) END, report = ?5",
        [
            (numbers[one.name], now, *((None, now) if one.exit_status else (now, None)), _shortened(one))
            for one in report.sets
        ],
    )


def _reason(report: SyncReport) -> str | None:
    """The first of what a run could not read."""
    faults = [*report.faults[:1], *(f"{one.name}: {one.fault}" for one in report.sets if one.fault)]
    return faults[0][:1_000] if faults else None


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


def set_history(t: Transaction, set_id: int) -> SetHistory | None:
    """What runs have made of a set; None before the first one has ended."""
    query = "SELECT checked_at, sound_at, unsound_since_at, report FROM set_history WHERE set_id = ?"
    row = t.one(query, (set_id,))
    if row is None:
        return None
    checked_at, sound_at, unsound_since_at, encoded = row
    report = from_json(encoded, SetReport)
    return SetHistory(checked_at=checked_at, sound_at=sound_at, unsound_since_at=unsound_since_at, report=report)


def _keep_run(t: Transaction, run: LastRun) -> None:
    """Remember a run, and since when and how often runs have ended as this one."""
    if run.fault is not None or run.reason is not None:
        since, count, before = run.ended_at, 0, last_run(t)
        if before is not None and _ends_alike(before.fault, run.fault) and _ends_alike(before.reason, run.reason):
            since, count = before.fault_since_at or since, before.fault_count
        run = msgspec.structs.replace(run, fault_since_at=since, fault_count=count + 1)
    keep_fact(t, _LAST_RUN, msgspec.json.encode(run).decode())


def _ends_alike(before: str | None, now: str | None) -> bool:
    return (before is None) is (now is None)


def _shortened(report: SetReport) -> str:
    return msgspec.json.encode(msgspec.structs.replace(report, failures=[], plan=[])).decode()
