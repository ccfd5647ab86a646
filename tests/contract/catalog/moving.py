"""Sets with a past of each kind, and what must be the same of one that has moved to another catalog."""

from __future__ import annotations

from collections.abc import Callable

from headwater.catalog.interface import Catalog, Delete, Rendered, StateRow, StateUpdate, Upsert
from tests.contract.catalog.cases import (
    BIG,
    HEAVY,
    METADATA,
    at,
    opened,
    up,
)


def told(catalog: Catalog) -> Catalog:
    """A set with a page that is full, one that is empty, one in use; closed, empty and open segments; notes, memos."""
    opened(catalog, [Upsert(f"r{n}", case[1], b"memo") for n, case in enumerate(METADATA)])
    catalog.rendered("s", [Rendered(0, 4, at(1), at(2))])
    catalog.record("s", [up("r4", HEAVY), up("r5"), Delete("r6"), up("é", BIG), up("x")], at(10))
    catalog.record("s", [Delete(f"r{n}") for n in (4, 5, 7)], at(12))
    catalog.close_segment("s", at(50))
    catalog.close_segment("s", at(60))
    catalog.record("s", [Upsert("r0", BIG, b"\x00\xff"), up("new"), Delete("x"), up("x")], at(55))
    catalog.note("s", b'{"published": "\xff"}')
    return catalog


def loading(catalog: Catalog) -> Catalog:
    """A set whose first load goes on."""
    catalog.create("s")
    catalog.load("s", [up(f"r{n}", HEAVY) for n in range(9)] + [Delete("r3")])
    catalog.mark("s", at(7))
    return catalog


def created(catalog: Catalog) -> Catalog:
    catalog.create("s")
    return catalog


def empty(catalog: Catalog) -> Catalog:
    opened(catalog)
    return catalog


def kept(catalog: Catalog) -> Catalog:
    """A set with rows of several kinds."""
    opened(catalog, [up("a")])
    rows = [StateRow(kind, f"{n}", b"\x00\xff", n % 3) for kind in ("one", "é") for n in range(7)]
    catalog.record("s", [up("b")], at(1), state=StateUpdate(rows, [("one", "3")]))
    catalog.record("s", [], at(2), state=StateUpdate([StateRow("é", "é" * 100)], [("one", "3")]))
    return catalog


STORIES: list[tuple[str, Callable[[Catalog], Catalog]]] = [
    ("a set with a past", told),
    ("a set that is still loading", loading),
    ("a set that has just been created", created),
    ("an open set of nothing", empty),
    ("a set with rows", kept),
]


def moved(catalog: Catalog, name: str) -> dict[str, object]:
    """What a set takes along: its resources and in which order they are published, its rows, how far it has counted."""
    state = catalog.state(name)
    order = [one.uri for page in range(state.page_count) for one in catalog.page(name, page)]
    return {
        "is open": state.opened_at is not None,
        "last": state.last_seq,
        "resources": [(one.uri, one.metadata, one.memo, one.seq) for one in catalog.resources(name)],
        "order": order,
        "rows": {kind: catalog.rows_of(name, kind) for kind in catalog.row_counts(name)},
    }
