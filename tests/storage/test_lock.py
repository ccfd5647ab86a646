"""A lock on a file: one alone or several together, across descriptors, and by its name."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared, waited_for


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        (lock_exclusive, lock_exclusive, False),
        (lock_exclusive, lock_shared, False),
        (lock_shared, lock_exclusive, False),
        (lock_shared, lock_shared, True),
    ],
)
def test_alone_or_together(
    first: Callable[[Path], int], second: Callable[[Path], int], agree: bool, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"4711\n")
    held = first(path)
    if agree:
        os.close(second(path))
    else:
        with pytest.raises(LockHeld) as raised:
            second(path)
        assert raised.value.holder == b"4711\n"
    os.close(held)
    os.close(lock_exclusive(path))


def test_a_lock_that_is_not_there_is_made_for_one_alone_only(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_shared(tmp_path / "lock")
    os.close(lock_exclusive(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        lock_exclusive(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_was_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes the file between another's opening and locking it: the other takes the one that is there."""
    path, real = tmp_path / "lock", os.open
    opened: list[int] = []

    def opening(*arguments: object) -> int:
        descriptor = real(*arguments)  # type: ignore[arg-type]
        if not opened:
            path.unlink()
        opened.append(descriptor)
        return descriptor

    monkeypatch.setattr(os, "open", opening)
    held = lock_exclusive(path)
    monkeypatch.undo()
    assert len(opened) == 2
    with pytest.raises(LockHeld):
        lock_exclusive(path)
    os.close(held)


def test_a_lock_is_waited_for_as_long_as_asked(tmp_path: Path) -> None:
    held = lock_exclusive(tmp_path / "lock")
    with pytest.raises(LockHeld):
        waited_for(lock_exclusive, tmp_path / "lock", 0.05)
    threading.Timer(0.1, os.close, (held,)).start()
    os.close(waited_for(lock_exclusive, tmp_path / "lock", 60))
