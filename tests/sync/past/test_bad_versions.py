"""Hostile and broken versions: nothing false is placed, and all that was tried is told (DST-S7, DST-S8, DST-S12)."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest

from headwater.transport.access import Level
from headwater.transport.fetch import TransportOptions
from tests.support.copying import DONE, FAILED, IMPATIENT, Ran, go, tree
from tests.support.fake_source import Handler, Reply, Source, at, ln
from tests.sync.past.history import History, moment_of

EARLY = format_datetime(moment_of(1), usegmt=True)
LATE = "Sun, 01 Jan 2040 00:00:00 GMT"
GATE, MAP = "/timegate/a", "/timemap/a"


@pytest.fixture
def past(source: Source) -> History:
    """One resource without a hash, updated since: its version is taken at its word, or not at all."""
    return with_hashes(source, hashes=False)


def with_hashes(source: Source, *, hashes: bool = True) -> History:
    made = History(source, hashes=hashes)
    made.link = lambda name, when: ln("timegate", f"{source.base}{GATE}")
    made.put(1, "a", b"then")
    made.put(20, "a", b"later")
    made.snapshot(90)
    made.changelist(0, None)
    made.serve_versions()
    return made


def copied(past: History, tmp_path: Path, transport: TransportOptions = IMPATIENT, **options: object) -> Ran:
    return go(past.publish(), tmp_path / "copy", transport, at=at(10), **options)


def refused(ran: Ran, tmp_path: Path, why: str) -> None:
    assert ran.status == FAILED, ran
    assert why in ran.one.failures[0].reason
    assert tree(tmp_path / "copy") == {}


def redirect(to: str) -> Reply:
    return Reply(b"", 302, {"Location": to, "Vary": "accept-datetime"})


GATES = [
    ("loops", redirect(GATE), "more than 10 redirects"),
    ("answers a later version", Reply(b"x", headers={"Memento-Datetime": LATE}), "which is later"),
    ("has no Memento-Datetime", Reply(b"x"), "without Memento-Datetime"),
    ("has a Memento-Datetime that is none", Reply(b"x", headers={"Memento-Datetime": "soon"}), "without Memento-Dat"),
    (
        "answers another resource",
        Reply(b"x", headers={"Memento-Datetime": EARLY, "Link": '<http://a.example/b>; rel="original"'}),
        "another resource",
    ),
    ("knows of no version", Reply(b"", 404), "HTTP status 404"),
    ("is gone", Reply(b"", 410), "HTTP status 410"),
    ("is asked too much", redirect("http://user:secret@a.example/x"), "user"),
    ("leads to a file", redirect("file:///etc/passwd"), "http"),
]


@pytest.mark.parametrize(("gate", "why"), [case[1:] for case in GATES], ids=[case[0] for case in GATES])
def test_a_timegate_that(past: History, source: Source, tmp_path: Path, gate: Reply, why: str) -> None:
    source.pages[GATE] = gate
    refused(copied(past, tmp_path), tmp_path, why)


def test_a_version_of_before_a_known_change_is_not_believed(source: Source, tmp_path: Path) -> None:
    past = with_hashes(source, hashes=False)
    source.pages[GATE] = Reply(b"x", headers={"Memento-Datetime": "Sat, 01 Jan 2000 00:00:00 GMT"})
    refused(copied(past, tmp_path), tmp_path, "after which the resource has changed")


def test_two_versions_within_one_second_need_a_hash(source: Source, tmp_path: Path) -> None:
    for hashes, status in ((False, FAILED), (True, DONE)):
        past = History(source, hashes=hashes)
        past.link = lambda name, when: ln("timemap", f"{source.base}{MAP}")
        past.put(5.2, "a", b"first")
        past.put(5.7, "a", b"second")
        past.put(50, "a", b"now")
        past.snapshot(90)
        past.changelist(0, None)
        past.serve_versions()
        ran = go(past.publish(), tmp_path / str(hashes), at=at(5.5))
        assert ran.status == status, ran.one.failures
        assert tree(tmp_path / str(hashes)) == ({"a": b"first"} if hashes else {})


def test_a_hash_decides_whatever_a_timegate_says_of_itself(source: Source, tmp_path: Path) -> None:
    past = with_hashes(source)
    source.pages[GATE] = Reply(b"then", headers={"Memento-Datetime": LATE})
    assert (copied(past, tmp_path).status, tree(tmp_path / "copy")) == (DONE, {"a": b"then"})


def test_a_version_with_another_hash_is_not_placed(source: Source, tmp_path: Path) -> None:
    past = with_hashes(source)
    source.pages[GATE] = Reply(b"false", headers={"Memento-Datetime": EARLY})
    refused(copied(past, tmp_path), tmp_path, "the source keeps it no longer as it was then (TimeGate: another state")


def test_a_version_counts_as_unverified_when_it_is_taken(source: Source, tmp_path: Path) -> None:
    """One that says that it is of the moment, and is a page of HTML in the place of something else, is not taken."""
    past = History(source, hashes=False)
    past.link = lambda name, when: ln("timegate", f"{source.base}{GATE}")
    past.put(1, "a.pdf", b"then")
    past.put(20, "a.pdf", b"later")
    past.snapshot(90)
    past.changelist(0, None)
    for body, media_type, taken in ((b"<html>", "text/html", 0), (b"then", "application/pdf", 1)):
        source.pages[GATE] = Reply(body, headers={"Memento-Datetime": EARLY, "Content-Type": media_type})
        ran = copied(past, tmp_path)
        assert (ran.status, len(tree(tmp_path / "copy"))) == (DONE if taken else FAILED, taken)
        assert ran.one.unverified == len(ran.one.unverified_versions) == taken


# TimeMaps


def mapped(source: Source, page: Reply | object) -> History:
    past = with_hashes(source)
    past.link = lambda name, when: ln("timemap", f"{source.base}{MAP}")
    past.snapshot(90)
    past.changelist(0, None)
    source.pages[MAP] = page  # type: ignore[assignment]
    return past


def link_format(text: str) -> Reply:
    return Reply(text.encode(), headers={"Content-Type": "application/link-format"})


MAPS = [
    ("is malformed", "<http://a.example/x; rel=memento", "malformed"),
    ("is a web page", "<!DOCTYPE html><html></html>", "malformed"),
    ("is empty", "", "has no version"),
    ("has later versions only", f'</version/20/a>; rel="memento"; datetime="{LATE}"', "has no version"),
    ("has no times", '</version/1/a>; rel="memento"', "has no version"),
    ("ends within a link", f'</v>; rel="memento"; datetime="{EARLY}", </w>; rel="mem', "malformed"),
    ("has a link without end", "<" + "x" * 300_000, "no end"),
]


@pytest.mark.parametrize(("text", "why"), [case[1:] for case in MAPS], ids=[case[0] for case in MAPS])
def test_a_timemap_that(source: Source, tmp_path: Path, text: str, why: str) -> None:
    refused(copied(mapped(source, link_format(text)), tmp_path), tmp_path, why)


def test_a_timemap_whose_pages_loop(source: Source, tmp_path: Path) -> None:
    past = mapped(source, link_format(f'<{MAP}2>; rel="timemap", <{MAP}>; rel="timemap"'))
    source.pages[f"{MAP}2"] = link_format(f'<{MAP}>; rel="timemap"')
    refused(copied(past, tmp_path), tmp_path, "has no version")
    assert len(source.requests(MAP)) == len(source.requests(f"{MAP}2")) == 1


def test_a_timemap_of_endless_pages(source: Source, tmp_path: Path) -> None:
    def page(number: int) -> Reply:
        return link_format(f'<{MAP}{number + 1}>; rel="timemap"')

    past = mapped(source, page(0))
    for number in range(1, 60):
        source.pages[f"{MAP}{number}"] = page(number)
    refused(copied(past, tmp_path), tmp_path, "has no version")
    assert sum(path.startswith(MAP) for path in source.requests()) <= 20


def test_the_right_page_of_a_timemap_is_found(source: Source, tmp_path: Path) -> None:
    past = mapped(source, link_format(f'<{MAP}2>; rel="timemap", <{MAP}9>; rel="timemap"; from="{LATE}"'))
    source.pages[f"{MAP}2"] = link_format(f'</version/1/a>; rel="first memento"; datetime="{EARLY}"')
    assert (copied(past, tmp_path).status, tree(tmp_path / "copy")) == (DONE, {"a": b"then"})
    assert not source.requests(f"{MAP}9")


def endless(handler: Handler) -> None:
    """A TimeMap of 100 MB, without saying so."""
    line = f'<http://a.example/v>; rel="memento"; datetime="{EARLY}",\n'.encode()
    block = line * (1 << 12)
    handler.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/link-format\r\nConnection: close\r\n\r\n")
    try:
        for _ in range((100 << 20) // len(block)):
            handler.send(block)
    except OSError:
        pass


def test_a_timemap_of_100_mb_is_not_read_to_its_end(source: Source, tmp_path: Path) -> None:
    refused(copied(mapped(source, Reply(script=endless)), tmp_path), tmp_path, "33554432 allowed")


# other hosts


@pytest.fixture
def archive() -> Iterator[Source]:
    """Another host, with versions."""
    with Source() as other:
        other.pages["/a"] = Reply(b"then", headers={"Memento-Datetime": EARLY})
        yield other


def test_a_version_on_another_host_needs_a_hash_or_leave(source: Source, archive: Source, tmp_path: Path) -> None:
    past = with_hashes(source)
    source.pages[GATE] = redirect(f"{archive.base}/a")
    assert (copied(past, tmp_path).status, tree(tmp_path / "copy")) == (DONE, {"a": b"then"})
    past = with_hashes(source, hashes=False)
    source.pages[GATE] = redirect(f"{archive.base}/a")
    refused(copied(past, tmp_path / "other"), tmp_path / "other", "another host")
    source.pages[GATE] = redirect(f"{archive.base}/a")
    ran = copied(past, tmp_path / "allowed", allow_hosts=(archive.base.removeprefix("http://"),))
    assert ran.status in (DONE, FAILED)


def test_a_version_at_an_internal_address_is_not_asked_for(source: Source, archive: Source, tmp_path: Path) -> None:
    """Where the source's own address is a public one (DST-S12)."""
    past = with_hashes(source)
    past.link = lambda name, when: ln("memento", f"http://127.0.0.2:{archive.port}/a")
    past.snapshot(90)
    past.changelist(0, None)
    guarded = msgspec.structs.replace(IMPATIENT, source=source.base, level_of=outside_but_for_one)
    refused(copied(past, tmp_path, guarded), tmp_path, "memento: ")
    assert not archive.requests()


def outside_but_for_one(address: str) -> Level:
    return Level.PUBLIC if address == "127.0.0.1" else Level.LOCAL
