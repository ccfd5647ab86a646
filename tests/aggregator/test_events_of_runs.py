"""What runs tell the journal: the copy is what the events lead to, also after kills, and nothing is told twice."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.aggregator.events import moved_events, new_events
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.sync.copy_status import copy_records
from headwater.sync.reports import Done
from headwater.sync.run import sync
from tests.aggregator.store_contract import LEASE, T0
from tests.support.fake_source import Reply, Site, Source

pytestmark = pytest.mark.long(20)

KILLS = int(os.environ.get("HEADWATER_KILLS", "12"))


def run_once(url: str, folder: Path) -> None:
    """A worker's run: each batch is in the journal before the copy counts it as told."""
    with SqliteStore(folder / FILE) as store:
        store.release("w", T0)
        run = store.lease("museum", "sync", "w", T0, LEASE)
        assert run is not None
        print("ready", flush=True)

        def tell(batch: list[Done]) -> None:
            store.append(run, new_events("museum", batch), dt.datetime.now(dt.UTC))

        sync(url, folder / "museum", each_batch=tell, batch_size=10)
        store.release("w", T0)


def led_to(store: SqliteStore) -> dict[str, str | None]:
    """The files and their hashes that the events lead to."""
    held: dict[str, str | None] = {}
    before: dict[str, tuple[str, str | None]] = {}
    for one in store.events(0, limit=1_000_000):
        assert before.get(one.path) != (one.action, one.hash), "told twice"
        before[one.path] = one.action, one.hash
        held[one.path] = one.hash
        if one.action == "deleted":
            del held[one.path]
    return held


def copied(folder: Path) -> dict[str, str | None]:
    return {one.path: one.hash for one in copy_records(folder / "museum")}


def test_events_lead_to_the_copy_after_kills(tmp_path: Path) -> None:
    chance = random.Random(3)
    with Source() as source, SqliteStore(tmp_path / FILE) as store:
        store.enrol([("museum", source.base)], T0)
        site = Site(source)
        for n in range(150):
            site.put(f"{n}.xml", b"<a>%d</a>" % n)
        site.publish()
        command = [sys.executable, "-c", f"from pathlib import Path; from {__name__} import run_once; run_once({source.base!r}, Path({str(tmp_path)!r}))"]  # fmt: skip  # noqa: E501
        killed = 0
        for round_ in range(KILLS):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.stdout.close()
            killed += process.wait() == -signal.SIGKILL
            for n in chance.sample(range(150), 20):
                site.put(f"{n}.xml", b"<a>%d of %d</a>" % (n, round_))
            site.put(f"new-{round_}.xml", b"<new/>")
            if round_:
                site.drop(f"new-{round_ - 1}.xml")
            site.publish()
        run_once(source.base, tmp_path)
        assert killed > KILLS / 4
        assert led_to(store) == copied(tmp_path)
        assert len(copied(tmp_path)) == 151
        numbers = [one.number for one in store.events(0, limit=1_000_000)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_move_is_told_once(tmp_path: Path) -> None:
    with Source() as old, Source() as new, SqliteStore(tmp_path / FILE) as store:
        store.enrol([("museum", old.base)], T0)
        for source in (old, new):
            site = Site(source)
            for n in range(3):
                site.put(f"{n}.xml", b"<a>%d</a>" % n)
            site.publish()
        run_once(old.base, tmp_path)
        old.pages = {
            path: Reply(status=301, headers={"Location": new.base.rstrip("/") + path}, etag=False) for path in old.pages
        }
        from headwater.sync.options import SyncOptions

        sync(old.base, tmp_path / "museum", SyncOptions(allow_hosts=("127.0.0.1",)))
        run = store.lease("museum", "sync", "w", T0, LEASE)
        assert run is not None
        moved = list(moved_events(store, "museum", copy_records(tmp_path / "museum")))
        assert [(one.action, one.uri.startswith(new.base)) for one in moved] == [("moved", True)] * 3
        store.append(run, moved, T0)
        store.append(run, moved, T0)
        assert store.last_number() == 6
