"""Hints: where something changed, soon, or at least that something did."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.ingest.folder import watch as watch_module
from headwater.ingest.folder.watch import EVERYTHING, CannotWatch, hints, undecodable_path

DEADLINE = 60.0


class Watching:
    """Collects hints in a thread."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.found: set[bytes] = set()
        self.fault: CannotWatch | None = None
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(DEADLINE)

    def _run(self) -> None:
        try:
            for found in hints(self.root, self._stop.is_set):
                self.found |= found
                self._begun.set()
        except CannotWatch as fault:
            self.fault = fault
            self._begun.set()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"hints so far: {sorted(self.found)}, {self.fault}"
            time.sleep(0.01)

    def saw(self, *paths: bytes) -> None:
        self.until(lambda: self.found >= set(paths))
        self.found.clear()

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


def test_a_name_that_is_no_utf8_is_hinted_and_the_watch_goes_on(watching: Watching) -> None:
    put(watching, b"caf\xe9 \\x")
    watching.saw(b"caf\xe9 \\x", b"")
    end = time.monotonic() + DEADLINE
    while b"after" not in watching.found and time.monotonic() < end:
        put(watching, b"after")
        time.sleep(0.05)
    assert b"after" in watching.found


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


def test_too_many_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "OS file watch limit reached.")

    monkeypatch.setattr(watch_module, "watch", refuse)
    with pytest.raises(CannotWatch, match="limit"):
        next(hints(os.fsencode(tmp_path), lambda: False))


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ('Unable to decode path "/a/non\\xFFutf" to string', b"/a/non\xffutf"),
        (
            'Unable to decode path "/a/\\"q\\" \\\\x \\n \\u{301}\\xE9" to string',
            '/a/"q" \\x \n \u0301'.encode() + b"\xe9",
        ),
        ("Unable to decode path “ü” to string", None),
        ("No space left on device", None),
    ],
)
def test_the_path_in_a_complaint(message: str, path: bytes | None) -> None:
    assert undecodable_path(message) == path
