"""A copy on a file system that takes names for one which differ by case or Unicode form, and names that are reserved.

Every case runs on such a file system where one can be mounted (NTFS by `lowntfs-3g`), and everywhere on an imitation,
which finds the entry of a folder that a name folds to.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headwater.files.folder_marks import folded, is_reserved, leads_inside
from headwater.sync.copy.file_names import escaped_path
from headwater.sync.copy.file_tree import FileTree, PathOccupied
from tests.support.copying import DONE, STORE, check, go, tree
from tests.support.fake_source import Site, Source
from tests.support.names_of_files import uri_of

NFC, NFD = "\u00e9.txt", "e\u0301.txt"


class _FoldingOs:
    """`os` as the file tree uses it, on a file system that folds the names in open folders."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _spelled(self, name: Any, folder: int | None) -> Any:
        if folder is None:
            return name
        listed = {folded(os.fsencode(one)): one for one in os.listdir(folder)}
        return listed.get(folded(os.fsencode(name)), name)

    def open(self, name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        return os.open(self._spelled(name, dir_fd), flags, mode, dir_fd=dir_fd)

    def rename(self, name: Any, other: Any, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        names = self._spelled(name, src_dir_fd), self._spelled(other, dst_dir_fd)
        os.rename(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def _in_folder(call: str) -> Callable[..., Any]:
    def made(self: _FoldingOs, name: Any, *given: Any, dir_fd: int | None = None, **more: Any) -> Any:
        return getattr(os, call)(self._spelled(name, dir_fd), *given, dir_fd=dir_fd, **more)

    return made


for _call in ("stat", "unlink", "mkdir", "rmdir", "utime"):
    setattr(_FoldingOs, _call, _in_folder(_call))


@pytest.fixture(params=["imitated", "NTFS"])
def folding(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which names fold, for a copy."""
    if request.param == "imitated":
        monkeypatch.setattr("headwater.sync.copy.file_tree.os", _FoldingOs())
        yield tmp_path / "copy"
        return
    with mounted(tmp_path, "ignore_case") as mount:
        yield mount / "copy"


class mounted:
    """An empty NTFS by these options of `lowntfs-3g`; skips the test where it cannot be had."""

    def __init__(self, folder: Path, options: str) -> None:
        self._image, self._mount, self._options = folder / "image", folder / "mount", options

    def __enter__(self) -> Path:
        programs = [shutil.which(one, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for one in ("mkntfs", "lowntfs-3g")]
        make, mount = programs
        if make is None or mount is None or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            pytest.skip("no file system that folds names: needs ntfs-3g, /dev/fuse and root")
        with self._image.open("wb") as file:
            file.truncate(32 << 20)
        self._mount.mkdir()
        subprocess.run([make, "-F", "-q", self._image], check=True, capture_output=True)
        made = subprocess.run([mount, "-o", self._options, self._image, self._mount], check=False, capture_output=True)
        if made.returncode:
            pytest.skip(f"no file system that folds names: {made.stderr.decode(errors='replace').strip()[:200]}")
        return self._mount

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", self._mount], check=True)


def held(dest: Path) -> dict[str, bytes]:
    """The files that the state has, each by the name of its resource, read by its path as the file system takes it."""
    with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as database:
        rows = database.execute("SELECT uri, path FROM resources WHERE path IS NOT NULL").fetchall()
    found = {folded(name.encode()): body for name, body in tree(dest).items()}
    assert len(found) == len(tree(dest))
    return {uri.partition("/resources/")[2]: found[folded(path)] for uri, path in rows}


RENAMED = [
    ({"Report.TXT": "report.txt"}, False),
    ({"Dir/1": "dir/1", "Dir/2": "dir/2"}, False),
    ({"Dir/A": "dir/a"}, True),
    ({quote(NFC): quote(NFD)}, False),
]


@pytest.mark.parametrize("by_list", [False, True])
@pytest.mark.parametrize(("names", "changed"), RENAMED)
def test_a_rename_that_changes_only_case_removes_nothing(
    names: dict[str, str], changed: bool, by_list: bool, folding: Path, source: Source, site: Site
) -> None:
    """The name that goes and the name that comes are one file."""
    for number, name in enumerate(names):
        site.put(name, b"precious %d\n" % number)
    site.publish(since=site.clock)
    assert go(source.base, folding).status == DONE
    since = site.clock
    for old, new in names.items():
        body = site.files[old]
        site.drop(old)
        site.put(new, body + b"changed\n" if changed else body)
    site.publish(since=since)
    ran = go(source.base, folding, baseline=by_list)
    assert (ran.status, ran.one.updated) == (DONE, 0)
    assert held(folding) == {quote(os.fsencode(name), safe="/%"): body for name, body in site.files.items()}
    assert go(source.base, folding).status == DONE
    assert held(folding) == site.files
    if folding.parent.name == "mount":
        assert check(source.base, folding).verdict == "in sync"
    backup = go(source.base, folding, baseline=True)
    assert (backup.status, backup.one.created, backup.one.deleted) == (DONE, 0, 0)


def test_of_two_names_that_are_one_the_later_is_escaped(folding: Path, source: Source, site: Site) -> None:
    """Each has its file; what is deleted takes no other one along."""
    for name in ("A.txt", "a.txt", "a.TXT", "x?Q=1", "x?q=1", "D/b", "d/b"):
        site.put(name, name.encode())
    since = site.clock
    site.publish(since=since)
    ran = go(source.base, folding)
    assert (ran.status, ran.one.created) == (DONE, 12)
    assert held(folding) == site.files
    assert go(source.base, folding, repair=True).one.updated == 0
    for gone in ("A.txt", "d/b", "x?Q=1"):
        site.drop(gone)
    site.put("B.txt", b"later")
    site.put("b.txt", b"and later")
    site.publish_changes(since)
    assert go(source.base, folding, max_delete=0.5).status == DONE
    assert held(folding) == site.files
    if folding.parent.name == "mount":
        assert check(source.base, folding).verdict == "in sync"


def test_a_held_back_deletion_keeps_its_name(folding: Path, source: Source, site: Site) -> None:
    """What may not be deleted is held: the new spelling is escaped, and both are there."""
    site.put("Report.TXT", b"precious")
    since = site.clock
    site.publish(since=since)
    assert go(source.base, folding).status == DONE
    site.drop("Report.TXT")
    site.put("report.txt", b"precious")
    site.publish_changes(since)
    go(source.base, folding, max_delete=0)
    assert held(folding) == {**site.files, "Report.TXT": b"precious"}


def test_a_copy_from_elsewhere_gets_a_file_for_each_name(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made where both names were free, moved to where one is lost: a repair gives each its file, for good."""
    site.put("A.txt", b"upper")
    site.put("a.txt", b"lower")
    site.publish(since=site.clock)
    assert go(source.base, dest).status == DONE
    (dest / "a.txt").unlink()
    monkeypatch.setattr("headwater.sync.copy.file_tree.os", _FoldingOs())
    assert go(source.base, dest, repair=True).status == DONE
    assert held(dest) == site.files
    again = go(source.base, dest, repair=True)
    assert (again.status, again.one.updated, held(dest)) == (DONE, 0, site.files)


def test_what_lies_in_its_place_keeps_it_whichever_came_first(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fetched again never takes the file of another one, though it was held before that."""
    site.put("a.txt", b"lower")
    site.publish(since=site.clock)
    assert go(source.base, dest).status == DONE
    site.put("A.txt", b"upper")
    site.publish(since=site.clock)
    assert go(source.base, dest).status == DONE
    (dest / "a.txt").unlink()
    monkeypatch.setattr("headwater.sync.copy.file_tree.os", _FoldingOs())
    assert go(source.base, dest, repair=True).status == DONE
    assert held(dest) == site.files


RESERVED = [
    ".headwater", ".HEADWATER", ".Headwater", ".head\u200cwater", "\ufeff.headwater", ".head\u00adwater", "．headwater",
    ".ℎeadwater", ".headwater.", ".headwater ", ".headwater. .", "headwa~1", "HEADWA~2", "he12Af~1",
    ".headwater::$INDEX_ALLOCATION", ".head\u2064water", ".headwate\u202er", ".\U000e0041headwater",
]  # fmt: skip
FREE = [".headwater-state", "headwater", ".headwaters", "headwa", "HEAD~1", "a~1", "he~1", ".git", "é", "..headwater"]


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_in_any_spelling(name: str, source: Source, site: Site, dest: Path) -> None:
    """At every level, on every file system."""
    octets = name.encode()
    assert is_reserved(octets)
    assert not leads_inside(b"a/" + octets + b"/b")
    assert not leads_inside(octets)
    for path in (f"{quote(name)}/state.sqlite", f"d/{quote(name)}/x", f"d/{quote(name)}"):
        site.put(path, b"hostile")
    site.publish(since=site.clock)
    assert go(source.base, dest).status == DONE
    written = tree(dest)
    assert sorted(one for one in written if one.startswith("%uri/")) == sorted(
        os.fsdecode(escaped_path(site.uri(one))) for one in site.files if not one.startswith("f")
    )
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("name", FREE)
def test_other_names_are_free(name: str) -> None:
    assert not is_reserved(name.encode())
    assert leads_inside(f"a/{name}/b".encode())


@pytest.mark.parametrize(
    "path", ["", ".", "..", "/x", "../x", "a/../../x", "a//x", "a/./x", ".Headwater/x", "a/..", "a/"]
)
def test_the_file_tree_refuses(path: str, tmp_path: Path) -> None:
    """Also what comes from a state; nothing outside is read, written, stamped or removed."""
    outside, root, temp = tmp_path / "x", tmp_path / "copy", tmp_path / "copy" / ".headwater"
    (root / "a").mkdir(parents=True)
    temp.mkdir()
    (temp / "x").write_bytes(b"state")
    outside.write_bytes(b"precious")
    octets = path.encode()
    with FileTree(root, temp) as files:
        files.write("new", b"hostile", None)
        with pytest.raises(PathOccupied):
            files.place("new", octets)
        assert files.stat(octets) is None
        with pytest.raises(OSError, match="leads out"):
            files.open(octets)
        files.touch(octets, 0)
        with pytest.raises(Exception, match="leads out"):
            files.remove(octets)
    assert outside.read_bytes() == b"precious"
    assert (outside.stat().st_mtime, (temp / "x").read_bytes()) != (0, b"")


def test_a_state_that_leads_out(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """A state may have been made by anybody; what it names outside stays as it is."""
    (tmp_path / "precious").write_bytes(b"precious")
    assert go(source.base, dest).status == DONE
    with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as database, database:
        for name, path in (("f0.txt", b"../precious"), ("f1.txt", b"../written")):
            database.execute("UPDATE resources SET path = ? WHERE uri = ?", (path, site.uri(name)))
    site.drop("f0.txt")
    site.put("f1.txt", b"of a stranger")
    site.publish_changes(site.clock - 1.5)
    assert {one.path for one in check(source.base, dest).sets[0].findings} >= {"../precious", "../written"}
    site.publish_changes(10)
    ran = go(source.base, dest, max_delete=1.0)
    assert ran.status == STORE
    assert "leads out of the copy" in str(ran.error)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("name", ["sub/.headwater/q", "headwa~1"])
def test_a_name_held_before_it_was_reserved(name: str, source: Source, site: Site, dest: Path) -> None:
    """What an earlier version placed there is left; its resource goes, or gets the escaped name, and no run fails."""
    for gone in (True, False):
        site.put(quote(name), b"earlier")
        site.put("other", b"deleted with it")
        site.publish(since=site.clock)
        copy = dest / str(gone)
        assert go(source.base, copy).status == DONE
        with closing(sqlite3.connect(copy / ".headwater" / "state.sqlite")) as database, database:
            (path,) = database.execute("SELECT path FROM resources WHERE uri = ?", (site.uri(quote(name)),)).fetchone()
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / os.fsdecode(path)).rename(copy / name)
            database.execute("UPDATE resources SET path = ? WHERE path = ?", (name.encode(), path))
        since = site.clock
        site.drop("other")
        if gone:
            site.drop(quote(name))
        else:
            site.put(quote(name), b"later")
        site.publish_changes(since)
        ran = go(source.base, copy, max_delete=1.0)
        assert (ran.status, ran.one.deleted) == (DONE, 2 if gone else 1)
        assert ([n.where for n in ran.notices if "reserved name" in n.message] == [name]) == gone
        assert (copy / name).read_bytes() == b"earlier"
        assert not (copy / "other").exists()
        files = {one: body for one, body in tree(copy).items() if not one.endswith(name)}
        assert sorted(files.values()) == sorted(site.files.values())
        assert go(source.base, copy).status == DONE


def test_names_that_the_file_system_refuses_are_escaped(source: Source, site: Site, tmp_path: Path) -> None:
    """Among them one with a dot at its end, which no escaped name has either."""
    for name in ("dot.", "dots..", "d./x", "CON", "a%3Ab", "ok"):
        site.put(name, name.encode())
    site.publish(since=site.clock)
    with mounted(tmp_path, "windows_names") as mount:
        ran = go(source.base, mount / "copy")
        assert (ran.status, ran.one.created, ran.one.failed) == (DONE, 11, 0)
        assert {body for name, body in tree(mount / "copy").items() if name.startswith("%uri/")} == {
            name.encode() for name in site.files if name != "ok" and not name.startswith("f")
        }
        assert check(source.base, mount / "copy").verdict == "in sync"


def test_escaped_names_that_fold_apart() -> None:
    """A name in capitals has them encoded, and can be read back."""
    one, other = "http://h.example/A?B%2Fc~", "http://h.example/a?b%2Fc~"
    assert folded(escaped_path(one, folds=True)) != folded(escaped_path(other, folds=True))
    assert uri_of(escaped_path(one, folds=True), "") == one
    assert unicodedata.normalize("NFC", NFD) == NFC
