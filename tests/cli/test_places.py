"""Folders that are somebody's own: a copy, a state and an output are kept apart, and each is recognised."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.cli.serve_options import default_state
from headwater.errors import Exit
from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.store import HubStore
from tests.support.program import run_here
from tests.support.serving import Face, face

BASE = "https://example.org/data"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    return folder


def publish(files: Path, *more: object, status: int = Exit.DONE) -> str:
    done = run_here("publish", "--files", files, "--base-url", BASE, *more)
    assert done.returncode == status, done.stderr.decode()
    return done.stderr.decode()


@pytest.fixture
def tree(files: Path, tmp_path: Path) -> Path:
    publish(files, "--to", tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture
def elsewhere(files: Path, tmp_path: Path) -> Path:
    """A tree whose state is not in it."""
    publish(files, "--to", tmp_path / "site2", "--state", tmp_path / "state")
    return tmp_path / "site2"


TREE, STATE = "output of `headwater publish`", "state of a Headwater command"
NOT_FREE = {
    "site": TREE,
    "site/files/resources": TREE,
    "site/new/copy": TREE,
    "site/.headwater/copy": STATE,
    "site2/copy": TREE,
    "state": STATE,
    "state/copy": STATE,
    "link/copy": STATE,
}


def test_no_copy_is_made_where_a_source_keeps_things(tree: Path, elsewhere: Path, tmp_path: Path) -> None:
    """Nothing is asked of the source, and nothing is written."""
    (tmp_path / "link").symlink_to("state")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for dest, said in NOT_FREE.items():
        store = ["--store", str(tmp_path / dest)]
        for to, more in ((dest, []), (dest, ["--dry-run"]), ("copy", store)):
            done = run_here("sync", "http://127.0.0.1:1/", tmp_path / to, *more)
            assert (done.returncode, "HW-SYN-28" in done.stderr.decode()) == (Exit.USAGE, True), dest
            assert said in done.stderr.decode(), dest
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_an_output_is_not_published_as_files(tree: Path, elsewhere: Path, tmp_path: Path) -> None:
    for one in (tree, elsewhere):
        assert "output of `headwater publish`" in publish(one, "--to", tmp_path / "third", status=Exit.USAGE)
    said = publish(tmp_path, "--to", tmp_path.with_name("all"))
    assert "HW-ING-15" in said
    assert os.listdir(tmp_path.with_name("all") / "files" / "resources") == ["files"]


def sync(source: Face, dest: Path) -> None:
    done = run_here("sync", source.url, dest)
    assert done.returncode == Exit.DONE, done.stderr.decode()


def test_a_copy_inside_the_published_folder_does_not_grow(files: Path, tmp_path: Path) -> None:
    """Published too, it would be copied into itself by the next run, and so on."""
    with face(files, tmp_path / "serving") as source:
        for _ in range(2):
            sync(source, files / "sub" / "copy")
            source.source.run_once()
        assert source.source.catalog.state("files").count == 1
    assert {path.name for path in (files / "sub" / "copy").iterdir()} == {"a.txt", ".headwater"}


def test_a_copy_of_another_source_is_published_as_any_folder(files: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.txt").write_text("b")
    with face(tmp_path / "other", tmp_path / "other state") as other:
        sync(other, files / "copy")
    with face(files, tmp_path / "serving") as source:
        assert source.source.catalog.state("files").count == 2


def test_an_output_is_no_copy(files: Path, tmp_path: Path) -> None:
    with face(files, tmp_path / "serving") as source:
        sync(source, tmp_path / "copy")
    assert "HW-OWN-03" in publish(files, "--to", tmp_path / "copy", status=Exit.USAGE)
    assert not (tmp_path / "copy" / "robots.txt").exists()


def test_status_says_what_is_at_a_place(
    tree: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of `publish`, a folder that `serve` publishes, a hub; and what is none of these, and why."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    served = default_state(files, "files")
    publish(files, "--to", tmp_path / "third", "--state", served)
    HubStore(tmp_path, HubLimits()).close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "new.toml").write_text('state = "new"\n[[set]]\nfiles = "files"\n')
    expected = [
        (tree, Exit.DONE, f"{tree}"),
        (files, Exit.DONE, f"{served}"),
        (tmp_path, Exit.DONE, "0 subscriptions"),
        (tmp_path / "nothing", Exit.USAGE, "there is nothing at this path"),
        (tmp_path / "empty", Exit.USAGE, "neither a copy nor the state of a source"),
        (tmp_path / "new.toml", Exit.USAGE, "no catalog yet"),
        ("http://127.0.0.1:1/", Exit.USAGE, "headwater explore"),
    ]
    for place, status, said in expected:
        done = run_here("status", place)
        assert done.returncode == status, place
        assert said in done.stdout.decode() + done.stderr.decode(), place


def test_a_copy_is_no_place_for_state_and_is_told_as_a_copy(tree: Path, files: Path, tmp_path: Path) -> None:
    """`serve --state` in a copy would keep `sync` out of it; commands for catalogs say what they were given."""
    with face(files, tmp_path / "serving") as source:
        sync(source, tmp_path / "copy")
    before = sorted(os.listdir(tmp_path / "copy"))
    assert "HW-OWN-02" in publish(files, "--to", tmp_path / "o", "--state", tmp_path / "copy", status=Exit.STORE)
    assert sorted(os.listdir(tmp_path / "copy")) == before
    done = run_here("catalog", "verify", tmp_path / "copy")
    assert (done.returncode, b"is a copy, and not the state" in done.stderr) == (Exit.USAGE, True)
    assert run_here("versions", tree).returncode == Exit.DONE


def refuse(error: int) -> Callable[..., None]:
    """A function that the system refuses."""

    def refusing(*_arguments: object) -> None:
        raise OSError(error, os.strerror(error))

    return refusing


def test_a_full_disk_and_a_low_port_are_told(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status is what is asked for on a full disk; who may not listen is told which ports are free for all."""
    with face(files, tmp_path / "serving") as source:
        sync(source, tmp_path / "copy")
    nothing = SimpleNamespace(f_blocks=9, f_bavail=0, f_frsize=4096, f_flag=0)
    monkeypatch.setattr("os.statvfs", lambda _folder: nothing)
    with monkeypatch.context() as patch:
        patch.setattr("headwater.sync.copy.destination_folder.DestinationFolder.open", refuse(errno.ENOSPC))
        done = run_here("status", tmp_path / "copy")
    assert (done.returncode, b"1 file" in done.stdout, b"no room" in done.stdout) == (Exit.STORE, True, True)
    with monkeypatch.context() as patch:
        patch.setattr("headwater.source.leadership.mark_folder", refuse(errno.ENOSPC))
        assert "Free space" in publish(files, "--to", tmp_path / "out", status=Exit.STORE)
    monkeypatch.setattr("socket.socket.bind", refuse(errno.EACCES))
    done = run_here("serve", "--files", files, "--state", tmp_path / "other", "--port", "80")
    assert (done.returncode, b"from 1024 on" in done.stderr) == (Exit.STORE, True)
