"""Documents of the cluster catalog: exact both ways, without an engine."""

from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog import page_filling
from headwater.catalog.cluster.documents import (
    StoredChange,
    StoredResource,
    after_change,
    change_documents,
    change_operations,
    journal_documents,
    journal_operations,
    redone_operation,
    resource_operation,
    to_json,
)
from headwater.catalog.interface import Delete, Event, Limits, Metadata, Unacceptable, Upsert
from headwater.catalog.page_filling import Log, PageFill, PageSlot, Places, Put, SegmentRun
from tests.contract.catalog.cases import METADATA, up
from tests.contract.catalog.model import EVENTS

PLACE = PageSlot(7, 0, 500)


@pytest.mark.parametrize("metadata", [row[1] for row in METADATA], ids=[row[0] for row in METADATA])
def test_metadata_comes_back(metadata: Metadata) -> None:
    event = Upsert("a/é", metadata, b"\0\xff")
    line = resource_operation("s", Put(event, PLACE, 3), 9).split(b"\n")
    assert json.loads(line[0])["index"]["version"] == 9
    found = msgspec.json.decode(line[1], type=StoredResource)
    assert (found.uri, found.metadata, found.memo, found.seq, found.place) == (
        event.uri,
        metadata,
        event.memo,
        3,
        PLACE,
    )
    assert found.metadata.lastmod is None or found.metadata.lastmod.tzinfo is not None


def test_names_are_those_of_dit_es() -> None:
    """DIT-05, DIT-06, DIT-07."""
    event = Upsert("http://example.org/a", METADATA[-1][1], b"")
    document = json.loads(resource_operation("s", Put(event, PLACE, 0), 1).split(b"\n")[1])
    assert document["resource_set"] == "s"
    assert document["location"] == {"value": "http://example.org/a", "type": "url"}
    assert document["ln"][0]["href"] == {"value": "http://example.org/x?a=1&b=<2>", "type": "url"}
    assert document["ln"][0]["mime"] == "a/b"
    relative = json.loads(resource_operation("s", Put(up("a"), PLACE, 0), 1).split(b"\n")[1])
    assert relative["location"] == {"value": "a", "type": "rel_path"}


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Unacceptable):
        resource_operation("s", Put(up("a", Metadata(lastmod=dt.datetime(2026, 1, 1))), PLACE, 0), 1)


def placed(held: dict[str, PageSlot], events: list[Event]) -> tuple[Places, Log]:
    pages = {0: PageFill(0, len(held), sum(place.weight for place in held.values()))} if held else {}
    places = Places(Limits(page_entries=4), held, pages, 10)
    log = Log(Limits(), 5, 0, SegmentRun(0, 1, 5, 0))
    page_filling.record(places, log, events, 1)
    return places, log


@given(st.sets(st.sampled_from(["a", "b", "c/d"])), EVENTS)
def test_the_log_says_what_became_of_every_resource_it_names(names: set[str], events: list[Event]) -> None:
    held = {name: PageSlot(number, 0, 600) for number, name in enumerate(sorted(names))}
    places, log = placed(held, events)
    documents = change_documents("s", log.changes, places.outcome(), 100)
    assert [document.rev for document in documents] == list(range(100, 100 + len(documents)))
    again = [msgspec.json.decode(to_json(document), type=StoredChange) for document in documents]
    assert [document.recorded.seq for document in again] == [logged.seq for logged in log.changes]
    left = [document for document in map(after_change, again) if document is not None]
    assert len({document.uri for document in left}) == len(left) == len({logged.uri for logged in log.changes})
    outcome = places.outcome()
    puts = {put.event.uri: put for put in (*outcome.kept, *outcome.fresh)}
    assert {document.uri for document in left if document.live} == set(puts)
    for document in left:
        if document.live:
            put = puts[document.uri]
            assert (document.metadata, document.memo) == (put.event.metadata, put.event.memo)
            assert (document.place, document.seq) == (put.place, put.seq)
            assert redone_operation(document) == resource_operation("s", put, document.rev)


def test_a_journal_holds_what_is_overwritten_and_what_is_gone() -> None:
    held = {"a": PageSlot(0, 0, 500), "b": PageSlot(1, 0, 500)}
    places, _ = placed(held, [])
    page_filling.load(places, [up("a"), Delete("b"), up("c")])
    journal = journal_documents("s", places.outcome(), 50)
    assert [(entry.rev, entry.redo.rev, entry.redo.uri, entry.redo.live) for entry in journal] == [
        (50, 50, "a", True),
        (51, 51, "b", False),
    ]
    ids = [json.loads(line.split(b"\n")[0])["index"]["_id"] for line in journal_operations(journal)]
    assert [name.split("/")[1:] for name in ids] == [["j", "0"], ["j", "1"]]


def test_ids_of_changes_follow_their_numbers() -> None:
    places, log = placed({}, [up("a"), up("a")])
    lines = list(change_operations(change_documents("s", log.changes, places.outcome(), 1)))
    ids = [json.loads(line.split(b"\n")[0])["index"]["_id"] for line in lines]
    assert [name.split("/")[1] for name in ids] == ["6", "7"]
