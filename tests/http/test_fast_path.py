"""What lies ready is answered at once; nobody can tell it from an answer that took the long way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.http.resources.header_cache import content_lines
from headwater.http.responses import fields
from headwater.http.server import fast_path
from headwater.http.server.fast_path import FastProtocol
from headwater.http.server.uvicorn_server import ServerLimits
from tests.support.serving import Face, drain, face
from tests.support.waiting import DEADLINE, settle, settle_second, until

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
        settle_second()  # within it the `Last-Modified` of a document is the second before, afterwards its own
        yield running


def asked(target: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "host: x", *lines, "", ""]).encode()


TARGETS = (
    "small.txt",
    "large.bin",
    "none.txt",
    "small.txt?query",
    "sm%61ll.txt",
    "../small.txt",
    "a%2Fb",
    "%zz",
    "a#b",
)
OTHERS = ("/files/resourcelist.xml", "/files/changelist.xml", "/robots.txt", "/none", "//robots.txt", "/health")
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Range": "bytes=1-2"},
    {"Range": "bytes=90000000-"},
    {"If_None_Match": "*"},
    {"Accept_Encoding": "gzip"},
    {"Content_Length": "0"},
)


@pytest.mark.parametrize("headers", HEADERS, ids=str)
@pytest.mark.parametrize("target", [*(f"/files/resources/{name}" for name in TARGETS), *OTHERS])
def test_both_ways_answer_the_same(server: Face, target: str, headers: dict[str, str]) -> None:
    before = len(server.served)  # both are logged here before the test ends: nothing is left to be logged by it
    answers = [server.get(target, **headers), server.get(target, Connection="close", **headers)]
    for answer in answers:
        answer.headers.pop("date", None)
        answer.headers.pop("connection", None)
    assert answers[0] == answers[1]
    until(lambda: len(server.served) == before + 2, what="the log")  # written once the answer has been sent
    first, second = server.served[before:]
    assert (first.target, first.status, first.octets) == (second.target, second.status, second.octets)


def test_without_it_everything_is_answered_by_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.txt").write_bytes(SMALL)
    asked_at_hand: list[bytes] = []

    def told(_app: object, target: bytes, *_more: object) -> None:
        asked_at_hand.append(target)

    monkeypatch.setattr(fast_path, "response_at_hand", told)
    for is_on in (True, False):
        asked_at_hand.clear()
        monkeypatch.setattr(fast_path, "IS_ON", is_on)
        with face(tmp_path / "files", tmp_path / f"state{is_on}") as running:
            for _ in range(2):
                assert running.get("/files/resources/small.txt").body == SMALL
            said = running.raw(asked("/health") + asked("/files/resources/small.txt", "connection: close"))
            assert said.endswith(SMALL)
        assert bool(asked_at_hand) == is_on


def test_a_file_that_is_too_large_for_it_is_closed(server: Face) -> None:
    """It has been opened to see that, and is opened again to be sent."""

    def is_closed() -> bool:
        return len(os.listdir("/dev/fd")) <= before

    server.get("/files/resources/large.bin")
    before = len(os.listdir("/dev/fd"))
    for headers in ({}, {"Range": "bytes=9-"}) * 8:
        assert LARGE.endswith(server.get("/files/resources/large.bin", **headers).body)
    until(is_closed, DEADLINE / 6, what="the end of all files")


def test_answers_come_in_the_order_of_the_requests(server: Face) -> None:
    """Some at once, some the long way, one of them in several blocks: an answer never overtakes another."""
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
    """The time counts from the last answer, whichever way it took."""
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


def test_a_reader_that_is_behind_gets_its_answers_all_the_same(server: Face) -> None:
    count = 30_000
    octets = asked("/files/resources/small.txt") * count + asked("/files/resources/small.txt", "connection: close")
    with server.connect() as client:
        sending = threading.Thread(target=client.sendall, args=(octets,))
        sending.start()
        time.sleep(0.3)  # the server has filled what there is of buffers
        received = drain(client)
        sending.join()
    assert received.count(b"HTTP/1.1 200 OK") == count + 1


def test_thousands_of_requests_at_once_take_turns_with_those_of_others(
    server: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many one read of the socket brings, the loop gets round to the others between a few of them."""
    begun: list[int] = []
    begin_head, turns = FastProtocol.begin_head, [0]

    def counted(protocol: FastProtocol) -> None:
        if not turns[0]:
            protocol.loop.call_soon(turns.__setitem__, 0, 0)
        turns[0] += 1
        begun.append(turns[0])
        begin_head(protocol)

    monkeypatch.setattr(FastProtocol, "begin_head", counted)
    for target in ("/files/resources/small.txt", "/health"):
        octets = asked(target) * 2_000 + asked(target, "connection: close")
        with server.connect() as client:
            sending = threading.Thread(target=client.sendall, args=(octets,))
            sending.start()
            received = drain(client)
            sending.join()
        assert received.count(b"HTTP/1.1 200 OK") == 2_001
    assert len(begun) == 4_002
    assert max(begun) < 100


def test_what_nobody_reads_the_answers_to_waits(server: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a read with thousands of requests few more are handled once there is no room for their answers."""
    behind: list[int] = []
    stopped = threading.Event()
    pause_writing, begin_head = FastProtocol.pause_writing, FastProtocol.begin_head

    def paused(protocol: FastProtocol) -> None:
        behind.append(0)
        pause_writing(protocol)
        stopped.set()

    def counted(protocol: FastProtocol) -> None:
        if protocol.flow.write_paused:
            behind[-1] += 1
        begin_head(protocol)

    monkeypatch.setattr(FastProtocol, "pause_writing", paused)
    monkeypatch.setattr(FastProtocol, "begin_head", counted)
    octets = asked("/files/resources/small.txt") * 60_000 + asked("/files/resources/small.txt", "connection: close")
    with server.connect() as client:
        sending = threading.Thread(target=client.sendall, args=(octets,))
        sending.start()
        assert stopped.wait(DEADLINE)
        received = drain(client)
        sending.join()
    assert received.count(b"HTTP/1.1 200 OK") == 60_001
    assert max(behind) < 100


def test_a_media_type_cannot_add_a_line() -> None:
    assert fields(content_lines("text/html", "gzip")) == [
        (b"content-type", b"text/html"),
        (b"content-encoding", b"gzip"),
    ]
    assert content_lines("text/html\r\nset-cookie: a", "gzip\n") == b""
