"""The order of transfers: a metadata record before what it describes, however many transfers run at a time (DST-S5)."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.storage.database import Database
from headwater.sync.transfer.result_log import SETTLED_ROUND
from headwater.sync.transfer.work_queue import WAITING_ROUND

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
