"""Rules of a destination that no other test is about: one small case each."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.cli import run
from headwater.transport.scheduler import CLOSING_LIMIT
from headwater.transport.transport import Transport
from tests.support.copying import DONE, IMPATIENT, check, go, run_over, tree
from tests.support.fake_source import Handler, Page, Reply, Site, Source, at, document, ln, sha, url
from tests.support.waiting import START

LATER = "Thu, 01 Jan 2026 00:01:00 GMT"


def test_a_host_is_asked_in_the_order_of_the_standard(source: Source, site: Site, dest: Path) -> None:
    """DST-A2: the well-known address, links of header and page, robots.txt; nothing is asked for that is not needed."""
    site.serve("/sd.xml", source.reply("/.well-known/resourcesync").body)
    del source.pages["/.well-known/resourcesync"]
    source.pages["/robots.txt"] = Reply(f"Sitemap: {site.root}/resourcelist.xml\n".encode())
    assert go(source.base, dest / "by robots").status == DONE
    asked = [path for path in source.requests() if path in ("/.well-known/resourcesync", "/", "/robots.txt")]
    assert list(dict.fromkeys(asked)) == ["/.well-known/resourcesync", "/", "/robots.txt"]
    source.pages["/"] = Reply(
        b"<html></html>", headers={"Link": f'<{site.root}/capabilitylist.xml>; rel="resourcesync"'}
    )
    source.forget()
    assert go(source.base, dest / "by link").status == DONE
    assert "/robots.txt" not in source.requests()


def test_robots_txt_forbids_nothing_that_the_source_lists(source: Source, site: Site, dest: Path) -> None:
    """AMB-61: it is read for `Sitemap` and `Crawl-delay` lines only."""
    site.serve("/sd.xml", source.reply("/.well-known/resourcesync").body)
    del source.pages["/.well-known/resourcesync"]
    source.pages["/robots.txt"] = Reply(f"User-agent: *\nDisallow: /\nSitemap: {site.root}/resourcelist.xml\n".encode())
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize(
    ("asked", "rate", "least", "told"),
    [
        ("0.2", None, 1.4, "a Crawl-delay of 0.2 s between two requests: one in 0.2 s is sent"),
        ("9", None, 7.0, "a Crawl-delay of 9 s between two requests: one in 1 s is sent, since all that is listed"),
        ("9", 1000.0, 0.0, None),
    ],
)
def test_a_pause_that_robots_txt_asks_for_is_kept(
    asked: str, rate: float | None, least: float, told: str | None, source: Source, site: Site, dest: Path
) -> None:
    """AMB-61: up to a second, where more is fetched than is asked for at once; the user's own rate counts more."""
    for number in range(4):
        site.put(f"more{number}.txt", b"x")
    site.publish()
    source.pages["/robots.txt"] = Reply(f"User-agent: *\nCrawl-delay: {asked}\n".encode())
    began = time.monotonic()
    ran = go(source.base, dest, IMPATIENT if rate is None else replace(IMPATIENT, rate_per_second=rate), rate=rate)
    assert ran.status == DONE
    assert time.monotonic() - began >= least
    notes = [notice.message for notice in ran.notices if notice.rule == "AMB-61"]
    assert notes == [] if told is None else [told in note for note in notes] == [True]
    assert source.requests("/robots.txt") == ([] if rate else ["/robots.txt"])
    source.forget()
    assert go(source.base, dest).status == DONE
    assert source.requests("/robots.txt") == [], "a quiet poll asks for no more than it needs"


def test_a_source_that_asks_for_patience_gets_it(source: Source, site: Site, dest: Path) -> None:
    """DST-F1: a fixed number of answers a second, and 429 with `Retry-After` beyond: nothing fails, few are refused."""
    window: list[float] = [0.0, 0.0]
    refused: list[str] = []

    def limited(body: bytes) -> Page:
        def page(handler: Handler) -> Reply:
            now = time.monotonic()
            with source.lock:
                if now >= window[0] + 1:
                    window[:] = [now, 0]
                window[1] += 1
                if window[1] <= 15:
                    return Reply(body)
            refused.append(handler.path)
            return Reply(b"", 429, {"Retry-After": "1"})

        return page

    for number in range(60):
        site.put(f"more{number}.txt", b"x")
    site.publish()
    for name, body in site.files.items():
        source.pages[f"/set/resources/{name}"] = limited(body)
    assert go(source.base, dest, replace(IMPATIENT, longest_wait_seconds=60, retries=1)).status == DONE
    assert tree(dest) == dict(site.files)
    assert len(refused) < 40


def test_a_server_with_a_short_accept_queue_is_asked_few_at_a_time(tmp_path: Path) -> None:
    """That of Python takes five connections at a time, each for one request: one that is dropped costs seconds."""
    (tmp_path / "files").mkdir()
    for number in range(149):
        (tmp_path / "files" / f"f{number}.txt").write_bytes(b"%d" % number)
    running: Counter[str] = Counter()

    class Counting(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(tmp_path / "out"))

        def do_GET(self) -> None:
            part = "resources" if "/resources/" in self.path else "documents"
            running[part] += 1
            running[f"most {part}"] = max(running[f"most {part}"], running[part])
            time.sleep(0.005)
            running[part] -= 1
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        base = f"http://127.0.0.1:{server.server_port}"
        places = ["--files", str(tmp_path / "files"), "--to", str(tmp_path / "out"), "--base-url", f"{base}/"]
        assert run(["publish", "-q", *places]) == DONE
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ran = go(base, tmp_path / "copy")
        server.shutdown()
    assert ran.status == DONE
    assert len(tree(tmp_path / "copy")) == 149
    assert running["most resources"] <= CLOSING_LIMIT


def test_of_two_resource_lists_both_are_used_and_it_is_told(source: Source, site: Site, dest: Path) -> None:
    """AMB-54: against RS-CAP-05, but it happens."""
    site.put("more.txt", b"more")
    entries = [url(site.uri("more.txt"), hash=sha(b"more"))]
    site.serve("/set/other.xml", document(entries, capability="resourcelist", at=at(10), links=site.up()))
    lists = [url(f"{site.root}/{name}.xml", capability="resourcelist") for name in ("resourcelist", "other")]
    up = ln("up", f"{source.base}/.well-known/resourcesync")
    site.serve("/set/capabilitylist.xml", document(lists, links=up, capability="capabilitylist"))
    ran = go(source.base, dest)
    assert (ran.status, tree(dest)) == (DONE, dict(site.files))
    assert "AMB-54" in ran.rules()


@pytest.mark.parametrize("years", [-40, 40])
def test_our_own_clock_decides_nothing(source: Source, site: Site, dest: Path, years: int) -> None:
    """DST-C8: with a clock that is wrong by decades the copy is the same."""
    now = START.replace(year=START.year + years)
    with Transport(IMPATIENT) as wire:
        for step in range(2):
            if step:
                site.put("f0.txt", b"changed")
                site.drop("f1.txt")
                site.put("new.txt", b"new")
                site.publish_changes(10)
            run_over(wire, source.base, dest, now=lambda: now)
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("listed", [9, 11])
def test_the_length_is_that_of_the_octets(source: Source, site: Site, dest: Path, listed: int) -> None:
    """DST-V2: where no digest is listed it decides, and with a digest that fits it decides too."""
    site.put("sized", b"ten octets")
    for more in ({}, {"hash": None}):
        entries = [site.resource(name) for name in site.files if name != "sized"]
        site.publish_list([*entries, site.resource("sized", length=listed, **more)], when=site.clock + 5)
        site.publish_capabilities("resourcelist")
        ran = go(source.base, dest / str(len(more)))
        assert ran.one.failed == 1
        assert not (dest / str(len(more)) / "sized").exists()


@pytest.mark.parametrize(
    ("stated", "sent", "rule"),
    [
        ({"type": "text/plain"}, {"Content-Type": "text/html"}, "DST-V3"),
        ({"type": "text/plain"}, {"Content-Type": "Text/Plain; charset=utf-8"}, None),
        ({}, {"Last-Modified": LATER}, "DST-V4"),
        ({}, {"Last-Modified": "Wed, 31 Dec 2025 00:00:00 GMT"}, "DST-V4"),
        ({}, {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, None),
    ],
)
def test_another_type_or_time_than_listed_is_told_and_no_failure(
    source: Source, site: Site, dest: Path, stated: dict[str, str], sent: dict[str, str], rule: str | None
) -> None:
    """DST-V3, DST-V4."""
    site.publish_list([site.resource("f0.txt", **stated)], when=11)
    source.pages["/set/resources/f0.txt"] = Reply(site.files["f0.txt"], headers=sent)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.failed) == (DONE, 1, 0)
    assert ran.rules() & {"DST-V3", "DST-V4"} == ({rule} if rule else set())
    assert [notice.where for notice in ran.notices if notice.rule == rule] == ([site.uri("f0.txt")] if rule else [])


def test_differences_of_many_resources_are_one_note(source: Source, site: Site, dest: Path) -> None:
    """DST-V4: with how many there are, and the first of them."""
    for name in site.files:
        source.pages[f"/set/resources/{name}"] = Reply(site.files[name], headers={"Last-Modified": LATER})
    (said,) = [notice for notice in go(source.base, dest).notices if notice.rule == "DST-V4"]
    assert said.message == f"Last-Modified is later than the lastmod listed, of {len(site.files)} resources"
    assert said.where in set(map(site.uri, site.files))


def test_links_that_mean_nothing_to_a_copy_are_not_followed(source: Source, site: Site, dest: Path) -> None:
    """DST-S3, DST-S4, DST-S9, DST-S10: alternates, the canonical place, where it came from, and relations of others."""
    relations = ("alternate", "canonical", "describedby", "via", "collection", "https://example.org/relation")
    links = "".join(ln(rel, f"{source.base}/linked/{number}") for number, rel in enumerate(relations))
    entry = url(site.uri("f0.txt"), hash=sha(site.files["f0.txt"]), links=links)
    site.publish_list([entry], when=11)
    assert go(source.base, dest).status == DONE
    assert [path for path in source.requests() if path.startswith("/linked")] == []


def test_after_a_baseline_the_position_is_at_and_not_completed(source: Source, site: Site, dest: Path) -> None:
    """AMB-86: what changed while the list was written stands in the changes since `at`."""
    site.publish_list(when=10, completed=at(20))
    site.put("f0.txt", b"changed at 11")
    site.publish_changes(10)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert START + dt.timedelta(seconds=11) == dt.datetime.fromisoformat(str(ran.one.position))


def test_a_document_of_any_media_type_is_read(source: Source, site: Site, dest: Path) -> None:
    """AMB-13: what it is, its root tells."""
    for path in ("/set/resourcelist.xml", "/set/capabilitylist.xml"):
        site.serve(path, source.reply(path).body, **{"Content-Type": "text/plain; charset=latin-1"})
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_one_resource_in_two_sets_is_two_files_with_a_state_each(source: Source, site: Site, dest: Path) -> None:
    """AMB-59."""
    other = Site(source, "other")
    shared = url(site.uri("f0.txt"), hash=sha(site.files["f0.txt"]))
    other.publish_list([shared], when=10)
    other.publish_capabilities("resourcelist")
    site.publish_description("set", "other")
    assert go(source.base, dest).status == DONE
    copies = [name for name in tree(dest) if name.endswith("f0.txt")]
    assert len(copies) == 2
    other.publish_list([], when=12)
    assert go(source.base, dest, max_delete=1.0).status == DONE
    assert [name for name in tree(dest) if name.endswith("f0.txt")] == [name for name in copies if "other" not in name]


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ("resource-list", "it is a document of the unknown capability 'resource-list'"),
        ("changelist", "it is a Change List"),
    ],
)
def test_what_a_list_is_in_place_of_a_resource_list_is_named(
    capability: str, said: str, source: Source, site: Site, dest: Path
) -> None:
    """DST-A7."""
    body = document([], links=site.up(), capability=capability, at=at(5), **{"from": at(1)})
    site.serve("/set/resourcelist.xml", body)
    ran = go(source.base, dest)
    told = [notice.message for notice in ran.notices] + [ran.one.fault or ""]
    assert any(f"listed as a Resource List, but {said}" in one for one in told), told
