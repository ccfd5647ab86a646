"""Change Lists whose times are days: what lies before a list's own `from`, or after its `until` (AMB-06, DST-C7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copying import DONE, FAILED, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, url

DAY = "2026-01-01"


def serve(site: Site, name: str, from_: str, until: str | None, when: str, names: list[str]) -> None:
    entries = [site.change(0, "created", n, site.files[n], datetime=when) for n in names]
    times = {"from": from_} | ({"until": until} if until else {})
    site.serve(f"/set/{name}.xml", document(entries, links=site.up(), capability="changelist", **times))


def index(site: Site, **lists: tuple[str, str | None]) -> None:
    entries = [
        url(f"{site.root}/{name}.xml", tag="sitemap", **({"from": from_} | ({"until": until} if until else {})))
        for name, (from_, until) in lists.items()
    ]
    body = document(entries, "sitemapindex", links=site.up(), capability="changelist", **{"from": at(10)})
    site.serve("/set/changelist.xml", body)


def test_a_day_that_begins_before_its_list(source: Source, site: Site, dest: Path) -> None:
    """The position is never before the list that it comes from, or the list would seem to leave something out."""
    site.publish_capabilities("changelist")
    site.put("g0.txt", b"zero")
    serve(site, "c0", at(10), None, DAY, ["g0.txt"])
    index(site, c0=(at(10), None))
    assert go(source.base, dest).status == DONE
    site.put("g1.txt", b"one")
    serve(site, "c0", at(10), None, DAY, ["g0.txt", "g1.txt"])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process) == (DONE, "increment")
    assert tree(dest) == {"g0.txt": b"zero", "g1.txt": b"one"}


@pytest.mark.parametrize("until", [DAY, at(15)], ids=["a day", "a moment before its last entry"])
def test_a_list_whose_entries_are_later_than_its_until(until: str, source: Source, site: Site, dest: Path) -> None:
    """DST-C7: such a list may grow, and may have a successor: neither is missed, also when it is unchanged itself."""
    site.publish_capabilities("resourcelist", "changelist")
    site.put("g0.txt", b"zero")
    serve(site, "c0", at(0), until, at(20), ["g0.txt"])
    index(site, c0=(at(0), until))
    assert go(source.base, dest).status == DONE
    site.put("g1.txt", b"one")
    serve(site, "c1", at(20), None, at(30), ["g1.txt"])
    index(site, c0=(at(0), until), c1=(at(20), None))
    assert go(source.base, dest).status == DONE
    assert tree(dest)["g1.txt"] == b"one"
    site.put("g2.txt", b"two")
    serve(site, "c1", at(20), None, at(30), ["g1.txt", "g2.txt"])
    assert go(source.base, dest).status == DONE
    assert tree(dest)["g2.txt"] == b"two"


def test_a_known_list_that_begins_later_under_an_index_that_is_unchanged(
    source: Source, site: Site, dest: Path
) -> None:
    """DST-C4: a 304 of the index bridges no gap."""
    site.publish_capabilities("changelist")
    site.put("g0.txt", b"zero")
    serve(site, "c0", at(10), None, at(20), ["g0.txt"])
    index(site, c0=(at(10), None))
    assert go(source.base, dest).status == DONE
    site.put("g1.txt", b"one")
    serve(site, "c0", at(30), None, at(40), ["g1.txt"])
    assert go(source.base, dest).status != DONE


@pytest.mark.parametrize("status", [200, 404], ids=["that was done", "that failed"])
def test_an_older_resource_list_does_not_judge_a_change_of_that_day(
    status: int, source: Source, site: Site, dest: Path
) -> None:
    """DST-B2: a change without an exact time may be later than the list, which neither deletes nor settles it."""
    assert go(source.base, dest).status == DONE
    site.clock = 40
    site.publish_list(when=30)
    site.put("f1.txt", b"one, new")
    site.put("new.txt", b"new")
    source.pages["/set/resources/f1.txt"] = Reply(site.files["f1.txt"], status)
    source.pages["/set/resources/f2.txt"] = Reply(b"", 404)
    serve(site, "changelist", at(10), None, DAY, ["f1.txt", "new.txt"])
    body = source.reply("/set/changelist.xml").body
    gone = site.change(0, "updated", "f2.txt", b"never there", datetime=DAY)
    site.serve("/set/changelist.xml", body.replace(b"</urlset>", f"{gone}</urlset>".encode()))
    ran = go(source.base, dest)
    assert ran.status == FAILED
    failing = ("f2.txt",) if status == 200 else ("f1.txt", "f2.txt")
    assert {one.uri for one in ran.one.failures} == set(map(site.uri, failing))
    assert tree(dest)["new.txt"] == b"new"
    assert tree(dest)["f1.txt"] == (b"one, new" if status == 200 else b"body 1\n")
