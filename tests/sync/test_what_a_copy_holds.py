"""What a caller is told of each resource: by `each`, in batches, in the file of `--changes`; and what a copy holds."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path

import pytest

import headwater
from headwater.cli import run
from headwater.sync.options import SyncOptions
from tests.support.copying import DONE, FAILED, SOURCE, USAGE, check, go, tree
from tests.support.failing import failing
from tests.support.fake_source import Reply, Site, Source, ln, sha
from tests.support.program import run_here
from tests.support.waiting import START

Said = pytest.CaptureFixture[str]
LINK = ln("describedby", "http://h.example/record")


def digest(body: bytes) -> str:
    return f"sha-256:{hashlib.sha256(body).hexdigest()}"


@pytest.fixture
def linked(site: Site) -> Site:
    site.publish_list([site.resource(name, type="text/plain", links=LINK) for name in site.files])
    return site


def test_each_resource_is_told_with_what_the_source_states(source: Source, linked: Site, dest: Path) -> None:
    told: list[headwater.Done] = []
    source.pages["/set/resources/f4.txt"] = Reply(b"", 404)
    headwater.sync_folder(source.base, dest, each=told.append)
    one = next(done for done in told if done.path == "f0.txt")
    assert (one.action, one.hash, one.length, one.type) == ("created", digest(b"body 0\n"), 7, "text/plain")
    assert (one.lastmod, [link.rel for link in one.links]) == (START, ["describedby"])
    assert (one.set_name, one.source) == ("set", f"{source.base}/")
    failed = next(done for done in told if done.action == "failed")
    assert (failed.path, failed.hash, failed.type) == ("f4.txt", sha(b"body 4\n"), "text/plain")
    linked.drop("f1.txt")
    linked.publish_changes(10.0)
    told.clear()
    headwater.sync_folder(source.base, dest, each=told.append)
    gone = next(done for done in told if done.action == "deleted")
    assert (gone.path, gone.hash, gone.length, gone.type) == ("f1.txt", digest(b"body 1\n"), 7, "text/plain")
    assert [link.href for link in gone.links] == ["http://h.example/record"]


def test_lines_of_changes_say_the_same(source: Source, linked: Site, dest: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "changes.jsonl", tmp_path / "changes.csv"
    assert run(["sync", "-q", "--changes", str(lines), source.base, str(dest)]) == DONE
    assert run(["sync", "-q", "--changes", str(table), source.base, str(dest.with_name("other"))]) == DONE
    said = next(one for line in lines.read_text().splitlines() if (one := json.loads(line))["path"] == "f0.txt")
    with table.open(newline="") as file:
        row = next(one for one in csv.DictReader(file) if one["path"] == "f0.txt")
    assert (said["hash"], said["length"], said["type"]) == (digest(b"body 0\n"), 7, "text/plain")
    assert (row["hash"], row["length"], row["type"], row["source"]) == (
        said["hash"], "7", "text/plain", said["source"],
    )  # fmt: skip
    assert dt.datetime.fromisoformat(said["lastmod"]) == dt.datetime.fromisoformat(row["lastmod"]) == START
    assert json.loads(row["links"])[0]["href"] == said["links"][0]["href"] == "http://h.example/record"


def test_batches_are_told_together(source: Source, site: Site, dest: Path) -> None:
    told: list[list[str]] = []
    report = headwater.sync_folder(
        source.base, dest, each_batch=lambda batch: told.append([one.path for one in batch]), batch_size=2
    )
    assert (report.exit_status, [len(one) for one in told]) == (DONE, [2, 2, 1])
    assert sorted(one for batch in told for one in batch) == sorted(site.files)
    for name in ("f0.txt", "f1.txt", "f2.txt"):
        site.drop(name)
    site.publish_changes(10.0)
    told.clear()
    headwater.sync_folder(
        source.base, dest, SyncOptions(max_delete=1), each_batch=lambda b: told.append([one.action for one in b])
    )
    assert told == [["deleted"] * 3]


def test_a_batch_that_is_refused_is_told_again(source: Source, site: Site, dest: Path) -> None:
    """Nothing of it counts as told, and what it raises comes out unchanged."""
    told: list[str] = []

    def refuse(batch: list[headwater.Done]) -> None:
        if told:
            raise KeyError("the index is away")
        told.extend(one.path for one in batch)

    with pytest.raises(KeyError, match="the index is away"):
        headwater.sync_folder(source.base, dest, each_batch=refuse, batch_size=2)
    assert len(told) == 2
    headwater.sync_folder(source.base, dest, each_batch=lambda batch: told.extend(one.path for one in batch))
    assert set(told) == set(site.files)
    for name in ("f0.txt", "f1.txt"):
        site.drop(name)
    site.publish_changes(10.0)
    for _ in range(2):
        with pytest.raises(KeyError):
            headwater.sync_folder(source.base, dest, SyncOptions(max_delete=1), each_batch=refuse)
    gone: list[str] = []
    headwater.sync_folder(
        source.base, dest, SyncOptions(max_delete=1), each_batch=lambda b: gone.extend(o.path for o in b)
    )
    assert sorted(gone) == ["f0.txt", "f1.txt"]


def test_batches_and_single_resources_exclude_each_other(source: Source, dest: Path) -> None:
    for wrong in ({"each": print}, {"batch_size": 0}):
        with failing("HW-USE-01", match="each_batch"):
            headwater.sync_folder(source.base, dest, each_batch=print, **wrong)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/capabilitylist.xml", "127.0.0.1_{port}"),
        ("/.well-known/capabilitylist.xml", "127.0.0.1_{port}"),
        ("/museum/capabilitylist.xml", "museum"),
        ("/photos.xml", "photos"),
    ],
)
def test_a_set_has_a_telling_name(path: str, name: str, source: Source, site: Site, dest: Path) -> None:
    source.pages[path] = source.pages["/set/capabilitylist.xml"]
    port = source.base.rpartition(":")[2]
    assert go(f"{source.base}{path}", dest).one.name == name.format(port=port)


def test_what_a_copy_holds_can_be_read(source: Source, linked: Site, dest: Path) -> None:
    source.pages["/set/resources/f4.txt"] = Reply(b"", 404)
    assert go(source.base, dest).status == FAILED
    records = {one.path: one for one in headwater.copy_records(dest)}
    assert sorted(records) == ["f0.txt", "f1.txt", "f2.txt", "f3.txt"]
    one = records["f0.txt"]
    assert (one.uri, one.hash, one.length, one.type) == (linked.uri("f0.txt"), digest(b"body 0\n"), 7, "text/plain")
    assert (one.lastmod, one.links[0].rel, one.set_name) == (START, "describedby", "set")
    assert (one.source, one.copy) == (f"{source.base}/", str(dest))
    with failing("HW-SYN-20"):
        next(headwater.copy_records(dest.parent / "none"))


def test_records_are_written_as_lines(source: Source, linked: Site, dest: Path) -> None:
    go(source.base, dest)
    other = dest.with_name("=other")
    go(source.base, other)
    lines = [json.loads(line) for line in run_here("status", dest, other, "--records", "json").stdout.splitlines()]
    assert (len(lines), {one["copy"] for one in lines}) == (10, {str(dest), str(other)})
    assert {one["set"] for one in lines} == {"set"}
    rows = list(csv.DictReader(run_here("status", dest, "--records", "csv").stdout.decode().splitlines()))
    assert [row["path"] for row in rows] == sorted(linked.files)
    assert rows[0].keys() == lines[0].keys()
    assert json.loads(rows[0]["links"])[0]["rel"] == "describedby"
    assert run_here("status", dest, "--records", "csv", "--json").returncode == USAGE


def test_a_copy_that_was_moved_goes_on(source: Source, site: Site, dest: Path) -> None:
    """No file is transferred again, and none is taken for an altered one."""
    go(source.base, dest)
    moved = shutil.copytree(dest, dest.with_name("moved"))
    shutil.rmtree(dest)
    source.forget()
    for baseline in (False, True):
        assert (go(source.base, moved, baseline=baseline).status, tree(moved)) == (DONE, dict(site.files))
    assert [path for path in source.requests() if "/resources/" in path] == []
    assert check(source.base, moved).verdict == "in sync"


def test_several_places_are_one_table(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """A line for each and their sum, the gravest exit status of all; a place that is none is told among them."""
    good, bad, dead = tmp_path / "good", tmp_path / "bad", tmp_path / "dead"
    go(source.base, good)
    source.pages["/set/resources/f4.txt"] = Reply(b"", 404)
    go(source.base, bad)
    assert run_here("status", good, good).returncode == DONE
    told = run_here("status", good, bad)
    head, *rows, total = told.stdout.decode().splitlines()
    assert (told.returncode, head.split()[:2], len(rows)) == (FAILED, ["place", "resources"], 2)
    assert total == "2 copies: 9 files, 63 B; 1 place not well"
    assert "nothing failed" in rows[0]
    assert "1 resource failed" in rows[1]
    assert run(["sync", "-q", "http://127.0.0.1:9/", str(dead)]) == SOURCE
    said = json.loads(run_here("status", "--json", good, bad, dead, tmp_path / "none").stdout)
    assert [one["exit_status"] for one in said["places"]] == [DONE, FAILED, SOURCE, USAGE]
    assert said["exit_status"] == SOURCE
    assert said["places"][3]["error"]["what"] == "there is nothing at this path"
    assert said["places"][0]["files"] == 5
    assert said["total"] == {"copies": 3, "files": 9, "octets": 63, "not_well": 3}
    alone = run_here("status", tmp_path)
    assert alone.returncode == USAGE
    assert f"Name a copy in it, as {bad}".encode() in alone.stderr
