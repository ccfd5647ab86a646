"""Clients that offer another protocol with what they announce, as Java's do, and bodies that are not what was said."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.engines import java

from tests.http.announcing import OTHER, TOKEN, PushServer, serving
from tests.support.engines import REQUIRE
from tests.support.push_set import change, resource
from tests.support.waiting import DEADLINE, until

OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
CLIENT = Path(__file__).with_name("Announcer.java")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushServer]:
    with serving(tmp_path_factory.mktemp("offers")) as fed:
        yield fed


class Connection:
    """One connection, of which answers are read one after another."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), DEADLINE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        for piece in pieces:
            self._socket.sendall(piece)
            time.sleep(pause)

    def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer; 0 when the connection has ended."""
        status = self._file.readline()
        if not status:
            return 0, b""
        fields: dict[bytes, bytes] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        return int(status.split()[1]), self._file.read(int(fields.get(b"content-length", b"0")))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()
        self._socket.close()


def post(target: str, length: int | None, *fields: bytes, token: str = TOKEN) -> bytes:
    """The head of a request with the offer."""
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    own = b"".join(one + b"\r\n" for one in (b"host: x", b"authorization: Bearer " + token.encode(), size, *fields))
    return b"POST %b HTTP/1.1\r\n" % target.encode() + own + OFFER + b"\r\n"


def lines(*names: str) -> bytes:
    return b"".join(json.dumps({"path": name, "change": "updated"}).encode() + b"\n" for name in names)


def taken(answer: tuple[int, bytes]) -> int:
    assert answer[0] == 200, answer
    count = json.loads(answer[1])["taken"]
    assert isinstance(count, int)
    return count


def has(fed: PushServer, *names: str) -> bool:
    return {uri for _, uri in fed.log()} >= set(names)


def test_a_body_that_comes_with_an_offer_is_taken_and_the_connection_goes_on(running: PushServer) -> None:
    with Connection(running.url) as client:
        for number in range(3):
            body = lines(f"offer/{number}")
            client.send(post("/s/changes", len(body)) + body)
            assert taken(client.answer()) == 1
        client.send(b"GET /health HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n")
        assert client.answer()[0] in (200, 503)
    assert has(running, "offer/0", "offer/1", "offer/2")


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"h2c, TLS/1.0", b"nonsense"])
def test_whatever_is_offered_means_nothing(running: PushServer, upgrade: bytes) -> None:
    body = lines("odd/" + upgrade.hex())
    head = post("/s/changes", len(body)).replace(b"upgrade: h2c", b"Upgrade: " + upgrade)
    with Connection(running.url) as client:
        client.send(head.replace(b"Upgrade, HTTP2-Settings", b"keep-alive, upgrade") + body)
        assert taken(client.answer()) == 1


def test_a_body_in_pieces_or_late_or_in_chunks_is_taken_whole(running: PushServer) -> None:
    body = lines("piece/1", "piece/2")
    head = post("/s/changes", len(body))
    with Connection(running.url) as client:
        client.send(*(bytes([octet]) for octet in head + body))
        assert taken(client.answer()) == 2
        client.send(head, body, pause=0.2)
        assert taken(client.answer()) == 2
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (body[:5], body[5:])) + b"0\r\n\r\n"
        client.send(post("/s/changes", None), chunks, pause=0.05)
        assert taken(client.answer()) == 2
        client.send(post("/s/changes", None) + chunks)
        assert taken(client.answer()) == 2


def test_who_waits_to_be_asked_for_the_body_is_asked(running: PushServer) -> None:
    body = lines("expected")
    with Connection(running.url) as client:
        client.send(post("/s/changes", len(body), b"expect: 100-continue"))
        assert client.answer()[0] == 100
        client.send(body)
        assert taken(client.answer()) == 1
        client.send(post("/s/changes", len(body), b"expect: 100-continue") + body)  # and who does not wait
        status = client.answer()
        assert taken(client.answer() if status[0] == 100 else status) == 1


def test_requests_with_and_without_an_offer_may_be_pipelined(running: PushServer) -> None:
    body = lines("pipe")
    plain = post("/s/changes", len(body)).replace(OFFER, b"") + body
    get = b"GET /none HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n"
    offered = post("/s/changes", len(body)) + body
    with Connection(running.url) as client:
        client.send(offered + get + plain + offered + get + get + plain)
        statuses = [client.answer()[0] for _ in range(7)]
    assert statuses == [200, 404, 200, 200, 404, 404, 200]


@pytest.mark.parametrize(
    ("version", "connection"),
    [(b"1.1", b"close, Upgrade, HTTP2-Settings"), (b"1.1", b"Upgrade, close"), (b"1.0", b"Upgrade, HTTP2-Settings")],
)
def test_who_offers_and_wants_the_connection_closed_is_answered(
    running: PushServer, version: bytes, connection: bytes
) -> None:
    def of(head: bytes) -> bytes:
        return head.replace(b"HTTP/1.1", b"HTTP/" + version).replace(b"Upgrade, HTTP2-Settings", connection)

    body = lines("last/" + connection.hex())
    for pieces in ([of(post("/s/changes", len(body))) + body], [of(post("/s/changes", len(body))), body]):
        with Connection(running.url) as client:
            client.send(*pieces, pause=0.05)
            assert taken(client.answer()) == 1
            assert client.answer()[0] == 0
    with Connection(running.url) as client:
        client.send(of(b"GET /none HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n"))
        assert client.answer()[0] == 404
        assert client.answer()[0] == 0


def test_documents_come_with_an_offer_too(running: PushServer) -> None:
    body = b"".join(json.dumps(one).encode() + b"\n" for one in (resource("o", 1), change("o", "created", 1)))
    with Connection(running.url) as client:
        client.send(post("/ingest/dit", len(body), token=OTHER) + body)
        assert client.answer()[0] == 200
    assert running.log("d") == [("created", "o")]


def test_the_head_that_comes_twice_is_bounded_as_any_other(running: PushServer) -> None:
    with Connection(running.url) as client:
        client.send(post("/s/changes", 5, b"x: " + b"a" * 70_000))
        assert client.answer()[0] == 400
    with Connection(running.url) as client:
        client.send(post("/s/changes", 5).replace(TOKEN.encode(), b"wrong") + b"abcde")
        assert client.answer()[0] == 401
    with Connection(running.url) as client:  # what is no offer but a tunnel gets none
        client.send(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n" + OFFER + b"\r\n")
        assert client.answer()[0] in (400, 405)


def scope_of(target: str, token: str, length: bytes) -> dict[str, Any]:
    headers = [(b"authorization", b"Bearer " + token.encode()), (b"content-length", length)]
    return {"type": "http", "method": "POST", "raw_path": target.encode(), "query_string": b"", "headers": headers}


@pytest.mark.parametrize(("target", "token", "name"), [("/s/changes", TOKEN, "s"), ("/ingest/dit", OTHER, "d")])
@pytest.mark.parametrize("off", [-30, -1, 1, 30, None])
def test_a_body_of_another_length_than_was_said_is_never_taken_for_whole(
    tmp_path: Path, target: str, token: str, name: str, off: int | None
) -> None:
    """A server below us that drops a body, or a part of it."""
    body = (
        lines("a", "b") if name == "s" else b"\n".join(json.dumps(change(one, "deleted", 1)).encode() for one in "ab")
    )
    came = b"" if off is None else body + b"x" * off if off > 0 else body[:off]
    messages = [{"type": "http.request", "body": came, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop()

    with serving(tmp_path) as fed:
        scope = scope_of(target, token, b"%d" % len(body))
        scope["headers"].append((b"idempotency-key", b"k"))
        reply = asyncio.run(fed.app._respond(scope, receive))
        assert reply.status == 408
        error = json.loads(bytes(reply.body))["error"]
        assert error["code"] == "HW-SRV-05"
        if name == "s":  # the same once more, whole: what was not taken is taken
            answer = fed.post(target, body, token, idempotency_key="k")
            assert (answer.status, json.loads(answer.body)["taken"]) == (200, 2)


def _jdk() -> Path:
    """A JDK that runs a source file; without one the test is skipped, and told at the end of the run."""
    found = [one for home in java.homes() if (one := java.look(home)) and one.release >= 11]
    homes = [one.home for one in found if shutil.which("javac", path=str(one.home / "bin"))]
    if homes:
        return homes[-1]
    words = "no JDK of Java 11 or later: announcements by a Java client are not tried"
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(words, pytrace=False)
    pytest.skip(f"no real search engine: {words}")


def test_announcements_of_a_java_client_are_taken(running: PushServer) -> None:
    """`java.net.http.HttpClient` as it is out of the box: it offers h2c with every request."""
    command = [str(_jdk() / "bin" / "java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(CLIENT)]
    ended = subprocess.run(
        [*command, f"{running.url}/s/changes", TOKEN], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    told = ended.stdout.split()
    assert told == ["HTTP_1_1:200:1"] * 4, ended.stdout
    until(lambda: has(running, *(f"java/{number}" for number in range(4))), what="what was announced")
