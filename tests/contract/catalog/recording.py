"""The contract of events: what they do to resources and to the log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import (
    Accepted,
    Catalog,
    Delete,
    Event,
    Metadata,
    Moved,
    Rendered,
    Unacceptable,
    Upsert,
)
from headwater.catalog.page_filling import weight
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import Coarse, parse_datetime
from tests.contract.catalog.cases import (
    BARE,
    BIG,
    HEAVY,
    HREF,
    METADATA,
    NAIVE,
    RECORDED,
    REFUSED,
    SMALL,
    START,
    D,
    at,
    opened,
    table,
    up,
)
from tests.contract.catalog.model import observed

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow]
"""Each backend runs the test in a class of its own, and each example makes a set of its own."""


class RecordingContract:
    """The contract of events: what they do to resources and to the log."""

    @table(RECORDED)
    def test_record_says_what_happened(
        self, catalog: Catalog, case: tuple[list[Event], list[Event], list[tuple[str, ChangeKind]], list[str]]
    ) -> None:
        loaded, events, logged, ignored = case
        opened(catalog, loaded)
        accepted = catalog.record("s", events, at(5))
        assert accepted == Accepted(1 if logged else 0, len(logged), tuple(ignored))
        changes = catalog.changes("s")
        assert [(change.uri, change.change) for change in changes] == logged
        assert [change.seq for change in changes] == list(range(1, len(logged) + 1))
        assert [change.at for change in changes] == [at(5 + n) for n in range(len(logged))]  # AMB-20
        live = {event.uri for event in loaded}
        for uri, change in logged:
            live = live - {uri} if change is D else live | {uri}
        assert {resource.uri for resource in catalog.resources("s")} == live
        assert catalog.state("s").count == len(live)
        assert verify(catalog, "s") == []

    def test_a_deletion_keeps_no_hash_length_or_type_amb_34(self, catalog: Catalog) -> None:
        full = METADATA[1][1]
        opened(catalog, [up("a", full)])
        catalog.record("s", [up("a", full), Delete("a")], at(1))
        assert [change.metadata for change in catalog.changes("s")] == [full, BARE]

    def test_the_last_event_of_a_batch_wins(self, catalog: Catalog) -> None:
        opened(catalog)
        catalog.record("s", [Upsert("a", BARE, b"1"), Upsert("a", HEAVY, b"2"), Upsert("b", BIG, b"3")], at(1))
        found = catalog.get("s", ["a", "b"])
        assert (found["a"].metadata, found["a"].memo, found["a"].seq) == (HEAVY, b"2", 2)
        assert (found["b"].metadata, found["b"].memo, found["b"].seq) == (BIG, b"3", 3)

    def test_numbers_go_on_without_gaps_and_times_never_go_back_amb_20(self, catalog: Catalog) -> None:
        opened(catalog)
        for n, now in enumerate([at(10), at(3), at(3), START - dt.timedelta(days=400), at(11), at(1000)]):
            assert catalog.record("s", [Delete("nothing")], now) == Accepted(0, 0, ("nothing",))
            assert catalog.record("s", [up("a"), up("b")], now) == Accepted(2 * n + 1, 2 * n + 2)
        times = [change.at for change in catalog.changes("s")]
        assert times == [at(t) for t in (10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 1000, 1001)]
        assert catalog.state("s").last_at == times[-1]

    def test_an_event_has_its_own_time_where_that_leaves_the_order(self, catalog: Catalog) -> None:
        """Never later than `now`, never before what was recorded or marked (AMB-20, DIT-A3)."""
        opened(catalog)
        events: list[Event] = [Upsert("a", BARE, at=at(3)), Upsert("b", BARE, at=at(7)), Upsert("a", BARE, at=at(5))]
        catalog.record("s", [*events, up("b"), Delete("nothing", at(2)), Delete("a", at(99))], at(50))
        assert [one.at for one in catalog.changes("s")] == [at(t) for t in (3, 7, 8, 50, 51)]
        assert catalog.mark("s", at(60)) == at(60)
        catalog.record("s", [Upsert("a", BARE, at=at(55)), Upsert("a", BARE, at=START - dt.timedelta(days=9))], at(70))
        assert [one.at for one in catalog.changes("s", 5)] == [at(61), at(62)]
        assert verify(catalog, "s") == []

    @pytest.mark.parametrize("phase", ["load", "record"])
    @table(REFUSED)
    def test_what_cannot_be_held_is_refused_with_the_whole_batch(
        self, small: Catalog, phase: str, case: tuple[Event]
    ) -> None:
        small.create("s")
        small.load("s", [up("b")])
        if phase == "record":
            small.open("s", START)
        before = observed(small, "s")
        batch: list[Event] = [up("b", HEAVY), up("c"), Delete("b"), case[0], up("d")]
        with pytest.raises(Unacceptable):
            small.load("s", batch) if phase == "load" else small.record("s", batch, at(1))
        assert observed(small, "s") == before
        assert verify(small, "s") == []

    @table(NAIVE)
    def test_times_have_a_zone(self, catalog: Catalog, case: tuple[Callable[[Catalog, dt.datetime], object]]) -> None:
        opened(catalog, [up("a")])
        before = observed(catalog, "s")
        with pytest.raises(Unacceptable):
            case[0](catalog, dt.datetime(2026, 1, 1))
        assert observed(catalog, "s") == before

    @table(METADATA)
    def test_metadata_comes_back(self, catalog: Catalog, case: tuple[Metadata]) -> None:
        opened(catalog, [up("loaded", case[0])])
        catalog.record("s", [up("recorded", case[0])], at(1))
        found = catalog.get("s", ["loaded", "recorded"])
        assert [found[uri].metadata for uri in ("loaded", "recorded")] == [case[0], case[0]]
        assert [r.metadata for r in catalog.page("s", 0)] == [case[0], case[0]]
        assert catalog.changes("s")[0].metadata == case[0]
        lastmod = found["loaded"].metadata.lastmod
        assert lastmod is None or lastmod.utcoffset() == dt.timedelta()

    def test_a_coarse_time_becomes_its_start(self, catalog: Catalog) -> None:
        coarse, _ = parse_datetime("2026-03")
        opened(catalog, [up("a", Metadata(lastmod=coarse, links=(Link(rel="up", href=HREF, modified=coarse),)))])
        metadata = catalog.get("s", ["a"])["a"].metadata
        assert isinstance(coarse, Coarse)
        assert metadata.lastmod == metadata.links[0].modified == coarse
        assert type(metadata.lastmod) is type(metadata.links[0].modified) is dt.datetime

    @settings(max_examples=30, deadline=None, suppress_health_check=SHARED)
    @given(
        texts=st.lists(
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1), max_size=5
        )
    )
    def test_any_text_without_controls_is_a_uri(self, catalog: Catalog, texts: list[str]) -> None:
        name = f"s{len(catalog.sets())}"
        opened(catalog, [Upsert(text, BARE, text.encode()) for text in texts], name)
        assert {uri: r.memo for uri, r in catalog.get(name, texts).items()} == {text: text.encode() for text in texts}
        listed = [resource.uri for resource in catalog.resources(name)]
        assert listed == sorted(set(texts), key=str.encode)

    def test_a_batch_for_a_state_that_is_past_is_refused_as_a_whole(self, catalog: Catalog) -> None:
        """What is decided by what the set holds must not be recorded when that has changed meanwhile."""
        opened(catalog, [up("a")])
        seen = catalog.state("s")
        assert catalog.record("s", [up("b")], at(1), after=seen) == Accepted(1, 1)
        before = observed(catalog, "s")
        refused: list[list[Event]] = [[up("c"), Delete("a")], [Delete("nothing")], []]
        for events in refused:
            with pytest.raises(Moved):
                catalog.record("s", events, at(2), after=seen)
        assert observed(catalog, "s") == before
        seen = catalog.state("s")
        catalog.mark("s", at(7))  # none of these is a change
        catalog.close_segment("s", at(8))
        catalog.note("s", b"note")
        catalog.remember("s", [("a", b"memo")])
        catalog.rendered("s", [Rendered(0, 1, at(9), at(9))])
        assert catalog.record("s", [Delete("nothing")], at(9), after=seen) == Accepted(0, 0, ("nothing",))
        assert catalog.record("s", [up("c")], at(9), after=seen) == Accepted(2, 2)
        assert verify(catalog, "s") == []

    def test_mark_draws_a_line(self, catalog: Catalog) -> None:
        opened(catalog)
        assert catalog.mark("s", at(5)) == at(5)
        assert catalog.mark("s", at(3)) == at(5)
        assert catalog.state("s").last_at == at(5)
        catalog.record("s", [up("a")], at(4))
        assert catalog.changes("s")[0].at == at(6)
        assert catalog.mark("s", at(6)) == at(6)
        catalog.record("s", [up("a")], at(6))
        assert catalog.changes("s")[1].at == at(7)

    def test_a_mark_before_the_set_is_open_holds(self, catalog: Catalog) -> None:
        catalog.create("s")
        assert catalog.mark("s", at(5)) == at(5)
        assert catalog.open("s", START).last_at == at(5)
        assert catalog.segments("s")[0].from_ == START
        catalog.record("s", [up("a")], START)
        assert catalog.changes("s")[0].at == at(6)

    def test_a_full_segment_closes_when_the_next_change_comes(self, small: Catalog) -> None:
        opened(small)
        small.record("s", [up("a")] * 5, at(1))
        assert [(s.first, s.last, s.until) for s in small.segments("s")] == [(1, 5, None)]
        small.record("s", [up("a")], at(1))
        first, second = small.segments("s")
        assert (first.first, first.last, second.number, second.first, second.last) == (1, 5, 1, 6, 6)
        assert first.until == second.from_ == at(6)  # one microsecond after change 5, AMB-11
        assert small.changes("s")[5].at == at(7)

    def test_segments_close_by_octets(self, small: Catalog) -> None:
        opened(small)
        small.record("s", [up("a", BIG)] * 3 + [up("b")], at(1))
        segments = small.segments("s")
        assert [(s.first, s.last) for s in segments] == [(1, 1), (2, 2), (3, 4)]
        assert segments[2].weight == weight("a", BIG) + weight("b", BARE)

    @pytest.mark.parametrize("size", [1, 3, 64])
    def test_segments_tile_the_log_amb_11_amb_23(self, small: Catalog, size: int) -> None:
        opened(small)
        for n in range(0, 64, size):
            small.record("s", [up(f"r{m % 7}", HEAVY if m % 9 == 0 else BARE) for m in range(n, n + size)], at(n // 10))
        segments, changes = small.segments("s"), small.changes("s")
        assert len(segments) > 12
        for segment in segments:
            inside = [change for change in changes if segment.first <= change.seq <= segment.last]
            assert len(inside) <= SMALL.segment_entries
            assert segment.weight == sum(weight(change.uri, change.metadata) for change in inside)
            assert segment.weight <= SMALL.segment_octets
            assert all(segment.from_ < change.at for change in inside)
            assert all(segment.until is None or change.at < segment.until for change in inside)
        assert verify(small, "s") == []

    def test_close_segment(self, catalog: Catalog) -> None:
        opened(catalog)
        catalog.record("s", [up("a"), up("a")], at(5))
        closed = catalog.close_segment("s", at(4))
        assert (closed.number, closed.first, closed.last, closed.from_, closed.until) == (0, 1, 2, START, at(7))
        assert catalog.segments("s")[0] == closed
        assert catalog.state("s").last_at == at(7)
        empty = catalog.close_segment("s", at(100))
        assert (empty.number, empty.first, empty.last, empty.from_, empty.until) == (1, 3, 2, at(7), at(100))
        assert empty.weight == 0
        catalog.record("s", [up("a")], at(50))
        assert catalog.changes("s", after=2)[0].at == at(101)
        assert [(s.first, s.last) for s in catalog.segments("s")] == [(1, 2), (3, 2), (3, 3)]
        assert verify(catalog, "s") == []

    def test_changes_are_read_in_batches(self, small: Catalog) -> None:
        opened(small)
        small.record("s", [up(f"r{n}") for n in range(23)], at(1))
        for after, limit, seqs in [
            (0, 5, range(1, 6)),
            (20, 9, range(21, 24)),
            (23, 9, []),
            (99, 9, []),
            (0, 0, []),
            (3, -1, []),
        ]:
            assert [change.seq for change in small.changes("s", after, limit)] == list(seqs)
        assert len(small.changes("s")) == 23
