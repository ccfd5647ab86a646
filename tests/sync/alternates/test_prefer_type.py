"""Preferred alternates: which one is copied, verified by its link, followed over changes, and audited (DST-S3)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Exit, UsageFault
from headwater.spec.records import Link
from headwater.sync.linked_resources import accept_header, preferred_alternate
from headwater.sync.options import SyncOptions
from tests.support.copying import check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, ln, sha, url

PDF, HTML = "application/pdf", "text/html"
PREFER: dict[str, Any] = {"prefer_types": (PDF,)}


class Papers:
    """A set of papers: `loc` is a page, with a PDF beside it."""

    def __init__(self, source: Source) -> None:
        self.site = Site(source)
        self.entries: dict[str, str] = {}
        self.log: list[str] = []
        self.clock = 10.0
        self.site.publish_capabilities("resourcelist", "changelist")
        self.site.publish_description()

    def body(self, name: str, body: bytes, type_: str = HTML) -> None:
        self.site.source.pages[f"/set/resources/{name}"] = Reply(body, headers={"Content-Type": type_})

    def put(self, name: str, page: bytes, *links: str, kind: str = "created", **more: object) -> None:
        self.body(name, page)
        attributes: dict[str, Any] = {"hash": sha(page), "length": len(page), "type": HTML} | more
        self.entries[name] = url(self.site.uri(name), links="".join(links), **attributes)
        self.clock += 1
        entry = url(self.site.uri(name), links="".join(links), change=kind, datetime=at(self.clock), **attributes)
        self.log.append(entry)

    def pdf(self, name: str, body: bytes | None, **more: object) -> str:
        """A link to a PDF; without a body it is not there."""
        known = {"hash": sha(body), "length": len(body)} if body is not None else {}
        if body is not None:
            self.body(name, body, PDF)
        return ln("alternate", self.site.uri(name), **({"type": PDF} | known | more))

    def drop(self, name: str) -> None:
        del self.entries[name]
        self.clock += 1
        self.log.append(url(self.site.uri(name), change="deleted", datetime=at(self.clock)))

    def publish(self, *, baseline: bool = False) -> None:
        if baseline:
            self.site.publish_list(self.entries.values(), when=self.clock)
        self.site.publish_changes(10.0, entries=self.log)


@pytest.fixture
def papers(source: Source) -> Papers:
    made = Papers(source)
    made.put("a", b"page a", made.pdf("a.pdf", b"pdf a"))
    made.put("b", b"page b")
    made.publish(baseline=True)
    made.clock = 20.0
    return made


def agreed(papers: Papers, dest: Path, want: dict[str, bytes]) -> None:
    """A run ends with this tree, which an audit proves; a new copy is the same."""
    ran = go(papers.site.source.base, dest, max_delete=1.0, **PREFER)
    assert (ran.status, tree(dest)) == (Exit.DONE, want), ran.one.failures
    report = check(papers.site.source.base, dest)
    assert report.verdict == "in sync", report.sets[0].findings


def test_an_alternate_is_copied_in_place_of_its_resource(papers: Papers, dest: Path) -> None:
    """Under its own name, by its link's hash; what has none is copied as it is, and so is all by default."""
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    assert papers.site.source.requests("/set/resources/a") == []
    assert go(papers.site.source.base, dest, **PREFER).one.process in ("none", "increment")
    go(papers.site.source.base, dest.parent / "default")
    assert tree(dest.parent / "default") == {"a": b"page a", "b": b"page b"}


def test_changes_of_a_resource_are_those_of_its_alternate(papers: Papers, dest: Path) -> None:
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    papers.put("a", b"page a2", papers.pdf("a.pdf", b"pdf a2"), kind="updated")
    papers.put("b", b"page b2", papers.pdf("b.pdf", b"pdf b2"), kind="updated")
    papers.publish()
    agreed(papers, dest, {"a.pdf": b"pdf a2", "b.pdf": b"pdf b2"})
    papers.put("b", b"page b3", kind="updated")
    papers.drop("a")
    papers.publish()
    agreed(papers, dest, {"b": b"page b3"})
    papers.put("a", b"page a4", papers.pdf("new.pdf", b"pdf a4"))
    papers.publish()
    agreed(papers, dest, {"b": b"page b3", "new.pdf": b"pdf a4"})
    papers.put("a", b"page a5", papers.pdf("newer.pdf", b"pdf a5"), kind="updated")
    papers.publish(baseline=True)
    agreed(papers, dest, {"b": b"page b3", "newer.pdf": b"pdf a5"})


@pytest.mark.parametrize("baseline", [True, False])
def test_a_shared_alternate_stays_as_long_as_it_stands_for_one(papers: Papers, dest: Path, baseline: bool) -> None:
    shared = papers.pdf("all.pdf", b"both")
    papers.put("a", b"page a2", shared, kind="updated")
    papers.put("b", b"page b2", shared, kind="updated")
    papers.publish(baseline=baseline)
    agreed(papers, dest, {"all.pdf": b"both"})
    papers.drop("a")
    papers.publish()
    agreed(papers, dest, {"all.pdf": b"both"})
    papers.drop("b")
    papers.put("c", b"page c")
    papers.publish()
    agreed(papers, dest, {"c": b"page c"})


@pytest.mark.parametrize("baseline", [True, False])
def test_an_alternate_with_an_entry_of_its_own(papers: Papers, dest: Path, baseline: bool) -> None:
    """The entry says more of it than the link, and it outlives the resource it stands for."""
    papers.put("a.pdf", b"pdf of the entry", type=PDF)
    papers.body("a.pdf", b"pdf of the entry", PDF)
    papers.publish(baseline=baseline)
    agreed(papers, dest, {"a.pdf": b"pdf of the entry", "b": b"page b"})
    papers.drop("a")
    papers.publish()
    agreed(papers, dest, {"a.pdf": b"pdf of the entry", "b": b"page b"})
    papers.drop("a.pdf")
    papers.publish()
    agreed(papers, dest, {"b": b"page b"})


def test_a_resource_whose_alternate_is_deleted_comes_back_itself(papers: Papers, dest: Path) -> None:
    """Links by rules make no change of a resource: the Change List tells of the alternate alone."""
    papers.put("a.pdf", b"pdf a", type=PDF)
    papers.body("a.pdf", b"pdf a", PDF)
    papers.publish(baseline=True)
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    papers.drop("a.pdf")
    papers.publish()
    agreed(papers, dest, {"a": b"page a", "b": b"page b"})


@pytest.mark.parametrize("changed", ["created", "other alternate", "no alternate"])
def test_a_list_older_than_changes_takes_no_choice_back(papers: Papers, dest: Path, changed: str) -> None:
    """DST-B2: newer than the last baseline, older than what is held; a deletion after it still finds its alternate."""
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    papers.put("b", b"page b2", papers.pdf("b.pdf", b"pdf b2"), kind="updated")
    listed, when = list(papers.entries.values()), papers.clock
    links = {"other alternate": [papers.pdf("c.pdf", b"c")], "no alternate": []}
    papers.put("c" if changed == "created" else "b", b"page", *links.get(changed, [papers.pdf("c.pdf", b"c")]))
    papers.publish()
    held = {"created": {"b.pdf": b"pdf b2", "c.pdf": b"c"}, "other alternate": {"c.pdf": b"c"}}.get(
        changed, {"b": b"page"}
    )
    agreed(papers, dest, {"a.pdf": b"pdf a", **held})
    papers.site.publish_list(listed, when=when)
    for _ in range(2):
        go(papers.site.source.base, dest, max_delete=1.0, baseline=True, **PREFER)
        assert tree(dest) == {"a.pdf": b"pdf a", **held}
    papers.drop("c" if changed == "created" else "b")
    papers.publish()
    left = {"b.pdf": b"pdf b2"} if changed == "created" else {}
    agreed(papers, dest, {"a.pdf": b"pdf a", **left})


def test_a_deletion_is_that_of_resource_and_alternate(papers: Papers, dest: Path) -> None:
    """Of a resource that an older list has, after the preference was given up, nothing is left to be had."""
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    papers.put("c", b"page c")
    papers.publish(baseline=True)
    papers.put("c", b"page c2", papers.pdf("c.pdf", b"pdf c"), kind="updated")
    papers.publish()
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b", "c.pdf": b"pdf c"})
    papers.drop("c")
    papers.site.source.pages.pop("/set/resources/c")
    papers.publish()
    ran = go(papers.site.source.base, dest, max_delete=1.0)
    assert (ran.status, tree(dest)) == (Exit.DONE, {"a": b"page a", "b": b"page b"})


def test_a_copy_of_an_earlier_version_reads_its_list_anew(papers: Papers, dest: Path) -> None:
    """It has remembered which alternates it holds, and not what is listed."""
    shared = papers.pdf("all.pdf", b"both")
    papers.put("a", b"page a2", shared, kind="updated")
    papers.put("b", b"page b2", shared, kind="updated")
    papers.publish(baseline=True)
    agreed(papers, dest, {"all.pdf": b"both"})
    with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as state, state:
        state.execute("DELETE FROM listing")
        state.execute("UPDATE sets SET scope = scope || ' '")
    papers.drop("a")
    papers.publish()
    agreed(papers, dest, {"all.pdf": b"both"})
    papers.drop("b")
    papers.put("c", b"page c")
    papers.publish()
    agreed(papers, dest, {"c": b"page c"})


def test_alternates_that_lie_or_are_not_there_fail_alone(papers: Papers, dest: Path) -> None:
    """A wrong type fails too, where the link states nothing else."""
    papers.put("a", b"page a", papers.pdf("a.pdf", b"listed"), kind="updated")
    papers.body("a.pdf", b"sent  ", PDF)
    papers.put("c", b"page c", papers.pdf("gone.pdf", None))
    papers.put("d", b"page d", papers.pdf("login.pdf", None))
    papers.body("login.pdf", b"<html>who are you?", HTML)
    papers.put("e", b"page e", papers.pdf("e.pdf", None))
    papers.body("e.pdf", b"pdf e", PDF)
    papers.publish(baseline=True)
    ran = go(papers.site.source.base, dest, **PREFER)
    assert (ran.status, ran.one.failed) == (Exit.TRANSFERS_FAILED, 3)
    assert tree(dest) == {"b": b"page b", "e.pdf": b"pdf e"}


def test_an_alternate_without_attributes_is_not_chosen(papers: Papers, dest: Path) -> None:
    papers.put("a", b"page a", ln("alternate", papers.site.uri("a.pdf")), kind="updated")
    papers.publish(baseline=True)
    agreed(papers, dest, {"a": b"page a", "b": b"page b"})


def test_an_alternate_out_of_the_scope_is_refused(papers: Papers, dest: Path) -> None:
    """DST-S12: it is no mirror; and refused is not deleted."""
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    papers.put("a", b"page a", ln("alternate", "http://elsewhere.example/a.pdf", type=PDF), kind="updated")
    papers.publish(baseline=True)
    ran = go(papers.site.source.base, dest, baseline=True, **PREFER)
    assert (ran.status, ran.one.refused) == (Exit.TRANSFERS_FAILED, 1)
    assert tree(dest) == {"a.pdf": b"pdf a", "b": b"page b"}


def test_a_generic_uri_is_asked_for_the_preferred_types(papers: Papers, dest: Path) -> None:
    papers.put("a", b"page a", kind="updated", hash=None, length=None, type=None)
    papers.publish(baseline=True)
    go(papers.site.source.base, dest, prefer_types=(PDF, HTML))
    accepted = {path: fields.get("Accept") for path, fields in papers.site.source.log}
    assert accepted["/set/resources/a"] == "application/pdf, text/html;q=0.9, */*;q=0.05"
    assert PDF not in (accepted["/set/resources/b"] or "")


def test_another_preference_replaces_within_the_limit_on_deletions(papers: Papers, dest: Path) -> None:
    go(papers.site.source.base, dest)
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})
    ran = go(papers.site.source.base, dest)
    assert (ran.status, tree(dest)) == (Exit.DONE, {"a": b"page a", "b": b"page b"})


def test_a_resource_stays_until_its_alternate_is_there(papers: Papers, dest: Path) -> None:
    go(papers.site.source.base, dest)
    papers.body("a.pdf", b"other", PDF)
    ran = go(papers.site.source.base, dest, max_delete=1.0, **PREFER)
    assert (ran.status, tree(dest)) == (Exit.TRANSFERS_FAILED, {"a": b"page a", "b": b"page b"})
    papers.body("a.pdf", b"pdf a", PDF)
    agreed(papers, dest, {"a.pdf": b"pdf a", "b": b"page b"})


A, B, C = (Link(rel="alternate", href=f"http://h.example/{n}", type=t) for n, t in enumerate((PDF, HTML, PDF)))


@pytest.mark.parametrize(
    ("types", "own", "alternates", "chosen"),
    [
        ((PDF,), None, (A, B), A),
        ((HTML, PDF), None, (A, B), B),
        ((PDF,), PDF, (A,), None),
        ((PDF, HTML), HTML, (A,), A),
        ((HTML, PDF), "text/HTML; charset=utf-8", (A,), None),
        (("image/png",), None, (A, B), None),
        (("text/*",), None, (A, B), B),
        ((PDF,), None, (A, C), A),
        ((PDF,), None, (Link(rel="alternate", href="http://h.example/x", type=PDF, pri=7), C, A), None),
        ((PDF,), None, (), None),
    ],
)
def test_the_choice(types: tuple[str, ...], own: str | None, alternates: tuple[Link, ...], chosen: Link | None) -> None:
    found = preferred_alternate(types, own, alternates)
    assert found == (alternates[0] if alternates and alternates[0].pri else chosen)


def test_what_is_no_media_type() -> None:
    assert accept_header(("image/*",)) == "image/*, */*;q=0.05"
    with pytest.raises(UsageFault):
        SyncOptions(prefer_types=("pdf",))
    with pytest.raises(UsageFault):
        SyncOptions(prefer_types=("text/html\r\nX: y",))
