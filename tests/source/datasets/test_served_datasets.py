"""Sources of datasets at work: each kind of what one is made of, followed by a server, and copied."""

from __future__ import annotations

import datetime as dt
import gzip
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import pyoxigraph as ox
import pytest

from headwater.datasets.rows import dataset_statuses
from headwater.publish import dataset_documents
from headwater.retry import Backoff
from headwater.source import published_dataset
from headwater.source.config import SetConfig
from headwater.source.health import records
from headwater.triplestores.sparql_endpoint import EndpointAddress, SparqlEndpoint
from headwater.triplestores.sparql_store import SparqlStore
from headwater.triplestores.sparql_updates import StorePosition
from tests.source.datasets.dataset_source import DatasetServer, dataset_server, file_set, triples
from tests.source.datasets.test_published_datasets import put
from tests.support.copying import DONE, check, go
from tests.support.serving import Answer
from tests.support.sparql_server import SparqlServer, sparql_server
from tests.support.waiting import until

QUERY = "SELECT ?g"


def shows(running: DatasetServer, text: str, name: str = "d") -> None:
    """Wait until the dataset is this, and its patches lead to it."""
    wanted = "".join(sorted(text.splitlines(keepends=True))).encode()

    def is_there() -> bool:
        return running.get(f"/{name}/dataset.nq").body == wanted and in_resource_list(running, name)

    until(is_there, what=f"{len(wanted)} octets of {name}")
    assert b"".join(sorted(running.imported(name))) == wanted


def in_resource_list(running: DatasetServer, name: str) -> bool:
    if not running.source.is_site_published():
        return False
    seq = running.source.catalog.state(name).last_seq
    told = {one["name"]: one for one in msgspec.json.decode(running.get("/health").body)["sets"]}
    return bool(told[name].get("published_changes") == seq)


def failing(running: DatasetServer, words: str) -> None:
    """Wait until the health of the set says so."""
    until(lambda: words in str(running.health()["sets"]), what=words)


def test_a_dataset_that_rests_while_its_history_begins_anew_can_be_copied(tmp_path: Path) -> None:
    """AMB-23, TIM-A4: by another base URL, at the start; the Resource List is not of before the Change List."""
    path = put(tmp_path / "d.nt", triples(1))
    for number in range(2):  # each server has another port, and so another base URL
        with dataset_server(tmp_path / "state", [file_set(path)]) as running:
            until(lambda: in_resource_list(running, "d"))
            ran = go(running.url, tmp_path / f"copy{number}")
            assert ran.status == DONE, ran.notices
            assert check(running.url, tmp_path / f"copy{number}").verdict == "in sync"


def test_a_file_and_a_folder_are_followed(tmp_path: Path) -> None:
    """Each change is published by itself; what fails is told and tried again, and what was published stays."""
    path, folder = put(tmp_path / "d.nt", triples(1)), tmp_path / "folder"
    folder.mkdir()
    put(folder / "a.nt", triples(1))
    with dataset_server(
        tmp_path / "state", [file_set(path, dataset_seconds=0.05), file_set(folder, "f", dataset_seconds=0.05)]
    ) as running:
        shows(running, triples(1))
        put(path, triples(1, 2))
        put(folder / "b.nt", triples(5))
        shows(running, triples(1, 2))
        shows(running, triples(1, 5), "f")
        assert f'<a href="{running.url}/f/dataset.nq">RDF dataset</a>'.encode() in running.get("/").body
        put(path, "no RDF")
        failing(running, "HW-RDF-01")
        shows(running, triples(1, 2))
        put(path, triples(2, 3))
        shows(running, triples(2, 3))
        until(lambda: running.health()["well"], what="health")
        assert all(one["last_look_at"] for one in records(running.health()["sets"]))
        changes = running.source.catalog.changes("d")
        assert [one.change.value for one in changes] == ["created", "updated", "updated"]
        assert go(running.url, tmp_path / "copy").status == DONE
        assert (tmp_path / "copy" / "d" / "dataset.nq").read_text() == triples(2, 3)
        assert check(running.url, tmp_path / "copy").exit_status == DONE


def test_copies_and_stores_in_the_folder_are_no_part_of_the_dataset(tmp_path: Path) -> None:
    """What was removed would come back from them for ever."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = put(folder / "a.nt", triples(1, 2))
    with dataset_server(tmp_path / "state", [file_set(folder, dataset_seconds=0.05)]) as running:
        shows(running, triples(1, 2))

        def copied() -> bool:
            return go(running.url, folder / "copy", store=str(folder / "stores")).status == DONE

        until(copied, what="the copy")
        put(path, triples(2, 3))
        shows(running, triples(2, 3))
        until(copied, what="the change")
        put(path, triples(3))
        shows(running, triples(3))


def test_tim_a9_the_dataset_is_compressed_as_content_coding_only(tmp_path: Path) -> None:
    """`encoding` is never stated; gzip is for those who accept it, with a tag of its own."""
    text = triples(*range(1000))
    with dataset_server(tmp_path / "state", [file_set(put(tmp_path / "d.nt", text))]) as running:
        shows(running, text)
        assert b"gzip" not in running.get("/d/resourcelist.xml").body
        patch = running.get("/d/changelist.xml").body.partition(b'href="')[2].partition(b'href="')[2].partition(b'"')[0]
        for target, kind in (
            ("/d/dataset.nq", "application/n-quads"),
            (patch.decode().removeprefix(running.url), "application/vnd.timbuctoo-rdf.nquads_unified_diff"),
        ):
            plain, packed = running.get(target), running.get(target, accept_encoding="gzip")
            assert (plain.status, plain.headers["content-type"]) == (200, kind)
            assert "content-encoding" not in plain.headers
            assert packed.headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed.body) == plain.body
            assert packed.headers["etag"] != plain.headers["etag"]
            assert running.get(target, range="bytes=0-9").body == plain.body[:10]
        leads_to = running.get("/d/dataset.nq").headers["link"]
        assert leads_to.startswith(f'<{running.url}/d/capabilitylist.xml>; rel="resourcesync"')  # RS-DISC-04, TIM-02
        about: Answer = running.get("/d/description.ttl")
        assert about.headers["content-type"] == "text/turtle; charset=utf-8"


FORMS = {
    "application/n-quads": ("dataset.nq", ox.RdfFormat.N_QUADS),
    "text/turtle": ("dataset.ttl", ox.RdfFormat.TURTLE),
    "application/ld+json": ("dataset.jsonld", ox.RdfFormat.JSON_LD),
}


def test_a_small_dataset_is_there_in_the_syntax_that_is_asked_for(tmp_path: Path) -> None:
    """As it is after each change; `dataset.nq` itself is always what the lists say of it."""
    path = put(tmp_path / "d.nt", triples(1))
    with dataset_server(tmp_path / "state", [file_set(path, dataset_seconds=0.05)]) as running:
        for numbers in ((1,), (1, 2)):
            put(path, triples(*numbers))
            shows(running, triples(*numbers))
            for kind, (file, syntax) in FORMS.items():
                answer = running.get("/d/dataset", accept=kind)
                assert (answer.status, answer.headers["content-type"]) == (200, kind)
                assert answer.headers["content-location"] == f"{running.url}/d/{file}"
                assert "Accept" in answer.headers["vary"].split(", ")
                assert answer.body == running.get(f"/d/{file}").body
                assert {str(one.triple) for one in ox.parse(answer.body, syntax)} == {
                    str(one.triple) for one in ox.parse(triples(*numbers).encode(), ox.RdfFormat.N_TRIPLES)
                }
        assert running.get("/d/dataset").headers["content-location"].endswith("/d/dataset.nq")
        assert running.get("/d/dataset.nq", accept="text/turtle").body == triples(1, 2).encode()
        refused = running.get("/d/dataset", accept="image/png")
        assert (refused.status, refused.body.count(b"/d/dataset.")) == (406, 3)
        assert running.get("/d/description", accept="application/ld+json").body.startswith(b"{")
        assert running.get("/d/dataset.trig").status == 404


def test_named_graphs_make_a_small_dataset_one_in_trig(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nq", triples(1) + triples(2).replace(" .", " <http://g.example/> ."))
    with dataset_server(tmp_path / "state", [file_set(path)]) as running:
        shows(running, path.read_text())
        assert running.get("/d/dataset", accept="text/turtle").status == 406
        answer = running.get("/d/dataset", accept="application/trig")
        assert answer.headers["content-type"] == "application/trig"
        assert len(list(ox.parse(answer.body, ox.RdfFormat.TRIG))) == 2


def test_a_large_dataset_is_n_quads_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it has become large: what was there of it before is offered no more."""
    path = put(tmp_path / "d.nt", triples(1))
    monkeypatch.setattr(dataset_documents, "FORMS_OCTETS", 200)
    with dataset_server(tmp_path / "state", [file_set(path, dataset_seconds=0.05)]) as running:
        shows(running, triples(1))
        assert running.get("/d/dataset", accept="text/turtle").status == 200
        assert '/d/dataset.ttl>; rel="alternate"; type="text/turtle"' in running.get("/d/dataset.nq").headers["link"]
        put(path, triples(*range(20)))
        shows(running, triples(*range(20)))
        assert running.get("/d/dataset", accept="text/turtle").status == 406
        assert {running.get(f"/d/dataset.{one}").status for one in ("ttl", "jsonld")} == {404}
        assert "/d/dataset.ttl" not in running.get("/d/dataset.nq").headers["link"]


def test_a_dataset_leads_to_what_describes_it(tmp_path: Path) -> None:
    licence, own = "https://licence.example/", "https://about.example/"
    path = put(tmp_path / "d.nt", triples(1))
    with dataset_server(tmp_path / "state", [file_set(path, licence=licence, describedby=own)]) as running:
        shows(running, triples(1))
        said = running.get("/d/dataset.nq", "HEAD").headers["link"]
        home = f"{running.url}/d"
        for link in (
            f'<{home}/dataset>; rel="canonical"',
            f'<{home}/dataset.ttl>; rel="alternate"; type="text/turtle"',
            f'<{home}/description.ttl>; rel="describedby"; type="text/turtle"',
            f'<{home}/description.jsonld>; rel="describedby"; type="application/ld+json"',
            f'<{own}>; rel="describedby"',
            f'<{licence}>; rel="license"',
        ):
            assert link in said
        about = running.get("/d/description.ttl").headers["link"]
        assert f'<{home}/dataset.nq>; rel="describes"; type="application/n-quads"' in about


def endpoint(server: SparqlServer, **options: object) -> SetConfig:
    return SetConfig(name="d", profile="rdf-dataset", sparql=server.query_url, dataset_seconds=0.05, **options)  # type: ignore[arg-type]


def test_an_endpoint_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default graph and named ones; credentials come from the environment."""
    monkeypatch.setenv("ENDPOINT", "Basic dXNlcjpwYXNz")
    with sparql_server() as server:
        server.store.load(triples(1).encode(), ox.RdfFormat.N_TRIPLES)
        config = endpoint(server, sparql_authorization_env="ENDPOINT")
        with dataset_server(tmp_path / "state", [config]) as running:
            shows(running, triples(1))
            server.store.update(
                'INSERT DATA { GRAPH <http://g.example/> { <http://d.example/s1> <http://d.example/p> "ä" } }'
            )
            named = '<http://d.example/s1> <http://d.example/p> "ä" <http://g.example/> .\n'
            shows(running, triples(1) + named)
            server.store.update("DELETE WHERE { ?s ?p ?o }")
            shows(running, named)
        assert {authorization for _kind, _text, authorization in server.requests} == {"Basic dXNlcjpwYXNz"}


def test_the_positions_of_an_endpoint_that_a_sync_keeps_are_none_of_the_dataset(tmp_path: Path) -> None:
    """What `sync --sparql` notes there says something of the store, and changes when nothing else does."""
    with sparql_server() as server:
        with closing(SparqlEndpoint(EndpointAddress(update=server.update_url, query=server.query_url))) as address:
            store = SparqlStore(address, "u:d", "u:d")
            store.load(put(tmp_path / "d.nq", triples(1)), StorePosition("u:d", "a" * 64, 1))
        with dataset_server(tmp_path / "state", [endpoint(server)]) as running:
            shows(running, triples(1).replace(" .", " <u:d> ."))


FAULTS: dict[str, tuple[Callable[[str], tuple[int, str, bytes] | None], str]] = {
    "fails in the middle": (
        lambda text: (0, "text/tab-separated-values", b"?g\t?s\t?p\t?o\n\t<http://d.exa") if QUERY in text else None,
        "HW-SPQ-02",
    ),
    "says 200 with an error": (lambda _text: (200, "text/html", b"<html>sorry</html>"), "HW-SPQ-04"),
    "ends its answer with an error": (
        lambda text: (
            (200, "text/tab-separated-values", b"?g\t?s\t?p\t?o\nError: out of memory\n") if QUERY in text else None
        ),
        "HW-SPQ-04",
    ),
    "leaves rows out": (
        lambda text: (200, "text/tab-separated-values", b"?g\t?s\t?p\t?o\n") if QUERY in text else None,
        "HW-DAT-02",
    ),
    "refuses": (lambda _text: (403, "text/plain", b"no"), "HW-SPQ-03"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_an_endpoint_that_misbehaves_changes_nothing(tmp_path: Path, kind: str) -> None:
    fault, code = FAULTS[kind]
    with sparql_server() as server:
        server.store.load(triples(1, 2).encode(), ox.RdfFormat.N_TRIPLES)
        with dataset_server(tmp_path / "state", [endpoint(server)]) as running:
            shows(running, triples(1, 2))
            server.fault = lambda _kind, text: fault(text)
            failing(running, code)
            shows(running, triples(1, 2))
            server.fault = None
            server.store.load(triples(3).encode(), ox.RdfFormat.N_TRIPLES)
            shows(running, triples(1, 2, 3))
            assert len(running.source.catalog.changes("d")) == 2


def test_a_store_is_followed_when_nobody_has_it_open(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = ox.Store(folder)
    store.load(triples(1).encode(), ox.RdfFormat.N_TRIPLES)
    store.flush()
    config = SetConfig(name="d", profile="rdf-dataset", oxigraph=str(folder), dataset_seconds=0.05)
    with dataset_server(tmp_path / "state", [config]) as running:
        del store
        shows(running, triples(1))
        store = ox.Store(folder)
        store.load(triples(2).encode(), ox.RdfFormat.N_TRIPLES)
        store.flush()
        del store
        shows(running, triples(1, 2))
        seen = running.source.catalog.state("d").state_version
        until(lambda: running.source.sets_health[0].scans > 20, what="looks")
        assert running.source.catalog.state("d").state_version == seen
        shutil.rmtree(folder)
        failing(running, "HW-DAT-03")
        shows(running, triples(1, 2))


def test_a_file_that_could_not_be_read_is_published_when_it_was_replaced(tmp_path: Path) -> None:
    """Its error is told no more."""
    path = put(tmp_path / "d.nt", "no RDF\n")
    with dataset_server(tmp_path / "state", [file_set(path)]) as running:
        failing(running, "HW-RDF-01")
        put(path, "no RDF either, and longer\n")
        failing(running, "HW-RDF-01")
        put(path, triples(1))
        shows(running, triples(1))
        until(lambda: "HW-RDF-01" not in str(running.health()["sets"]), what="health")


def test_a_corrected_file_is_published_at_once_however_long_it_was_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong and stays as it is, is read again seldomer and seldomer; another file is read when it is seen."""
    monkeypatch.setattr(published_dataset, "PAUSES", Backoff(3600.0, 3600.0))
    path = put(tmp_path / "d.nt", "no RDF\n")
    with dataset_server(tmp_path / "state", [file_set(path, dataset_seconds=0.05)]) as running:
        failing(running, "HW-RDF-01")
        until(lambda: running.source.sets_health[0].failures > 8, what="looks that have failed")
        put(path, triples(1))
        shows(running, triples(1))


def test_a_broken_series_is_told_until_it_is_mended(tmp_path: Path) -> None:
    """TIM-08: in health and log; nothing is published meanwhile."""
    path = put(tmp_path / "d.nt", triples(1))
    with dataset_server(tmp_path / "state", [file_set(path, dataset_seconds=0.05)]) as running:
        shows(running, triples(1))
        (patch,) = (tmp_path / "state" / "datasets" / "d").glob("*.nqud")
        held = patch.read_bytes()
        patch.write_bytes(held.replace(b"v1", b"v9"))
        put(path, triples(1, 2))
        failing(running, "HW-DAT-01")
        until(lambda: next(dataset_statuses(running.source.catalog)).fault, what="the fault in the catalog")
        assert "HW-DAT-01" in {one.rule for one in running.notices}
        shows(running, triples(1))
        patch.write_bytes(held)
        shows(running, triples(1, 2))
        until(lambda: next(dataset_statuses(running.source.catalog)).fault is None, what="no fault in the catalog")


def test_the_date_of_a_dataset_is_that_of_the_lists(tmp_path: Path) -> None:
    """DST-V4: no client finds two dates of one state, however late it is published; within its second it has none."""
    with dataset_server(
        tmp_path / "state", [file_set(put(tmp_path / "d.nt", triples(1)), dataset_seconds=0.05)]
    ) as running:
        shows(running, triples(1))
        listed = re.search(rb"<lastmod>(.*?)</lastmod>", running.get("/d/resourcelist.xml").body)
        assert listed is not None
        lastmod = dt.datetime.fromisoformat(listed[1].decode()).replace(microsecond=0)
        until(lambda: "last-modified" in running.get("/d/dataset.nq").headers)
        said = running.get("/d/dataset.nq").headers["last-modified"]
        assert parsedate_to_datetime(said) == lastmod
        assert running.get("/d/dataset.nq", if_modified_since="Thu, 01 Jan 2026 00:00:00 GMT").status == 200
