"""Resources by packages of dumps and on demand, over real sockets: what comes how, and what is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import cli
from headwater.copy_state import SCHEMA
from headwater.errors import Exit
from headwater.storage.database import Database
from headwater.sync.reports import SetReport
from headwater.transport.access import SignInCredentials
from tests.support.copying import IMPATIENT, Ran, go
from tests.support.fake_dumps import Dumps, zipped
from tests.support.fake_source import Reply, Site, Source, at, document, sha, url

COUNT = 30


@pytest.fixture
def dumps(source: Source) -> Dumps:
    """Thirty small files in two folders, one of them empty and one of 3 MB, published by lists."""
    site = Site(source)
    for number in range(COUNT):
        site.put(f"d{number % 2}/f{number}.txt", b"body %d\n" % number * number)
    site.put("large.bin", bytes(range(256)) * 12_000)
    site.clock = 100.0
    site.publish(since=100.0)
    return Dumps(site)


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".headwater" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows(folder: Path) -> list[tuple[object, ...]]:
    """What is recorded of the copy, but for what only a response's headers tell."""
    database = Database(folder / ".headwater" / "state.sqlite", SCHEMA)
    with database.read() as t:
        columns = "uri, path, size, mtime_ns, digest, listed_hash, listed_length, lastmod, changed_at, newer, doomed_at"
        found = list(t.rows(f"SELECT {columns} FROM resources ORDER BY uri"))
        assert t.value("SELECT count(*) FROM intents") == 0
    database.close()
    return found


def fetched(dumps: Dumps) -> list[str]:
    """Resources that were asked for one by one."""
    return [path for path in dumps.site.source.requests() if path.startswith("/set/resources/")]


def ways(ran: Ran) -> dict[str, int]:
    return {way.way: way.resources for way in ran.one.ways if way.taken}


def test_a_baseline_comes_by_the_packages_of_the_resource_dump(dumps: Dumps, dest: Path) -> None:
    names = list(dumps.site.files)
    dumps.publish_packages(dumps.package(names[:10]), dumps.package(names[10:]))
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    assert fetched(dumps) == []
    assert ways(ran) == {"Resource Dump": COUNT + 1}
    assert (ran.one.created, ran.one.octets) == (COUNT + 1, sum(map(len, dumps.site.files.values())))


def test_a_baseline_comes_on_demand_and_what_is_large_by_itself(dumps: Dumps, dest: Path) -> None:
    dumps.publish(demand=True)
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    assert fetched(dumps) == ["/set/resources/large.bin"]
    assert ways(ran) == {"on demand": COUNT}
    assert sum(map(len, dumps.asked)) == COUNT
    assert len(dumps.asked) == 3


@pytest.mark.parametrize(("more", "deflate"), [({}, False), ({"bwlimit": 1 << 20}, True)], ids=["near", "limited"])
def test_a_source_near_by_is_asked_not_to_deflate(
    dumps: Dumps, dest: Path, more: dict[str, Any], deflate: bool
) -> None:
    """Where the line is the bottleneck, for the user has said so, octets are saved all the same."""
    dumps.publish(demand=True)
    base = dumps.site.source.base
    wire = msgspec.structs.replace(IMPATIENT, source=base)
    assert go(base, dest, wire, prefer="dumps", **more).status == Exit.DONE
    assert set(dumps.deflate) == {deflate}


def test_a_member_under_the_name_of_another_resource_is_not_placed_for_it(dumps: Dumps, dest: Path) -> None:
    """DST-P5: the manifest says of which resource a member is, the listed digest verifies it."""
    names = list(dumps.site.files)[:10]
    for name in names:
        dumps.site.put(name, name.encode().ljust(20), change=False)
    dumps.site.publish(since=100.0)
    turned = dict(zip(names, [*names[1:], names[0]], strict=True))

    def answer(uris: list[str]) -> Reply:
        asked = [uri.removeprefix(dumps.site.uri("")) for uri in uris]
        members = [(dumps.path(name), dumps.site.files[turned.get(name, name)]) for name in asked]
        return Reply(zipped([*members, ("manifest.xml", dumps.manifest(asked))]), etag=False)

    links = dumps.offer_demand(answer)
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    assert {path.removeprefix("/set/resources/") for path in fetched(dumps)} == {*names, "large.bin"}


@pytest.mark.parametrize("prefer", ["auto", "dumps"])
@pytest.mark.parametrize("offered", ["resourcedump", "demand", "both"])
def test_every_way_gives_the_same_copy_and_the_same_state(
    dumps: Dumps, dest: Path, tmp_path: Path, prefer: str, offered: str
) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish(*(["resourcedump"] if offered != "demand" else []), demand=offered != "resourcedump")
    assert go(dumps.site.source.base, dest, prefer=prefer).status == Exit.DONE
    plain = tmp_path / "plain"
    assert go(dumps.site.source.base, plain, prefer="lists").one.ways == []
    assert tree(dest) == tree(plain) == dumps.site.files
    assert rows(dest) == rows(plain)


def test_changes_come_by_the_packages_of_the_change_dump_that_hold_them(dumps: Dumps, dest: Path) -> None:
    """DST-D: only packages after the position; of several states of a resource the one that is listed counts."""
    site = dumps.site
    early = change_package(dumps, "early.zip", {"d0/f0.txt": b"before"}, 50, 90)
    dumps.publish_dump([early], kind="changedump", at=None, from_=at(50))
    dumps.publish("changedump")
    assert go(site.source.base, dest, prefer="dumps").status == Exit.DONE
    older = change_package(dumps, "older.zip", {"d0/f2.txt": b"a state in between"}, 100, 101)
    for name in ("d0/f2.txt", "new.txt"):
        site.put(name, b"newer " + name.encode())
    newer = change_package(dumps, "newer.zip", {name: site.files[name] for name in ("d0/f2.txt", "new.txt")}, 101, 103)
    site.publish_changes(100)
    dumps.publish_dump([early, older, newer], kind="changedump", at=None, from_=at(50))
    site.source.forget()
    ran = go(site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == site.files
    assert ways(ran) == {"Change Dump": 2}
    assert [path for path in site.source.requests() if path.endswith(".zip")] == ["/set/newer.zip"]
    assert fetched(dumps) == []


def change_package(dumps: Dumps, name: str, states: dict[str, bytes], since: float, until: float) -> str:
    """A package of a Change Dump with these states; returns its entry."""
    site = dumps.site
    entries = [
        site.change(until, "updated", one, body, path=f"/changes/{number}/{one}")
        for number, (one, body) in enumerate(states.items())
    ]
    interval = {"from": at(since), "until": at(until)}
    manifest = document(entries, links=site.up(), capability="changedump-manifest", **interval)
    members = [(f"changes/{number}/{one}", body) for number, (one, body) in enumerate(states.items())]
    octets = zipped([("manifest.xml", manifest), *members])
    dumps.serve_package(name, octets)
    return dumps.entry(name, octets, at=None, **interval)


def test_a_dry_run_says_which_way_would_be_taken_and_fetches_nothing(dumps: Dumps, dest: Path) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump", demand=True)
    ran = go(dumps.site.source.base, dest, prefer="dumps", dry_run=True)
    (way,) = ran.one.ways
    assert (way.way, way.taken, way.packages, way.resources) == ("Resource Dump", True, 1, 0)
    assert not dest.exists()
    assert not [path for path in dumps.site.source.requests() if path.endswith((".zip", "dump", ".txt"))]


def test_a_dry_run_asks_no_package_for_what_would_be_adopted(dumps: Dumps, dest: Path) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump", demand=True)
    assert go(dumps.site.source.base, dest, prefer="lists").status == Exit.DONE
    shutil.rmtree(dest / ".headwater")
    ran = go(dumps.site.source.base, dest, prefer="dumps", dry_run=True)
    assert (ran.one.adopted, ran.one.to_fetch_octets, ran.one.ways) == (COUNT + 1, 0, [])
    (dest / "d1/f7.txt").unlink()
    ran = go(dumps.site.source.base, dest, prefer="dumps", dry_run=True)
    assert (ran.one.adopted, ran.one.created, len(ran.one.plan)) == (COUNT, COUNT + 1, COUNT + 1)
    assert [way.why for way in ran.one.ways if "1 resource " not in way.why] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--prefer", "dumps"], "31 by Resource Dump: 1 package of "),
        (["--prefer", "dumps", "--dry-run"], "would fetch by Resource Dump: 1 package of "),
        (["--include", "d0/f2.txt"], "not by"),
    ],
)
def test_the_report_says_what_was_taken(
    dumps: Dumps, dest: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    assert cli.run(["sync", *arguments, dumps.site.source.base, str(dest)]) == Exit.DONE
    shown = capsys.readouterr().out
    assert (told in shown) == (told != "not by"), shown  # of a few nothing is to be told


def test_packages_on_demand_are_told_by_their_name(
    dumps: Dumps, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps.publish(demand=True)
    assert cli.run(["sync", "--prefer", "dumps", dumps.site.source.base, str(dest)]) == Exit.DONE
    assert "by packages on demand: 3 packages of " in capsys.readouterr().out


def test_it_is_told_where_nothing_of_packages_was_as_listed(
    dumps: Dumps, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = dumps.offer_demand(lambda uris: Reply(dumps.on_demand([]), etag=False))
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    assert cli.run(["sync", "--prefer", "dumps", dumps.site.source.base, str(dest)]) == Exit.DONE
    assert "  0 by packages on demand: " in capsys.readouterr().out


def test_it_is_told_where_a_dump_has_too_little_of_what_is_wanted(
    dumps: Dumps, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was packed before everything changed."""
    dumps.publish_packages(dumps.package())
    for name, body in list(dumps.site.files.items()):
        dumps.site.put(name, body + b"changed", change=False)
    dumps.site.publish(since=100.0)
    dumps.publish("resourcedump")
    assert cli.run(["sync", "--prefer", "dumps", dumps.site.source.base, str(dest)]) == Exit.DONE
    assert "  0 by Resource Dump: 1 package of " in capsys.readouterr().out


def test_lists_are_preferred_where_that_is_said(dumps: Dumps, dest: Path) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump", demand=True)
    ran = go(dumps.site.source.base, dest, prefer="lists")
    assert (tree(dest), ran.one.ways, dumps.asked) == (dumps.site.files, [], [])
    assert dumps.site.source.requests("/set/resourcedump.xml") == []


def test_a_dump_that_is_older_than_the_list_brings_what_is_still_listed(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    dumps.publish_packages(dumps.package())
    site.put("d0/f0.txt", b"newer")
    site.put("new.txt", b"new")
    site.drop("d1/f3.txt")
    site.publish_list()
    site.publish_changes(100)
    dumps.publish("resourcedump")
    ran = go(site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == site.files
    assert ways(ran) == {"Resource Dump": COUNT - 1}
    assert sorted(fetched(dumps)) == ["/set/resources/d0/f0.txt", "/set/resources/new.txt"]


def test_what_is_there_already_is_adopted_and_not_fetched(dumps: Dumps, dest: Path) -> None:
    names = list(dumps.site.files)
    dest.mkdir()
    for name in names[:-1]:
        (dest / name).parent.mkdir(exist_ok=True)
        (dest / name).write_bytes(dumps.site.files[name])
    dumps.publish_packages(*(dumps.package([name]) for name in names))
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert (ran.status, tree(dest), ran.one.adopted) == (Exit.DONE, dumps.site.files, COUNT)
    assert ways(ran) == {"Resource Dump": 1}


def test_without_room_on_the_disk_nothing_is_fetched_and_nothing_lost(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    assert go(dumps.site.source.base, dest, prefer="dumps", include=("d0/*",)).status == Exit.DONE
    held = tree(dest)
    dumps.site.source.forget()
    monkeypatch.setattr("headwater.files.file_copies.Room.left", lambda _room: 1_500)
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert (ran.status, ran.error and ran.error.code) == (Exit.STORE, "HW-SYN-23")
    assert " MiB, and has room for 1.46 KiB: " in str(ran.error)
    assert tree(dest) == held
    assert fetched(dumps) == dumps.site.source.requests("/set/p0.zip") == []
    monkeypatch.undo()
    assert go(dumps.site.source.base, dest, prefer="dumps").status == Exit.DONE
    assert tree(dest) == dumps.site.files


def test_what_finds_its_name_taken_is_left_to_single_requests(dumps: Dumps, dest: Path) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    (dest / "d0" / "f2.txt").mkdir(parents=True)
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran
    assert ways(ran) == {"Resource Dump": COUNT}
    assert fetched(dumps) == ["/set/resources/d0/f2.txt"]


def test_credentials_go_with_a_request_on_demand_to_their_origin_alone(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    own = msgspec.structs.replace(IMPATIENT, credentials=SignInCredentials(site.source.base, "Bearer secret"))

    def run(name: str, to: Path = dest, **options: Any) -> Ran:
        """A run that has this file to fetch, and shows who asks."""
        site.put(name, b"new")
        site.publish_list()
        ran = go(site.source.base, to, own, prefer="dumps", baseline=True, **options)
        assert (ran.status, tree(to)) == (Exit.DONE, site.files)
        return ran

    with Source() as other:
        other.posts["/set/dump"] = Reply(b"", 404)
        links = dumps.offer_demand().replace(site.root, f"{other.base}/set")
        site.publish_capabilities("resourcelist", "changelist", links=links)
        assert "DST-S12" in run("one.txt").rules()
        assert other.log == []
        run("two.txt", any_host=True)
        assert [headers.get("authorization") for _, headers in other.log] == [None]
    dumps.publish(demand=True)
    site.source.forget()
    ((way, brought),) = ways(run("three.txt", dest.with_name("another"))).items()
    assert way == "on demand"
    assert brought > 1
    assert {headers.get("authorization") for _, headers in site.source.log} == {"Bearer secret"}


def test_of_a_dump_that_holds_other_states_nothing_is_placed(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.sync.packages.package_transfer.LEAST_PREFERRED_SHARE", 0.0)
    site = dumps.site
    octets = dumps.package(deflate=False)
    for name in list(site.files):
        site.put(name, b"newer " + name.encode())
    site.publish_list()
    site.publish_changes(100)
    dumps.publish_packages(octets)
    dumps.publish("resourcedump")
    ran = go(site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == site.files
    assert ways(ran) == {"Resource Dump": 0}


def test_who_prefers_dumps_gets_no_large_package_for_a_resource(dumps: Dumps, dest: Path) -> None:
    """What little is wanted of it is requested by itself, and the report says so."""
    site = dumps.site
    site.put("large.bin", bytes(3 << 20))
    site.publish_list()
    dumps.publish_packages(dumps.package(deflate=False))
    dumps.publish("resourcedump")
    ran = go(site.source.base, dest, prefer="dumps")
    assert (ran.status, ways(ran)) == (Exit.DONE, {"Resource Dump": COUNT + 1}), "all of it is wanted"
    (dest / "d0" / "f2.txt").unlink()
    site.source.forget()
    ran = go(site.source.base, dest, prefer="dumps", repair=True)
    assert (ran.status, tree(dest)) == (Exit.DONE, site.files)
    assert site.source.requests("/set/p0.zip") == []
    (way,) = ran.one.ways
    assert (way.way, way.taken) == ("Resource Dump", False)
    assert way.why == "1 resource is wanted of it, 14 B of 3.01 MiB: less than a tenth"


def test_a_report_names_each_way_once() -> None:
    report = SetReport(name="s", folder="")
    report.way("on demand", "few", taken=False)
    report.way("Resource Dump", "d")
    report.way("on demand", "a").packages += 1
    report.way("on demand", "b").packages += 1
    report.way("on demand", "few", taken=False)
    assert [(one.way, one.why, one.taken, one.packages) for one in report.ways] == [
        ("on demand", "a", True, 2),
        ("Resource Dump", "d", True, 0),
    ]


def test_a_length_that_no_disk_holds_stops_nothing_else(dumps: Dumps, dest: Path) -> None:
    site = dumps.site
    site.publish_list([*map(site.resource, site.files), url(site.uri("huge"), length=10**18, hash=sha(b"huge"))])
    site.source.pages["/set/resources/huge"] = Reply(b"huge")
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    ran = go(site.source.base, dest, prefer="dumps")
    assert (ran.status, tree(dest)) == (Exit.TRANSFERS_FAILED, site.files)
    assert ways(ran) == {"Resource Dump": COUNT + 1}


@pytest.mark.parametrize("wanted", [12, 11])
def test_a_way_that_was_not_needed_is_not_told(
    dumps: Dumps, dest: Path, capsys: pytest.CaptureFixture[str], wanted: int
) -> None:
    """What the packages of a dump leave is asked for one by one; of so few nobody wants to hear why not on demand."""
    dumps.publish_packages(dumps.package(list(dumps.site.files)[wanted:]))
    dumps.publish("resourcedump", demand=True)
    assert cli.run(["sync", dumps.site.source.base, str(dest)]) == Exit.DONE
    told = capsys.readouterr().out
    assert f"{COUNT + 1 - wanted} by Resource Dump" in told
    assert ("not by packages on demand" in told or " on demand: " in told) == (wanted >= 12)
    assert "only" not in told
