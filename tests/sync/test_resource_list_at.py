"""A Resource List of the `at` that was done last: nothing to do only where its octets are the same (DST-B1)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from tests.support.copying import DONE, SOURCE, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, url
from tests.sync.test_documents import index, indexed, part

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
    indexed(site, is_timed=False)
    for path in (LIST, *COMPONENTS):
        source.pages[path] = Reply(source.reply(path).body, etag=False)
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest).one.process == "none"
    site.put("f4.txt", b"four, mended")
    part(site, "a", "f2.txt", "f4.txt")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process) == (DONE, "baseline")
    assert tree(dest) == {name: body for name, body in site.files.items() if name != "f3.txt"}


@pytest.mark.parametrize("etag", [True, False], ids=["components with ETag", "without"])
def test_an_index_that_is_unchanged_tells_nothing_of_its_components(
    etag: bool, source: Source, site: Site, dest: Path
) -> None:
    """A 304 of the index, and a component of other octets; what is the same costs a question each."""
    site.publish_capabilities("resourcelist")
    indexed(site, is_timed=False)
    for path in COMPONENTS:
        source.pages[path] = Reply(source.reply(path).body, etag=etag)
    assert go(source.base, dest).status == DONE
    source.forget()
    assert go(source.base, dest).one.process == "none"
    assert [source.requests(path) for path in (LIST, *COMPONENTS)] == [[path] for path in (LIST, *COMPONENTS)]
    site.put("f4.txt", b"four, mended")
    part(site, "a", "f2.txt", "f4.txt")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process) == (DONE, "baseline")
    assert tree(dest) == {name: body for name, body in site.files.items() if name != "f3.txt"}


@pytest.mark.parametrize("etag", [True, False], ids=["ETag", "no validators"])
def test_an_index_that_states_the_times_of_its_components_is_asked_alone(
    etag: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-B1: a quiet poll is one request; of components only those are asked whose time the index does not state."""
    site.publish_capabilities("resourcelist")
    indexed(site)
    for path in (LIST, *COMPONENTS):
        source.pages[path] = Reply(source.reply(path).body, etag=etag)
    assert go(source.base, dest).status == DONE
    cases: list[tuple[dict[str, float | None] | None, list[str]]] = [(None, []), ({"z": None}, ["/set/z.xml"])]
    for stated, asked in cases:
        if stated:
            index(site, "z", "a", stated=stated)
            source.pages[LIST] = Reply(source.reply(LIST).body, etag=etag)
            assert go(source.base, dest).status == DONE
        source.forget()
        ran = go(source.base, dest)
        assert (ran.status, ran.one.process) == (DONE, "none")
        assert [path for path in source.requests() if path in (LIST, *COMPONENTS)] == [LIST, *asked]


DAY, SECOND, FINE = "2026-01-01", "2026-01-01T00:00:10Z", "2026-01-01T00:00:10.250Z"


@pytest.mark.parametrize(
    ("of_index", "of_parts", "differ"),
    [
        (DAY, (SECOND, SECOND), True),
        (SECOND, (FINE, SECOND), True),
        (None, (SECOND, FINE), True),
        (SECOND, (None, SECOND), False),
        (at(20), (SECOND, SECOND), True),
        (at(5), (SECOND, SECOND), True),
        (at(30), (SECOND, at(12)), True),
        (None, (SECOND, at(12)), True),
        ("2026-01-02", (SECOND, None), True),
    ],
)
@pytest.mark.parametrize("changes", [True, False], ids=["with a Change List", "alone"])
def test_an_index_and_components_of_other_times(
    changes: bool,
    of_index: str | None,
    of_parts: tuple[str | None, str | None],
    differ: bool,
    source: Source,
    site: Site,
    dest: Path,
) -> None:
    """AMB-95: a source at rest is one, whatever times its documents state; the earliest counts, and is told once."""
    names = list(site.files)
    for path, moment, listed in zip(COMPONENTS, of_parts, (names[:2], names[2:]), strict=True):
        resources = [site.resource(name) for name in listed]
        site.serve(path, document(resources, links=site.up(), capability="resourcelist", at=moment))
    parts = [url(f"{source.base}{path}", tag="sitemap") for path in COMPONENTS]
    site.serve(LIST, document(parts, "sitemapindex", links=site.up(), capability="resourcelist", at=of_index))
    if changes:
        site.put("f1.txt", b"later")
        site.publish_changes(10)
    else:
        site.publish_capabilities("resourcelist")
    ran = go(source.base, dest)
    assert (ran.status, tree(dest)) == (DONE, dict(site.files))
    assert len([one for one in ran.notices if one.rule == "AMB-95"]) == differ
    assert "DST-F13" not in ran.rules()
    source.forget()
    assert go(source.base, dest).status == DONE
    with source.lock:
        again = [headers for path, headers in source.log if path in COMPONENTS]
    assert all(headers.get("If-None-Match") for headers in again)
    assert len(again) <= (0 if changes else 2)


def test_an_index_of_a_sitemap_that_never_changes(source: Source, site: Site, dest: Path) -> None:
    """The usual index of a plain Sitemap names its components and says nothing else."""
    uri = f"{source.base}/sitemap_index.xml"
    parts = [url(f"{site.root}/a.xml", tag="sitemap"), url(f"{site.root}/z.xml", tag="sitemap")]
    site.serve("/sitemap_index.xml", document(parts, "sitemapindex"))
    site.serve("/set/a.xml", document([url(site.uri("f0.txt"), at(0))]))
    site.serve("/set/z.xml", document([url(site.uri("f1.txt"), at(0))]))
    assert go(uri, dest, sitemap=True).status == DONE
    site.put("f1.txt", b"one, changed")
    site.serve("/set/z.xml", document([url(site.uri("f1.txt"), at(site.clock)), url(site.uri("f2.txt"), at(0))]))
    assert go(uri, dest, sitemap=True).status == DONE
    assert tree(dest) == {name: site.files[name] for name in ("f0.txt", "f1.txt", "f2.txt")}
    assert go(uri, dest, sitemap=True).one.process == "none"
    del source.pages["/set/a.xml"]
    assert go(uri, dest, sitemap=True).status == SOURCE
    assert len(tree(dest)) == 3


def test_that_a_list_has_no_at_is_told_once(source: Source, site: Site, dest: Path) -> None:
    """As the lists of RDF datasets of Timbuctoo, which never have one."""
    site.publish_list(at=None)
    ran = go(source.base, dest)
    told = [one.message for one in ran.notices if "at" in one.message.split()]
    assert (ran.status, told) == (DONE, ["a Resource List must have at"])


def test_forced(source: Source, listed: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest, baseline=True).one.process == "baseline"


@pytest.mark.parametrize("ahead", [3, 180], ids=["seconds", "minutes"])
def test_a_date_that_lags_behind_leaves_no_gap(source: Source, site: Site, dest: Path, ahead: int) -> None:
    """A source that has just begun: `at` and the first Change List's `from` are a little later than the answer's Date,
    which is of whole seconds, renewed now and then, perhaps by a cache, and of another machine."""
    began = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(at(0))).total_seconds() + ahead
    site.publish_list(when=began + 1)
    site.publish_changes(began, entries=())
    site.publish_capabilities("resourcelist", "changelist")
    site.publish_description()
    assert go(source.base, dest).status == DONE
    site.clock = began + 1
    site.put("f1.txt", b"and on")
    site.publish_changes(began, entries=[site.change(*site.changes[-1])])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_an_at_minutes_ahead_hides_nothing_where_there_was_no_change_list(
    source: Source, site: Site, dest: Path
) -> None:
    """DST-4.5: nobody has told what changes until then; the first Change List does."""
    now = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(at(0))).total_seconds()
    site.publish_list(when=now + 180)
    site.publish_capabilities("resourcelist")
    site.publish_description()
    assert go(source.base, dest).status == DONE
    site.clock = now
    site.put("f1.txt", b"before `at`")
    site.publish_capabilities("resourcelist", "changelist")
    site.publish_changes(now - 50, entries=[site.change(*site.changes[-1])])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("is_gone", [False, True], ids=["served", "gone"])
@pytest.mark.parametrize("more", [False, True], ids=["nothing later", "a later change"])
def test_a_deletion_of_before_the_list_that_names_the_resource(
    more: bool, is_gone: bool, source: Source, site: Site, dest: Path
) -> None:
    """AMB-35, AMB-25: told when the list is read the first time, it is done only where the source has nothing there."""
    site.publish_list(when=30)
    later = [site.change(31, "updated", "f1.txt")] if more else []
    site.publish_changes(10, entries=[site.change(20, "deleted", "f3.txt"), *later])
    if is_gone:
        source.pages["/set/resources/f3.txt"] = Reply(b"gone", 410)
    for _ in range(3):
        assert go(source.base, dest).status == DONE
        assert ("f3.txt" in tree(dest)) is not is_gone
