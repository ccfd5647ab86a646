"""A process that changes files at a rate and announces each change to the source, as one event each.

Some files are created and never change, some change again and again, some go. None changes twice in a batch, and the
writer knows what is there: so every line that it announces is one change of the source's log, and none is ignored.
Batches are announced in order, each until it is taken, by an `Idempotency-Key`: a source that is killed between taking
and answering takes it once. Files are changed at the rate whether the source answers or not.

It runs before others where it may (`SCHED_RR`, else a lower nice value), so that the rate is that which was asked for.
What it has done is written to a file at the end, as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import queue
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_PRIORITY = 5
_NAMES_A_CHANGE = 5
"""For each change a second so many names."""
_BATCH_SECONDS = 0.05
_LINES = 1_000
_PROGRESS_SECONDS = 10.0
_ANSWER_SECONDS = 20.0
_PAUSE_SECONDS = 0.1
_LONGEST_SECONDS = 600.0


class Announcer(threading.Thread):
    """Announces lines in order, as many at a time as wait; a batch is sent until the source has taken all of it."""

    def __init__(self, url: str, token: str, prefix: str) -> None:
        super().__init__(daemon=True)
        parts = urlsplit(url)
        self._place, self._path, self._token = (parts.hostname or "", parts.port), parts.path, token
        self._prefix = prefix
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.taken = 0
        self.requests = 0
        self.batches = 0
        self.last_at = 0.0
        self.refused: list[Any] = []

    def run(self) -> None:
        """Until there are no more lines."""
        is_over = False
        while not is_over:
            batch = [self.lines.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < _LINES:
                    batch.append(self.lines.get_nowait())
            is_over = batch[-1] is None
            if lines := [line for line in batch if line is not None]:
                self._announce(lines)

    def _announce(self, lines: list[bytes]) -> None:
        self.batches += 1
        end = time.monotonic() + _LONGEST_SECONDS
        while (told := self._post(f"{self._prefix}batch-{self.batches}", b"".join(lines))) is None:
            assert time.monotonic() < end, "the source takes nothing"
            time.sleep(_PAUSE_SECONDS)
        self.taken += sum(1 for one in told["results"] if "seq" in one)
        self.refused += [one for one in told["results"] if "seq" not in one]
        self.last_at = time.monotonic()

    def _post(self, key: str, body: bytes) -> Any:
        """The answer of the source that has taken the batch; None: it is to be sent again."""
        self.requests += 1
        connection = http.client.HTTPConnection(*self._place, timeout=_ANSWER_SECONDS)
        try:
            head = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": key}
            connection.request("POST", self._path, body, head)
            answer = connection.getresponse()
            told = answer.read()
            return json.loads(told) if answer.status in (200, 207) else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Writer:
    """Makes changes in `files`; each new content is written beside it and renamed, then announced."""

    def __init__(self, files: Path, prefix: str, names: int, announcer: Announcer) -> None:
        self._files = files
        self._aside = files.with_name("aside")
        self._prefix = prefix
        self._names = [f"{prefix}often{number}" for number in range(names)]
        self._there: set[str] = set()
        self._chance = random.Random(57)
        self._announcer = announcer
        self.count: Counter[str] = Counter()
        self.made = 0

    def change(self) -> None:
        """One change: every tenth creates a file, every tenth deletes one if it is there, all others update one.

        The names that change come one after another, in an order that is another one each time: none soon again.
        """
        at = self.made % len(self._names)
        if at == 0:
            self._chance.shuffle(self._names)
        self.made += 1
        kind = self.made % 10
        name = f"{self._prefix}once{self.made}" if kind == 0 else self._names[at]
        path = self._files / name
        self.count[name] += 1
        if kind == 9 and name in self._there:
            path.unlink()
            self._there.discard(name)
            self._announcer.lines.put(b'{"path": "%s", "change": "deleted"}\n' % name.encode())
            return
        content = self._chance.randbytes(50)
        self._aside.write_bytes(content)
        self._aside.rename(path)
        self._there.add(name)
        told = {"path": name, "length": len(content), "sha-256": hashlib.sha256(content).hexdigest()}
        self._announcer.lines.put(json.dumps(told).encode() + b"\n")

    def run(self, per_second: int, seconds: float) -> float:
        """Make changes at the rate; returns how long that took: longer where this machine is too slow."""
        began = told = time.monotonic()
        wanted = int(per_second * seconds)
        while self.made < wanted:
            now = time.monotonic()
            while self.made < min(wanted, (now - began) * per_second):
                self.change()
            if now - told > _PROGRESS_SECONDS:
                told = now
                taken = self._announcer.taken
                print(f"{self.made} changes in {now - began:.1f} s, {taken} of them taken", file=sys.stderr, flush=True)
            time.sleep(_BATCH_SECONDS)
        return time.monotonic() - began


def main() -> None:
    """`writer.py FILES DONE URL TOKEN CHANGES_A_SECOND SECONDS [PREFIX]`: what names and keys begin with."""
    files, done, url, token, per_second, seconds, *prefix = sys.argv[1:]
    with contextlib.suppress(OSError):
        os.nice(-10)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    announcer = Announcer(url, token, "".join(prefix))
    announcer.start()
    writer = Writer(Path(files), "".join(prefix), _NAMES_A_CHANGE * int(per_second), announcer)
    began = time.monotonic()
    took = writer.run(int(per_second), float(seconds))
    announcer.lines.put(None)
    announcer.join()
    what = {
        "made": writer.made,
        "seconds": took,
        "count": writer.count,
        "taken": announcer.taken,
        "taken_seconds": announcer.last_at - began,
        "batches": announcer.batches,
        "requests": announcer.requests,
        "refused": announcer.refused[:10],
    }
    Path(done).write_text(json.dumps(what))


if __name__ == "__main__":
    main()
