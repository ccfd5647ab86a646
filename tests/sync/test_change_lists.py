"""What goes wrong with changes: every change is applied once, none is lost, a gap is never passed in silence.

DST-C1…C9, RS-DST-08…10, DST-B1, DST-B2, DST-F5, DST-F7, DST-F12, AMB-11, AMB-17…24, AMB-35, AMB-80…88.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, SOURCE, UNDETERMINED, check, go, run_over, tree
from tests.support.fake_source import Reply, Site, Source, at, document, ln, md, sha, sometimes, truncated, url

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}


def changed(site: Site, *more: str) -> dict[str, bytes]:
    """An update, a creation, a deletion; returns the tree that must come of it."""
    site.put("f1.txt", b"one, new")
    site.put("g.txt", b"created")
    site.drop("f2.txt")
    return dict(site.files)


def test_a_poll_without_changes_is_two_small_requests(source: Source, site: Site, dest: Path) -> None:
    """DST-C1, RS-DST-09: conditional, and only the Source Description and the open list."""
    go(source.base, dest)
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert source.requests() == ["/.well-known/resourcesync", "/set/changelist.xml"]
    assert ran.report is not None
    assert ran.report.document_octets == 0
    source.forget()
    start = f"{site.root}/capabilitylist.xml"
    assert go(start, dest).status == DONE
    source.forget()
    go(start, dest)
    assert len(source.requests()) <= 2


def test_an_increment(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10)
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == expected
    assert (ran.one.created, ran.one.updated, ran.one.deleted) == (1, 1, 1)
    assert sorted(p for p in source.requests() if "resources/" in p) == [
        "/set/resources/f1.txt",
        "/set/resources/g.txt",
    ]
    assert check(source.base, dest).verdict == "in sync"


STYLES = {
    "datetime": {},
    "1.0: lastmod only": {"datetime": None},
    "no times at all": {"datetime": None},
    "mixed": {},
    "days only": {},
}


def styled(site: Site, style: str) -> list[str]:
    entries = []
    for number, (when, kind, name, body) in enumerate(site.changes):
        if when <= 10:
            continue
        known: dict[str, Any] = {} if body is None else {"hash": sha(body), "length": len(body)}
        moment: str | None = at(when)
        lastmod = None
        if style == "1.0: lastmod only":
            moment, lastmod = None, moment
        elif style == "no times at all" or (style == "mixed" and number % 2):
            moment = None
        elif style == "days only":
            moment = "2026-01-01"
        entries.append(url(site.uri(name), lastmod, change=kind, datetime=moment, **known))
    return entries


@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_time(style: str, source: Source, site: Site, dest: Path) -> None:
    """DST-5.2, AMB-06, AMB-17, AMB-18, AMB-19: changes count whether or not they have times."""
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10, entries=styled(site, style))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected
    site.put("later", b"later")
    site.put("f1.txt", b"one, newer")
    site.drop("g.txt")
    site.publish_changes(10, entries=styled(site, style))
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert [p for p in source.requests() if p.endswith("f3.txt")] == []


def test_several_changes_at_one_moment(source: Source, site: Site, dest: Path) -> None:
    """AMB-11, AMB-20: entries at exactly T are done only when they were there."""
    go(source.base, dest)
    site.put("a", b"a")
    site.put("b", b"b")

    def entry(name: str) -> str:
        return url(site.uri(name), change="created", datetime=at(20), hash=sha(site.files[name]))

    site.publish_changes(10, entries=[entry("a")])
    assert go(source.base, dest).status == DONE
    site.publish_changes(10, entries=[entry("a"), entry("b")])
    assert go(source.base, dest).status == DONE
    assert set(tree(dest)) == set(ALL) | {"a", "b"}


def test_created_updated_deleted_in_one_poll(source: Source, site: Site, dest: Path) -> None:
    """AMB-80, AMB-81: folded to the last, and never fetched when it is gone."""
    go(source.base, dest)
    site.put("x", b"1")
    site.put("x", b"2")
    site.drop("x")
    site.put("y", b"1")
    site.drop("y")
    site.put("y", b"2")
    site.publish_changes(10)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL | {"y": b"2"}
    assert "/set/resources/x" not in source.requests()


def test_odd_changes_are_no_failures(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3, AMB-34, AMB-35: `created` of what is held, `deleted` of what is not, unknown and missing natures."""
    go(source.base, dest)
    site.put("f0.txt", b"new 0")
    site.put("f1.txt", b"new 1")
    site.put("z", b"z")
    entries = [
        url(site.uri("f0.txt"), change="created", datetime=at(11)),
        url(site.uri("nowhere"), change="deleted", datetime=at(12), hash="md5:junk", length="-1"),
        url(site.uri("f1.txt"), change="UPDATED", datetime=at(13)),
        url(site.uri("z"), change="modified", datetime=at(14)),
        f"<url><loc>{site.uri('f3.txt')}</loc></url>",
        f"<url><loc>{site.uri('f4.txt')}</loc>{md(datetime=at(15))}</url>",
    ]
    site.publish_changes(10, entries=entries)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_change_that_is_gone_and_later_deleted(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3: 404 on an update is remembered; the deletion that follows settles it."""
    go(source.base, dest)
    site.put("f1.txt", b"new")
    del source.pages["/set/resources/f1.txt"]
    site.publish_changes(10)
    assert go(source.base, dest).status == FAILED
    assert tree(dest) == ALL
    source.pages["/set/resources/f1.txt"] = Reply(b"new")
    site.drop("f1.txt")
    site.publish_changes(10)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert ran.one.failed == 0
    assert "f1.txt" not in tree(dest)


# open, closed, successor


def closed(site: Site, path: str, since: float, until: float | None, *, index: bool = False) -> None:
    entries = [site.change(*c) for c in site.changes if since < c[0] <= (1e9 if until is None else until)]
    links = site.up() + (ln("index", f"{site.root}/changelist.xml") if index else "")
    end = None if until is None else at(until)
    site.serve(path, document(entries, links=links, capability="changelist", from_=at(since), until=end))


def change_index(site: Site, *parts: tuple[str, float | None, float | None]) -> None:
    entries = [
        url(
            f"{site.root}/{name}",
            tag="sitemap",
            from_=None if since is None else at(since),
            until=None if until is None else at(until),
        )
        for name, since, until in parts
    ]
    body = document(entries, "sitemapindex", links=site.up(), capability="changelist", **{"from": at(10)})
    site.serve("/set/changelist.xml", body)


def rotated(site: Site) -> None:
    """Three closed lists and an open one; the names are against the order of time."""
    site.put("a", b"1")  # 11
    site.put("a", b"2")  # 12
    site.put("b", b"b")  # 13
    site.drop("b")  # 14
    site.put("c", b"c")  # 15
    closed(site, "/set/z.xml", 10, 12, index=True)
    closed(site, "/set/y.xml", 12, 14, index=True)
    closed(site, "/set/x.xml", 14, None, index=True)
    change_index(site, ("z.xml", 10, 12), ("y.xml", 12, 14), ("x.xml", 14, None))


def test_an_index_of_lists(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: document order, closed and open; then only the open one is polled."""
    go(source.base, dest)
    rotated(site)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert source.requests() == ["/.well-known/resourcesync", "/set/x.xml"]


def test_closed_lists_before_the_position_are_not_read(source: Source, site: Site, dest: Path) -> None:
    rotated(site)
    site.publish_list(when=13)
    assert go(source.base, dest).status == DONE
    assert "/set/z.xml" not in source.requests()
    assert "/set/y.xml" in source.requests()
    assert tree(dest) == dict(site.files)


def test_an_open_list_turns_closed(source: Source, site: Site, dest: Path) -> None:
    """DST-C3, DST-C2: the rest of it, then its successor through the index."""
    go(source.base, dest)
    rotated(site)
    go(source.base, dest)
    site.put("d", b"d")  # 16
    site.put("e", b"e")  # 17
    closed(site, "/set/x.xml", 14, 16, index=True)
    closed(site, "/set/w.xml", 16, None, index=True)
    change_index(site, ("z.xml", 10, 12), ("y.xml", 12, 14), ("x.xml", 14, 16), ("w.xml", 16, None))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    source.forget()
    go(source.base, dest)
    assert source.requests() == ["/.well-known/resourcesync", "/set/w.xml"]


def test_a_closed_list_alone_and_its_successor_by_up(source: Source, site: Site, dest: Path) -> None:
    """RS-DST-08: no index, so the Capability List names the next list."""
    go(source.base, dest)
    site.put("a", b"a")  # 11
    closed(site, "/set/changelist.xml", 10, 12)
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest).status == DONE
    source.forget()
    go(source.base, dest)
    assert len(source.requests()) <= 3
    site.clock = 12
    site.put("b", b"b")  # 13
    closed(site, "/set/next.xml", 12, None)
    entries = [
        url(f"{site.root}/resourcelist.xml", capability="resourcelist"),
        url(f"{site.root}/next.xml", capability="changelist"),
    ]
    site.serve("/set/capabilitylist.xml", document(entries, links=site.up(), capability="capabilitylist"))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_the_list_that_told_the_last_changes_is_gone(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: where the one before it goes on in its place, what it told was set back."""
    site.put("f1.txt", b"one")  # 11
    closed(site, "/set/a.xml", 10, None)
    change_index(site, ("a.xml", 10, None))
    assert go(source.base, dest).status == DONE
    before, told = site.files["f2.txt"], list(site.changes)
    site.put("f2.txt", b"lost")  # 12, which is when the first list ends as well
    site.changes[-1] = (12.5, *site.changes[-1][1:])
    closed(site, "/set/a.xml", 10, 12)
    closed(site, "/set/b.xml", 12, None)
    change_index(site, ("a.xml", 10, 12), ("b.xml", 12, None))
    assert (go(source.base, dest).status, tree(dest)) == (DONE, site.files)
    site.put("f2.txt", before, change=False)
    site.changes = told
    site.put("f3.txt", b"since")  # 14
    closed(site, "/set/a.xml", 10, 15)
    closed(site, "/set/c.xml", 15, None)
    del source.pages["/set/b.xml"]
    change_index(site, ("a.xml", 10, 15), ("c.xml", 15, None))
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list()
    assert (go(source.base, dest).status, tree(dest)) == (DONE, site.files)


def test_the_stable_open_list_is_rotated(source: Source, site: Site, dest: Path) -> None:
    """DST-C4: its `from` moves on; what was closed meanwhile is found through the index."""
    go(source.base, dest)
    closed(site, "/set/open.xml", 10, None, index=True)
    change_index(site, ("open.xml", 10, None))
    assert go(source.base, dest).status == DONE
    site.put("a", b"a")  # 11
    site.put("b", b"b")  # 12
    closed(site, "/set/c1.xml", 10, 11.5, index=True)
    closed(site, "/set/open.xml", 11.5, None, index=True)
    change_index(site, ("c1.xml", 10, 11.5), ("open.xml", 11.5, None))
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert "baseline" not in ran.one.process


def test_a_gap_leads_to_a_baseline(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: changes that expired; a newer Resource List bridges it."""
    go(source.base, dest)
    site.clock = 100
    site.put("missed", b"m")
    site.files.pop("f0.txt")
    site.clock = 200
    site.publish_list()
    site.put("after", b"a")
    site.publish_changes(200)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert ran.one.process == "baseline+increment"
    assert tree(dest) == dict(site.files)


def test_a_gap_that_nothing_bridges_is_told(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: never silently; the run ends undetermined until a newer list closes the hole."""
    go(source.base, dest)
    site.clock = 200
    site.put("after", b"a")  # 201
    site.publish_changes(200)
    ran = go(source.base, dest)
    assert ran.status == UNDETERMINED
    assert tree(dest) == ALL
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list(when=300)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL | {"after": b"a"}
    assert go(source.base, dest).status == DONE


@pytest.mark.parametrize(("when", "status"), [(199, UNDETERMINED), (200, DONE)])
def test_a_list_of_the_end_of_a_gap_closes_it(when: float, status: int, source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: changes from then on are told; what was before is in the list."""
    go(source.base, dest)
    site.clock = 200
    site.put("after", b"a")  # 201
    site.publish_changes(200)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list(when=when)
    assert go(source.base, dest).status == status


@pytest.mark.parametrize("form", ["list", "index"])
def test_a_gap_that_the_changes_close(form: str, source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: the Change Lists cover the time again, while the Resource List stays old: what was missed is done."""
    go(source.base, dest)
    site.clock = 100
    site.put("missed", b"m")  # 101
    site.drop("f0.txt")  # 102
    site.put("f1.txt", b"then")  # 103
    site.clock = 200
    site.put("f1.txt", b"now")  # 201
    site.publish_changes(200)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_changes(104)  # not far enough
    assert go(source.base, dest).status == UNDETERMINED
    site.put("later", b"l")  # 202
    if form == "list":
        site.publish_changes(10)
    else:
        closed(site, "/set/c1.xml", 10, 150, index=True)
        closed(site, "/set/open.xml", 150, None, index=True)
        change_index(site, ("c1.xml", 10, 150), ("open.xml", 150, None))
    ran = go(source.base, dest, dry_run=True)
    assert ran.one.created == 2
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"
    site.put("last", b"l")
    if form == "list":
        site.publish_changes(10)
    else:
        closed(site, "/set/open.xml", 150, None, index=True)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert len(source.requests()) <= 3


def test_lists_that_state_nothing_close_no_gap(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: without `from` a list may have left out anything."""
    go(source.base, dest)
    site.clock = 200
    site.put("after", b"a")  # 201
    site.publish_changes(200)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_changes(200, from_=None)
    assert go(source.base, dest).status == UNDETERMINED
    closed(site, "/set/open.xml", 200, None, index=True)
    change_index(site, ("open.xml", None, None))
    assert go(source.base, dest).status == UNDETERMINED


def test_several_gaps_are_closed_from_the_first(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: two gaps, one after the other; what covers the second alone leaves the first."""
    go(source.base, dest)
    site.clock = 100
    site.put("one", b"1")  # 101
    site.clock = 200
    site.publish_changes(200)
    assert go(source.base, dest).status == UNDETERMINED
    site.clock = 300
    site.put("two", b"2")  # 301
    site.clock = 400
    site.publish_changes(400)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_changes(200)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_hole_between_lists(source: Source, site: Site, dest: Path) -> None:
    """AMB-23."""
    go(source.base, dest)
    rotated(site)
    change_index(site, ("z.xml", 10, 12), ("x.xml", 14, None))
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list(when=16)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("until", [8, 12])
def test_a_list_that_ends_before_it_begins_closes_no_hole(until: float, source: Source, site: Site, dest: Path) -> None:
    """AMB-23: what comes after its `from` is read, and nothing tells of the time before that."""
    go(source.base, dest)
    site.clock = 100
    site.put("missed", b"m")  # 101
    site.clock = 200
    site.put("after", b"a")  # 201
    closed(site, "/set/open.xml", 200, None, index=True)
    change_index(site, ("open.xml", 200, until))
    assert go(source.base, dest).status == UNDETERMINED
    assert tree(dest) == ALL
    site.publish_list(when=300)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_list_in_the_index_is_missing(source: Source, site: Site, dest: Path) -> None:
    """DST-C5: without it changes are lost, so a newer Resource List is taken; without one it is told."""
    go(source.base, dest)
    rotated(site)
    del source.pages["/set/y.xml"]
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    site.publish_list(when=16)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_the_list_has_moved(source: Source, site: Site, dest: Path) -> None:
    """DST-C5: back to the Capability List."""
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10)
    source.pages["/set/moved.xml"] = source.pages.pop("/set/changelist.xml")
    entries = [
        url(f"{site.root}/resourcelist.xml", capability="resourcelist"),
        url(f"{site.root}/moved.xml", capability="changelist"),
    ]
    site.serve("/set/capabilitylist.xml", document(entries, links=site.up(), capability="capabilitylist"))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


BROKEN = {
    "torn": lambda page: Reply(page.body[:-9]),
    "cut": lambda page: truncated(page.body),
    "500": lambda page: Reply(b"", 500),
    "html": lambda page: Reply(b"<html/>"),
    "empty": lambda page: Reply(b""),
    "403": lambda page: Reply(b"", 403),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_change_list_keeps_the_state(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F4."""
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10)
    page = source.reply("/set/changelist.xml")
    source.pages["/set/changelist.xml"] = BROKEN[name](page)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == ALL
    source.pages["/set/changelist.xml"] = page
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


def test_a_torn_list_is_only_read_again(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10)
    page = source.reply("/set/changelist.xml")
    source.pages["/set/changelist.xml"] = sometimes(1, Reply(page.body[:-9]), page)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


def test_a_broken_list_in_the_middle_stops_the_position(source: Source, site: Site, dest: Path) -> None:
    """Order: what is behind an unreadable list is not done, and the position stays before it."""
    go(source.base, dest)
    rotated(site)
    page = source.pages["/set/x.xml"]
    source.pages["/set/x.xml"] = Reply(b"", 500)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.one.position == at(10)
    assert tree(dest) == ALL | {"a": b"2"}
    source.pages["/set/x.xml"] = page
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


# sources that break the rules of time


def test_a_rewritten_list(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: `from` unchanged, another beginning: a Resource List that is as late as what was done decides."""
    go(source.base, dest)
    changed(site)
    site.publish_changes(10, entries=styled(site, "no times at all"))
    go(source.base, dest)
    site.put("new", b"n")
    site.publish_changes(10, entries=styled(site, "no times at all")[2:])
    ran = go(source.base, dest)
    assert ran.status == UNDETERMINED
    assert "DST-C10" in ran.rules()
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_an_entry_out_of_order_means_a_baseline(source: Source, site: Site, dest: Path) -> None:
    """DST-C9, DST-C10."""
    go(source.base, dest)
    site.put("a", b"a")
    site.put("b", b"b")
    first = url(site.uri("a"), change="created", datetime=at(30), hash=sha(b"a"))
    second = url(site.uri("b"), change="created", datetime=at(20), hash=sha(b"b"))
    site.publish_changes(10, entries=[first])
    assert go(source.base, dest).status == DONE
    site.publish_changes(10, entries=[first, second])
    ran = go(source.base, dest)
    assert ran.status == UNDETERMINED
    assert "DST-C10" in ran.rules()
    assert ran.one.position == at(30)
    assert "b" not in tree(dest)
    site.publish_list(when=31)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created) == (DONE, 1)
    assert tree(dest) == dict(site.files)


def test_a_time_far_in_the_future_does_not_blind_us(source: Source, site: Site, dest: Path) -> None:
    """AMB-27, huge values: T never runs ahead of the source's own clock."""
    go(source.base, dest)
    site.put("a", b"a")
    entry = url(site.uri("a"), change="created", datetime="9999-12-31T23:59:59Z", hash=sha(b"a"))
    site.publish_changes(10, entries=[entry])
    assert go(source.base, dest).status == DONE
    assert "a" in tree(dest)
    site.clock = 40
    site.put("b", b"b")
    other = url(site.uri("b"), change="created", datetime=at(41), hash=sha(b"b"))
    site.publish_changes(30, entries=[other])
    assert go(source.base, dest).status == UNDETERMINED  # a gap, which a T of that year would hide
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert "b" in tree(dest)


def test_an_at_in_the_future(source: Source, site: Site, dest: Path) -> None:
    site.publish_list(at="2999-01-01T00:00:00Z")
    assert go(source.base, dest).status == DONE
    site.clock = 365 * 86400 * 3
    expected = changed(site)
    site.publish_changes(10)
    go(source.base, dest)
    assert tree(dest) == expected


def test_until_that_keeps_moving(source: Source, site: Site, dest: Path) -> None:
    """H6, DST-C7, AMB-87: a list that is closed by its words, and grows all the same."""
    go(source.base, dest)
    site.put("a", b"a")
    site.publish_changes(10, until=11.5)
    assert go(source.base, dest).status == DONE
    site.put("b", b"b")
    site.publish_changes(10, until=12.5)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("until", ["2999-01-01T00:00:00Z", "2025-12-31T00:00:00Z"])
def test_an_until_that_cannot_be(until: str, source: Source, site: Site, dest: Path) -> None:
    """DST-C7: warn, do the entries, do not run ahead."""
    go(source.base, dest)
    site.put("a", b"a")
    site.publish_changes(10, until_=until)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert "DST-C7" in ran.rules()
    assert ran.one.position == at(11)
    site.put("b", b"b")
    site.publish_changes(10, until_=until)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_entries_outside_the_interval(source: Source, site: Site, dest: Path) -> None:
    """DST-C7."""
    go(source.base, dest)
    site.put("a", b"a")  # 11
    site.put("b", b"b")  # 12
    site.publish_changes(10, until=11.5)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_times_go_backwards(source: Source, site: Site, dest: Path) -> None:
    """DST-F12: T stays, a warning; after some polls a baseline."""
    go(source.base, dest)
    site.put("a", b"a")
    site.publish_changes(10, until=20)
    go(source.base, dest)
    for number in range(4):
        site.serve(
            "/set/changelist.xml",
            document([], links=site.up(), capability="changelist", **{"from": at(number), "until": at(5 + number)}),
        )
        site.publish_list(when=30 + number)
        ran = go(source.base, dest)
        assert ran.status == DONE
        assert tree(dest) == ALL | {"a": b"a"}
    assert ran.one.position is not None
    assert ran.one.position >= at(20)


def test_a_list_of_no_changes_that_begins_earlier_by_now(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: the Resource List says whether what it had from between was set back, though no change was read."""
    before, listed = site.files["f2.txt"], source.pages["/set/resourcelist.xml"]
    site.put("f2.txt", b"lost", change=False)
    site.publish_list()
    site.publish_changes(site.clock, entries=[])
    assert go(source.base, dest).status == DONE
    site.put("f2.txt", before, change=False)
    site.put("f1.txt", b"since")
    site.publish_changes(10)
    source.pages["/set/resourcelist.xml"] = listed
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list()
    assert (go(source.base, dest).status, tree(dest)) == (DONE, site.files)


def test_a_killed_baseline_forgets_no_changes(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: a position that has gone back to an older Resource List still says what was done."""
    go(source.base, dest)
    before = site.files["f2.txt"]
    site.put("f1.txt", b"one")
    site.put("f2.txt", b"lost")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    site.put("f2.txt", before, change=False)
    site.changes.pop()
    site.put("f3.txt", b"since")
    site.publish_changes(10)
    (dest / "f0.txt").unlink()

    def killed(_done: Done) -> None:
        raise InterruptedError

    with Transport(IMPATIENT) as wire, pytest.raises(InterruptedError):
        run_over(wire, source.base, dest, SyncOptions(baseline=True), each=killed)
    assert go(source.base, dest, baseline=True).status == UNDETERMINED
    site.publish_list()
    assert (go(source.base, dest, baseline=True).status, tree(dest)) == (DONE, site.files)


def test_a_list_without_from(source: Source, site: Site, dest: Path) -> None:
    site.publish_changes(10, **{"from": None})
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10, **{"from": None})
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


def test_an_index_without_times(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: entries without from and until are always read."""
    go(source.base, dest)
    rotated(site)
    change_index(site, ("z.xml", None, None), ("y.xml", None, None), ("x.xml", None, None))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_list_without_at(source: Source, site: Site, dest: Path) -> None:
    """H11: without `at` the whole Change List is done again; harmless."""
    site.publish_list(**{"at": None})
    assert go(source.base, dest).status == DONE
    expected = changed(site)
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


def test_changes_only(source: Source, site: Site, dest: Path) -> None:
    """AMB-85: a set without Resource List."""
    site.publish_capabilities("changelist")
    expected = changed(site)
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {name: expected[name] for name in ("f1.txt", "g.txt")}
    site.put("h", b"h")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert "h" in tree(dest)


def test_lists_only(source: Source, site: Site, dest: Path) -> None:
    """RS-DST-03, DST-B1: repetition; the same `at` is nothing to do, a conditional request shows it."""
    site.publish_capabilities("resourcelist")
    assert go(source.base, dest).status == DONE
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process) == (DONE, "none")
    assert len(source.requests()) <= 3
    expected = changed(site)
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected


def test_an_old_list_brings_nothing_back(source: Source, site: Site, dest: Path) -> None:
    """DST-B2."""
    go(source.base, dest)
    expected = changed(site)
    site.publish_changes(10)
    go(source.base, dest)
    ran = go(source.base, dest, baseline=True)
    assert ran.status == DONE
    assert tree(dest) == expected


def test_a_hash_that_did_not_change_is_not_fetched(source: Source, site: Site, dest: Path) -> None:
    """AMB-83."""
    go(source.base, dest)
    site.put("f1.txt", b"body 1\n")
    site.publish_changes(10)
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert "/set/resources/f1.txt" not in source.requests()


def test_what_a_source_says_is_unchanged_has_the_time_that_is_listed(source: Source, dest: Path) -> None:
    """Fetched already as it is now, by a list that is older: 304 confirms it, and an audit goes by the time."""
    site = Site(source)
    site.put("f", b"before")
    site.publish()
    site.publish_list([url(site.uri("f"), at(1), length=6)])
    site.publish_changes(0, entries=[])
    site.put("f", b"after!")
    assert go(source.base, dest).status == DONE
    site.publish_changes(0, entries=[url(site.uri("f"), at(2), length=6, change="updated", datetime=at(2))])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.unchanged, ran.one.octets) == (DONE, 1, 0)
    assert check(source.base, dest).verdict == "in sync"
    assert go(source.base, dest).one.updated == 0


def test_without_hashes_the_source_is_asked(source: Source, site: Site, dest: Path) -> None:
    """DST-4.3: conditional requests where nothing can be compared."""
    entries = [url(site.uri(name)) for name in site.files]
    site.publish_capabilities("resourcelist")
    site.publish_list(entries)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"new")
    entries = [url(site.uri(name)) for name in site.files]
    site.publish_list(entries)
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert (ran.one.updated, ran.one.unchanged) == (1, 4)
    assert tree(dest) == ALL | {"f1.txt": b"new"}


def test_first_changes_begin_after_the_list(source: Source, site: Site, dest: Path) -> None:
    """H9: changes during the snapshot are in no document: copied as far as it goes, and told."""
    site.publish_changes(20, entries=[])
    ran = go(source.base, dest)
    assert ran.status == UNDETERMINED
    assert tree(dest) == ALL


def test_a_change_list_that_is_not_there_yet(source: Source, site: Site, dest: Path) -> None:
    """AMB-63, complaint 21: the baseline counts, the missing list is told."""
    del source.pages["/set/changelist.xml"]
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == ALL
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE


def test_many_changes_at_once(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    for number in range(300):
        site.put(f"m{number % 40}", b"%d" % number)
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"
