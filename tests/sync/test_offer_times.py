"""A Change List that is polled while the source has begun another: the Capability List is asked once a day (DST-C5)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import Exit
from headwater.progress import Notice
from headwater.sync.options import SyncOptions
from headwater.sync.reports import SyncReport
from headwater.transport.transport import Transport
from tests.support.copying import IMPATIENT, run_over, tree
from tests.support.fake_source import Reply, Site, Source, at, document, url

Run = Callable[[float], SyncReport]
CAPABILITIES = "/set/capabilitylist.xml"


@pytest.fixture
def notices() -> list[Notice]:
    return []


@pytest.fixture
def run(source: Source, site: Site, dest: Path, notices: list[Notice]) -> Run:
    """One sync, so many hours after the first one; two were done."""
    began = dt.datetime.now(dt.UTC)

    def listen(event: object) -> None:
        if isinstance(event, Notice):
            notices.append(event)

    def after(hours: float) -> SyncReport:
        with Transport(IMPATIENT) as wire:
            now = began + dt.timedelta(hours=hours)
            return run_over(wire, source.base, dest, now=lambda: now, listener=listen)

    for hours in (0, 0.1):
        assert after(hours).exit_status == Exit.DONE
    assert tree(dest) == site.files
    source.forget()
    return after


def at_another_address(site: Site) -> None:
    entries = [site.change(*change) for change in site.changes]
    site.serve("/set/changes.xml", document(entries, links=site.up(), capability="changelist", **{"from": at(0)}))
    listed = url(f"{site.root}/resourcelist.xml", capability="resourcelist")
    listed += url(f"{site.root}/changes.xml", capability="changelist")
    site.serve(CAPABILITIES, document([listed], capability="capabilitylist"))


def test_a_list_that_stays_behind_is_left_within_a_day(run: Run, source: Source, site: Site, dest: Path) -> None:
    site.put("new.txt", b"new")
    at_another_address(site)
    assert run(1).exit_status == Exit.DONE
    assert source.requests(CAPABILITIES) == []
    assert run(25).exit_status == Exit.DONE
    assert tree(dest) == site.files


def test_it_is_asked_once_a_day_and_no_more(run: Run, source: Source) -> None:
    for hours in range(24, 72):
        assert run(hours).exit_status == Exit.DONE
    assert len(source.requests(CAPABILITIES)) == 2


def test_a_clock_that_is_set_back_asks_again(run: Run, source: Source) -> None:
    assert run(24 * 365).exit_status == Exit.DONE
    assert run(25).exit_status == Exit.DONE
    assert len(source.requests(CAPABILITIES)) == 2


def test_changes_are_followed_though_it_cannot_be_read(
    run: Run, source: Source, site: Site, dest: Path, notices: list[Notice]
) -> None:
    """It is told, and is no fault of a run that has got all changes."""
    source.pages[CAPABILITIES] = Reply(status=503)
    site.put("new.txt", b"new")
    site.publish_changes()
    assert run(25).exit_status == Exit.DONE
    assert tree(dest) == site.files
    assert any("Capability List cannot be read" in notice.message for notice in notices)


def test_an_index_that_has_left_a_list_behind_is_read(run: Run, source: Source, site: Site, dest: Path) -> None:
    """The list that is polled is none of its index any more, and stays where it was."""
    site.put("new.txt", b"new")
    entries = [site.change(*change) for change in site.changes]
    site.serve("/set/changes.xml", document(entries, links=site.up(), capability="changelist", **{"from": at(0)}))
    part = (
        url(f"{site.root}/changes.xml", **{"from": at(0)}).replace("<url>", "<sitemap>").replace("</url>", "</sitemap>")
    )
    index = document([part], root="sitemapindex", links=site.up(), capability="changelist", **{"from": at(0)})
    site.serve("/set/index.xml", index)
    listed = url(f"{site.root}/resourcelist.xml", capability="resourcelist")
    listed += url(f"{site.root}/index.xml", capability="changelist")
    site.serve(CAPABILITIES, document([listed], capability="capabilitylist"))
    assert run(25).exit_status == Exit.DONE
    assert tree(dest) == site.files
    site.put("later.txt", b"later")
    entries = [site.change(*change) for change in site.changes]
    site.serve("/set/changes.xml", document(entries, links=site.up(), capability="changelist", **{"from": at(0)}))
    assert run(26).exit_status == Exit.DONE
    assert tree(dest) == site.files


def test_each_choice_of_sets_has_its_day(source: Source, site: Site, dest: Path) -> None:
    """Who names sets in every run asks once a day, too."""
    began = dt.datetime.now(dt.UTC)
    counts = []
    for hours in (0, 1, 25, 26, 27):
        with Transport(IMPATIENT) as wire:
            now = began + dt.timedelta(hours=hours)
            ran = run_over(wire, source.base, dest, SyncOptions(sets=("set",)), now=lambda now=now: now)
        assert ran.exit_status == Exit.DONE
        counts.append(len(source.requests(CAPABILITIES)))
    assert counts == [1, 1, 2, 2, 2]
