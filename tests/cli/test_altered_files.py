"""`headwater catalog verify --files`: a source reads its own octets, and names what a disk has altered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Exit
from headwater.files import hashing
from tests.support.program import run_here


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path]:
    """A folder, and where it was published; its notes can be trusted, as its files have been at rest."""
    files, out = tmp_path / "files", tmp_path / "out"
    (files / "é").mkdir(parents=True)
    for number in range(5):
        path = files / "é" / f"{number}.txt"
        path.write_text(f"content {number}")
        os.utime(path, (1_000_000, 1_000_000))
    return files, out


def publish(files: Path, out: Path) -> None:
    done = run_here("publish", "--files", files, "--to", out, "--base-url", "https://example.org", "--settle", "0")
    assert done.returncode == 0, done.stderr


def alter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other octets below the file system: its ctime cannot be set, so the reader is told that it is as it was."""
    found = os.stat(path)
    before = found.st_ctime_ns
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    read = hashing.read_file

    def as_before(request: tuple[bytes, tuple[str, ...], bytes | None]) -> tuple[object, ...]:
        outcome, error, (size, mtime, ctime, inode), *rest = read(request)
        return outcome, error, (size, mtime, before if request[0] == bytes(path) else ctime, inode), *rest

    monkeypatch.setattr("headwater.ingest.folder.file_events.read_file", as_before)


def verify(out: Path, files: Path, *more: object) -> tuple[int, Any]:
    done = run_here("catalog", "verify", out / ".headwater", "--files", files, "--json", *more)
    return done.returncode, json.loads(done.stdout)


def test_octets_that_a_disk_has_altered_are_discrepancies(
    world: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    files, out = world
    time.sleep(0.2)  # a note is trusted of a file that was at rest
    publish(files, out)
    assert verify(out, files)[0] == Exit.DONE
    before = (out / "files" / "resourcelist.xml").read_bytes()
    alter(files / "é" / "2.txt", monkeypatch)
    status, told = verify(out, files)
    (one,) = told["sets"]
    (found,) = one["discrepancies"]
    assert (status, told["sound"], found["where"]) == (Exit.FINDINGS, False, "%C3%A9/2.txt")
    assert "the disk has altered it" in found["what"]
    assert "published is" in found["what"]
    assert (out / "files" / "resourcelist.xml").read_bytes() == before
    assert b"NOT sound" in run_here("catalog", "verify", out / ".headwater", "--files", files).stdout
    assert run_here("catalog", "verify", out / ".headwater").returncode == Exit.DONE  # without the files all is well


def test_what_was_changed_since_is_left_to_the_next_scan(world: tuple[Path, Path]) -> None:
    files, out = world
    publish(files, out)
    (files / "é" / "2.txt").write_text("another")
    status, told = verify(out, files)
    assert (status, told["sets"][0]["files"]) == (Exit.DONE, {"hashed": 4, "gone": 0, "changed": 1})


def test_files_that_are_gone_are_discrepancies(world: tuple[Path, Path]) -> None:
    files, out = world
    publish(files, out)
    (files / "é" / "3.txt").unlink()
    status, told = verify(out, files)
    (one,) = told["sets"]
    assert (status, one["files"]) == (Exit.FINDINGS, {"hashed": 4, "gone": 1, "changed": 0})
    assert [each["where"] for each in one["discrepancies"]] == ["%C3%A9/3.txt"]
    said = run_here("catalog", "verify", out / ".headwater", "--files", files).stdout.decode()
    assert "files: 4 hashed, 1 gone, 0 changed since publication; 1 discrepancy" in said


@pytest.mark.parametrize("folder", ["wrong", "changed"])
def test_where_no_file_could_be_hashed_nothing_is_sound(world: tuple[Path, Path], folder: str) -> None:
    files, out = world
    publish(files, out)
    for path in (files / "é").iterdir():
        path.write_text("another")
    status, told = verify(out, out if folder == "wrong" else files)
    assert (status, told["sound"], told["sets"][0]["files"]["hashed"]) == (Exit.FINDINGS, False, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_a_discrepancy(world: tuple[Path, Path]) -> None:
    files, out = world
    publish(files, out)
    (files / "é" / "2.txt").chmod(0)
    status, told = verify(out, files)
    assert (status, "cannot be read" in str(told)) == (Exit.FINDINGS, True)


def test_files_are_those_of_one_set(world: tuple[Path, Path]) -> None:
    files, out = world
    publish(files, out)
    more = ("--base-url", "https://example.org", "--set", "other")
    assert run_here("publish", "--files", files, "--to", out, *more).returncode == 0
    done = run_here("catalog", "verify", out / ".headwater", "--files", files)
    assert (done.returncode, b"--files is for one set" in done.stderr) == (Exit.USAGE, True)
    assert run_here("catalog", "verify", out / ".headwater", "--files", files, "--set", "other").returncode == 0
