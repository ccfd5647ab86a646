"""The verdict of an audit on a set, on its triplestores and on a copy: one table each (DST-Q, DST-S12)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headwater.sync.audit.verdicts import judge_copy, judge_set, judge_stores
from headwater.sync.reports import (
    DIFFERENT,
    IN_SYNC,
    MISSING,
    NOT_IN_SYNC,
    SAME,
    UNDETERMINED,
    UNREADABLE,
    AuditReport,
    SetAudit,
    StoreAudit,
)

DOUBT = ["the list kept changing"]


def judged(counts: dict[str, Any], doubts: list[str] | None = None) -> tuple[str, str | None]:
    result = SetAudit(name="set", folder="", **counts)
    judge_set(result, doubts or [])
    return result.verdict, result.reason


@pytest.mark.parametrize(
    ("counts", "verdict", "reason"),
    [
        ({"same": 3}, IN_SYNC, None),
        ({"same": 3, "left_out": 2}, IN_SYNC, None),
        ({"left_out": 2}, IN_SYNC, "the filters leave out all that is listed"),
        ({"same": 3, "unverifiable": 1}, IN_SYNC, "1 unverifiable"),
        ({"unverifiable": 2}, UNDETERMINED, "no file can be compared"),
        ({"unverifiable": 2, "left_out": 1}, UNDETERMINED, "no file can be compared"),
        ({"same": 3, "missing": 1}, NOT_IN_SYNC, None),
        ({"same": 3, "different": 1}, NOT_IN_SYNC, None),
        ({"same": 3, "extra": 1}, NOT_IN_SYNC, None),
        ({"same": 3, "extra": 1, "refused": 1}, UNDETERMINED, "it is uncertain whether all is as listed: 1 refused"),
        ({"same": 3, "extra": 1, "skipped": 2}, UNDETERMINED, "it is uncertain whether all is as listed: 2 skipped"),
        ({"same": 3, "missing": 1, "refused": 1}, NOT_IN_SYNC, None),
        (
            {"same": 3, "refused": 1, "skipped": 2},
            UNDETERMINED,
            "it is uncertain whether all is as listed: 1 refused, 2 skipped",
        ),
        ({"same": 3, "unreadable": 1}, UNDETERMINED, "it is uncertain whether all is as listed: 1 unreadable"),
        ({"same": 3, "contradicted": 1}, UNDETERMINED, "it is uncertain whether all is as listed: 1 contradicted"),
        ({"same": 3, "told_no_more": 1}, UNDETERMINED, "it is uncertain whether all is as listed: 1 told no more"),
        ({"same": 3, "changed_during_audit": 1}, UNDETERMINED, "the source changed during the audit"),
        ({"same": 3, "changed_during_audit": 1, "different": 1}, NOT_IN_SYNC, None),
        ({"same": 3, "unreadable": 1, "extra": 1}, NOT_IN_SYNC, None),
    ],
)
def test_the_verdict_on_a_set(counts: dict[str, Any], verdict: str, reason: str | None) -> None:
    found, why = judged(counts)
    assert found == verdict
    assert why == reason if reason is None else why is not None and why.startswith(reason)
    assert judged(counts, DOUBT) == (UNDETERMINED, DOUBT[0]), "doubt counts before whatever was found"


@pytest.mark.parametrize(
    ("stores", "before", "after"),
    [
        ((), IN_SYNC, IN_SYNC),
        ((SAME,), IN_SYNC, IN_SYNC),
        ((SAME, DIFFERENT), IN_SYNC, NOT_IN_SYNC),
        ((MISSING,), UNDETERMINED, NOT_IN_SYNC),
        ((UNREADABLE,), IN_SYNC, UNDETERMINED),
        ((UNREADABLE,), NOT_IN_SYNC, NOT_IN_SYNC),
        ((UNREADABLE, DIFFERENT), IN_SYNC, NOT_IN_SYNC),
    ],
)
def test_triplestores_count_as_files_do(stores: tuple[str, ...], before: str, after: str) -> None:
    result = SetAudit(name="set", folder="", verdict=before)
    result.stores = [StoreAudit(store="stores/set", verdict=one) for one in stores]
    judge_stores(result)
    assert result.verdict == after
    assert (result.reason == "a triplestore cannot be read") == (before != after == UNDETERMINED)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "verdicts", [one for n in range(3) for one in itertools.product((IN_SYNC, NOT_IN_SYNC, UNDETERMINED), repeat=n)]
)
def test_a_copy_is_in_sync_where_all_is_known_and_all_sets_are(verdicts: tuple[str, ...], whole: bool) -> None:
    """A finding is certain whatever else is in doubt; of no set at all nothing is known."""
    report = AuditReport(source="http://source.example/", destination="copy")
    report.sets = [SetAudit(name="set", folder="", verdict=one) for one in verdicts]
    judge_copy(report, whole=whole)
    certain = NOT_IN_SYNC in verdicts
    doubtful = not whole or not verdicts or UNDETERMINED in verdicts
    expected = (NOT_IN_SYNC, 1) if certain else (UNDETERMINED, 5) if doubtful else (IN_SYNC, 0)
    assert (report.verdict, report.exit_status) == expected
