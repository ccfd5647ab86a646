"""What a user gives as a source: names by which tools write documents, after every way of the standard (DST-A2, A3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageFault
from headwater.progress import Notice, Progress
from headwater.sync.connection import starting_uri
from headwater.sync.explore import explore
from headwater.transport.transport import Transport
from tests.support.copying import DONE, IMPATIENT, SOURCE, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, url

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}
CUSTOM = "customary name"


def told(notices: list[Notice]) -> list[str | None]:
    return [notice.where for notice in notices if CUSTOM in notice.message]


@pytest.fixture
def plain(source: Source, site: Site) -> bytes:
    """The five files in a plain Sitemap; nothing of ResourceSync is left of the source."""
    del source.pages["/.well-known/resourcesync"]
    return document([url(site.uri(name), at(0)) for name in site.files])


@pytest.mark.parametrize("given", ["http:/example.org/", "https:example.org", "HTTP//example.org"])
def test_a_slash_that_was_lost_is_no_host_of_that_name(given: str) -> None:
    with pytest.raises(UsageFault, match="begins with http://"):
        starting_uri(given)


@pytest.mark.parametrize("given", ["example.org", "http", "http:8000", "https/x", "httpbin.example:80/x"])
def test_a_host_is_enough(given: str) -> None:
    assert starting_uri(given).startswith(f"http://{given}")


@pytest.mark.parametrize(
    ("name", "document_of_set"),
    [
        ("resourcesync.xml", "/.well-known/resourcesync"),
        ("capabilitylist.xml", "/set/capabilitylist.xml"),
        ("resourcelist.xml", "/set/resourcelist.xml"),
        ("sitemap.xml", "/set/resourcelist.xml"),
        ("sitemap_index.xml", "/set/resourcelist.xml"),
    ],
)
@pytest.mark.parametrize("folder", ["/", "/rs/"])
def test_a_customary_name_leads_in(
    folder: str, name: str, document_of_set: str, source: Source, site: Site, dest: Path
) -> None:
    """After the ways of the standard, and told as that; of a folder that is given, in that folder."""
    page = source.reply(document_of_set)
    del source.pages["/.well-known/resourcesync"]
    source.pages[folder + name] = page
    ran = go(source.base + folder, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL
    assert told(ran.notices) == [f"{source.base}{folder}{name}"]
    assert source.requests()[0] in ("/.well-known/resourcesync", "/rs/")


@pytest.mark.parametrize("page", [None, b"<html>no link</html>"])
def test_an_address_that_leads_to_nothing_is_told_when_its_host_is_taken(
    page: bytes | None, source: Source, site: Site, dest: Path
) -> None:
    if page is not None:
        source.pages["/collections/42"] = Reply(page)
    ran = go(source.base + "/collections/42", dest)
    (notice,) = [one for one in ran.notices if one.rule == "DST-A2"]
    assert (ran.status, tree(dest)) == (DONE, ALL)
    assert notice.where == f"{source.base}/.well-known/resourcesync"
    assert notice.message == f"{source.base}/collections/42 leads to nothing: Headwater asks its host"


@pytest.mark.parametrize("path", ["/", "/set/capabilitylist.xml", "/set/resourcelist.xml", "/.well-known/resourcesync"])
def test_of_an_address_that_leads_in_nothing_is_told(path: str, source: Source, site: Site, dest: Path) -> None:
    ran = go(source.base + path, dest)
    assert (ran.status, "DST-A2" in ran.rules()) == (DONE, False)


def test_ways_of_the_standard_come_first(source: Source, site: Site, dest: Path) -> None:
    source.pages["/capabilitylist.xml"] = Reply(b"nobody reads this")
    ran = go(source.base, dest)
    assert (ran.status, told(ran.notices), source.requests("/capabilitylist.xml")) == (DONE, [], [])


def test_a_plain_sitemap_is_named_and_not_taken(source: Source, plain: bytes, dest: Path) -> None:
    """DST-A3: only on request; the message names it."""
    source.pages["/sitemap.xml"] = Reply(plain)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.error is not None
    assert ran.error.code == "HW-SYN-03"
    assert ran.error.where == f"{source.base}/sitemap.xml"
    assert "--sitemap" in ran.error.todo
    asked = go(source.base, dest, sitemap=True)
    assert (asked.status, told(asked.notices)) == (DONE, [f"{source.base}/sitemap.xml"])
    assert tree(dest) == ALL


def test_a_copy_of_a_plain_sitemap_is_audited_and_renewed_as_that(source: Source, plain: bytes, dest: Path) -> None:
    """DST-A3: what was asked for when the copy was begun need not be asked for again."""
    source.pages["/sitemap.xml"] = Reply(plain)
    assert go(source.base, dest, sitemap=True).status == DONE
    assert check(source.base, dest).verdict == "in sync"
    again = go(source.base, dest)
    assert (again.status, [notice.message for notice in again.notices if "remembered" in notice.message]) == (DONE, [])


def test_a_site_that_answers_everything_with_a_page_is_none(source: Source, dest: Path) -> None:
    """Pages under customary names are not looked through for links."""
    link = b'<html><head><link rel="resourcesync" href="/x.xml"></head></html>'
    source.pages["/capabilitylist.xml"] = Reply(link)
    ran = go(source.base, dest)
    assert ran.error is not None
    assert ran.error.code == "HW-SYN-02"
    assert source.requests("/x.xml") == []
    assert str(ran.error).count("capabilitylist") == 0


def test_where_nobody_answers_no_names_are_tried(dest: Path) -> None:
    ran = go("http://127.0.0.1:1/", dest)
    assert "sitemap" not in str(ran.error)


def test_explore_finds_them_too(source: Source, site: Site) -> None:
    source.pages["/capabilitylist.xml"] = source.pages["/set/capabilitylist.xml"]
    del source.pages["/.well-known/resourcesync"]
    notices: list[Notice] = []

    def listen(event: Notice | Progress) -> None:
        if isinstance(event, Notice):
            notices.append(event)

    with Transport(IMPATIENT) as wire:
        found = explore(source.base, listener=listen, transport=wire)
    assert (found.sets, told(notices)) == (1, [f"{source.base}/capabilitylist.xml"])
