"""Who records goes before who reads, in one process."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

from headwater.http.ingest.precedence import PAUSE_SECONDS, Precedence
from headwater.http.server.fast_path import response_at_hand
from tests.http.announcing import PushServer, serving
from tests.support.serving import drain, request
from tests.support.waiting import DEADLINE, until

CHANGES = "/s/changelist/open.xml"


def is_at_hand(server: PushServer, target: str) -> bool:
    """Whether the fast path answers for a document: it does a second after it was written."""
    request(server.url, target)
    return response_at_hand(server.app, target.encode(), [(b"host", b"h")], "-") is not None


def test_readers_give_way_while_something_is_recorded_and_only_then() -> None:
    pauses: list[float] = []
    precedence = Precedence(pauses.append)
    precedence.give_way()
    assert not pauses
    assert precedence.during(lambda: precedence.during(precedence.give_way) or len(pauses)) == 1
    assert pauses == [PAUSE_SECONDS]
    try:
        precedence.during(lambda: 1 // 0)
    except ZeroDivisionError:
        precedence.give_way()
    assert pauses == [PAUSE_SECONDS], "what has failed is over as well"


def test_requests_for_documents_and_resources_give_way(tmp_path: Path) -> None:
    """Those of the fast path and those of the application; they are answered all the same."""
    pauses: list[float] = []
    with serving(tmp_path) as server:
        server.app.precedence = precedence = Precedence(pauses.append)
        server.post("/s/changes", [{"path": "a"}])
        until(lambda: is_at_hand(server, CHANGES))
        assert not pauses
        ending = threading.Event()
        recording = threading.Thread(target=precedence.during, args=(lambda: ending.wait(DEADLINE),))
        recording.start()
        try:
            for target in ("/robots.txt", CHANGES, "/"):
                request(server.url, target)
        finally:
            ending.set()
            recording.join()
        assert len(pauses) == 3
        request(server.url, "/robots.txt")
        assert len(pauses) == 3


def test_requests_that_come_together_give_way_once(tmp_path: Path) -> None:
    """Else one connection could hold up all others for seconds."""
    pauses: list[float] = []
    with serving(tmp_path) as server:
        server.post("/s/changes", [{"path": "a"}])
        until(lambda: is_at_hand(server, CHANGES))
        server.app.precedence = precedence = Precedence(pauses.append)
        ending = threading.Event()
        recording = threading.Thread(target=precedence.during, args=(lambda: ending.wait(DEADLINE),))
        recording.start()
        address = urlsplit(server.url)
        one = f"GET {CHANGES} HTTP/1.1\r\nhost: h\r\n\r\n".encode()
        try:
            with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE) as client:
                client.sendall(9 * one + one.replace(b"h\r\n\r", b"h\r\nconnection: close\r\n\r"))
                assert drain(client).count(b"HTTP/1.1 200") == 10
        finally:
            ending.set()
            recording.join()
    assert len(pauses) <= 3, "the last one is answered by the application"
