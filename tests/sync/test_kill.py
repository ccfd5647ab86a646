"""Kill -9 at random moments, often, then finish: the same tree, audited in sync, nothing fetched twice (DST-F7)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.sync.copying import DONE, check, go, is_clean, tree
from tests.sync.torture import Site, Source

FILES = 600
KILLS = int(os.environ.get("HEADWATER_KILLS", "24"))
"""Kills; set the variable for a longer siege."""


def start(url: str, dest: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from headwater.cli import main; main()", "sync", url, str(dest), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_soon(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Kill after some time; whether it was still running."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return True


def change(site: Site, chance: random.Random) -> None:
    """A handful of changes, of all kinds."""
    for _ in range(12):
        name = chance.choice(sorted(site.files))
        if chance.random() < 0.3 and len(site.files) > FILES // 2:
            site.drop(name)
        elif chance.random() < 0.5:
            site.put(name, chance.randbytes(50))
        else:
            site.put(f"d{chance.randrange(20)}/new{chance.randrange(10_000)}", chance.randbytes(50))


def test_killed_again_and_again(source: Source, dest: Path) -> None:
    chance = random.Random(20260101)
    site = Site(source)
    for number in range(FILES):
        site.put(f"d{number % 20}/f{number}", chance.randbytes(200))
    site.publish()
    began = time.monotonic()
    start(source.base, dest.parent / "whole").wait()
    whole = time.monotonic() - began
    source.forget()
    killed = 0
    while killed < KILLS // 2:  # the baseline
        killed += kill_soon(start(source.base, dest, "--concurrency", "4"), chance.uniform(0.2, 1.1) * whole)
        if len(tree(dest)) >= FILES if dest.exists() else False:
            break
    fetched = len([path for path in source.requests() if "resources/" in path])
    assert fetched <= FILES + 8 * (killed + 1)
    while killed < KILLS:  # increments, with changes in between
        change(site, chance)
        site.publish_changes(0)
        if kill_soon(start(source.base, dest), chance.uniform(0.3, 0.9) * whole):
            killed += 1
        else:  # it took less than the whole that was measured: come sooner
            whole = max(0.8 * whole, 0.1)
    ran = go(source.base, dest, max_delete=1.0)  # runs that never ended may have left many deletions to this one
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"
    assert killed >= KILLS
