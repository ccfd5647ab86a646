"""Sets that move, vanish or cannot be read; what filters leave out; a source that asks not to be asked.

DST-A6, DST-C6, DST-F10, DST-Q.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headwater.errors import Interrupted
from headwater.progress import silent
from headwater.sync.explore import explore
from headwater.sync.lists.documents import Documents
from headwater.sync.run import SyncTask, sync, synchronise, utcnow
from headwater.sync.sets.discovery import DiscoveredSets
from headwater.sync.sets.moved_sets import match
from headwater.sync.sets.polling import PollingHints, fresh_seconds
from headwater.sync.state import Offer, SetRow
from headwater.transport.transport import Transport
from tests.support.copying import DONE, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, redirect, url

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}


def describe(source: Source, *uris: str) -> None:
    body = document([url(uri, capability="capabilitylist") for uri in uris], capability="description")
    source.pages["/.well-known/resourcesync"] = Reply(body)


@pytest.fixture
def two(source: Source) -> tuple[Site, Site]:
    """Two sets of one source."""
    sites = Site(source, "one"), Site(source, "two")
    for site in sites:
        site.put("a.txt", site.name.encode())
        site.put("b.txt", b"b")
        site.publish()
    sites[0].publish_description("one", "two")
    return sites


# a Capability List that has moved (DST-F10)


@pytest.mark.parametrize("permanent", [True, False], ids=["redirected", "gone"])
def test_a_moved_capability_list_with_the_same_lists(permanent: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-F10: the set keeps its folder, its files and its position."""
    assert go(source.base, dest).status == DONE
    before = source.pages["/set/capabilitylist.xml"]
    source.pages["/moved.xml"] = before
    source.pages["/set/capabilitylist.xml"] = redirect("/moved.xml", 301) if permanent else Reply(b"", 404)
    describe(source, f"{source.base}/moved.xml")
    site.put("f1.txt", b"new")
    site.publish_changes(10)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process, ran.one.updated, ran.one.name) == (DONE, "increment", 1, "set")
    assert "DST-F10" in ran.rules()
    assert tree(dest) == ALL | {"f1.txt": b"new"}
    assert check(source.base, dest).verdict == "in sync"
    again = go(source.base, dest)
    assert (again.status, again.rules()) == (DONE, set())


def test_an_audit_knows_a_set_that_has_moved_since_the_last_run(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    source.pages["/moved.xml"] = source.pages.pop("/set/capabilitylist.xml")
    describe(source, f"{source.base}/moved.xml")
    audited = check(source.base, dest)
    assert (audited.verdict, audited.sets[0].same, audited.sets[0].folder) == ("in sync", 5, "")


def test_a_set_that_has_moved_with_all_its_documents(source: Source, site: Site, dest: Path) -> None:
    """DST-F10: only the permanent redirect says that it is the same set."""
    go(source.base, dest)
    for name in ("resourcelist", "changelist"):
        source.pages[f"/new/{name}.xml"] = source.pages.pop(f"/set/{name}.xml")
    entries = [url(f"{source.base}/new/{name}.xml", capability=name) for name in ("resourcelist", "changelist")]
    source.pages["/new/capabilitylist.xml"] = Reply(document(entries, capability="capabilitylist"))
    source.pages["/set/capabilitylist.xml"] = redirect("/new/capabilitylist.xml", 308)
    describe(source, f"{source.base}/new/capabilitylist.xml")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.folder, ran.one.created) == (DONE, "", 0)
    assert tree(dest) == ALL
    assert check(source.base, dest).verdict == "in sync"


def test_a_temporary_redirect_moves_nothing(source: Source, two: tuple[Site, Site], dest: Path) -> None:
    go(source.base, dest)
    third = Site(source, "three")
    third.put("c.txt", b"c")
    third.publish()
    source.pages["/two/capabilitylist.xml"] = redirect("/three/capabilitylist.xml", 302)
    third.publish_description("one", "three")
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert (dest / "two" / "a.txt").exists()
    assert (dest / "three" / "c.txt").exists()


def test_a_set_in_whose_place_there_are_thousands_is_matched_in_linear_time(source: Source) -> None:
    def offer(name: str) -> Offer:
        return Offer(identity=f"{source.base}/{name}/", name=name, documents={"resourcelist": f"{source.base}/{name}"})

    found = DiscoveredSets(url=source.base, final=source.base, offers=[offer(f"s{n}") for n in range(30_000)])
    known = [SetRow(id=1, name="one", folder="", offer=offer("one"))]
    began = time.process_time()
    with Transport() as transport:
        assert match(Documents(transport, silent, now=utcnow), known, found, source.base) == {}
    assert time.process_time() - began < 10


def test_of_several_sets_that_the_user_says_have_moved_each_is_compared(
    source: Source, two: tuple[Site, Site], dest: Path
) -> None:
    """DST-F10: what agrees is taken along, what does not stays as it is and is told; the old address still helps."""
    go(source.base, dest)
    before = tree(dest)
    with Source() as new:
        for name in ("one", "two"):
            site = Site(new, name)
            site.put("a.txt", name.encode() if name == "two" else b"of another source")
            site.put("b.txt", b"b" if name == "two" else b"other")
            site.publish()
        site.publish_description("one", "two")
        ran = go(new.base, dest, moved=True)
        assert ran.report is not None
        assert (ran.status, [one.exit_status for one in ran.report.sets]) == (SOURCE, [SOURCE, DONE])
        assert "another source" in str(ran.report.sets[0].fault)
        assert tree(dest) == before
        assert not [path for path in new.requests() if "/resources/" in path]
    assert go(source.base, dest).status == DONE
    assert tree(dest) == before
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("same", [True, False])
def test_a_copy_of_the_past_follows_a_move_to_the_same_content_alone(
    same: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-F10: what was at the moment, at the new place, is compared with what is held before anything is done."""
    moment = at(10)
    assert go(source.base, dest, at=moment).status == DONE
    assert tree(dest) == ALL
    with Source() as new:
        moved = Site(new)
        for name, body in ALL.items():
            moved.put(name, body if same else b"other " + body)
        moved.clock = 10.0
        moved.publish(since=10.0)
        for path in ("/.well-known/resourcesync", "/set/capabilitylist.xml"):
            source.pages[path] = redirect(f"{new.base}{path}", 301)
        ran = go(source.base, dest, at=moment, max_delete=1.0)
        assert ran.status == (DONE if same else SOURCE), ran
        assert not [path for path in new.requests() if "/resources/" in path]
    assert tree(dest) == ALL


# a set that is no longer offered (DST-Q)


def test_a_set_that_vanishes_is_named_each_time(source: Source, two: tuple[Site, Site], dest: Path) -> None:
    """DST-Q: what is held of it stays; no audit calls the whole copy in sync."""
    go(source.base, dest)
    two[0].publish_description("one")
    for _ in range(2):  # the second time the Source Description is unchanged
        ran = go(source.base, dest)
        assert ran.status == DONE
        assert ran.report is not None
        assert [one.name for one in ran.report.sets] == ["one"]
        assert any("no longer offers the set two" in notice.message for notice in ran.notices)
    assert tree(dest)["two/a.txt"] == b"two"
    audited = check(source.base, dest)
    assert (audited.verdict, audited.exit_status) == ("undetermined", UNDETERMINED)
    assert {one.name: one.verdict for one in audited.sets} == {"one": "in sync", "two": "undetermined"}
    assert check(source.base, dest, sets=("one",)).verdict == "in sync"
    two[0].publish_description("one", "two")
    assert go(source.base, dest).rules() == set()
    assert check(source.base, dest).verdict == "in sync"


def test_the_address_of_one_set_says_nothing_of_the_others(source: Source, two: tuple[Site, Site], dest: Path) -> None:
    go(source.base, dest)
    for _ in range(2):
        ran = go(f"{source.base}/two/capabilitylist.xml", dest)
        assert ran.report is not None
        assert [one.name for one in ran.report.sets] == ["two"]
        assert ran.rules() == set()


# a Capability List that cannot be read now


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize("described_anew", [True, False])
def test_a_known_set_whose_capability_list_fails(
    described_anew: bool, status: int, source: Source, two: tuple[Site, Site], dest: Path
) -> None:
    """It is said, the status tells the source's fault, and everything else goes on, of that set too."""
    for site in two:
        site.publish_capabilities("resourcelist")
    go(source.base, dest)
    source.pages["/one/capabilitylist.xml"] = Reply(b"", status)
    if described_anew:
        two[0].publish_description("two", "one")
    for site in two:
        site.put("c.txt", b"new of " + site.name.encode())
        site.publish_list()
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.report is not None
    assert any("capabilitylist.xml" in fault for fault in ran.report.faults)
    assert len(ran.report.faults) == 1
    assert any("cannot be read" in notice.message for notice in ran.notices)
    assert tree(dest)["one/c.txt"] == b"new of one"
    assert tree(dest)["two/c.txt"] == b"new of two"
    audited = check(source.base, dest)
    assert audited.exit_status == UNDETERMINED
    assert {one.name: one.verdict for one in audited.sets} == {"one": "undetermined", "two": "in sync"}


# what the filters of the last run leave out


def test_an_audit_leaves_out_what_the_last_run_left_out(source: Source, site: Site, dest: Path) -> None:
    """DST-Q: a file that is held and no longer wanted is neither extra nor different; a stray file is extra."""
    go(source.base, dest)
    site.put("f1.txt", b"new, and not wanted")
    site.drop("f2.txt")
    site.publish_changes(10)
    assert go(source.base, dest, exclude=("f1.txt", "f2.txt")).status == DONE
    assert sorted(tree(dest)) == sorted(ALL)
    audited = check(source.base, dest)
    one = audited.sets[0]
    assert (audited.verdict, one.same, one.left_out, one.extra, one.different) == ("in sync", 3, 1, 0, 0)
    (dest / "stray").write_bytes(b"x")
    assert check(source.base, dest).sets[0].extra == 1


# what the source wishes (DST-C6)


def run_with(hints: PollingHints, source: Source, dest: Path) -> object:
    return synchronise(SyncTask(url=source.base, destination=dest, hints=hints))


def test_a_document_s_retry_after_is_carried(source: Source, site: Site, dest: Path) -> None:
    """DST-C6: in the report, and also when a fault is raised."""
    first = PollingHints()
    run_with(first, source, dest)
    assert (first.retry_after_seconds, first.max_age_seconds) == (None, None)
    source.pages["/set/changelist.xml"] = Reply(b"", 503, {"Retry-After": "3600"})
    report = sync(source.base, dest)
    assert (report.exit_status, report.retry_after_seconds) == (SOURCE, 3600)
    everything = Reply(b"", 503, {"Retry-After": "1800"})
    for path in ("/", "/.well-known/resourcesync", "/robots.txt"):
        source.pages[path] = everything
    raised = PollingHints()
    assert go(source.base, dest.parent / "other").status == SOURCE
    with pytest.raises(Exception, match="no ResourceSync document"):
        run_with(raised, source, dest.parent / "other")
    assert raised.retry_after_seconds == 1800


def test_the_polled_list_s_max_age_is_carried(source: Source, site: Site, dest: Path) -> None:
    """DST-C6: of the list that is polled, also when it has not changed; that of others says nothing."""
    site.serve(
        "/.well-known/resourcesync", source.reply("/.well-known/resourcesync").body, **{"Cache-Control": "max-age=9000"}
    )
    sync(source.base, dest)
    assert sync(source.base, dest).max_age_seconds is None
    site.serve("/set/changelist.xml", source.reply("/set/changelist.xml").body, **{"Cache-Control": "max-age=600"})
    assert sync(source.base, dest).max_age_seconds == 600


@pytest.mark.parametrize(
    ("cache_control", "age", "seconds"),
    [
        (None, None, 0),
        ("", None, 0),
        ("max-age=60", None, 60),
        ("public, Max-Age=60, must-revalidate", None, 60),
        ('max-age="60"', "20", 40),
        ("max-age=60", "100", 0),
        ("max-age=60", "nonsense", 60),
        ("max-age=-5", None, 0),
        ("max-age", None, 0),
        ("no-cache, max-age=60", None, 0),
        ("max-age=60, no-store", None, 0),
        ("max-age=" + "9" * 40, None, 999_999_999),
        ("max-age=\u0661", None, 0),
    ],
)
def test_freshness(cache_control: str | None, age: str | None, seconds: float) -> None:
    assert fresh_seconds(cache_control, age) == seconds


# stopping


def test_a_stop_gives_up_what_hangs(source: Source, site: Site, dest: Path) -> None:
    """A transfer under way is abandoned, what is complete holds, nothing is half placed; the next run continues."""
    go(source.base, dest)
    for name in ("f1.txt", "g.txt"):
        site.put(name, b"new " + name.encode())
    site.publish_changes(10)
    whole = source.pages["/set/resources/f1.txt"]
    asked: list[str] = []

    def hang(handler):
        asked.append(handler.path)
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        handler.connection.recv(1)

    source.pages["/set/resources/f1.txt"] = Reply(script=hang)
    with pytest.raises(Interrupted):
        sync(source.base, dest, stopped=lambda: bool(asked) and (dest / "g.txt").exists())
    assert tree(dest)["f1.txt"] == ALL["f1.txt"]
    source.pages["/set/resources/f1.txt"] = whole
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL | {"f1.txt": b"new f1.txt", "g.txt": b"new g.txt"}
    assert check(source.base, dest).verdict == "in sync"


def test_a_sitemap_as_large_as_one_may_be_is_read(source: Source) -> None:
    """AMB-02, RS-LIM-01: without `rs:md` the end of the document alone says what it is."""
    body = document([url(f"http://example.org/{n}") for n in range(50_000)])
    source.pages["/sitemap.xml"] = Reply(body)
    report = explore(f"{source.base}/sitemap.xml")
    assert (report.exit_status, report.tree.entries) == (0, 50_000)
