"""A load of nothing but new resources takes a straight way, and says what the general one says of it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog import batch_planning
from headwater.catalog.batch_planning import PageFill, Place, Places, Put, all_to_microseconds, to_optional
from headwater.catalog.entry_size import LONGEST_URI, weight
from headwater.catalog.faults import Unacceptable
from headwater.catalog.first_load import fast_load
from headwater.catalog.first_load.fast_load import Arrivals, usual_weights
from headwater.catalog.interface import Delete, Event, Limits, Metadata, Upsert
from headwater.spec.records import ChangeKind, Link

T = TypeVar("T")
MD5, SHA_256 = "md5:" + "0a" * 16, "sha-256:" + "f9" * 32
USUAL_URIS = st.integers(0, 50).map(lambda number: f"files/{number}.pdf")
URIS = USUAL_URIS | st.sampled_from(
    ["", "a\nb", "\n", "é", "a&b", "\ud800", "x" * LONGEST_URI, "x" * (LONGEST_URI + 1)]
)
USUAL_HASHES = st.sampled_from([None, MD5, SHA_256, f"{MD5} {SHA_256}"])
HASHES = USUAL_HASHES | st.sampled_from(["", f"{MD5}\n{MD5}", MD5[:-1] + "\0", MD5.upper(), f"{MD5} ", "odd"])
USUAL = st.builds(
    Metadata,
    hash=USUAL_HASHES,
    length=st.none() | st.integers(0, 2**63 - 1),
    type=st.sampled_from([None, "a/b", "a/b; c=é", "application/pdf"]),
)
METADATA = USUAL | st.builds(
    Metadata,
    hash=HASHES,
    length=st.sampled_from([None, 0, -1, 2**63]),
    type=st.sampled_from([None, "a/b", "odd"]),
    encoding=st.sampled_from([None, "gzip"]),
    changefreq=st.sampled_from([None, "daily"]),
    links=st.sampled_from([(), (Link(rel="describedby", href="http://example.org/"),)]),
    extra=st.sampled_from([(), (("{urn:x}y", "1"),)]),
)
ALL_URIS_USUAL = st.lists(st.builds(Upsert, USUAL_URIS, USUAL), max_size=30, unique_by=lambda event: event.uri)
ANYTHING = st.lists(
    st.builds(Upsert, URIS, METADATA, change=st.sampled_from([None, None, ChangeKind.CREATED, ChangeKind.DELETED]))
    | st.builds(Delete, URIS),
    max_size=6,
)
LIMITS = st.builds(Limits, page_entries=st.integers(1, 7), page_octets=st.integers(700, 9_000))


def made(limits: Limits, filled: tuple[int, int] | None) -> Places:
    pages = {} if filled is None else {3: PageFill(3, *filled)}
    return Places(limits, {}, pages, 0 if filled is None else 77)


def tried(work: Callable[[], T]) -> tuple[T | None, tuple[object, ...] | None]:
    """What comes of it, or what it is refused for."""
    try:
        return work(), None
    except Unacceptable as fault:
        return None, (fault.what, fault.where, fault.rule)


def outcome_of(arrivals: Arrivals) -> list[Put]:
    pages = itertools.chain.from_iterable([page] * count for page, count in arrivals.runs)
    slots = itertools.count(arrivals.first_slot)
    rows = zip(arrivals.events, slots, pages, arrivals.weights, strict=False)
    return [Put(event, Place(slot, page, octets), 0) for event, slot, page, octets in rows]


def check_both_ways(events: Sequence[Event], limits: Limits, filled: tuple[int, int] | None) -> None:
    straight, general = made(limits, filled), made(limits, filled)
    arrivals, refused = tried(lambda: fast_load.arrivals(straight, events))
    _, fault = tried(lambda: batch_planning.load(general, events))
    if arrivals is None and refused is None:
        assert len({event.uri for event in events}) < len(events) or any(isinstance(one, Delete) for one in events)
        assert straight.pages == made(limits, filled).pages
        return
    assert refused == fault
    if arrivals is None:
        return
    outcome = general.outcome()
    assert (outcome.gone, outcome.kept) == ([], [])
    assert outcome_of(arrivals) == outcome.fresh
    assert arrivals.uris == [put.event.uri for put in outcome.fresh]
    assert arrivals.metadatas == [put.event.metadata for put in outcome.fresh]
    assert (straight.pages, straight.next_slot, straight.added) == (general.pages, general.next_slot, general.added)


@given(
    events=ALL_URIS_USUAL | ANYTHING,
    limits=LIMITS,
    filled=st.none() | st.tuples(st.integers(0, 7), st.integers(0, 9_000)),
)
def test_both_ways_give_one_answer(events: list[Event], limits: Limits, filled: tuple[int, int] | None) -> None:
    check_both_ways(events, limits, filled)


@pytest.mark.parametrize("filled", [None, (0, 0), (2, 1_500), (3, 2_000), (7, 100)])
@pytest.mark.parametrize("octets", [1_000, 2_000, 2_500, 40_000_000])
def test_pages_are_filled_alike(octets: int, filled: tuple[int, int] | None) -> None:
    events = [Upsert(f"files/{number}", Metadata(hash=MD5 if number % 3 else None)) for number in range(40)]
    check_both_ways(events, Limits(page_entries=7, page_octets=octets), filled)


def test_a_page_takes_one_resource_whatever_the_limits_are() -> None:
    check_both_ways([Upsert("a", Metadata()), Upsert("b", Metadata())], Limits(page_entries=0), None)


NO_ENTRIES = {
    "no URI": Upsert("", Metadata()),
    "deleted": Upsert("b", Metadata(), change=ChangeKind.DELETED),
    "too long": Upsert("x" * (LONGEST_URI + 1), Metadata()),
    "heavier than a page": Upsert("b" * 500, Metadata()),
    "a surrogate": Upsert("\ud800", Metadata()),
    "NUL in a digest": Upsert("b", Metadata(hash=MD5[:-1] + "\0")),
    "no digest": Upsert("b", Metadata(hash="")),
    "a negative length": Upsert("b", Metadata(length=-1)),
    "a length of 64 bits": Upsert("b", Metadata(length=2**63)),
    "no type": Upsert("b", Metadata(type="odd")),
}


@pytest.mark.parametrize("event", NO_ENTRIES.values(), ids=NO_ENTRIES)
def test_what_is_refused_is_refused_alike(event: Upsert) -> None:
    events = [Upsert("a", Metadata(hash=MD5, length=1, type="a/b")), event]
    with pytest.raises(Unacceptable):
        fast_load.arrivals(made(Limits(page_octets=900), None), events)
    check_both_ways(events, Limits(page_octets=900), None)


@pytest.mark.parametrize("uri", ["a\nb", "\n", "a&b", "é"])
@pytest.mark.parametrize("text", [MD5, f"{MD5}\n{MD5}", f"{SHA_256}\n{MD5} {SHA_256}", f"{MD5} ", MD5.upper()])
def test_what_is_unusual_is_weighed_on_its_own(uri: str, text: str) -> None:
    for one in (Upsert(uri, Metadata(hash=MD5)), Upsert("b", Metadata(hash=text)), Upsert(uri, Metadata(hash=text))):
        check_both_ways([Upsert("a", Metadata(hash=SHA_256)), one], Limits(), None)


@pytest.mark.parametrize(
    "events",
    [
        [Delete("a")],
        [Upsert("a", Metadata()), Delete("b")],
        [Upsert("a", Metadata()), Upsert("a", Metadata())],
    ],
)
def test_what_takes_the_general_way(events: list[Event]) -> None:
    assert fast_load.arrivals(made(Limits(), None), events) is None


def test_what_is_held_takes_the_general_way() -> None:
    places = Places(Limits(), {"a": Place(0, 0, 500)}, {0: PageFill(0, 1, 500)}, 1)
    assert fast_load.arrivals(places, [Upsert("b", Metadata())]) is None


@given(st.lists(st.tuples(USUAL_URIS, USUAL), max_size=20) | st.lists(st.tuples(URIS, METADATA), max_size=3))
def test_weights_of_columns(rows: list[tuple[str, Metadata]]) -> None:
    found = usual_weights([uri for uri, _ in rows], [metadata for _, metadata in rows])
    try:
        expected = [weight(uri, metadata) for uri, metadata in rows]
    except Unacceptable:
        assert found is None
    else:
        assert found in (None, expected)


def test_usual_weights_are_found_by_column() -> None:
    uris = ["a", "b/c?d=e", "x" * LONGEST_URI]
    rows = [Metadata(), Metadata(hash=MD5, length=0, type="a/b; c=é"), Metadata(hash=f"{MD5} {SHA_256}")]
    assert usual_weights(uris, rows) == [weight(uri, one) for uri, one in zip(uris, rows, strict=True)]


def test_times_by_column() -> None:
    moments = [None, dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    assert all_to_microseconds(moments) == [to_optional(moment) for moment in moments]
    with pytest.raises(Unacceptable):
        all_to_microseconds([dt.datetime(2026, 1, 1)])
