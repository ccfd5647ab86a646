"""The contract of the rows that are stored with a set: written with its events or not at all, read by key or rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from headwater.catalog.interface import (
    LARGEST_VALUE,
    LONGEST_KEY,
    LONGEST_KIND,
    Catalog,
    Delete,
    Event,
    Moved,
    NumberedChange,
    SetState,
    StateRow,
    StateUpdate,
    Unacceptable,
    WrongPhase,
)
from headwater.catalog.page_filling import to_microseconds
from headwater.catalog.verify import verify
from tests.contract.catalog.cases import at, opened, table, up
from tests.contract.catalog.model import Backend, observed

T = TypeVar("T")

RANKS = (-(1 << 63), 0, 5, (1 << 63) - 1)
BAD_ROWS: list[tuple[str, StateRow]] = [
    ("no kind", StateRow("", "a")),
    ("a kind that is too long", StateRow("k" * (LONGEST_KIND + 1), "a")),
    ("a kind with a NUL", StateRow("k\0", "a")),
    ("a kind that is no text", StateRow("\udcff", "a")),
    ("no key", StateRow("k", "")),
    ("a key that is too long", StateRow("k", "é" * (LONGEST_KEY // 2 + 1))),
    ("a key that is no text", StateRow("k", "\udcff")),
    ("too much", StateRow("k", "a", bytes(LARGEST_VALUE + 1))),
    ("a rank beyond 64 bits", StateRow("k", "a", rank=1 << 63)),
]

SINCE: list[tuple[str, Callable[[Catalog], object]]] = [
    ("a change", lambda c: c.record("s", [up("b")], at(5))),
    ("a row", lambda c: c.record("s", [], at(5), state=StateUpdate([StateRow("k", "a")]))),
    ("a row that goes", lambda c: c.record("s", [], at(5), state=StateUpdate(delete=[("k", "a")]))),
]


class StateContract:
    """The contract of rows."""

    def test_rows_come_with_their_events(self, catalog: Catalog, backend: Backend) -> None:
        opened(catalog)
        rows = [StateRow("k", "a", b"1"), StateRow("k", "b", b"\x00\xff", 7), StateRow("other", "a", b"3", -7)]
        catalog.record("s", [up("a")], at(1), state=StateUpdate(rows))
        catalog.record("s", [up("a")], at(2), state=StateUpdate([StateRow("k", "a", b"2")], [("k", "b"), ("k", "x")]))
        again = backend.again(catalog)
        found = again.rows("s", [("k", "a"), ("k", "b"), ("other", "a"), ("k", "x"), ("\udcff", "a"), ("k", "")])
        assert found == {("k", "a"): StateRow("k", "a", b"2"), ("other", "a"): rows[2]}
        assert again.row_counts("s") == {"k": 1, "other": 1}
        assert again.state("s").last_seq == 2
        assert verify(again, "s") == []

    @pytest.mark.parametrize("count", [1, 30, 3_000])
    def test_as_many_rows_as_a_batch_has(self, catalog: Catalog, backend: Backend, count: int) -> None:
        """With no event, with few, with many: each is another way for some backend."""
        opened(catalog)
        for number, events in enumerate(([], [up("a")], [up(f"{n}") for n in range(60)])):
            rows = [StateRow(f"k{number}", f"{n:04}", b"x" * 30, n % 5) for n in range(count)]
            catalog.record("s", events, at(1), state=StateUpdate(rows))
            keys = [("x", "y"), *((row.kind, row.key) for row in rows)]
            for reading in (catalog, backend.again(catalog)):
                assert reading.rows("s", keys) == {(row.kind, row.key): row for row in rows}
                assert reading.rows_of("s", f"k{number}") == sorted(rows, key=lambda row: (row.rank, row.key))
        catalog.record("s", [], at(2), state=StateUpdate(delete=[("k0", f"{n:04}") for n in range(1, count)]))
        assert catalog.row_counts("s") == {"k0": 1, "k1": count, "k2": count}
        assert verify(catalog, "s") == []

    def test_while_it_is_loading_rows_come_with_the_load(self, small: Catalog, backend: Backend) -> None:
        small.create("s")
        small.load("s", [up("a"), up("b")], state=StateUpdate([StateRow("k", "a", b"1")]))
        small.load("s", [up("a"), up("c")], state=StateUpdate([StateRow("k", "a", b"2"), StateRow("k", "b")]))
        small.load("s", [], state=StateUpdate([StateRow("k", "c")], [("k", "b")]))
        again = backend.again(small)
        assert again.rows_of("s", "k") == [StateRow("k", "a", b"2"), StateRow("k", "c")]
        assert [one.uri for one in again.resources("s")] == ["a", "b", "c"]
        with pytest.raises(WrongPhase):
            small.record("s", [], at(1), state=StateUpdate([StateRow("k", "d")]))
        small.open("s", at(0))
        with pytest.raises(WrongPhase):
            small.load("s", [], state=StateUpdate([StateRow("k", "d")]))
        assert small.row_counts("s") == {"k": 2}
        assert verify(small, "s") == []

    def test_the_last_word_on_a_row_counts(self, catalog: Catalog) -> None:
        opened(catalog)
        update = StateUpdate([StateRow("k", "a", b"1"), StateRow("k", "a", b"2", 9)], [("k", "a")])
        catalog.record("s", [], at(1), state=update)
        assert catalog.rows_of("s", "k") == [StateRow("k", "a", b"2", 9)]

    def test_in_order_page_by_page(self, catalog: Catalog) -> None:
        """By rank, then by the octets of keys; every page begins after the last row of the one before."""
        opened(catalog)
        keys = ["a", "b", "é", "\uffee", "\U0001f600", "/" * LONGEST_KEY]
        rows = [
            StateRow("k", key, key.encode()[:3], rank) for rank in (-(1 << 63), 0, 5, (1 << 63) - 1) for key in keys
        ]
        rows = [StateRow("k", f"{row.key[:-1]}{n % 10}", row.value, row.rank) for n, row in enumerate(rows)]
        catalog.record("s", [], at(1), state=StateUpdate([*rows[::-1], StateRow("l", "a")]))
        ordered = sorted({row.key: row for row in rows[::-1]}.values(), key=lambda row: (row.rank, row.key.encode()))
        for limit in (1, 5, 100):
            found: list[StateRow] = []
            while page := catalog.rows_of("s", "k", after=found[-1] if found else None, limit=limit):
                assert len(page) <= limit
                found += page
            assert found == ordered
        assert catalog.rows_of("s", "k", until=0) == [row for row in ordered if row.rank <= 0]
        assert catalog.rows_of("s", "k", after=StateRow("k", "b", rank=0), until=4) == [
            row for row in ordered if row.rank == 0 and row.key.encode() > b"b"
        ]
        assert catalog.rows_of("s", "k", limit=0) == catalog.rows_of("s", "nothing") == []
        for limit in (1, 5, 100):
            back: list[StateRow] = []
            while page := catalog.rows_of("s", "k", after=back[-1] if back else None, limit=limit, descending=True):
                assert len(page) <= limit
                back += page
            assert back == ordered[::-1]
        assert catalog.rows_of("s", "k", after=StateRow("k", "b", rank=5), until=0, descending=True) == [
            row for row in ordered[::-1] if row.rank == 0 or (row.rank == 5 and row.key.encode() < b"b")
        ]

    @pytest.mark.parametrize("count", [2, 60])
    def test_rows_of_the_changes_that_a_batch_logs(self, catalog: Catalog, backend: Backend, count: int) -> None:
        """They know the numbers and the times that the catalog has given."""

        def rows(changes: Sequence[NumberedChange]) -> list[StateRow]:
            return [StateRow("c", f"{one.at_us:020}", f"{one.seq} {one.uri} {one.change}".encode()) for one in changes]

        opened(catalog, [up("gone")])
        events: list[Event] = [Delete("gone"), Delete("never there"), *(up(f"{n}") for n in range(count))]
        update = StateUpdate([StateRow("k", "a")], of_changes=rows)
        accepted = catalog.record("s", events, at(1), state=update)
        assert catalog.record("s", [Delete("never there")], at(1), state=StateUpdate(of_changes=rows)).last == 0
        again = backend.again(catalog)
        logged = again.changes("s")
        assert len(logged) == accepted.last == count + 1
        assert again.rows_of("s", "c") == [
            StateRow("c", f"{to_microseconds(one.at):020}", f"{one.seq} {one.uri} {one.change}".encode())
            for one in logged
        ]
        assert again.row_counts("s") == {"c": count + 1, "k": 1}
        before = observed(catalog, "s")
        with pytest.raises(Unacceptable):
            catalog.record("s", events, at(2), state=StateUpdate(of_changes=lambda _changes: [StateRow("", "a")]))
        assert observed(catalog, "s") == before
        assert verify(catalog, "s") == []

    def test_each_set_has_its_own(self, catalog: Catalog) -> None:
        opened(catalog)
        opened(catalog, name="t")
        catalog.record("s", [], at(1), state=StateUpdate([StateRow("k", "a", b"s", 3), StateRow("k", "b", b"s", 4)]))
        catalog.record("t", [], at(1), state=StateUpdate([StateRow("k", "a", b"t", 9), StateRow("l", "a")]))
        catalog.rows_of("s", "k")  # what was searched for before is seen by who asks of all sets
        catalog.rows_of("t", "k")
        assert catalog.rows("t", [("k", "a"), ("k", "b")]) == {("k", "a"): StateRow("k", "a", b"t", 9)}
        assert catalog.sets_with_rows("k") == {"s": 2, "t": 1}
        assert catalog.sets_with_rows("k", 3) == {"s": 1}
        assert catalog.sets_with_rows("k", 2) == catalog.sets_with_rows("nothing") == {}

    @table(BAD_ROWS)
    def test_what_no_row_can_be_is_refused_with_the_batch(self, catalog: Catalog, case: tuple[StateRow]) -> None:
        opened(catalog)
        before = observed(catalog, "s")
        with pytest.raises(Unacceptable):
            catalog.record("s", [up("a")], at(1), state=StateUpdate([StateRow("k", "good"), case[0]]))
        assert observed(catalog, "s") == before

    def test_a_batch_that_is_refused_writes_no_row(self, catalog: Catalog) -> None:
        opened(catalog)
        before = observed(catalog, "s")
        with pytest.raises(Unacceptable):
            catalog.record("s", [up("a"), up("")], at(1), state=StateUpdate([StateRow("k", "a")]))
        assert observed(catalog, "s") == before

    @table(SINCE)
    def test_who_has_seen_an_older_state_writes_nothing(
        self, catalog: Catalog, backend: Backend, case: tuple[Callable[[Catalog], object]]
    ) -> None:
        opened(catalog, [up("a")])
        seen = catalog.state("s")
        other = backend.again(catalog)
        case[0](other)
        before = observed(other, "s")
        for events in ([], [up("x")], [up(f"{n}") for n in range(40)]):
            with pytest.raises(Moved):
                catalog.record("s", events, at(9), after=seen, state=StateUpdate([StateRow("k", "x")]))
        assert observed(catalog, "s") == before
        catalog.record("s", [up("x")], at(9), after=catalog.state("s"), state=StateUpdate([StateRow("k", "x")]))
        assert ("k", "x") in other.rows("s", [("k", "x")])

    def test_while_loading_too(self, catalog: Catalog, backend: Backend) -> None:
        seen = catalog.create("s")
        backend.again(catalog).load("s", [], state=StateUpdate([StateRow("k", "a")]))
        with pytest.raises(Moved):
            catalog.load("s", [up("a")], after=seen, state=StateUpdate([StateRow("k", "b")]))
        assert (catalog.row_counts("s"), catalog.resources("s")) == ({"k": 1}, [])

    def test_who_has_seen_a_set_that_was_opened_since_decides_anew(self, catalog: Catalog, backend: Backend) -> None:
        seen = catalog.create("s")
        backend.again(catalog).open("s", at(0))
        for events in ([], [up("a")]):
            with pytest.raises(Moved):
                catalog.load("s", events, after=seen, state=StateUpdate([StateRow("k", "b")]))
            with pytest.raises(Moved):
                catalog.record("s", events, at(1), after=seen, state=StateUpdate([StateRow("k", "b")]))
        assert (catalog.row_counts("s"), catalog.resources("s")) == ({}, [])

    def test_the_publisher_moves_nothing(self, catalog: Catalog) -> None:
        """Neither a note nor a mark nor an end of a segment stands in the way of what was decided before."""
        opened(catalog)
        seen: SetState = catalog.state("s")
        catalog.note("s", b"note")
        catalog.close_segment("s", at(3))
        catalog.mark("s", at(4))
        catalog.record("s", [up("a")], at(5), after=seen, state=StateUpdate([StateRow("k", "a")]))
        assert catalog.state("s").last_seq == 1

    def test_a_memo_is_no_older_than_what_it_is_about(self, catalog: Catalog) -> None:
        opened(catalog, [up("a"), up("b")])
        catalog.record("s", [up("a")], at(1))
        catalog.record("s", [up("b")], at(2))
        catalog.remember("s", [("a", b"A"), ("b", b"B")], newest=1)
        assert catalog.memos("s") == [("a", b"A"), ("b", b"")]
