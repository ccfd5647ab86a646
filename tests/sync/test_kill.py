"""Kill -9 of a real process in the middle of its work, again and again, then finish: the same tree (DST-F7).

What a kill leaves at each step is told by `test_crash_at_any_step`; here processes die, as their kernel ends them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.copying import DONE, check, go, is_clean, tree
from tests.support.fake_source import Handler, Reply, Site, Source
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

FILES = 150
KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""Kills; set the variable for a longer siege."""

BIG = 100_000
"""Every tenth body: more than what is held in memory until it is whole."""

_LONGEST_SECONDS = 120.0


def start(url: str, dest: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "sync", url, str(dest)]
    command += ["--concurrency", "2", "--max-delete", "1.0"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_when(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    """Kill as soon as it is so; whether the process was still at work."""

    def due() -> bool:
        with contextlib.suppress(FileNotFoundError):  # of a file that went while we looked
            return process.poll() is not None or ready()
        return False

    until(due, _LONGEST_SECONDS, pause=0.002)
    process.send_signal(signal.SIGKILL)
    return process.wait(_LONGEST_SECONDS) == -signal.SIGKILL


def slowly(source: Source, site: Site) -> None:
    """Let every resource take its time, so that there is a middle to be killed in."""
    for name, body in site.files.items():

        def page(_handler: Handler, body: bytes = body) -> Reply:
            time.sleep(0.01)
            return Reply(body)

        source.pages[f"/set/resources/{name}"] = page


def change(site: Site, chance: random.Random) -> None:
    """Changes of all kinds, a third of the files."""
    for _ in range(FILES // 3):
        name = chance.choice(sorted(site.files))
        if chance.random() < 0.3 and len(site.files) > FILES // 2:
            site.drop(name)
        elif chance.random() < 0.5:
            site.put(name, chance.randbytes(chance.choice([50, 50, BIG])))
        else:
            site.put(f"d{chance.randrange(20)}/new{chance.randrange(10_000)}", chance.randbytes(50))


def test_killed_again_and_again(source: Source, dest: Path) -> None:
    chance = random.Random(20260101)
    site = Site(source)
    for number in range(FILES):
        site.put(f"d{number % 20}/f{number}", chance.randbytes(200 if number % 10 else BIG))
    site.publish()
    slowly(source, site)
    source.forget()
    partial = killed = 0
    for part in range(KILLS // 2):  # the baseline
        wanted = (part + 1) * FILES // (KILLS // 2 + 1)
        killed += kill_when(start(source.base, dest), lambda wanted=wanted: len(tree(dest)) >= wanted)  # type: ignore[misc]
        partial += 0 < len(tree(dest)) < FILES
    fetched = len([path for path in source.requests() if "resources/" in path])
    assert fetched <= FILES + 8 * (killed + 1)  # what lay in its place was not fetched again
    assert partial
    assert go(source.base, dest, max_delete=1.0).status == DONE
    for _ in range(KILLS - KILLS // 2):  # increments, with changes in between
        before = tree(dest)
        change(site, chance)
        slowly(source, site)
        site.publish_changes(0)
        kill_when(start(source.base, dest), lambda before=before: tree(dest) != before)  # type: ignore[misc]
    ran = go(source.base, dest, max_delete=1.0)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"
