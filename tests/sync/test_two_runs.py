"""Whoever comes to a copy at which another is at work waits a while for it; only for long work it is told so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Interrupted
from headwater.progress import Notice, Progress
from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared
from headwater.sync.copy import destination_folder
from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
from headwater.sync.copy.file_tree import DestinationLocked
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask, follow
from headwater.sync.sets.polling import PollInterval
from headwater.transport.fetch import TransportOptions
from headwater.transport.transport import Transport
from tests.support.copying import DONE, STORE, check, go, run_over
from tests.support.fake_source import Site, Source


def change_state(_url: str, dest: Path) -> None:
    with writable_state(DestinationFolder(dest)):
        pass


def run(url: str, dest: Path) -> None:
    ran = go(url, dest)
    if ran.error is not None:
        raise ran.error


Work = Callable[[str, Path], object]
LOCKS = [(run, lock_exclusive), (run, lock_shared), (check, lock_exclusive), (change_state, lock_exclusive)]


@pytest.fixture
def lock(source: Source, site: Site, dest: Path) -> Path:
    """That of a copy."""
    assert go(source.base, dest).status == DONE
    return dest / ".headwater" / "lock"


@pytest.mark.parametrize(("work", "held_by"), LOCKS)
def test_short_work_is_waited_for(
    work: Work, held_by: Callable[[Path], int], source: Source, dest: Path, lock: Path
) -> None:
    """What a killed run has left holds its lock for a moment; so does each run of a copy that follows its source."""
    descriptor, is_over = held_by(lock), threading.Event()

    def end() -> None:
        is_over.set()
        os.close(descriptor)

    threading.Timer(0.2, end).start()
    work(source.base, dest)
    assert is_over.is_set()


@pytest.mark.parametrize(("work", "held_by"), LOCKS)
def test_long_work_is_told(
    work: Work, held_by: Callable[[Path], int], source: Source, dest: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination_folder, "WAIT_SECONDS", 0.05)
    descriptor = held_by(lock)
    with pytest.raises(DestinationLocked) as raised:
        work(source.base, dest)
    assert raised.value.exit_status == STORE
    os.close(descriptor)
    work(source.base, dest)


def test_who_follows_a_source_goes_on_after_a_long_audit(
    source: Source, dest: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that ended for it would leave the copy to grow old."""
    monkeypatch.setattr(destination_folder, "WAIT_SECONDS", 0.05)
    held, heard, polls, ended = [lock_shared(lock)], list[str](), list[SyncReport](), threading.Event()

    def listen(event: Notice | Progress) -> None:
        if isinstance(event, Notice) and held:
            heard.append(event.rule)
            os.close(held.pop())

    def tell(report: SyncReport) -> None:
        polls.append(report)
        ended.set()

    watch = threading.Timer(60, ended.set)
    watch.start()
    follow(SyncTask(url=source.base, destination=dest, listener=listen), PollInterval(0.1), tell, stop=ended)
    watch.cancel()
    assert heard == ["HW-SYN-09"]
    assert [one.exit_status for one in polls] == [DONE]


def test_what_a_killed_run_left_is_cleared(source: Source, dest: Path, lock: Path, tmp_path: Path) -> None:
    """DST-F7: files, folders and links; patches of datasets are sorted in folders there, and links are not followed."""
    temp, elsewhere = lock.parent / "tmp", tmp_path / "elsewhere"
    temp.mkdir(exist_ok=True)
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (temp / "1-patch0").write_bytes(b"half of it")
    (temp / "rdf-abcd").mkdir()
    (temp / "rdf-abcd" / "run0").write_bytes(b"<a:b> <a:c> <a:d> .+\n")
    (temp / "empty").mkdir()
    (temp / "link").symlink_to(elsewhere)
    assert go(source.base, dest).status == DONE
    assert not temp.exists() or not os.listdir(temp)
    assert (elsewhere / "kept").exists()


def test_a_first_run_in_vain_holds_its_folder_until_the_last_of_it_is_gone(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another first run that begins in that moment would lose its state and its lock under its feet."""
    lock, unlink, removed = dest / ".headwater" / "lock", os.unlink, []

    def watched(path: Any, **options: Any) -> None:
        if not options and Path(path).parent == lock.parent:
            removed.append(Path(path).name)
            if lock.exists():
                with pytest.raises(LockHeld):
                    lock_exclusive(lock)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", watched)
    options = TransportOptions(stopped=lambda: (lock.parent / "state.sqlite").exists())
    with Transport(options) as wire, pytest.raises(Interrupted):
        run_over(wire, source.base, dest)
    assert {"state.sqlite", "lock"} <= set(removed)
    assert not dest.exists()
