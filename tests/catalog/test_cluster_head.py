"""What the head of a set says of revisions, leases and snapshot: plain values, without an engine."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headwater.catalog.cluster.documents import short, to_json
from headwater.catalog.cluster.head import (
    STAMPS,
    TERM_BITS,
    SetHead,
    Tail,
    closed,
    marked,
    opened,
    overtaken,
    stamped,
    valid,
)
from headwater.catalog.cluster.writer import Writer
from headwater.catalog.interface import Limits, WrongPhase
from headwater.catalog.lease import HeldBy
from headwater.progress import silent

HEAD = SetHead(resource_set="s", stamps=("0",))
LEASE = HeldBy("other", 10.0)
TAIL = Tail(rev=1, count=3, first=1, journal=False)
STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "lose"]), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=30
)


@given(STEPS)
def test_a_revision_is_valid_exactly_when_it_was_committed(steps: list[tuple[str, int, int]]) -> None:
    head = HEAD
    committed: set[int] = set()
    sent: set[int] = set()
    for what, count, more in steps:
        revs = range(head.rev + 1, head.rev + 1 + count)
        sent |= set(revs)
        if what == "commit":
            committed |= set(revs)
            head = replace(head, rev=revs[-1])
        else:
            sent |= set(range(revs[-1] + 1, revs[-1] + 1 + more))  # a writer that does not know it yet
            head = overtaken(head)
        assert {rev for rev in sent if valid(head, rev)} == committed
    assert not valid(head, head.rev + 1)


@given(st.integers(0, (1 << TERM_BITS) * 5), st.integers(1, 1 << TERM_BITS))
def test_whoever_was_overtaken_has_no_valid_revision_left(rev: int, ahead: int) -> None:
    after = overtaken(replace(HEAD, rev=rev))
    assert valid(after, rev)
    assert not valid(after, rev + ahead)
    assert valid(replace(after, rev=after.rev + 1), after.rev + 1)


def test_taking_over_again_and_again_takes_no_room_and_forgets_nothing() -> None:
    """What cannot be applied is tried for as long as the index is read-only."""
    first = overtaken(replace(HEAD, rev=5))
    committed = replace(first, rev=first.rev + 2)
    head = overtaken(committed)
    sent = [head.rev + 1]
    for _ in range(100):
        head = overtaken(head)
        sent.append(head.rev + 1)
    assert len(head.dead) == 2
    assert [rev for rev in (5, 6, first.rev + 1, committed.rev, committed.rev + 1, *sent) if valid(head, rev)] == [
        5,
        first.rev + 1,
        committed.rev,
    ]


def test_no_two_heads_have_the_same_last_stamp_and_the_newest_are_kept() -> None:
    head = HEAD
    for number in range(1, 3 * STAMPS):
        head = stamped(head, str(number))
    assert head.stamps == tuple(str(number) for number in range(2 * STAMPS, 3 * STAMPS))


def test_who_writes_a_thousand_times_has_nobody_else_forgotten() -> None:
    head = stamped(stamped(HEAD, "one.7"), "two.1")
    for number in range(1_000):
        head = stamped(head, f"three.{number}")
    assert head.stamps == ("0", "one.7", "two.1", "three.999")
    assert stamped(head, "one.8").stamps == ("0", "two.1", "three.999", "one.8")


def test_a_head_is_what_it_was_after_a_round_trip() -> None:
    head = opened(replace(HEAD, notes=b"\0\xff", lease=LEASE, tail=TAIL, dead=((3, 1 << 33),)), 5)
    assert msgspec.json.decode(to_json(head), type=SetHead) == head
    assert opened(head, 9) is head
    assert marked(head, 3).last_us == 5
    assert [(run.first, run.until_us) for run in closed(head, 7, Limits()).runs] == [(1, 7), (1, None)]
    with pytest.raises(WrongPhase):
        closed(HEAD, 7, Limits())


def test_names_of_documents_are_short_whatever_they_name() -> None:
    names = [short("s"), short("s", "a"), short("t", "a"), short("s" * 10_000, "é" * 5_000), short("sa")]
    assert {len(name) for name in names} == {27}
    assert len(set(names)) == len(names)


def a_writer() -> Writer:
    """One that only judges."""
    return Writer(None, lease_seconds=30, busy_seconds=60, listener=silent)  # type: ignore[arg-type]


ME, OTHER = "me", "other"
HELD = replace(HEAD, lease=LEASE)
LOOKS: list[tuple[str, list[tuple[SetHead, tuple[int, int], float]], int | None]] = [
    ("nobody", [(HEAD, (1, 1), 0)], None),
    ("nobody, but work is left", [(replace(HEAD, tail=TAIL), (1, 1), 0)], None),
    ("first seen just now", [(HELD, (1, 1), 1000)], 0),
    ("some time ago", [(HELD, (1, 1), 1000), (HELD, (1, 1), 1009)], 9),
    ("silent for as long as it said", [(HELD, (1, 1), 1000), (HELD, (1, 1), 1010)], None),
    ("it has beaten since", [(HELD, (1, 1), 0), (HELD, (2, 1), 9), (HELD, (2, 1), 11)], 2),
    (
        "another primary counts as a beat",
        [(HELD, (1, 1), 0), (HELD, (1, 2), 9), (HELD, (1, 2), 11)],
        2,
    ),
    ("our own, left behind", [(replace(HEAD, lease=HeldBy(ME, 10)), (1, 1), 0)], None),
]


@pytest.mark.parametrize(("looks", "said"), [row[1:] for row in LOOKS], ids=[row[0] for row in LOOKS])
def test_who_waits_judges_by_its_own_clock(
    looks: list[tuple[SetHead, tuple[int, int], float]], said: int | None
) -> None:
    writer = a_writer()
    writer.token = ME
    assert [writer.silence("s", *look) for look in looks][-1] == said


def test_who_has_been_silent_for_long_enough_is_not_waited_for_anew() -> None:
    """Whoever only looks, while it waits for something else, has waited as well: also when it looks once too often."""
    writer = a_writer()
    looks = [(HELD, (1, 1), 0), (HELD, (1, 1), 9), (HELD, (1, 1), 10), (HELD, (1, 1), 10.1)]
    assert [writer.silence("s", *look) is not None for look in looks] == [True, True, False, False]
    assert writer.silence("s", HELD, (2, 1), 11) == 0
    assert writer.silence("t", HELD, (2, 1), 11) == 0
    assert writer.silence("s", HEAD, (3, 1), 12) is None
    assert writer.silence("s", HELD, (3, 1), 13) == 0
