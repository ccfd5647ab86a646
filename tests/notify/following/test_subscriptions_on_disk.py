"""What is on disk of subscriptions is what the subscriber holds of them, in whatever order hubs ask."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import msgspec
import pytest

from headwater.copy_state import NotificationChannel
from headwater.notify.http_client import HttpClient
from headwater.notify.subscriber import SubscribedCopy, Subscriber, TopicState
from headwater.notify.subscriber_hubs import IntentQuery
from headwater.notify.subscriber_store import SubscriberStore, Subscription, SubscriptionState
from tests.notify.following.pushing import Hub
from tests.notify.following.test_subscriber_decisions import HELD, TOPIC
from tests.support.fake_source import Source

_COUNT = 100


async def _run_until_asked(subscriber: Subscriber, hub: Hub, topic: str) -> None:
    work = asyncio.ensure_future(subscriber.run())
    async with asyncio.timeout(30):
        while not hub.of(topic):
            await asyncio.sleep(0.02)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def test_what_comes_last_is_on_disk_last(tmp_path: Path) -> None:
    """WS-S-06, WS-S-13: a hub verifies while its answer is noted, or denies at once what it has verified."""
    store = SubscriberStore(tmp_path)
    tokens = [f"t{number}" for number in range(_COUNT)]
    with store.write() as t:
        for token in tokens:
            store.add(t, msgspec.structs.replace(HELD, token=token))

    async def main() -> list[Subscription]:
        copy = SubscribedCopy(store, lambda: None, lambda _what, _where: None)
        client = HttpClient(lambda _address: None, user_agent="test")
        subscriber = Subscriber(client, "http://127.0.0.1:1/")
        subscriber.add(copy)
        await asyncio.sleep(0)
        verified = IntentQuery(mode="subscribe", topic=TOPIC, challenge="c", lease_seconds="600")
        denied = IntentQuery(mode="denied", topic=TOPIC, reason="no")
        await asyncio.gather(*(subscriber.verify(token, asked) for token in tokens for asked in (verified, denied)))
        await copy.writer.close()
        client.close()
        return list(copy.held.values())

    held = asyncio.run(main())
    assert {one.state for one in held} == {SubscriptionState.DENIED}
    assert store.subscriptions() == held
    store.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_back_delays_no_renewal(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """WS-S-08: the hub counts by a clock of its own."""
    hub, clock, day = Hub(source, verifies=False), time.time, 86_400
    store = SubscriberStore(tmp_path)
    now = clock() + (day if is_restarted else 0)  # by a clock that was a day ahead
    topic, times = "http://127.0.0.1:1/topic", {"asked_at": now, "next_at": now + 1, "ends_at": now + 900}
    named = {"topic": topic, "channel": topic, "hub": hub.url}
    with store.write() as t:
        store.add(t, msgspec.structs.replace(HELD, state=SubscriptionState.ACTIVE, **named, **times))
    channel = NotificationChannel(kind=HELD.kind, identity=HELD.identity, topic=topic, hubs=(hub.url,))

    async def main() -> None:
        copy = SubscribedCopy(store, lambda: None, lambda _what, _where: None)
        client = HttpClient(lambda _address: None, user_agent="test")
        subscriber = Subscriber(client, "http://127.0.0.1:1/")
        subscriber.add(copy)
        # after a restart it is the first poll that tells what is wanted
        asyncio.get_running_loop().call_later(0.3 * is_restarted, subscriber.want, copy, [channel])
        await asyncio.sleep(0)
        copy.topics[topic] = TopicState(math.inf)  # nothing but the renewal asks
        if not is_restarted:
            monkeypatch.setattr(time, "time", lambda: clock() - day)
        assert not copy.is_pushed(topic, now + 950)
        assert not is_restarted or not copy.is_pushed(topic, clock() + 950)
        await _run_until_asked(subscriber, hub, topic)
        await copy.writer.close()
        client.close()

    asyncio.run(main())
    store.close()
