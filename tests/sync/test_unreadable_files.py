"""Files of a copy that cannot be read: an audit says so, and a repair puts verified content in their place."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from headwater.files.nofollow import open_unlinked
from headwater.sync.copy.file_tree import FileTree
from tests.support.copying import DONE, FAILED, FINDINGS, UNDETERMINED, check, go, tree
from tests.support.fake_source import Reply, Site, Source
from tests.support.program import run_here

ERRORS = pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE], ids=["EACCES", "EIO", "ESTALE"])


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, error: int) -> None:
    """Let neither an audit nor a repair open the file of this name."""

    def refusing(path: bytes, flags: int) -> int:
        if path.endswith(b"/" + name.encode()):
            raise OSError(error, os.strerror(error), path)
        return open_unlinked(path, flags)

    def refusing_tree(self: FileTree, path: bytes) -> int:
        if path == name.encode():
            raise OSError(error, os.strerror(error), path)
        return opened(self, path)

    opened = FileTree.open
    monkeypatch.setattr("headwater.files.hashing.open_unlinked", refusing)
    monkeypatch.setattr(FileTree, "open", refusing_tree)


@ERRORS
def test_a_file_that_cannot_be_read_is_not_called_missing(
    error: int, source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(source.base, dest)
    refuse(monkeypatch, "f1.txt", error)
    report = check(source.base, dest)
    one = report.sets[0]
    assert (report.verdict, report.exit_status) == ("undetermined", UNDETERMINED)
    assert (one.same, one.missing, one.unreadable) == (4, 0, 1)
    assert one.reason == "it is uncertain whether all is as listed: 1 unreadable"
    found = one.findings[0]
    assert (found.verdict, found.path, found.reason) == ("unreadable", "f1.txt", os.strerror(error))


def test_what_is_found_beside_an_unreadable_file_is_certain(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(source.base, dest)
    (dest / "f0.txt").unlink()
    refuse(monkeypatch, "f1.txt", errno.EIO)
    report = check(source.base, dest)
    assert (report.verdict, report.exit_status) == ("not in sync", FINDINGS)
    assert (report.sets[0].missing, report.sets[0].unreadable) == (1, 1)


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ENAMETOOLONG, errno.ENXIO])
def test_where_no_file_can_be_it_is_missing(
    error: int, source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(source.base, dest)
    refuse(monkeypatch, "f1.txt", error)
    assert (check(source.base, dest).sets[0].missing, check(source.base, dest).sets[0].unreadable) == (1, 0)


def test_a_folder_that_cannot_be_listed_leaves_doubt(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be files in it that the source does not list."""
    site.put("deep/f.txt", b"deep\n")
    site.publish(since=10.0)
    go(source.base, dest)
    real = os.scandir

    def refusing(path: bytes | int) -> object:
        if isinstance(path, bytes) and path.endswith(b"/deep"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr("headwater.sync.audit.comparison.os.scandir", refusing)
    report = check(source.base, dest)
    assert report.verdict == "undetermined"
    assert report.sets[0].same == 6
    assert [(one.verdict, one.uri, one.path) for one in report.sets[0].findings] == [("unreadable", None, "deep/")]


def test_the_command_tells_what_to_do(source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(source.base, dest)
    refuse(monkeypatch, "f1.txt", errno.EACCES)
    done = run_here("audit", source.base, dest)
    told = done.stdout.decode()
    assert done.returncode == UNDETERMINED
    assert "set: undetermined; 4 same, 0 missing, 0 different, 0 extra, 1 unreadable" in told
    assert "  unreadable: f1.txt (Permission denied)" in told
    assert "see to the permissions of the copy" in told
    one = json.loads(run_here("audit", source.base, dest, "--json").stdout)["sets"][0]
    assert (one["missing"], one["unreadable"]) == (0, 1)
    assert one["findings"][0]["reason"] == "Permission denied"


def test_a_repair_replaces_it_only_by_verified_content(
    source: Source, site: Site, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(source.base, dest)
    with monkeypatch.context() as refused:
        refuse(refused, "f1.txt", errno.EACCES)
        before = (dest / "f1.txt").stat().st_ino
        held = source.pages["/set/resources/f1.txt"]
        source.pages["/set/resources/f1.txt"] = Reply(status=404)
        assert go(source.base, dest, repair=True).status == FAILED
        assert (dest / "f1.txt").stat().st_ino == before, "nothing better has come"
        source.pages["/set/resources/f1.txt"] = held
        assert go(source.base, dest, repair=True, backup_dir=str(tmp_path / "kept")).status == DONE
        assert (dest / "f1.txt").stat().st_ino != before
        assert next((tmp_path / "kept").rglob("f1.txt")).stat().st_ino == before
    assert check(source.base, dest).verdict == "in sync"
    assert tree(dest)["f1.txt"] == b"body 1\n"
