"""The contract of pages: where resources lie, and which documents are stale."""

from __future__ import annotations

import pytest

from headwater.catalog.interface import Catalog, Delete, Limits, Rendered, Unacceptable
from headwater.catalog.verify import verify
from tests.contract.catalog.cases import (
    BARE,
    BIG,
    HEAVY,
    SMALL,
    START,
    U,
    at,
    opened,
    up,
)
from tests.contract.catalog.model import Backend, observed


class PagingContract:
    """The contract of pages: where resources lie, and which documents are stale."""

    def test_new_resources_take_the_next_slot(self, small: Catalog) -> None:
        opened(small, [up(uri) for uri in "zyxw"])
        small.record("s", [up("b"), up("a")], at(1))
        assert [[r.uri for r in small.page("s", n)] for n in (0, 1)] == [["z", "y", "x", "w"], ["b", "a"]]
        assert [page.touched for page in small.pages("s")] == [4, 2]
        assert small.state("s").page_count == 2

    def test_only_the_page_of_a_change_is_touched(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}") for n in range(12)])
        small.rendered("s", [Rendered(n, 4, START, START) for n in range(3)])
        small.record("s", [up("r5"), Delete("r6"), up("r5")], at(1))
        assert [(p.touched, p.rendered, p.stale_at) for p in small.pages("s")] == [
            (4, 4, None),
            (7, 4, at(1)),
            (4, 4, None),
        ]
        assert [r.uri for r in small.page("s", 1)] == ["r4", "r5", "r7"]

    def test_a_hole_is_not_filled_but_the_last_page_is(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}") for n in range(8)])
        small.record("s", [Delete("r0"), Delete("r7")], at(1))
        small.record("s", [up("new"), up("newer")], at(2))
        assert [[r.uri for r in small.page("s", n)] for n in range(3)] == [
            ["r1", "r2", "r3"],
            ["r4", "r5", "r6", "new"],
            ["newer"],
        ]

    def test_what_comes_back_takes_a_new_slot(self, small: Catalog) -> None:
        opened(small, [up("a"), up("b")])
        small.record("s", [Delete("a"), up("a")], at(1))
        assert [r.uri for r in small.page("s", 0)] == ["b", "a"]
        small.record("s", [Delete("b")], at(2))
        small.record("s", [up("b")], at(3))
        assert [r.uri for r in small.page("s", 0)] == ["a", "b"]

    def test_an_empty_page_stays(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}") for n in range(5)])
        small.record("s", [Delete(f"r{n}") for n in range(4)], at(1))
        page = small.pages("s")[0]
        assert (page.number, page.count, page.weight) == (0, 0, 0)
        assert list(small.page("s", 0)) == []
        assert small.state("s").page_count == 2

    def test_an_update_that_bursts_its_page_moves_to_the_last_one(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}", HEAVY) for n in range(4)])
        counts = [page.count for page in small.pages("s")]
        touched = [page.touched for page in small.pages("s")]
        assert counts == [3, 1]
        small.record("s", [up("r1", BIG)], at(1))
        assert [[r.uri for r in small.page("s", n)] for n in (0, 1)] == [["r0", "r2"], ["r3", "r1"]]
        assert [p.touched for p in small.pages("s")] == [touched[0] + 1, touched[1] + 1]
        assert [c.change for c in small.changes("s")] == [U]
        small.record("s", [up("r3", BIG)], at(2))
        assert [[r.uri for r in small.page("s", n)] for n in range(3)] == [["r0", "r2"], ["r1"], ["r3"]]
        assert all(page.weight <= SMALL.page_octets for page in small.pages("s"))
        assert verify(small, "s") == []

    def test_an_update_that_fits_keeps_its_slot(self, small: Catalog) -> None:
        opened(small, [up("a", HEAVY), up("b", HEAVY), up("c", HEAVY)])
        small.record("s", [up("b"), up("a", BIG)], at(1))
        assert [r.uri for r in small.page("s", 0)] == ["b", "c"]
        assert [r.uri for r in small.page("s", 1)] == ["a"]

    def test_page_limits_hold_whatever_comes(self, small: Catalog) -> None:
        opened(small)
        sizes = [BARE, HEAVY, BIG, BARE, HEAVY]
        for n in range(40):
            small.record("s", [up(f"r{(n * 7 + m) % 11}", sizes[(n + m) % 5]) for m in range(3)], at(n))
            pages = small.pages("s")
            assert all(p.count <= SMALL.page_entries and p.weight <= SMALL.page_octets for p in pages)
        assert verify(small, "s") == []

    def test_limits_hold_for_what_comes(self, small: Catalog, backend: Backend) -> None:
        opened(small, [up(f"r{n}", HEAVY) for n in range(3)])
        small.record("s", [up("r0", HEAVY)] * 3, at(1))
        narrow = backend.again(
            small, Limits(page_entries=2, page_octets=2_500, segment_entries=2, segment_octets=2_500)
        )
        narrow.record("s", [up("r0"), Delete("r1"), up("new"), up("newer"), up("newest")], at(2))
        assert [[r.uri for r in narrow.page("s", n)] for n in range(3)] == [["r0", "r2"], ["new", "newer"], ["newest"]]
        assert [(segment.first, segment.last) for segment in narrow.segments("s")] == [(1, 3), (4, 5), (6, 7), (8, 8)]
        assert verify(narrow, "s") == []
        narrow.close()

    def test_a_page_rendered_before_the_set_is_open_stays_fresh(self, small: Catalog) -> None:
        small.create("s")
        small.load("s", [up(f"r{n}") for n in range(6)])
        small.rendered("s", [Rendered(0, 4, START, START)])
        small.open("s", at(1))
        assert [page.stale_at for page in small.pages("s")] == [None, at(1)]

    def test_rendered(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}") for n in range(4)])
        small.record("s", [up("r0")], at(10))
        small.rendered("s", [Rendered(0, 5, at(12), at(13))])
        (page,) = small.pages("s")
        assert (page.rendered, page.at, page.completed, page.stale_at) == (5, at(12), at(13), None)
        small.record("s", [up("r0")], at(20))
        small.record("s", [up("r0")], at(30))
        assert small.pages("s")[0].stale_at == at(20)
        small.rendered("s", [Rendered(0, 6, at(25), at(26))])  # the second change came while the page was written
        (page,) = small.pages("s")
        assert (page.touched, page.rendered, page.stale_at) == (7, 6, at(25))
        small.rendered("s", [Rendered(0, 7, at(31), at(32))])
        assert small.pages("s")[0].stale_at is None

    @pytest.mark.parametrize(
        "said", [Rendered(1, 0, START, START), Rendered(0, 5, START, START), Rendered(-1, 0, START, START)]
    )
    def test_rendered_only_what_was_there(self, small: Catalog, said: Rendered) -> None:
        opened(small, [up(f"r{n}") for n in range(4)])
        before = observed(small, "s")
        with pytest.raises(Unacceptable):
            small.rendered("s", [Rendered(0, 4, START, START), said])
        assert observed(small, "s") == before
