"""A mirror that another tool has made becomes a copy: the base is found, what is right is adopted (DST-4.3, DST-B5)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.sync import command
from tests.support.copying import DONE, check, go, tree
from tests.support.fake_source import Site, Source
from tests.support.waiting import START

BODIES = {f"d{n % 4}/f{n}.txt": b"body %d\n" % n for n in range(40)} | {"d0/ä b.txt": "ä\n".encode()}


@pytest.fixture
def site(source: Source) -> Site:
    """Forty-one files below /set/resources/."""
    made = Site(source)
    for name, body in BODIES.items():
        made.put(name, body)
    made.put("d0/f0.txt", BODIES["d0/f0.txt"])
    del made.files["d0/ä b.txt"], source.pages["/set/resources/d0/ä b.txt"]
    made.put("d0/%C3%A4%20b.txt", BODIES["d0/ä b.txt"])
    made.changes.clear()
    return made.publish(since=made.clock)


def mirror(dest: Path, folder: str, *, stamp: bool = False, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """What another tool has left: the files below `folder`."""
    for name, body in BODIES.items():
        if name in but:
            continue
        path = dest / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        if stamp:
            os.utime(path, (START.timestamp(), START.timestamp()))
    return {os.path.normpath(f"./{folder}/{name}"): body for name, body in BODIES.items()}


def fetched(source: Source) -> list[str]:
    return [path for path in source.requests() if "/resources/" in path]


@pytest.mark.parametrize("folder", ["", "resources", "set/resources"])
def test_the_base_is_found(folder: str, source: Source, site: Site, dest: Path) -> None:
    """rsync of the folder, wget with and without some of its folders cut off."""
    want = mirror(dest, folder)
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.adopted, ran.one.octets, ran.one.held) == (DONE, 41, 0, 41)
    assert fetched(source) == []
    assert tree(dest) == want
    assert ran.one.base == f"{site.root}/resources/".removesuffix(f"{folder}/" if folder else "")
    assert ("DST-B5" in ran.rules()) == bool(folder)
    assert check(source.base, dest).verdict == "in sync"
    site.put("d3/new.txt", b"new")
    site.publish_changes(site.clock - 1)
    assert go(source.base, dest).status == DONE
    assert (dest / folder / "d3/new.txt").read_bytes() == b"new"


def test_names_that_begin_with_the_host(source: Source, site: Site, dest: Path) -> None:
    want = mirror(dest, source.base.removeprefix("http://").replace(":", "_") + "/set/resources")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.adopted, ran.one.octets, ran.one.base) == (DONE, 41, 0, "")
    assert tree(dest) == want


def test_files_one_folder_deeper_are_pointed_out(source: Source, site: Site, dest: Path) -> None:
    """As wget -r has them: below a folder that is named after host and port."""
    folder = source.base.removeprefix("http://")
    mirror(dest, f"{folder}/set/resources")
    ran = go(source.base, dest, dry_run=True)
    assert any("if the files are in a subfolder, copy into that one" in notice.message for notice in ran.notices)
    ran = go(source.base, dest / folder)
    assert (ran.status, ran.one.adopted, ran.one.octets) == (DONE, 41, 0)


def test_what_is_not_right_is_fetched(source: Source, site: Site, dest: Path) -> None:
    """Never a file whose hash or length does not fit; what is missing comes, and a stranger's file stays."""
    want = mirror(dest, "set/resources", but=("d1/f1.txt",))
    (dest / "set/resources/d2/f2.txt").write_bytes(b"bodY 2\n")
    (dest / "set/resources/d3/f3.txt").write_bytes(b"longer")
    (dest / "mine").write_bytes(b"mine")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.adopted, ran.one.created) == (DONE, 38, 41)
    assert sorted(fetched(source)) == [f"/set/resources/d{n}/f{n}.txt" for n in (1, 2, 3)]
    assert tree(dest) == want | {"mine": b"mine"}


def test_a_part_of_a_mirror(source: Source, site: Site, dest: Path) -> None:
    """A tool that was stopped has left some of it."""
    want = mirror(dest, "set/resources", but=tuple(BODIES)[4:])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.adopted) == (DONE, 4)
    assert tree(dest) == want


@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("listed", ["length and time", "time", "nothing"])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_list_without_hashes(
    stamped: bool, listed: str, trusts: bool, source: Source, site: Site, dest: Path
) -> None:
    """Length and modification time have to be listed, and both to fit; with `--trust-lastmod` the time is enough."""
    mirror(dest, "set/resources", stamp=stamped)
    left_out: dict[str, object] = {"hash": None} if listed == "length and time" else {"hash": None, "length": None}
    entries = [site.resource(name, **left_out) for name in site.files]
    if listed == "nothing":
        entries = [entry.replace("<lastmod>2026-01-01T00:00:00Z</lastmod>", "") for entry in entries]
    site.publish_list(entries)
    planned = go(source.base, dest, dry_run=True, trust_lastmod=trusts)
    ran = go(source.base, dest, trust_lastmod=trusts)
    right = stamped and (listed == "length and time" or (trusts and listed == "time"))
    assert planned.one.adopted == ran.one.adopted
    assert (ran.status, ran.one.adopted) == (DONE, 41 if right else 0)
    assert (fetched(source) == []) == right


def test_names_whose_times_differ_are_not_said_to_be_missing(source: Source, site: Site, dest: Path) -> None:
    mirror(dest, "")
    site.publish_list([site.resource(name, hash=None, length=None) for name in site.files])
    (told,) = [one.message for one in go(source.base, dest, trust_lastmod=True).notices if one.rule == "DST-B5"]
    assert "with its time where no hash is listed: none is adopted" in told


def test_a_resemblance_is_no_mirror(source: Source, site: Site, dest: Path) -> None:
    """Files of the right name and length with other content make no base."""
    mirror(dest, "set/resources")
    for path in (dest / "set").rglob("*.txt"):
        path.write_bytes(path.read_bytes()[::-1])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.adopted, ran.one.base) == (DONE, 0, f"{site.root}/resources/")


def test_files_that_nothing_names_are_told(source: Source, site: Site, dest: Path) -> None:
    dest.mkdir()
    (dest / "mine").write_bytes(b"mine")
    ran = go(source.base, dest)
    assert any("no file here has the name" in notice.message for notice in ran.notices)
    assert tree(dest) == {**BODIES, "mine": b"mine"}
    assert go(source.base, dest).rules() == set()


def test_a_link_in_a_mirror_is_not_followed(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    mirror(tmp_path / "outside", "")
    dest.mkdir()
    (dest / "set").symlink_to(tmp_path / "outside")
    (dest / "resources").symlink_to(tmp_path / "outside")
    ran = go(source.base, dest)
    assert (ran.one.adopted, ran.one.base) == (0, f"{site.root}/resources/")


def test_a_base_that_is_named_is_not_doubted(source: Source, site: Site, dest: Path) -> None:
    mirror(dest, "resources")
    ran = go(source.base, dest, base=f"{source.base}/set/")
    assert (ran.status, ran.one.adopted, ran.rules()) == (DONE, 41, set())


def test_an_audit_of_a_mirror_without_state(source: Source, site: Site, dest: Path) -> None:
    mirror(dest, "set/resources")
    audited = check(source.base, dest)
    assert (audited.verdict, audited.sets[0].same) == ("in sync", 41)


def test_a_dry_run_says_what_would_be_adopted(source: Source, site: Site, dest: Path) -> None:
    want = mirror(dest, "set/resources", but=("d1/f1.txt",))
    (dest / "set/resources/d2/f2.txt").write_bytes(b"bodY 2\n")
    before = tree(dest)
    told = CliRunner().invoke(command, ["--dry-run", "-v", source.base, str(dest)])
    assert "set: would adopt 39, would create 2, would fetch 14 B; 0 files held" in told.output
    assert "  adopt set/resources/d0/f0.txt\n" in told.output
    assert "  create set/resources/d2/f2.txt\n" in told.output
    assert tree(dest) == before
    assert fetched(source) == []
    assert len(want) == 41


def test_adopted_is_not_told_as_created(source: Source, site: Site, dest: Path) -> None:
    mirror(dest, "set/resources", but=("d1/f1.txt",))
    told = CliRunner().invoke(command, [source.base, str(dest)])
    assert told.exit_code == DONE
    assert "set: 40 adopted, 1 created; 41 files held" in told.output


def test_a_file_that_an_older_list_does_not_know_stays(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """After the state of a copy was lost: what was changed since the Resource List is asked for, and not replaced."""
    began = site.clock
    site.clock += 10
    site.put("d1/f1.txt", b"changed since")
    site.publish_changes(began)
    assert go(source.base, dest).status == DONE
    before = tree(dest)
    numbers = {name: (dest / name).stat().st_ino for name in before}
    shutil.rmtree(dest / ".headwater")
    kept, told = tmp_path / "kept", tmp_path / "changes.jsonl"
    arguments = ["--backup-dir", str(kept), "--changes", str(told), source.base, str(dest)]
    assert CliRunner().invoke(command, arguments).exit_code == DONE
    assert tree(dest) == before
    assert {name: (dest / name).stat().st_ino for name in before} == numbers
    assert {json.loads(line)["action"] for line in told.read_text().splitlines()} == {"adopted"}
    assert not kept.exists()
    assert check(source.base, dest).verdict == "in sync"
