"""A hostile harvester at two doors, `POST /ingest/dit` and `headwater ingest dit FILE`: the same octets do the same.

Whatever stands in a body: a bad document is returned with its reason, and holds up no good one.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.cli import run
from tests.http.announcing import OTHER, PREFIX, PushServer, said, serving
from tests.support.push_set import change, resource
from tests.support.waiting import until


class Case(msgspec.Struct, frozen=True):
    """A body made of the pair of documents `r`, `c` (as JSON), and the statuses of what it came to."""

    name: str
    body: bytes
    statuses: list[int]
    headers: dict[str, str] = {}
    taken: bool = True
    """Whether the good pair is taken: a resource with its digest, one change."""


R, C = (json.dumps(one).encode() for one in (resource("@", 1), change("@", "created", 1)))
GOOD = R + b"\n" + C + b"\n"
OK = [200, 200]


def hit(kind: str, document: bytes) -> bytes:
    return b'{"_index":"i","_type":"%s","_id":"1","_score":1,"_source":%s}' % (kind.encode(), document)


def answer(*hits: bytes) -> bytes:
    return b'{"took":1,"timed_out":false,"hits":{"total":2,"hits":[%s]}}' % b",".join(hits)


def pretty(text: bytes) -> bytes:
    return json.dumps(json.loads(text), indent=2).encode()


def broken(text: bytes, name: str, value: bytes) -> bytes:
    """The document with another value."""
    return json.dumps({**json.loads(text), name: "@@"}).encode().replace(b'"@@"', value)


def with_bad(bad: bytes, status: int = 422) -> tuple[bytes, list[int]]:
    """A bad line between two good ones."""
    return R + b"\n" + bad + b"\n" + C + b"\n", [200, status, 200]


LONG = b"<65 MiB>"  # stands for as much, which is made where it is wanted: every process imports this
DEEP = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
CASES = [
    Case("byte order mark", b"\xef\xbb\xbf" + GOOD, OK),
    Case("CRLF", GOOD.replace(b"\n", b"\r\n"), OK),
    Case("blank lines", b"\n \n" + GOOD.replace(b"\n", b"\n\n\t\n"), OK),
    Case("no end of line", GOOD.rstrip(), OK),
    Case("nothing", b"", [], taken=False),
    Case("blank", b" \n\r\n", [], taken=False),
    Case("an array", b"[" + R + b"," + C + b"]", OK),
    Case("an array over many lines", pretty(b"[" + R + b"," + C + b"]"), OK),
    Case("the same with a type", pretty(b"[" + R + b"," + C + b"]"), OK, {"content-type": "Application/JSON; a=b"}),
    Case("lines called JSON", GOOD, OK, {"content-type": "application/json"}),
    Case("lines called text", GOOD, OK, {"content-type": "text/plain; charset=latin-1"}),
    Case("documents over many lines each", pretty(R) + b"\n" + pretty(C), OK),
    Case("one of these is broken", pretty(R) + b"\n{\n  oops\n}\n" + pretty(C) + b"\n", [200, 422, 422, 422, 200]),
    Case("one of these is cut off", pretty(R) + b"\n" + pretty(C) + b"\n" + pretty(R)[:10], [*OK, 422, 422]),
    Case("a search answer", answer(hit("resource", R), hit("change", C)), OK),
    Case("one over many lines", pretty(answer(hit("resource", R), hit("change", C))), OK),
    Case("one with a byte order mark", b"\xef\xbb\xbf" + pretty(answer(hit("resource", R), hit("change", C))), OK),
    Case("bad hits among good ones", answer(hit("resource", R), b"7", hit("change", b"null"), hit("change", C)),
         [200, 422, 422, 200]),
    Case("bad items among good ones", b"[" + b",".join([R, b"7", b"[" + R + b"]", b"{}", C]) + b"]",
         [200, 422, 422, 422, 200]),
    Case("an answer without hits", answer(), [], taken=False),
    Case("an answer that is an error", b'{"error":{"type":"x"},"status":500}\n' + GOOD, [422, *OK]),
    Case("lines of a dump", hit("resource", R) + b"\n" + hit("change", C), OK),
    Case("kinds in other words", hit("Resource", R) + b"\n" + hit("_doc", C), OK),
    Case("a bulk request", b'{"index":{"_type":"resource"}}\n' + R + b'\n{"create":{}}\n' + C, OK),
    Case("one with a broken document", b'{"index":{}}\n{oops\n{"index":{}}\n' + R + b'\n{"index":{}}\n' + C,
         [422, *OK]),
    Case("one with a long document",
         b'{"index":{}}\n"' + LONG + b'"\n{"index":{}}\n' + R + b'\n{"index":{}}\n' + C, [413, *OK]),
    Case("one with a deletion", b'{"delete":{"_id":"1"}}\n' + GOOD, [422, *OK]),
    Case("one that ends early", GOOD + b'{"index":{}}', [*OK, 422]),
    Case("one with two actions", b'{"index":{}}\n{"index":{}}\n' + GOOD, [422, *OK]),
    Case("an update", b'{"update":{"_id":"1"}}\n{"doc":' + R + b',"doc_as_upsert":true}\n' + C, OK),
    Case("the first line is cut off", R[:40] + b"\n" + GOOD, [422, *OK]),
    Case("the last line is cut off", GOOD + C[:40], [*OK, 422]),
    Case("two on one line", R + b" " + C, [422], taken=False),
    Case("commas after documents", GOOD + R + b",\n" + C, [*OK, 422, 200]),
    Case("Latin-1", *with_bad(b'{"location":"http://x/caf\xe9"}')),
    Case("half a surrogate", *with_bad(rb'{"location":"http://x/\ud800"}')),
    Case("NUL octets", *with_bad(b"\0\0\0")),
    Case("UTF-16", GOOD.decode().encode("utf-16"), [422, 422, 422], taken=False),
    Case("no JSON", *with_bad(b"{'location': 'http://x/'}")),
    Case("a scalar", *with_bad(b"42")),
    Case("NaN", *with_bad(broken(R, "length", b"NaN"))),
    Case("a length that is more than a number", broken(R, "length", b"1e999") + b"\n" + C, OK),
    Case("too many levels", *with_bad(DEEP)),
    Case("the same key twice", broken(R, "length", b'7,"length":10') + b"\n" + C, OK),
    Case("no set of ours", *with_bad(broken(R, "resource_set", b'"nobody"'))),
    Case("a set that is no text", *with_bad(broken(R, "resource_set", b"[1]"))),
    Case("no location", *with_bad(broken(R, "location", b"null"))),
    Case("a location of no type", *with_bad(broken(R, "location", b'{"value":"a","type":"path"}'))),
    Case("a location that leads out", *with_bad(broken(C, "location", b'{"value":"a/../b","type":"rel_path"}'))),
    Case("a location that is too long", *with_bad(broken(R, "location", b'"http://x/%s"' % (b"y" * 9_000)))),
    Case("a change of no kind", *with_bad(broken(C, "change", b'"moved"'))),
    Case("a deletion of what is not there",
         broken(broken(C, "change", b'"deleted"'), "location", b'"http://x/none"') + b"\n" + GOOD, [200, *OK]),
    Case("fields of odd types", broken(broken(R, "mime", b"7"), "lastmod", b"[]") + b"\n" + C, OK),
    Case("gzip", gzip.compress(GOOD), OK, {"content-encoding": "gzip"}),
    Case("gzip by its old name", gzip.compress(GOOD), OK, {"content-encoding": "x-gzip"}),
    Case("gzip that is not said", gzip.compress(GOOD), OK),
    Case("gzip that is none", GOOD, OK, {"content-encoding": "gzip"}),
    Case("gzip in two members", gzip.compress(R + b"\n") + gzip.compress(C), OK),
    Case("gzip twice", gzip.compress(gzip.compress(GOOD)), OK, {"content-encoding": "gzip"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushServer]:
    with serving(tmp_path_factory.mktemp("hostile")) as fed:
        yield fed


def named(case: Case, number: int) -> tuple[bytes, str]:
    """The body with a name of its own for the resource."""
    name = f"n{number:03d}"
    if (octets := case.body).startswith(b"\x1f\x8b"):
        plain = gzip.decompress(octets)
        again = plain.startswith(b"\x1f\x8b")
        plain = (gzip.decompress(plain) if again else plain).replace(b'"@"', f'"{name}"'.encode())
        return gzip.compress(gzip.compress(plain) if again else plain), name
    for form in ("utf-8", "utf-16-le"):
        octets = octets.replace('"@"'.encode(form), f'"{name}"'.encode(form))
    return octets.replace(LONG, b"x" * (65 << 20)) if LONG in octets else octets, name


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name)
def test_by_http(running: PushServer, number: int) -> None:
    case = CASES[number]
    body, name = named(case, number)
    replied = running.post("/ingest/dit", body, OTHER, **case.headers)
    results: Any = said(replied)["results"]
    assert [one["status"] for one in results] == case.statuses, results
    assert replied.status == (200 if all(one == 200 for one in case.statuses) else 207)
    assert all(len(one["reason"]) > 10 and one["code"] for one in results if one["status"] >= 400)
    assert [kind for kind, uri in running.log("d") if uri == name] == ["created"] * case.taken
    held = running.source.catalog.get("d", [name])
    assert [one.metadata.hash for one in held.values()] == ["md5:" + "a" * 32] * case.taken


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name)
def test_by_file(tmp_path: Path, number: int, capfd: pytest.CaptureFixture[str]) -> None:
    case = CASES[number]
    body, name = named(case, number)
    (tmp_path / "file").write_bytes(body)
    options = ("--set", "d", "--state", str(tmp_path / "state"), "--url-prefix", PREFIX, "--json")
    sets = ("--resource-set", "s", "--resource-set", "d")
    status = run(["ingest", "dit", str(tmp_path / "file"), *options, *sets])
    told = capfd.readouterr()
    counts = json.loads(told.out)
    foreign = case.name == "no set of ours"  # a file may be of many sets: what is another's is left to it
    refused = sum(one >= 400 for one in case.statuses) - foreign
    assert (counts["rejected"], counts["foreign"], status) == (refused, int(foreign), 4 if refused else 0)
    assert ("was refused" in told.err) == bool(refused)
    catalog = SqliteCatalog(tmp_path / "state" / "catalog.sqlite")
    assert [(one.change.value, one.uri) for one in catalog.changes("d")] == [("created", name)] * case.taken
    assert [one.metadata.hash for one in catalog.resources("d")] == ["md5:" + "a" * 32] * case.taken
    catalog.close()


def test_a_text_that_is_too_long_for_one_is_taken_line_by_line(running: PushServer) -> None:
    """An opening bracket first: the lines after it are good all the same."""
    lines = b"[\n" + b"".join(
        json.dumps(change(f"long/{number}", "deleted", 1, note="x" * 900_000)).encode() + b"\n" for number in range(12)
    )
    told = said(running.post("/ingest/dit", lines, OTHER))
    assert (told["rejected"], told["ignored"]) == (1, 12)


def test_items_of_one_line_are_told_apart(running: PushServer) -> None:
    told: Any = said(running.post("/ingest/dit", b"[" + b",".join([b"1", R, b"{}"]) + b"]\n42\n", OTHER))["results"]
    assert [(one["line"], one.get("item")) for one in told] == [(1, 1), (1, 2), (1, 3), (2, None)]


@pytest.mark.parametrize("cut", ["cut off", "damaged", "followed"])
def test_a_body_that_cannot_be_unpacked_says_what_was_taken(running: PushServer, cut: str) -> None:
    """What came to a batch before the damage is taken; all of it may be sent again."""
    documents = (change(f"{cut}/{number}", "deleted", number) for number in range(1_100))
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in documents)
    whole = gzip.compress(lines, 0)
    body = {"cut off": whole[:-9], "damaged": whole[:-12] + b"\0" * 12, "followed": whole + b"more"}[cut]
    answered = running.post("/ingest/dit", body, OTHER, content_encoding="gzip")
    told: Any = said(answered)
    assert (answered.status, told["error"]["code"]) == (400, "HW-ING-55")
    assert "send all of them" in told["error"]["advice"]
    assert told["ignored"] == len(told["results"]) == 1_000
    again = said(running.post("/ingest/dit", whole, OTHER))
    assert (again["documents"], again["rejected"]) == (1_100, 0)


def test_a_load_of_documents_into_an_open_set_is_refused(running: PushServer) -> None:
    running.post("/ingest/dit", GOOD.replace(b'"@"', b'"opening"'), OTHER)
    answered = running.post("/ingest/dit?load", GOOD.replace(b'"@"', b'"loaded"') + b"{}", OTHER)
    results: Any = said(answered)["results"]
    assert [(one["status"], one["code"]) for one in results] == [(422, "HW-CAT-02")] * 2 + [(422, "HW-ING-41")]
    assert running.source.catalog.get("d", ["loaded"]) == {}


@pytest.mark.parametrize("apart", [False, True], ids=["pairs", "halves"])
def test_documents_that_several_post_at_once_are_taken_once(running: PushServer, apart: bool) -> None:
    """DIT-A11, DIT-A12: the same pairs, or the two kinds by ways of their own, each of them twice."""
    paths = [f"at-once-{apart}/{number}" for number in range(50)]
    resources = b"".join(json.dumps(resource(path, 1)).encode() + b"\n" for path in paths)
    changes = b"".join(json.dumps(change(path, "created", 1)).encode() + b"\n" for path in paths)
    bodies = [resources, changes] * 2 if apart else [resources + changes] * 4
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda body: running.post("/ingest/dit", body, OTHER).status, bodies))
    assert answers == [200] * 4
    until(lambda: [running.log("d").count(("created", path)) for path in paths] == [1] * 50, what="each change once")
    held = running.source.catalog.get("d", paths).values()
    assert [one.metadata.hash for one in held] == ["md5:" + "a" * 32] * 50


def test_a_body_that_breaks_off_loses_nothing_that_was_taken(running: PushServer) -> None:
    """And what came after it can be sent again as a whole."""
    lines = [line.replace(b'"@"', b'"broken/%d"' % number) for number in range(600) for line in (R, C)]
    body = b"\n".join(lines)
    head = b"POST /ingest/dit HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % OTHER.encode()
    head += b"content-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), 5) as client:
        client.sendall(head + body[: len(body) * 9 // 10])
        until(lambda: ("created", "broken/100") in running.log("d"), what="the first batch")
    answered = said(running.post("/ingest/dit", body, OTHER))
    assert (answered["documents"], answered["rejected"], answered["waiting"]) == (1_200, 0, 0)
    assert sorted(uri for _, uri in running.log("d") if uri.startswith("broken/")) == sorted(
        f"broken/{number}" for number in range(600)
    )
