"""Who records goes before who reads, in one process."""

from __future__ import annotations

import threading
from pathlib import Path

from headwater.http.source_access import PAUSE_SECONDS, Precedence
from tests.http.announcing import serving
from tests.support.serving import request
from tests.support.waiting import DEADLINE

CHANGES = "/s/changelist/open.xml"


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
    """They are answered all the same."""
    pauses: list[float] = []
    with serving(tmp_path) as server:
        server.app.precedence = precedence = Precedence(pauses.append)
        server.post("/s/changes", [{"path": "a"}])
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
