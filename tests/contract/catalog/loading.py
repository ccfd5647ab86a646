"""The contract of sets and of their first load."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.catalog.interface import (
    Accepted,
    Catalog,
    Delete,
    Event,
    Limits,
    Unacceptable,
    UnknownSet,
    Upsert,
    WrongPhase,
)
from headwater.catalog.verify import verify
from tests.contract.catalog.cases import (
    BARE,
    BIG,
    HEAVY,
    START,
    UNKNOWN,
    at,
    opened,
    table,
    up,
)
from tests.contract.catalog.model import observed


class LoadingContract:
    """The contract of sets and of their first load."""

    def test_a_fresh_catalog_has_no_sets_and_the_limits_of_the_standard(self, catalog: Catalog) -> None:
        assert catalog.sets() == []
        assert catalog.limits == Limits()
        assert catalog.limits.page_entries <= 50_000  # RS-LIM-01, RS-LIM-02
        assert max(catalog.limits.page_octets, catalog.limits.segment_octets) < 52_428_800

    def test_create_makes_a_loading_set_once(self, catalog: Catalog) -> None:
        state = catalog.create("s")
        assert (state.name, state.opened_at, state.last_seq, state.last_at) == ("s", None, 0, None)
        assert (state.count, state.page_count, state.notes) == (0, 0, b"")
        catalog.load("s", [up("a")])
        assert catalog.create("s") == catalog.state("s")
        assert catalog.state("s").count == 1

    def test_a_set_that_has_moved_goes_on_counting(self, small: Catalog) -> None:
        assert small.create("s", last_seq=7).last_seq == 7
        small.load("s", [Upsert("a", BARE, seq=3), *(up(f"r{n}") for n in range(4))])
        small.mark("s", at(9))
        assert verify(small, "s") == []
        small.open("s", at(5))
        assert small.changes("s") == []
        assert [(one.first, one.last) for one in small.segments("s")] == [(8, 7)]
        assert (small.get("s", ["a"])["a"].seq, small.get("s", ["r1"])["r1"].seq) == (3, 0)
        assert small.record("s", [up("a"), Delete("r1")], at(1)) == Accepted(8, 9)
        assert [(one.seq, one.at) for one in small.changes("s")] == [(8, at(10)), (9, at(11))]
        assert [one.seq for one in small.changes("s", 3, 1)] == [8]
        assert [one.seq for one in small.changes("s", 8)] == [9]
        assert verify(small, "s") == []
        assert small.create("s", last_seq=99) == small.state("s")

    def test_sets_are_listed_by_name(self, catalog: Catalog) -> None:
        for name in ("b", "é", "a", "B", "\U0001f600", "\uffee"):
            catalog.create(name)
        assert [state.name for state in catalog.sets()] == ["B", "a", "b", "é", "\uffee", "\U0001f600"]
        assert catalog.sets()[0] == catalog.state("B")

    @pytest.mark.parametrize("name", ["", "\udcff"])
    def test_a_set_has_a_name(self, catalog: Catalog, name: str) -> None:
        with pytest.raises(Unacceptable):
            catalog.create(name)

    @table(UNKNOWN)
    def test_unknown_sets_are_named(self, catalog: Catalog, case: tuple[Callable[[Catalog], object]]) -> None:
        with pytest.raises(UnknownSet):
            case[0](catalog)

    def test_sets_do_not_touch_each_other(self, small: Catalog) -> None:
        for name in ("one", "two", "three"):
            opened(small, [up("a"), up(name)], name)
        before = observed(small, "one"), observed(small, "three")
        small.record("two", [up(f"r{n}", HEAVY) for n in range(20)] + [Delete("a")], at(5))
        small.note("two", b"n")
        small.close_segment("two", at(6))
        assert (observed(small, "one"), observed(small, "three")) == before
        assert set(small.get("one", ["a", "one", "two", "r1"])) == {"a", "one"}

    def test_load_fills_without_changes(self, small: Catalog) -> None:
        small.create("s")
        assert small.load("s", [up(f"r{n}") for n in range(5)]) == 5
        assert small.load("s", [Delete("r0"), Delete("nothing"), up("r1", BIG), up("r9"), up("r9")]) == 5
        assert small.changes("s") == []
        assert small.segments("s") == []
        state = small.state("s")
        assert (state.last_seq, state.count, state.opened_at) == (0, 5, None)
        assert {r.seq for r in small.resources("s")} == {0}
        assert verify(small, "s") == []

    def test_load_is_idempotent(self, small: Catalog) -> None:
        small.create("s")
        events: list[Event] = [up("b", HEAVY), up("a"), Delete("c"), up("d"), up("e"), up("f")]
        assert small.load("s", events) == 5
        before = observed(small, "s")
        assert small.load("s", events) == 5
        after = observed(small, "s")
        assert [after[key] for key in ("state", "on", "resources")] == [
            before[key] for key in ("state", "on", "resources")
        ]

    def test_load_in_any_order_of_uris(self, small: Catalog) -> None:
        small.create("s")
        for batch in (["m", "n"], ["z", "a"], ["m", "a"], ["b", "c"], ["x"]):
            small.load("s", [up(uri) for uri in batch])
        assert [r.uri for r in small.resources("s")] == ["a", "b", "c", "m", "n", "x", "z"]
        assert [r.uri for n in (0, 1) for r in small.page("s", n)] == ["m", "n", "z", "a", "b", "c", "x"]
        assert verify(small, "s") == []

    def test_phases(self, catalog: Catalog) -> None:
        catalog.create("s")
        for wrong in (lambda: catalog.record("s", [up("a")], START), lambda: catalog.close_segment("s", START)):
            with pytest.raises(WrongPhase):
                wrong()
        catalog.open("s", START)
        with pytest.raises(WrongPhase):
            catalog.load("s", [up("a")])
        assert catalog.resources("s") == []

    def test_open_begins_the_log(self, catalog: Catalog) -> None:
        opened(catalog, [up("a")])
        state = catalog.state("s")
        assert (state.opened_at, state.last_at, state.count) == (START, START, 1)
        (segment,) = catalog.segments("s")
        assert (segment.number, segment.first, segment.last, segment.weight) == (0, 1, 0, 0)
        assert (segment.from_, segment.until) == (START, None)
        (page,) = catalog.pages("s")
        assert page.touched > page.rendered == 0
        assert (page.stale_at, page.at, page.completed) == (START, None, None)
        assert catalog.open("s", at(9)) == state
        assert len(catalog.segments("s")) == 1
        catalog.record("s", [up("b")], at(-9))
        assert catalog.changes("s")[0].at > START
