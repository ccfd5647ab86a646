"""What waits before a few threads: news first, and all else some time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headwater.source.scheduler import BUSY_SECONDS, LOW_EVERY, Priority, WorkQueue


class Bench:
    """WorkQueue whose jobs say what they are, at a time of our own."""

    def __init__(self, workers: int) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.lines = WorkQueue(workers, lambda: self.now)

    def put(self, word: str, line: Priority) -> None:
        self.lines.put(self._saying(word), line)

    def _saying(self, word: str) -> Callable[[], None]:
        return lambda: self.said.append(word)

    def take(self) -> Priority:
        taken = self.lines.take()
        assert taken is not None
        taken[0]()
        return taken[1]


def test_news_overtake_what_can_wait() -> None:
    bench = Bench(4)
    bench.put("page", Priority.LOW)
    bench.put("first", Priority.HIGH)
    bench.put("second", Priority.HIGH)
    for _ in range(3):
        bench.lines.done(bench.take())
    assert bench.said == ["first", "second", "page"]
    assert bench.lines.is_empty


def test_what_can_wait_has_its_turn_however_much_news_there_is() -> None:
    bench = Bench(2)
    bench.put("page", Priority.LOW)
    for _ in range(10 * LOW_EVERY):
        bench.put("news", Priority.HIGH)
    for _ in range(LOW_EVERY + 1):
        bench.lines.done(bench.take())
    assert bench.said.count("page") == 1


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (8, 6)])
def test_it_never_has_all_threads_and_one_alone_while_there_are_news(workers: int, most: int) -> None:
    bench = Bench(workers)
    for number in range(workers + 1):
        bench.put(str(number), Priority.LOW)
    assert [bench.take() for _ in range(most)] == [Priority.LOW] * most
    bench.put("news", Priority.HIGH)
    assert bench.take() is Priority.HIGH
    bench.lines.done(Priority.LOW)
    bench.put("news", Priority.HIGH)
    if most > 1:  # the others still are at it
        assert bench.take() is Priority.HIGH
        assert bench.lines._next() is None
        bench.now += BUSY_SECONDS
    assert bench.lines._next() is not None


def test_closing_ends_who_waits() -> None:
    bench = Bench(2)
    waiting = threading.Thread(target=lambda: bench.said.append(str(bench.lines.take())))
    waiting.start()
    bench.lines.close()
    waiting.join(timeout=30)
    assert bench.said == ["None"]
    bench.put("too late", Priority.HIGH)
    assert bench.lines.take() is None
