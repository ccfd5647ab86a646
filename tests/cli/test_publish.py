"""`headwater publish` as people run it: a static tree that is right after every run, killed ones too."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.errors import Exit
from tests.ingest.test_walk import ODD_NAMES, refuse
from tests.source.replay import Tree, files
from tests.support.program import run_here
from tests.support.waiting import settle, until

BASE = "https://example.org/data"


class Bench:
    """A folder to publish and the place it is published to."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "folder"
        self.out = base / "out"
        self.folder.mkdir()
        self.tree = Tree(self.out, BASE)

    def arguments(self, *more: str) -> list[str]:
        where = ["--files", str(self.folder), "--to", str(self.out), "--base-url", BASE]
        return [sys.executable, "-m", "headwater", "publish", *where, *more]

    def run(self, *more: str, status: int = 0) -> str:
        done = run_here(*self.arguments(*more)[3:])
        assert done.returncode == status, done.stderr.decode()
        self.stderr = done.stderr.decode()
        return done.stdout.decode()

    def json(self, *more: str, status: int = 0) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("--json", *more, status=status))
        return found

    def put(self, name: str | bytes, data: bytes = b"x") -> None:
        path = os.path.join(os.fsencode(self.folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def check(self) -> None:
        """A destination ends with the folder, every listed file is there, and nothing else is."""
        assert self.tree.replayed() == self.tree.truth(self.folder)
        assert self.tree.listed() == self.tree.truth(self.folder)
        assert self.tree.resources() == files(self.folder)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_folder_becomes_a_source(bench: Bench) -> None:
    bench.put("a.txt", b"one")
    bench.put("sub/b c.pdf", b"two")
    text = bench.run()
    assert "2 resources in set files: https://example.org/data/.well-known/resourcesync" in text
    assert "created 2, updated 0, deleted 0, unchanged 0" in text
    bench.check()
    assert os.path.samefile(bench.out / "files/resources/a.txt", bench.folder / "a.txt")
    names = {str(path.relative_to(bench.out)) for path in bench.out.rglob("*") if path.is_file()}
    documents = {
        ".well-known/resourcesync",
        "robots.txt",
        "files/capabilitylist.xml",
        "files/resourcelist.xml",
        "files/changelist.xml",
        "files/changelist/open.xml",
    }
    resources = {"files/resources/a.txt", "files/resources/sub/b c.pdf"}
    state = {name for name in names if name.startswith(".headwater")}
    assert names == documents | {f"{name}.gz" for name in documents} | resources | state
    assert (bench.out / "robots.txt").read_text().count("Sitemap:") == 1


def test_a_robots_txt_of_somebody_else_is_left_alone(bench: Bench) -> None:
    """Only its owner may change it; the run says which lines it lacks (RS-DISC-05)."""
    bench.put("a.txt")
    bench.out.mkdir()
    theirs = "User-agent: *\nDisallow: /private/\n"
    (bench.out / "robots.txt").write_text(theirs)
    for _run in range(2):
        bench.run()
        assert (bench.out / "robots.txt").read_text() == theirs
        assert f"Sitemap: {BASE}/files/resourcelist.xml" in bench.stderr
        bench.put("b.txt")


def test_each_run_does_what_is_new(bench: Bench) -> None:
    for name in ("keep", "edit", "drop", "sub/file"):
        bench.put(name, name.encode())
    settle()
    bench.run()
    before = {path: path.stat().st_ino for path in bench.out.rglob("*.xml*")}
    nothing = bench.json()
    assert nothing["documents_written"] == []
    assert (nothing["unchanged"], nothing["files_read"]) == (4, 0)
    assert before == {path: path.stat().st_ino for path in bench.out.rglob("*.xml*")}
    bench.put("edit", b"edited")
    bench.put("new", b"new")
    (bench.folder / "drop").unlink()
    (bench.folder / "sub/file").unlink()
    (bench.folder / "sub").rmdir()
    bench.put("sub", b"is a file now")
    done = bench.json()
    assert {key: done[key] for key in ("created", "updated", "deleted", "unchanged", "resources")} == {
        "created": 2,
        "updated": 1,
        "deleted": 2,
        "unchanged": 1,
        "resources": 4,
    }
    assert {"files/changelist.xml", "files/changelist/open.xml", "files/resourcelist.xml"} == set(
        done["documents_written"]
    )  # type: ignore[call-overload]
    bench.check()
    assert [one.change.value for one in bench.tree.changes() if one.change] == [
        "deleted",
        "deleted",
        "updated",
        "created",
        "created",
    ]


def test_what_a_run_takes_back_is_told_once(bench: Bench) -> None:
    """A run without the options of the one before offers no dump and no archive any more."""
    bench.put("a.txt")
    told = "not offered any more"
    assert told not in bench.run("--dump", "--change-dump", "--archive")
    assert told not in bench.run("--dump", "--change-dump", "--archive")
    assert "  not offered any more, since not asked for: Change Dump, archive\n" in bench.run("--dump")
    assert bench.json()["withdrawn"] == ["Resource Dump"]
    assert told not in bench.run()
    assert "dump" not in (bench.out / "files/capabilitylist.xml").read_text()


def test_names_of_any_octets(bench: Bench) -> None:
    for name in ODD_NAMES:
        bench.put(b"d/" + name, name)
    bench.run("--hidden")
    bench.check()
    assert len(bench.tree.resources()) == len(ODD_NAMES)


def test_hidden_names_are_left_out_unless_they_are_wanted(bench: Bench) -> None:
    for name in (".env", ".git/config", "d/.hidden/x", "a", "d/b", "d/c.d"):
        bench.put(name)
    bench.run()
    assert set(bench.tree.resources()) == {"a", "d/b", "d/c.d"}
    assert "3 files and folders with names that begin with a dot are left out" in bench.stderr
    assert bench.stderr.count("HW-ING-18") == 1
    bench.run("--hidden")
    bench.check()
    assert "HW-ING-18" not in bench.stderr
    for number in range(30):
        bench.put(f".h/{number}")
    bench.run("--hidden")
    assert bench.json()["deleted"] == 33  # they go by the settings, and need no consent
    assert set(bench.tree.resources()) == {"a", "d/b", "d/c.d"}


@pytest.mark.parametrize("name", [".headwater", "d/.headwater"])
@pytest.mark.parametrize("hidden", [[], ["--hidden"]], ids=["usual", "hidden"])
def test_a_file_with_the_reserved_name_is_left_out(bench: Bench, name: str, hidden: list[str]) -> None:
    bench.put(name)
    bench.put("a")
    bench.run(*hidden)
    assert set(bench.tree.resources()) == {"a"}
    assert "HW-ING-15" in bench.stderr


def test_what_is_excluded_leaves_the_packages_at_once(bench: Bench) -> None:
    """One resource of many, which by itself would not make its page's packages due; and the old package is gone."""
    for number in range(40):
        bench.put(f"{number}/metadata.xml", b"of %d" % number)
    bench.run("--dump")
    (before,) = (bench.out / "files" / "resourcedump").glob("*.zip")
    (bench.folder / "8" / "metadata.xml").unlink()
    bench.run("--dump")
    assert before.exists()  # a deletion alone waits until enough has changed
    bench.run("--dump", "--exclude", "/7/")
    (after,) = (bench.out / "files" / "resourcedump").glob("*.zip")
    assert after != before
    with zipfile.ZipFile(after) as archive:
        assert len(archive.namelist()) == 39  # with the manifest
        assert "resources/7/metadata.xml" not in archive.namelist()
    assert b"resources/7/" not in b"".join(one.read_bytes() for one in after.parent.glob("*.xml"))
    assert after.name in (bench.out / "files" / "resourcedump.xml").read_text()
    assert "resourcedump.xml" in (bench.out / "files" / "capabilitylist.xml").read_text()


def test_what_was_shown_is_forgotten_on_request(bench: Bench) -> None:
    """Dumps and archives with what is deleted by now; then they begin anew."""
    offers = ("--dump", "--change-dump", "--archive")
    for number in range(30):
        bench.put(f"f{number:02}", b"secret of %d" % number)
    bench.run(*offers)
    bench.put("f07", b"secret, changed")
    bench.run(*offers)
    (bench.folder / "f07").unlink()
    bench.run(*offers)

    def shows() -> bool:
        for path in (bench.out / "files").rglob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                if any(b"secret, changed" in archive.read(name) for name in archive.namelist()):
                    return True
        return any(b"f07<" in one.read_bytes() for one in (bench.out / "files" / "archive").rglob("*.xml"))

    assert shows()
    bench.run(*offers, "--forget")
    assert not shows()
    assert {one.parent.name for one in (bench.out / "files").rglob("*.zip")} == {"resourcedump"}
    bench.check()
    bench.put("new")
    bench.run(*offers)
    assert {one.parent.name for one in (bench.out / "files").rglob("*.zip")} >= {"resourcedump", "changedump"}
    bench.run(*offers, "--forget", "--dry-run", status=Exit.USAGE)


@pytest.mark.skipif(sys.platform != "linux", reason="who has a file open is known on Linux alone")
def test_a_file_that_is_being_written_is_waited_for(bench: Bench) -> None:
    bench.put("a")
    with open(bench.folder / "open", "wb", 0) as file:
        file.write(b"half")
        bench.run("--settle", "60", status=Exit.TRANSFERS_FAILED)
        assert set(bench.tree.resources()) == {"a"}
        assert "HW-ING-22" in bench.stderr
        bench.run("--settle", "0.5")  # at rest for so long, it is finished
        assert (bench.out / "files" / "resources" / "open").read_bytes() == b"half"
    bench.check()


def renamed_all(bench: Bench) -> str:
    (bench.folder / "c").rename(bench.folder / "d")
    return bench.run("--dry-run", status=Exit.TRANSFERS_FAILED)


def test_a_dry_run_writes_nothing(bench: Bench) -> None:
    bench.put("a", b"12345")
    assert "would read 1 file, 5 B: 1 new" in bench.run("--dry-run")
    assert not bench.out.exists()
    bench.put("c")
    bench.run()
    bench.put("b")
    os.unlink(bench.folder / "a")
    before = files(bench.out / "files")
    found = bench.json("--dry-run")
    assert (found["created"], found["deleted"]) == (1, 1)
    assert files(bench.out / "files") == before
    assert "everything that was held" in renamed_all(bench)
    for path in bench.folder.iterdir():
        path.unlink()
    assert "suddenly empty" in bench.run("--dry-run", status=Exit.TRANSFERS_FAILED)


def test_a_dry_run_says_what_a_run_does_then(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same names, and with the same status: also where a folder cannot be read."""
    for name in ("a", "c", "closed/d"):
        bench.put(name)
    settle()
    bench.run()
    bench.put("b", b"12345")
    os.unlink(bench.folder / "a")
    refuse(monkeypatch, b"/closed", errno.EACCES)
    said = bench.json("--dry-run", status=Exit.TRANSFERS_FAILED)
    done = bench.json(status=Exit.TRANSFERS_FAILED)
    assert (said["created"], said["updated"], said["deleted"], said["octets_read"]) == (1, 0, 1, 5)
    assert said.pop("names") == {"created": ["b"], "deleted": ["a"], "updated": []}
    assert {name: done[name] for name in said} == said | {"dry_run": False}


@pytest.mark.parametrize("left_out", [0, 2])
def test_a_dry_run_counts_no_deletion_that_would_be_held_back(bench: Bench, left_out: int) -> None:
    """DST-F9: it stays; what is excluded goes nevertheless."""
    for number in range(20):
        bench.put(f"{number:02d}")
    for number in range(left_out):
        bench.put(f"{number}.tmp")
    settle()
    bench.run()
    for number in range(15):
        os.unlink(bench.folder / f"{number:02d}")
    said = bench.json("--dry-run", "--exclude", "*.tmp", status=Exit.TRANSFERS_FAILED)
    done = bench.json("--exclude", "*.tmp", status=Exit.TRANSFERS_FAILED)
    assert (said["deleted"], said["kept"], said["unchanged"]) == (left_out, 15, 5)
    assert said["held_back"] == done["held_back"]
    assert [done[name] for name in ("deleted", "kept", "unchanged")] == [left_out, 15, 5]


@pytest.mark.parametrize("mode", ["copy", "none"])
def test_how_resources_are_placed(bench: Bench, mode: str) -> None:
    bench.put("a", b"one")
    bench.put("sub/b", b"two")
    os.utime(bench.folder / "a", (1_600_000_000, 1_600_000_000))
    bench.run("--resources", mode)
    if mode == "none":
        assert not (bench.out / "files/resources").exists()
    else:
        bench.check()
        copied = bench.out / "files/resources/a"
        assert not os.path.samefile(copied, bench.folder / "a")
        assert copied.stat().st_mtime == 1_600_000_000
    bench.run()  # and now as links
    bench.check()
    assert os.path.samefile(bench.out / "files/resources/a", bench.folder / "a")
    bench.run("--resources", "copy")
    assert not os.path.samefile(bench.out / "files/resources/a", bench.folder / "a")
    bench.check()


def test_a_file_that_cannot_be_placed_is_named_by_its_place(bench: Bench) -> None:
    longest = 4_090 - len(os.fsencode(bench.folder))
    name = "/".join(["n" * 200] * (longest // 201)) + "/a.txt"
    name += "n" * (longest - len(name))
    bench.put(name)
    bench.run(status=Exit.STORE)
    assert "HW-ING-30" in bench.stderr
    assert f"where: {bench.out}/files/resources/nnn" in bench.stderr


def test_files_that_another_server_serves(bench: Bench) -> None:
    bench.put("a b")
    bench.run("--resources", "none", "--resource-base", "https://files.example.org/store/")
    assert list(bench.tree.listed()) == ["https://files.example.org/store/a%20b"]


def test_placed_resources_that_are_left_are_named(bench: Bench) -> None:
    bench.put("a")
    bench.run("--resources", "none")
    assert "HW-PUB-12" not in bench.stderr
    bench.run()
    bench.run("--resources", "none")
    assert "HW-PUB-12" in bench.stderr
    assert (bench.out / "files" / "resources" / "a").exists()


def test_a_torn_tree_is_mended(bench: Bench) -> None:
    for name in ("a", "b", "sub/c"):
        bench.put(name, name.encode())
    bench.run()
    resources = bench.out / "files/resources"
    (resources / "a").unlink()
    (resources / "b").unlink()
    (resources / "b").write_bytes(b"not ours")
    (resources / "stray").write_bytes(b"")
    (resources / ".headwater-tmp-0123").write_bytes(b"")
    (bench.out / "files/changelist.xml").unlink()
    bench.run()
    bench.check()


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_resources_that_others_remove_or_damage_are_restored(bench: Bench, mode: str) -> None:
    """Each run looks at every place: what a list names must be there (AMB-63)."""
    for name in ("a", "sub/b", "sub/Straße", "c"):
        bench.put(name, name.encode() * 10)
    bench.run("--resources", mode)
    settle()
    bench.run("--resources", mode)
    placed = bench.out / "files" / "resources"
    (placed / "a").unlink()
    (placed / "c").unlink()
    (placed / "c").write_bytes(b"x" * 10)  # the same size, another time
    bench.run("--resources", mode)
    bench.check()
    shutil.rmtree(placed)
    bench.run("--resources", mode)
    bench.check()
    bench.run("--resources", mode, "--state", str(bench.out.parent / "state"))
    shutil.rmtree(bench.out)
    bench.run("--resources", mode, "--state", str(bench.out.parent / "state"))
    bench.check()
    assert (placed / "a").samefile(bench.folder / "a") == (mode == "link")
    inodes = {path: path.stat().st_ino for path in placed.rglob("*")}
    bench.run("--resources", mode, "--state", str(bench.out.parent / "state"))
    assert {path: path.stat().st_ino for path in placed.rglob("*")} == inodes


@pytest.mark.parametrize("count", [1, 3, 11])
def test_emptying_a_folder_needs_consent_however_little_it_held(bench: Bench, count: int) -> None:
    for number in range(count):
        bench.put(f"f{number}")
    bench.run()
    for path in bench.folder.iterdir():
        path.unlink()
    for _run in range(2):
        bench.run("--max-delete", "99%", status=Exit.TRANSFERS_FAILED)
        assert len(bench.tree.resources()) == count
    bench.run("--max-delete", "100%")
    bench.check()


def test_a_quiet_run_prints_only_what_is_wrong(bench: Bench) -> None:
    """As cron wants it: what it prints is mailed to somebody."""
    for number in range(3):
        bench.put(f"f{number}")
    assert (bench.run("-q"), bench.stderr) == ("", "")
    assert bench.json("-q")["unchanged"] == 3
    for path in bench.folder.iterdir():
        path.unlink()
    told = bench.run("-q", status=Exit.TRANSFERS_FAILED)
    assert "deletions held back" in told
    bench.run("-q", "--dry-run", status=Exit.USAGE)
    assert "--quiet and --dry-run exclude each other" in bench.stderr


def test_consent_is_a_share_or_a_percentage(bench: Bench) -> None:
    for number in range(30):
        bench.put(f"f{number}")
    bench.run()
    for number in range(15):
        (bench.folder / f"f{number}").unlink()
    bench.run("--max-delete", "49%", status=Exit.TRANSFERS_FAILED)
    assert bench.json("--max-delete", "50%")["deleted"] == 15


def test_sets_that_are_in_the_tree_already_stay_named(bench: Bench) -> None:
    """One tree made by a run for each set; the order of the runs does not matter."""
    bench.put("a.txt")
    bench.run("--set", "one")
    bench.run("--set", "two")
    description = bench.out / ".well-known/resourcesync"
    both = description.read_bytes()
    for name in ("one", "two"):
        assert f"<loc>{BASE}/{name}/capabilitylist.xml</loc>".encode() in both
        assert f"Sitemap: {BASE}/{name}/resourcelist.xml" in (bench.out / "robots.txt").read_text()
    assert bench.json("--set", "one")["documents_written"] == []
    assert description.read_bytes() == both
    bench.run("--set", "one", "--base-url", "https://moved.example.org")
    assert b"two" not in description.read_bytes()
    assert "'two'" in bench.stderr
    assert "HW-PUB-11" in bench.stderr
    bench.run("--set", "two", "--base-url", "https://moved.example.org")
    assert description.read_bytes().count(b"https://moved.example.org") == 2


def test_a_tree_inside_a_folder_that_is_published_elsewhere_keeps_its_state_to_itself(bench: Bench) -> None:
    bench.put("a.txt")
    inner = bench.folder / "site"
    bench.run("--to", str(inner), "--state", str(bench.folder / "our state"))
    bench.run()
    found = bench.tree.resources()
    assert "a.txt" in found
    assert not [name for name in found if "catalog" in name or name.endswith("lock") or "our state" in name]
    assert "HW-ING-15" in bench.stderr


def test_a_notice_is_said_once(bench: Bench) -> None:
    bench.put("a.txt")
    (bench.folder / "out-of-it").symlink_to(bench.out.parent)
    said = bench.run()
    assert "HW-ING-11" not in said
    assert "files/s" not in said
    assert bench.stderr.count("HW-ING-11") == 1


@pytest.mark.parametrize("way", ["output", "state", "file"])
def test_consent_for_one_time(bench: Bench, tmp_path: Path, way: str) -> None:
    """However a set is configured, and for what is held back now; the next mass of deletions is held back again."""
    for number in range(60):
        bench.put(f"f{number:02}")
    bench.run()
    config = tmp_path / "source.toml"
    config.write_text(f'state = "{bench.out}/.headwater"\n[[set]]\nname = "files"\nfiles = "{bench.folder}"\n')
    place = {"output": bench.out, "state": bench.out / ".headwater", "file": config}[way]
    assert run_here("allow-deletions", place).stdout == b"no deletions are held back\n"
    assert run_here("allow-deletions", place, "nothing").returncode == Exit.USAGE
    for start in (0, 20):
        for number in range(start, start + 20):
            (bench.folder / f"f{number:02}").unlink()
        assert "`headwater allow-deletions` allows that once" in bench.run(status=Exit.TRANSFERS_FAILED)
        told = json.loads(run_here("allow-deletions", place, *(["files"] if start else []), "--json").stdout)
        assert [one["set"] for one in told["allowed"]] == ["files"]
        assert bench.json()["deleted"] == 20
    bench.check()


def test_a_report_of_held_back_deletions_names_the_place_that_allows_them(bench: Bench) -> None:
    for number in range(30):
        bench.put(f"f{number:02}")
    bench.run()
    for number in range(20):
        (bench.folder / f"f{number:02}").unlink()
    told = bench.run(status=Exit.TRANSFERS_FAILED)
    assert f"`headwater allow-deletions {bench.out}/.headwater`" in told
    assert ("held back 20" in told, "kept as they were" in told) == (True, False)
    assert f"`headwater allow-deletions {bench.out}`" in run_here("status", bench.out).stdout.decode()


def test_a_folder_that_is_away_is_no_matter_of_consent(bench: Bench) -> None:
    bench.put("f")
    bench.run()
    bench.folder.rename(bench.folder.with_name("away"))
    assert "allow-deletions" not in bench.run(status=Exit.TRANSFERS_FAILED)
    told = run_here("allow-deletions", f"{bench.out}/.headwater").stdout.decode()
    assert "allowed once, within an hour, but consent does not help while it is so: the folder is not there" in told


def test_runs_within_an_hour_count_together(bench: Bench) -> None:
    for number in range(100):
        bench.put(f"f{number:02}")
    bench.run()
    for start, status in ((0, Exit.DONE), (15, Exit.TRANSFERS_FAILED)):
        for number in range(start, start + 15):
            (bench.folder / f"f{number:02}").unlink()
        bench.run(status=status)
    assert "would hold deletions back" in bench.run("--dry-run", status=Exit.TRANSFERS_FAILED)
    assert len(bench.tree.resources()) == 85


@pytest.mark.parametrize("accident", ["empty", "missing", "mostly"])
def test_mass_deletions_are_held_back(bench: Bench, accident: str) -> None:
    for number in range(30):
        bench.put(f"f{number}")
    bench.run()
    before = bench.tree.replayed()
    if accident == "missing":
        bench.folder.rename(bench.folder.with_name("away"))
    else:
        for path in sorted(bench.folder.iterdir())[: 30 if accident == "empty" else 15]:
            path.unlink()
    text = bench.run(status=Exit.TRANSFERS_FAILED)
    assert "deletions held back" in text
    assert "HW-ING-21" in bench.stderr
    assert bench.tree.replayed() == before
    assert len(bench.tree.resources()) == 30
    status = run_here("status", str(bench.out), "--json")
    assert status.returncode == Exit.TRANSFERS_FAILED
    (held,) = json.loads(status.stdout)["held_back"]
    assert held["reason"] in text
    assert f"{held['set']}: deletions are held back: {held['reason']}" in run_here("status", bench.out).stdout.decode()
    if accident == "missing":
        bench.folder.with_name("away").rename(bench.folder)
        bench.run()
    else:
        assert "would hold deletions back" in bench.run("--dry-run", status=Exit.TRANSFERS_FAILED)
        bench.run("--max-delete", "1")
    bench.check()
    status = run_here("status", str(bench.out), "--json")
    assert status.returncode == Exit.DONE
    assert "held_back" not in json.loads(status.stdout)


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--set", "robots.txt"], Exit.USAGE, "HW-SITE-01"),
        (["--set", "UPPER"], Exit.USAGE, "HW-SITE-01"),
        (["--resource-base", "https://files.example.org/"], Exit.USAGE, "--resources none"),
        (["--max-delete", "120%"], Exit.USAGE, "120%"),
        (["--base-url", "ftp://example.org"], Exit.USAGE, "HW-SITE-01"),
        (["--files", "/nowhere/at/all"], Exit.USAGE, "HW-ING-02"),
        (["--exclude", "a//b"], Exit.USAGE, "HW-ING-01"),
        (["--hash", "crc32"], Exit.USAGE, "HW-OWN-04"),
        (["--state", "/proc/nowhere"], Exit.STORE, "HW-OWN-02"),
        (["--to", "/proc/nowhere", "--state", "{base}/state"], Exit.STORE, "HW-STO-11"),
    ],
)
def test_what_cannot_be_is_said(
    bench: Bench, tmp_path: Path, arguments: Sequence[str], status: Exit, code: str
) -> None:
    bench.put("a")
    bench.run(*(argument.format(base=tmp_path) for argument in arguments), status=status)
    assert code in bench.stderr
    assert "Traceback" not in bench.stderr


def test_a_folder_that_cannot_be_published_is_told_in_words(bench: Bench) -> None:
    """By the system's reason and the path, in no form of a program; so is what to do with a state of another user."""
    bench.run("--files", "/nowhere/at/all", status=Exit.USAGE)
    assert "cannot be published: No such file or directory" in bench.stderr
    assert "b'" not in bench.stderr
    bench.run("--state", "/proc/nowhere", status=Exit.STORE)
    assert "chown -R" in bench.stderr


def test_a_set_is_described_as_asked(bench: Bench) -> None:
    """The same options as of `serve`: what describes the set is linked, and the digests named are stated."""
    bench.put("a")
    told = bench.run("--describedby", "https://example.org/about", "--hash", "sha-256")
    assert told.startswith("1 resource in set files: ")
    assert "read 1 file, " in told
    assert b'href="https://example.org/about"' in (bench.out / "files" / "capabilitylist.xml").read_bytes()
    listed = (bench.out / "files" / "resourcelist.xml").read_bytes()
    assert b"sha-256:" in listed
    assert b"md5:" not in listed


def test_folders_that_overlap(bench: Bench) -> None:
    bench.put("a")
    bench.run("--to", str(bench.folder), status=Exit.USAGE)
    assert "HW-OWN-03" in bench.stderr
    inside = bench.folder / "published"
    bench.run("--to", str(inside))
    bench.run("--to", str(inside))
    assert list(Tree(inside, BASE).listed()) == [f"{BASE}/files/resources/a"]
    place = inside / "files" / "resources"
    bench.run("--to", str(inside), "--files", str(place), status=Exit.USAGE)
    assert "HW-OWN-03" in bench.stderr
    bench.run("--to", str(inside), "--files", str(place), "--resources", "none")


def test_a_second_process_is_told_to_wait(bench: Bench) -> None:
    bench.put("a")
    bench.run()
    from headwater.source.leadership import StateLock

    lock = StateLock(bench.out / ".headwater")
    try:
        bench.run(status=Exit.STORE)
        assert f"process {os.getpid()} is using this state folder" in bench.stderr
        assert "HW-OWN-01" in bench.stderr
    finally:
        lock.release()
    bench.run()


def test_an_interrupted_run_says_so_and_the_next_goes_on(bench: Bench) -> None:
    for number in range(1_000):
        bench.put(f"{number % 30}/{number}", b"%d" % number)
    process = subprocess.Popen(bench.arguments(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    catalog = bench.out / ".headwater" / "catalog.sqlite"
    until(lambda: catalog.exists() or process.poll() is not None, pause=0.005)
    process.send_signal(signal.SIGINT)
    _out, error = process.communicate(timeout=60)
    assert process.returncode in (Exit.INTERRUPTED, Exit.DONE)
    assert b"Traceback" not in error
    if process.returncode == Exit.INTERRUPTED:
        assert b"do: Run the same command again: it continues where this one stopped." in error
    bench.run()
    bench.check()


KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""Kills; set the variable for a longer siege."""


def test_killed_at_any_moment_the_next_run_ends_right(bench: Bench) -> None:
    """Never a lost change, a half-written document, or a list that names a missing file for good."""
    chance = random.Random(42)
    for number in range(700):
        bench.put(f"{number % 7}/{number:04}", b"%d" % number)
    killed = 0
    took = 0.4
    while killed < KILLS:
        began = time.monotonic()
        process = subprocess.Popen(bench.arguments("--max-delete", "1"), stdout=subprocess.DEVNULL)
        try:
            process.wait(took * chance.uniform(0.2, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            took *= 1.05  # so that the whole run is reached, however busy the machine is
        else:
            took = time.monotonic() - began
        for _change in range(5):
            number = chance.randrange(700)
            path = bench.folder / f"{number % 7}/{number:04}"
            if chance.random() < 0.3 and path.exists():
                path.unlink()
            else:
                bench.put(f"{number % 7}/{number:04}", b"%d again %d" % (number, killed))
        if killed % 4 == 3:
            _finish(bench)
    _finish(bench)


def _finish(bench: Bench) -> None:
    bench.run("--max-delete", "1")
    bench.check()
    assert not list(bench.out.rglob(".headwater-tmp-*"))
    moments = [one.datetime for one in bench.tree.changes() if one.datetime]
    assert moments == sorted(set(moments))
