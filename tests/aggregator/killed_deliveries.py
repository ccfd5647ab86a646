"""Kills deliveries of a journal at random moments, and looks at what sinks have: `killed_deliveries FOLDER KILLS`."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headwater.aggregator.configuration import AggregatorConfig, SinkConfig
from headwater.aggregator.sink_kinds import opened
from headwater.aggregator.sinks import Delivery
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import Event
from tests.aggregator.store_contract import LEASE, T0, event

APPENDED = 40  # for each kill
NAMES = ("keeper", "file", "table", "command")


class Keeper:
    """A sink as a user would write one: what it does and the last number are one transaction."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE IF NOT EXISTS got(number INTEGER, path TEXT)")

    def apply(self, events: Sequence[Event]) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        (last,) = self._database.execute("SELECT coalesce(max(number), 0) FROM got").fetchone()
        for one in events:
            if one.number > last:
                self._database.execute("INSERT INTO got VALUES (?, ?)", (one.number, one.path))
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def configuration(folder: Path) -> AggregatorConfig:
    script = f"exec cat >> {folder / 'received.ndjson'}"
    return AggregatorConfig(
        path=folder / "aggregate.toml",
        state=folder,
        sources=(),
        sinks=(
            SinkConfig(name="keeper", kind="test", batch=7),
            SinkConfig(name="file", kind="file", path=str(folder / "events.ndjson"), batch=7),
            SinkConfig(name="table", kind="sql", path=str(folder / "table.sqlite"), batch=7),
            SinkConfig(name="command", kind="command", command=f"sh -c '{script}'", batch=30),
        ),
    )


def deliver(folder: Path, *, until_empty: bool) -> None:
    config = configuration(folder)
    with SqliteStore(folder / FILE) as store:
        deliveries = {
            one.name: Delivery(
                config,
                one.name,
                Keeper(folder / "keeper.sqlite") if one.kind == "test" else opened(one, folder),
                store,
            )
            for one in config.sinks
        }
        while not until_empty or any(store.sink(name).waiting for name in NAMES):
            for delivery in deliveries.values():
                delivery.step()


def main(folder: Path, kills: int) -> None:
    chance = random.Random(7)
    with SqliteStore(folder / FILE) as store:
        store.enrol([("museum", "u:m")], T0)
        store.enrol_sinks(NAMES, T0)
    total = 0
    for _ in range(kills):
        with SqliteStore(folder / FILE) as store:
            run = store.lease("museum", "sync", "w", T0, LEASE)
            assert run is not None
            store.append(run, [event(f"{total + n}") for n in range(APPENDED)], T0)
            store.release("w", T0)
            total += APPENDED
        child = os.fork()
        if child == 0:
            deliver(folder, until_empty=False)
        time.sleep(chance.random() * 0.12)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    deliver(folder, until_empty=True)
    expected = [(n + 1, f"{n}") for n in range(total)]
    kept = sqlite3.connect(folder / "keeper.sqlite").execute("SELECT number, path FROM got ORDER BY rowid").fetchall()
    assert kept == expected, "keeper"
    lines = [json.loads(line) for line in (folder / "events.ndjson").read_bytes().splitlines()]
    assert [(one["number"], one["path"]) for one in lines] == expected, "file"
    rows = sqlite3.connect(folder / "table.sqlite").execute("SELECT number, path FROM headwater ORDER BY number")
    assert rows.fetchall() == expected, "table"
    last, repeated = 0, 0
    received = (folder / "received.ndjson").read_bytes()
    for line in received.splitlines():
        try:
            number = json.loads(line)["number"]
        except ValueError:
            continue  # the command was killed with its delivery, and wrote on its own
        repeated += number <= last
        assert number <= last + 1, "command: an event is missing"
        last = max(last, number)
    assert last == total, "command"
    print(f"kills {kills} events {total} repeated to the command {repeated}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
