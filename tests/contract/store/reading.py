"""The contract of reading: any range of any form."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import TEXT, XML, ZIP, Coding, ObjectKind, octets_of
from tests.contract.store.backend import StoreBackend, opened, stat

OCTETS = bytes(range(256)) * 2_000
RANGES = [
    (0, 0),
    (0, 1),
    (0, 10**12),
    (5, 20),
    (300_000, 250_000),
    (len(OCTETS) - 1, 1),
    (len(OCTETS) - 1, 99),
    (len(OCTETS), 1),
    (len(OCTETS) + 10**9, 1),
]


class ReadingObjectsContract:
    """The contract of reading."""

    @pytest.mark.parametrize(("start", "octets"), RANGES)
    @pytest.mark.parametrize("kind", [XML, ZIP], ids=["gzip", "no gzip"])
    def test_a_range_is_what_lies_there(self, store: FolderStore, kind: ObjectKind, start: int, octets: int) -> None:
        """Beyond the end there is nothing, and no fault."""
        store.put("a", [OCTETS], kind)
        for coding in Coding:
            with opened(store, "a", coding) as found:
                whole = b"".join(octets_of(found, 0, found.octets))
                assert b"".join(octets_of(found, start, start + octets)) == whole[start : start + octets]
                at_once = found.read(start, min(octets, 1 << 20))
                assert whole[start : start + octets].startswith(at_once)
                assert bool(at_once) == bool(whole[start : start + octets])

    def test_an_empty_object_has_nothing_to_read(self, store: FolderStore) -> None:
        store.put("a", [])
        store.put("b", [b"", b""], ZIP)
        for name, coding in itertools.product("ab", Coding):
            with opened(store, name, coding) as found:
                assert found.stored.octets == 0
                assert found.read(found.octets, 10) == b""
        with opened(store, "a") as found:
            assert found.read(0, 10) == b""

    def test_ranges_are_read_in_any_order_and_by_several(self, store: FolderStore) -> None:
        store.put("a", [OCTETS])
        with opened(store, "a") as one, opened(store, "a") as other:
            for start in (400_000, 0, 399_000, 17):
                assert one.read(start, 100) == other.read(start, 100) == OCTETS[start : start + 100]

    def test_the_time_is_that_of_the_change(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=2)  # a store's clock may be a coarse one
        store.put("a", [b"x"], TEXT)
        changed = stat(store, "a").modified
        assert before <= changed <= dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
        store.put("a", [b"x"], TEXT)
        assert stat(backend.again(store), "a").modified == changed
