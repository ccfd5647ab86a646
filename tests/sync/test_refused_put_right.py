"""Entries that were refused, and a newer Resource List that puts them right: it is read once a day (DST-S12)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.sync.reports import SyncReport
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, check, run_over, tree
from tests.support.fake_source import Site, Source, at, url

Run = Callable[[float], SyncReport]
LIST, CHANGES = "/set/resourcelist.xml", "/set/changelist.xml"
NAMELESS = url(None, at(0), hash="md5:d41d8cd98f00b204e9800998ecf8427e")
ELSEWHERE = url("http://elsewhere.invalid/f4.txt", at(0))


@pytest.fixture
def run(source: Source, dest: Path) -> Run:
    """One sync, so many hours after the first one."""
    began = dt.datetime.now(dt.UTC)

    def after(hours: float) -> SyncReport:
        now = began + dt.timedelta(hours=hours)
        with Transport(IMPATIENT) as wire:
            return run_over(wire, source.base, dest, now=lambda: now)

    return after


def spoil(site: Site, entry: str, when: float) -> None:
    """A Resource List with this entry in the place of the last resource."""
    site.publish_list([*(site.resource(name) for name in list(site.files)[:-1]), entry], when=when)


@pytest.mark.parametrize("entry", [NAMELESS, ELSEWHERE], ids=["no URI", "another host"])
def test_a_newer_list_that_puts_it_right_is_read_within_a_day(
    entry: str, run: Run, source: Source, site: Site, dest: Path
) -> None:
    """Changes are followed meanwhile, and tell nothing of it."""
    spoil(site, entry, 10)
    site.publish_changes(10)
    assert run(0).exit_status == FAILED
    site.put("f0.txt", b"changed")
    site.publish_changes(10)
    assert run(0.1).exit_status == FAILED
    site.publish_list()
    source.forget()
    assert run(25).exit_status == DONE
    assert tree(dest) == site.files
    assert check(source.base, dest).verdict == "in sync"
    assert len(source.requests(LIST)) == 1 + 1  # and the audit
    source.forget()
    for hours in (26, 51, 76):
        assert run(hours).exit_status == DONE
    assert source.requests(LIST) == []


@pytest.mark.parametrize("entry", [NAMELESS, ELSEWHERE], ids=["no URI", "another host"])
def test_a_list_that_stays_as_it_is_costs_a_request_a_day(
    entry: str, run: Run, source: Source, site: Site, dest: Path
) -> None:
    spoil(site, entry, 10)
    site.publish_changes(10)
    assert run(0).exit_status == FAILED
    held = tree(dest)
    source.forget()
    for hours in range(1, 73):
        assert run(hours).exit_status == FAILED
    assert len(source.requests(LIST)) <= 3
    assert tree(dest) == held
    assert not [path for path in source.requests() if "/resources/" in path]


def test_what_a_change_list_had_refused_is_put_right(run: Run, source: Source, site: Site, dest: Path) -> None:
    assert run(0).exit_status == DONE
    site.put("new.txt", b"new")
    told = site.change(*site.changes[-1]).replace(site.uri("new.txt"), "http://elsewhere.invalid/new.txt")
    site.publish_changes(10, entries=[told])
    assert run(0.1).exit_status == FAILED
    site.put("f0.txt", b"changed")
    site.publish_list()
    site.publish_changes(10, entries=[told, site.change(*site.changes[-1])])
    assert run(1).exit_status == FAILED
    assert run(25).exit_status == DONE
    assert tree(dest) == site.files
