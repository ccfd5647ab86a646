"""Hints: where something changed, soon, or at least that something did."""

import ctypes
import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.ingest.folder import watch as watch_module
from headwater.ingest.folder.watch import EVERYTHING, CannotWatch, FolderWatch, hints
from tests.support.waiting import DEADLINE, until


class Watching:
    """Collects hints in a thread."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.unwatched = 0
        self.found: set[bytes] = set()
        self.fault: CannotWatch | None = None
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(DEADLINE)

    def _run(self) -> None:
        try:
            for found in hints(self.root, self._stop.is_set, self._count):
                self.found |= found
                self._begun.set()
        except CannotWatch as fault:
            self.fault = fault
            self._begun.set()

    def _count(self, unwatched: int) -> None:
        self.unwatched = unwatched

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, what=f"a hint, {self.fault},", pause=0.01)

    def saw(self, *paths: bytes) -> None:
        self.until(lambda: self.found >= set(paths))
        self.found.clear()

    def put(self, path: bytes) -> bool:
        """Write a file, until that is hinted: the watch of its folder may not have begun when it was hinted."""
        put(self, path)
        time.sleep(0.05)
        return path in self.found

    def end(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    one = Watching(os.fsencode(tmp_path / "root"))
    yield one
    one.end()


def put(watching: Watching, path: bytes) -> None:
    with open(os.path.join(watching.root, path), "wb") as file:
        file.write(b"x")


def test_files_and_folders_are_hinted_whatever_happens_to_them(watching: Watching) -> None:
    put(watching, b"sub/file")
    watching.saw(b"sub/file")
    put(watching, b"new\nline %")
    watching.saw(b"new\nline %")
    os.rename(watching.root + b"/sub", watching.root + b"/moved")
    watching.saw(b"sub", b"moved")
    put(watching, b"moved/file")
    watching.saw(b"moved/file")
    os.utime(watching.root + b"/moved/file", (1, 1))
    watching.saw(b"moved/file")
    shutil.rmtree(watching.root + b"/moved")
    watching.saw(b"moved/file", b"moved")


@pytest.fixture
def nobody() -> Iterator[bytes]:
    """A folder of a user who cannot read everything."""
    if os.getuid() == 0:
        os.seteuid(65534)
    base = os.fsencode(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        os.makedirs(base + b"/tree/old")
        yield base + b"/tree"
    finally:
        os.seteuid(os.getuid())
        shutil.rmtree(base)


def test_a_folder_that_can_be_read_later_is_watched_from_then_on(nobody: bytes) -> None:
    """None of them keeps another from being watched; `cp -a` makes each with mode 0700."""
    os.mkdir(nobody + b"/a-closed", 0)
    watching = Watching(nobody)
    try:
        put(watching, b"old/file")
        watching.saw(b"old/file")
        os.mkdir(nobody + b"/come", 0)
        os.mkdir(nobody + b"/old/parent")
        os.mkdir(nobody + b"/old/parent/child", 0)
        os.mkdir(nobody + b"/z-open")
        watching.until(lambda: watching.unwatched == 3)
        put(watching, b"z-open/file")
        watching.saw(b"z-open/file")
        for name, mode in ((b"a-closed", 0o755), (b"come", 0o700), (b"old/parent/child", 0o755)):
            os.chmod(nobody + b"/" + name, mode)
            watching.saw(name)
            os.makedirs(nobody + b"/" + name + b"/deep/er")
            watching.saw(name + b"/deep")
            watching.until(partial(watching.put, name + b"/deep/er/file"))
        watching.until(lambda: watching.unwatched == 0)
        os.mkdir(nobody + b"/brief", 0)
        watching.until(lambda: watching.unwatched == 1)
        os.rmdir(nobody + b"/brief")
        watching.until(lambda: watching.unwatched == 0)
    finally:
        watching.end()


def test_folders_that_move_are_heard_by_their_new_names(watching: Watching) -> None:
    for name in (b"a/b/c", b"a/d", b"other"):
        os.makedirs(os.path.join(watching.root, name))
    watching.saw(b"a", b"other")
    for old, new in ((b"a", b"moved"), (b"moved/b", b"other/b"), (b"other", b"moved/d/other")):
        os.rename(os.path.join(watching.root, old), os.path.join(watching.root, new))
        watching.saw(old, new)
    watching.until(lambda: watching.put(b"moved/d/other/b/c/file"))
    watching.found.clear()
    os.rename(watching.root + b"/moved", watching.root + b"-outside")
    watching.saw(b"moved")


def test_folders_that_are_exchanged_are_heard_by_their_new_names(watching: Watching) -> None:
    for name in (b"a/below", b"b/under"):
        os.makedirs(os.path.join(watching.root, name))
    watching.until(lambda: watching.put(b"a/below/file") and watching.put(b"b/under/file"))
    libc = ctypes.CDLL(None, use_errno=True)
    for _turn in range(2):
        watching.found.clear()
        paths = [os.path.join(watching.root, name) for name in (b"a", b"b")]
        if libc.renameat2(-100, paths[0], -100, paths[1], 2) != 0:
            pytest.skip("this file system exchanges no names")
        watching.saw(b"a", b"b")
        above, below = (b"a", b"b") if _turn else (b"b", b"a")
        watching.until(lambda: watching.put(above + b"/below/file"))  # noqa: B023
        watching.until(lambda: watching.put(below + b"/under/file"))  # noqa: B023
        os.mkdir(os.path.join(watching.root, below, b"under", b"new%d" % _turn))
        watching.until(lambda: watching.put(below + b"/under/new%d/file" % _turn))  # noqa: B023


def test_links_are_not_followed_and_the_state_is_not_watched(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    (tmp_path / "root/.headwater").mkdir()
    watching.saw(b"link")
    (tmp_path / "outside/file").touch()
    (tmp_path / "root/.headwater/catalog").touch()
    put(watching, b"sub/last")
    watching.saw(b"sub/last")
    assert not watching.found


def test_a_folder_that_has_become_a_link_meanwhile_costs_no_other_folder_its_watch(tmp_path: Path) -> None:
    """What is told of a folder below it is read when the link leads from its path to another folder of ours."""
    root = tmp_path / "root"
    for name in ("taken", "kept"):
        (root / name).mkdir(parents=True)
    with FolderWatch(os.path.realpath(os.fsencode(root))) as watched:
        (root / "taken/kept").mkdir()
        (root / "taken").rename(tmp_path / "elsewhere")
        (root / "taken").symlink_to(".")
        while watched.changes(0.2):
            pass
        (root / "kept/file").write_text("x")
        assert watched.changes(DEADLINE) == {b"kept/file"}


def test_a_file_that_is_being_written_is_known_until_it_is_closed(tmp_path: Path) -> None:
    with FolderWatch(os.path.realpath(os.fsencode(tmp_path))) as watched:
        with (tmp_path / "a").open("w") as file:
            assert watched.changes(10.0) == {b"a"}
            assert watched.unclosed == {b"a"}
            file.write("content")
        while watched.unclosed:
            assert watched.changes(10.0) == {b"a"}
        (tmp_path / "folder").mkdir()
        (tmp_path / "a").rename(tmp_path / "b")
        assert watched.changes(10.0) >= {b"folder"}
        assert not watched.unclosed


def test_more_events_than_the_system_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = FolderWatch._take, [0x4000]
    monkeypatch.setattr(
        FolderWatch, "_take", lambda self, number, mask, *rest: real(self, number, lost.pop() if lost else mask, *rest)
    )
    watching = Watching(os.fsencode(tmp_path))
    try:
        put(watching, b"file")
        watching.until(lambda: watching.fault is not None and "more changes" in watching.fault.what)
    finally:
        watching.end()


def test_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> list[bytes]:
        raise OSError(28, os.strerror(28))

    before = os.listdir("/proc/self/fd")
    running = hints(os.fsencode(tmp_path), lambda: False)
    next(running)
    running.close()  # type: ignore[attr-defined]
    monkeypatch.setattr(FolderWatch, "_descend", refuse)
    with pytest.raises(CannotWatch, match="No space"):
        next(hints(os.fsencode(tmp_path), lambda: False))
    assert os.listdir("/proc/self/fd") == before


def test_a_name_that_is_no_utf8_is_hinted_and_the_watch_goes_on(watching: Watching) -> None:
    put(watching, b"caf\xe9 \\x")
    watching.saw(b"caf\xe9 \\x")
    watching.until(lambda: watching.put(b"after"))


def test_a_root_that_goes_away_hints_everything(watching: Watching) -> None:
    shutil.rmtree(watching.root)
    watching.until(lambda: watching.fault is not None)
    assert watching.found >= EVERYTHING


def test_a_root_that_is_another_folder_now_hints_everything(tmp_path: Path) -> None:
    """A link to the present release: nothing would be heard of the next one."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "root").symlink_to("one")
    watching = Watching(os.fsencode(tmp_path / "root"))
    try:
        (tmp_path / "next").symlink_to("two")
        os.replace(tmp_path / "next", tmp_path / "root")
        watching.until(lambda: watching.fault is not None)
        assert watching.found >= EVERYTHING
    finally:
        watching.end()


def test_a_root_that_is_not_there() -> None:
    with pytest.raises(CannotWatch):
        next(hints(b"/nowhere/at/all", lambda: False))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
def test_too_many_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(watch_module, "FolderWatch", refuse)
    with pytest.raises(CannotWatch, match=os.strerror(error)):
        next(hints(os.fsencode(tmp_path), lambda: False))


def test_a_system_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_HAS_INOTIFY", False)
    with pytest.raises(CannotWatch, match="no inotify"):
        next(hints(os.fsencode(tmp_path), lambda: False))
