"""How writers of several processes wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.storage.database import Database
from headwater.storage.transaction import MOST_SECONDS, BusyWait
from tests.storage.test_database import V1, add, words
from tests.support.failing import failing


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.2, 30.0])
def test_pauses_stay_short_and_the_waiting_ends_in_time(seconds: float) -> None:
    time = FakeTime()
    patience = BusyWait(seconds, time, time.sleep)
    for _again in range(2):  # each wait begins anew
        began, attempts = time.now, 0
        while patience(attempts):
            attempts += 1
        assert time.now - began == pytest.approx(seconds)
        assert max(time.pauses, default=0.0) <= MOST_SECONDS
        assert all(pause > 0 for pause in time.pauses)


def test_a_writer_gets_its_turn_when_another_connection_gives_it_up(tmp_path: Path) -> None:
    with Database(tmp_path / "state.db", V1) as one, Database(tmp_path / "state.db", V1, busy_seconds=0.1) as other:
        with one.write(), failing("HW-DB-04"):
            add(other, "too early")
        writer = threading.Thread(target=add, args=(one, "later"))
        with other.write():
            writer.start()
        writer.join(timeout=30)
        add(other, "last")
        assert words(one) == ["first", "later", "last"]
