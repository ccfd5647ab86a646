"""A load of nothing but new resources takes a straight way, and comes to what the general one makes of it."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.faults import Unacceptable
from headwater.catalog.interface import Delete, Event, Limits, Metadata, Upsert
from headwater.catalog.sqlite import fast_load
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind, Link
from headwater.storage.database import Durability
from tests.contract.catalog.model import observed
from tests.support.examples import examples

MD5 = "md5:" + "0a" * 16
METADATA = st.builds(
    Metadata,
    lastmod=st.none() | st.just(dt.datetime(1, 1, 1, tzinfo=dt.UTC)) | st.just(dt.datetime(2026, 1, 1)),
    hash=st.sampled_from([None, MD5, "odd"]),
    length=st.sampled_from([None, 0, 2**63 - 1, -1]),
    type=st.sampled_from([None, "a/b; c=é"]),
    changefreq=st.sampled_from([None, "daily"]),
    links=st.sampled_from([(), (Link(rel="describedby", href="http://example.org/"),)]),
)
USUAL = st.builds(Metadata, hash=st.sampled_from([None, MD5]), length=st.none() | st.integers(0, 9))
URIS = st.integers(0, 30).map(lambda number: f"files/{number}.pdf")
NEW = st.lists(st.builds(Upsert, URIS, USUAL, st.binary(max_size=3)), max_size=20, unique_by=lambda one: one.uri)
ANYTHING = st.lists(
    st.builds(
        Upsert, URIS | st.sampled_from(["", "é", "\ud800"]), METADATA, change=st.sampled_from([None, *ChangeKind])
    )
    | st.builds(Delete, URIS),
    max_size=6,
)


def loaded(
    folder: Path, batches: list[list[Event]], limits: Limits, *, is_on: bool
) -> tuple[dict[str, Any], list[str]]:
    """The set after these loads, and which of them were refused for what."""
    refused = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_load, "IS_ON", is_on)
        catalog = SqliteCatalog(folder / f"{is_on}.db", limits, durability=Durability.NORMAL)
        catalog.create("s")
        for batch in batches:
            try:
                catalog.load("s", batch)
            except Unacceptable as fault:
                refused.append(str(fault))
        assert verify(catalog, "s") == []
        seen = observed(catalog, "s")
        catalog.close()
    return seen, refused


@settings(max_examples=examples(60), deadline=None)
@given(
    batches=st.lists(NEW | ANYTHING, max_size=4),
    limits=st.builds(Limits, page_entries=st.integers(1, 7), page_octets=st.integers(700, 9_000)),
)
def test_both_ways_give_one_answer(batches: list[list[Event]], limits: Limits) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ways = [loaded(Path(folder), batches, limits, is_on=is_on) for is_on in (True, False)]
    assert ways[0] == ways[1]


@pytest.mark.parametrize("octets", [1_000, 2_000, 2_500, 40_000_000])
def test_pages_are_filled_alike(tmp_path: Path, octets: int) -> None:
    events: list[Event] = [Upsert(f"files/{n}", Metadata(hash=MD5 if n % 3 else None)) for n in range(40)]
    limits = Limits(page_entries=7, page_octets=octets)
    ways = [loaded(tmp_path, [events[:17], events[17:]], limits, is_on=is_on) for is_on in (True, False)]
    assert ways[0] == ways[1]


def test_a_page_takes_one_resource_whatever_the_limits_are(tmp_path: Path) -> None:
    events: list[Event] = [Upsert("a", Metadata()), Upsert("b", Metadata())]
    seen, _ = loaded(tmp_path, [events], Limits(page_entries=0), is_on=True)
    assert [page.count for page in seen["pages"]] == [1, 1]
