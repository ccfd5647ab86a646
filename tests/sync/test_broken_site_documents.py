"""Ways around a Source Description or Capability List that is broken: told, and not taken for ever (DST-F4, DST-C5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copying import DONE, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Reply, Site, Source, ln, reset

DESCRIPTION = "/.well-known/resourcesync"
CAPABILITIES = "/set/capabilitylist.xml"
BROKEN = {
    "page": lambda: Reply(b"<!doctype html><html><head><title>Welcome</title></head></html>"),
    "another root": lambda: Reply(b'<x xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'),
    "torn": lambda: Reply(b'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url>'),
    "empty": lambda: Reply(b""),
    "503": lambda: Reply(b"", 503),
    "no answer": reset,
}


@pytest.fixture
def robots(source: Source, site: Site) -> Site:
    """A source whose Resource List is found by robots.txt, too."""
    source.pages["/robots.txt"] = Reply(f"Sitemap: {site.root}/resourcelist.xml\n".encode())
    return site


def later(site: Site) -> None:
    """Changes of all kinds, told by the Change List alone."""
    site.put("f1.txt", b"one, newer")
    site.put("g.txt", b"g")
    site.drop("f2.txt")
    site.publish_changes(10)


@pytest.mark.parametrize("fault", ["page", "another root", "torn", "empty"])
def test_a_set_that_cannot_be_read_is_named(fault: str, source: Source, site: Site, dest: Path) -> None:
    """A Source Description is there, and nothing else: its Capability List is told, not that nothing was found."""
    source.pages[CAPABILITIES] = BROKEN[fault]()
    error = go(source.base, dest).error
    assert error is not None
    assert (error.exit_status, error.where) == (SOURCE, source.base + CAPABILITIES)
    assert error.what.startswith("no set that the Source Description lists can be read: ")


@pytest.mark.parametrize("both", [True, False], ids=["both", "the description"])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_first_run_around_broken_documents(
    fault: str, source: Source, robots: Site, dest: Path, *, both: bool
) -> None:
    """It copies what it finds, does not end with 0, and the next run looks at the Source Description again."""
    sound = {path: source.pages[path] for path in (DESCRIPTION, CAPABILITIES)}
    broken = [DESCRIPTION, CAPABILITIES] if both else [DESCRIPTION]
    for path in broken:
        source.pages[path] = BROKEN[fault]()
    for _ in range(2):
        ran = go(source.base, dest)
        assert ran.status == SOURCE
        assert tree(dest) == dict(robots.files)
        assert ran.report is not None
        for path in broken:
            assert any(path in told for told in ran.report.faults), path
        assert "DST-F4" in ran.rules()
    assert check(source.base, dest).exit_status == UNDETERMINED
    source.pages.update(sound)
    later(robots)
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.updated, ran.one.deleted) == (DONE, 1, 1, 1)
    assert tree(dest) == dict(robots.files)
    assert source.requests("/set/changelist.xml")
    source.forget()
    assert go(source.base, dest).status == DONE
    assert len(source.requests()) == 2
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("fault", BROKEN)
def test_a_first_run_around_the_capability_list(fault: str, source: Source, robots: Site, dest: Path) -> None:
    sound = source.pages[CAPABILITIES]
    source.pages[CAPABILITIES] = BROKEN[fault]()
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == dict(robots.files)
    source.pages[CAPABILITIES] = sound
    later(robots)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(robots.files)
    assert source.requests("/set/changelist.xml")


def test_a_list_that_was_named_around_its_capability_list(source: Source, site: Site, dest: Path) -> None:
    """The address of a Resource List: the documents above it are part of the way."""
    sound = source.pages[CAPABILITIES]
    source.pages[CAPABILITIES] = BROKEN["page"]()
    url = f"{site.root}/resourcelist.xml"
    assert go(url, dest).status == SOURCE
    source.pages[CAPABILITIES] = sound
    later(site)
    assert go(url, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("status", [404, 410, 403])
def test_no_source_description_is_no_fault(status: int, source: Source, robots: Site, dest: Path) -> None:
    """DST-A2: that there is none is told by 404; some stores say 403 of what they do not have."""
    source.pages[DESCRIPTION] = Reply(b"<html>nothing here</html>", status)
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest).status == DONE


def test_a_page_that_leads_on_is_no_fault(source: Source, site: Site, dest: Path) -> None:
    """RS-DISC-02: whatever answers at the well-known address may link to the Capability List."""
    page = f'<html><head><link rel="resourcesync" href="{site.root}/capabilitylist.xml"></head></html>'
    site.serve(CAPABILITIES, source.reply(CAPABILITIES).body.replace(site_up(source).encode(), b""))
    source.pages[DESCRIPTION] = Reply(page.encode())
    assert go(source.base, dest).status == DONE
    later(site)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def site_up(source: Source) -> str:
    return ln("up", f"{source.base}{DESCRIPTION}")


@pytest.mark.parametrize("fault", BROKEN)
def test_a_known_source_whose_description_breaks(fault: str, source: Source, robots: Site, dest: Path) -> None:
    """DST-F4: what is remembered stays, and is brought up to date; no other way is taken in its place."""
    assert go(source.base, dest).status == DONE
    sound = source.pages[DESCRIPTION]
    source.pages[DESCRIPTION] = BROKEN[fault]()
    later(robots)
    ran = go(source.base, dest)
    assert ran.status == (DONE if fault in ("503", "no answer") else SOURCE)
    assert any("Source Description cannot be read" in notice.message for notice in ran.notices)
    assert tree(dest) == dict(robots.files)
    assert source.requests("/robots.txt") == []
    source.pages[DESCRIPTION] = sound
    assert go(source.base, dest).status == DONE


@pytest.mark.parametrize("fault", BROKEN)
def test_a_closed_list_whose_successor_cannot_be_learnt(fault: str, source: Source, site: Site, dest: Path) -> None:
    """DST-C2: after a closed list the Capability List says where it goes on; where that cannot be read it is told."""
    go(source.base, dest)
    later(site)
    site.publish_changes(10, until=20)
    assert go(source.base, dest).status == DONE
    sound = source.pages[CAPABILITIES]
    source.pages[CAPABILITIES] = BROKEN[fault]()
    assert go(source.base, dest).status == SOURCE
    site.put("h.txt", b"h")
    site.publish_changes(10, until=20)
    assert go(source.base, dest).status == SOURCE
    source.pages[CAPABILITIES] = sound
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
