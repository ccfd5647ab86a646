"""Several lists of one capability in a Capability List: all are read, as if an index listed them (AMB-54)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from tests.support.copying import DONE, SOURCE, check, go, tree
from tests.support.fake_source import Site, Source, at, document, ln, url

HALVES = ("a", "b")


def half(site: Site, n: int) -> list[str]:
    return [name for name in sorted(site.files) if (int(name[1]) % 2 == 1) is (n == 1)]


def publish_lists(site: Site, *, when: float = 10.0) -> None:
    for n, name in enumerate(HALVES):
        entries = [site.resource(one) for one in half(site, n)]
        head: dict[str, Any] = {"capability": "resourcelist", "at": at(when)}
        site.serve(f"/set/{name}.xml", document(entries, links=site.up(), **head))


def publish_changes(site: Site, since: tuple[float, float] = (10.0, 10.0)) -> None:
    for n, name in enumerate(HALVES):
        told = [site.change(*one) for one in site.changes if one[0] > 10 and (int(one[2][1]) % 2 == 1) is (n == 1)]
        head: dict[str, Any] = {"capability": "changelist", "from": at(since[n])}
        site.serve(f"/set/c{name}.xml", document(told, links=site.up(), **head))


@pytest.fixture
def two(site: Site) -> Site:
    publish_lists(site)
    publish_changes(site)
    offer(site, "a", "b", "ca", "cb")
    return site


def offer(site: Site, *names: str) -> None:
    entries = [
        url(f"{site.root}/{name}.xml", capability="changelist" if name.startswith("c") else "resourcelist")
        for name in names
    ]
    links = ln("up", f"{site.source.base}/.well-known/resourcesync")
    site.serve("/set/capabilitylist.xml", document(entries, links=links, capability="capabilitylist"))


def test_all_are_copied_and_followed(source: Source, two: Site, dest: Path) -> None:
    """One note; each Change List is read from where it was, whatever times the others have."""
    ran = go(source.base, dest)
    assert (ran.status, tree(dest)) == (DONE, dict(two.files))
    assert len([one for one in ran.notices if one.rule == "AMB-54" and "resourcelist" in one.message]) == 1
    assert go(source.base, dest).one.process == "none"
    two.put("f0.txt", b"early")
    early = two.changes.pop()
    two.put("f1.txt", b"later")
    publish_changes(two)
    assert go(source.base, dest).status == DONE
    two.changes.append(early)  # published after what is later than it, in the other list
    two.drop("f3.txt")
    publish_changes(two)
    assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(two.files))
    assert check(source.base, dest).verdict == "in sync"
    source.forget()
    assert go(source.base, dest).one.process == "none"
    assert [path for path in source.requests() if "/resources/" in path or path in ("/set/a.xml", "/set/b.xml")] == []


def test_the_resource_lists_alone(source: Source, two: Site, dest: Path) -> None:
    """What no list of all has is deleted, and nothing while one of them cannot be read."""
    offer(two, "a", "b")
    assert go(source.base, dest).status == DONE
    two.drop("f3.txt")
    publish_lists(two, when=20)
    page = source.pages.pop("/set/a.xml")
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert "f3.txt" in tree(dest)
    source.pages["/set/a.xml"] = page
    assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(two.files))
    assert check(source.base, dest).verdict == "in sync"


def test_one_that_begins_later_is_no_reading_on(source: Source, two: Site, dest: Path) -> None:
    """DST-C10: what it leaves out may be before the position, which another list has brought further."""
    assert go(source.base, dest).status == DONE
    two.put("f1.txt", b"far ahead")
    publish_changes(two)
    assert go(source.base, dest).status == DONE
    two.put("f2.txt", b"never told", change=False)
    two.clock = 12.0
    publish_lists(two, when=12)
    publish_changes(two, since=(10.5, 10.0))
    assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(two.files))


def test_an_index_and_a_list_beside_it(source: Source, two: Site, dest: Path) -> None:
    parts = [url(f"{two.root}/a.xml", tag="sitemap")]
    two.serve("/set/index.xml", document(parts, "sitemapindex", links=two.up(), capability="resourcelist", at=at(10)))
    offer(two, "index", "b", "ca", "cb")
    assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(two.files))
    assert check(source.base, dest).verdict == "in sync"


def test_the_past_and_explore(source: Source, two: Site, dest: Path, tmp_path: Path, capsys: Any) -> None:
    before = dict(two.files)
    two.put("f1.txt", b"later")
    publish_changes(two)
    assert run(["explore", source.base]) == DONE
    assert "b.xml" in capsys.readouterr().out
    assert run(["sync", source.base, str(dest), "-q"]) == DONE
    assert run(["status", str(dest)]) == DONE
    assert run(["sync", source.base, str(tmp_path / "past"), "--at", at(10)]) in (DONE, 4, 5)
    assert set(tree(tmp_path / "past")) <= set(before)
    assert set(half(two, 0)) <= set(tree(tmp_path / "past"))
