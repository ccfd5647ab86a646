"""The client of a SPARQL endpoint, against one that works and one that does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyoxigraph as ox
import pytest

from headwater.errors import StoreFault
from headwater.transport.fetch import TransportOptions
from headwater.triplestores.sparql_endpoint import (
    EndpointAddress,
    SparqlEndpoint,
    rows,
)
from tests.support.failing import failing
from tests.support.sparql_server import SparqlServer, sparql_server
from tests.support.waiting import Clock

QUICK = TransportOptions(first_backoff_seconds=1e-3)
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.fixture
def server() -> Iterator[SparqlServer]:
    with sparql_server() as one:
        yield one


def client(server: SparqlServer) -> SparqlEndpoint:
    address = EndpointAddress(update=server.update_url, query=server.query_url)
    return SparqlEndpoint(address, QUICK)


def test_what_is_inserted_is_selected(server: SparqlServer) -> None:
    one = client(server)
    one.update('INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> "a\\tb\\n\\"c\\"", "x"@en, 1, 1.5, true, <urn:o> } }')
    found = {row[0] for row in one.rows("SELECT ?o WHERE { GRAPH <urn:g> { ?s ?p ?o } }")}
    assert found == {
        '"a\\tb\\n\\"c\\""',
        '"x"@en',
        f'"1"^^<{XSD}integer>',
        f'"1.5"^^<{XSD}decimal>',
        f'"true"^^<{XSD}boolean>',
        "<urn:o>",
    }
    assert one.value("SELECT (COUNT(*) AS ?n) WHERE { GRAPH <urn:g> { ?s ?p ?o } }") == f'"6"^^<{XSD}integer>'
    assert one.value("SELECT ?s WHERE { ?s ?p ?o }") is None
    one.close()


def test_no_proxy_is_used(server: SparqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "nowhere.invalid")
    one = client(server)
    one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    assert len(server.store) == 1
    one.close()


def test_a_query_that_is_not_read_to_its_end_spoils_nothing(server: SparqlServer) -> None:
    one = client(server)
    one.update("INSERT DATA { " + " ".join(f"<urn:s{n}> <urn:p> <urn:o> ." for n in range(5000)) + " }")
    assert one.value("SELECT ?s WHERE { ?s ?p ?o }") is not None
    assert one.value("SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }") == f'"5000"^^<{XSD}integer>'
    one.close()


def test_credentials_go_to_the_origin_of_updates_alone(server: SparqlServer) -> None:
    with sparql_server() as other:
        address = EndpointAddress(update=server.update_url, query=other.query_url, authorization="Basic c2VjcmV0")
        one = SparqlEndpoint(address)
        one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
        list(one.rows("SELECT ?s WHERE { ?s ?p ?o }"))
        one.close()
        assert [told for _, _, told in server.requests] == ["Basic c2VjcmV0"]
        assert [told for _, _, told in other.requests] == [None]
        assert "c2VjcmV0" not in repr(address)


ANSWERS = [
    ("read-only", (403, "text/plain", b"read-only"), "HW-SPQ-03", 1),
    ("no such method", (405, "text/plain", b""), "HW-SPQ-03", 1),
    ("elsewhere", (302, "text/plain", b""), "HW-SPQ-03", 1),
    ("fails again and again", (500, "text/plain", b"disk full"), "HW-SPQ-02", 4),
    ("a page", (200, "text/html", b"<!doctype html><html>please sign in</html>"), "HW-SPQ-04", 1),
]


@pytest.mark.parametrize(("answer", "fault", "times"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_an_update_that_is_not_done(
    server: SparqlServer, answer: tuple[int, str, bytes], fault: str, times: int
) -> None:
    server.fault = lambda kind, text: answer
    one = client(server)
    with failing(fault):
        one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    assert len(server.requests) == times
    one.close()


def test_an_endpoint_that_answers_in_json_alone_is_read(server: SparqlServer) -> None:
    """Its rows are those of TSV, which is asked for first."""
    one = client(server)
    one.update('INSERT DATA { <urn:s> <urn:p> "a\\t\\u00e9"@en, 5, <urn:o> }')
    query = "SELECT ?o ?none WHERE { ?s ?p ?o } ORDER BY ?o"
    wanted = list(one.rows(query))
    assert wanted != []
    results = server.store.query(query)
    assert isinstance(results, ox.QuerySolutions)
    answer = results.serialize(format=ox.QueryResultsFormat.JSON) or b""
    server.fault = lambda kind, text: (200, "application/sparql-results+json; charset=utf-8", answer)
    assert list(one.rows(query)) == wanted
    for cut in (answer[:-20], b"", b"{}", b'{"head":{},"boolean":true}'):
        server.fault = lambda kind, text, cut=cut: (200, "application/sparql-results+json", cut)
        with failing("HW-SPQ-04"):
            list(one.rows(query))
    one.close()


def test_an_endpoint_that_answers_in_xml_alone_is_told_as_one(server: SparqlServer) -> None:
    server.fault = lambda kind, text: (200, "application/sparql-results+xml", b"<sparql/>")
    one = client(server)
    with failing("HW-SPQ-04", match="the endpoint cannot answer SELECT in TSV or JSON: .*sparql-results.xml"):
        one.value("SELECT ?s WHERE { ?s ?p ?o }")
    one.close()


def test_a_fault_that_passes_is_waited_for(server: SparqlServer) -> None:
    answers: list[tuple[int, str, bytes] | None] = [(503, "text/plain", b""), (503, "text/plain", b""), None]
    server.fault = lambda kind, text: answers.pop(0)
    one = client(server)
    one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    assert len(server.store) == 1
    one.close()


@pytest.mark.parametrize(("status", "asked"), [(429, "30"), (503, "Wed, 21 Oct 2015 07:28:00 GMT")])
def test_a_wait_that_the_endpoint_asks_for_is_waited(server: SparqlServer, status: int, asked: str) -> None:
    """An HTTP date in the past asks for none."""
    answers: list[tuple[int, str, bytes] | None] = [(status, "text/plain", b""), None]
    server.fault = lambda kind, text: answers.pop(0)
    server.retry_after = asked
    clock = Clock()
    patient = TransportOptions(sleep=clock.sleep, monotonic=clock.seconds, chance=lambda: 0.0)
    one = SparqlEndpoint(EndpointAddress(update=server.update_url), patient)
    one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    assert len(server.store) == 1
    assert (sum(clock.slept) >= 30.0) is asked.isdigit()
    one.close()


def test_a_wait_of_an_hour_is_told_and_not_waited(server: SparqlServer) -> None:
    server.fault = lambda kind, text: (429, "text/plain", b"slow down")
    server.retry_after = "3600"
    one = SparqlEndpoint(EndpointAddress(update=server.update_url))
    with failing("HW-SPQ-02", match=r"slow down \(it asks to be left alone for 3,600 s\)"):
        one.update("INSERT DATA { <urn:s> <urn:p> <urn:o> }")
    assert len(server.requests) == 1
    one.close()


TSV = "text/tab-separated-values"
ROWS = [
    ("no rows", (200, "text/html", b"<html>"), StoreFault),
    ("an error in the midst", (200, TSV, b"?s\n<urn:a>\njava.lang.Exception: gone\n"), StoreFault),
    ("cut off", (0, TSV, b"?s\n<urn:a>\n"), StoreFault),
    ("more terms than variables", (200, TSV, b"?s\n<urn:a>\t<urn:b>\n"), StoreFault),
    ("not UTF-8", (200, TSV, b'?s\n"\xff"\n'), StoreFault),
    ("nothing", (200, TSV, b""), StoreFault),
]


@pytest.mark.parametrize(("answer", "fault"), [a[1:] for a in ROWS], ids=[a[0] for a in ROWS])
def test_rows_that_are_none(server: SparqlServer, answer: tuple[int, str, bytes], fault: type[Exception]) -> None:
    server.fault = lambda kind, text: answer
    one = client(server)
    with pytest.raises(fault):
        list(one.rows("SELECT ?s WHERE { ?s ?p ?o }"))
    one.close()


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "http://", "http://u:p@host/", "http://host:x/", "host"])
def test_an_address_that_is_none(url: str) -> None:
    with failing("HW-SPQ-01"):
        SparqlEndpoint(EndpointAddress(update=url))


def test_nobody_is_there() -> None:
    with failing("HW-SPQ-02"):
        SparqlEndpoint(EndpointAddress(update="http://127.0.0.1:1/"), QUICK).update("")


def test_who_does_not_speak_tls_is_asked_once(server: SparqlServer) -> None:
    clock = Clock()
    address = EndpointAddress(update=server.update_url.replace("http://", "https://"))
    with failing("HW-SPQ-02", match="does not speak TLS") as told:
        SparqlEndpoint(address, TransportOptions(sleep=clock.sleep, monotonic=clock.seconds)).update("")
    assert "http://" in told.value.todo
    assert clock.slept == []


def test_numbers_may_be_abbreviated() -> None:
    lines = [b"?a\t?b\t?c\n", b"-5\t1.0e6\t\n"]
    assert list(rows(lines)) == [(f'"-5"^^<{XSD}integer>', f'"1.0e6"^^<{XSD}double>', None)]
    with pytest.raises(SyntaxError):
        list(rows([b"?a\n", b"5 apples\n"]))
    with pytest.raises(MemoryError):
        list(rows(itertools.chain([b'?a\n"'], itertools.repeat(b"x" * (1 << 20)))))


def test_json_is_read_within_bounds() -> None:
    """Rows as they come, of any number; none before the variables, and none of any length."""
    form, head, row = ox.QueryResultsFormat.JSON, b'{"head":{"vars":["a"]},', b'{"a":{"type":"uri","value":"urn:x"}}'
    block = (row + b",") * 10_000
    many = itertools.chain([head, b'"results":{"bindings":['], itertools.repeat(block, 100), [row, b"]}}"])
    assert sum(one == ("<urn:x>",) for one in rows(many, form)) == 1_000_001
    early = itertools.chain([b'{"results":{"bindings":['], itertools.repeat(block, 100), [row, b"]},", head, b"}"])
    with pytest.raises(MemoryError, match="before the variables"):
        list(rows(early, form))
    endless = itertools.repeat(b"x" * (1 << 20))
    with pytest.raises(MemoryError):
        list(rows(itertools.chain([head, b'"results":{"bindings":[{"a":{"type":"literal","value":"'], endless), form))
