"""The life of subscriptions: verified, renewed, denied, ended; hubs that die, lie, or grant odd leases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headwater.notify.subscriber import Subscriber
from headwater.notify.subscriber_store import push_status
from headwater.retry import Backoff
from tests.notify.following.pushing import (
    FRAMEWORK,
    Following,
    Hub,
    PushedSite,
    following,
    get,
    polls,
    post,
    pushed_site,
    signed,
    text,
)
from tests.support.fake_source import Source
from tests.support.waiting import until

pytestmark = pytest.mark.long(15)


def test_a_subscription_has_a_secret_and_a_callback_of_its_own(source: Source, hub: Hub, dest: Path) -> None:
    """RS-NT-08, WS-S-02, WS-S-04, WS-S-05."""
    site = pushed_site(source, hub.url, kinds=("change-notification", FRAMEWORK))
    with following((source.base, dest)) as copy:
        copy.at_work()
        until(lambda: len(hub.asked) == 2)
        assert {one.fields["hub.topic"] for one in hub.asked} == {site.topic(), site.topic(FRAMEWORK)}
        callbacks = {one.callback for one in hub.asked}
        assert len(callbacks) == 2
        assert all(one.startswith(copy.callbacks) and len(one.removeprefix(copy.callbacks)) >= 32 for one in callbacks)
        assert len({one.secret for one in hub.asked}) == 2
        assert all(32 <= len(one.secret) < 200 for one in hub.asked)


def test_a_bug_in_what_is_due_is_told_and_not_begun_again_at_once(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pause it would be begun thousands of times a second."""
    begun: list[float] = []

    async def broken(*_: object) -> None:
        begun.append(time.monotonic())
        raise ValueError("odd")

    with monkeypatch.context() as patched:
        patched.setattr(Subscriber, "_discover", broken)
        with following((site.source.base, dest)) as copy:
            until(lambda: copy.heard("ValueError: odd [HW-000]"))
            until(lambda: len(begun) > 1)
            assert begun[1] - begun[0] > 0.5
    with following((site.source.base, dest)) as copy:
        copy.at_work()


def test_a_subscription_is_renewed_with_another_callback_and_secret(site: PushedSite, hub: Hub, dest: Path) -> None:
    """RS-NT-13, WS-S-05, WS-S-08, RS-NT-17: the old one is ended once the new one holds."""
    hub.lease = "2"
    with following((site.source.base, dest)) as copy:
        copy.at_work()
        until(lambda: len(hub.of(site.topic())) >= 2)
        first, second = hub.of(site.topic())[:2]
        assert first.callback != second.callback
        assert first.secret != second.secret
        until(lambda: hub.of(site.topic(), "unsubscribe"))
        assert hub.of(site.topic(), "unsubscribe")[0].callback == first.callback
        until(lambda: any(mode == "unsubscribe" and status == 200 for mode, status, _ in hub.answers))
        assert post(first.callback, b"", {}) == 410
        hub.lease = "1000"
        time.sleep(0.1)
        site.put("new.txt", b"new")
        assert hub.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "new.txt") == "new")


@pytest.mark.parametrize("lease", ["0", "-1", "1000000000000000000", None, "soon"])
def test_odd_leases_are_taken_for_what_they_can_be(site: PushedSite, hub: Hub, dest: Path, lease: str | None) -> None:
    hub.lease = lease
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        time.sleep(0.3)
        assert len(hub.asked) == 1  # not again and again
        found = push_status(dest / ".headwater")
        assert found is not None
        ends = found.subscriptions[0].lease_ends
        assert ends is not None
        assert 200 < ends.timestamp() - time.time() <= 2_678_400


def test_verifications_of_what_nobody_asked_for_are_refused(copy: Following, site: PushedSite, hub: Hub) -> None:
    """WS-S-06: another topic, another mode, another challenge than there is."""
    asked = hub.subscription(site.topic())
    lie = {"hub.mode": "subscribe", "hub.topic": site.topic() + "?", "hub.challenge": "x", "hub.lease_seconds": "9"}
    assert get(asked.callback, lie)[0] == 404
    assert get(asked.callback, lie | {"hub.topic": site.topic(), "hub.mode": "unsubscribe"})[0] == 404
    assert get(asked.callback, {"hub.mode": "subscribe", "hub.topic": site.topic()})[0] == 404
    good = lie | {"hub.topic": site.topic(), "hub.challenge": "<x>&y"}
    assert get(asked.callback, good) == (200, b"<x>&y")  # again: the answer may have been lost


def test_a_subscription_that_is_not_verified_is_none(site: PushedSite, hub: Hub, dest: Path) -> None:
    hub.verifies = False
    with following((site.source.base, dest), seconds=0.3) as copy:
        until(lambda: hub.asked)
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")
        assert not copy.heard("push is at work")


def test_a_hub_that_has_not_verified_is_asked_again_soon(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-NT-13: its word may have been lost on the way."""
    monkeypatch.setattr("headwater.notify.subscriber_hubs.PAUSE", Backoff(0.1, 600.0))
    hub.verifies = False
    with following((site.source.base, dest)) as copy:
        until(lambda: len(hub.asked) > 1)
        assert hub.asked[0].callback == hub.asked[1].callback
        hub.verifies = True
        copy.at_work()
    assert copy.heard("the hub has accepted the request and does not verify it")


def test_what_was_not_verified_before_a_restart_is_asked_for_at_once(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.notify.subscriber_hubs.PAUSE", Backoff(500.0, 600.0))
    hub.verifies = False
    with following((site.source.base, dest)):
        until(lambda: hub.asked)
    hub.verifies = True
    with following((site.source.base, dest)) as copy:
        copy.at_work()


def test_while_a_hub_is_down_few_requests_ask_it_and_all_go_on_once_it_is_back(
    source: Source, hub: Hub, tmp_path: Path
) -> None:
    names = [f"set{number}" for number in range(12)]
    hub.status = 503
    sites = [pushed_site(source, hub.url, name=name) for name in names]
    source.pages["/.well-known/resourcesync"] = sites[0].described(*names)
    with following((source.base, tmp_path / "copy")) as copy:
        until(lambda: len(hub.asked) > 2)
        hub.status = 202
        copy.at_work()
    assert len(hub.asked) < 3 * len(names)


def test_a_denied_subscription_is_not_asked_for_again(site: PushedSite, hub: Hub, dest: Path) -> None:
    """WS-S-13: final; the source is polled."""
    hub.verifies = False
    with following((site.source.base, dest), seconds=0.3) as copy:
        until(lambda: hub.asked)
        told = {"hub.mode": "denied", "hub.topic": site.topic(), "hub.reason": "not you"}
        assert get(hub.asked[0].callback, told)[0] == 200
        until(lambda: copy.heard("the hub denies the subscription: not you"))
        body = site.notification()
        assert post(hub.asked[0].callback, body, signed(hub.asked[0].secret, body)) == 410
        before = polls(site)
        until(lambda: polls(site) > before + 2)
        assert len(hub.asked) == 1


def test_a_dead_hub_is_noticed_when_its_lease_ends(site: PushedSite, hub: Hub, dest: Path) -> None:
    hub.lease = "1"
    with following((site.source.base, dest), seconds=0.3) as copy:
        copy.at_work()
        hub.status, hub.lease = 503, "1000"
        until(lambda: copy.heard("push is not at work: the source is polled every 0.3 s"))
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")
        hub.status = 202
        until(lambda: len([one for one in copy.notices if "push is at work" in one.message]) == 2)


def test_what_a_hub_does_not_tell_comes_by_a_poll(site: PushedSite, hub: Hub, dest: Path) -> None:
    with following((site.source.base, dest), seconds=0.3, longest=0.6) as copy:
        copy.at_rest()
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")


def test_what_was_missed_while_nobody_listened_is_caught_up_with(site: PushedSite, hub: Hub, dest: Path) -> None:
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        callbacks = copy.callbacks
    site.put("new.txt", b"new")
    site.notification()  # lost
    site.publish_changes(10.0)
    with following((site.source.base, dest)) as copy:
        until(lambda: text(dest / "new.txt") == "new")
        assert copy.callbacks == callbacks  # the same port, and the subscription goes on
        assert len(hub.asked) == 1
        site.put("more.txt", b"more")
        assert hub.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "more.txt") == "more")


def test_a_hub_may_send_to_another_hub(site: PushedSite, hub: Hub, dest: Path) -> None:
    """WS-H-03, seen from here."""
    other = Hub(site.source, "/other")
    hub.status, hub.headers = 307, {"Location": other.url}
    with following((site.source.base, dest)) as copy:
        copy.at_work()
        assert [one.callback for one in other.asked] == [one.callback for one in hub.asked]


@pytest.mark.parametrize("address", ["", "/set/capabilitylist.xml"])
def test_channels_that_are_gone_are_unsubscribed_from(site: PushedSite, hub: Hub, dest: Path, address: str) -> None:
    """RS-FN-14: that they are gone is seen in the Capability List, which a Framework Notification names."""
    site.advertise(hub.url, kinds=("change-notification", FRAMEWORK))
    with following((site.source.base + address, dest)) as copy:
        copy.at_work()
        until(lambda: len(hub.answers) == 2)
        framework = hub.of(site.topic(FRAMEWORK))[0]
        site.advertise(hub.url, kinds=(FRAMEWORK,))
        site.tell_documents(hub, f"{site.root}/capabilitylist.xml", capability="capabilitylist")
        until(lambda: hub.of(site.topic(), "unsubscribe"))
        until(lambda: copy.heard("push is not at work"))
        assert framework.callback not in {one.callback for one in hub.of(site.topic(FRAMEWORK), "unsubscribe")}


def test_a_channel_that_comes_back_is_subscribed_to_again(site: PushedSite, hub: Hub, dest: Path) -> None:
    site.advertise(hub.url, kinds=("change-notification", FRAMEWORK))
    capabilities = f"{site.root}/capabilitylist.xml"
    with following((site.source.base, dest)) as copy:
        copy.at_work()
        until(lambda: len(hub.answers) == 2)
        site.advertise(hub.url, kinds=(FRAMEWORK,))
        site.tell_documents(hub, capabilities, capability="capabilitylist")
        until(lambda: hub.of(site.topic(), "unsubscribe"))
        site.advertise(hub.url, kinds=("change-notification", FRAMEWORK))
        site.tell_documents(hub, capabilities, capability="capabilitylist")
        until(lambda: len(hub.of(site.topic())) == 2)
        site.put("f0.txt", b"pushed")
        until(lambda: hub.deliver(site.topic(), site.notification()) == 202)
        until(lambda: text(dest / "f0.txt") == "pushed")
