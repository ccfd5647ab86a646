"""A reader that never stops looking, while changes are recorded and published: it never sees what never was.

At every look the replayed state is the catalog's state at one moment: the one after as many changes as the lists hold
(RS-TIME-05, AMB-23, AMB-63). Looks never go back, and nothing that is named is missing.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.catalog.interface import Delete, Resource
from headwater.publish.site import SetSettings
from tests.support.examples import MANY
from tests.support.published import BASE, PublishedCatalog, look, put, replay

pytestmark = pytest.mark.long(10)

SECONDS = 10.0 if MANY else 1.5
PATIENCE = 120.0
"""So much longer on a machine that has other work."""


def real_time() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Reader(threading.Thread):
    """Looks again and again; keeps how many changes and which state each look came to, and its first failure."""

    def __init__(self, world: BusyWorld) -> None:
        super().__init__()
        self._world = world
        self.looks: list[tuple[int, int, dict[str, str]]] = []
        self.failure: BaseException | None = None
        self.ending = threading.Event()

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                before = self._world.published_seq
                seen = look(self._world.fetch, midway=True)
                self.looks.append((before, len(seen.changes), seen.state))
        except BaseException as failure:  # noqa: BLE001 - told by the test
            self.failure = failure


class BusyWorld(PublishedCatalog):
    """A world whose last published sequence number others may ask for."""

    published_seq = 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_look_is_one_state_of_the_catalog(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    settings = SetSettings(refresh_changes=6, refresh_seconds=0.2, renew_seconds=1.0, segment_seconds=0.3)
    world = BusyWorld(tmp_path, page_entries=7, segment_entries=9, sets=(settings,), clock=real_time)
    world.begin(20)
    world.publish()
    loaded = world.truth()
    readers = [Reader(world) for _ in range(2)]
    for reader in readers:
        reader.start()
    end = time.monotonic() + SECONDS
    version = 0
    while time.monotonic() < end + PATIENCE and not any(reader.failure for reader in readers):
        looked = sum(len(reader.looks) for reader in readers)
        if time.monotonic() > end and looked > 20 and world.catalog.state("files").last_seq > 100:
            break
        batch = []
        for _ in range(chance.choice([1, 1, 2, 5, 25])):
            version += 1
            uri = f"r{chance.randrange(60)}"
            batch.append(Delete(uri) if chance.random() < 0.45 else put(uri, version))
        world.record(*batch)
        if chance.random() < 0.8:
            world.published_seq = world.publish(force=chance.random() < 0.3).seq
    for reader in readers:
        reader.ending.set()
        reader.join()
        if reader.failure is not None:
            raise reader.failure
    prefix = f"{BASE}/files/resources/"
    log = world.catalog.changes("files", 0, 1_000_000)
    states = {0: loaded}
    state = loaded
    for row in log:
        state = replay([row], prefix, state)
        states[row.seq] = state
    total = 0
    for reader in readers:
        last = 0
        for promised, seen, found in reader.looks:
            assert found == states[seen]
            assert seen >= promised, "what was published before the look is in it"
            assert seen >= last, "no look goes back"
            last = seen
            total += 1
    assert total > 20
    assert log[-1].seq > 100


def test_changes_are_published_while_many_pages_are_rendered(tmp_path: Path) -> None:
    """A forced refresh of everything does not hold changes back: they appear between pages."""
    world = PublishedCatalog(tmp_path, page_entries=5)
    world.begin(40)
    world.publish()
    world.record(*(put(f"r{n}", 1) for n in range(0, 40, 5)))
    seen: list[int] = []
    page = world.catalog.page

    def recording(name: str, number: int) -> Iterator[Resource]:
        rows = list(page(name, number))
        world.record(put(f"during-{number}", number))
        seen.append(len(look(world.fetch, midway=True).changes))
        return iter(rows)

    world.catalog.page = recording  # type: ignore[method-assign]
    world.publish(force=True)
    assert seen == list(range(8, 16))
    assert world.look().state == world.truth()
