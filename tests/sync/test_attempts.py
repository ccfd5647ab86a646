"""Which attempt comes next for a resource, and that an attempt survives being written down."""

import msgspec
import pytest

from headwater.spec.records import Link
from headwater.sync.transfer.work_queue import (
    ADD_WORK,
    FIRST,
    PAST_CACHES,
    Attempt,
    MirrorAttempt,
    PlannedFetch,
    Work,
    encode_attempt,
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


@pytest.mark.parametrize(
    ("attempt", "mismatch", "expected"),
    [
        (FIRST, True, PAST_CACHES),
        (FIRST, False, MirrorAttempt(0)),
        (PAST_CACHES, True, MirrorAttempt(0)),
        (MirrorAttempt(0), True, MirrorAttempt(1)),
        (MirrorAttempt(1), False, None),
    ],
)
def test_loc_then_past_caches_then_the_mirrors(attempt: Attempt, mismatch: bool, expected: Attempt | None) -> None:
    """DST-5.3, DST-S2: only what came and was different is asked for again past all caches."""
    assert next_attempt(work(attempt), set(), mismatch=mismatch) == expected


def test_a_mirror_that_sent_something_else_is_passed_over() -> None:
    """DST-F11: for the rest of the run."""
    assert next_attempt(work(PAST_CACHES), {"http://b.example"}, mismatch=True) == MirrorAttempt(1)


def test_without_hash_and_length_no_mirror_is_asked() -> None:
    """DST-S2: nothing could tell whether it sends the resource."""
    assert next_attempt(work(length=None), set(), mismatch=False) is None


@pytest.mark.parametrize("attempt", [FIRST, PAST_CACHES, MirrorAttempt(1)])
def test_an_attempt_is_read_as_it_was_written(attempt: Attempt) -> None:
    assert work(attempt).attempt == attempt


def test_attempts_ask_where_they_say_into_files_of_their_own() -> None:
    works = [work(attempt) for attempt in (FIRST, PAST_CACHES, MirrorAttempt(0), MirrorAttempt(1))]
    assert [one.target for one in works] == [LOC, LOC, *MIRRORS]
    assert len({one.name for one in works}) == 4


def test_a_planned_fetch_has_a_column_for_each_field() -> None:
    assert ADD_WORK.count("?") == len(PlannedFetch._fields)
    assert all(name in ADD_WORK for name in PlannedFetch._fields)
