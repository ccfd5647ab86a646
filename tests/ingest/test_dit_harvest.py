"""Documents as a harvester writes them, out of a set and into another one: the same resources, the same changes."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Catalog, Change, Metadata, Resource, Upsert
from headwater.errors import UsageFault
from headwater.ingest.dit.documents import Harvest, Manner, change_source, resource_source
from headwater.ingest.dit.intake import DocumentRecords
from headwater.ingest.dit.late_documents import read_note
from headwater.ingest.push.resource_locations import Location, Locations
from headwater.ingest.push.submission import Submission
from headwater.spec.records import ChangeKind, Link
from headwater.spec.uris import quote_path
from tests.support.examples import examples
from tests.support.failing import failing
from tests.support.push_set import PREFIX, PushSet, change, resource
from tests.support.waiting import START

EXACT, SEED = Manner(), Manner(seed_dates=True)
MD5, SHA = "a" * 32, "b" * 64

CASES: list[tuple[str, Manner, Resource, dict[str, object]]] = [
    (
        "every field (DIT-05), dates to the microsecond",
        EXACT,
        Resource(
            "b/%C3%BC%20x.pdf",
            Metadata(
                lastmod=START + dt.timedelta(microseconds=7),
                hash=f"md5:{MD5}",
                length=5_000_000_000,
                type="application/pdf",
                links=(Link(rel="describedby", href="http://x.org/a", type="text/xml", hash=f"sha-256:{SHA}"),),
            ),
            b"",
            0,
            1,
        ),
        {
            "resource_set": "s",
            "location": {"value": "b/ü x.pdf", "type": "rel_path"},
            "length": 5_000_000_000,
            "md5": MD5,
            "mime": "application/pdf",
            "lastmod": "2026-01-01T00:00:00.000007Z",
            "ln": [
                {
                    "rel": "describedby",
                    "href": {"value": "http://x.org/a", "type": "url"},
                    "hash": f"sha-256:{SHA}",
                    "mime": "text/xml",
                }
            ],
            "timestamp": "2026-01-01T00:00:00.000000Z",
        },
    ),
    (
        "the seed's dates (DIT-08), several digests (DIT-A8), a complete address",
        SEED,
        Resource("http://x.org/a", Metadata(lastmod=START, hash=f"sha-256:{SHA} md5:{MD5}"), b"", 0, 1),
        {
            "resource_set": "s",
            "location": {"value": "http://x.org/a", "type": "url"},
            "md5": MD5,
            "hash": f"sha-256:{SHA} md5:{MD5}",
            "lastmod": "2026-01-01T00:00:00+0000",
            "ln": [],
            "timestamp": "2026-01-01T00:00:00+0000",
        },
    ),
    (
        "paths as addresses",
        Manner(prefix=PREFIX),
        Resource("a%0Ab%FF", Metadata(), b"", 0, 1),
        {
            "resource_set": "s",
            "location": {"value": PREFIX + "a%0Ab%FF", "type": "url"},
            "ln": [],
            "timestamp": "2026-01-01T00:00:00.000000Z",
        },
    ),
]


@pytest.mark.parametrize(("manner", "held", "written"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_dit_a5_a_resource_in_the_seeds_shape(manner: Manner, held: Resource, written: dict[str, object]) -> None:
    assert resource_source("s", held, START, manner) == written


def test_dit_06_a_change_in_the_seeds_shape() -> None:
    """DIT-A13: with what the resource was at that time; DIT-A21: a deletion says nothing of it, no lastmod either."""
    stated = Metadata(lastmod=START, length=3, hash=f"md5:{MD5}")
    written = change_source("s", Change(7, START, "a", ChangeKind.UPDATED, stated), SEED)
    second = "2026-01-01T00:00:00+0000"
    assert written == {
        "resource_set": "s",
        "location": {"value": "a", "type": "rel_path"},
        "change": "updated",
        "length": 3,
        "md5": MD5,
        "lastmod": second,
        "ln": [],
        "datetime": second,
        "timestamp": second,
        "seq": 7,
    }
    gone = change_source("s", Change(8, START, "a", ChangeKind.DELETED, Metadata(lastmod=START)), SEED)
    assert sorted(gone) == ["change", "datetime", "location", "resource_set", "seq", "timestamp"]


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b".", b"..", b"...", b".a"]), min_size=1, max_size=4))
def test_a_path_in_a_document_is_the_uri_it_was_made_of(segments: list[bytes]) -> None:
    """Or there is none: never another one (DIT-07, DIT-A10)."""
    uri = quote_path(b"/".join(segments))
    try:
        written = EXACT.location(uri)
    except UsageFault:
        return
    assert Locations(PREFIX).resolve(Location(**written)) == uri


@pytest.mark.parametrize("uri", ["a%0Ab", "%FF", "a/../b", "./a", "a//b", "/a", "a/"])
def test_a_name_that_no_path_can_say_is_not_lost_but_refused(uri: str) -> None:
    with failing("HW-ING-54"):
        EXACT.location(uri)


# There and back


class SetAndItsExport:
    """A set with a past, and one that takes what is written of it."""

    def __init__(self, folder: Path, *, loading: bool) -> None:
        for name in ("one", "two"):
            (folder / name).mkdir()
        self.one = PushSet(folder / "one", loading=loading)
        self.two = PushSet(folder / "two")

    def close(self) -> None:
        self.one.close()
        self.two.close()

    def carry(self, manner: Manner, sizes: Iterable[int] = ()) -> None:
        """Write the first set and let the second take it, in requests of so many lines, the rest in one."""
        lines = list(Harvest(name="s").lines(self.one.catalog, manner))
        self.two.now = self.one.now + dt.timedelta(hours=1)
        self.take(lines, sizes)

    def take(self, lines: Sequence[bytes], sizes: Iterable[int] = ()) -> None:
        for size in (*sizes, len(lines)):
            submission = Submission(DocumentRecords(lambda _name: self.two.feed))
            submission.push(b"".join(lines[:size]))
            submission.finish()
            assert submission.counts.rejected == 0, submission.outcomes
            assert not any(one.left_out for one in submission.outcomes)
            lines = lines[size:]


def live(catalog: Catalog, seconds: bool = False) -> dict[str, tuple[Metadata, bytes]]:
    return {one.uri: (_rounded(one.metadata, seconds), read_note(one.memo).kept) for one in catalog.resources("s")}


def log(catalog: Catalog, seconds: bool = False) -> list[tuple[str, ChangeKind, Metadata]]:
    return [(one.uri, one.change, _rounded(one.metadata, seconds)) for one in catalog.changes("s")]


def expected(catalog: Catalog, seconds: bool) -> list[tuple[str, ChangeKind, Metadata]]:
    """The log as it is for a set that began empty (DIT-A12)."""
    known: set[str] = set()
    told: list[tuple[str, ChangeKind, Metadata]] = []
    for uri, kind, metadata in log(catalog, seconds):
        if kind is ChangeKind.DELETED:
            if uri in known:
                told.append((uri, kind, metadata))
            known.discard(uri)
            continue
        told.append((uri, ChangeKind.UPDATED if uri in known else ChangeKind.CREATED, metadata))
        known.add(uri)
    return told


def created(catalog: Catalog, seconds: bool) -> list[tuple[str, ChangeKind, Metadata]]:
    """What was loaded and is unchanged, as events of a set that began empty."""
    loaded = [one for one in catalog.resources("s") if not one.seq]
    return [(one.uri, ChangeKind.CREATED, _rounded(one.metadata, seconds)) for one in loaded]


def _rounded(metadata: Metadata, seconds: bool) -> Metadata:
    if not seconds or metadata.lastmod is None:
        return metadata
    return msgspec.structs.replace(metadata, lastmod=metadata.lastmod.replace(microsecond=0))


NAMES = st.sampled_from(["a", "b c", "ü/100%.pdf", "d"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "length": st.integers(0, (1 << 63) - 1),
        "mime": st.sampled_from(["text/plain", "application/pdf"]),
        "md5": st.sampled_from(["c" * 32, f"sha-256:{SHA} md5:{MD5}", f"sha-256:{SHA}", "md5:" + "0" * 32]),
        "lastmod": st.sampled_from([None, "2025-01-01T00:00:00Z", "2025-01-01T00:00:00.5Z", "2025-06-01T00:00:00Z"]),
        "licence": st.sampled_from(["CC0", None, ["x", {"y": 1}]]),
        "ln": st.lists(
            st.fixed_dictionaries(
                {
                    "rel": st.sampled_from(["describedby", "describes", "http://my.org/rel", "duplicate"]),
                    "href": NAMES.map(lambda name: {"value": name, "type": "rel_path"}),
                },
                optional={
                    "mime": st.just("text/xml"),
                    "length": st.just(3),
                    "pri": st.just(2),
                    "encoding": st.just("gzip"),
                },
            ),
            max_size=2,
            unique_by=str,
        ),
    },
)
STEPS = st.lists(st.tuples(st.sampled_from(["created", "updated", "deleted"]), NAMES, FIELDS), max_size=14)


def live_through(fed: PushSet, steps: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    """Let a harvester post what it does, many events within one second."""
    for kind, path, fields in steps:
        fed.later(0.25)
        at = fed.now.isoformat()
        documents: list[object] = [{**change(path, kind, 0), "datetime": at, "lastmod": fields.get("lastmod")}]
        if kind != "deleted":
            documents.append({**resource(path, 0), "lastmod": None, **fields})
        fed.documents(*documents)
    fed.settle()


@settings(max_examples=examples(40), deadline=None)
@given(loaded=STEPS, steps=STEPS, sizes=st.lists(st.integers(1, 4), max_size=6), manner=st.sampled_from([EXACT, SEED]))
def test_dit_a19_what_is_written_and_taken_again_is_the_same_set(
    loaded: list[tuple[str, str, dict[str, Any]]],
    steps: list[tuple[str, str, dict[str, Any]]],
    sizes: list[int],
    manner: Manner,
) -> None:
    """The same resources with all they state and their unknown fields, the same changes in the same order (DIT-A13)."""
    with tempfile.TemporaryDirectory() as folder:
        world = SetAndItsExport(Path(folder), loading=True)
        if loaded:
            world.one.documents(*(resource(path, 0, **fields) for _, path, fields in loaded))
        world.one.feed.open()
        live_through(world.one, steps)
        world.carry(manner, sizes)
        seconds = manner.seed_dates
        assert live(world.two.catalog) == live(world.one.catalog, seconds)
        loaded_events = created(world.one.catalog, seconds)
        told = log(world.two.catalog)
        assert [one for one in told if one not in loaded_events] == expected(world.one.catalog, seconds)
        assert [one for one in told if one in loaded_events] == loaded_events
        before = log(world.two.catalog)
        world.carry(manner, [3])  # sent again it is no news
        assert log(world.two.catalog) == before
        world.close()


def test_a_set_may_change_while_it_is_written(tmp_path: Path) -> None:
    """Whatever moment a change falls into, whoever takes the lines in their order ends with the set as it is."""
    world = SetAndItsExport(tmp_path, loading=True)
    world.one.documents(*(resource(f"r{number}", 1) for number in range(5)))
    world.one.feed.open()
    live_through(world.one, [("updated", "r1", {}), ("created", "n", {}), ("updated", "r2", {"length": 1})])
    lines = []
    steps = iter([("updated", "r0", {"length": 7}), ("deleted", "r3", {}), ("updated", "r1", {"length": 8}),
                  ("updated", "n", {"length": 9}), ("deleted", "n", {})])  # fmt: skip
    for line in Harvest(name="s").lines(world.one.catalog, EXACT):
        lines.append(line)
        live_through(world.one, [step for step in [next(steps, None)] if step is not None])
    world.two.now = world.one.now
    world.take(lines, [1] * len(lines))
    assert live(world.two.catalog) == live(world.one.catalog)
    world.close()


def test_a_large_set_is_written_in_bounded_pieces(tmp_path: Path) -> None:
    """Beyond the batches in which it is read: each resource and each change once."""
    fed = PushSet(tmp_path, loading=True)
    fed.catalog.create("s")
    metadata = Metadata(length=1)
    fed.catalog.load("s", [Upsert(f"l{number:05d}", metadata) for number in range(2_500)])
    fed.feed.open()
    fed.catalog.record("s", [Upsert(f"c{number % 1_700:05d}", metadata) for number in range(2_500)], START)
    harvest = Harvest(name="s")
    documents = [json.loads(line) for line in harvest.lines(fed.catalog, EXACT)]
    resources = [one["location"]["value"] for one in documents if "change" not in one]
    assert len(resources) == len(set(resources)) == harvest.resources == 2_500 + 1_700
    assert [one["seq"] for one in documents if "change" in one] == list(range(1, 2_501))
    assert harvest.changes == 2_500
    fed.close()


def test_a_set_that_is_loading_is_written_as_far_as_it_is(tmp_path: Path) -> None:
    fed = PushSet(tmp_path, loading=True)
    fed.documents(resource("a", 1))
    (line,) = Harvest(name="s").lines(fed.catalog, EXACT)
    assert "timestamp" not in json.loads(line)
    fed.close()


def test_dit_a19_unknown_fields_are_renewed_without_an_event(tmp_path: Path) -> None:
    fed = PushSet(tmp_path)
    fed.documents(resource("a", 1, licence="CC0"), change("a", "created", 1))
    fed.documents(resource("a", 1, licence="CC-BY", note=None))
    fed.settle()
    assert fed.log() == [("created", "a")]
    lines = [json.loads(line) for line in Harvest(name="s").lines(fed.catalog, EXACT)]
    assert [(one.get("licence"), one.get("note", "none")) for one in lines] == [(None, "none"), ("CC-BY", None)]
    fed.close()
