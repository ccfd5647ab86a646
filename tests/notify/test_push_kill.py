"""Source and hub are killed and paused at random, requests and answers lost: every change arrives, in order.

HEADWATER_KILLS sets how often (default 4).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalog.cluster_proxy import Proxy
from tests.notify.hub_process import HubProcess
from tests.notify.subscriber import Came, Subscriber
from tests.notify.test_publisher import Served, is_chain, names, served, told
from tests.support.documents import read_bytes
from tests.support.serving import request
from tests.support.waiting import until

KILLS = int(os.environ.get("HEADWATER_KILLS", "4"))
SETTINGS = 'batch_seconds = 0.0\nframework_seconds = 0.2\ntoken = "a-token-of-the-tests"\n'

pytestmark = pytest.mark.long(10)


@pytest.fixture
def far() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def disturb(victim: Served | HubProcess, chance: random.Random) -> str:
    """Kill a process and start it again, or pause it."""
    process = victim.process.process if isinstance(victim, Served) else victim.process
    if chance.random() < 0.3:
        process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0.0, 0.5))
        process.send_signal(signal.SIGCONT)
        return "pause"
    victim.kill()
    victim.start()
    return "kill"


def test_nothing_is_lost_whatever_dies(tmp_path: Path, far: Subscriber) -> None:
    chance = random.Random(KILLS)
    hub = HubProcess(tmp_path / "hub")
    proxy = Proxy(hub.url.rstrip("/"), seed=1, rarity=9)
    done = {"kill": 0, "pause": 0}
    wrote = 0
    try:
        with served(tmp_path, [f"{proxy.url}/"], SETTINGS) as source:
            framework = f"{source.url}files/frameworknotification.xml"
            for topic, path in ((source.topic, "/changes"), (framework, "/documents")):
                assert hub.ask("subscribe", topic, far.url + path)[0] == 202
            far.wait(lambda: hub.counts()["subscriptions"] == 2)
            while done["kill"] < KILLS:
                for _ in range(chance.randrange(1, 12)):
                    source.write(f"{wrote}.txt")
                    wrote += 1
                time.sleep(chance.uniform(0.0, 0.15))
                done[disturb(chance.choice((source, hub)), chance)] += 1
            until(lambda: len(source.changes()) == wrote)
            far.wait(lambda: len(names(far.deliveries("/changes"))) >= wrote, 60)
            expected = [one.loc.rpartition("/")[2] for one in source.changes()]
            assert names(far.deliveries("/changes")) == expected
            assert is_chain(far.deliveries("/changes"))
            until(lambda: is_told(source, far.deliveries("/documents")))
            updates = [one for one in told(far.deliveries("/documents"), "framework-notification") if one[1]]
            assert {entry.loc for _, some in updates for entry in some} <= documents_of(source)
    finally:
        hub.kill()
        proxy.close()
    print(f"{wrote} changes, {done}, {dict(proxy.faults)}")


def is_told(source: Served, came: list[Came]) -> bool:
    """Whether the newest notification of documents has arrived, and nothing has changed since."""
    newest = request(source.url, "/files/frameworknotification.xml").body
    changed_at = max(one.datetime for one in source.changes() if one.datetime is not None)
    told_at = max((one.datetime for one in read_bytes(newest)[1] if one.datetime is not None), default=changed_at)
    return any(one.body == newest for one in came) and told_at >= changed_at


def documents_of(source: Served) -> set[str]:
    names = ("files/capabilitylist.xml", "files/resourcelist.xml", "files/changelist.xml", ".well-known/resourcesync")
    return {source.url + name for name in names}
