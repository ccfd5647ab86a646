"""A gap in the Change Lists is closed by the Change List Archive, or not at all: never by half (DST-5.1, RS-ARC-34)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.sync.explore import explore
from headwater.sync.lists import archives as archive_documents
from tests.support.copying import DONE, UNDETERMINED, Ran, check, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at, document, ln, url

SPANS = ((10.0, 20.0), (20.0, 30.0), (30.0, 40.0))


class Archive:
    """A copy of a site that then goes on for three archived lists and an open one, with what an archive says of them.

    There is no Resource List any more that is newer than the copy: who has not read the changes does not have them.
    """

    def __init__(self, site: Site, dest: Path) -> None:
        self.site = site
        assert go(site.source.base, dest).status == DONE
        for number, (from_, until) in enumerate(SPANS):
            site.clock = from_ + 1
            site.put("f1.txt", b"state %d\n" % number)
            site.put(f"new{number}.txt", b"new\n")
            if number == 1:
                site.drop("new0.txt")
            self.archived(f"c{number}.xml", from_, until)
        site.clock = 44.0
        site.put("last.txt", b"last\n")
        site.publish_changes(40)
        self.entries = [self.entry(f"c{n}.xml", *span) for n, span in enumerate(SPANS)]
        self.serve()
        site.publish_capabilities("resourcelist", "changelist", "changelist-archive")
        site.source.forget()

    def archived(self, name: str, from_: float, until: float | None, **more: object) -> None:
        entries = [self.site.change(*one) for one in self.site.changes if from_ <= one[0] < (until or 99)]
        attributes: dict[str, Any] = {
            "capability": "changelist",
            "from": at(from_),
            "until": until and at(until),
        } | more
        self.site.serve(f"/set/{name}", document(entries, links=self.site.up(), **attributes))

    def uri(self, name: str) -> str:
        return f"{self.site.root}/{name}"

    def entry(self, name: str, from_: float | None, until: float | None, tag: str = "url") -> str:
        times: dict[str, Any] = {"from": from_ and at(from_), "until": until and at(until)}
        return url(self.uri(name), tag=tag, **times)

    def serve(self, name: str = "changelist-archive.xml", root: str = "urlset", **more: object) -> None:
        attributes = {"capability": "changelist-archive"} | more
        self.site.serve(f"/set/{name}", document(self.entries, root=root, links=self.site.up(), **attributes))

    def asked(self) -> list[str]:
        return [path.removeprefix("/set/") for path in self.site.source.requests()]


@pytest.fixture
def archive(site: Site, dest: Path) -> Archive:
    return Archive(site, dest)


def closed(archive: Archive, dest: Path) -> Ran:
    """The gap is closed by the archive: nothing but what changed is asked for."""
    ran = go(archive.site.source.base, dest)
    assert ran.status == DONE, ran
    assert "RS-ARC-34" in ran.rules()
    assert tree(dest) == archive.site.files
    assert "resourcelist.xml" not in archive.asked()
    return ran


def not_closed(archive: Archive, dest: Path) -> Ran:
    """The archive is of no use: a baseline and the changes after it do what it could not."""
    archive.site.publish_list()
    archive.site.publish_changes(40)
    ran = go(archive.site.source.base, dest)
    assert ran.status == DONE, ran
    assert tree(dest) == archive.site.files
    assert "resourcelist.xml" in archive.asked()
    return ran


def test_archived_lists_close_a_gap(archive: Archive, dest: Path) -> None:
    ran = closed(archive, dest)
    assert ran.one.process == "increment"
    assert [path for path in archive.asked() if path.startswith("c")].count("c1.xml") == 1
    archive.site.source.forget()
    assert go(archive.site.source.base, dest).status == DONE
    assert "changelist-archive.xml" not in archive.asked()


@pytest.mark.parametrize("way", ["the Capability List", "a link"])
def test_a_gap_is_closed_when_there_is_an_archive(way: str, archive: Archive, source: Source, dest: Path) -> None:
    """DST-5.1, RS-ARC-34: the archive may get the lists later."""
    site = archive.site
    archive.entries, entries = archive.entries[1:], archive.entries
    archive.serve()
    for _ in range(2):
        assert go(source.base, dest).status == UNDETERMINED
    site.put("last.txt", b"last, and then\n")
    archive.entries = entries
    archive.serve()
    site.publish_changes(40)
    if way == "a link":
        site.publish_capabilities("resourcelist", "changelist")
        told = [site.change(*one) for one in site.changes if one[0] >= 40]
        links = site.up() + ln("archives", archive.uri("changelist-archive.xml"))
        site.serve("/set/changelist.xml", document(told, links=links, capability="changelist", **{"from": at(40)}))
    dry = go(source.base, dest, dry_run=True)
    assert "RS-ARC-34" in dry.rules()
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, "RS-ARC-34" in ran.rules()) == (DONE, True)
    assert tree(dest) == site.files
    source.forget()
    again = go(source.base, dest)
    assert (again.status, again.one.process) == (DONE, "none")
    assert "changelist-archive.xml" not in archive.asked()


def test_a_dry_run_reads_the_archive_and_changes_nothing(archive: Archive, dest: Path) -> None:
    before = tree(dest)
    ran = go(archive.site.source.base, dest, dry_run=True)
    assert (ran.status, ran.one.process) == (DONE, "increment")
    assert tree(dest) == before
    closed(archive, dest)


def test_the_link_alone_leads_to_the_archive(archive: Archive, dest: Path) -> None:
    """RS-ARC-05."""
    site = archive.site
    site.publish_capabilities("resourcelist", "changelist")
    entries = [site.change(*one) for one in site.changes if one[0] >= 40]
    links = site.up() + ln("archives", archive.uri("changelist-archive.xml"))
    site.serve("/set/changelist.xml", document(entries, links=links, capability="changelist", **{"from": at(40)}))
    closed(archive, dest)


def test_only_the_lists_that_are_needed_are_read(archive: Archive, dest: Path) -> None:
    archive.entries[:0] = [archive.entry(f"older{n}.xml", n, n + 1) for n in range(1, 9)]
    archive.serve()
    closed(archive, dest)
    assert not [path for path in archive.asked() if path.startswith("older")]


def test_an_archive_index(archive: Archive, dest: Path) -> None:
    """RS-ARC-20, RS-ARC-06: the fetched root tells."""
    entries = archive.entries
    for number in range(3):
        archive.entries = entries[number : number + 1]
        archive.serve(f"part{number}.xml")
    archive.entries = [url(archive.uri(f"part{n}.xml"), tag="sitemap") for n in (0, 0, 1, 2)]
    archive.serve(root="sitemapindex")
    closed(archive, dest)
    assert archive.asked().count("part0.xml") == 1


def test_an_index_of_the_lists_themselves(archive: Archive, dest: Path) -> None:
    """As DSpace writes it: `sitemapindex`, and `lastmod` alone; against RS-ARC-21."""
    archive.entries = [url(archive.uri(f"c{n}.xml"), at(SPANS[n][1]), tag="sitemap") for n in range(3)]
    archive.serve(root="sitemapindex")
    assert "RS-ARC-21" in closed(archive, dest).rules()


def test_an_index_of_more_lists_than_are_looked_at(
    archive: Archive, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that state no times the latest ones are looked at: DSpace puts its newest list last, year after year."""
    monkeypatch.setattr(archive_documents, "MOST_COMPONENTS", 3)
    monkeypatch.setattr(archive_documents, "MOST_HEADS", 3)
    for number in range(1, 5):
        archive.archived(f"older{number}.xml", number, number + 1)
    spans = [(f"older{n}.xml", n + 1.0) for n in range(1, 5)] + [(f"c{n}.xml", SPANS[n][1]) for n in range(3)]
    archive.entries = [url(archive.uri(name), at(until), tag="sitemap") for name, until in spans]
    archive.serve(root="sitemapindex")
    closed(archive, dest)
    assert {path for path in archive.asked() if path.startswith("older")} == {"older1.xml"}


def test_times_that_only_the_lists_tell(archive: Archive, dest: Path) -> None:
    """RS-ARC-16, RS-ARC-19: `from` and `until` of an entry are optional."""
    archive.entries = [archive.entry(f"c{n}.xml", None, None) for n in range(3)]
    archive.serve()
    closed(archive, dest)


def test_an_archived_index(archive: Archive, dest: Path) -> None:
    """RS-ARC-08: an entry may be the index of lists."""
    parts = [archive.entry(f"c{n}.xml", *SPANS[n], tag="sitemap") for n in (0, 1)]
    times = {"from": at(10), "until": at(30)}
    head = document(parts, root="sitemapindex", links=archive.site.up(), capability="changelist", **times)
    archive.site.serve("/set/both.xml", head)
    archive.entries = [archive.entry("both.xml", 10, 30), archive.entries[2]]
    archive.serve()
    closed(archive, dest)


def test_overlapping_lists_are_done_once(archive: Archive, dest: Path) -> None:
    """RS-ARC-34: overlap is no hole."""
    archive.archived("wide.xml", 15.0, 35.0)
    archive.archived("late.xml", 25.0, 44.0)
    archive.entries = [archive.entries[0], archive.entry("wide.xml", 15, 35), archive.entry("late.xml", 25, 44)]
    archive.serve()
    assert closed(archive, dest).one.updated == 1


# archives that cannot be believed


def hole(archive: Archive) -> None:
    del archive.entries[1]


def starts_too_late(archive: Archive) -> None:
    archive.entries[0] = archive.entry("c0.xml", 12, 20)


def ends_too_early(archive: Archive) -> None:
    del archive.entries[2]


def open_list(archive: Archive) -> None:
    archive.entries[1] = archive.entry("c1.xml", 20, None)
    archive.archived("c1.xml", 20.0, None)


def list_that_is_open_after_all(archive: Archive) -> None:
    archive.archived("c1.xml", 20.0, None)


def list_of_less_than_is_said(archive: Archive) -> None:
    archive.archived("c1.xml", 20.0, 25.0)


def list_that_begins_later_than_is_said(archive: Archive) -> None:
    archive.archived("c1.xml", 25.0, 30.0)


def index_with_a_hole(archive: Archive) -> None:
    parts = [archive.entry("c0.xml", 10, 20, tag="sitemap"), archive.entry("c2.xml", 30, 40, tag="sitemap")]
    times = {"from": at(10), "until": at(40)}
    archive.site.serve("/set/all.xml", document(parts, root="sitemapindex", capability="changelist", **times))
    archive.entries = [archive.entry("all.xml", 10, 40)]


def ends_before_it_begins(archive: Archive) -> None:
    archive.entries[1] = archive.entry("c1.xml", 30, 20)


def lists_itself(archive: Archive) -> None:
    archive.entries = [archive.entry("changelist-archive.xml", 10, 40)]


def missing_list(archive: Archive) -> None:
    del archive.site.source.pages["/set/c1.xml"]


def another_host(archive: Archive) -> None:
    archive.entries[1] = url("http://elsewhere.invalid/c1.xml", **{"from": at(20), "until": at(30)})


def local_file(archive: Archive) -> None:
    archive.entries[1] = url("file:///etc/passwd", **{"from": at(20), "until": at(30)})


def resource_list(archive: Archive) -> None:
    archive.entries[1] = archive.entry("resourcelist.xml", 20, 30)


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (hole, "RS-ARC-19"),
        (starts_too_late, "RS-ARC-19"),
        (ends_too_early, "RS-ARC-19"),
        (open_list, "RS-ARC-26"),
        (list_that_is_open_after_all, "RS-ARC-34"),
        (list_of_less_than_is_said, "RS-ARC-34"),
        (list_that_begins_later_than_is_said, "RS-ARC-34"),
        (index_with_a_hole, "RS-ARC-34"),
        (ends_before_it_begins, "RS-TIME-10"),
        (lists_itself, "RS-ARC-13"),
        (missing_list, "RS-ARC-34"),
        (another_host, "DST-S12"),
        (local_file, "DST-S12"),
        (resource_list, "RS-ARC-34"),
    ],
)
def test_an_archive_that_cannot_be_believed(
    archive: Archive, dest: Path, spoil: Callable[[Archive], None], rule: str
) -> None:
    spoil(archive)
    archive.serve()
    assert rule in not_closed(archive, dest).rules()


def test_an_archived_index_that_ends_before_it_says(archive: Archive, dest: Path) -> None:
    """RS-ARC-27: its lists leave nothing out between them, but end before the next archived list begins."""
    parts = [archive.entry(f"c{n}.xml", *SPANS[n], tag="sitemap") for n in (0, 1)]
    times = {"from": at(10), "until": at(40)}
    archive.site.serve("/set/all.xml", document(parts, root="sitemapindex", capability="changelist", **times))
    archive.archived("next.xml", 40.0, 42.0)
    archive.entries = [archive.entry("all.xml", 10, 40), archive.entry("next.xml", 40, 42)]
    archive.serve()
    not_closed(archive, dest)
    asked = archive.asked()
    first = next(n for n, path in enumerate(asked) if path.startswith("resources/"))
    assert asked.index("resourcelist.xml") < first


def index_of_itself(archive: Archive) -> None:
    archive.entries = [url(archive.uri("changelist-archive.xml"), tag="sitemap")]
    archive.serve(root="sitemapindex")


def index_in_a_loop(archive: Archive) -> None:
    for name, other in (("changelist-archive.xml", "a.xml"), ("a.xml", "changelist-archive.xml")):
        archive.entries = [url(archive.uri(other), tag="sitemap")]
        archive.serve(name, root="sitemapindex")


def index_of_another_host(archive: Archive) -> None:
    archive.entries = [url("http://elsewhere.invalid/a.xml", tag="sitemap")]
    archive.serve(root="sitemapindex")


def wrong_capability(archive: Archive) -> None:
    archive.serve(capability="changedump-archive")


def component_of_another_capability(archive: Archive) -> None:
    archive.serve("a.xml", capability="resourcelist-archive")
    archive.entries = [url(archive.uri("a.xml"), tag="sitemap")]
    archive.serve(root="sitemapindex")


def page(archive: Archive) -> None:
    archive.site.serve("/set/changelist-archive.xml", b"<!DOCTYPE html><html><body>soon</body></html>")


def missing(archive: Archive) -> None:
    del archive.site.source.pages["/set/changelist-archive.xml"]


def entity_bomb(archive: Archive) -> None:
    archive.site.serve("/set/changelist-archive.xml", b'<!DOCTYPE u [<!ENTITY a "aaaa">]><urlset>&a;</urlset>')


def elsewhere(archive: Archive) -> None:
    archive.site.source.pages["/set/changelist-archive.xml"] = Reply(
        b"", 302, {"Location": "http://elsewhere.invalid/"}
    )


def hundred_megabytes(archive: Archive) -> None:
    """Of entries, and of nothing at all."""

    def entries() -> Iterator[bytes]:
        yield document([], capability="changelist-archive").removesuffix(b"</urlset>")
        block = archive.entry("c.xml", 10, 20).encode() * 3_000
        for _ in range(100_000_000 // len(block)):
            yield block

    def script(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n")
        for block in entries():
            handler.send(block)

    archive.site.source.pages["/set/changelist-archive.xml"] = Reply(script=script)


def too_many_components(archive: Archive) -> None:
    archive.entries = [
        url(archive.uri(f"{n}.xml"), tag="sitemap") for n in range(archive_documents.MOST_COMPONENTS + 1)
    ]
    archive.serve(root="sitemapindex")


@pytest.mark.parametrize(
    "spoil",
    [
        index_of_itself,
        index_in_a_loop,
        index_of_another_host,
        wrong_capability,
        component_of_another_capability,
        page,
        missing,
        entity_bomb,
        elsewhere,
        hundred_megabytes,
        too_many_components,
    ],
)
def test_an_archive_that_cannot_be_read(archive: Archive, dest: Path, spoil: Callable[[Archive], None]) -> None:
    """RS-ARC-01, RS-ARC-21, RS-ARC-25: it costs a few requests, and the baseline comes."""
    spoil(archive)
    assert "RS-ARC-34" in not_closed(archive, dest).rules()
    assert len(archive.asked()) < 40


def test_thousands_of_archived_documents_without_times(
    archive: Archive, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-ARC-19: so many heads are looked at, and no more."""
    monkeypatch.setattr(archive_documents, "MOST_HEADS", 20)
    archive.entries = [archive.entry(f"x{n}.xml", None, None) for n in range(5_000)]
    archive.serve()
    assert "RS-ARC-26" in not_closed(archive, dest).rules()
    assert sum(path.startswith("x") for path in archive.asked()) == 20


def test_explore_shows_what_is_archived(archive: Archive, source: Source) -> None:
    tree = explore(source.base, parts=2).tree
    (found,) = (node for node in tree.children[0].children if node.capability == "changelist-archive")
    assert (found.title, found.entries, found.left_out) == ("Change List Archive", 3, 1)
    assert [(one.title, one.from_) for one in found.children] == [("archived Change List", at(n)) for n in (10, 20)]


def test_an_audit_needs_no_archive(archive: Archive, dest: Path) -> None:
    closed(archive, dest)
    archive.site.publish_list()
    archive.site.publish_changes(40)
    assert check(archive.site.source.base, dest).verdict == "in sync"
