"""Announcements by HTTP: `POST /S/changes` and `POST /ingest/dit`, on a real socket, from hostile clients too."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Exit
from headwater.http.ingest import IngestLimits
from headwater.http.metrics import MetricsPage, RequestCounters, SharedCounters
from headwater.ingest.deletion_guard import DeletionGuard, DeletionsHeld, set_problems
from headwater.ingest.push.submission import Account, SubmissionLimits
from tests.http.announcing import OTHER, PREFIX, TOKEN, PushServer, said, serving
from tests.support.documents import read_bytes
from tests.support.program import run_here
from tests.support.push_set import change, resource
from tests.support.serving import drain, request
from tests.support.waiting import DEADLINE, until

SMALL = IngestLimits(
    submission=SubmissionLimits(octets=2 << 20, lines=2_000, ratio=50), idle_seconds=20.0, seconds=60.0, at_once=2
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushServer]:
    with serving(tmp_path_factory.mktemp("fed")) as fed:
        yield fed


def test_what_is_announced_is_listed(tmp_path: Path) -> None:
    with serving(tmp_path) as fed:
        answer = fed.post("/s/changes", [{"path": "a b", "length": 3}, {"uri": "http://other.org/c"}, {"odd": 1}])
        assert answer.status == 207
        told = said(answer)
        assert (told["taken"], told["rejected"], told["first_seq"], told["last_seq"]) == (2, 1, 1, 2)
        wanted = [("created", PREFIX + "a%20b"), ("created", "http://other.org/c")]
        until(lambda: fed.listed() == wanted, what="the changes in the open list")
        answer = fed.post("/s/changes", [{"path": "a b", "change": "deleted"}])
        assert answer.status == 200
        until(lambda: ("deleted", PREFIX + "a%20b") in fed.listed(), what="the deletion")


def test_a_mass_of_announced_deletions_needs_consent(tmp_path: Path) -> None:
    """DST-B4: counted over batches; what is held back is not taken, and other news are."""
    names = [f"f{number:03}" for number in range(100)]
    with serving(tmp_path) as fed:
        fed.post("/s/changes", [{"path": name} for name in names])
        held = []
        for start in range(0, 60, 6):
            answer = fed.post("/s/changes", [{"path": name, "change": "deleted"} for name in names[start : start + 6]])
            held.append(answer.status)
        assert held == [200] * 3 + [503] * 7
        assert "allow-deletions" in said(answer)["error"]["advice"]  # type: ignore[index]
        assert "HW-ING-63" in answer.body.decode()
        assert fed.post("/s/changes", [{"path": "new"}]).status == 200
        status = run_here("status", tmp_path)
        assert (status.returncode, b"deletions are held back" in status.stdout) == (Exit.TRANSFERS_FAILED, True)
        health = json.loads(request(fed.url, "/health").body)
        assert health["well"] is False
        assert "too many deletions were announced" in health["sets"][0]["held_back"]
        assert run_here("allow-deletions", tmp_path).stdout == b"s: deletions are allowed once, within an hour\n"
        assert run_here("status", tmp_path).returncode == Exit.DONE
        assert fed.post("/s/changes", [{"path": name, "change": "deleted"} for name in names[18:]]).status == 200
        assert len(fed.source.catalog.resources("s")) == 1


def test_announced_deletions_are_counted_anew_after_an_hour(tmp_path: Path) -> None:
    """DST-B4: what was held back may have been taken back by who announced it."""
    now = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    with closing(SqliteCatalog(tmp_path / "catalog.sqlite")) as catalog:
        catalog.create("s")
        catalog.open("s", now[0])
        guard = DeletionGuard(catalog, "s", 0.2, lambda: now[0])
        catalog.record("s", [], now[0], state=guard.announced(18, 100))
        with pytest.raises(DeletionsHeld):
            guard.announced(40, 82)
        with pytest.raises(DeletionsHeld):
            guard.announced(5, 82)
        now[0] += dt.timedelta(hours=1)
        catalog.record("s", [], now[0], state=guard.announced(5, 82))
        assert not set_problems(catalog).held_back


def test_a_few_deletions_need_no_consent(tmp_path: Path) -> None:
    with serving(tmp_path) as fed:
        fed.post("/s/changes", [{"path": f"{number}"} for number in range(10)])
        assert fed.post("/s/changes", [{"path": f"{n}", "change": "deleted"} for n in range(10)]).status == 200


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/ingest/dit?lod", "load"),
        ("/ingest/dit?load&dry_run=1", "load"),
        ("/ingest/dit?Load=true", "load"),
        ("/ingest/dit?open", "load"),
        ("/s/changes?lod", "load and open"),
        ("/s/changes?load&openn=1", "load and open"),
        ("/s/changes?=x", "load and open"),
    ],
)
def test_an_unknown_parameter_is_refused_and_nothing_taken(running: PushServer, path: str, known: str) -> None:
    token = OTHER if path.startswith("/ingest") else TOKEN
    answer = running.post(path, [{"path": "never"}], token)
    assert answer.status == 400
    error: Any = said(answer)["error"]
    assert error["code"] == "HW-SRV-14"
    assert error["what"].startswith("unknown parameter '")
    assert known in error["advice"]
    assert request(running.url, path.partition("?")[0], method="POST").status == 401  # who has no token is told no more


def test_a_load_by_http_is_published_when_it_is_opened(tmp_path: Path) -> None:
    with serving(tmp_path) as fed:
        for start in (0, 3):
            answer = fed.post("/s/changes?load", [{"path": f"{n}"} for n in range(start, start + 3)])
            assert (answer.status, said(answer)["taken"]) == (200, 3)
        assert request(fed.url, "/s/resourcelist.xml").status == 503
        assert fed.post("/s/changes?load&open", b"").status == 200
        until(lambda: request(fed.url, "/s/resourcelist.xml").status == 200, what="the Resource List")
        _, entries, _ = read_bytes(request(fed.url, "/s/resourcelist.xml").body)
        assert len(entries) == 6
        assert fed.log() == []
        answer = fed.post("/s/changes?load", [{"path": "late"}])
        assert answer.status == 409
        assert fed.log() == []


def test_a_load_that_is_repeated_with_its_key_gets_the_first_outcome(tmp_path: Path) -> None:
    """Also the one that has opened the set, when its answer was lost; what was not taken before is too late."""
    lines: list[object] = [{"path": "a"}, {"bad": 1}]
    with serving(tmp_path) as fed:
        first = fed.post("/s/changes?load&open", lines, idempotency_key="k1")
        assert (first.status, is_open(fed)) == (207, True)
        again = fed.post("/s/changes?load&open", lines, idempotency_key="k1")
        assert (again.status, again.body) == (first.status, first.body)
        assert fed.post("/s/changes?load&open", [{"path": "b"}], idempotency_key="k1").status == 422
        assert fed.post("/s/changes?load&open", [{"path": "b"}], idempotency_key="k2").status == 409
        assert fed.log() == []


DENIED = [
    ("no token", "/s/changes", None, {}, 401),
    ("a wrong token", "/s/changes", "x" * 32, {}, 401),
    ("a token that begins alike", "/s/changes", TOKEN[:-1], {}, 401),
    ("an empty token", "/s/changes", "", {}, 401),
    ("a very long token", "/s/changes", "x" * 5_000, {}, 401),
    ("the token of another set", "/s/changes", OTHER, {}, 403),
    ("a set without tokens", "/shut/changes", TOKEN, {}, 403),
    ("a set that is none", "/none/changes", TOKEN, {}, 404),
    ("a document", "/s/capabilitylist.xml", TOKEN, {}, 405),
    ("a path that leads out", "/s/../s/changes", TOKEN, {}, 405),
    ("a coding that is not known", "/s/changes", TOKEN, {"content-encoding": "br"}, 415),
    ("a key that is none", "/s/changes", TOKEN, {"idempotency-key": "a b"}, 422),
    ("documents with the token of a set for events", "/ingest/dit", TOKEN, {}, 403),
]


@pytest.mark.parametrize(
    ("target", "token", "headers", "status"), [one[1:] for one in DENIED], ids=[one[0] for one in DENIED]
)
def test_what_is_not_permitted_does_nothing(
    running: PushServer, target: str, token: str | None, headers: dict[str, str], status: int
) -> None:
    before = running.log() if running.source.push_sets.by_set["s"].is_open else []
    answer = running.post(target, [{"path": "denied"}], token, **headers)
    assert answer.status == status
    assert len(answer.body) > 20
    if status != 405:  # what is no place for announcements is answered as to any other client
        assert answer.headers["content-type"] == "application/json"
        assert len(json.loads(answer.body)["error"]["advice"]) > 20
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert [one for one in running.log() if one not in before] == []


def test_two_authorization_fields_are_none(running: PushServer) -> None:
    body = b'{"path":"twice"}'
    head = b"POST /s/changes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % TOKEN.encode()
    head += b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n" % (TOKEN.encode(), len(body))
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), DEADLINE) as client:
        client.sendall(head + body)
        assert drain(client).startswith(b"HTTP/1.1 401")


def test_a_repeated_key_gets_the_first_outcome_and_does_nothing(running: PushServer) -> None:
    lines: list[object] = [{"path": "key", "change": "updated"}, {"bad": 1}]
    first = running.post("/s/changes", lines, idempotency_key="k1")
    count = len(running.log())
    again = running.post("/s/changes", lines, idempotency_key="k1")
    assert (first.status, first.body) == (again.status, again.body)
    assert len(running.log()) == count
    others: list[list[object]] = [
        [{"path": "other"}],
        [*lines, {"path": "more"}],
        lines[:1],
        [],
        [{"path": "other", "change": "updated"}, {"bad": 1}],
        [lines[0], {"bad": 2}],
        [{"bad": 1}, lines[0]],
    ]
    for other in others:
        answer = running.post("/s/changes", other, idempotency_key="k1")
        assert (answer.status, said(answer)["error"]["code"]) == (422, "HW-ING-44")  # type: ignore[index]
        assert "results" not in said(answer)  # those of the first request are no matter of this one
    assert len(running.log()) == count


def test_a_key_survives_a_restart(tmp_path: Path) -> None:
    lines: list[object] = [{"path": f"{n}", "change": "updated"} for n in range(1_500)]
    with serving(tmp_path) as fed:
        first = fed.post("/s/changes", lines, idempotency_key="k1")
        assert said(first)["taken"] == 1_500
    with serving(tmp_path) as fed:
        again = fed.post("/s/changes", lines, idempotency_key="k1")
        assert json.loads(again.body) == json.loads(first.body)
        other = [*lines[:-1], {"path": "other", "change": "updated"}]
        assert fed.post("/s/changes", other, idempotency_key="k1").status == 422
        assert len(fed.log()) == 1_500


@pytest.mark.parametrize(("sent", "status"), [(0, 408), (30, 408), (31, 200)])
def test_a_body_that_is_shorter_than_it_says_is_not_taken(tmp_path: Path, sent: int, status: int) -> None:
    """Whatever server is below the application: it may take the end of a connection for that of a body."""
    body = json.dumps({"path": "in"}).encode().rjust(30) + b"\n"
    scope = {
        "type": "http", "method": "POST", "path": "/s/changes", "raw_path": b"/s/changes", "query_string": b"",
        "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "headers": [
            (b"host", b"x"), (b"content-length", b"31"), (b"authorization", f"Bearer {TOKEN}".encode())
        ],
    }  # fmt: skip
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body[:sent], "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    with serving(tmp_path) as fed:
        asyncio.run(fed.app(scope, receive, send))
        assert told[0]["status"] == status
        if sent == 0:
            assert not fed.log()


REFUSED = [
    ("a bound", json.dumps({"path": "in"}).encode() + b"\n" + b'{"path":"out"}\n' * 2_100, {}, 413),
    ("gzip that is cut off", gzip.compress(b'{"path":"in"}\n{"path":"out"}\n')[:-9], {"content_encoding": "gzip"}, 400),
    ("what is no gzip", b"\x1f\x8b" + b"\0" * 50, {"content_encoding": "gzip"}, 400),
    ("a key that was used", b'{"path":"out"}\n', {"idempotency_key": "used"}, 422),
]


def is_open(fed: PushServer) -> bool:
    return fed.source.push_sets.by_set["s"].is_open


@pytest.mark.parametrize(("body", "headers", "status"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED])
def test_a_load_whose_last_body_is_refused_goes_on(
    tmp_path: Path, body: bytes, headers: dict[str, str], status: int
) -> None:
    with serving(tmp_path, SMALL) as fed:
        assert fed.post("/s/changes?load", [{"path": "first"}], idempotency_key="used").status == 200
        assert fed.post("/s/changes?load&open", body, **headers).status == status
        assert not is_open(fed)
        assert fed.post("/s/changes?load&open", [{"path": "last"}]).status == 200
        assert is_open(fed)
        assert fed.log() == []


def test_a_load_whose_last_body_does_not_come_goes_on(tmp_path: Path) -> None:
    head = b"POST /s/changes?load&open HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: 900\r\n\r\n"
    with serving(tmp_path, IngestLimits(idle_seconds=0.5)) as fed:
        for ends in (True, False):
            with socket.create_connection(("127.0.0.1", int(fed.url.rpartition(":")[2])), DEADLINE) as client:
                client.sendall(head % TOKEN.encode() + b'{"path":"first"}\n')
                if ends:
                    client.shutdown(socket.SHUT_WR)
                else:
                    assert drain(client).startswith(b"HTTP/1.1 408")
            until(lambda: fed.ingest._under_way == 0, what="its end")
            assert not is_open(fed)


def test_gzip_and_chunks_are_understood(running: PushServer) -> None:
    body = gzip.compress(b'{"path":"zipped"}\n')
    assert running.post("/s/changes", body, content_encoding="gzip").status == 200
    marked = b'\xef\xbb\xbf{"path":"marked"}\r\n\r\n'
    assert running.post("/s/changes", marked, content_type="Application/JSON").status == 200
    head = b"POST /s/changes HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), DEADLINE) as client:
        client.sendall(head + b"authorization: bearer %b\r\n\r\n" % TOKEN.encode())
        for piece in (b'{"pa', b'th":"chun', b'ked"}\n{"path":"last"}'):
            client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.sendall(b"0\r\n\r\n")
        assert drain(client).startswith(b"HTTP/1.1 200")
    assert {uri for _, uri in running.log()} >= {"zipped", "marked", "chunked", "last"}


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushServer]:
    with serving(tmp_path_factory.mktemp("bounded"), SMALL) as fed:
        yield fed


def test_bounds_end_a_request_and_what_was_taken_is_said(bounded: PushServer) -> None:
    head = b"POST /s/changes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: 3000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(bounded.url.rpartition(":")[2])), DEADLINE) as client:
        client.sendall(head % TOKEN.encode())  # a body that is said to be too long is not waited for
        assert drain(client).startswith(b"HTTP/1.1 413")
    answer = bounded.post("/s/changes", [{"path": f"many/{n}"} for n in range(2_500)])
    assert (answer.status, said(answer)["taken"]) == (413, 2_000)
    answer = bounded.post("/s/changes", gzip.compress(b" " * (64 << 20)), content_encoding="gzip")
    assert (answer.status, said(answer)["error"]["code"]) == (413, "HW-ING-56")  # type: ignore[index]
    answer = bounded.post("/s/changes", b'{"path":"before"}\n' + b"y" * (1_500_000) + b'\n{"path":"after"}')
    assert (answer.status, [one["status"] for one in said(answer)["results"]]) == (207, [200, 413, 200])  # type: ignore[attr-defined]
    answer = bounded.post("/s/changes", gzip.compress(b'{"path":"cut"}\n' * 50)[:-9], content_encoding="gzip")
    assert answer.status == 400


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    head = b"POST /s/changes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: 900\r\n\r\n"
    idle_seconds = 1.5
    with serving(tmp_path, IngestLimits(idle_seconds=idle_seconds, at_once=2)) as fed:
        port = int(fed.url.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), DEADLINE) as slow,
            socket.create_connection(("127.0.0.1", port), DEADLINE) as gone,
        ):
            began = time.monotonic()
            for client in (slow, gone):
                client.sendall(head % TOKEN.encode() + b'{"path":"slow"}\n')

            def given_up() -> bool:
                return time.monotonic() - began > idle_seconds

            until(lambda: fed.ingest._under_way == 2 or given_up(), what="both requests")
            assert fed.post("/s/changes", [{"path": "third"}]).status == 503 or given_up()
            gone.close()
            assert drain(slow).startswith(b"HTTP/1.1 408")
        until(lambda: fed.ingest._under_way == 0, what="the end of both")
        assert fed.post("/s/changes", [{"path": "third"}]).status == 200


def test_dit_21_a_provider_that_dawdles_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    limits = IngestLimits(idle_seconds=20.0, at_once=4, of_one=1)
    with serving(tmp_path, limits) as fed:
        port = int(fed.url.rpartition(":")[2])
        for target, token, other, others in (
            (b"/s/changes", TOKEN, "/ingest/dit", OTHER),
            (b"/ingest/dit", OTHER, "/s/changes", TOKEN),
        ):
            head = b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: 900\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), DEADLINE) as slow:
                slow.sendall(head % (target, token.encode()) + b"{")
                until(lambda: fed.ingest._under_way == 1, what="the slow request")
                assert fed.post(target.decode(), b"", token).status == 429
                assert fed.post(other, b"", others).status == 200
            until(lambda: fed.ingest._under_way == 0, what="its end")
            assert fed.post(target.decode(), b"", token).status == 200


def test_dit_21_a_set_that_is_busy_elsewhere_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    """Somebody records in a set, however long it takes: who announces to that set waits, and nobody else."""
    with serving(tmp_path) as fed:
        assert fed.post("/s/changes", [{"path": "a"}]).status == 200
        threads = [threading.Thread(target=fed.post, args=("/s/changes", [{"path": f"{n}"}])) for n in range(6)]
        with fed.source.push_sets.by_set["s"].lock:
            for thread in threads:
                thread.start()
            until(lambda: fed.ingest._seats["s"] == 6, what="six requests that wait")
            began = time.monotonic()
            documents: list[object] = [resource("r", 1), change("r", "created", 1)]
            assert fed.post("/ingest/dit", documents, OTHER).status == 200
            assert time.monotonic() - began < DEADLINE / 4
        for thread in threads:
            thread.join()
        assert {uri for _, uri in fed.log()} == {"a", *"012345"}


def test_documents_of_the_dit_es_protocol_by_http(tmp_path: Path) -> None:
    """DIT-02, DIT-A11: a pair in two posts; DIT-A10: what leads outside is refused alone."""
    with serving(tmp_path) as fed:
        answer = fed.post("/ingest/dit", [resource("a", 1), resource("../b", 1)], OTHER)
        assert (answer.status, said(answer)["taken"], said(answer)["rejected"]) == (207, 1, 1)
        answer = fed.post("/ingest/dit", json.dumps(change("a", "created", 1), indent=1).encode(), OTHER,
                          content_type="application/json")  # fmt: skip
        assert answer.status == 200
        assert fed.log("d") == [("created", "a")]
        foreign = change("a", "created", 2, resource_set="elsewhere")
        answer = fed.post("/ingest/dit", [foreign, change("c", "created", 2, resource_set=None)], OTHER)
        assert [one["status"] for one in said(answer)["results"]] == [422, 200]  # type: ignore[attr-defined]
        until(lambda: ("created", "c") in fed.log("d"), what="the change without its resource")
        until(lambda: ("created", PREFIX + "c") in fed.listed("d"), what="it in the list")


def test_what_became_of_lines_is_counted_and_refusals_are_logged_once_a_request(tmp_path: Path) -> None:
    """Not again when a request is repeated with its key; documents count for the set that they are for."""
    with serving(tmp_path) as fed:
        lines: list[object] = [{"path": "a"}, {"path": "a"}, *({"bad": n} for n in range(50))]
        for _ in range(2):
            assert fed.post("/s/changes", lines, idempotency_key="k").status == 207
        fed.post("/s/changes", [{"path": "b"}])
        documents: list[object] = [resource("a", 1), change("a", "created", 1), resource("../b", 1)]
        documents += [change("c", "created", 2), change("a", "created", 2, resource_set="elsewhere")]
        assert fed.post("/ingest/dit", documents, OTHER).status == 207
        assert fed.post("/s/changes", b"no JSON", "x" * 20).status == 401
        counted = fed.counts.everybodys()
        assert lines_of(counted, "s") == {"taken": 2, "waiting": 0, "ignored": 1, "rejected": 50}
        assert lines_of(counted, "d") == {"taken": 3, "waiting": 0, "ignored": 0, "rejected": 2}
        told = [json.loads(line) for line in fed.told.getvalue().splitlines()]
        assert sorted((one["event"], one["set"], one["code"]) for one in told) == [
            ("refused", "d", "HW-ING-48"),
            ("refused", "d", "HW-ING-49"),
            ("refused", "s", "HW-ING-42"),
        ]
        assert len(told[0]["fields"]["reasons"]) == 3
        assert told[0]["message"].startswith("s: 50 of 52 announced lines were refused: line 3: ")
        assert "47 more" in told[0]["message"]
        page = MetricsPage(fed.source, fed.counts).page()
        assert b'headwater_ingest_lines_total{set="s",outcome="rejected"} 50' in page


def test_lines_that_several_processes_took_are_added_up(tmp_path: Path) -> None:
    account = Account(taken=3, rejected=1)
    other = SharedCounters(tmp_path)
    other._own = tmp_path / "other.json"
    RequestCounters(other).announced("s", account)
    counts = RequestCounters(SharedCounters(tmp_path))
    counts.announced("s", account)
    assert lines_of(counts.everybodys(), "s") == {"taken": 6, "waiting": 0, "ignored": 0, "rejected": 2}


def lines_of(counted: Mapping[str, float], name: str) -> dict[str, float]:
    begin = f'headwater_ingest_lines_total{{set="{name}",outcome="'
    return {key[len(begin) : -2]: value for key, value in counted.items() if key.startswith(begin)}
