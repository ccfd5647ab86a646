"""A writer killed with SIGKILL at random moments loses, doubles and halves nothing; two writers take turns."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind
from tests.catalog.recorder import LIMITS, check_rows, logged

pytestmark = pytest.mark.long(10)

KILLS = int(os.environ.get("HEADWATER_KILLS", "18"))
"""Kills; set the variable for a longer siege."""

PER_CATALOG = 9
ENDLESS = 1_000_000


def start(path: Path, writer: str, first: int, end: int = ENDLESS) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.catalog.recorder", str(path), writer, str(first), str(end)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def killed(process: subprocess.Popen[str], chance: random.Random) -> list[int]:
    """Kill the process at a random moment of its work; the batches that it said were accepted."""
    assert process.stdout is not None
    said = []
    wait_for = chance.choice(["started", "ready", "ready", "ready"])
    for line in process.stdout:
        said.append(line.strip())
        if line.strip() == wait_for:
            break
    time.sleep(chance.random() ** 2 * 0.15)  # a moment like any other
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return [int(word) for word in said if word.isdecimal()]


def every_change(catalog: SqliteCatalog) -> list[tuple[str, ChangeKind]]:
    return [(change.uri, change.change) for change in catalog.changes("s", limit=10**9)]


@pytest.mark.parametrize("seed", range(KILLS // PER_CATALOG))
def test_a_killed_writer_loses_doubles_and_halves_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "catalog.db"
    expected: list[tuple[str, ChangeKind]] = []
    following = 0
    for _ in range(PER_CATALOG):
        accepted = killed(start(path, "w", following), chance)
        assert accepted == list(range(following, following + len(accepted)))
        for number in accepted:
            expected += logged("w", number)
        following += len(accepted)
        catalog = SqliteCatalog(path, LIMITS)
        catalog.create("s")
        found = every_change(catalog)
        if found == expected + logged("w", following):  # committed, but killed before it could say so
            expected = found
            following += 1
        assert found == expected  # every accepted batch once, in order, and no part of another
        assert verify(catalog, "s") == []
        check_rows(catalog, "w", following - 1)
        assert catalog.check() == []
        catalog.close()
    assert following > 0


def test_two_processes_write_one_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    writers = [start(path, writer, 0, 25) for writer in ("one", "two")]
    for process in writers:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out.split()[2:] == [str(number) for number in range(25)]
    catalog = SqliteCatalog(path, LIMITS)
    found = every_change(catalog)
    following = {"one": 0, "two": 0}
    while found:
        writer = found[0][0].partition("/")[0]
        whole = logged(writer, following[writer])
        assert found[: len(whole)] == whole
        del found[: len(whole)]
        following[writer] += 1
    assert following == {"one": 25, "two": 25}
    assert verify(catalog, "s") == []
    catalog.close()
