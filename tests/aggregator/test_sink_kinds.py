"""Kinds of sinks, each at work: commands, webhooks, files, tables, and what cannot be configured so."""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.aggregator import sink_kinds
from headwater.aggregator.configuration import SinkConfig
from headwater.aggregator.sink_kinds import opened
from headwater.aggregator.sinks import Failure, SinkFault
from headwater.aggregator.store import Event
from headwater.errors import UsageFault
from tests.aggregator.store_contract import T0, event


def events(*numbers: int, action: str = "created", **fields: Any) -> list[Event]:
    return [
        Event(number=n, run=1, at=T0, **{f: getattr(one, f) for f in one.__struct_fields__})
        for n in numbers
        for one in [event(f"{n}.xml", action, **fields)]
    ]


def sink(kind: str, **fields: Any) -> Any:
    return opened(SinkConfig(name="index", kind=kind, **fields), Path("/srv/agg"))


def numbers_in(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "kafka"}, "no kind of sink"),
        ({"kind": "command"}, "needs command"),
        ({"kind": "webhook"}, "needs url"),
        ({"kind": "file"}, "needs path"),
        ({"kind": "opensearch"}, "needs url"),
        ({"kind": "opensearch", "url": "records.sqlite"}, "URL of a cluster"),
        ({"kind": "sql"}, "needs path, or url"),
        ({"kind": "sql", "path": "a", "table": "a; DROP"}, "no name of a table"),
        ({"kind": "sql", "url": "a", "options": {"module": "no_such_module"}}, "not installed"),
        ({"kind": "webhook", "url": "http://a/", "options": {"timeout": "soon"}}, "number of seconds"),
    ],
)
def test_a_sink_that_cannot_be_so_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageFault, match=text) as caught:
        opened(SinkConfig(name="index", **fields), Path("/srv/agg"))
    assert caught.value.code == "HW-AGG-11"


def test_other_kinds_are_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> Any:
            return lambda config: ("made", config.name)

    monkeypatch.setattr(
        sink_kinds,
        "entry_points",
        lambda group, name: [Entry()] if (group, name) == ("headwater.sinks", "kafka") else [],
    )
    assert sink("kafka") == ("made", "index")


# command


def test_a_command_gets_the_batch_and_acknowledges_by_its_status(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = sink("command", command=f"sh -c 'cat >> {out}'")
    one.apply(events(1, 2))
    one.apply(events(3))
    assert numbers_in(out) == [1, 2, 3]


@pytest.mark.parametrize(
    ("command", "text", "failure"),
    [
        ("sh -c 'echo no room >&2; exit 3'", "ended with exit status 3: no room", Failure.FAILED),
        ("sh -c 'kill -9 $$'", "ended with signal 9", Failure.FAILED),
        ("/no/such/program", "cannot be run", Failure.UNAVAILABLE),
        ("sleep 60", "longer than 0", Failure.FAILED),
    ],
)
def test_a_command_may_fail(command: str, text: str, failure: Failure) -> None:
    with pytest.raises(SinkFault, match=text) as caught:
        sink("command", command=command, options={"timeout": "0.3"}).apply(events(1))
    assert caught.value.failure is failure


def test_a_command_ends_with_the_service(tmp_path: Path) -> None:
    """All that it has started does, soon."""
    stopped, config = threading.Event(), SinkConfig(name="index", kind="command", command="sh -c 'sleep 60; sleep 60'")
    one = opened(config, tmp_path, stopped)
    threading.Timer(0.3, stopped.set).start()
    began = time.monotonic()
    with pytest.raises(SinkFault):
        one.apply(events(1))
    assert time.monotonic() - began < 10


# webhook


class Receiver(HTTPServer):
    """Keeps requests; answers with `status` and `extra` headers."""

    status = 204
    extra: dict[str, str]
    delay = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.extra = {}
        self.url = f"http://127.0.0.1:{self.server_port}/hook?x=1"


class Handler(BaseHTTPRequestHandler):
    """Answers POST."""

    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        time.sleep(self.server.delay)
        self.send_response(self.server.status)
        for name, value in self.server.extra.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_is_signed_over_time_and_body(receiver: Receiver) -> None:
    sink("webhook", url=receiver.url, secret="s3cret-ü").apply(events(4, 5, origin="u:o"))
    ((headers, body),) = receiver.got
    assert headers["content-type"] == "application/json"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    signed = headers["webhook-timestamp"].encode() + b"." + body
    assert headers["webhook-signature"] == f"sha256={hmac.new('s3cret-ü'.encode(), signed, sha256).hexdigest()}"
    told = json.loads(body)
    assert (told["sink"], told["first"], told["last"]) == ("index", 4, 5)
    assert [(one["number"], one["origin"]) for one in told["events"]] == [(4, "u:o"), (5, "u:o")]
    sink("webhook", url=receiver.url).apply(events(6))
    assert "webhook-signature" not in receiver.got[1][0]


@pytest.mark.parametrize(
    ("status", "extra", "failure", "wait"),
    [
        (400, {}, Failure.REFUSED, None),
        (410, {}, Failure.REFUSED, None),
        (422, {}, Failure.REFUSED, None),
        (401, {}, Failure.FAILED, None),
        (404, {}, Failure.FAILED, None),
        (500, {}, Failure.FAILED, None),
        (302, {"Location": "http://127.0.0.1:1/"}, Failure.FAILED, None),
        (429, {"Retry-After": "120"}, Failure.UNAVAILABLE, 120.0),
        (503, {"Retry-After": "7200"}, Failure.UNAVAILABLE, 7_200.0),
        (503, {}, Failure.UNAVAILABLE, None),
    ],
)
def test_what_a_webhook_answers_decides(
    receiver: Receiver, status: int, extra: dict[str, str], failure: Failure, wait: float | None
) -> None:
    receiver.status, receiver.extra = status, extra
    began = time.monotonic()
    with pytest.raises(SinkFault) as caught:
        sink("webhook", url=receiver.url, secret="secret").apply(events(1))
    assert (caught.value.failure, caught.value.wait_seconds) == (failure, wait)
    assert len(receiver.got) == 1
    assert time.monotonic() - began < 5


def test_a_webhook_that_is_not_there_or_slow(receiver: Receiver) -> None:
    with pytest.raises(SinkFault, match="no answer") as caught:
        sink("webhook", url="http://127.0.0.1:9/").apply(events(1))
    assert caught.value.failure is Failure.UNAVAILABLE
    receiver.delay = 3.0
    with pytest.raises(SinkFault, match="no answer") as caught:
        sink("webhook", url=receiver.url, options={"timeout": "1"}).apply(events(1))
    assert caught.value.failure is Failure.FAILED


# file


def test_a_file_gets_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.ndjson"
    one = sink("file", path=str(path))
    one.apply(events(1, 2))
    one.apply(events(3, 4))
    one.apply(events(3, 4, 5))  # after a kill before the acknowledgement, with news
    assert numbers_in(path) == [1, 2, 3, 4, 5]
    one.apply(events(2, 3))  # replay
    assert numbers_in(path) == [1, 2, 3, 4, 5, 2, 3]
    path.rename(tmp_path / "rotated")
    one.apply(events(6))
    assert numbers_in(path) == [6]


@pytest.mark.parametrize("keep", [1, 10, 100, 200])
def test_a_line_that_was_cut_is_written_anew(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "events.ndjson"
    one = sink("file", path=str(path))
    one.apply(events(1))
    whole = path.stat().st_size
    one.apply(events(2, 3))
    os.truncate(path, whole + keep)
    one.apply(events(2, 3))
    assert numbers_in(path) == [1, 2, 3]


@pytest.mark.parametrize("before", [b"", b"\n", b"no JSON\n", b"cut", b'{"number": "x"}\n', b"x" * 3_000_000 + b"\n"])
def test_what_was_in_the_file_before(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "events.ndjson"
    path.write_bytes(before)
    sink("file", path=str(path)).apply(events(1))
    lines = path.read_bytes()
    kept = before if before.endswith(b"\n") else b""
    assert lines.startswith(kept)
    assert json.loads(lines[len(kept) :])["number"] == 1


def test_a_file_that_cannot_be_written_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SinkFault, match="cannot be written") as caught:
        sink("file", path=str(tmp_path / "folder")).apply(events(1))
    assert caught.value.failure is Failure.UNAVAILABLE


# sql


def rows(path: Path, table: str = "headwater") -> list[Any]:
    with sqlite3.connect(path) as database:
        found = database.execute(f"SELECT path, hash, number, lastmod FROM {table} ORDER BY path").fetchall()
    database.close()
    return found


def test_a_table_has_the_last_state_of_each_resource(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    one = sink("sql", path=str(path), table="records")
    one.apply(events(1, 2, lastmod=T0))
    newer = [
        Event(number=n, run=1, at=T0, **{f: getattr(new, f) for f in new.__struct_fields__})
        for n, new in enumerate([event("1.xml", "updated", "sha-256:01"), event("2.xml", "deleted")], 3)
    ]
    one.apply(newer)
    expected = [("1.xml", "sha-256:01", 3, None)]
    assert rows(path, "records") == expected
    one.apply([*events(1, 2), *newer])  # once more
    one.apply(events(1))
    one.close()
    assert rows(path, "records") == expected
    one.apply(events(5))
    one.close()
    assert [row[2] for row in rows(path, "records")] == [3, 5]


def test_a_table_that_fails_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    one = sink("sql", path=str(path))
    one.apply(events(1))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    one._connection.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(SinkFault, match="locked") as caught:
        one.apply(events(2))
    assert caught.value.failure is Failure.UNAVAILABLE
    holder.execute("ROLLBACK")
    holder.close()
    one.apply(events(2))
    one.close()
    assert [row[2] for row in rows(path)] == [1, 2]


def test_a_database_of_a_module_gets_its_own_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Module:
        paramstyle = "pyformat"
        Error = OperationalError = InterfaceError = sqlite3.Error

        class Connection:
            def cursor(self) -> Any:
                return self

            def execute(self, sql: str, _values: object = ()) -> None:
                asked.append(sql)

            def commit(self) -> None:
                asked.append("commit")

            def close(self) -> None:
                asked.append("close")

        @staticmethod
        def connect(place: str) -> Connection:
            asked.append(place)
            return Module.Connection()

    monkeypatch.setitem(sys.modules, "psycopg", Module)
    one = sink("sql", url="dbname=x", table="public.records", options={"module": "psycopg"})
    one.apply([*events(1), *events(2, action="deleted")])
    one.close()
    place, make, _, put, remove, _, _ = asked
    assert place == "dbname=x"
    assert "public.records(" in make
    assert put.count("%s") == 11
    assert remove.count("%s") == 4
    assert "?" not in put + remove


# opensearch


def test_an_index_has_the_last_state_of_each_resource(opensearch: Any, tmp_path: Path) -> None:
    address = opensearch.url.removeprefix("http://")
    config = SinkConfig(
        name="index", kind="opensearch", url=f"opensearch://{address}/sink-records", options={"content": "text"}
    )
    (tmp_path / "museum").mkdir()
    (tmp_path / "museum" / "1.xml").write_text("<a>Käse</a>")
    one: Any = opened(config, tmp_path)
    assert not one.apply(events(1, 2, 3, lastmod=T0))
    news = [
        Event(number=n, run=1, at=T0, **{f: getattr(new, f) for f in new.__struct_fields__})
        for n, new in enumerate([event("1.xml", "updated", "sha-256:01"), event("2.xml", "deleted")], 4)
    ]
    assert not one.apply(news)
    assert not one.apply([*events(1, 2, 3), *news])  # after a kill: nothing changes
    assert not one.apply(events(9, action="deleted"))  # of what is not there
    cluster = one._cluster
    cluster.ask("POST", "/sink-records/_refresh")
    found = json.loads(cluster.ask("GET", "/sink-records/_search?version=true&sort=number").body)["hits"]["hits"]
    assert [(hit["_source"]["path"], hit["_source"]["hash"], hit["_version"]) for hit in found] == [
        ("3.xml", "sha-256:00", 3), ("1.xml", "sha-256:01", 4),
    ]  # fmt: skip
    assert found[1]["_source"]["content"] == "<a>Käse</a>"
    cluster.ask(
        "PUT", "/sink-strict", b'{"mappings": {"properties": {"length": {"type": "date"}, "uri": {"type": "long"}}}}'
    )
    strict: Any = opened(SinkConfig(name="index", kind="opensearch", url=config.url, index="sink-strict"), tmp_path)
    refused = strict.apply([*events(1), *events(2, action="deleted")])
    assert list(refused) == [1]
    assert "mapper_parsing_exception" in refused[1] or "document_parsing" in refused[1]
    strict.close()
    one.close()


def test_an_index_that_cannot_be_reached_is_waited_for(tmp_path: Path) -> None:
    config = SinkConfig(
        name="index", kind="opensearch", url="opensearch://127.0.0.1:9/records", options={"timeout": "0.1"}
    )
    one = opened(config, tmp_path)
    with pytest.raises(SinkFault, match="no answer") as caught:
        one.apply(events(1))
    assert caught.value.failure is Failure.UNAVAILABLE
    one.close()
