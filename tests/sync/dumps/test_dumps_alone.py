"""Dumps where there are no lists: what is read of them, what comes out of them, and how far the position goes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.copy_state import SCHEMA
from headwater.storage.database import Database
from headwater.sync.lists.position import Position
from headwater.sync.state import sets
from tests.support.copying import DONE, FAILED, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import at, document, url

DUMPS = ("resourcedump", "changedump")


def remembered(folder: Path) -> tuple[Position, list[tuple[object, ...]]]:
    """The position of the one set of a copy, and what is recorded of its resources."""
    database = Database(folder / ".headwater" / "state.sqlite", SCHEMA)
    with database.read() as t:
        (row,) = sets(t)
        columns = "uri, path, size, digest, listed_hash, listed_length, lastmod, changed_at, newer, doomed_at"
        found = list(t.rows(f"SELECT {columns} FROM resources ORDER BY uri"))
    database.close()
    assert row.position is not None
    return row.position, found


def packages_asked(dumps: Dumps) -> list[str]:
    return [path.rsplit("/", 1)[1] for path in dumps.site.source.requests() if path.endswith(".zip")]


def asked_alone(dumps: Dumps) -> list[str]:
    """Resources that were asked for one by one."""
    return [path for path in dumps.site.source.requests() if "/resources/" in path]


def hide_resources(dumps: Dumps) -> None:
    """No resource can be fetched by itself any more."""
    for path in [path for path in dumps.site.source.pages if "/resources/" in path]:
        del dumps.site.source.pages[path]


def publish(dumps: Dumps, *bounds: float) -> None:
    names = list(dumps.site.files)
    dumps.publish_packages(dumps.package(names[:3]), dumps.package(names[3:]))
    dumps.publish_change_packages(*bounds)
    dumps.site.publish_capabilities(*DUMPS)


def test_the_same_copy_and_the_same_state_as_by_lists(dumps: Dumps, dest: Path, tmp_path: Path) -> None:
    """DST-D, RS-DST-02, RS-DST-03: the files, what is recorded of them, and T."""
    site = dumps.site
    plain = tmp_path / "plain"
    for step in range(3):
        publish(dumps, 0, 100, *(100 * (n + 2) for n in range(step)))
        assert go(site.source.base, dest).status == DONE
        site.publish_list()
        site.publish_changes(0, until=site.clock if step else 100)
        site.publish_capabilities("resourcelist", "changelist")
        assert go(site.source.base, plain, prefer="lists").status == DONE
        assert tree(dest) == tree(plain) == site.files
        assert remembered(dest)[1] == remembered(plain)[1]
        assert remembered(dest)[0].time == remembered(plain)[0].time
        site.clock = 100.0 * (step + 1)
        site.put("d0/f0.txt", b"state %d\n" % step)
        site.put(f"new{step}.txt", b"new\n")
        if step == 1:
            site.drop("new0.txt")
        site.clock = 100.0 * (step + 2)


def test_what_cannot_be_fetched_by_itself_comes_out_of_the_packages(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    publish(dumps, 0, 100)
    hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert asked_alone(dumps) == []
    assert [(way.way, way.resources) for way in ran.one.ways] == [("Resource Dump", 6)]
    site.put("d0/f0.txt", b"changed\n")
    site.clock = 200.0
    publish(dumps, 0, 100, 200)
    hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert [(way.way, way.resources) for way in ran.one.ways] == [("Change Dump", 1)]


def test_nothing_new_is_asked_for_by_the_dump_alone(dumps: Dumps, dest: Path) -> None:
    """RS-DST-06: no package is asked for again, by a baseline or by changes."""
    publish(dumps, 0, 100)
    for offered in (DUMPS, ("resourcedump",)):
        dumps.site.publish_capabilities(*offered)
        assert go(dumps.site.source.base, dest).status == DONE
        dumps.site.source.forget()
        ran = go(dumps.site.source.base, dest)
        assert (ran.status, ran.report and ran.report.total("updated")) == (DONE, 0)
        assert packages_asked(dumps) == []


def test_of_a_change_dump_only_new_packages_are_read(dumps: Dumps, dest: Path) -> None:
    """DST-D: an interval that ends before the position cannot touch (T, now]."""
    publish(dumps, 0, 50, 100)
    assert go(dumps.site.source.base, dest).status == DONE
    dumps.site.put("more.txt", b"more\n")
    dumps.site.clock = 200.0
    dumps.publish_change_packages(0, 50, 100, 200)
    dumps.site.source.forget()
    assert go(dumps.site.source.base, dest).status == DONE
    assert tree(dest) == dumps.site.files
    assert set(packages_asked(dumps)) <= {"c1.zip", "c2.zip"}


@pytest.mark.parametrize("beside", [True, False])
def test_intervals_that_only_the_manifests_state(dumps: Dumps, dest: Path, *, beside: bool) -> None:
    """DST-D: without from/until on the entry the manifest beside the package tells, else the package itself."""
    site = dumps.site
    publish(dumps, 0, 100)
    assert go(site.source.base, dest).status == DONE
    site.put("more.txt", b"more\n")
    site.clock = 200.0
    entries = []
    for number, (since, until) in enumerate([(0, 100), (100, 200)]):
        changes = [change for change in site.changes if since <= change[0] < until]
        octets = dumps.change_package(changes, **{"from": at(since), "until": at(until)})
        dumps.serve_package(f"x{number}.zip", octets)
        links = dumps.serve_contents(f"x{number}.xml", octets) if beside else ""
        entries.append(dumps.entry(f"x{number}.zip", octets, at=None, links=links))
    dumps.publish_dump(entries, kind="changedump", at=None, **{"from": at(0)})
    site.source.forget()
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert ("x0.zip" in packages_asked(dumps)) is True  # `until` is T: an instant that both may hold (AMB-11)
    site.put("still more.txt", b"more\n")
    site.clock = 300.0
    octets = dumps.change_package([site.changes[-1]], **{"from": at(200), "until": at(300)})
    dumps.serve_package("x2.zip", octets)
    links = dumps.serve_contents("x2.xml", octets) if beside else ""
    entries.append(dumps.entry("x2.zip", octets, at=None, links=links))
    dumps.publish_dump(entries, kind="changedump", at=None, **{"from": at(0)})
    site.source.forget()
    assert go(site.source.base, dest).status == DONE
    assert tree(dest) == site.files
    assert "x0.zip" not in packages_asked(dumps)  # by its interval, or by the hash that the dump states


def test_indexes_of_dumps(dumps: Dumps, dest: Path) -> None:
    """RS-RDI-01, RS-CDI-01: the earliest `at` is the position (AMB-24)."""
    site = dumps.site
    names = list(site.files)
    for number, (some, when) in enumerate([(names[:2], 100.0), (names[2:], 90.0)]):
        octets = dumps.package(some, manifest=dumps.manifest(some, at=at(when)))
        dumps.serve_package(f"r{number}.zip", octets)
        entries = [dumps.entry(f"r{number}.zip", octets, at=at(when))]
        body = document(entries, links=site.up(), capability="resourcedump", at=at(when))
        site.serve(f"/set/rd{number}.xml", body)
    parts = [url(f"{site.root}/rd{number}.xml", tag="sitemap") for number in range(2)]
    head = {"root": "sitemapindex", "links": site.up()}
    site.serve("/set/resourcedump.xml", document(parts, capability="resourcedump", at=at(100), **head))
    dumps.publish_change_packages(0, 100)
    site.source.pages["/set/cd0.xml"] = site.source.pages["/set/changedump.xml"]
    parts = [url(f"{site.root}/cd0.xml", tag="sitemap", **{"from": at(0)})]
    site.serve("/set/changedump.xml", document(parts, capability="changedump", **{"from": at(0)}, **head))
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert ran.one.at == at(90)
    site.publish_capabilities(*DUMPS)
    assert go(site.source.base, dest).status == DONE
    assert tree(dest) == site.files
    assert check(site.source.base, dest).exit_status == DONE


def test_of_two_packages_with_one_resource_the_later_counts(dumps: Dumps, dest: Path) -> None:
    """DST-B3, also where nothing but the packages themselves has a hash."""
    site = dumps.site
    listed = []
    for number, body in enumerate((b"earlier\n", b"later\n")):
        site.put("d0/f0.txt", body)
        names = ["d0/f0.txt"] if number else list(site.files)
        entries = [url(site.uri(name), path="/" + dumps.path(name)) for name in names]
        manifest = document(entries, links=site.up(), capability="resourcedump-manifest", at=at(100))
        octets = dumps.package(names, manifest=manifest)
        dumps.serve_package(f"p{number}.zip", octets)
        listed.append(dumps.entry(f"p{number}.zip", octets))
    dumps.publish_dump(listed)
    site.publish_capabilities("resourcedump")
    hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert "AMB-89" in ran.rules()


@pytest.mark.parametrize("hashed", [True, False])
def test_entries_that_state_nothing_are_verified_by_their_package(dumps: Dumps, dest: Path, *, hashed: bool) -> None:
    """DST-P1: by its hash; where the dump states none, by the CRCs in it alone, and that is told."""
    site = dumps.site
    entries = [url(site.uri(name), path="/" + dumps.path(name)) for name in site.files]
    manifest = document(entries, links=site.up(), capability="resourcedump-manifest", at=at(100))
    octets = dumps.package(manifest=manifest)
    dumps.serve_package("p0.zip", octets)
    dumps.publish_dump([dumps.entry("p0.zip", octets, **({} if hashed else {"hash": None, "length": None}))])
    site.publish_capabilities("resourcedump")
    hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert ("DST-P1" in ran.rules()) is not hashed


def test_a_gap_in_the_change_dump_is_bridged_by_the_resource_dump(dumps: Dumps, dest: Path) -> None:
    """DST-C4: the oldest package begins after the position."""
    site = dumps.site
    publish(dumps, 0, 100)
    assert go(site.source.base, dest).status == DONE
    site.clock = 150.0
    site.drop("d1/f1.txt")
    site.clock = 200.0
    publish(dumps, 180, 300)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert ran.one.process == "baseline+increment"


@pytest.mark.parametrize("is_open", [True, False])
def test_a_gap_in_the_change_list_is_closed_by_the_change_dump(dumps: Dumps, dest: Path, *, is_open: bool) -> None:
    """DST-C4: the oldest Change List on offer begins after the position, the Change Dump does not."""
    site = dumps.site
    dumps.publish_change_packages(0, 100)
    site.publish_changes(0, until=None if is_open else 100)
    site.publish_capabilities("changelist", "changedump")
    assert go(site.source.base, dest).status == DONE
    site.clock = 150.0
    site.drop("d1/f1.txt")
    site.clock = 250.0
    site.put("late.txt", b"late\n")
    site.publish_changes(200)
    site.clock = 300.0
    dumps.publish_change_packages(0, 100, 200)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files
    assert "DST-C4" in ran.rules()


def test_a_change_dump_alone_has_a_gap_that_stays(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    publish(dumps, 0, 100)
    site.publish_capabilities("changedump")
    assert go(site.source.base, dest).status == DONE
    site.clock = 200.0
    dumps.publish_change_packages(180, 300)
    ran = go(site.source.base, dest)
    assert ran.status != DONE
    assert tree(dest) == site.files


def test_a_copy_by_dumps_is_gone_on_with_by_lists_and_back(dumps: Dumps, dest: Path) -> None:
    """DST-A6: what a Capability List offers by now is what counts, also while an old dump is still there."""
    site = dumps.site
    for step, offered in enumerate((DUMPS, ("resourcelist", "changelist"), DUMPS, ("resourcedump", "changelist"))):
        site.put("d0/f0.txt", b"state %d\n" % step)
        site.clock = 100.0 * (step + 2)
        if "changedump" in offered:
            publish(dumps, 0, 100, *(100.0 * (n + 2) for n in range(step + 1)))
        site.publish_list()
        site.publish_changes(0, until=site.clock)
        site.publish_capabilities(*offered)
        ran = go(site.source.base, dest)
        assert ran.status == DONE, (offered, ran.notices)
        assert tree(dest) == site.files, offered


def test_dumps_without_packages_are_an_empty_set(dumps: Dumps, dest: Path, tmp_path: Path) -> None:
    """DST-B4: legal, and more than a fifth of a copy is not deleted for it without consent."""
    site = dumps.site
    dumps.publish_dump([])
    dumps.publish_dump([], kind="changedump", at=None, **{"from": at(0)})
    site.publish_capabilities(*DUMPS)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == {}
    for number in range(20):
        site.put(f"more{number}.txt", b"more\n")
    publish(dumps, 0, 100)
    full = tmp_path / "full"
    assert go(site.source.base, full).status == DONE
    site.clock = 200.0
    dumps.publish_dump([])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, full)
    assert (ran.status, ran.one.held_back) == (FAILED, len(site.files))
    assert tree(full) == site.files


def test_a_dump_without_a_capability_list_stands_for_itself(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    dumps.publish_packages(dumps.package())
    entries = [dumps.entry("p0.zip", dumps.served("p0.zip").body)]
    site.serve("/set/alone.xml", document(entries, capability="resourcedump", at=at(100)))
    ran = go(f"{site.root}/alone.xml", dest)
    assert ran.status == DONE, (ran.error, ran.notices)
    assert tree(dest) == site.files
    assert check(f"{site.root}/alone.xml", dest).exit_status == DONE


def test_a_set_without_any_of_them_says_so(dumps: Dumps, dest: Path) -> None:
    dumps.site.publish_capabilities("changelist-archive")
    ran = go(dumps.site.source.base, dest)
    assert ran.status == SOURCE
    assert "no dump" in str(ran.error)


def test_an_audit_of_a_package_with_a_manifest_beside_it(dumps: Dumps, dest: Path) -> None:
    """RS-RD-08, RS-DST-13: the manifest inside is what counts, and of the moment that it says."""
    site = dumps.site
    site.put("large.bin", bytes(range(256)) * 40_000)
    octets = dumps.package(deflate=False)
    dumps.serve_package("p0.zip", octets)
    dumps.publish_dump([dumps.entry("p0.zip", octets, links=dumps.serve_contents("p0.xml", octets))])
    site.publish_capabilities("resourcedump")
    assert go(site.source.base, dest).status == DONE
    report = check(site.source.base, dest)
    assert report.exit_status == DONE
    assert msgspec.to_builtins(report)["sets"][0]["at"] == at(site.clock)


@pytest.mark.parametrize("since", ["nothing", "other changes"])
def test_dumps_that_were_set_back(dumps: Dumps, dest: Path, *, since: str) -> None:
    """DST-C10: packages that were read are there no more, or are others of the same period."""
    site = dumps.site
    publish(dumps, 0, 100)
    assert go(site.source.base, dest).status == DONE
    before, told = dict(site.files), list(site.changes)
    site.put("d0/f0.txt", b"lost\n")
    site.put("new.txt", b"lost\n")
    site.clock = 200.0
    dumps.publish_change_packages(0, 100, 200)
    assert (go(site.source.base, dest).status, tree(dest)) == (DONE, site.files)
    del site.source.pages["/set/resources/new.txt"]
    site.files, site.changes, site.clock = {}, told, 90.0
    for name, body in before.items():
        site.put(name, body, change=False)
    site.clock = 100.0
    if since == "other changes":
        site.put("d1/f1.txt", b"since\n")
        site.put("other.txt", b"since\n")
    dumps.publish_change_packages(0, 100, *([200] if since == "other changes" else []))
    for _ in range(2):
        assert go(site.source.base, dest).status == UNDETERMINED
    site.clock = 300.0
    publish(dumps, 0, 100, 300)
    for _ in range(2):
        ran = go(site.source.base, dest)
        assert (ran.status, tree(dest)) == (DONE, site.files)
