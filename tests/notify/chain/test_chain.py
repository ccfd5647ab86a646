"""End to end by push: source, hub, subscribers, each killed and stopped in turn, over proxies that lose and double."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.notify.chain.processes import Chain
from tests.support.copying import DONE, check
from tests.support.examples import MANY
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

SUBSCRIBERS, PER_SECOND, SECONDS = (50, 1_000, 60.0) if MANY else (3, 50, 8.0)
if told := os.environ.get("HEADWATER_CHAIN"):
    """Subscribers, changes a second and seconds, for a run by hand: `50,1000,60`."""
    SUBSCRIBERS, PER_SECOND, SECONDS = (int(one) for one in told.split(","))
_LONGEST_SECONDS = 180.0 + 4 * SECONDS + 6 * SUBSCRIBERS


def test_every_copy_is_in_sync_and_each_change_came_once(tmp_path: Path) -> None:
    """RS-CN-07, WS-H-13, WS-S-09, RS-REL-12: whatever is killed, stopped, lost, delayed, doubled or out of order."""
    chain = Chain(tmp_path, SUBSCRIBERS)
    chance, places = random.Random(56), Places(chain)
    try:
        for number in range(20):
            chain.put(f"first{number}", b"%d" % number)
        settle(chain)
        chain.be_bad(0.06)
        changes = Changes(chain)
        changes.start()
        places.start()
        number = 0
        while changes.is_alive():
            time.sleep(0.2 + chance.random())
            if number % 2:
                chain.pause(number // 2 % len(chain.processes), 0.5 + chance.random())
            else:
                chain.kill(number // 2 % min(len(chain.processes), 12))
            number += 1
        changes.join()
        ended = time.monotonic()
        settle(chain)
        settled = time.monotonic() - ended
        places.end()
        chain.be_bad(0.0)
        audited = [check(chain.source_url, copy) for copy in chain.copies]
        assert [one.exit_status for one in audited] == [DONE] * SUBSCRIBERS
        print(f"{changes.made} changes, {number} kills and stops, equal {settled:.1f} s after the last")
        print(f"to the hub {dict(chain.to_hub.counts)}, to subscribers {dict(chain.to_subscribers.counts)}")
    finally:
        chain.close()
    for number, copy in enumerate(chain.copies):
        # a kill between a file and its row is noted when it is found out, and once more when a list confirms it
        kills, came = chain.kills[2 + number], journal(copy)
        too_often = {path: count for path, count in came.items() if count > changes.count[path] + kills}
        assert not {path for path in too_often if not path.startswith("first")}, copy
        assert not {path for path, seen in places.seen[number].items() if len(seen) > 1}, "placed again"


class Places(threading.Thread):
    """Looks at the files of all copies that never change: which file it is, and since when it has its name."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(daemon=True)
        self._copies = chain.copies
        self._is_over = threading.Event()
        self.seen: list[defaultdict[str, set[tuple[int, int]]]] = [defaultdict(set) for _ in chain.copies]

    def run(self) -> None:
        """Look again and again."""
        while not self._is_over.wait(0.5):
            self._look()

    def end(self) -> None:
        """Look once more."""
        self._is_over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        for copy, seen in zip(self._copies, self.seen, strict=True):
            with contextlib.suppress(OSError), os.scandir(copy) as entries:
                for one in entries:
                    if one.name.startswith("once"):
                        stat = one.stat()
                        seen[one.name].add((stat.st_ino, stat.st_ctime_ns))


class Changes(threading.Thread):
    """Creates files that never change, changes others, and deletes some."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self._chain = chain
        self.made = 0
        self.count: Counter[str] = Counter()

    def run(self) -> None:
        """Make changes at the rate, as far as this machine lets us."""
        chance, began = random.Random(57), time.monotonic()
        while (now := time.monotonic()) < began + SECONDS:
            while self.made < (now - began) * PER_SECOND:
                self._change(chance)
            time.sleep(0.02)

    def _change(self, chance: random.Random) -> None:
        self.made += 1
        kind = self.made % 10
        name = f"once{self.made}" if kind == 0 else f"often{chance.randrange(100)}"
        if kind == 9 and (self._chain.files / name).exists():
            (self._chain.files / name).unlink()
        else:
            self._chain.put(name, chance.randbytes(50))
        self.count[name] += 1


def settle(chain: Chain) -> None:
    """Wait until all copies are what the source has."""

    def is_settled() -> bool:
        chain.keep_up()
        return chain.equal_copies() == SUBSCRIBERS

    until(is_settled, _LONGEST_SECONDS, what="equal copies")


def journal(copy: Path) -> Counter[str]:
    """How often each file was placed, changed or removed."""
    state = sqlite3.connect(f"file:{copy / '.headwater' / 'state.sqlite'}?mode=ro", uri=True)
    try:
        return Counter(bytes(path).decode() for (path,) in state.execute("SELECT path FROM journal"))
    finally:
        state.close()
