"""A Resource List of the `at` that was done last: nothing to do only where its octets are the same (DST-B1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sync.copying import DONE, go, tree
from tests.sync.test_torture_documents import indexed, part
from tests.sync.torture import Reply, Site, Source, url

LIST = "/set/resourcelist.xml"
COMPONENTS = ("/set/a.xml", "/set/z.xml")


@pytest.fixture(params=["no validators", "an ETag"])
def listed(request: pytest.FixtureRequest, site: Site, source: Source) -> Site:
    """Only a Resource List, without hashes: to read it again is to ask for each resource."""
    site.publish_capabilities("resourcelist")
    publish(source, site, etag=request.param == "an ETag")
    return site


def publish(source: Source, site: Site, *, etag: bool) -> None:
    site.publish_list([url(site.uri(name)) for name in sorted(site.files)], when=10)
    source.pages[LIST] = Reply(source.reply(LIST).body, etag=etag)


def test_the_same_list_is_nothing_to_do(source: Source, listed: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    for _ in range(2):
        source.forget()
        ran = go(source.base, dest)
        assert (ran.status, ran.one.process) == (DONE, "none")
        assert [path for path in source.requests() if "/resources/" in path] == []


def test_a_mended_list_is_read(source: Source, listed: Site, dest: Path) -> None:
    """A list that left something out, and one made by a tool whose `at` stands still."""
    assert go(source.base, dest).status == DONE
    etag = "ETag" in source.reply(LIST).headers
    for name in ("more", "later"):
        listed.put(name, name.encode())
        listed.put("f1.txt", b"one, " + name.encode())
        del listed.files["f2.txt" if name == "more" else "f3.txt"]
        publish(source, listed, etag=etag)
        ran = go(source.base, dest)
        assert (ran.status, ran.one.process) == (DONE, "baseline")
        assert tree(dest) == dict(listed.files)
    assert go(source.base, dest).one.process == "none"


def test_components_are_of_the_list(source: Source, site: Site, dest: Path) -> None:
    """An index of the same octets, a component of others."""
    site.publish_capabilities("resourcelist")
    indexed(site)
    for path in (LIST, *COMPONENTS):
        source.pages[path] = Reply(source.reply(path).body, etag=False)
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest).one.process == "none"
    site.put("f4.txt", b"four, mended")
    part(site, "a", "f2.txt", "f4.txt")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process) == (DONE, "baseline")
    assert tree(dest) == {name: body for name, body in site.files.items() if name != "f3.txt"}


def test_forced(source: Source, listed: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest, baseline=True).one.process == "baseline"
