"""`headwater why`: by which rule a source does not list a resource, in which documents it does; what a copy knows."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Exit
from headwater.spec.uris import quote_path
from tests.interop.programs import web_server
from tests.support.fake_source import Reply, Site, Source
from tests.support.program import run_here
from tests.support.waiting import settle

BASE = "http://source.example/x"
PREFIX = f"{BASE}/files/resources/"


def headwater(*args: object, status: int | None = 0) -> str:
    done = run_here(*args)
    assert status in (None, done.returncode), (done.stdout, done.stderr.decode())
    return done.stdout.decode()


def why(place: Path, asked: object, status: int = Exit.DONE) -> dict[str, Any]:
    """What is told of the only set that may have it."""
    told = json.loads(headwater("why", place, asked, "--json", status=status))
    assert told["found"] is (status == Exit.DONE)
    (one,) = told["sets"]
    found: dict[str, Any] = one
    return found


def kinds(found: dict[str, Any]) -> list[str]:
    return [one["rule"] for one in found["reasons"]]


class Folder:
    """A configured source of one folder, published without a server."""

    def __init__(self, base: Path) -> None:
        self.files, self.config, self.state = base / "files", base / "source.toml", base / "state"
        self.files.mkdir()
        self.configure("")

    def configure(self, text: str) -> None:
        head = f'state = "state"\nbase_url = "{BASE}"\n'
        self.config.write_text(f'{head}[[set]]\nfiles = "files"\nsettle_seconds = 0\n{text}\n')

    def put(self, name: str, data: str = "x") -> Path:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data)
        return path

    def publish(self, status: int = Exit.DONE) -> None:
        settle()  # what is read too soon after a change is read once more
        headwater("publish", self.config, "-q", status=status)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def linked_out(folder: Folder) -> None:
    (folder.files / "link").symlink_to("/etc/passwd")


def behind_a_link(folder: Folder) -> None:
    (folder.files / "up").symlink_to(folder.files.parent)


def looped(folder: Folder) -> None:
    (folder.files / "loop").symlink_to("loop")


def special(folder: Folder) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(folder.files / "s"))


def own(folder: Folder) -> None:
    folder.put("state/other")
    (folder.files / "state" / ".headwater-state").touch()


LEFT_OUT: list[tuple[str, str, Callable[[Folder], object], str, str]] = [
    ("a pattern", "drafts/a.txt", lambda one: one.put("drafts/a.txt"), "excluded", "the exclude pattern drafts/ "),
    ("the pattern that matches", "b.tmp", lambda one: one.put("b.tmp"), "excluded", "the exclude pattern *.tmp "),
    ("no include", "c.bin", lambda one: one.put("c.bin"), "excluded", "no include pattern matches it: *.txt"),
    ("hidden", "d.txt/.e.txt", lambda one: one.put("d.txt/.e.txt"), "excluded", "the name .e.txt begins with a dot"),
    ("a hidden folder", ".git/e.txt", lambda one: one.put(".git/e.txt"), "excluded", "the name .git begins with a dot"),
    ("a link out", "link", linked_out, "HW-ING-11", "a link that leads out of the folder is not followed"),
    ("a folder link out", "up/source.txt", behind_a_link, "HW-ING-11", "a link that leads out of the folder"),
    ("a link to itself", "loop", looped, "HW-ING-12", "a link that leads to itself"),
    ("a socket", "s", special, "HW-ING-13", "a pipe, socket or device"),
    ("a state", "state/other", own, "HW-ING-15", "a folder with the state"),
    ("no file", "none.txt", lambda _one: None, "missing", "none.txt is not there"),
    ("no folder", "no/such/f.txt", lambda _one: None, "missing", "no is not there"),
]


@pytest.mark.parametrize("case", [one[1:] for one in LEFT_OUT], ids=[one[0] for one in LEFT_OUT])
def test_a_rule_leaves_it_out(
    folder: Folder,
    case: tuple[str, Callable[[Folder], object], str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked by URI, and by path: absolute, relative to the set's folder, relative to the present one."""
    name, make, kind, words = case
    monkeypatch.chdir(folder.files.parent)
    if kind == "excluded":
        folder.configure('include = ["*.txt", "*.tmp"]\nexclude = ["drafts/", "*.tmp"]')
    folder.put("seen.txt")
    make(folder)
    folder.publish()
    for asked in (PREFIX + quote_path(name.encode()), folder.files / name, name, f"files/{name}"):
        found = why(folder.config, asked, Exit.FINDINGS)
        assert (found["uri"], found["found"]) == (PREFIX + quote_path(name.encode()), False)
        assert kinds(found) == [kind]
        assert words in found["reasons"][0]["message"]
        assert found["documents"] == []
    assert f"because: {words}" in headwater("why", folder.config, name, status=Exit.FINDINGS)


def test_before_the_first_publication_the_rules_hold_too(folder: Folder) -> None:
    folder.put("a.txt")
    headwater("publish", folder.config, "-q")
    folder.configure('name = "other"\nexclude = ["b.txt"]')
    folder.put("b.txt")
    assert kinds(why(folder.config, folder.files / "a.txt", Exit.FINDINGS)) == ["not published"]
    assert kinds(why(folder.config, folder.files / "b.txt", Exit.FINDINGS)) == ["excluded"]


def test_what_is_listed_names_its_documents_packages_and_past_states(folder: Folder) -> None:
    folder.configure("dump = true\nchange_dump = true\nversions = true")
    path = folder.put("é/a b.txt")
    folder.publish()
    first = why(folder.config, path)
    assert (first["change"], first["reasons"], first["versions"]) == (None, [], 1)
    assert first["documents"] == [f"{BASE}/files/resourcelist.xml"]
    folder.put("é/a b.txt", "changed")
    assert kinds(why(folder.config, path)) == ["changed"]
    folder.publish()
    folder.put("new.txt")
    folder.publish()
    found = why(folder.config, path)
    assert found["since"] == first["since"]
    assert (found["change"], found["reasons"], found["versions"]) == ("updated", [], 2)
    assert found["documents"] == [f"{BASE}/files/resourcelist.xml", f"{BASE}/files/changelist.xml"]
    for package in found["packages"]:
        assert (folder.state / "documents" / package.removeprefix(f"{BASE}/")).is_file()
    assert [one.split("/")[-2] for one in found["packages"]] == ["resourcedump", "changedump"]
    new = why(folder.config, "new.txt")
    assert (new["change"], new["since"]) == ("created", new["changed_at"])
    assert new["documents"] == [f"{BASE}/files/changelist.xml"]  # its page was not rendered again yet


def test_what_was_listed_once_is_told_with_the_rule_of_now(folder: Folder) -> None:
    path = folder.put("report.txt")
    folder.put("other.txt")
    folder.publish()
    folder.configure('exclude = ["report*"]')
    assert kinds(why(folder.config, path)) == ["excluded"]  # still listed: the next publication deletes it
    folder.publish()
    found = why(folder.config, path, Exit.FINDINGS)
    assert (kinds(found), found["change"]) == (["excluded"], "deleted")
    assert kinds(why(folder.state, PREFIX + "report.txt", Exit.FINDINGS)) == ["deleted"]


def test_what_is_not_as_it_is_published_is_told(folder: Folder) -> None:
    for number in range(20):
        folder.put(f"{number}.txt")
    folder.publish()
    text = folder.config.read_text()
    folder.config.write_text(text.replace("settle_seconds = 0", "settle_seconds = 60"))
    with (folder.files / "1.txt").open("a") as file:
        file.write("more")
        file.flush()
        assert kinds(why(folder.config, "1.txt")) == ["HW-ING-22"]
    folder.config.write_text(text)
    for number in range(2, 20):
        (folder.files / f"{number}.txt").unlink()
    folder.publish(Exit.TRANSFERS_FAILED)
    held = why(folder.config, "5.txt")
    assert kinds(held) == ["HW-ING-21"]
    assert "headwater allow-deletions" in held["reasons"][0]["message"]
    (folder.files / "0.txt").unlink()
    os.rename(folder.files, folder.files.with_name("away"))
    gone = why(folder.config, folder.files / "1.txt")
    assert (kinds(gone), str(folder.files) in gone["reasons"][0]["message"]) == (["missing"], True)


def test_held_back_deletions_are_counted_without_those_that_are_done(folder: Folder) -> None:
    for number in range(52):
        folder.put(f"{number:02}.txt")
    folder.publish()
    for start, status in ((0, Exit.DONE), (5, Exit.TRANSFERS_FAILED)):
        for number in range(start, start + 5 + start):
            (folder.files / f"{number:02}.txt").unlink()
        settle()
        told = headwater("publish", folder.config, status=status)
    reason = "10 of 47 are gone, and stay listed; 5 more were deleted within the hour."
    assert reason in told
    assert "--max-delete 29% in every run" in told
    assert "unchanged 37, held back 10" in told
    (one,) = why(folder.config, "07.txt")["reasons"]
    assert reason in one["message"]
    assert "29%" in one["message"]


def test_what_cannot_be_read_is_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("closed/a.txt")
    folder.put("b.txt")
    folder.publish()
    path = folder.put("closed/a.txt", "changed")

    def refusing(path: bytes, flags: int) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("headwater.files.hashing.open_unlinked", refusing)
    found = why(folder.config, path)
    assert kinds(found) == ["HW-ING-20"]
    assert os.strerror(errno.EACCES) in found["reasons"][0]["message"]


def test_several_sets_are_told_apart(folder: Folder) -> None:
    folder.config.write_text(
        f'state = "state"\nbase_url = "{BASE}"\n[[set]]\nname = "text"\nfiles = "files"\ninclude = ["*.txt"]\n'
        '[[set]]\nname = "all"\nfiles = "files"\n[[set]]\nname = "far"\nfiles = "far"\n'
    )
    folder.put("../far/x.txt")
    folder.put("a.pdf")
    folder.publish()
    told = json.loads(headwater("why", folder.config, folder.files / "a.pdf", "--json"))
    assert {one["set"]: kinds(one) for one in told["sets"]} == {"text": ["excluded"], "all": []}
    assert [one["set"] for one in json.loads(headwater("why", folder.config, "x.txt", "--json"))["sets"]] == ["far"]
    nothing = headwater("why", folder.config, "http://elsewhere.example/a", status=Exit.FINDINGS)
    assert f"no set has it, and it is in no set's folder: {folder.files}" in nothing
    assert why(folder.config, "all/a.pdf")["set"] == "all"
    (folder.files / "dangling").symlink_to("nothing")
    told = json.loads(headwater("why", folder.config, folder.files / "dangling", "--json", status=Exit.FINDINGS))
    assert "dangling is a link whose target is missing" in json.dumps(told)
    assert json.loads(headwater("why", folder.config, "nowhere", "--json", status=Exit.FINDINGS))["sets"] == []


def test_a_static_tree_knows_what_is_listed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    headwater("publish", "--files", tmp_path / "files", "--to", tmp_path / "out", "--base-url", BASE)
    found = why(tmp_path / "out", PREFIX + "a.txt")
    assert found["documents"] == [f"{BASE}/files/resourcelist.xml"]
    assert kinds(why(tmp_path / "out", "b.txt", Exit.FINDINGS)) == ["unknown"]
    assert "configuration" in headwater("why", tmp_path / "out", "b.txt", status=Exit.FINDINGS)


def test_a_push_set_tells_what_was_announced(folder: Folder) -> None:
    folder.config.write_text(f'state = "state"\nbase_url = "{BASE}"\n[[set]]\nfeed = "events"\nname = "files"\n')
    events = folder.config.with_name("events")
    events.write_text('{"path":"a"}\n{"path":"b"}\n{"path":"b","change":"deleted"}\n')
    headwater("ingest", "events", events, "--config", folder.config, "--set", "files")
    found = why(folder.config, PREFIX + "a")
    assert (found["change"], kinds(found)) == ("created", ["not published"])
    assert kinds(why(folder.config, PREFIX + "b", Exit.FINDINGS)) == ["deleted"]
    assert kinds(why(folder.config, PREFIX + "c", Exit.FINDINGS)) == ["unknown"]


def test_bad_questions_are_refused(folder: Folder) -> None:
    folder.put("sub/a.txt")
    headwater("why", folder.config, "a", status=Exit.USAGE)  # no catalog yet
    folder.publish()
    assert "a folder" in why(folder.config, folder.files / "sub", Exit.FINDINGS)["reasons"][0]["message"]
    headwater("why", folder.files, "a", status=Exit.USAGE)
    headwater("why", "http://source.example/", "a", status=Exit.USAGE)


# Copies


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as running:
        yield running


def test_a_copy_tells_what_is_here_and_what_is_not(source: Source, tmp_path: Path) -> None:
    site, dest = Site(source), tmp_path / "copy"
    for name in ("a.txt", "b.txt", "draft.tmp", "sub/c.txt"):
        site.put(name, name.encode())
    site.publish()
    source.pages["/set/resources/b.txt"] = Reply(b"no", status=403)
    headwater("sync", source.base, dest, "--exclude", "*.tmp", status=Exit.TRANSFERS_FAILED)
    here = why(dest, site.uri("sub/c.txt"))
    assert (here["path"], here["found"], kinds(here)) == ("sub/c.txt", True, [])
    assert here["hash"].startswith("sha-256:")
    assert here["documents"] == [f"{site.root}/resourcelist.xml", f"{site.root}/changelist.xml"]
    assert why(dest, dest / "sub" / "c.txt") == why(dest, "sub/c.txt") == here
    for asked, kind, words in (
        (site.uri("b.txt"), "failed", "403"),
        (site.uri("draft.tmp"), "filtered", "the exclude pattern *.tmp leaves it out"),
        (dest / "draft.tmp", "filtered", "*.tmp"),
        (site.uri("never.txt"), "not listed", "no list"),
        ("http://elsewhere.example/a.txt", "refused", "--allow-host"),
    ):
        found = why(dest, asked, Exit.FINDINGS)
        assert kinds(found) == [kind]
        assert words in found["reasons"][0]["message"]
    site.drop("a.txt")
    site.publish()
    headwater("sync", source.base, dest, "--exclude", "*.tmp", "--max-delete", "0", status=None)
    assert kinds(why(dest, site.uri("a.txt"))) == ["held back"]
    headwater("sync", source.base, dest, "--exclude", "*.tmp", "--max-delete", "1", status=None)
    assert kinds(why(dest, site.uri("a.txt"), Exit.FINDINGS)) == ["deleted"]
    (dest / "sub" / "c.txt").unlink()
    assert kinds(why(dest, "sub/c.txt")) == ["lost"]
    assert "  but: " in headwater("why", dest, site.uri("sub/c.txt"))


FILTERS = [
    (["--include-type", "text/html"], "--include-type leaves it out, unless"),
    (["--exclude-type", "text/*"], "--exclude-type leaves it out, unless"),
    (["--include-link", "license"], "--include-link leaves it out, unless"),
    (["--max-length", "0"], "--max-length leaves it out, unless"),
    (["--since", "2030-01-01"], "--since leaves it out, unless"),
    (["--since", "2000-01-01", "--max-length", "0"], "--max-length or --since leaves it out, unless"),
    (
        ["--since", "2000-01-01", "--max-length", "0", "--only-described"],
        "it is listed, but --max-length leaves it out",
    ),
    (["--since", "2000-01-01", "--only-described"], "it is listed, but the choice by links"),
]


@pytest.mark.parametrize(("options", "words"), FILTERS)
def test_a_copy_tells_which_filter_leaves_a_resource_out(
    options: list[str], words: str, source: Source, tmp_path: Path
) -> None:
    """By what was stated, where the copy remembers that; else by which filters it has."""
    site = Site(source)
    site.put("a.txt", b"a", change=False)
    site.publish().publish_list([site.resource("a.txt", type="text/plain")])
    headwater("sync", source.base, tmp_path / "copy", *options, status=None)
    found = why(tmp_path / "copy", site.uri("a.txt"), Exit.FINDINGS)
    assert (kinds(found), found["reasons"][0]["message"][: len(words)]) == (["filtered"], words)


def test_a_copy_of_several_sets_answers_for_the_right_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    out, dest = tmp_path / "out", tmp_path / "copy"
    with web_server(out) as url:
        for name in ("one", "two"):
            headwater("publish", "--files", tmp_path / name, "--to", out, "--base-url", url, "--set", name)
        headwater("sync", url, dest)
    assert why(dest, f"{url}/two/resources/a.txt")["path"] == "two/a.txt"
    assert why(dest, "one/a.txt")["uri"] == f"{url}/one/resources/a.txt"
    assert why(dest, dest / "one" / "b.txt", Exit.FINDINGS)["set"] == "one"
    assert "no set has it" in headwater("why", dest, f"{url}/three/a.txt", status=Exit.FINDINGS)
