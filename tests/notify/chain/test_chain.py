"""End to end by push: source, hub, subscribers, each killed and stopped in turn, over proxies that lose and double."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.notify.chain import writer
from tests.notify.chain.copies import Equality, Places, journal
from tests.notify.chain.processes import TOKEN, Chain
from tests.support.copying import DONE, check
from tests.support.examples import MANY
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(7_200)]

SUBSCRIBERS, PER_SECOND, SECONDS = (50, 1_000, 60.0) if MANY else (3, 50, 7.0)
if told := os.environ.get("HEADWATER_CHAIN"):
    """Subscribers, changes a second and seconds, for a run by hand: `50,1000,60`."""
    SUBSCRIBERS, PER_SECOND, SECONDS = (int(one) for one in told.split(","))
_LONGEST_SECONDS = float(os.environ.get("HEADWATER_CHAIN_SECONDS", 180.0 + 4 * SECONDS + 6 * SUBSCRIBERS))
"""How long the copies may take to catch up with the last change."""
_TOLD_SECONDS = 15.0
_FIRST_SUBSCRIBER = 2
_MORE_OF_HUB_AND_SOURCE = 25
"""For so many processes hub and source are killed and stopped once more."""


def test_every_copy_is_in_sync_and_each_change_came_once(tmp_path: Path) -> None:
    """RS-CN-07, WS-H-13, WS-S-09, RS-REL-12: whatever is killed, stopped, lost, delayed, doubled or out of order."""
    chain = Chain(tmp_path, SUBSCRIBERS)
    places = Places(chain.copies, 0.2 + SUBSCRIBERS / 25)
    try:
        first = Changes(chain, "first", 20, 1)
        first.join()
        settle(chain)
        chain.be_bad(0.06)
        changes = Changes(chain, "", PER_SECOND, SECONDS)
        places.start()
        disturb(chain)
        changes.join()
        ended = time.monotonic()
        print(f"{changes.described}; {chain.work()}", flush=True)
        assert changes.taken == changes.made == PER_SECOND * SECONDS, changes.refused
        assert chain.recorded() == first.made + changes.made
        settle(chain)
        settled = time.monotonic() - ended
        places.end()
        chain.be_bad(0.0)
        assert [check(chain.source_url, copy).exit_status for copy in chain.copies] == [DONE] * SUBSCRIBERS
        print(f"{changes.described}: the source has recorded {chain.recorded() - first.made}")
        print(f"{chain.disturbed()}: all {SUBSCRIBERS} copies are equal {settled:.1f} s after the last change")
        print(f"and audited in sync {time.monotonic() - ended:.1f} s after it; {chain.work()}")
        print(f"to the hub {dict(chain.to_hub.counts)}, to subscribers {dict(chain.to_subscribers.counts)}")
    finally:
        chain.close()
    count_changes(chain, changes, places)


def disturb(chain: Chain) -> None:
    """Kill each process once and stop each once, hub and source more often, in any order, spread over the time."""
    chance = random.Random(56)
    numbers = [*range(len(chain.processes)), *([0, 1] * (len(chain.processes) // _MORE_OF_HUB_AND_SOURCE))]
    actions = [(number, is_kill) for number in numbers for is_kill in (True, False)]
    chance.shuffle(actions)
    began = time.monotonic()
    for done, (number, is_kill) in enumerate(actions, 1):
        time.sleep(max(0.05, began + done / len(actions) * SECONDS - time.monotonic()))
        if is_kill:
            if number < _FIRST_SUBSCRIBER:
                chain.wait_until_back(number)
            chain.kill(number)
        else:
            chain.pause(number, 0.5 + chance.random())
    assert set(chain.kills) == set(chain.stops) == set(range(len(chain.processes)))


def count_changes(chain: Chain, changes: Changes, places: Places) -> None:
    """Count what copies have noted: a change once or not at all, where a later one of the same file took its place."""
    applied, again = [], 0
    for number, copy in enumerate(chain.copies):
        came = Counter({path: count for path, count in journal(copy).items() if path in changes.count})
        # a kill between a file and its row is noted when it is found out, and once more when a list confirms it
        more = {path: count - changes.count[path] for path, count in came.items() if count > changes.count[path]}
        assert max(more.values(), default=0) <= chain.kills[_FIRST_SUBSCRIBER + number], copy
        again += sum(more.values())
        applied.append(came.total() - sum(more.values()))
        there = {path for path in changes.count if path.startswith("once")}
        assert there <= came.keys(), "a file was never placed"
        assert not {path for path, seen in places.seen[number].items() if len(seen) > 1}, "placed again"
    print(
        f"of {changes.taken} changes each copy has applied {min(applied)} to {max(applied)}, each once; later ones of "
        f"the same file have taken the place of the others; {again} were noted again after a kill"
    )


class Changes:
    """A process of its own that changes files at the rate and announces them (`writer.py`)."""

    def __init__(self, chain: Chain, name: str, per_second: int, seconds: float) -> None:
        command = [sys.executable, str(Path(writer.__file__)), str(chain.files)]
        self._done = chain.files.with_name(f"{name}done.json")
        command += [str(self._done), chain.changes_url, TOKEN, str(per_second), str(seconds)]
        command += [name] if name else []
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONDEVMODE": ""})
        self.made = 0
        self.taken = 0
        self.count: Counter[str] = Counter()
        self.refused: list[object] = []
        self.described = ""

    def join(self) -> None:
        """Wait for its end, and take over what it says of its work."""
        assert self._process.wait(_LONGEST_SECONDS) == 0
        told = json.loads(self._done.read_text())
        self.made, self.taken, self.refused = told["made"], told["taken"], told["refused"]
        self.count = Counter(told["count"])
        took = told["taken_seconds"]
        self.described = (
            f"{self.made} writes in {told['seconds']:.1f} s, {self.taken} taken by the source in {took:.1f} s "
            f"({self.taken / took:.0f} a second; {told['batches']} batches, {told['requests']} requests)"
        )


def settle(chain: Chain) -> None:
    """Wait until all copies are what the source has; tell how it goes on."""
    began = told = time.monotonic()
    equality = Equality(chain.files, chain.copies)

    def is_settled() -> bool:
        nonlocal told
        chain.keep_up()
        is_equal = equality.look()
        if time.monotonic() - told > _TOLD_SECONDS:
            told = time.monotonic()
            equal = SUBSCRIBERS - len(equality.left)
            print(f"{told - began:.0f} s: {equal} copies are equal; {chain.work()}", flush=True)
        return is_equal

    until(is_settled, _LONGEST_SECONDS, what="equal copies", pause=0.2 + SUBSCRIBERS / 25)
