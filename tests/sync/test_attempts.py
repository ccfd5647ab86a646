"""Which attempt comes next for a resource, and that an attempt survives being written down."""

import msgspec
import pytest

from headwater.spec.records import Link
from headwater.sync.transfer.work_queue import (
    ADD_WORK,
    FIRST,
    PAST_CACHES,
    Attempt,
    LocAttempt,
    LocPastCachesAttempt,
    MirrorAttempt,
    PlannedFetch,
    Work,
    encode_attempt,
    may_use_mirrors,
    next_attempt,
)

LOC = "http://a.example/r"
MIRRORS = ["http://b.example/r", "http://c.example/r"]


def work(attempt: Attempt = FIRST, *, length: int | None = 5) -> Work:
    return Work(
        uri=LOC,
        loc=LOC,
        lastmod=None,
        length=length,
        hash=None,
        type=None,
        encoding=None,
        links=msgspec.json.encode([Link(rel="duplicate", href=href) for href in MIRRORS]).decode(),
        extra=None,
        path=b"r",
        held=None,
        changed_at=None,
        known_at=None,
        etag=None,
        last_modified=None,
        tries=None,
        n=1,
        reason=None,
        attempt_json=encode_attempt(attempt),
    )


LOC_AFTER_BOTH = LocAttempt(asked=0b11)


@pytest.mark.parametrize(
    ("attempt", "mismatch", "expected"),
    [
        (MirrorAttempt(0), True, MirrorAttempt(1, asked=0b1)),
        (MirrorAttempt(1, asked=0b1), False, LOC_AFTER_BOTH),
        (MirrorAttempt(1), False, LocAttempt(asked=0b10)),
        (LOC_AFTER_BOTH, True, LocPastCachesAttempt(asked=0b11)),
        (LOC_AFTER_BOTH, False, None),
        (LocPastCachesAttempt(asked=0b11), True, None),
        (LocAttempt(asked=0b10), False, MirrorAttempt(0, asked=0b10, is_after_loc=True)),
        (MirrorAttempt(0, asked=0b10, is_after_loc=True), True, None),
        (FIRST, True, PAST_CACHES),
        (FIRST, False, MirrorAttempt(0, is_after_loc=True)),
        (PAST_CACHES, True, MirrorAttempt(0, is_after_loc=True)),
        (MirrorAttempt(0, is_after_loc=True), True, MirrorAttempt(1, asked=0b1, is_after_loc=True)),
    ],
)
def test_mirrors_then_loc_then_past_caches(attempt: Attempt, mismatch: bool, expected: Attempt | None) -> None:
    """DST-S2, DST-5.3: only what came from `loc` and was different is asked for again past all caches."""
    assert next_attempt(work(attempt), mismatch=mismatch, mirrors=True) == expected


def test_mirrors_that_do_not_count() -> None:
    """DST-S2: switched off, or nothing could tell whether they send the resource."""
    assert next_attempt(work(), mismatch=False, mirrors=False) is None
    assert not may_use_mirrors(work(length=None), trusted=False)
    assert may_use_mirrors(work(length=None), trusted=True)
    assert may_use_mirrors(work(), trusted=False)


@pytest.mark.parametrize("attempt", [FIRST, PAST_CACHES, LOC_AFTER_BOTH, MirrorAttempt(1)])
def test_an_attempt_is_read_as_it_was_written(attempt: Attempt) -> None:
    assert work(attempt).attempt == attempt


def test_attempts_ask_where_they_say_into_files_of_their_own() -> None:
    works = [work(attempt) for attempt in (FIRST, PAST_CACHES, MirrorAttempt(0), MirrorAttempt(1))]
    assert [one.target for one in works] == [LOC, LOC, *MIRRORS]
    assert len({one.name for one in works}) == 4


def test_a_planned_fetch_has_a_column_for_each_field() -> None:
    assert ADD_WORK.count("?") == len(PlannedFetch._fields)
    assert all(name in ADD_WORK for name in PlannedFetch._fields)
