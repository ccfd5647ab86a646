"""Sources whose clock is not that of their answers' `Date`: ahead, behind, without any; copied, followed, in sync.

DST-C8, DST-C7, DST-4.5, DST-C2, AMB-27.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, Ran, check, go, tree
from tests.support.fake_source import Site, Source, at, document, ln, url

MINUTE, DAY = 60.0, 86_400.0


class _Clocked:
    """A source of which every change and every list has a time of its clock; `Date` is of another one."""

    def __init__(self, source: Source, site: Site, dest: Path, ahead: float | None) -> None:
        self.source, self.site, self.dest, self.ahead = source, site, dest, ahead
        source.date = self.date
        self.begin = site.clock
        self.closed: list[tuple[float, float]] = []

    def date(self) -> dt.datetime | None:
        return None if self.ahead is None else self.site.now() - dt.timedelta(seconds=self.ahead)

    def run(self) -> Ran:
        ran = go(self.source.base, self.dest)
        assert ran.status == DONE, (ran.error, ran.report)
        assert tree(self.dest) == dict(self.site.files)
        assert check(self.source.base, self.dest).verdict == "in sync"
        self.site.clock += 3
        return ran

    def change(self, number: int) -> None:
        self.site.put("f1.txt", b"one, %d" % number)
        self.site.put(f"new{number}", b"new")
        if f"new{number - 1}" in self.site.files:
            self.site.drop(f"new{number - 1}")

    def close(self) -> None:
        """The open list ends now, and the next one begins; the Capability List names it."""
        self.site.clock += 2
        self.closed.append((self.begin, self.site.clock))
        self.begin = self.site.clock

    def part(self, number: int, begin: float, until: float | None, links: str = "") -> str:
        """One list of a chain; its URI."""
        path = f"/set/changes{number}.xml"
        told = [one for one in self.site.changes if begin <= one[0] < (until or 1e9)]
        times: dict[str, Any] = {"from": at(begin), "until": None if until is None else at(until)}
        entries = [self.site.change(*one) for one in told]
        self.site.serve(path, document(entries, links=self.site.up() + links, capability="changelist", **times))
        return self.source.base + path

    def publish_chain(self, *, indexed: bool) -> None:
        """All lists, the last one open: in an index, or found by the Capability List alone."""
        index = ln("index", f"{self.site.root}/changelist.xml") if indexed else ""
        spans = [*self.closed, (self.begin, None)]
        uris = [self.part(number, *span, index) for number, span in enumerate(spans)]
        if not indexed:
            entries = [
                url(f"{self.site.root}/resourcelist.xml", capability="resourcelist"),
                url(uris[-1], capability="changelist"),
            ]
            self.site.serve("/set/capabilitylist.xml", document(entries, capability="capabilitylist"))
            return
        times: list[dict[str, Any]] = [
            {"from": at(one), "until": None if end is None else at(end)} for one, end in spans
        ]
        entries = [url(uri, tag="sitemap", **stated) for uri, stated in zip(uris, times, strict=True)]
        head: dict[str, Any] = {"capability": "changelist", "from": at(spans[0][0])}
        self.site.serve("/set/changelist.xml", document(entries, "sitemapindex", links=self.site.up(), **head))


AHEAD = pytest.mark.parametrize(
    "ahead",
    [None, 5, 3 * MINUTE, 20 * MINUTE, 5 * 60 * MINUTE, 3 * DAY, 365 * DAY, -20 * MINUTE, -5 * 60 * MINUTE, -365 * DAY],
    ids=lambda ahead: "no Date" if ahead is None else f"{ahead / MINUTE:g} minutes",
)


@AHEAD
@pytest.mark.parametrize("times", ["times", "no times"])
def test_an_open_list(times: str, ahead: float | None, source: Source, site: Site, dest: Path) -> None:
    """It begins with the Resource List, and again with the next one; each run does what is new."""
    clocked = _Clocked(source, site, dest, ahead)
    more: dict[str, Any] = {} if times == "times" else {"datetime": None}
    begin = site.clock
    site.publish_list()
    site.publish_changes(begin, entries=[])
    for number in range(4):
        ran = clocked.run()
        if not number:
            assert ("AMB-27" in ran.rules()) == ((ahead or 0) >= 20 * MINUTE)
        clocked.change(number)
        if number == 2:
            begin = site.clock
            site.publish_list()
            clocked.change(number)
        entries = [site.change(*one, **more) for one in site.changes if one[0] >= begin]
        site.publish_changes(begin, entries=entries)
    clocked.run()


@AHEAD
@pytest.mark.parametrize("indexed", [True, False], ids=["in an index", "without one"])
def test_a_chain_of_lists(indexed: bool, ahead: float | None, source: Source, site: Site, dest: Path) -> None:
    """DST-C2: lists are closed at times that seem to come yet, some with nothing in them at the end."""
    clocked = _Clocked(source, site, dest, ahead)
    for number in range(4):
        clocked.publish_chain(indexed=indexed)
        clocked.run()
        clocked.change(number)
        if number % 2:
            clocked.publish_chain(indexed=indexed)
            clocked.run()
        clocked.close()
        if not indexed:  # else an audit cannot know what was told in lists that nothing names
            site.publish_list()
        if number == 2:
            site.put("f2.txt", b"two, after the end")
    clocked.publish_chain(indexed=indexed)
    clocked.run()
