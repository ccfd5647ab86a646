"""Filters by what lists state of a resource, and what is counted of what a choice leaves out, in runs and in audits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from tests.support.copying import DONE, USAGE, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, ln, url

RECORD = ln("describedby", "http://h.example/record")
ENTRIES: dict[str, dict[str, Any]] = {
    "a.pdf": {"type": "application/pdf; version=1.7", "length": 10, "lastmod": "2026-01-01T00:00:00Z"},
    "b": {"type": "Text/XML", "length": 2000, "lastmod": "2026-03-01T00:00:00Z", "links": RECORD},
    "c": {"type": "image/png", "length": 300, "lastmod": "2026-02-01T12:00:00Z"},
    "d": {},
}


@pytest.fixture
def typed(source: Source) -> Site:
    """Four resources of which lists state different things, or nothing."""
    site = Site(source)
    for name, stated in ENTRIES.items():
        site.put(name, b"x" * stated.get("length", 5))
    site.publish(since=site.clock)
    site.publish_list([url(site.uri(name), **stated) for name, stated in ENTRIES.items()])
    return site


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"include_types": ("application/pdf",)}, ["a.pdf"]),
        ({"include_types": ("image/*", "text/xml")}, ["b", "c"]),
        ({"exclude_types": ("image/*", "application/pdf")}, ["b", "d"]),
        ({"include_links": ("describedby",)}, ["b"]),
        ({"include_links": ("describe",)}, []),
        ({"max_length": 300}, ["a.pdf", "c", "d"]),
        ({"since": "2026-02-01"}, ["b", "c", "d"]),
        ({"since": "2026-02-01T12:00:01Z"}, ["b", "d"]),
        ({"max_length": 300, "exclude_types": ("application/*",), "exclude": ("d",)}, ["c"]),
    ],
)
def test_runs_and_audits_choose_by_what_is_listed(
    options: dict[str, Any], wanted: list[str], source: Source, typed: Site, dest: Path
) -> None:
    ran = go(source.base, dest, **options)
    assert (ran.status, sorted(tree(dest)), ran.one.left_out) == (DONE, wanted, 4 - len(wanted))
    audited = check(source.base, dest).sets[0]
    assert (audited.verdict, audited.left_out, audited.extra, audited.missing) == ("in sync", 4 - len(wanted), 0, 0)
    again = go(source.base, dest, **options)
    assert (again.status, again.one.process) == (DONE, "none"), "the choice is the same"


def test_other_filters_compare_anew_and_delete_nothing(source: Source, typed: Site, dest: Path) -> None:
    """What a filter leaves out by now stays as it was, until the source deletes it; an audit finds nothing wrong."""
    go(source.base, dest)
    ran = go(source.base, dest, max_length=300)
    assert (ran.status, ran.one.process, ran.one.deleted, sorted(tree(dest))) == (
        DONE, "baseline+increment", 0, ["a.pdf", "b", "c", "d"],
    )  # fmt: skip
    assert check(source.base, dest).sets[0].verdict == "in sync"
    typed.put("b", b"y" * 3000)
    typed.publish_changes(4.0)
    assert (go(source.base, dest, max_length=300).one.left_out, len(tree(dest)["b"])) == (1, 2000)
    assert check(source.base, dest).sets[0].verdict == "in sync"
    typed.drop("b")
    typed.publish_changes(4.0)
    ran = go(source.base, dest, max_length=300)
    assert (ran.one.deleted, sorted(tree(dest))) == (1, ["a.pdf", "c", "d"])
    assert check(source.base, dest).sets[0].verdict == "in sync"
    assert sorted(tree(dest)) == sorted(typed.files)


def test_a_change_that_states_no_type_is_one_of_the_file_that_is_held(source: Source, typed: Site, dest: Path) -> None:
    """Change Lists of some sources state less than their Resource Lists."""
    wanted: dict[str, Any] = {"include_types": ("application/pdf",)}
    go(source.base, dest, **wanted)
    typed.put("a.pdf", b"another")
    typed.put("c", b"an image")
    typed.put("e", b"nobody knows of which type")
    typed.publish_changes(4.0)
    ran = go(source.base, dest, **wanted)
    assert (ran.one.updated, ran.one.left_out, tree(dest)) == (1, 2, {"a.pdf": b"another"})


def test_metadata_records_come_with_what_filters_let_in(source: Source, site: Site, dest: Path) -> None:
    """DST-S5: whatever is stated of the records themselves."""
    record = ln("describedby", site.uri("f1.txt"))
    entries = [site.resource("f0.txt", type="image/png", links=record), site.resource("f1.txt", type="text/xml")]
    site.publish_list([*entries, site.resource("f2.txt", type="text/xml")])
    go(source.base, dest, include_types=("image/*",), with_metadata=True)
    assert sorted(tree(dest)) == ["f0.txt", "f1.txt"]
    assert check(source.base, dest).sets[0].verdict == "in sync"


def test_what_is_left_out_is_counted_once(source: Source, site: Site, dest: Path) -> None:
    """A first run reads the Resource List and the changes since: a resource that both name is one."""
    site.put("f1.txt", b"changed")
    site.put("f2.txt", b"changed")
    site.put("new.txt", b"new")
    site.drop("f3.txt")
    site.publish_changes(10.0)
    ran = go(source.base, dest, include=("f0.txt",))
    audited = check(source.base, dest).sets[0]
    assert (ran.one.left_out, audited.left_out, sorted(tree(dest))) == (4, 4, ["f0.txt"])


def test_the_past_is_chosen_by_the_same_filters(source: Source, site: Site, dest: Path) -> None:
    site.publish_list([site.resource(name, type="text/plain" if name < "f2" else "image/png") for name in site.files])
    ran = go(source.base, dest, at=at(10.0), include_types=("text/*",))
    assert (ran.status, sorted(tree(dest))) == (DONE, ["f0.txt", "f1.txt"])
    one = check(source.base, dest, at=at(10.0)).sets[0]
    assert (one.verdict, one.findings) == ("in sync", [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--include-type", "pdf"],
        ["--exclude-type", "*/*"],
        ["--since", "yesterday"],
        ["--since", "2026-01-01T00:00:00"],
        ["--max-length", "much"],
        ["--include-type", "image/png", "--prefer-type", "image/png"],
    ],
)
def test_filters_that_cannot_be(arguments: list[str], source: Source, site: Site, dest: Path) -> None:
    assert run(["sync", *arguments, source.base, str(dest)]) == USAGE
    assert source.requests() == []


def test_the_same_lastmod_is_enough_where_the_user_says_so(source: Source, site: Site, dest: Path) -> None:
    """Neither hash nor length: else each resource costs a conditional request whenever the list has changed."""

    def listed(*news: str) -> None:
        bare = {"hash": None, "length": None}
        site.publish_list([site.resource(name, **bare, lastmod=at(5 if name in news else 0)) for name in site.files])

    site.publish_capabilities("resourcelist")
    listed()
    go(source.base, dest)
    site.put("f1.txt", b"changed, and listed so")
    site.put("f2.txt", b"changed, and listed as before")
    listed("f1.txt")
    source.forget()
    ran = go(source.base, dest, trust_lastmod=True)
    fetched = [path for path in source.requests() if "/resources/" in path]
    assert (ran.status, ran.one.updated, fetched) == (DONE, 1, ["/set/resources/f1.txt"])
    ran = go(source.base, dest, baseline=True)
    assert (ran.one.updated, tree(dest)["f2.txt"]) == (1, b"changed, and listed as before")
    source.pages["/set/resources/f3.txt"] = Reply(b"with another length", modified=site.now())
    site.publish_list([site.resource(name, hash=None, length=None) for name in site.files if name != "f3.txt"])
    ran = go(source.base, dest, trust_lastmod=True)
    assert (ran.one.deleted, ran.one.updated) == (1, 0)
