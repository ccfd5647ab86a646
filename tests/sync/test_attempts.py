"""Which attempts are made at a resource, in which order, and that they survive being written down."""

import msgspec
import pytest

from headwater.spec.records import Link
from headwater.sync.transfer.work_queue import (
    ADD_WORK,
    FIRST,
    PAST_CACHES,
    Attempt,
    MirrorAttempt,
    Work,
    attempts_after,
    attempts_with_mirrors,
    encode_attempts,
)

LOC = "http://a.example/r"
MIRRORS = ["http://b.example/r", "http://c.example/r"]


def work(*attempts: Attempt, length: int | None = 5) -> Work:
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
        attempt_json=encode_attempts(attempts),
    )


FIRST_MIRROR, SECOND_MIRROR = map(MirrorAttempt, MIRRORS)


@pytest.mark.parametrize(
    ("attempts", "mismatch", "expected"),
    [
        ((FIRST_MIRROR, SECOND_MIRROR, FIRST), True, (SECOND_MIRROR, FIRST)),
        ((SECOND_MIRROR, FIRST), False, (FIRST,)),
        ((FIRST,), True, (PAST_CACHES,)),
        ((FIRST,), False, ()),
        ((PAST_CACHES,), True, ()),
        ((FIRST, FIRST_MIRROR), True, (PAST_CACHES, FIRST_MIRROR)),
        ((FIRST, FIRST_MIRROR), False, (FIRST_MIRROR,)),
        ((PAST_CACHES, FIRST_MIRROR), True, (FIRST_MIRROR,)),
    ],
)
def test_only_loc_is_asked_past_all_caches(
    attempts: tuple[Attempt, ...], mismatch: bool, expected: tuple[Attempt, ...]
) -> None:
    """DST-5.3: where something else came from it; an attempt that has brought nothing is made once."""
    assert attempts_after(work(*attempts), mismatch=mismatch) == expected


def test_mirrors_come_before_what_they_mirror() -> None:
    """DST-S2; but `loc` comes first where it may say that nothing has changed."""
    assert attempts_with_mirrors(work(), trusted=False) == (FIRST_MIRROR, SECOND_MIRROR, FIRST)
    held = msgspec.structs.replace(work(), etag='"1"')
    assert attempts_with_mirrors(held, trusted=False) == (FIRST, FIRST_MIRROR, SECOND_MIRROR)


def test_mirrors_that_do_not_count() -> None:
    """DST-S2: nothing could tell whether they send the resource."""
    assert attempts_with_mirrors(work(length=None), trusted=False) == (FIRST,)
    assert attempts_with_mirrors(work(length=None), trusted=True) == (FIRST_MIRROR, SECOND_MIRROR, FIRST)


def test_attempts_are_read_as_they_were_written() -> None:
    attempts = (FIRST_MIRROR, FIRST, PAST_CACHES)
    assert work(*attempts).attempts == attempts
    assert [work(one).target for one in attempts] == [MIRRORS[0], LOC, LOC]
    assert work().attempts == (FIRST,)


def test_a_planned_fetch_has_a_value_for_each_column() -> None:
    row = work().planned(b"r", None, changed_at=None, known_at=None, tries=None, attempts=(FIRST_MIRROR,))
    assert ADD_WORK.count("?") == len(row)
    assert row[-1] == encode_attempts((FIRST_MIRROR,))
