"""Several requests on one connection: in order, in pieces, thousands at once, and after a while."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from headwater.http.server import BoundedProtocol, ServerLimits
from tests.support.serving import Face, drain, face
from tests.support.waiting import DEADLINE, settle, until

pytestmark = pytest.mark.long(10)

SMALL, LARGE = b"small", b"large" * 100_000
IDLE_SECONDS = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    base = tmp_path_factory.mktemp("at_once")
    files = base / "files"
    files.mkdir()
    (files / "small.txt").write_bytes(SMALL)
    (files / "large.bin").write_bytes(LARGE)
    settle()  # at rest for longer than a tick, so that the tags are strong
    with face(files, base / "state", limits=ServerLimits(idle_seconds=IDLE_SECONDS)) as running:
        yield running


def asked(target: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "host: x", *lines, "", ""]).encode()


def test_answers_come_in_the_order_of_the_requests(server: Face) -> None:
    """Small ones, large ones in several blocks: an answer never overtakes another."""
    targets = ["/files/resources/small.txt", "/health", "/files/resources/large.bin", "/files/resourcelist.xml", "/"]
    asked_for = [*targets * 3, "/files/resources/small.txt"]
    said = server.raw(b"".join(map(asked, asked_for[:-1])) + asked(asked_for[-1], "connection: close"))
    assert said.count(b"HTTP/1.1 200 OK") == 16
    assert said.endswith(SMALL)
    # what an earlier test asked for last may be logged after its answer, and so after this test has begun
    until(lambda: [one.target for one in server.served[-16:]] == asked_for, what="the log")


def test_a_request_in_pieces_is_answered_once_it_is_whole(server: Face) -> None:
    with server.connect() as client:
        for octet in asked("/files/resources/small.txt"):
            client.sendall(bytes((octet,)))
        assert client.recv(1 << 16).endswith(b"\r\n\r\n" + SMALL)


def test_a_connection_is_closed_once_it_is_idle_and_not_before(server: Face) -> None:
    """The time counts from the last answer."""
    with server.connect() as client:
        client.sendall(asked("/health"))
        client.recv(1 << 16)
        for target in ("/files/resources/small.txt", "/health", "/files/resources/small.txt") * 2:
            answered = time.monotonic()
            time.sleep(IDLE_SECONDS / 3)
            client.sendall(asked(target))
            told = client.recv(1 << 16)
            if not told and time.monotonic() - answered > IDLE_SECONDS / 2:
                pytest.skip("the machine has stood still: it was idle for longer than it should have been")
            assert told.startswith(b"HTTP/1.1 200 OK")
        assert client.recv(1) == b"", "which raises TimeoutError where it stays open"


def test_thousands_of_requests_on_one_connection_hold_nobody_up(server: Face) -> None:
    """However many one read of the socket brings, others are answered between them, also while nobody reads."""
    octets = asked("/files/resources/small.txt") * 20_000 + asked("/files/resources/small.txt", "connection: close")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.settimeout(DEADLINE)
        client.connect(("127.0.0.1", urlsplit(server.url).port or 0))
        sending = threading.Thread(target=client.sendall, args=(octets,))
        sending.start()
        for _ in range(20):
            began = time.monotonic()
            assert server.get("/files/resources/small.txt").body == SMALL
            assert time.monotonic() - began < DEADLINE / 6
        connections = [one for one in server.server.server_state.connections if isinstance(one, BoundedProtocol)]
        assert any(one.pipeline or one.rest for one in connections), "nobody reads: some wait for their turn"
        assert max(len(one.pipeline) for one in connections) < 100, "few are parsed before their turn"
        received = drain(client)
        sending.join()
    assert received.count(b"HTTP/1.1 200 OK") == 20_001
