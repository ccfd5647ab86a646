"""Kill -9 of a destination with stores in every phase, then finish: file, store, endpoint, positions agree (DST-F7)."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.triplestores.embedded_store import EmbeddedStore
from tests.support.copying import DONE, check, go
from tests.support.fake_source import Site, Source
from tests.support.sparql_server import sparql_server
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

KILLS = int(os.environ.get("HEADWATER_KILLS", "6"))
"""Kills; set the variable for a longer siege."""

_LONGEST_SECONDS = 120.0
_STATEMENTS = 400
_PHASES = """
import os, signal, sys, threading
from headwater.triplestores import embedded_store, sparql_store, sparql_updates
from headwater.sync import dataset_sync

sparql_updates.MOST_STATEMENTS = 50
left = [int(sys.argv[1])]

def dying(home, name):
    real = getattr(home, name)
    def step(*given, **named):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(*given, **named)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(home, name, step)

for home, name in [
    (dataset_sync, "write_canonical"), (dataset_sync, "replace_file"), (dataset_sync, "sync_folder"),
    (dataset_sync.KeptStates, "keep_only"), (dataset_sync, "write_patch"),
    (embedded_store, "sync_folder"), (embedded_store.shutil, "rmtree"), (embedded_store.EmbeddedStore, "apply"),
    (embedded_store.Path, "rename"), (sparql_store.SparqlStore, "_send"), (sparql_store.SparqlStore, "_note"),
    (sparql_store.SparqlStore, "_conclude"), (sparql_store.SparqlStore, "_check"),
]:
    dying(home, name)
from headwater.cli import main
sys.argv[1:] = sys.argv[2:]
main()
"""
"""The program, in which the step of this number is its last: before it or right after it."""


def statement(number: int, value: int) -> bytes:
    return f'<http://example.org/{number:04}> <http://example.org/p> "{value}" .\n'.encode()


def held(folder: Path) -> bytes:
    store = EmbeddedStore(folder / "oxigraph")
    target = io.BytesIO()
    store.write_statements(target)
    return b"".join(sorted(target.getvalue().splitlines(keepends=True)))


def start(source: Source, dest: Path, options: dict[str, str], step: int) -> subprocess.Popen[bytes]:
    more = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-c", _PHASES, str(step), "sync", source.base, str(dest), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_killed_at_every_step_and_anywhere(source: Source, dest: Path, tmp_path: Path) -> None:
    chance = random.Random(20261123)
    site = Site(source)
    values = [0] * _STATEMENTS
    with sparql_server() as server:
        options = {"store": str(tmp_path / "s"), "sparql": server.update_url, "sparql_query": server.query_url}
        killed = 0
        for number in range(KILLS):
            for changed in chance.sample(range(_STATEMENTS), 120 if number % 3 else 3):
                values[changed] += 1
            body = b"".join(statement(n, value) for n, value in enumerate(values))
            site.put("dataset.nq", body)
            site.publish()
            at_step = number % 5 != 4
            process = start(source, dest, options, chance.randrange(1, 40) if at_step else 0)
            if not at_step:
                asked = len(server.requests) + chance.randrange(1, 12)

                def due(process: subprocess.Popen[bytes] = process, asked: int = asked) -> bool:
                    return process.poll() is not None or len(server.requests) >= asked

                until(due, _LONGEST_SECONDS, pause=0.002)
                process.send_signal(signal.SIGKILL)
            killed += process.wait(_LONGEST_SECONDS) == -signal.SIGKILL
            if number % 2:
                continue  # the next change comes before what was begun is finished
            deadline = time.monotonic() + _LONGEST_SECONDS
            while (ran := go(source.base, dest, **options)).status != DONE:  # type: ignore[arg-type]
                assert time.monotonic() < deadline, ran.notices
            assert (dest / "dataset.nq").read_bytes() == body
            assert held(tmp_path / "s" / "set") == body
            dataset = ran.one.dataset
            assert dataset is not None
            position = EmbeddedStore(tmp_path / "s" / "set" / "oxigraph").state().position
            assert position is not None
            assert position.sha256 == dataset.sha256
            audit = check(source.base, dest, **options)
            assert [one.verdict for one in audit.sets[0].stores] == ["same", "same"]
            left = {path.name for path in (tmp_path / "s" / "set").iterdir()}
            assert left == {".headwater-state", "oxigraph", "state.json", f"{dataset.sha256}.nq"}
        assert killed >= KILLS // 2
