"""A process that changes files at a rate: creates some that never change, changes others, deletes some.

Those that change are so many that few change twice in a second, so that the source records nearly each of them.
It runs before others where it may (`SCHED_RR`, else a lower nice value), so that the rate is that which was asked for.
What it has done is written to a file at the end, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

_PRIORITY = 5
_NAMES_A_CHANGE = 5
"""For each change a second so many names."""
_PROGRESS_SECONDS = 10.0
_NAP_SECONDS = 0.01


class Writer:
    """Makes changes in `files`; each new content is written to `aside` and renamed."""

    def __init__(self, files: Path, aside: Path, names: int) -> None:
        self._files = files
        self._aside = aside
        self._names = names
        self._chance = random.Random(57)
        self.count: Counter[str] = Counter()
        self.made = 0

    def change(self) -> None:
        """One change: every tenth creates a file, every tenth deletes one if it is there, all others update one."""
        self.made += 1
        kind = self.made % 10
        name = f"once{self.made}" if kind == 0 else f"often{self._chance.randrange(self._names)}"
        path = self._files / name
        if kind == 9 and path.exists():
            path.unlink()
        else:
            self._aside.write_bytes(self._chance.randbytes(50))
            self._aside.rename(path)
        self.count[name] += 1

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
                print(f"{self.made} changes in {now - began:.1f} s", file=sys.stderr, flush=True)
            time.sleep(_NAP_SECONDS)
        return time.monotonic() - began


def main() -> None:
    """`writer.py FILES ASIDE DONE CHANGES_A_SECOND SECONDS`."""
    files, aside, done, per_second, seconds = sys.argv[1:]
    with contextlib.suppress(OSError):
        os.nice(-10)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    writer = Writer(Path(files), Path(aside), _NAMES_A_CHANGE * int(per_second))
    took = writer.run(int(per_second), float(seconds))
    Path(done).write_text(json.dumps({"made": writer.made, "seconds": took, "count": writer.count}))


if __name__ == "__main__":
    main()
