"""Hashing of many files: the same in processes of its own as here, whatever becomes of them, and never by a fork."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from headwater.sync.audit import hash_pool as hashing
from headwater.sync.audit.hash_pool import HashRequest, HashResult, hash_all


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[HashRequest]:
    """Fifty files in blocks of three, some with odd names, and what is no file."""
    monkeypatch.setattr(hashing, "_BATCH", 3)
    names = [b"f%d" % number for number in range(50)] + [b"two\nlines", b"\xff\xfe", b"sp ace"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name * 100)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("f1")
    names += [b"folder", b"link", b"missing"]
    return [HashRequest(name, ("sha-256", "md5") if number % 2 else ()) for number, name in enumerate(names)]


def hashed(root: Path, wanted: list[HashRequest], workers: int) -> list[HashResult]:
    return [one for block in hash_all(os.fsencode(root), wanted, workers=workers) for one in block]


def test_processes_tell_what_one_tells(tmp_path: Path, wanted: list[HashRequest]) -> None:
    here = hashed(tmp_path, wanted, 0)
    assert (
        here[1].digests
        == f"sha-256:{hashlib.sha256(b'f1' * 100).hexdigest()} md5:{hashlib.md5(b'f1' * 100).hexdigest()}"
    )
    assert [one.size for one in here[-3:]] == [None, None, None]
    assert hashed(tmp_path, wanted, 2) == here


@pytest.mark.parametrize(
    "program", ["import sys; sys.exit(1)", "import sys; sys.stdin.buffer.read(1); print('nonsense')", None]
)
def test_processes_that_die_cost_nothing(
    tmp_path: Path, wanted: list[HashRequest], monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    here = hashed(tmp_path, wanted, 0)
    if program is None:
        monkeypatch.setattr(sys, "executable", "/nowhere")
    else:
        (tmp_path / "program.py").write_text(program)
        monkeypatch.setattr(hashing, "_PROGRAM", str(tmp_path / "program.py"))
    assert hashed(tmp_path, wanted, 2) == here


def test_nothing_is_forked_while_threads_run(
    tmp_path: Path, wanted: list[HashRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that a thread holds at the moment of a fork is held in it for ever."""

    def forked() -> int:
        raise AssertionError("os.fork")

    monkeypatch.setattr(os, "fork", forked)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert len(hashed(tmp_path, wanted, 2)) == len(wanted)
    finally:
        stop.set()
        thread.join()


def test_who_stops_in_the_middle_leaves_no_process(tmp_path: Path, wanted: list[HashRequest]) -> None:
    blocks = hash_all(os.fsencode(tmp_path), wanted, workers=1)
    next(blocks)
    before = threading.active_count()
    blocks.close()
    assert threading.active_count() <= before
