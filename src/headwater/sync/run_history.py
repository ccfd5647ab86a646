"""The history of runs, for `headwater status`; and what `headwater retry` makes due of it and `headwater forget` drops.

Of the last run, and of each set, the result is kept; of failures and held-back deletions what the next run is to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Sequence

import msgspec

from headwater.errors import HeadwaterError, UsageFault, disk_fault
from headwater.storage.database import Database
from headwater.storage.transaction import DatabaseFault, Transaction
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.reports import SetReport, SyncReport
from headwater.sync.state import SetRow, fact, failure_count, forget_measure, held_back_count, keep_fact, sets
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
    """The history of a set; None before the first run has ended."""
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


# `headwater retry` and `headwater forget`

_MOST_SHOWN = 100
_OF_ANY_SET = "set_id IN (SELECT id FROM sets) AND uri = ?"  # by the index, whose first column is the set


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of what was forgotten: failures, deletions held back, sets, and files that stay unwatched.

    `released` names the first of the files that stay where they are and no longer belong to the copy.
    """

    failures: int = 0
    deletions: int = 0
    sets: tuple[str, ...] = ()
    files: int = 0
    released: tuple[str, ...] = ()


def make_due(t: Transaction, uris: Sequence[str]) -> int:
    """Let the next run try these failures again (all, where none is named), whatever wait was set or asked for.

    Returns how many. Raises UsageFault.
    """
    known = _failing(t, uris)
    if uris:
        _all_known(uris, known)
    clear = "UPDATE failures SET next_at = 0, wait_until = NULL"
    if not uris:
        t.run(clear)
        return int(t.value("SELECT count(*) FROM failures"))
    t.many(clear + " WHERE uri = ?", [(uri,) for uri in uris])
    return sum(known.values())


def forget(t: Transaction, uris: Sequence[str]) -> Forgotten:
    """Forget failures and deletions held back, by URI. No file is removed.

    A resource whose transfer failed is fetched again when the source lists or changes it the next time. A file whose
    deletion was held back stays where it is and no longer belongs to the copy. Raises UsageFault.
    """
    known = _failing(t, uris)
    kept = {uri: path for uri in uris for path in _held_back(t, uri)}
    _all_known(uris, known.keys() | kept.keys())
    for uri in uris:
        t.run(
            f"UPDATE resources SET size = -1, digest = NULL, listed_hash = NULL WHERE {_OF_ANY_SET}"  # noqa: S608
            " AND path IS NOT NULL AND EXISTS (SELECT 1 FROM failures f WHERE f.set_id = resources.set_id"
            " AND f.uri = resources.uri)",
            (uri,),
        )  # the file may be damaged: the next comparison must not take it for whole
        t.run("DELETE FROM failures WHERE uri = ?", (uri,))
        t.run(
            "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"  # noqa: S608
            " changed_at = coalesce(doomed_at, changed_at, 0), doomed_at = NULL"
            f" WHERE {_OF_ANY_SET} AND doomed_at IS NOT NULL",
            (uri,),
        )
    for row in sets(t):
        if not held_back_count(t, row.id):
            forget_measure(t, row.id)
    released = [printable_path(path) for path in kept.values()]
    return Forgotten(
        failures=sum(known.values()),
        deletions=len(kept),
        files=len(released),
        released=tuple(released[:_MOST_SHOWN]),
    )


_OF_A_SET = (
    "resources", "failures", "documents", "intents", "refusals", "partials", "set_history", "representations",
    "descriptions", "listing", "released",
)  # fmt: skip


def forget_sets(t: Transaction, gone: Sequence[SetRow]) -> Forgotten:
    """Forget whole sets; their files stay where they are."""
    failures = deletions = files = 0
    released: list[str] = []
    for row in gone:
        failures += failure_count(t, row.id)
        deletions += held_back_count(t, row.id)
        held = "FROM resources WHERE set_id = ? AND path IS NOT NULL"
        files += int(t.value(f"SELECT count(*) {held}", (row.id,)))
        for (path,) in t.rows(f"SELECT path {held} ORDER BY path LIMIT {_MOST_SHOWN}", (row.id,)):
            released.append(printable_path(path))
        for table in _OF_A_SET:
            t.run(f"DELETE FROM {table} WHERE set_id = ?", (row.id,))  # noqa: S608  our own names
        t.run("DELETE FROM sets WHERE id = ?", (row.id,))
        forget_measure(t, row.id)
    t.run("DELETE FROM documents WHERE set_id = 0")  # what the source offers is looked at anew
    return Forgotten(
        failures=failures,
        deletions=deletions,
        sets=tuple(row.name for row in gone),
        files=files,
        released=tuple(released[:_MOST_SHOWN]),
    )


def failing(t: Transaction) -> list[str]:
    """The URIs of all failures that are remembered."""
    return [uri for (uri,) in t.rows("SELECT DISTINCT uri FROM failures")]


def held_back(t: Transaction) -> list[str]:
    """The URIs of all files whose deletion is held back."""
    query = "SELECT DISTINCT uri FROM resources WHERE doomed_at IS NOT NULL AND path IS NOT NULL"
    return [uri for (uri,) in t.rows(query)]


def _failing(t: Transaction, uris: Sequence[str]) -> dict[str, int]:
    counts = {uri: int(t.value("SELECT count(*) FROM failures WHERE uri = ?", (uri,))) for uri in uris}
    return {uri: number for uri, number in counts.items() if number}


def _held_back(t: Transaction, uri: str) -> list[bytes]:
    query = f"SELECT path FROM resources WHERE {_OF_ANY_SET} AND doomed_at IS NOT NULL AND path IS NOT NULL"  # noqa: S608
    return [path for (path,) in t.rows(query, (uri,))]


def _all_known(uris: Sequence[str], known: Container[str]) -> None:
    for uri in uris:
        if uri not in known:
            raise UsageFault(
                "the copy remembers no failure and no deletion held back for this URI", code="HW-SYN-21", where=uri
            )
