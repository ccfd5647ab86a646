"""The contract of removal: nothing is left of a set that was dropped, and one of its name begins as any other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from headwater.catalog.interface import Catalog, Delete, SetState, StateRow, StateUpdate, UnknownSet, Upsert
from headwater.catalog.verify import verify
from tests.contract.catalog.cases import at, opened, table, up
from tests.contract.catalog.model import Backend, observed
from tests.contract.catalog.moving import STORIES


class DroppingContract:
    """The contract of `drop`."""

    @table(STORIES)
    def test_a_dropped_set_leaves_nothing(
        self, catalog: Catalog, backend: Backend, case: tuple[Callable[[Catalog], Catalog]]
    ) -> None:
        opened(catalog, [up("a")], "t")
        catalog.record("t", [up("b")], at(1), state=StateUpdate([StateRow("one", "t")]))
        other = observed(catalog, "t")
        case[0](catalog)
        catalog.drop("s")
        for reading in (catalog, backend.again(catalog)):
            assert [one.name for one in reading.sets()] == ["t"]
            assert reading.newest() == {"t": 1}
            assert reading.sets_with_rows("one") == {"t": 1}
            assert observed(reading, "t") == other
            with pytest.raises(UnknownSet):
                reading.state("s")
            with pytest.raises(UnknownSet):
                reading.drop("s")
        assert verify(catalog, "t") == []

    @table(STORIES)
    def test_a_set_of_a_dropped_name_begins_anew(
        self, catalog: Catalog, backend: Backend, case: tuple[Callable[[Catalog], Catalog]]
    ) -> None:
        case[0](catalog)
        catalog.drop("s")
        fresh = backend.fresh()
        for one in (catalog, fresh):
            one.create("s", last_seq=3)
            one.load("s", [Upsert("r0", up("r0").metadata, b"memo"), up("other")])
            one.open("s", at(0))
            one.record("s", [up("r1"), Delete("other")], at(1), state=StateUpdate([StateRow("one", "1", b"x")]))
        for reading in (catalog, backend.again(catalog)):
            assert without_counters(observed(reading, "s")) == without_counters(observed(fresh, "s"))
        assert verify(catalog, "s") == []
        assert [one.name for one in catalog.sets()] == ["s"]
        catalog.drop("s")
        assert catalog.sets() == []

    def test_a_set_that_is_there_is_not_made_anew(self, catalog: Catalog) -> None:
        opened(catalog)
        catalog.drop("s")
        opened(catalog, [up("a")])
        assert catalog.create("s").count == 1


def without_counters(found: dict[str, object]) -> dict[str, object]:
    """What was observed but for what tells two states of one set apart, which goes on counting."""
    state = found["state"]
    assert isinstance(state, SetState)
    return {**found, "state": msgspec.structs.replace(state, fence=0, state_version=0)}
