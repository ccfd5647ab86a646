"""Writing processes of the fault tests, and the log of what they were told, against which the catalog is judged."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.catalog.interface import Accepted, Catalog, Delete
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind
from tests.catalog.recorder import batch, check_rows, logged

PATIENCE = 120.0
ENDLESS = 1_000_000


class Told:
    """A writer, and for each of its batches the number, the first and the last change that it was told."""

    def __init__(self, writer: str, accepted: Sequence[Accepted] = ()) -> None:
        self.writer = writer
        self.said = [[number, one.first, one.last] for number, one in enumerate(accepted)]


class WritingProcess(Told):
    """One `cluster_recorder`; `said` are the words of each batch that it was told is accepted."""

    def __init__(
        self, place: str, writer: str, mode: str = "record", first: int = 0, end: int = ENDLESS, hold: str = ""
    ) -> None:
        command = [sys.executable, "-m", "tests.catalog.cluster_recorder", place, writer, mode, str(first), str(end)]
        super().__init__(writer)
        self.process = subprocess.Popen(
            [*command, *hold.split()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._words: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, word: str) -> Self:
        """Wait for a word (`ready`, `held`, `done`), or for a batch when it is a number."""
        while True:
            found = self._words.get(timeout=PATIENCE)
            assert found, f"the writer ended before it said {word}"
            self._note(found)
            if found.split()[0] == word:
                return self

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it with -9, and hear what it still said."""
        self.process.kill()
        self.process.wait(PATIENCE)
        while found := self._words.get(timeout=PATIENCE):
            self._note(found)

    def _note(self, found: str) -> None:
        if found[0].isdecimal():
            self.said.append([int(word) for word in found.split()])

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._words.put(line.strip())
        self._words.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def judge(catalog: Catalog, *writers: Told, unsaid: int = 0) -> None:
    """Every accepted batch is in the log once, whole, at the numbers that were told, in its writer's order.

    At most `unsaid` batches more are there: committed by writers that were killed before they could say so.
    """
    log = [(change.uri, change.change) for change in catalog.changes("s", limit=10**9)]
    told = {said[1]: (writer.writer, said[0], said[2]) for writer in writers for said in writer.said}
    following: dict[str, int] = {}
    found = 0
    while found < len(log):
        writer, number, last = told.pop(found + 1, ("", -1, -1))
        if last < 0:
            unsaid -= 1
            writer, number = log[found][0].split("/")[0], int(log[found][0].split("/")[1])
        whole: list[tuple[str, ChangeKind]] = logged(writer, number)
        assert log[found : found + len(whole)] == whole, f"batch {number} of {writer} is not whole"
        assert last in (-1, found + len(whole))
        assert number == following.get(writer, 0), f"batch {number} of {writer} is out of order"
        following[writer] = number + 1
        found += len(whole)
    assert told == {}, "batches that were accepted are not in the log"
    assert unsaid >= 0, "there are batches in the log that nobody accepted"
    assert verify(catalog, "s") == []
    for one in writers:
        if isinstance(one, WritingProcess):
            check_rows(catalog, one.writer, following.get(one.writer, 0) - 1)


def left_by(writer: str, count: int) -> set[str]:
    """The URIs that are there after so many batches."""
    live: set[str] = set()
    for number in range(count):
        for event in batch(writer, number):
            live = live - {event.uri} if isinstance(event, Delete) else live | {event.uri}
    return live
