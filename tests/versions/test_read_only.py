"""Versions are listed and verified by who must not write there, beside a source that goes on."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headwater.cli import run
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.versions.retention import damaged
from headwater.versions.store import VersionStore
from tests.support.kept_versions import damage, keep_octets, opened

EVER = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
CONTENTS = [b"%d" % number * 100 for number in range(30)]


def digest(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder with versions, which every user may read."""
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    with opened(base / "versions") as store:
        keep_octets(store, *CONTENTS, b"large" * 50_000)
    yield base
    for folder in (base, *(one for one in base.rglob("*") if one.is_dir())):
        folder.chmod(0o700)
    shutil.rmtree(base)


def lock(state: Path) -> None:
    for one in (state, *state.rglob("*")):
        one.chmod(0o555 if one.is_dir() else 0o444)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in folder.rglob("*")}


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user whom permission bits bind, with a folder for temporary files: that of the user before may be private."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    if os.getuid() == 0:
        os.seteuid(65534)
    yield
    os.seteuid(os.getuid())
    shutil.rmtree(folder)


def test_who_may_only_read_lists_and_verifies(
    state: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    damage(state / "versions", CONTENTS[3])
    lock(state)
    run(["versions", str(state), "--verify"])  # what is imported for it may be nothing that such a user can read
    capsys.readouterr()
    before = tree(state)
    request.getfixturevalue("nobody")
    assert run(["versions", str(state), "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["count"] == 31
    assert run(["versions", str(state), "--verify", "--json"]) == 1
    assert msgspec.json.decode(capsys.readouterr().out)["damaged"] == [digest(CONTENTS[3])]
    assert run(["versions", str(state)]) == 0
    assert tree(state) == before


def test_where_there_are_no_versions_nothing_is_made(state: Path, tmp_path: Path) -> None:
    """Nor in a folder that is no state of a source, which is told."""
    assert run(["versions", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    shutil.rmtree(state / "versions")
    mark_folder(state, STATE_MARK)
    assert run(["versions", str(state)]) == 0
    assert not (state / "versions").exists()


def test_versions_that_are_removed_meanwhile_are_no_damage(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.versions.store._ROWS", 5)
    folder = state / "versions"
    with closing(VersionStore(folder, is_read_only=True)) as reader, opened(folder) as store:
        listed = reader.versions()
        first = next(listed).digest
        assert len(store.delete([digest(one) for one in CONTENTS[:20]], EVER)) == 20
        store.reclaim()
        assert reader.open(first) is None
        assert {one.digest for one in listed} > {digest(one) for one in CONTENTS[20:]}
        assert list(damaged(reader)) == []
