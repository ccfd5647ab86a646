"""A fake source for each test, and a folder to copy into."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.transport.fetch import TransportOptions
from tests.support.fake_source import Site, Source


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture
def site(source: Source) -> Site:
    """Five small files, published."""
    made = Site(source)
    for number in range(5):
        made.put(f"f{number}.txt", b"body %d\n" % number)
    made.clock = 10.0
    return made.publish(since=10.0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source has to tell in a moment, these sources tell at once; and who comes again need not pause before."""
    monkeypatch.setattr("headwater.sync.update.set_sync._ANNOUNCED_SECONDS", 0.0)
    monkeypatch.setattr("headwater.sync.update.set_sync._RACE_SECONDS", 0.0)
    monkeypatch.setattr("headwater.sync.lists.resource_lists._PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("headwater.sync.run.TransportOptions", partial(TransportOptions, first_backoff_seconds=0.01))


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "copy"
