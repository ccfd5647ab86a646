"""Triplestores follow the dataset of a set: loaded, patched, never mixed, and told where something is wrong."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from headwater.rdf import N_QUADS_DIFF
from headwater.rdf.canonical import DatasetSummary, write_canonical
from headwater.sync import dataset_sync
from headwater.sync.copy_status import copy_status
from headwater.transport.fetch import TransportOptions
from headwater.triplestores.embedded_store import EmbeddedStore
from headwater.triplestores.sparql_endpoint import EndpointAddress, SparqlEndpoint
from headwater.triplestores.sparql_store import SparqlStore
from tests.support.copying import DONE, SOURCE, STORE, USAGE, check, go
from tests.support.fake_source import Reply, Site, Source, at, ln, sha, url
from tests.support.sparql_server import SparqlServer, sparql_server
from tests.triplestores.test_embedded_store import POOL, normalised

STATES = [set(POOL[:30]), set(POOL[10:40]), set(POOL[10:40]) | set(POOL[60:70]), set(), set(POOL[3:5])]


def text_of(state: set[bytes]) -> bytes:
    return b"".join(sorted(state))


@pytest.fixture
def site(source: Source) -> Site:
    one = Site(source)
    one.put("dataset.nq", text_of(STATES[0]))
    one.put("readme.txt", b"what this is")
    one.publish()
    return one


@pytest.fixture(scope="module")
def served() -> Iterator[SparqlServer]:
    with sparql_server() as one:
        yield one


@pytest.fixture
def server(served: SparqlServer) -> SparqlServer:
    served.store.clear()
    served.fault = None
    served.requests.clear()
    return served


def in_store(folder: Path) -> set[bytes]:
    store = EmbeddedStore(folder / "oxigraph")
    target = io.BytesIO()
    store.write_statements(target)
    return set(target.getvalue().splitlines(keepends=True))


def in_server(server: SparqlServer, site: Site) -> int:
    return sum(1 for quad in server.store if not quad.graph_name.value.endswith("#positions"))


def test_every_state_of_a_history_is_in_both_stores(
    site: Site, dest: Path, server: SparqlServer, tmp_path: Path
) -> None:
    """Loaded first, then patched by what has changed; a run without changes asks the stores where they are alone."""
    options: dict[str, Any] = {
        "store": str(tmp_path / "stores"),
        "sparql": server.update_url,
        "sparql_query": server.query_url,
    }
    for number, state in enumerate(STATES):
        if number:
            site.put("dataset.nq", text_of(state))
            site.publish()
        for done in ("loaded" if not number else "patched", "unchanged"):
            ran = go(site.source.base, dest, **options)
            assert ran.status == DONE, ran.notices
            assert [store.done for store in ran.one.dataset.stores] == [done, done]
            assert in_store(tmp_path / "stores" / "set") == normalised(state)
            assert in_server(server, site) == len(normalised(state))
    kept = sorted(path.name for path in (tmp_path / "stores" / "set").iterdir())
    assert kept == sorted([".headwater-state", "oxigraph", "state.json", f"{ran.one.dataset.sha256}.nq"])
    told = copy_status(dest)
    assert (told.partial_files, told.partial_octets) == (0, 0), "the state that is kept for the endpoint is whole"


def test_a_form_of_a_literal_goes_and_another_one_stays(
    site: Site, dest: Path, server: SparqlServer, tmp_path: Path
) -> None:
    """To the stores both are one (NQUD-A7): what they lost with the removed one is seen, and they are loaded anew."""
    options: dict[str, Any] = {
        "store": str(tmp_path / "s"), "sparql": server.update_url, "sparql_query": server.query_url,
    }  # fmt: skip
    forms = [one for one in POOL if b"XMLSchema#integer" in one and one.startswith(b"<http://example.org/a> ")]
    for state in (set(forms), set(forms[3:]), set(forms[6:])):
        site.put("dataset.nq", text_of(state))
        site.publish()
        ran = go(site.source.base, dest, **options)
        assert [store.done for store in ran.one.dataset.stores] == ["loaded", "loaded"]
        assert in_store(tmp_path / "s" / "set") == normalised(state)
        assert in_server(server, site) == len(normalised(state))
    assert check(site.source.base, dest, **options).verdict == "in sync"


def test_a_store_that_was_removed_or_is_foreign_is_loaded_again(site: Site, dest: Path, tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    go(site.source.base, dest, store=str(stores))
    shutil.rmtree(stores / "set" / "oxigraph")
    assert go(site.source.base, dest, store=str(stores)).one.dataset.stores[0].done == "loaded"
    for path in (stores / "set").glob("*.nq"):
        path.unlink()
    assert go(site.source.base, dest, store=str(stores)).one.dataset.stores[0].done == "unchanged"
    assert in_store(stores / "set") == normalised(STATES[0])


def test_a_kept_state_that_a_disk_has_damaged_is_not_gone_by(site: Site, dest: Path, tmp_path: Path) -> None:
    """What differs from it would not be what differs from the store: the dataset is loaded anew."""
    stores = tmp_path / "stores"
    go(site.source.base, dest, store=str(stores))
    (kept,) = (stores / "set").glob("*.nq")
    kept.write_bytes(b"".join(kept.read_bytes().splitlines(keepends=True)[:-3]))
    site.put("dataset.nq", text_of(STATES[1]))
    site.publish()
    assert go(site.source.base, dest, store=str(stores)).one.dataset.stores[0].done == "loaded"
    assert in_store(stores / "set") == normalised(STATES[1])


@pytest.mark.parametrize("first", [True, False], ids=["loaded", "patched"])
@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_store_follows_no_file_that_was_altered(
    first: bool, algorithm: str, site: Site, dest: Path, tmp_path: Path
) -> None:
    """DST-V: by a person or a disk, since it was verified: told, and the next repair brings copy and store up."""

    def publish(state: set[bytes]) -> None:
        site.put("dataset.nq", text_of(state))
        digest = hashlib.new(algorithm, text_of(state), usedforsecurity=False).hexdigest()
        listed = {"hash": f"{algorithm.replace('sha', 'sha-')}:{digest}"}
        site.publish_list([site.resource("dataset.nq", **listed)])
        site.publish_changes(site.clock)

    stores = tmp_path / "stores"
    publish(STATES[0])
    assert go(site.source.base, dest, store=None if first else str(stores)).status == DONE
    publish(STATES[1])
    assert go(site.source.base, dest).status == DONE
    (dest / "dataset.nq").write_bytes(text_of(STATES[2]))
    ran = go(site.source.base, dest, store=str(stores))
    assert ran.status == STORE
    assert "not what was verified" in ran.one.dataset.stores[0].fault
    assert first or in_store(stores / "set") == normalised(STATES[0])
    assert go(site.source.base, dest, repair=True, store=str(stores)).status == DONE
    assert in_store(stores / "set") == normalised(STATES[1])


@pytest.mark.parametrize("altered", [text_of(STATES[2]), b"no statement"], ids=["other statements", "damage"])
def test_a_store_gets_the_octets_that_were_verified(
    altered: bytes, site: Site, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for the store is what counts, not what was there a moment before."""
    assert go(site.source.base, dest).status == DONE

    def write(*args: Any, **options: Any) -> DatasetSummary:
        (dest / "dataset.nq").write_bytes(altered)
        return write_canonical(*args, **options)

    monkeypatch.setattr(dataset_sync, "write_canonical", write)
    ran = go(site.source.base, dest, store=str(tmp_path / "stores"))
    assert ran.status == STORE
    assert "not what was verified" in ran.one.dataset.stores[0].fault
    assert not (tmp_path / "stores" / "set" / "oxigraph").exists()


def test_a_file_of_canonical_statements_is_read_once_for_a_store(
    site: Site, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_sync, "file_has", None)
    assert go(site.source.base, dest, store=str(tmp_path / "stores")).status == DONE


def test_the_store_of_another_dataset_is_not_touched(site: Site, dest: Path, tmp_path: Path) -> None:
    """Two sources whose sets have one name, and one folder of stores: each copy keeps its own."""
    stores = tmp_path / "stores"
    go(site.source.base, dest, store=str(stores))
    with Source() as other:
        second = Site(other)
        second.put("dataset.nq", text_of(STATES[1]))
        second.publish()
        ran = go(other.base, tmp_path / "second", store=str(stores))
        assert ran.status == STORE
        assert "holds another dataset" in ran.one.dataset.stores[0].fault
        assert in_store(stores / "set") == normalised(STATES[0])
        assert go(site.source.base, dest, store=str(stores)).one.dataset.stores[0].done == "unchanged"
        shutil.rmtree(stores / "set")
        assert go(other.base, tmp_path / "second", store=str(stores)).status == DONE
        assert in_store(stores / "set") == normalised(STATES[1])


@pytest.mark.parametrize("folder", [".", "stores", "../copy/stores"])
def test_stores_do_not_lie_in_the_copy(site: Site, dest: Path, folder: str) -> None:
    """An audit would find there what the source does not have."""
    assert go(site.source.base, dest, store=str(dest / folder)).status == USAGE
    assert not dest.exists()


def test_a_store_that_no_run_has_loaded_is_not_touched(site: Site, dest: Path, tmp_path: Path) -> None:
    """An empty one is filled."""
    folder = tmp_path / "stores" / "set" / "oxigraph"
    for text, status in ((b"", DONE), (b"<urn:mine:a> <urn:mine:b> <urn:mine:c> .", STORE)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        mine = pyoxigraph.Store(str(folder))
        mine.load(text, pyoxigraph.RdfFormat.N_QUADS)
        mine.flush()
        del mine
        assert go(site.source.base, dest, store=str(tmp_path / "stores")).status == status
    held = pyoxigraph.Store.read_only(str(folder))
    assert len(held) == 1


def test_a_store_goes_with_its_copy_when_the_source_moves(site: Site, dest: Path, tmp_path: Path) -> None:
    """The dataset has another URI then: it is loaded again."""
    stores = str(tmp_path / "stores")
    go(site.source.base, dest, store=stores)
    with Source() as other:
        moved = Site(other)
        moved.put("dataset.nq", text_of(STATES[0]))
        moved.put("readme.txt", b"what this is")
        moved.publish()
        ran = go(other.base, dest, store=stores, moved=True)
        assert ran.status == DONE, ran.notices
        assert ran.one.dataset.stores[0].done == "loaded"


def test_graphs_behind_an_endpoint_go_with_their_copy_when_the_source_moves(
    site: Site, dest: Path, server: SparqlServer
) -> None:
    """The named graphs of the dataset were those of another one else, for ever (HW-TRI-01)."""
    named = [b'<urn:a:s> <urn:a:p> "x" <urn:a:g> .\n', b'<urn:a:s> <urn:a:p> "y" .\n']
    options: dict[str, Any] = {"sparql": server.update_url, "sparql_query": server.query_url}
    site.put("dataset.nq", b"".join(named))
    site.publish()
    server.store.update('INSERT DATA { GRAPH <urn:mine> { <urn:m> <urn:m> "m" } }')
    assert go(site.source.base, dest, **options).status == DONE
    with Source() as other:
        moved = Site(other)
        moved.put("dataset.nq", b"".join(named))
        moved.put("readme.txt", b"what this is")
        moved.publish()
        ran = go(other.base, dest, moved=True, **options)
        assert ran.status == DONE, ran.notices
        graphs = {str(quad.graph_name.value) for quad in server.store if "#positions" not in str(quad.graph_name)}
        assert graphs == {"urn:mine", "urn:a:g", ran.one.dataset.uri}
        assert in_server(server, moved) == 3
        assert not any(site.source.base in str(quad.object) for quad in server.store)
        assert go(other.base, dest, **options).one.dataset.stores[0].done == "unchanged"


def test_a_large_change_is_loaded_as_a_whole(
    site: Site, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.sync.dataset_sync.EmbeddedStore.most_changes", 5)
    stores = tmp_path / "stores"
    go(site.source.base, dest, store=str(stores))
    site.put("dataset.nq", text_of(STATES[1]))
    site.publish()
    assert go(site.source.base, dest, store=str(stores)).one.dataset.stores[0].done == "loaded"
    assert in_store(stores / "set") == normalised(STATES[1])


BROKEN = [
    ("no RDF", b"<urn:a> <urn:b>\n"),
    ("not UTF-8", b'<urn:a> <urn:b> "\xff" .\n'),
    ("a relative IRI", b"<a> <urn:b> <urn:c> .\n"),
    ("truncated gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"),
]


@pytest.mark.parametrize("body", [body for _, body in BROKEN], ids=[name for name, _ in BROKEN])
def test_a_dataset_that_is_no_rdf_leaves_the_store_as_it_was(
    site: Site, dest: Path, tmp_path: Path, body: bytes
) -> None:
    """The file is what the source publishes, and is copied; the store keeps the last good state (NQUD-A3)."""
    stores = tmp_path / "stores"
    go(site.source.base, dest, store=str(stores))
    site.put("dataset.nq", body)
    site.publish()
    ran = go(site.source.base, dest, store=str(stores))
    assert ran.status == SOURCE
    assert ran.one.dataset.stores[0].done == "failed"
    assert in_store(stores / "set") == normalised(STATES[0])
    site.put("dataset.nq", text_of(STATES[1]))
    site.publish()
    assert go(site.source.base, dest, store=str(stores)).status == DONE
    assert in_store(stores / "set") == normalised(STATES[1])


def test_an_endpoint_that_fails_in_the_middle_is_brought_up_by_the_next_run(
    site: Site, dest: Path, server: SparqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the dataset has changed again meanwhile: what was begun is done first."""
    monkeypatch.setattr("headwater.triplestores.sparql_updates.MOST_STATEMENTS", 5)
    monkeypatch.setattr("headwater.triplestores.sparql_endpoint._PATIENT", TransportOptions(retries=0))
    options: dict[str, Any] = {"sparql": server.update_url, "sparql_query": server.query_url}
    assert go(site.source.base, dest, **options).status == DONE
    for failing in range(1, 20):
        state = set(POOL[3 * failing : 3 * failing + 25])
        site.put("dataset.nq", text_of(state))
        site.publish()
        left = [failing]

        def fault(kind: str, text: str, left: list[int] = left) -> tuple[int, str, bytes] | None:
            left[0] -= kind == "update"
            return (500, "text/plain", b"out of memory") if left[0] < 0 else None

        server.fault = fault
        ran = go(site.source.base, dest, **options)
        server.fault = None
        if left[0] >= 0:
            assert failing >= 5
            break
        assert ran.status == STORE
        if failing % 2:
            state = set(POOL[3 * failing + 1 : 3 * failing + 20])
            site.put("dataset.nq", text_of(state))
            site.publish()
        ran = go(site.source.base, dest, **options)
        assert ran.status == DONE, ran.notices
        assert in_server(server, site) == len(normalised(state))


def test_a_store_on_its_way_to_a_state_that_nobody_has_kept_is_loaded(
    site: Site, dest: Path, server: SparqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy was removed after a patch that broke off, and the source is where it was before: the position still
    says so, and the store has lost what the patch has removed."""
    monkeypatch.setattr("headwater.triplestores.sparql_endpoint._PATIENT", TransportOptions(retries=0))
    options: dict[str, Any] = {"sparql": server.update_url, "sparql_query": server.query_url}
    assert go(site.source.base, dest, **options).status == DONE
    site.put("dataset.nq", text_of(STATES[1]))
    site.publish()
    server.fault = lambda _, text: (401, "text/plain", b"no") if text.startswith("INSERT DATA") else None
    assert go(site.source.base, dest, **options).status == STORE
    server.fault = None
    assert in_server(server, site) < len(normalised(STATES[0]))
    shutil.rmtree(dest)
    site.put("dataset.nq", text_of(STATES[0]))
    site.publish()
    ran = go(site.source.base, dest, **options)
    assert ran.status == DONE, ran.notices
    assert ran.one.dataset.stores[0].done == "loaded"
    assert in_server(server, site) == len(normalised(STATES[0]))


@pytest.mark.parametrize(
    "answer",
    [(405, "text/plain", b"read-only"), (200, "text/plain", b"Error 500: disk full"), (200, "text/html", b"<html>")],
    ids=["read-only", "200 with an error", "a page"],
)
def test_an_endpoint_that_does_nothing_is_told(
    site: Site, dest: Path, server: SparqlServer, answer: tuple[int, str, bytes]
) -> None:
    server.fault = lambda kind, _: answer if kind == "update" else None
    ran = go(site.source.base, dest, sparql=server.update_url, sparql_query=server.query_url)
    assert ran.status == STORE
    assert (dest / "dataset.nq").read_bytes() == text_of(STATES[0])  # the copy is whole, whatever becomes of stores


CHOICES = [
    ("two, and none is named so", ["a.nq", "b.ttl"], None, None),
    ("the user says", ["a.nq", "b.nq"], "b.nq", "b.nq"),
    ("dataset.* before others", ["a.nq", "dataset.ttl"], None, "dataset.ttl"),
    ("the only one", ["a.rdf.txt", "b.nq"], None, "b.nq"),
]


@pytest.mark.parametrize(("names", "wanted", "found"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_which_file_is_the_dataset(
    source: Source, dest: Path, tmp_path: Path, names: list[str], wanted: str | None, found: str | None
) -> None:
    """TIM-A5, TIM-11, TIM-A14."""
    one = Site(source)
    for name in names:
        one.put(name, f"<http://example.org/{name}> <urn:p> <urn:o> .\n".encode())
    one.publish()
    ran = go(source.base, dest, store=str(tmp_path / "stores"), dataset=wanted)
    if found is None:
        assert ran.status == SOURCE
        assert "TIM-A5" in ran.rules()
    else:
        assert ran.one.dataset.uri == one.uri(found)
        assert in_store(tmp_path / "stores" / "set") == {f"<http://example.org/{found}> <urn:p> <urn:o> .\n".encode()}


def test_the_flag_of_the_existing_exporter_is_seen(source: Source, dest: Path, tmp_path: Path) -> None:
    """TIM-A5: with or without a namespace."""
    one = Site(source)
    one.put("a.nq", b"<urn:a> <urn:p> <urn:o> .\n")
    one.put("dataset.nq", b"<urn:b> <urn:p> <urn:o> .\n")
    one.publish_list([one.resource("a.nq", isDataset="true"), one.resource("dataset.nq")])
    one.publish_capabilities("resourcelist")
    one.publish_description()
    ran = go(source.base, dest, store=str(tmp_path / "stores"))
    assert ran.one.dataset.uri == one.uri("a.nq"), ran.notices


FLAGS = [
    ("plain, beside dataset.ttl", {"isDataset": "true"}, "dataset.ttl"),
    ("in a namespace, beside a file", {"xmlns:t": "urn:t", "t:isDataset": "true"}, "A.ttl"),
    ("plain, beside a file", {"isDataset": "1"}, "A.ttl"),
]


@pytest.mark.parametrize(("flag", "other"), [f[1:] for f in FLAGS], ids=[f[0] for f in FLAGS])
@pytest.mark.parametrize("at_loc", [False, True], ids=["linked", "at-loc"])
def test_the_flag_holds_until_a_list_says_otherwise(
    source: Source, dest: Path, tmp_path: Path, flag: dict[str, str], other: str, at_loc: bool
) -> None:
    """A Change List that does not repeat it changes nothing, not at the first run and not later (TIM-A5)."""
    one, stores = Site(source), tmp_path / "stores"
    one.put(other, b'<urn:other> <urn:p> "of another file" .\n', change=False)
    entries: list[str] = []

    def to(number: int) -> bytes:
        lines = [f'<urn:a> <urn:p> "{n}" .\n'.encode() for n in range(number)]
        one.put("people.nq", b"".join(lines), change=False)
        one.clock = 10.0 * number
        patch = one.uri(f"changes{number}.nqud")
        source.pages[f"/set/resources/changes{number}.nqud"] = Reply(b"+" + lines[-1])
        kind = "created" if number == 1 else "updated"
        if at_loc:
            entries.append(url(patch, change=kind, datetime=at(one.clock), type=N_QUADS_DIFF))
        else:
            link = ln("http://www.openarchives.org/rs/terms/patch", patch, type=N_QUADS_DIFF)
            known: dict[str, Any] = {"hash": sha(b"".join(lines)), "length": len(b"".join(lines))}
            entries.append(url(one.uri("people.nq"), links=link, change=kind, datetime=at(one.clock), **known))
        return b"".join(lines)

    def publish(**flags: str) -> None:
        one.publish_list([one.resource(other), one.resource("people.nq", **flags)])
        one.publish_changes(one.clock + 500, entries=entries)
        one.publish_capabilities("resourcelist", "changelist")
        one.publish_description()

    for number in (1, 2, 3):
        text = to(number)
        publish(**flag)
        ran = go(source.base, dest, store=str(stores))
        assert (ran.status, ran.one.dataset.uri) == (DONE, one.uri("people.nq")), ran.notices
        assert in_store(stores / "set") == set(text.splitlines(keepends=True))
        assert check(source.base, dest, store=str(stores)).verdict == "in sync"
    publish(**{name: value.replace("true", "false").replace("1", "0") for name, value in flag.items()})
    ran = go(source.base, dest, store=str(stores), baseline=True)
    assert "of another file" in str(in_store(stores / "set")) if other == "dataset.ttl" else ran.status == SOURCE


def test_no_other_file_takes_the_place_of_a_flagged_one_that_is_deleted(
    source: Source, dest: Path, tmp_path: Path
) -> None:
    """TIM-A5: the store stays until the file comes again, with or without the flag."""
    one, stores = Site(source), tmp_path / "stores"
    for name in ("dataset.nq", "people.nq"):
        one.put(name, f"<urn:{name}> <urn:p> <urn:o> .\n".encode(), change=False)
    one.publish()
    one.publish_list([one.resource("dataset.nq"), one.resource("people.nq", isDataset="true")])
    assert go(source.base, dest, store=str(stores)).status == DONE
    one.drop("people.nq")
    one.publish()
    ran = go(source.base, dest, store=str(stores), max_delete=1.0)
    assert any("has no RDF dataset any more" in notice.message for notice in ran.notices)
    assert in_store(stores / "set") == {b"<urn:people.nq> <urn:p> <urn:o> .\n"}
    one.put("people.nq", b"<urn:again> <urn:p> <urn:o> .\n")
    one.publish()
    assert go(source.base, dest, store=str(stores)).one.dataset.uri == one.uri("people.nq")
    assert in_store(stores / "set") == {b"<urn:again> <urn:p> <urn:o> .\n"}


def test_an_audit_compares_what_stores_hold_with_the_dataset(
    site: Site, dest: Path, server: SparqlServer, tmp_path: Path
) -> None:
    """By the hash of canonical N-Quads; where a store normalises literals both are compared so, and it is told."""
    options: dict[str, Any] = {
        "store": str(tmp_path / "s"), "sparql": server.update_url, "sparql_query": server.query_url,
    }  # fmt: skip

    def verdicts() -> tuple[str, list[str]]:
        report = check(site.source.base, dest, **options)
        return report.verdict, [one.verdict for one in report.sets[0].stores]

    go(site.source.base, dest)
    assert verdicts() == ("not in sync", ["missing", "missing"])
    go(site.source.base, dest, **options)
    assert verdicts() == ("in sync", ["same after normalisation"] * 2)
    plain = {one for one in STATES[0] if b"XMLSchema" not in one}
    site.put("dataset.nq", text_of(plain))
    site.publish()
    go(site.source.base, dest, **options)
    assert verdicts() == ("in sync", ["same", "same"])
    server.store.update(f"INSERT DATA {{ GRAPH <{site.uri('dataset.nq')}> {{ <urn:s> <urn:p> <urn:o> }} }}")
    assert verdicts() == ("not in sync", ["same", "different"])
    server.fault = lambda kind, _: (403, "text/plain", b"no")
    assert verdicts() == ("undetermined", ["same", "unreadable"])


DAMAGES = [
    ("a graph is gone", "DROP GRAPH <urn:g>", {}),
    ("a graph is gone, and the dataset changes", "DROP GRAPH <urn:g>", {"changes": True}),
    ("one statement more", "INSERT DATA { GRAPH <urn:g> { <urn:x> <urn:p> 1 } }", {}),
    ("one for another", "DELETE {X} INSERT {Y} WHERE {X}", {"repair": True}),
    ("one for another", "DELETE {X} INSERT {Y} WHERE {X}", {"baseline": True}),
    ("one for another, and the dataset changes", "DELETE {X} INSERT {Y} WHERE {X}", {"repair": True, "changes": True}),
]


@pytest.mark.parametrize(("damage", "options"), [d[1:] for d in DAMAGES], ids=[f"{d[0]} {d[2]}" for d in DAMAGES])
def test_a_store_that_somebody_else_has_altered_is_loaded_anew(
    site: Site, dest: Path, server: SparqlServer, tmp_path: Path, damage: str, options: dict[str, bool]
) -> None:
    """A number of statements that is another is seen by each run; `--repair` and `--baseline` compare all of them."""
    stores: dict[str, Any] = {
        "store": str(tmp_path / "s"), "sparql": server.update_url, "sparql_query": server.query_url,
    }  # fmt: skip
    state = {one for one in STATES[0] if b"XMLSchema" not in one}  # else all statements are compared in each run
    state |= {f"<urn:{n}> <urn:p> <urn:o> <urn:g> .\n".encode() for n in range(8)}
    site.put("dataset.nq", text_of(state))
    site.publish()
    assert go(site.source.base, dest, **stores).status == DONE
    for x, y in (
        ("X", "GRAPH <urn:g> { <urn:1> <urn:p> <urn:o> }"),
        ("Y", "GRAPH <urn:g> { <urn:y> <urn:p> <urn:o> }"),
    ):
        damage = damage.replace(f"{{{x}}}", f"{{ {y} }}")
    server.store.update(damage)
    held = pyoxigraph.Store(str(tmp_path / "s/set/oxigraph"))
    held.update(damage)
    del held
    asked: dict[str, Any] = dict(options)
    if asked.pop("changes", False):
        site.put("dataset.nq", text_of(state := state - set(POOL[:3])))
        site.publish()
    elif options:
        assert check(site.source.base, dest, **stores).verdict == "not in sync"
        assert [one.done for one in go(site.source.base, dest, **stores).one.dataset.stores] == ["unchanged"] * 2
    ran = go(site.source.base, dest, **stores, **asked)
    assert (ran.status, [one.done for one in ran.one.dataset.stores]) == (DONE, ["loaded"] * 2), ran.notices
    assert "DST-C10" in ran.rules()
    assert in_store(tmp_path / "s/set") == normalised(state)
    assert in_server(server, site) == len(normalised(state))
    assert check(site.source.base, dest, **stores).verdict == "in sync"
    again = go(site.source.base, dest, **stores, **asked)
    assert ([one.done for one in again.one.dataset.stores], again.rules() & {"DST-C10"}) == (["unchanged"] * 2, set())


def test_two_sets_have_stores_of_their_own_and_never_share_a_graph(
    source: Source, dest: Path, server: SparqlServer, tmp_path: Path
) -> None:
    sites = [Site(source, name) for name in ("one", "two")]
    for n, one in enumerate(sites):
        one.put("dataset.nq", f"<urn:{n}> <urn:p> <urn:o> .\n<urn:{n}> <urn:p> <urn:o> <urn:shared> .\n".encode())
        one.publish()
    sites[0].publish_description("one", "two")
    options: dict[str, Any] = {
        "store": str(tmp_path / "s"),
        "sparql": server.update_url,
        "sparql_query": server.query_url,
    }
    ran = go(source.base, dest, **options)
    assert ran.report is not None
    told = {one.name: [store.done for store in one.dataset.stores] for one in ran.report.sets if one.dataset}
    assert told == {"one": ["loaded", "loaded"], "two": ["loaded", "failed"]}
    assert [len(in_store(tmp_path / "s" / name)) for name in ("one", "two")] == [2, 2]
    assert not any("<urn:1>" in str(quad) for quad in server.store)


def test_nothing_is_done_in_a_dry_run_and_nothing_without_a_dataset(source: Source, dest: Path, tmp_path: Path) -> None:
    one = Site(source)
    one.put("a.txt", b"no RDF")
    one.publish()
    ran = go(source.base, dest, store=str(tmp_path / "s"))
    assert ran.one.dataset is None
    assert "TIM-A5" in ran.rules()
    one.put("dataset.nq", b"")
    one.publish()
    assert go(source.base, dest, store=str(tmp_path / "s"), dry_run=True).one.dataset is None
    assert not (tmp_path / "s").exists()
    assert go(source.base, dest, store=str(tmp_path / "s")).one.dataset.quads == 0


def test_a_dataset_that_is_gone_or_called_otherwise_is_told(site: Site, dest: Path, tmp_path: Path) -> None:
    """The store stays as it is: nobody said that the dataset is empty."""
    stores = tmp_path / "s"
    assert "TIM-A5" in go(site.source.base, dest, store=str(stores), dataset="other.nq").rules()
    assert "TIM-A5" not in go(site.source.base, dest, store=str(stores)).rules()
    site.drop("dataset.nq")
    site.publish()
    ran = go(site.source.base, dest, store=str(stores), max_delete=1.0)
    assert any("has no RDF dataset any more" in notice.message for notice in ran.notices)
    assert in_store(stores / "set") == normalised(STATES[0])


REFUSAL = (400, "text/plain", b"not now")


class Killed(BaseException):
    """Ends a run as nothing else does."""


class Cut:
    """Ends what runs at one of the calls by which a store is changed."""

    def __init__(self) -> None:
        self.left = 0

    def count(self) -> bool:
        """Note one more of them; whether it is the one, or one after it."""
        self.left -= 1
        return self.left <= 0


def cut_embedded(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pyoxigraph.Store

    class Dying:
        read_only = staticmethod(real.read_only)

        def __init__(self, *place: str) -> None:
            self.store = real(*place)

        def __getattr__(self, name: str) -> Any:
            if name in ("update", "extend", "add", "remove", "bulk_load", "bulk_extend", "clear") and cut.count():
                raise Killed
            return getattr(self.store, name)

        def __iter__(self) -> Iterator[Any]:
            return iter(self.store)

    monkeypatch.setattr(pyoxigraph, "Store", Dying)


def said_and_held(kind: str, folder: Path, server: SparqlServer, dataset: str) -> tuple[str | None, set[bytes]]:
    """The SHA-256 of the state that a store says that it has, if it says so, and the statements that it has."""
    if kind == "embedded":
        position = EmbeddedStore(folder / "oxigraph").state().position
        return None if position is None else position.sha256, in_store(folder)
    with closing(SparqlEndpoint(EndpointAddress(update=server.update_url, query=server.query_url))) as endpoint:
        followed = SparqlStore(endpoint, dataset, server.update_url)
        state, target = followed.state(), io.BytesIO()
        followed.write_statements(target)
    said = state.position.sha256 if state.position is not None and state.under_way is None else None
    return said, set(target.getvalue().splitlines(keepends=True))


@pytest.mark.parametrize("kind", ["embedded", "endpoint"])
def test_a_store_that_is_cut_at_any_update_says_no_more_than_it_has(
    kind: str, site: Site, dest: Path, server: SparqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is that of the statements at each moment, and the next run makes both those of the file (DST-F7).

    Also where the number of statements stays: then nothing but the position tells that something is to be done.
    """
    names = [b'<http://example.org/%d> <http://example.org/p> "%%s" .\n' % number for number in range(9)]
    options: dict[str, Any] = {"store": str(tmp_path / "s")}
    if kind == "endpoint":
        options = {"sparql": server.update_url, "sparql_query": server.query_url}
    cut = Cut()
    for step in range(1, 100):
        site.put("dataset.nq", text_of({name % b"%d" % step for name in names}))
        site.publish()
        assert go(site.source.base, dest, **options).status == DONE
        site.put("dataset.nq", text_of({name % b"new %d" % step for name in names}))
        site.publish()
        cut.left = step
        with monkeypatch.context() as patch:
            if kind == "embedded":
                cut_embedded(cut, patch)
            else:
                server.fault = lambda kind, _: REFUSAL if kind == "update" and cut.count() else None
            with suppress(Killed):
                go(site.source.base, dest, **options)
            server.fault = None
        said, held = said_and_held(kind, tmp_path / "s" / "set", server, site.uri("dataset.nq"))
        assert said in (None, hashlib.sha256(text_of(held)).hexdigest()), step
        assert go(site.source.base, dest, **options).status == DONE
        said, held = said_and_held(kind, tmp_path / "s" / "set", server, site.uri("dataset.nq"))
        assert text_of(held) == site.files["dataset.nq"], step
        assert said == hashlib.sha256(site.files["dataset.nq"]).hexdigest()
        if cut.left > 0:
            return
    raise AssertionError("it is never done")
