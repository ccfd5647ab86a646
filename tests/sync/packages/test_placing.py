"""The process that places members: it ends with its owner, and places nothing that does not verify."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.deflate import crc32
from headwater.storage.lock import LockHeld, lock_exclusive
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.transfer.placing_process import DAMAGED, LEFT, PLACED, UNUSABLE, MemberFile, place_files
from tests.support.waiting import until

_OWNER = """
import hashlib, itertools, os, sys
from pathlib import Path
from headwater.deflate import crc32
from headwater.processes.pool import ProcessPool, WorkerProgram
from headwater.storage.lock import lock_exclusive
from headwater.sync.transfer.placing_process import placer
base = Path(sys.argv[1])
settings = ((os.fsencode(base / "copy"), os.fsencode(base / "temp"), 0),)
lock = lock_exclusive(base / "lock")
program = WorkerProgram(function=placer, settings=settings, libraries=True, descriptors=(lock,))

def blocks():
    for number in itertools.count(1):
        octets = b"%d" % number * 1000
        digest = hashlib.sha256(octets).hexdigest()
        file = f"{number}-member", b"%d" % number, None, octets, len(octets), crc32(octets), False, "sha-256", digest
        yield number, [file]

for _ in ProcessPool(program, lambda files: [], processes=1, ahead=32).answers(blocks()):
    print("placed", flush=True)
"""


def test_no_other_run_begins_before_it_has_ended(tmp_path: Path) -> None:
    """Its owner is killed: soon the lock is free, and from then on nothing is placed."""
    for name in ("copy", "temp"):
        (tmp_path / name).mkdir()
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline()
        owner.kill()

    def free() -> int | None:
        try:
            return lock_exclusive(tmp_path / "lock")
        except LockHeld:
            return None

    until(lambda: free() is not None, what="the lock")
    placed = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "copy").iterdir()}
    assert placed
    assert all((tmp_path / "copy" / name).read_bytes() == name.encode() * 1000 for name in placed)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "copy").iterdir()} == placed


def member(name: str, octets: bytes, *, crc: int | None = None, digest: str | None = None) -> MemberFile:
    wanted = hashlib.sha256(octets).hexdigest() if digest is None else digest
    said = len(octets), crc32(octets) if crc is None else crc, False
    return f"{name}-member", name.encode(), 10**9, octets, *said, "sha-256", wanted


def test_only_what_verifies_gets_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copy" / "folder" / "file").mkdir(parents=True)
    (tmp_path / "temp").mkdir()
    files = [
        member("right", b"right"),
        member("damaged", b"damaged", crc=1),
        member("other", b"other", digest="0" * 64),
        member("folder", b"in the way"),
    ]
    with FileTree(tmp_path / "copy", tmp_path / "temp") as tree:
        assert [outcome[0] for outcome in place_files(tree, files)] == [PLACED, DAMAGED, LEFT, LEFT]
        assert [path.name for path in (tmp_path / "copy").iterdir() if path.is_file()] == ["right"]
        assert list((tmp_path / "temp").iterdir()) == []

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("headwater.sync.copy.file_tree.write_sparse", full)
        assert [outcome[0] for outcome in place_files(tree, files[:1])] == [UNUSABLE]
