"""`--backup-dir`: what a run replaces or deletes is kept, on any file system, whatever ends the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.sync.copy.file_tree import Backup, DestinationUnusable, FileTree
from tests.support.copying import DONE, STORE, USAGE, go, tree
from tests.support.fake_source import Site, Source


@pytest.fixture(params=[None, errno.EXDEV, errno.EPERM], ids=["links", "another file system", "no hard links"])
def linking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """How the backup can be made: by hard links, or only by copies."""
    if request.param is not None:

        def refused(*_: object, **__: object) -> None:
            raise OSError(request.param, os.strerror(request.param))

        monkeypatch.setattr(os, "link", refused)
    return request.param  # type: ignore[no-any-return]


def kept(folder: Path) -> dict[str, bytes]:
    """What lies in the backups of all runs, without the name of the run."""
    return {"/".join(name.split("/")[1:]): body for name, body in tree(folder).items()}


def change_all(site: Site) -> None:
    site.put("f0.txt", b"new")
    site.drop("f1.txt")
    site.clock += 10
    site.publish_changes(10)


def test_what_is_replaced_or_deleted_is_kept(
    linking: int | None, source: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    site.put("deep/er/f9.txt", b"old")
    site.publish(since=10)
    unconfirmed = tmp_path / "aside"
    first = go(source.base, dest, backup_dir=str(unconfirmed))
    assert first.report is not None
    assert (first.status, first.report.backup, first.report.backed_up) == (DONE, None, 0)
    assert not unconfirmed.exists()
    times = os.stat(dest / "f0.txt").st_mtime_ns
    site.put("deep/er/f9.txt", b"newer")
    change_all(site)
    ran = go(source.base, dest, backup_dir=str(unconfirmed))
    assert ran.report is not None
    assert (ran.status, ran.report.backed_up) == (DONE, 3)
    assert kept(unconfirmed) == {"deep/er/f9.txt": b"old", "f0.txt": b"body 0\n", "f1.txt": b"body 1\n"}
    assert ran.report.backup is not None
    assert Path(ran.report.backup).parent == unconfirmed
    assert os.stat(Path(ran.report.backup) / "f0.txt").st_mtime_ns == times
    assert tree(dest)["f0.txt"] == b"new"
    assert not list(unconfirmed.rglob(".headwater*"))


def test_a_dry_run_keeps_nothing(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    go(source.base, dest)
    change_all(site)
    go(source.base, dest, backup_dir=str(tmp_path / "aside"), dry_run=True)
    assert not (tmp_path / "aside").exists()


def test_a_file_that_is_not_ours_is_kept_too(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    dest.mkdir()
    (dest / "f0.txt").write_bytes(b"mine")
    go(source.base, dest, backup_dir=str(tmp_path / "aside"))
    assert kept(tmp_path / "aside") == {"f0.txt": b"mine"}


@pytest.mark.parametrize("inside", ["", "old", ".headwater/old", "link"])
def test_a_folder_in_the_copy_is_refused(inside: str, source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    go(source.base, dest)
    (tmp_path / "link").symlink_to(dest)
    change_all(site)
    place = tmp_path / "link" / "old" if inside == "link" else dest / inside
    before = tree(dest)
    ran = go(source.base, dest, backup_dir=str(place))
    assert ran.error is not None
    assert (ran.status, ran.error.code) == (USAGE, "HW-SYN-22")
    assert tree(dest) == before


def test_what_cannot_be_kept_is_not_replaced(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    go(source.base, dest)
    before = tree(dest)
    (tmp_path / "aside").write_text("a file")
    change_all(site)
    ran = go(source.base, dest, backup_dir=str(tmp_path / "aside"))
    assert (ran.status, ran.error is not None) == (STORE, True)
    assert tree(dest) == before
    assert go(source.base, dest, backup_dir=str(tmp_path / "other")).status == DONE


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["link", "mkdir", "open", "fsync", "rename", "unlink"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_at_any_step_nothing_is_lost(
    step: str, nth: int, linking: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done last: the file is at its place, or whole in the backup, or both."""
    dest, unconfirmed, temp = tmp_path / "copy", tmp_path / "aside", tmp_path / "tmp"
    (dest / "a").mkdir(parents=True)
    temp.mkdir()
    (dest / "a" / "gone").write_bytes(b"old one")
    (dest / "a" / "replaced").write_bytes(b"old two")
    left = [nth]
    real = getattr(os, step)

    def cut(*arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise Killed
        return real(*arguments, **more)

    backup = Backup(unconfirmed, "run", dest)
    with FileTree(dest, temp, backup) as copy:
        copy.write("new", b"new", None)
        monkeypatch.setattr(os, step, cut)
        try:
            copy.place("new", b"a/replaced")
            copy.remove(b"a/gone")
        except Killed:
            pass
        monkeypatch.setattr(os, step, real)
    for name, old in (("a/gone", b"old one"), ("a/replaced", b"old two")):
        places = [place / name for place in (dest, unconfirmed / "run")]
        assert old in [place.read_bytes() for place in places if place.exists()]
        in_backup = unconfirmed / "run" / name
        assert not in_backup.exists() or in_backup.read_bytes() == old  # never half


def test_nothing_that_was_kept_is_overwritten(linking: int | None, tmp_path: Path) -> None:
    dest, temp = tmp_path / "copy", tmp_path / "tmp"
    dest.mkdir()
    temp.mkdir()
    backup = Backup(tmp_path / "aside", "run", dest)
    with FileTree(dest, temp, backup) as copy:
        for number in range(4):
            copy.write(f"t{number}", b"%d" % number, None)
            copy.place(f"t{number}", b"a")
        copy.remove(b"a")
        copy.write("t", b"below", None)
        copy.place("t", b"a/b")
        with pytest.raises(DestinationUnusable):  # a folder where a file was kept: another run has a backup of its own
            copy.remove(b"a/b")
        assert (dest / "a" / "b").read_bytes() == b"below"
        long = b"x" * 255
        for number in range(2):
            copy.write(f"l{number}", b"%d" % number, None)
            copy.place(f"l{number}", long)
        copy.remove(long)
    names = {"a": b"0", "a~2": b"1", "a~3": b"2", "a~4": b"3"}
    assert kept(tmp_path / "aside") == names | {"x" * 255: b"0", "x" * 253 + "~2": b"1"}
    assert backup.count == 6


def test_no_symbolic_link_in_the_backup_is_followed(tmp_path: Path) -> None:
    dest, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    (dest / "a").mkdir(parents=True)
    elsewhere.mkdir()
    (dest / "a" / "b").write_bytes(b"old")
    (tmp_path / "aside" / "run").mkdir(parents=True)
    (tmp_path / "aside" / "run" / "a").symlink_to(elsewhere)
    with FileTree(dest, None, Backup(tmp_path / "aside", "run", dest)) as copy, pytest.raises(DestinationUnusable):
        copy.remove(b"a/b")
    assert list(elsewhere.iterdir()) == []
    assert (dest / "a" / "b").read_bytes() == b"old"
