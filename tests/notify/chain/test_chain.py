"""End to end by push: source, hub, subscribers, each killed and stopped in turn, over proxies that lose and double."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.notify.chain import writer
from tests.notify.chain.processes import Chain
from tests.support.copying import DONE, check
from tests.support.examples import MANY
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(7_200)]

SUBSCRIBERS, PER_SECOND, SECONDS = (50, 1_000, 60.0) if MANY else (3, 50, 8.0)
if told := os.environ.get("HEADWATER_CHAIN"):
    """Subscribers, changes a second and seconds, for a run by hand: `50,1000,60`."""
    SUBSCRIBERS, PER_SECOND, SECONDS = (int(one) for one in told.split(","))
_LONGEST_SECONDS = float(os.environ.get("HEADWATER_CHAIN_SECONDS", 180.0 + 4 * SECONDS + 6 * SUBSCRIBERS))
"""How long the copies may take to catch up with the last change."""
_TOLD_SECONDS = 15.0


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
        ended, rate = time.monotonic(), changes.made / changes.seconds
        print(f"{changes.made} changes in {changes.seconds:.1f} s, {rate:.0f} a second; {chain.work()}", flush=True)
        assert changes.made == PER_SECOND * SECONDS
        settle(chain)
        settled = time.monotonic() - ended
        places.end()
        chain.be_bad(0.0)
        audited = [check(chain.source_url, copy) for copy in chain.copies]
        assert [one.exit_status for one in audited] == [DONE] * SUBSCRIBERS
        print(
            f"{changes.made} changes at {rate:.0f} a second, {number} kills and stops, all {SUBSCRIBERS} copies equal"
        )
        print(f"and audited in sync {settled:.1f} s after the last; the source has recorded {chain.recorded()} changes")
        print(chain.work())
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


class Changes:
    """A process of its own that changes files at the rate (`writer.py`)."""

    def __init__(self, chain: Chain) -> None:
        command = [sys.executable, str(Path(writer.__file__)), str(chain.files), str(chain.aside)]
        self._done = chain.aside.with_name("done.json")
        command += [str(self._done), str(PER_SECOND), str(SECONDS)]
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONDEVMODE": ""})
        self.made = 0
        self.seconds = 0.0
        self.count: Counter[str] = Counter()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def join(self) -> None:
        """Wait for its end, and take over what it says of its work."""
        assert self._process.wait(_LONGEST_SECONDS) == 0
        told = json.loads(self._done.read_text())
        self.made, self.seconds, self.count = told["made"], told["seconds"], Counter(told["count"])


def settle(chain: Chain) -> None:
    """Wait until all copies are what the source has; tell how it goes on."""
    began = told = time.monotonic()
    left = set(chain.copies)

    def is_settled() -> bool:
        nonlocal told, left
        chain.keep_up()
        left = {copy for copy in left if not chain.is_equal(copy)}
        if time.monotonic() - told > _TOLD_SECONDS:
            told = time.monotonic()
            print(f"{told - began:.0f} s: {SUBSCRIBERS - len(left)} copies are equal; {chain.work()}", flush=True)
        if not left:  # one that was equal may have been changed again, by what came late
            left = {copy for copy in chain.copies if not chain.is_equal(copy)}
        return not left

    until(is_settled, _LONGEST_SECONDS, what="equal copies", pause=0.2 + SUBSCRIBERS / 25)


def journal(copy: Path) -> Counter[str]:
    """How often each file was placed, changed or removed."""
    state = sqlite3.connect(f"file:{copy / '.headwater' / 'state.sqlite'}?mode=ro", uri=True)
    try:
        return Counter(bytes(path).decode() for (path,) in state.execute("SELECT path FROM journal"))
    finally:
        state.close()
