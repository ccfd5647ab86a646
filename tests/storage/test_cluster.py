"""Requests to a cluster: what passes is tried again, the rest is said at once; against a server that does as told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.progress import Notice, Progress
from headwater.storage import cluster as storage_cluster
from headwater.storage.cluster import (
    SLICE_COUNT,
    SLICE_OCTETS,
    Access,
    Cluster,
    ClusterBusy,
    ClusterDamaged,
    ClusterFault,
    ClusterReadOnly,
    ClusterRefused,
    ClusterUnreachable,
    ClusterUnsafe,
    Node,
    Reason,
    passes,
    reason_of,
    slices,
)
from tests.support.waiting import Clock

pytestmark = pytest.mark.long(10)

HANG_UP = 0


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Scripted:
    """Answers each request with the next line of its script, then with 200; a status of 0 hangs up."""

    def __init__(self) -> None:
        self.script: list[tuple[int, object]] = []
        self.requests: list[Request] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                scripted.requests.append(Request(self.command, self.path, headers, body))
                status, said = scripted.script.pop(0) if scripted.script else (200, {})
                if status == HANG_UP:
                    self.close_connection = True
                    return
                text = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *_: object) -> None:
                """The test says what went wrong."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.node = Node("127.0.0.1", self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.fixture
def cluster(server: Scripted) -> Iterator[Cluster]:
    cluster = Cluster(Access(nodes=(server.node,)), patience_seconds=0.5)
    yield cluster
    cluster.close()


def error(kind: str, reason: str = "why") -> object:
    return {"error": {"type": kind, "reason": reason, "root_cause": []}, "status": 0}


BLOCKED = error("cluster_block_exception", "index [x] blocked by: [FORBIDDEN/8/index write (api)];")
FLOOD = error("cluster_block_exception", "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage]")
PASSES = [
    ("a full queue", 429, error("rejected_execution_exception")),
    ("a full memory", 429, error("circuit_breaking_exception")),
    ("no primary just now", 503, error("unavailable_shards_exception")),
    ("no leader just now", 503, error("cluster_block_exception", "blocked by: [SERVICE_UNAVAILABLE/2/no master]")),
    ("a proxy without a node", 502, b"<html>Bad Gateway</html>"),
    ("a proxy that waited", 504, b""),
    ("nobody answers", HANG_UP, None),
]
RAISED: list[tuple[str, int, object, type[ClusterFault]]] = [
    ("a read-only index", 403, BLOCKED, ClusterReadOnly),
    ("flood stage, which is no full queue", 429, FLOOD, ClusterReadOnly),
    ("nobody", 401, error("security_exception"), ClusterRefused),
    ("somebody else", 403, error("security_exception"), ClusterRefused),
    ("no index", 404, error("index_not_found_exception"), ClusterDamaged),
    ("another mapping", 400, error("strict_dynamic_mapping_exception"), ClusterDamaged),
    ("a bug", 400, error("parsing_exception"), ClusterFault),
    ("a text for an error", 405, {"error": "Incorrect HTTP method"}, ClusterFault),
    ("no JSON", 418, b"I am a teapot", ClusterFault),
    ("a broken node", 500, error("null_pointer_exception"), ClusterUnreachable),
]


@pytest.mark.parametrize(("status", "body"), [row[1:] for row in PASSES], ids=[row[0] for row in PASSES])
def test_what_passes_is_tried_again_and_told(server: Scripted, status: int, body: object) -> None:
    told: list[Notice | Progress] = []
    cluster = Cluster(Access(nodes=(server.node,)), listener=told.append)
    server.script = [(status, body), (status, body), (200, {"ok": 1})]
    assert cluster.ask("POST", "/x", b"{}").body == '{"ok": 1}'
    assert [request.body for request in server.requests] == [b"{}"] * 3
    assert len(told) == 2
    cluster.close()


@pytest.mark.parametrize(("status", "body"), [row[1:] for row in PASSES], ids=[row[0] for row in PASSES])
def test_who_is_in_a_hurry_tries_nothing_again(server: Scripted, status: int, body: object) -> None:
    server.script = [(status, body)] * 500

    def hear(_told: Notice | Progress) -> None:
        hurried.hurry()

    hurried = Cluster(Access(nodes=(server.node,)), patience_seconds=3600, listener=hear)
    with pytest.raises((ClusterBusy, ClusterUnreachable)):  # also what is under way: it is told once, then raised
        hurried.ask("POST", "/x", b"{}")
    assert len(server.requests) == 2
    with pytest.raises((ClusterBusy, ClusterUnreachable)):
        hurried.ask("POST", "/x", b"{}")
    assert len(server.requests) == 3
    server.script = [(200, {"ok": 1})]
    assert hurried.ask("POST", "/x", b"{}").body == '{"ok": 1}', "what answers at once is still asked"
    hurried.close()


def test_who_is_in_a_hurry_waits_only_briefly_for_a_node_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.cluster._HURRIED_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # takes connections, and says nothing
        node = Node("127.0.0.1", hangs.getsockname()[1])
        cluster = Cluster(Access(nodes=(node,)), patience_seconds=3600, request_seconds=3600)
        cluster.hurry()
        with pytest.raises(ClusterUnreachable):
            cluster.ask("GET", "/x")
        cluster.close()


@pytest.mark.parametrize(("status", "body"), [row[1:] for row in PASSES], ids=[row[0] for row in PASSES])
def test_patience_ends(server: Scripted, status: int, body: object, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script = [(status, body)] * 50
    clock = Clock()
    monkeypatch.setattr(storage_cluster, "time", SimpleNamespace(monotonic=clock.seconds, sleep=clock.sleep))
    cluster = Cluster(Access(nodes=(server.node,)), patience_seconds=20)
    with pytest.raises((ClusterBusy, ClusterUnreachable)) as said:
        cluster.ask("GET", "/x")
    cluster.close()
    assert said.value.exit_status == Exit.STORE
    assert 3 <= len(server.requests) < 30
    assert sum(clock.slept) == pytest.approx(19, abs=1.1)


@pytest.mark.parametrize(("status", "body", "kind"), [row[1:] for row in RAISED], ids=[row[0] for row in RAISED])
def test_what_does_not_pass_is_said_at_once(
    server: Scripted, cluster: Cluster, status: int, body: object, kind: type[ClusterFault]
) -> None:
    server.script = [(status, body)]
    with pytest.raises(HeadwaterError) as said:
        cluster.ask("GET", "/x")
    assert type(said.value) is kind
    assert len(server.requests) == 1


def test_an_accepted_status_is_an_answer(server: Scripted, cluster: Cluster) -> None:
    server.script = [(404, {"found": False})]
    assert cluster.ask("GET", "/x", accept=(404,)) == (404, '{"found": false}')


def items(*statuses: int) -> tuple[int, object]:
    answers = [
        {"index": {"status": s, **({} if s < 300 else {"error": {"type": "t", "reason": "r"}})}} for s in statuses
    ]
    return 200, {"errors": any(status >= 300 for status in statuses), "items": answers}


def test_of_a_bulk_request_only_what_was_rejected_is_sent_again(server: Scripted, cluster: Cluster) -> None:
    server.script = [items(201, 429, 200, 503), (503, b""), items(429, 200), items(201)]
    assert cluster.bulk("x", [b"a\n", b"b\n", b"c\n", b"d\n"])
    assert [request.body for request in server.requests] == [b"a\nb\nc\nd\n", b"b\nd\n", b"b\nd\n", b"b\n"]
    assert "require_alias=true" in server.requests[0].path


def test_a_newer_document_is_told_and_is_no_fault(server: Scripted, cluster: Cluster) -> None:
    server.script = [items(201, 409)]
    assert not cluster.bulk("x", [b"a\n", b"b\n"])
    server.script = [items(409, 429), items(201)]
    assert not cluster.bulk("x", [b"a\n", b"b\n"])


def test_one_document_that_is_refused_fails_the_bulk_request(server: Scripted, cluster: Cluster) -> None:
    server.script = [items(201, 400, 429)]
    with pytest.raises(ClusterFault):
        cluster.bulk("x", [b"a\n", b"b\n", b"c\n"])
    assert len(server.requests) == 1


def test_a_stream_says_when_a_part_of_it_failed(server: Scripted, cluster: Cluster) -> None:
    server.script = [(400, error("parsing_exception"))]
    with pytest.raises(ClusterFault):
        cluster.stream("x", iter([b"a\n"] * (3 * SLICE_COUNT)), lambda: None)


def test_slices_are_small_and_keep_the_order() -> None:
    operations = [b"x" * size for size in (10, SLICE_OCTETS, 10, SLICE_OCTETS + 5)] + [b"y"] * (SLICE_COUNT + 1)
    parts = list(slices(iter(operations)))
    assert [operation for part in parts for operation in part] == operations
    assert all(len(part) == 1 or sum(map(len, part)) <= SLICE_OCTETS for part in parts)
    assert max(map(len, parts)) == SLICE_COUNT
    assert list(slices(iter([]))) == []


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (lambda node: Access(nodes=(node,)), None),
        (lambda node: Access(nodes=(node,), user="us", password="pw"), "Basic dXM6cHc="),
        (lambda node: Access(nodes=(node,), user="us", password="p\N{EURO SIGN}"), "Basic dXM6cOKCrA=="),
        (lambda node: Access(nodes=(node,), api_key="a2V5"), "ApiKey a2V5"),
        (lambda node: Access(nodes=(node,), api_key="a2V5\n", user="us"), "ApiKey a2V5"),
        (lambda node: Access(nodes=(node,), api_key="id:secret"), "ApiKey aWQ6c2VjcmV0"),
    ],
)
def test_who_asks(server: Scripted, access: Callable[[Node], Access], said: str | None) -> None:
    cluster = Cluster(access(server.node))
    cluster.ask("GET", "/x")
    assert server.requests[0].headers.get("authorization") == said
    cluster.close()


@pytest.mark.parametrize(
    "access",
    [
        Access(nodes=(), api_key="two\nsecrets"),
        Access(nodes=(), api_key="secret key"),
        Access(nodes=(), api_key="secret\N{EURO SIGN}"),
        Access(nodes=(), user="us:er", password="secret"),
    ],
)
def test_what_can_be_no_credentials_is_refused_and_not_told(access: Access) -> None:
    with pytest.raises(UsageFault) as said:
        Cluster(access)
    assert "secret" not in f"{said.value}{said.value.todo}"


def test_another_node_is_asked_when_one_is_gone(server: Scripted) -> None:
    gone = Scripted()
    gone.close()
    cluster = Cluster(Access(nodes=(gone.node, server.node)), patience_seconds=5)
    for _ in range(4):
        assert cluster.ask("GET", "/x").status == 200
    cluster.close()


def test_tls_to_a_port_without_is_said(server: Scripted) -> None:
    cluster = Cluster(Access(nodes=(server.node,), tls=True), patience_seconds=0.3)
    with pytest.raises(ClusterUnsafe, match="no answer") as said:
        cluster.ask("GET", "/x")
    assert "leave out tls=true" in said.value.todo
    cluster.close()


def test_reasons() -> None:
    assert reason_of('{"error": {"type": "a", "reason": "b"}}') == Reason("a", "b")
    assert reason_of('{"error": "text"}') == Reason("", "text")
    assert reason_of("no JSON") == Reason("", "no JSON")
    assert passes(429, Reason("rejected_execution_exception"))
    assert not passes(429, Reason("cluster_block_exception"))
    assert not passes(400, Reason())


@pytest.fixture
def silent_node() -> Iterator[socket.socket]:
    """Takes connections and says nothing, as the system does for a process that is paused."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener


def test_a_node_that_is_silent_is_passed_over_and_rests(server: Scripted, silent_node: socket.socket) -> None:
    told: list[Notice | Progress] = []
    nodes = (Node("127.0.0.1", silent_node.getsockname()[1]), server.node)
    cluster = Cluster(Access(nodes=nodes), request_seconds=600.0, node_seconds=0.3, listener=told.append)
    for _ in range(20):
        assert cluster.ask("PUT", "/x", b"{}").status == 200
    assert len(server.requests) == 20
    assert 1 <= len(told) <= 6, "each time that it has rested, one request waits for it"
    cluster.close()


def test_slow_nodes_are_given_more_time_each_time(silent_node: socket.socket) -> None:
    """As when all of them wait for one that holds a shard: who asks too often would never get an answer."""
    address = silent_node.getsockname()[1]
    nodes = (Node("127.0.0.1", address), Node("localhost", address))
    cluster = Cluster(Access(nodes=nodes), request_seconds=0.5, node_seconds=0.1, patience_seconds=2.0)
    waited: list[float] = []
    given = cluster._seconds

    def heard(body: bytes | None, silent_nodes: int) -> float:
        waited.append(given(body, silent_nodes))
        return waited[-1]

    cluster._seconds = heard  # type: ignore[method-assign]
    with pytest.raises(ClusterUnreachable):
        cluster.ask("GET", "/")
    assert waited[:4] == [0.1, 0.2, 0.4, 0.5]
    cluster.close()


def test_one_node_alone_and_large_requests_are_given_their_time(server: Scripted) -> None:
    alone = Cluster(Access(nodes=(server.node,)), request_seconds=30.0)
    assert alone._seconds(b"", 0) == 30.0
    two = Cluster(Access(nodes=(server.node, Node("127.0.0.1", 9))), request_seconds=30.0)
    assert [two._seconds(None, late) for late in range(4)] == [5.0, 10.0, 20.0, 30.0]
    assert two._seconds(b"x" * (4 << 20), 0) == 21.0
    for cluster in (alone, two):
        cluster.close()
