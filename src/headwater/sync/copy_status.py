"""The status of a copy: what it holds, how far it has come, what failed, what is held back.

And what `headwater retry` makes due of it, and `headwater forget` drops.
"""

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headwater.copy_state import FOLDER, copied_sets, files_after
from headwater.errors import Exit, UsageFault
from headwater.files.file_copies import free_octets
from headwater.spec.records import ToDict
from headwater.spec.times import from_microseconds, from_optional
from headwater.storage.transaction import Transaction
from headwater.sync.copy.destination_folder import DestinationFolder, readable_state
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.reports import CopyRecord, LastRun, SetReport, gravest_status, last_run, stated_links
from headwater.sync.run import utcnow
from headwater.sync.sets.moved_sets import moved_address
from headwater.sync.sets.selection import pick
from headwater.sync.state import (
    AS_OF,
    HELD_UPDATE,
    SetRow,
    consent_commands,
    fact,
    refused_entries,
    sets,
    unsettled,
)
from headwater.typed_decoding import from_json

LITTLE_ROOM_OCTETS = 1 << 20
"""With less than that left on its disk nothing more can be placed in a copy."""

_MOST = 1_000
"""Failures, and deletions held back, that are listed of one set."""


class FailedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A failed transfer; `waits_until`: the time before which the source asked for no request.

    `follow_at`: when a following service tries again. A single run tries at once.
    """

    uri: str
    reason: str
    tries: int
    since: dt.datetime
    last_at: dt.datetime
    waits_until: dt.datetime | None
    follow_at: dt.datetime


class HeldBackDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion that waits for consent; `deleted_at` as the source says, if it does."""

    uri: str
    path: str
    deleted_at: dt.datetime | None


class SetStatus(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """The state of one set; `position` is a time of the source, ages are seconds by your clock.

    `sound_at`: the last run without fault; `unsound_since`: when faults began. `newer_than_listed`: files that no list
    confirms. `refusals`: why entries are refused. `last`: the report of the last run. `exit_status`: that of a run now.
    """

    name: str
    folder: str
    capability_list: str | None
    base: str | None
    position: dt.datetime | None
    position_age_seconds: float | None
    checked_at: dt.datetime | None
    sound_at: dt.datetime | None
    sound_age_seconds: float | None
    unsound_since: dt.datetime | None
    files: int
    octets: int
    failed: int
    refused: int
    newer_than_listed: int
    held_back: int
    held_updates: int
    """Updates among them; the others are deletions."""

    refusals: tuple[str, ...]
    failures: tuple[FailedResource, ...]
    deletions: tuple[HeldBackDeletion, ...]
    updates: tuple[str, ...]
    consent: dict[str, str]
    """The commands that `delete` or `update` what waits; `updates` has the paths."""

    lists_are_cut: bool
    last: SetReport | None
    exit_status: int


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last finished run; `fault`: why it failed as a whole, since when, how often."""

    began_at: dt.datetime
    ended_at: dt.datetime
    exit_status: int
    fault: str | None
    fault_since: dt.datetime | None
    fault_count: int


class CopyStatus(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """The state of a copy, as `headwater status --json` writes it.

    `moved_to`: where `source` is permanently redirected to. `running`: whether a run is at work, None if unknown.
    `partial_files`: transfers in progress, or to be resumed. `free_octets`: bytes free on its disk. `is_read_only`:
    whether that disk is read-only.
    """

    source: str | None
    moved_to: str | None
    destination: str
    as_of: dt.datetime | None
    """The time of a copy of the past."""

    time: dt.datetime
    running: bool | None
    last_run: RunStatus | None
    files: int
    octets: int
    partial_files: int
    partial_octets: int
    free_octets: int
    is_read_only: bool
    failed: int
    refused: int
    held_back: int
    sets: tuple[SetStatus, ...]
    exit_status: int


def copy_status(
    destination: Path | str,
    wanted: tuple[str, ...] = (),
    *,
    max_age: float | None = None,
) -> CopyStatus:
    """The state of the copy in `destination`, or of the sets `wanted`; changes nothing, also during a run.

    With `max_age`, the status is FINDINGS if a set had no run without fault for more seconds. Raises UsageFault, and
    StoreFault where the state cannot be read.
    """
    root = Path(os.path.abspath(destination))
    moment = utcnow()
    with readable_state(DestinationFolder(root)) as database, database.read() as t:
        rows = sets(t)
        rows = pick(rows, wanted, str(root)) if wanted else rows
        told = tuple(_set_status(t, row, (fact(t, "url") or "URL", str(root)), moment) for row in rows)
        run, source, as_of = last_run(t), fact(t, "url"), fact(t, AS_OF)
        moved_to = moved_address(t, source or "")
    partial_count, partial_octets = partial_files(root)
    free, is_read_only = free_octets(root), bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    return CopyStatus(
        source=source,
        moved_to=moved_to,
        destination=str(root),
        as_of=from_optional(None if as_of is None else int(as_of)),
        time=moment,
        running=is_locked(root / FOLDER / "lock"),
        last_run=None
        if run is None
        else RunStatus(
            began_at=from_microseconds(run.began_at),
            ended_at=from_microseconds(run.ended_at),
            exit_status=run.exit_status,
            fault=run.fault or run.reason,
            fault_since=from_optional(run.fault_since_at),
            fault_count=run.fault_count,
        ),
        files=sum(one.files for one in told),
        octets=sum(one.octets for one in told),
        partial_files=partial_count,
        partial_octets=partial_octets,
        free_octets=free,
        is_read_only=is_read_only,
        failed=sum(one.failed for one in told),
        refused=sum(one.refused for one in told),
        held_back=sum(one.held_back for one in told),
        sets=told,
        exit_status=_verdict(run, told, max_age, can_write=free >= LITTLE_ROOM_OCTETS and not is_read_only),
    )


_CHUNK = 2_000


def copy_records(destination: Path | str) -> Iterator[CopyRecord]:
    """What the copy in `destination` holds, by set and URI; changes nothing, also during a run.

    Records that change meanwhile come in the old or the new state. The first step raises UsageFault or StoreFault.
    """
    root = Path(os.path.abspath(destination))
    with readable_state(DestinationFolder(root)) as database:
        with database.read() as t:
            held, source = copied_sets(t), fact(t, "url") or ""
        for one in held:
            last = ""
            while True:
                with database.read() as t:
                    files = files_after(t, one.id, last, _CHUNK)
                if not files:
                    break
                last = files[-1].uri
                for file in files:
                    yield CopyRecord(
                        uri=file.uri,
                        path=printable_path(file.path),
                        hash=file.digest,
                        length=file.size,
                        type=file.type,
                        lastmod=from_optional(file.lastmod),
                        links=stated_links(file.links),
                        set_name=one.name,
                        source=source,
                        copy=str(root),
                    )


def _verdict(run: LastRun | None, told: tuple[SetStatus, ...], max_age: float | None, *, can_write: bool) -> int:
    """The gravest of the sets, and what the last run came to nothing by; a run that was interrupted proves nothing.

    Where nothing can be written, a run could not even remember that it has failed. Where all is well, whether all sets
    were without fault within so many seconds.
    """
    statuses = [one.exit_status for one in told] if can_write else [int(Exit.STORE)]
    if run is None or (run.fault is not None and run.exit_status not in (Exit.SOURCE, Exit.STORE)):
        statuses.append(Exit.UNDETERMINED)
    elif run.fault is not None or run.exit_status == Exit.SOURCE:
        statuses.append(run.exit_status)
    ages = [one.sound_age_seconds for one in told]
    late = max_age is not None and any(age is None or age > max_age for age in ages)
    return gravest_status(statuses) or int(Exit.FINDINGS if late else Exit.DONE)


_HISTORY = "SELECT checked_at, sound_at, unsound_since_at, report FROM set_history WHERE set_id = ?"
_HELD = "SELECT count(*), coalesce(sum(max(size, 0)), 0) FROM resources WHERE set_id = ? AND path IS NOT NULL"
_DOOMED = (
    "SELECT uri, path, nullif(doomed_at, 0) FROM resources WHERE set_id = ? AND doomed_at IS NOT NULL"
    " AND path IS NOT NULL ORDER BY path LIMIT ?"
)
_WAITING_UPDATES = (
    "SELECT path FROM failures JOIN resources USING(set_id, uri)"
    " WHERE set_id = ? AND reason = ? AND path IS NOT NULL ORDER BY path LIMIT ?"
)


def _set_status(t: Transaction, row: SetRow, place: tuple[str, str], now: dt.datetime) -> SetStatus:
    checked_at, sound, unsound_since, report = t.one(_HISTORY, (row.id,)) or (None, None, None, None)
    files, octets = t.one(_HELD, (row.id,)) or (0, 0)
    left, refused = unsettled(t, row.id), refused_entries(t, row.id)
    refused_count, held_back = refused.refused + refused.skipped, left.deletions + left.updates
    position = from_optional(row.position.time) if row.position else None
    sound_at, last = from_optional(sound), None if report is None else from_json(report, SetReport)
    doomed = t.rows(_DOOMED, (row.id, _MOST))
    return SetStatus(
        name=row.name,
        folder=row.folder,
        capability_list=row.offer.capability_list,
        base=row.base,
        position=position,
        position_age_seconds=_age(position, now),
        checked_at=from_optional(checked_at),
        sound_at=sound_at,
        sound_age_seconds=_age(sound_at, now),
        unsound_since=from_optional(unsound_since),
        files=files,
        octets=octets,
        failed=left.failed,
        refused=refused_count,
        newer_than_listed=left.unconfirmed,
        held_back=held_back,
        held_updates=left.updates,
        refusals=tuple(what for _, what, _ in refused.sentences),
        failures=_failures(t, row.id),
        deletions=tuple(
            HeldBackDeletion(uri=uri, path=printable_path(path), deleted_at=from_optional(at))
            for uri, path, at in doomed
        ),
        updates=tuple(printable_path(path) for (path,) in t.rows(_WAITING_UPDATES, (row.id, HELD_UPDATE, _MOST))),
        consent=consent_commands(t, row, *place),
        lists_are_cut=max(left.failed, held_back) > _MOST,
        last=last,
        exit_status=_set_verdict(last, left.failed or left.unconfirmed or refused_count, held_back),
    )


def _set_verdict(last: SetReport | None, failed: int, held_back: int) -> int:
    """What a run would end with as things stand: of what was forgotten since the last one nothing counts any more."""
    if last is None:
        return int(Exit.UNDETERMINED)
    if last.exit_status != Exit.TRANSFERS_FAILED:
        return gravest_status([last.exit_status, Exit.TRANSFERS_FAILED if failed else Exit.DONE])
    still = failed or held_back or not (last.failed or last.held_back)
    return int(Exit.TRANSFERS_FAILED if still else Exit.DONE)


def _failures(t: Transaction, set_id: int) -> tuple[FailedResource, ...]:
    query = (
        "SELECT uri, reason, tries, first_at, last_at, wait_until, next_at FROM failures WHERE set_id = ?"
        " AND reason <> ? ORDER BY first_at, uri LIMIT ?"
    )
    return tuple(
        FailedResource(
            uri=uri,
            reason=reason,
            tries=tries,
            since=from_microseconds(first_at),
            last_at=from_microseconds(last_at),
            waits_until=from_optional(wait_until),
            follow_at=from_microseconds(max(next_at, wait_until or 0)),
        )
        for uri, reason, tries, first_at, last_at, wait_until, next_at in t.rows(query, (set_id, HELD_UPDATE, _MOST))
    )


def _age(moment: dt.datetime | None, now: dt.datetime) -> float | None:
    return None if moment is None else round((now - moment).total_seconds(), 3)


def partial_files(destination: Path) -> tuple[int, int]:
    """How many files, and octets of them, are half transferred: what lies below `.headwater/tmp`.

    `.headwater/datasets` beside it has whole states, which stay."""
    files = octets = 0
    for where, _, names in os.walk(destination / FOLDER / "tmp"):
        for name in names:
            try:
                octets += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue  # placed in between
            files += 1
    return files, octets


def is_locked(lock: Path) -> bool | None:
    """Whether another process holds the lock, without trying to take it: a run that begins now must not be hindered."""
    try:
        held = os.stat(lock)
        with open("/proc/locks", encoding="ascii") as file:
            locks = [set(line.split()) for line in file]
    except OSError:
        return None if os.path.lexists(lock) else False
    place = f"{os.major(held.st_dev):02x}:{os.minor(held.st_dev):02x}:{held.st_ino}"
    return any({"FLOCK", "WRITE", place} <= words for words in locks)


# `headwater retry` and `headwater forget`

_MOST_SHOWN = 100
_IS_HELD_BACK = "doomed_at IS NOT NULL AND path IS NOT NULL"


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of what was forgotten: failures, updates and deletions held back, sets, and files that stay unwatched.

    `released` names the first of the files that stay where they are and no longer belong to the copy.
    """

    failures: int = 0
    updates: int = 0
    deletions: int = 0
    sets: tuple[str, ...] = ()
    files: int = 0
    released: tuple[str, ...] = ()


def make_due(t: Transaction, uris: Sequence[str]) -> int:
    """Let the next run try these failures again (all, where none is named), whatever wait was set or asked for.

    Returns how many. Raises UsageFault.
    """
    clear = "UPDATE failures SET next_at = 0, wait_until = NULL"
    if not uris:
        return t.run(clear)
    return sum(_known(uri, t.run(f"{clear} WHERE uri = ?", (uri,))) for uri in dict.fromkeys(uris))


def forget(t: Transaction, uris: Sequence[str], *, failed: bool, held_back: bool) -> Forgotten:
    """Forget failures and deletions held back: those of these URIs, and all that failed or are held back, if wanted.

    No file is removed. A resource whose transfer failed is fetched again when the source lists or changes it the next
    time. A file whose deletion was held back stays where it is and no longer belongs to the copy. Raises UsageFault.
    """
    failing = "SELECT set_id, uri FROM failures"
    kept = f"SELECT set_id, uri FROM resources WHERE {_IS_HELD_BACK}"  # noqa: S608
    of_any_set = "set_id IN (SELECT id FROM sets)"  # by the index, whose first column is the set
    named = f"{failing} WHERE uri = ?1 UNION {kept} AND {of_any_set} AND uri = ?1"
    t.run("CREATE TEMP TABLE meant(set_id INTEGER, uri TEXT, PRIMARY KEY(set_id, uri))")
    for uri in dict.fromkeys(uris):
        _known(uri, t.run(f"INSERT INTO meant {named}", (uri,)))
    held = f"{failing} WHERE reason = '{HELD_UPDATE}'"
    for query in (*([f"{failing} EXCEPT {held}"] if failed else ()), *([kept, held] if held_back else ())):
        t.run(f"INSERT OR IGNORE INTO meant {query}")
    are_meant = "(set_id, uri) IN (SELECT set_id, uri FROM meant)"
    paths = f"SELECT path FROM resources WHERE {are_meant} AND {_IS_HELD_BACK} ORDER BY path LIMIT {_MOST_SHOWN}"  # noqa: S608
    released = tuple(printable_path(path) for (path,) in t.rows(paths))
    t.run(
        f"UPDATE resources SET size = -1, digest = NULL, listed_hash = NULL WHERE {are_meant} AND path IS NOT NULL"  # noqa: S608
        f" AND (set_id, uri) IN ({failing})"
    )  # the file may be damaged: the next comparison must not take it for whole
    updates = t.run(f"DELETE FROM failures WHERE {are_meant} AND reason = '{HELD_UPDATE}'")  # noqa: S608
    failures = t.run(f"DELETE FROM failures WHERE {are_meant}")  # noqa: S608
    files = t.run(
        "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"  # noqa: S608
        " changed_at = coalesce(doomed_at, changed_at, 0), doomed_at = NULL"
        f" WHERE {are_meant} AND {_IS_HELD_BACK}"
    )
    return Forgotten(failures=failures, updates=updates, deletions=files, files=files, released=released)


_OF_A_SET = ("resources", "failures", "documents", "intents", "refusals", "set_history", "listing")


def forget_sets(t: Transaction, gone: Sequence[SetRow]) -> Forgotten:
    """Forget whole sets; their files stay where they are."""
    meant = (msgspec.json.encode([row.id for row in gone]).decode(),)
    of_these = "FROM {} WHERE set_id IN (SELECT value FROM json_each(?))"
    held = f"{of_these.format('resources')} AND path IS NOT NULL"
    paths = t.rows(f"SELECT path {held} ORDER BY path LIMIT {_MOST_SHOWN}", meant)
    released = tuple(printable_path(path) for (path,) in paths)
    files, deletions = t.one(f"SELECT count(*), count(doomed_at) {held}", meant) or (0, 0)
    gone_rows = {table: t.run(f"DELETE {of_these.format(table)}", meant) for table in _OF_A_SET}
    for row in gone:
        t.run("DELETE FROM sets WHERE id = ?", (row.id,))
    t.run("DELETE FROM documents WHERE set_id = 0")  # what the source offers is looked at anew
    sets = tuple(row.name for row in gone)
    return Forgotten(failures=gone_rows["failures"], deletions=deletions, sets=sets, files=files, released=released)


def _known(uri: str, count: int) -> int:
    """How many there are. Raises UsageFault where there is none."""
    if not count:
        what = "the copy remembers no failure and no deletion held back for this path or URI"
        raise UsageFault(what, code="HW-SYN-21", where=uri)
    return count
