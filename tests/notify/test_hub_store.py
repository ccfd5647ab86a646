"""What a hub remembers: who has ended is never taken for whoever comes after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.records import DeliveryOutcome, Payload
from headwater.notify.hub.requests import SubscriptionRequest
from headwater.notify.hub.store import HubStore


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
        store.record(tx, [DeliveryOutcome(added.due[0].id, 99, 0, None, None, is_gone)])
        again = store.add(tx, Payload(topic="http://t.example/b", media_type="a/b", body=b"b"), 2.0, once=False)
    assert again is not None
    assert [(one.callback, one.position) for one in again.due] == [("http://s.example/b", 0)]


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
