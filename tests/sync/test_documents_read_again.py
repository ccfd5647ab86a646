"""Documents that did not come, or not whole: asked again within the run, ever later, and not for ever (DST-F1)."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from headwater.progress import silent
from headwater.sync.lists.documents import Documents
from headwater.sync.run import utcnow
from headwater.transport.fetch import TransportOptions
from headwater.transport.transport import StreamBroken, Transport
from tests.support.copying import DONE, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, reset, sometimes, truncated
from tests.sync.test_documents import ALL, indexed


def cut_gzip(body: bytes) -> Reply:
    whole = gzip.compress(body)

    def script(handler: Handler) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(whole)
        handler.send(head + whole[:-9])

    return Reply(script=script)


def cut_chunks(body: bytes) -> Reply:
    def script(handler: Handler) -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        handler.send(head + b"%x\r\n" % len(body) + body[:-9])

    return Reply(script=script)


PASSING = {
    "cut short": truncated,
    "cut in its head": lambda body: truncated(body, len(body)),
    "cut gzip": cut_gzip,
    "cut chunks": cut_chunks,
    "closed": lambda body: reset(),
    "torn": lambda body: Reply(body[:-20]),
    "408": lambda body: Reply(b"", 408),
    "425": lambda body: Reply(b"", 425),
    "429": lambda body: Reply(b"", 429, {"Retry-After": "0"}),
    "503": lambda body: Reply(b"", 503, {"Retry-After": "0"}),
    "500": lambda body: Reply(b"", 500),
}
DOCUMENTS = (
    "/.well-known/resourcesync",
    "/set/capabilitylist.xml",
    "/set/resourcelist.xml",
    "/set/a.xml",
    "/set/changelist.xml",
)


@pytest.mark.parametrize("fault", PASSING)
def test_what_may_pass_is_asked_again_within_the_run(fault: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F1: documents like resources, each of them twice in a row, the first time and later."""
    indexed(site)
    pages = {path: source.reply(path) for path in DOCUMENTS}
    for later in (b"", b"<!-- later -->"):
        for path, page in pages.items():
            whole = Reply(page.body + later)
            source.pages[path] = sometimes(2, PASSING[fault](whole.body), whole)
        source.forget()
        ran = go(source.base, dest, baseline=True)
        assert (ran.status, ran.one.complete) == (DONE, True)
        assert tree(dest) == ALL
        assert {path: len(source.requests(path)) >= 3 for path in DOCUMENTS} == dict.fromkeys(DOCUMENTS, True)


@pytest.mark.parametrize("fault", ["cut short", "torn"])
@pytest.mark.parametrize("path", DOCUMENTS)
def test_what_does_not_pass_is_asked_a_bounded_number_of_times(
    path: str, fault: str, source: Source, site: Site, dest: Path
) -> None:
    """DST-F1: bounded, and nothing is deleted for it."""
    indexed(site)
    go(source.base, dest)
    for one in {DOCUMENTS[0], path}:
        source.pages[one] = Reply(source.reply(one).body + b"<!-- later -->")
    source.pages[path] = PASSING[fault](source.reply(path).body)
    source.forget()
    go(source.base, dest, baseline=True)
    assert tree(dest) == ALL
    assert 2 < len(source.requests(path)) <= 12


def test_the_wait_before_a_document_is_asked_again_grows(source: Source, site: Site) -> None:
    """DST-F1: exponential, with jitter."""
    path = "/set/capabilitylist.xml"
    source.pages[path] = truncated(source.reply(path).body)
    waits: list[float] = []
    options = TransportOptions(retries=4, first_backoff_seconds=1.0, chance=lambda: 0.5)
    with Transport(options) as wire:
        documents = Documents(wire, silent, now=utcnow, sleep=waits.append)
        assert isinstance(documents.probe(f"{source.base}{path}").fault, StreamBroken)
    assert waits == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("is_known", "seconds", "requests"), [(False, 4, 1), (False, 6, 2), (True, 290, 1), (True, 310, 2)]
)
def test_what_is_asked_ahead_is_used_while_it_is_fresh(
    is_known: bool, seconds: int, requests: int, source: Source, site: Site
) -> None:
    """A set is brought to its present: content is fresh for seconds, that it is what it was for minutes."""
    path, later = "/set/capabilitylist.xml", [0.0]
    with Transport(TransportOptions(monotonic=lambda: time.monotonic() + later[0])) as wire:
        documents = Documents(wire, silent, now=utcnow)
        held = documents.probe(f"{source.base}{path}").validated[1] if is_known else None
        source.forget()
        documents.ask_ahead([(f"{source.base}{path}", held, None)])
        later[0] = seconds
        assert documents.probe(f"{source.base}{path}", validators=held).status == (304 if is_known else 200)
    assert len(source.requests(path)) == requests
