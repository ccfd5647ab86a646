"""The choice of resources by the records that describe them, and the order of transfers: a record before its content.

The choice is a rule over values (DST-S5); the order holds however many transfers run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.filters import Choice
from headwater.sync.transfer.result_log import SETTLED_ROUND
from headwater.sync.transfer.work_queue import WAITING_ROUND

_IS_DESCRIBED = "SELECT 1 FROM descriptions WHERE set_id = ? AND content = ? LIMIT 1"
_CONTENTS = """
SELECT d.content, r.path FROM descriptions d
JOIN listing l ON l.set_id = d.set_id AND l.uri = d.content AND NOT l.refused
LEFT JOIN resources r ON r.set_id = d.set_id AND r.uri = d.content
WHERE d.set_id = ? AND d.record = ?"""
"""What a record describes, as far as it is listed itself: a link to something else chooses nothing."""

_RELEASED = "SELECT 1 FROM released WHERE set_id = ? AND uri = ?"


def is_chosen(
    choice: Choice, *, own: bool, is_described: Callable[[], bool], describes_chosen: Callable[[], bool]
) -> bool:
    """Whether a resource is copied.

    `own`: the patterns let it in; `is_described`: some record describes it; `describes_chosen`: it is a record of a
    resource that is chosen for itself. A record of a record is not chosen by this, so that circles choose nothing.
    """
    if own and (not choice.only_described or is_described()):
        return True
    return (own or choice.with_metadata) and describes_chosen()


class DescribedChoice:
    """Asks, within one transaction, what is remembered of the set's links."""

    def __init__(self, t: Transaction, set_id: int, choice: Choice, own: Callable[[str, bytes | None], bool]) -> None:
        """`own`: whether the patterns let a resource in; its path is None where it has none yet."""
        self._t = t
        self._set = set_id
        self._choice = choice
        self._own = own

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether the resource is copied."""
        if self._choice.skips(uri):
            return False
        return is_chosen(
            self._choice,
            own=self._own(uri, path),
            is_described=lambda: self._t.one(_IS_DESCRIBED, (self._set, uri)) is not None,
            describes_chosen=lambda: self._describes_chosen(uri),
        )

    def _describes_chosen(self, uri: str) -> bool:
        return any(self._own(content, path) for content, path in self._t.rows(_CONTENTS, (self._set, uri)))

    def was_taken(self, uri: str) -> bool:
        """Whether this choice has brought what is held, though it does not take it any more."""
        return self._t.one(_RELEASED, (self._set, uri)) is not None


MOST_STAGES = 8
"""So many transfers are made one after another for records of records; what waits still is fetched at once then."""

_RECORD_IN_WORK = """EXISTS (SELECT 1 FROM descriptions d JOIN temp.work o ON o.uri = d.record
WHERE d.set_id = ?1 AND d.content = work.uri AND o.round = {})"""
_AWAITED = f"""EXISTS (SELECT 1 FROM descriptions d JOIN temp.work o ON o.uri = d.content
WHERE d.set_id = ?1 AND d.record = work.uri AND o.round = {WAITING_ROUND})"""  # noqa: S608

_HOLD = f"UPDATE temp.work SET round = {WAITING_ROUND} WHERE round = 0 AND {_RECORD_IN_WORK.format(0)}"  # noqa: S608
_FREE = f"UPDATE temp.work SET round = 0 WHERE round = {WAITING_ROUND}"  # noqa: S608
_NEXT = (f"{_FREE} AND NOT {_RECORD_IN_WORK.format(WAITING_ROUND)}", f"{_FREE} AND {_AWAITED}")
"""What waits for nothing; of a circle, what others wait for."""


def stages(database: Database, set_id: int) -> Iterator[None]:
    """Yields once for each transfer that is to be made: what may not be fetched yet is in no round until then.

    What describes what is in no list is not waited for, nor is a record that is held already or has failed.
    """
    with database.write() as t:
        t.run(_HOLD, (set_id,))
    for stage in range(MOST_STAGES):
        if stage and not _free(database, set_id, all_of_it=stage == MOST_STAGES - 1):
            return
        yield


def _free(database: Database, set_id: int, *, all_of_it: bool) -> bool:
    """Let the next ones be fetched; whether there are any."""
    with database.write() as t:
        t.run(f"UPDATE temp.work SET round = {SETTLED_ROUND} WHERE round >= 0")  # noqa: S608  no round meets it again
        if all_of_it:
            return bool(t.run(_FREE))
        return any(t.run(statement, (set_id,)) for statement in _NEXT)
