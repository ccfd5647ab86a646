"""The making of packages as a task: other tasks have their turn between two packages."""

from __future__ import annotations

import time
from threading import Event
from types import SimpleNamespace

import pytest

from headwater.catalog.interface import UnknownSet
from headwater.progress import silent
from headwater.publish.package_builder import PackResult
from headwater.source import packing_and_version_removal as dump_packing
from headwater.source.packing_and_version_removal import DumpPacking


@pytest.mark.parametrize("is_renewing", [False, True])
def test_a_run_packs_once(*, is_renewing: bool) -> None:
    """A first dump may take days: scans of other sets must not wait for its end (they share the threads)."""
    left = [PackResult(is_done=is_done, is_offered=is_renewing) for is_done in (True, True, False)]
    packing = DumpPacking("files", "Resource Dump", lambda stop: left.pop(0), Event(), lambda _task: None, silent)
    packing.run()
    assert packing.health.packings == 1
    assert is_renewing or packing.due_at <= time.monotonic(), "there may be more"
    packing.run()
    packing.run()
    assert packing.health.packings == 2
    assert packing.due_at > time.monotonic()


def test_what_rests_is_looked_at_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of thousands of sets that nobody changes must not keep a processor at work."""
    now = 1_000.0
    monkeypatch.setattr(dump_packing, "time", SimpleNamespace(monotonic=lambda: now))
    nothing = PackResult(is_done=False)
    packing = DumpPacking("files", "Change Dump", lambda stop: nothing, Event(), lambda _task: None, silent)

    def looks(until: float) -> int:
        nonlocal now
        count = 0
        while packing.due_at <= until:
            now = max(now, packing.due_at)
            packing.run()
            count += 1
        now = until
        return count

    assert looks(now + 300) >= 10, "what is due by time is not late"
    looks(now + 86_400)
    assert looks(now + 86_400) == 144
    packing.news()
    assert packing.due_at - now <= 1.0
    assert looks(now + 300) >= 10


def test_sets_that_are_not_loaded_yet_are_not_asked_for_all_the_time() -> None:
    def pack(stop: object) -> PackResult:
        raise UnknownSet("no such set")

    packing = DumpPacking("files", "Change Dump", pack, Event(), lambda _task: None, silent)
    packing.run()
    assert packing.health.failures == 0
    assert packing.due_at - time.monotonic() > 10
    packing.news()
    assert packing.due_at - time.monotonic() <= 1.0
