"""The store of a service in SQLite: the contract, processes that are killed, and reading by others."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore, existing_store, store_to_read
from headwater.aggregator.store import Life, RunRecord
from headwater.errors import UsageFault
from tests.aggregator.store_contract import LEASE, T0, StoreContract, at, event, leased, state

pytestmark = pytest.mark.long(15)

KILLS = int(os.environ.get("HEADWATER_KILLS", "16"))
"""Kills of a worker; set the variable for a longer siege."""


class SqliteBackend:
    """Stores in one folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def fresh(self) -> SqliteStore:
        return SqliteStore(self._file)

    again = fresh


class TestSqliteStore(StoreContract):
    """The contract."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> SqliteBackend:
        return SqliteBackend(tmp_path)


def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / FILE) as store:
        store.enrol([("museum", "https://m.example.org/")], T0)
        run = leased(store)
        store.append(run, [event()], T0)
    with SqliteStore(tmp_path / FILE) as store:
        assert store.running() == [run]
        assert store.append(run, [event()], T0) == 1


def test_a_store_is_read_without_a_change_and_none_is_made(tmp_path: Path) -> None:
    for opening in (store_to_read, existing_store):
        with pytest.raises(UsageFault, match="no service has run"), opening(tmp_path) as store:
            store.events(0)
    assert list(tmp_path.iterdir()) == []
    with SqliteStore(tmp_path / HOME / FILE) as writing:
        writing.enrol([("museum", "https://m.example.org/")], T0)
        writing.append(leased(writing), [event()], T0)
        for opening in (store_to_read, existing_store):
            with opening(tmp_path) as store:
                assert len(store.events(0)) == 1


BATCH = 7


def work(file: str, worker: str) -> None:
    """Runs without an end, each of a few batches: numbered resources, as far as the state of the source leads."""
    with SqliteStore(Path(file)) as store:
        store.release(worker, T0)
        print("ready", flush=True)
        while True:
            run = store.lease("museum", "sync", worker, T0, LEASE)
            assert run is not None
            first = state(store).resources
            for n in range(first, first + 3 * BATCH, BATCH):
                store.append(run, [event(f"{n + i}.xml") for i in range(BATCH)], T0)
            done = state(store).resources + 3 * BATCH
            after = state(store)
            ended = RunRecord(
                number=run.number, name="museum", kind="sync", began_at=T0, ended_at=at(1), exit_status=0, created=done
            )
            store.end(run, ended, type(after)(name="museum", url=after.url, life=Life.FOLLOWING, resources=done))
            print(done, flush=True)


def test_kills_lose_double_and_hold_nothing(tmp_path: Path) -> None:
    """Whatever a worker has said to be done is there once, in order; the source is free again at once."""
    file = tmp_path / FILE
    chance = random.Random(1)
    with SqliteStore(file) as store:
        store.enrol([("museum", "https://m.example.org/")], T0)
        for n in range(KILLS):
            command = [sys.executable, "-c", f"from {__name__} import work; work({str(file)!r}, 'w{n}')"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.1)
            process.send_signal(signal.SIGKILL)
            said = [int(line) for line in process.stdout.read().split()]
            process.stdout.close()
            assert process.wait() == -signal.SIGKILL
            store.release(f"w{n}", T0)
            assert store.running() == []
            done = state(store).resources
            assert done >= max(said, default=0)
            paths = [int(one.path.removesuffix(".xml")) for one in store.events(0, limit=1_000_000)]
            assert paths == list(range(len(paths)))
            assert done <= len(paths) <= done + 3 * BATCH
            assert len(paths) % BATCH == 0
            sound = [one for one in store.runs("museum", limit=1_000) if one.exit_status == 0]
            assert max((one.created for one in sound), default=0) == done
    assert done > 0
