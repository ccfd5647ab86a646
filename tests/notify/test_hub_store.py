"""What a hub remembers: who has ended is never taken for whoever comes after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.errors import HeadwaterError, StoreFault
from headwater.notify.group_commit import GroupCommit
from headwater.notify.hub import queues
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import AddressPolicy, HubLimits, HubOptions, SubscriptionRequest
from headwater.notify.hub.store import (
    AddedMessage,
    DueSubscription,
    HubCounts,
    HubStore,
    Intent,
    Message,
    Payload,
    TopicCounts,
)
from headwater.storage.transaction import Transaction
from tests.notify.subscriber import Subscriber
from tests.notify.test_hub_bounds import TOPIC, URL, subscribe, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HubStore]:
    one = HubStore(tmp_path, HubLimits())
    yield one
    one.close()


def request(name: str, *, is_unsubscribe: bool = False) -> SubscriptionRequest:
    return SubscriptionRequest(
        is_unsubscribe=is_unsubscribe, topic=f"http://t.example/{name}", callback=f"http://s.example/{name}"
    )


def settled(store: HubStore, name: str, *, is_unsubscribe: bool = False, at: float = 0.0) -> None:
    with store.database.write() as tx:
        intent = store.ask(tx, request(name, is_unsubscribe=is_unsubscribe), at)
        store.settle(tx, intent, is_confirmed=True, asked_at=at)


def test_what_a_request_has_taken_the_place_of_takes_no_effect_ws_h_04(store: HubStore) -> None:
    """Even where the callback confirms the former one later."""
    with store.database.write() as tx:
        former = store.ask(tx, request("a"), 0.0)
        later = store.ask(tx, request("a", is_unsubscribe=True), 1.0)
        store.settle(tx, former, is_confirmed=True, asked_at=0.0)
    assert store.intents() == [later]
    assert store.counts().subscriptions == 0


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_comes_of_a_delivery_concerns_no_later_subscription(store: HubStore, is_gone: bool) -> None:
    settled(store, "a")
    with store.database.write() as tx:
        added = store.add(tx, Payload(topic="http://t.example/a", media_type="a/b", body=b"a"), 1.0, once=False)
    assert added is not None
    settled(store, "a", is_unsubscribe=True)
    settled(store, "b")
    with store.database.write() as tx:
        if is_gone:
            store.end(tx, added.due[0].id, added.due[0].expires_at)
        else:
            received(store, tx, added.due[0], 99)
        again = store.add(tx, Payload(topic="http://t.example/b", media_type="a/b", body=b"b"), 2.0, once=False)
    assert again is not None
    assert [(one.callback, one.position) for one in again.due] == [("http://s.example/b", 0)]


def test_a_410_ends_no_subscription_that_was_confirmed_since(store: HubStore) -> None:
    """WS-H-04, WS-H-13: who says so may ask again at once, before the hub has written it down."""
    settled(store, "a")
    with store.database.write() as tx:
        added = store.add(tx, Payload(topic="http://t.example/a", media_type="a/b", body=b"a"), 1.0, once=False)
    assert added is not None
    (due,) = added.due
    settled(store, "a", at=2.0)
    with store.database.write() as tx:
        (renewed,) = store.end(tx, due.id, due.expires_at)
    assert (renewed.id, renewed.position, store.counts().subscriptions) == (due.id, 0, 1)
    with store.database.write() as tx:
        assert store.end(tx, due.id, renewed.expires_at) == []
    assert store.counts().subscriptions == 0


def test_a_topic_is_not_taken_for_one_that_was_forgotten(store: HubStore) -> None:
    """Messages are kept at hand by the number of their topic."""
    with store.database.write() as tx:
        first = store.add(tx, Payload(topic="http://t.example/a", media_type="a/b", body=b"a"), 1.0, once=False)
        store.tidy(tx, 1e9)
        second = store.add(tx, Payload(topic="http://t.example/b", media_type="a/b", body=b"b"), 1e9, once=False)
    assert first is not None
    assert second is not None
    assert first.topic_id != second.topic_id


def test_word_of_somebody_known_is_not_taken_back_by_a_stranger_rs_nt_07(store: HubStore) -> None:
    """Until the topic was fetched; then it is a stranger's word alone."""
    topic = "http://t.example/a"
    with store.database.write() as tx:
        said = [store.note_changed(tx, [topic], float(n), is_trusted=n == 1)[0].is_trusted for n in (0, 1, 2)]
        store.fetched(tx, topic, 2.0)
        said += [one.is_trusted for one in store.note_changed(tx, [topic], 3.0, is_trusted=False)]
    assert said == [False, True, True, False]


def test_a_topic_that_was_noted_again_while_it_was_fetched_is_fetched_once_more(tmp_path: Path) -> None:
    """Also by the next start of the hub: what was fetched may be of before."""
    topic = "http://t.example/a"
    store = HubStore(tmp_path, HubLimits())
    for noted_at in (1.0, 2.0):
        with store.database.write() as tx:
            store.note_changed(tx, [topic], noted_at, is_trusted=True)
    with store.database.write() as tx:
        store.fetched(tx, topic, 1.0)
    store.close()
    store = HubStore(tmp_path, HubLimits())
    assert [(one.topic, one.noted_at) for one in store.changed()] == [(topic, 2.0)]
    with store.database.write() as tx:
        store.fetched(tx, topic, 2.0)
    assert store.changed() == []
    store.close()


def received(
    store: HubStore, tx: Transaction, one: DueSubscription, position: int, due_at: float | None = None
) -> list[DueSubscription]:
    return store.record(tx, msgspec.structs.replace(one, position=position), due_at)


def told(store: HubStore, name: str, body: bytes, at: float, *, once: bool = False) -> AddedMessage | None:
    payload = Payload(topic=f"http://t.example/{name}", media_type="a/b", body=body, links=("<x>; rel=y",))
    with store.database.write() as tx:
        return store.add(tx, payload, at, once=once)


def kept(store: HubStore, topic_id: int) -> list[bytes]:
    """The bodies of the messages that are held for a topic, the oldest first."""
    found, position = [], 0
    while isinstance(message := store.message_after(topic_id, position), Message):
        found.append(message.body)
        position = message.seq
    return found


def subscribed(store: HubStore, topic: str, callback: str, at: float = 0.0) -> str | None:
    """Ask for a subscription and confirm it; the denial, if there is one."""
    asked = SubscriptionRequest(is_unsubscribe=False, topic=f"http://t.example/{topic}", callback=callback)
    with store.database.write() as tx:
        intent = store.ask(tx, asked, at)
        if intent.denial is None:
            store.settle(tx, intent, is_confirmed=True, asked_at=at)
    return intent.denial


def test_all_of_an_intent_is_there_after_a_restart(tmp_path: Path) -> None:
    """Else a request that was answered 202 is asked for at another address, at another time, or with another secret."""
    limits = HubLimits(subscriptions=0)
    asked = SubscriptionRequest(
        is_unsubscribe=False,
        topic="http://t.example/a",
        callback="https://s.example/b",
        secret=b"s",
        lease_seconds=7_777,
    )
    store = HubStore(tmp_path, limits)
    with store.database.write() as tx:
        intent = store.ask(tx, asked, 12.5)
        later = msgspec.structs.replace(intent, tries=3, due_at=99.5)
        store.put_off(tx, later)
    store.close()
    assert intent.denial is not None
    assert (intent.host, intent.lease_seconds, intent.secret, intent.due_at) == ("s.example:443", 7_777, b"s", 12.5)
    again = HubStore(tmp_path, limits)
    assert again.intents() == [later]
    again.close()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (HubLimits(subscriptions=2), [None, None, "hub", None]),
        (HubLimits(host_subscriptions=1), [None, None, "host", None]),
        (HubLimits(subscriptions=3, host_subscriptions=2), [None, None, None, None]),
    ],
)
def test_the_last_subscription_there_is_room_for_and_the_first_there_is_not(
    tmp_path: Path, limits: HubLimits, said: list[str | None]
) -> None:
    """A renewal is none more, however full the hub is."""
    store = HubStore(tmp_path, limits)
    asked = [("a", "http://one.example/"), ("a", "http://two.example/"), ("b", "http://one.example/")]
    for (topic, callback), why in zip([*asked, asked[0]], said, strict=True):
        denial = subscribed(store, topic, callback)
        assert denial is None if why is None else denial is not None and why in denial
    assert store.counts().subscriptions == sum(one is None for one in said[:3])
    store.close()


def test_what_is_not_confirmed_takes_no_effect_ws_h_04(store: HubStore) -> None:
    """Else anybody could have anybody subscribed, or unsubscribed."""
    with store.database.write() as tx:
        assert store.settle(tx, store.ask(tx, request("a"), 0.0), is_confirmed=False, asked_at=0.0) is None
    assert (store.intents(), store.counts().subscriptions) == ([], 0)
    settled(store, "a")
    with store.database.write() as tx:
        refused = store.ask(tx, request("a", is_unsubscribe=True), 1.0)
        assert store.settle(tx, refused, is_confirmed=False, asked_at=1.0) is None
    assert store.counts().subscriptions == 1


def test_who_confirms_when_there_is_no_room_any_more_is_denied(tmp_path: Path) -> None:
    """Both were answered while there was room for one; the later is told, as if it had been full before."""
    store = HubStore(tmp_path, HubLimits(subscriptions=1))
    asked = SubscriptionRequest(
        is_unsubscribe=False,
        topic="http://t.example/a",
        callback="http://two.example/",
        secret=b"s",
        lease_seconds=7777,
    )
    with store.database.write() as tx:
        first, second = store.ask(tx, request("a"), 1.0), store.ask(tx, asked, 2.0)
        assert (first.denial, second.denial) == (None, None)
        assert store.settle(tx, first, is_confirmed=True, asked_at=3.0) is None
        denied = store.settle(tx, second, is_confirmed=True, asked_at=4.0)
    assert isinstance(denied, Intent)
    assert denied.denial is not None
    assert denied == msgspec.structs.replace(second, id=denied.id, denial=denied.denial)
    assert (store.intents(), store.counts().subscriptions) == ([denied], 1)
    store.close()


def test_a_renewal_keeps_what_is_still_to_be_delivered_and_ends_with_the_new_lease(store: HubStore) -> None:
    settled(store, "a", at=0.0)
    added = told(store, "a", b"1", 5.0)
    assert added is not None
    with store.database.write() as tx:
        intent = store.ask(tx, request("a"), 50.0)
        due = store.settle(tx, intent, is_confirmed=True, asked_at=50.0)
    assert due == msgspec.structs.replace(added.due[0], expires_at=50.0 + intent.lease_seconds)
    assert list(store.due()) == [due]
    with store.database.write() as tx:
        gone = store.settle(
            tx, store.ask(tx, request("a", is_unsubscribe=True), 60.0), is_confirmed=True, asked_at=60.0
        )
    assert gone == added.due[0].id
    assert list(store.due()) == []


def test_octets_that_came_last_are_told_again_only_where_that_is_meant(store: HubStore) -> None:
    """A notification that says the same as the one before is told (the topic may have changed twice)."""
    settled(store, "a")
    said = [told(store, "a", body, at, once=once) for at, (body, once) in enumerate(
        [(b"1", True), (b"1", True), (b"1", False), (b"2", True), (b"1", True)], start=1
    )]  # fmt: skip
    assert [None if one is None else one.message.seq for one in said] == [1, None, 2, 3, 4]


@pytest.mark.parametrize(
    ("limits", "bodies", "left"),
    [
        (HubLimits(topic_messages=2), [b"1", b"2"], [b"1", b"2"]),
        (HubLimits(topic_messages=2), [b"1", b"2", b"3"], [b"2", b"3"]),
        (HubLimits(topic_octets=3), [b"1", b"22"], [b"1", b"22"]),
        (HubLimits(topic_octets=3), [b"1", b"2", b"33"], [b"2", b"33"]),
        (HubLimits(topic_octets=3), [b"1", b"4444"], [b"4444"]),  # alone it is not given up
        (HubLimits(topic_octets=3), [b"1", b"2", b"3", b"444"], [b"444"]),
    ],
)
def test_beyond_the_bounds_of_a_topic_its_oldest_are_given_up_and_no_more(
    tmp_path: Path, limits: HubLimits, bodies: list[bytes], left: list[bytes]
) -> None:
    store = HubStore(tmp_path, limits)
    settled(store, "a")
    added = [told(store, "a", body, float(at)) for at, body in enumerate(bodies)][-1]
    assert added is not None
    assert kept(store, added.topic_id) == left
    assert store.message_after(added.topic_id, len(bodies)) == len(bodies)
    store.close()


def test_a_message_is_read_as_it_came(store: HubStore) -> None:
    settled(store, "a")
    added = told(store, "a", b"body", 1.0)
    assert added is not None
    assert added.message == Message(
        topic="http://t.example/a", seq=1, media_type="a/b", links=("<x>; rel=y",), body=b"body"
    )
    assert store.message_after(added.topic_id, 0) == added.message
    assert store.message_after(added.topic_id, 1) == 1


def test_who_has_everything_is_due_again_where_more_has_come_meanwhile(store: HubStore) -> None:
    """Else the last message waits for the one after it. What is given up is gone, and what failed keeps its time."""
    for name in ("a", "b", "c"):
        settled(store, name)
    due: dict[str, DueSubscription] = {}
    for name in ("a", "b", "c"):
        added = told(store, name, b"1", 1.0)
        assert added is not None
        due[name] = added.due[0]
    told(store, "a", b"2", 3.0)  # while the first is under way
    with store.database.write() as tx:
        again = received(store, tx, due["a"], 1)
        failed = msgspec.structs.replace(due["b"], failures=4)
        assert store.record(tx, failed, 77.0, "refused") == []
        assert store.end(tx, due["c"].id, due["c"].expires_at) == []
    assert [(one.id, one.position, one.due_at) for one in again] == [(due["a"].id, 1, 3.0)]
    assert sorted((one.id, one.position, one.failures, one.due_at) for one in store.due()) == [
        (due["a"].id, 1, 0, 3.0),
        (due["b"].id, 0, 4, 77.0),
    ]
    assert store.counts().subscriptions == 2


def first_lease_end(store: HubStore) -> float:
    with store.database.read() as tx:
        return float(tx.value("SELECT min(expires_at) FROM subscriptions"))


def test_a_lease_ends_at_its_last_second_and_only_its_own_subscription_ws_h_09(store: HubStore) -> None:
    settled(store, "a", at=0.0)
    settled(store, "b", at=1.0)
    end = first_lease_end(store)
    with store.database.write() as tx:
        assert store.tidy(tx, end - 0.5) == []
        ended = store.tidy(tx, end)
        assert store.tidy(tx, end) == []
    assert len(ended) == 1
    assert first_lease_end(store) == end + 1.0
    added = told(store, "b", b"1", end)
    assert added is not None
    assert [one.expires_at for one in added.due] == [end + 1.0]
    with store.database.write() as tx:
        received(store, tx, added.due[0], 1)
    late = told(store, "b", b"2", end + 1.0)
    assert late is not None
    assert late.due == []


def test_a_message_is_kept_as_long_as_one_waits_for_it_and_it_is_not_too_old_ws_h_13(tmp_path: Path) -> None:
    store = HubStore(tmp_path, HubLimits(message_seconds=100.0))
    for callback in ("http://one.example/", "http://two.example/"):
        subscribed(store, "a", callback)
    added = [told(store, "a", body, at) for body, at in ((b"1", 1.0), (b"2", 50.0), (b"3", 99.0))]
    first = added[0]
    assert first is not None

    def tidied(now: float) -> list[bytes]:
        with store.database.write() as tx:
            store.tidy(tx, now)
        return kept(store, first.topic_id)

    assert tidied(101.0) == [b"1", b"2", b"3"]
    assert tidied(101.5) == [b"2", b"3"]
    with store.database.write() as tx:
        received(store, tx, first.due[0], 3)
    assert tidied(102.0) == [b"2", b"3"]
    with store.database.write() as tx:
        received(store, tx, first.due[1], 2, 110.0)
    assert tidied(102.0) == [b"3"]
    with store.database.write() as tx:
        received(store, tx, first.due[1], 3)
    assert tidied(102.0) == []
    assert store.message_after(first.topic_id, 0) == 3
    store.close()


def test_a_topic_is_forgotten_when_it_is_old_and_nobody_has_subscribed_to_it(tmp_path: Path) -> None:
    """Else whoever posts to addresses of his own fills the hub; forgotten too soon, a payload would be told twice."""
    store = HubStore(tmp_path, HubLimits(message_seconds=100.0))
    settled(store, "subscribed")
    for name in ("subscribed", "alone"):
        told(store, name, b"1", 10.0)

    def left(now: float) -> list[str]:
        with store.database.write() as tx:
            store.tidy(tx, now)
        return [one.topic.rpartition("/")[2] for one in store.topics(10)]

    assert left(110.0) == ["subscribed", "alone"]
    assert left(110.5) == ["subscribed"]
    store.close()


def test_beyond_the_bound_of_all_the_topic_that_has_most_gives_its_oldest_up(tmp_path: Path) -> None:
    store = HubStore(tmp_path, HubLimits(message_octets=6))
    for name in ("a", "b"):
        settled(store, name)
    added = {}
    for name, body in (("a", b"11"), ("a", b"22"), ("a", b"33"), ("b", b"4")):
        added[name] = told(store, name, body, 1.0)
        with store.database.write() as tx:
            store.tidy(tx, 1.0)
    assert {name: kept(store, one.topic_id) for name, one in added.items() if one} == {"a": [b"22", b"33"], "b": [b"4"]}
    store.close()


def test_topics_give_way_in_turn_each_while_it_has_most(tmp_path: Path) -> None:
    store = HubStore(tmp_path, HubLimits(message_octets=6))
    added = {}
    for name, body in (("a", b"11"), ("a", b"22"), ("a", b"33"), ("b", b"55555")):
        settled(store, name)
        added[name] = told(store, name, body, 1.0)
    with store.database.write() as tx:
        store.tidy(tx, 1.0)
    assert {name: kept(store, one.topic_id) for name, one in added.items() if one} == {"a": [b"22", b"33"], "b": []}
    store.close()


def test_how_a_hub_and_its_topics_stand(store: HubStore) -> None:
    for callback in ("http://one.example/", "http://two.example/", "http://three.example/"):
        subscribed(store, "a", callback)
    told(store, "b", b"1", 3.0)
    told(store, "a", b"", 4.0)
    added = told(store, "a", b"22", 5.0)
    assert added is not None
    due = list(store.due())
    with store.database.write() as tx:
        received(store, tx, due[0], 2)
        store.record(tx, msgspec.structs.replace(due[1], failures=1), 9.0, "refused")
        store.ask(tx, request("c"), 6.0)
        store.note_changed(tx, ["http://t.example/b"], 7.0, is_trusted=True)
    assert store.counts() == HubCounts(
        topics=2, subscriptions=3, behind=2, failing=1, pending=1, messages=2, message_octets=2, changed_topics=1
    )
    one = TopicCounts(
        topic="http://t.example/a", subscriptions=3, behind=2, failing=1, messages=2, last_seq=2, last_at=5.0
    )
    other = TopicCounts(
        topic="http://t.example/b", subscriptions=0, behind=0, failing=0, messages=0, last_seq=1, last_at=3.0
    )
    assert store.topics(10) == [one, other]
    assert store.topics(1) == [one]
    assert [(each.topic, each.noted_at) for each in store.changed()] == [("http://t.example/b", 7.0)]


def test_a_fault_in_a_transaction_of_several_ends_no_work_but_its_own(store: HubStore) -> None:
    """The others are written, each alone; where nothing can be written, each of them hears of it."""
    is_full = False

    @contextmanager
    def begin() -> Iterator[Transaction]:
        with store.database.write() as tx:
            yield tx
            if is_full:
                raise StoreFault("the disk is full")

    async def main() -> None:
        nonlocal is_full
        commits = GroupCommit(begin)

        def asked(name: str) -> Awaitable[Intent]:
            return commits.write(lambda tx: store.ask(tx, request(name), float(name)))

        found = await asyncio.gather(asked("1"), asked("odd"), asked("2"), return_exceptions=True)
        assert [type(one) for one in found] == [Intent, ValueError, Intent]
        is_full = True
        refused = await asyncio.gather(asked("3"), asked("4"), return_exceptions=True)
        assert [type(one) for one in refused] == [StoreFault, StoreFault]
        is_full = False
        await asked("5")
        await commits.close()

    asyncio.run(main())
    assert [one.topic[-1] for one in store.intents()] == ["1", "2", "5"]


def test_a_store_that_takes_nothing_is_told_of_once_for_all_and_nothing_is_delivered_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a subscriber has received is remembered as soon as that is possible (WS-H-13)."""
    heard: list[HeadwaterError] = []
    subscriber = Subscriber()
    monkeypatch.setattr(queues, "_FAULT_SECONDS", 1.0)

    async def main() -> None:
        hub = Hub(tmp_path, HubOptions(url=URL), AddressPolicy(["127.0.0.0/8"]), on_fault=heard.append)
        hub.start()
        try:
            for number in range(20):
                await subscribe(hub, TOPIC, f"{subscriber.url}/{number}")
            right = hub.store.record

            def refuse(*_: Any) -> Any:
                raise StoreFault("the disk is full")

            monkeypatch.setattr(hub.store, "record", refuse)
            assert await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"news"), is_trusted=True) is None
            await until(lambda: all(subscriber.deliveries(f"/{number}") for number in range(20)) and heard)
            monkeypatch.setattr(hub.store, "record", right)
            await until(lambda: not hub.store.counts().behind)
        finally:
            await hub.close()

    asyncio.run(main())
    subscriber.close()
    assert [len(subscriber.deliveries(f"/{number}")) for number in range(20)] == [1] * 20
    assert 1 <= len(heard) < 5
