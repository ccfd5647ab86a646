"""The list of a public WebSub test-suite from both sides: each of its points has a test, here or where it is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.copy_state import NotificationChannel
from headwater.notify.http_client import HttpClient
from headwater.notify.subscriber_hubs import DiscoveredTopic, HubClient
from headwater.spec.kinds import Kind
from tests.notify.following.pushing import Hub, following, get, post, pushed_site, signed
from tests.notify.hub_process import HubProcess
from tests.notify.subscriber import Answer, Subscriber
from tests.rules import exists
from tests.support.fake_source import Reply, Source
from tests.support.waiting import until

HUB, DECISIONS = "notify/test_hub.py", "notify/test_hub_decisions.py"
BOUNDS = "notify/test_hub_bounds.py"
FOLLOWING, HERE = "notify/following/test_following.py", "notify/test_websub_checklist.py"

CHECKLIST = {
    "hub: typical subscription": (HUB, "test_subscribe_receive_unsubscribe"),
    "hub: subscription with a secret, signed": (HUB, "test_subscribe_receive_unsubscribe"),
    "hub: subscription with a lease": (HUB, "test_subscribe_receive_unsubscribe"),
    "hub: subscription without secret and lease": (HUB, "test_any_content_type_is_delivered_as_it_is"),
    "hub: unknown parameters are ignored": (HERE, "test_hub_ignores_what_it_does_not_know"),
    "hub: subscribing again before the lease ends": (BOUNDS, "test_who_subscribes_again_is_not_made_to_wait"),
    "hub: a failed renewal changes nothing": (HUB, "test_a_new_request_that_fails_leaves_the_subscription_as_it_was"),
    "hub: unsubscribe": (HUB, "test_subscribe_receive_unsubscribe"),
    "hub: unsubscribe that is not confirmed": (HERE, "test_hub_keeps_who_does_not_confirm_to_leave"),
    "hub: plain text and JSON": (HERE, "test_hub_delivers_text_and_json"),
    "hub: topics that name it in header, HTML, Atom, RSS": (HERE, "test_hub_finds_itself_in_topics"),
    "hub: a topic that redirects": (HERE, "test_hub_follows_a_topic_that_redirects"),
    "hub: denied": (HUB, "test_a_topic_at_a_private_address_is_denied"),
    "hub: 2xx only, redirects are failures": (DECISIONS, "test_answers_to_deliveries"),
    "hub: retries, in order": (HUB, "test_a_failed_delivery_comes_again_in_order_and_delays_nobody"),
    "hub: 410 ends a subscription": (HUB, "test_410_ends_a_subscription"),
    "subscriber: discovery by header, HTML, Atom, RSS": (HERE, "test_subscriber_discovers"),
    "subscriber: headers before the body": (HERE, "test_subscriber_discovers"),
    "subscriber: a topic that redirects": (HERE, "test_subscriber_discovers"),
    "subscriber: a hub that redirects, 307 and 308": (HERE, "test_subscriber_goes_where_the_hub_sends_it"),
    "subscriber: no other topic is confirmed": (HERE, "test_subscriber_confirms_and_takes_only_its_own"),
    "subscriber: unsigned and wrongly signed": (HERE, "test_subscriber_confirms_and_takes_only_its_own"),
    "subscriber: several hubs": (FOLLOWING, "test_several_hubs_are_subscribed_at_and_one_that_is_dead_does_no_harm"),
    "publisher: hub and self at the topic": (
        "notify/test_publisher.py",
        "test_an_edit_reaches_a_subscriber_through_a_hub",
    ),
}


@pytest.mark.parametrize("point", CHECKLIST)
def test_each_point_has_a_test(point: str) -> None:
    assert exists(*CHECKLIST[point]), CHECKLIST[point]


# -- the hub ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subscriber() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    one = HubProcess(tmp_path_factory.mktemp("hub"))
    yield one
    one.stop()


def subscribed(hub: HubProcess, subscriber: Subscriber, topic: str, path: str, **more: str) -> None:
    assert hub.ask("subscribe", topic, subscriber.url + path, **more)[0] == 202
    subscriber.wait(lambda: hub.has_subscription(topic, subscriber.url + path))


def test_hub_ignores_what_it_does_not_know(hub: HubProcess, subscriber: Subscriber) -> None:
    """WS-H-01, F-14."""
    subscribed(hub, subscriber, "http://t.example/more", "/more", verify="sync", verify_token="x", other="y")


def test_hub_keeps_who_does_not_confirm_to_leave(hub: HubProcess, subscriber: Subscriber) -> None:
    """WS-H-08: nobody else can end a subscription."""
    topic = "http://t.example/stays"
    subscribed(hub, subscriber, topic, "/stays")
    subscriber.answers["/stays"] = lambda came: Answer(404) if came.method == "GET" else Answer()
    assert hub.ask("unsubscribe", topic, f"{subscriber.url}/stays")[0] == 202
    subscriber.wait(lambda: hub.counts()["pending"] == 0 and len(subscriber.asked("/stays")) == 2)
    assert hub.publish(topic, b"still")[0] == 200
    subscriber.wait(lambda: subscriber.deliveries("/stays"))


@pytest.mark.parametrize(
    ("media_type", "body"),
    [("text/plain; charset=utf-8", "grün".encode()), ("application/json", json.dumps({"a": [1, 2]}).encode())],
)
def test_hub_delivers_text_and_json(hub: HubProcess, subscriber: Subscriber, media_type: str, body: bytes) -> None:
    """WS-H-11."""
    path = f"/{len(body)}"
    subscribed(hub, subscriber, f"http://t.example{path}", path)
    assert hub.publish(f"http://t.example{path}", body, media_type)[0] == 200
    came = subscriber.wait(lambda: subscriber.deliveries(path))[0]
    assert (came.body, came.headers["content-type"]) == (body, media_type)


TOPICS = {
    "header": ("text/plain", '<{hub}>; rel="hub", <{topic}>; rel="self"', "no links here"),
    "html": (
        "text/html",
        "",
        '<html><head><link rel="hub" href="{hub}"><link rel="self" href="{topic}"></head></html>',
    ),
    "atom": (
        "application/atom+xml",
        "",
        '<feed xmlns="http://www.w3.org/2005/Atom"><link rel="hub" href="{hub}"/>'
        '<link rel="self" href="{topic}"/></feed>',
    ),
    "rss": (
        "application/rss+xml",
        "",
        '<rss version="2.0" xmlns:a="http://www.w3.org/2005/Atom"><channel><a:link rel="hub" href="{hub}"/>'
        '<a:link rel="self" href="{topic}"/></channel></rss>',
    ),
    "header before html": (
        "text/html",
        '<{hub}>; rel="hub", <{topic}>; rel="self"',
        '<html><head><link rel="hub" href="http://127.0.0.1:9/"></head></html>',
    ),
}


def told(how: str, hub: str, topic: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of a topic that names a hub and itself."""
    media_type, link, body = (part.replace("{hub}", hub).replace("{topic}", topic) for part in TOPICS[how])
    return {"content-type": media_type} | ({"link": link} if link else {}), body.encode()


@pytest.mark.parametrize("how", TOPICS)
def test_hub_finds_itself_in_topics(hub: HubProcess, subscriber: Subscriber, how: str) -> None:
    """RS-NT-07, WS-P-01, WS-P-03: at the word of somebody whom it does not know."""
    path = f"/{how.replace(' ', '-')}"
    topic, callback = subscriber.url + path, f"{path}-callback"
    headers, body = told(how, hub.url, topic)
    subscriber.answers[path] = lambda _came: Answer(headers=headers, body=body)
    subscribed(hub, subscriber, topic, callback)
    assert hub.form({"hub.mode": "publish", "hub.url": topic})[0] == 202
    came = subscriber.wait(lambda: subscriber.deliveries(callback))[0]
    assert (came.body, came.headers["content-type"]) == (body, headers["content-type"])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_hub_follows_a_topic_that_redirects(hub: HubProcess, subscriber: Subscriber, status: int) -> None:
    """What it finds there is distributed for the topic that was subscribed to, which it names as `self`."""
    topic = f"{subscriber.url}/moved{status}"
    headers, body = told("header", hub.url, topic)
    subscriber.answers[f"/moved{status}"] = lambda _came: Answer(status, headers={"location": f"/there{status}"})
    subscriber.answers[f"/there{status}"] = lambda _came: Answer(headers=headers, body=body)
    subscribed(hub, subscriber, topic, f"/callback{status}")
    assert hub.form({"hub.mode": "publish", "hub.url": topic})[0] == 202
    came = subscriber.wait(lambda: subscriber.deliveries(f"/callback{status}"))[0]
    assert f'<{topic}>; rel="self"' in came.headers["link"]


# -- the subscriber ---------------------------------------------------------------------------------------------------


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.mark.parametrize("redirected", [None, 301, 302, 307, 308])
@pytest.mark.parametrize("how", TOPICS)
def test_subscriber_discovers(source: Source, how: str, redirected: int | None) -> None:
    """WS-S-01, WS-S-03, WS-P-05: the hub that the topic names, and the address that it calls its own."""
    hub, own, asked = f"{source.base}/hub", f"{source.base}/own", f"{source.base}/asked"
    headers, body = told(how, hub, own)
    there = "/asked" if redirected is None else "/there"
    source.pages["/asked"] = Reply(b"", redirected or 200, {"location": "/there"})
    source.pages[there] = Reply(body, headers=headers)
    channel = NotificationChannel(kind=Kind.CHANGE_NOTIFICATION, identity=source.base, topic=asked, hubs=())

    async def found() -> DiscoveredTopic:
        client = HttpClient(lambda _address: None, user_agent="test")
        try:
            return await HubClient(client).discover(channel)
        finally:
            client.close()

    assert asyncio.run(found()) == DiscoveredTopic(own, (hub,))


@pytest.mark.parametrize("status", [307, 308])
def test_subscriber_goes_where_the_hub_sends_it(source: Source, tmp_path: Path, status: int) -> None:
    """WS-H-03."""
    hub = Hub(source, "/real")
    site = pushed_site(source, f"{source.base}/old")
    source.posts["/old"] = Reply(b"", status, {"location": "/real"})
    with following((source.base, tmp_path / "copy")) as copy:
        copy.at_work()
        assert hub.of(site.topic())


def test_subscriber_confirms_and_takes_only_its_own(source: Source, tmp_path: Path) -> None:
    """WS-S-06, WS-S-12: of another topic nothing is confirmed; what is not signed, or not right, is not applied."""
    hub = Hub(source)
    site = pushed_site(source, hub.url)
    with following((source.base, tmp_path / "copy")) as copy:
        copy.at_rest()
        asked = hub.subscription(site.topic())
        query = {
            "hub.mode": "subscribe",
            "hub.topic": f"{site.topic()}x",
            "hub.challenge": "c",
            "hub.lease_seconds": "9",
        }
        assert get(asked.callback, query)[0] == 404
        assert get(asked.callback, query | {"hub.topic": site.topic(), "hub.mode": "unsubscribe"})[0] == 404
        assert get(f"{asked.callback}x", query | {"hub.topic": site.topic()})[0] == 404
        site.put("forged.txt", b"forged")
        body = site.notification()
        links = {"Link": f'<{hub.url}>; rel="hub", <{site.topic()}>; rel="self"'}
        for headers in ({}, {"X-Hub-Signature": "sha256=00"}, signed(b"another", body), {"X-Hub-Signature": "md5=0"}):
            post(asked.callback, body, links | headers)
        assert not (tmp_path / "copy" / "forged.txt").exists()
        assert post(asked.callback, body, links | signed(asked.secret, body)) == 202
        until(lambda: (tmp_path / "copy" / "forged.txt").exists())
