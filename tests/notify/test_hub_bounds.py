"""What strangers, or the slow, can take of a hub: a share, and never that of others."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from headwater.errors import HeadwaterError
from headwater.http import hub as endpoint
from headwater.http.hub import HubApplication, HubEndpoint
from headwater.http.responses import AccessRecord
from headwater.notify import http_client
from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.notify.hub import delivery, topics, verification
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import (
    MOST_LEASE,
    AddressPolicy,
    ChangedTopics,
    HubLimits,
    HubOptions,
    RequestRefusal,
    SubscriptionRequest,
    TrustedProxies,
)
from headwater.notify.hub.store import HubStore, Intent, Payload, stranger
from headwater.notify.hub.store import subscriber as subscriber_names
from headwater.retry import Backoff
from headwater.source.hubs_and_tokens import AccessTokens
from tests.notify.subscriber import Answer, Came, Subscriber
from tests.support.streams import stream_server

URL = "http://hub.example/"
TOPIC = "http://8.8.8.8/t"


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def with_hub(
    folder: Path, use: Callable[[Hub], Awaitable[None]], logged: list[str] | None = None, **limits: Any
) -> None:
    """Run something with a hub in this process; loopback is allowed. `logged` gets why topics cannot be used."""
    lines = [] if logged is None else logged

    async def main() -> None:
        options = HubOptions(url=URL, limits=HubLimits(**limits))
        told = lambda _topic, text: lines.append(text)  # noqa: E731
        hub = Hub(folder, options, AddressPolicy(["127.0.0.0/8"]), on_topic_fault=told)
        hub.start()
        try:
            await use(hub)
        finally:
            await hub.close()

    asyncio.run(main())


async def until(that: Callable[[], Any]) -> None:
    """Wait for a state."""
    async with asyncio.timeout(60):
        while not that():
            await asyncio.sleep(0.01)


async def subscribe(hub: Hub, topic: str, callback: str, lease: int | None = None) -> None:
    """Subscribe, and wait until it has taken effect."""
    before = hub.verifications.counts["confirmed"]
    request = SubscriptionRequest(is_unsubscribe=False, topic=topic, callback=callback, lease_seconds=lease)
    assert await hub.subscribe(request) is None
    await until(lambda: hub.verifications.counts["confirmed"] > before)


def scope(client: str, media_type: bytes) -> dict[str, Any]:
    headers = [(b"content-type", media_type), (b"link", f'<{TOPIC}>; rel="self"'.encode())]
    return {"client": (client, 1), "headers": headers}


def coming(*blocks: bytes, more: bool) -> Callable[[], Awaitable[dict[str, Any]]]:
    """The parts of a body; with `more` the rest never comes."""
    parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    for number, block in enumerate(blocks):
        parts.put_nowait({"type": "http.request", "body": block, "more_body": more or number < len(blocks) - 1})
    return parts.get


FORM = urlencode({"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": "http://8.8.8.8/c"}).encode()


@pytest.mark.parametrize(
    ("client", "statuses"),
    [
        pytest.param("192.0.2.1", [202, 202, 429], id="a stranger"),
        pytest.param("127.0.0.1", [202] * 20, id="an address that is allowed"),
    ],
)
def test_the_rate_is_that_of_strangers(client: str, statuses: list[int], tmp_path: Path) -> None:
    async def ask(hub: Hub) -> None:
        takes = HubEndpoint(hub, AccessTokens([]))
        form = scope(client, b"application/x-www-form-urlencoded")
        assert [(await takes.answer(form, coming(FORM, more=False))).status for _ in statuses] == statuses

    with_hub(tmp_path, ask, requests_per_second=0.0001, requests_at_once=2)


def test_the_rate_counts_names_of_topics_and_not_forms(tmp_path: Path) -> None:
    """A form without a token names few of them."""

    async def ask(hub: Hub) -> None:
        takes, kind = HubEndpoint(hub, AccessTokens(["a-token-of-the-tests"])), b"application/x-www-form-urlencoded"

        async def named(count: int, *head: tuple[bytes, bytes]) -> int:
            fields = {"hub.mode": "publish", "hub.url": [f"{TOPIC}/{number}" for number in range(count)]}
            about = scope("192.0.2.1", kind)
            about["headers"] += head
            return (await takes.answer(about, coming(urlencode(fields, doseq=True).encode(), more=False))).status

        assert [await named(count) for count in (11, 6, 5, 4, 1)] == [400, 202, 429, 202, 429]
        assert await named(100, (b"authorization", b"Bearer a-token-of-the-tests")) == 202

    with_hub(tmp_path, ask, requests_per_second=0.0001, requests_at_once=10)


def test_a_bug_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(hub: Hub) -> None:
        heard: list[HeadwaterError] = []
        app = HubApplication(hub, HubEndpoint(hub, AccessTokens([])), on_fault=heard.append)
        monkeypatch.setattr(hub.store, "counts", lambda: int("odd"))
        answers: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            answers.append(message)

        asked = scope("192.0.2.1", b"") | {"type": "http", "method": "GET", "raw_path": b"/health"}
        await app(asked, coming(b"", more=False), send)
        odd = "invalid literal for int() with base 10: 'odd'"
        assert (answers[0]["status"], [str(one) for one in heard]) == (500, [f"ValueError: {odd} [HW-000]"])

    with_hub(tmp_path, ask)


def test_a_bug_in_what_is_under_way_is_told_and_tried_again(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifications and deliveries, and what is remembered of these; else they would rest until the next start."""
    heard: list[HeadwaterError] = []

    def fail_once(where: object, name: str) -> None:
        right, failed = getattr(where, name), list[bool]()

        def method(*arguments: Any) -> Any:
            if not failed:
                failed.append(True)
                raise ValueError(name)
            return right(*arguments)

        monkeypatch.setattr(where, name, method)

    async def main() -> None:
        hub = Hub(tmp_path, HubOptions(url=URL), AddressPolicy(["127.0.0.0/8"]), on_fault=heard.append)
        hub.start()
        try:
            for where, name in ((hub.verifications, "_work"), (hub.deliveries, "_send"), (hub.store, "record")):
                fail_once(where, name)
            await subscribe(hub, TOPIC, f"{subscriber.url}/bug")
            assert await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"news"), is_trusted=True) is None
            await until(lambda: subscriber.deliveries("/bug") and not hub.store.counts().behind)
        finally:
            await hub.close()

    asyncio.run(main())
    assert [one.body for one in subscriber.deliveries("/bug")] == [b"news"]
    assert [str(one) for one in heard] == [f"ValueError: {name} [HW-000]" for name in ("_work", "_send", "record")]


def test_behind_a_trusted_proxy_each_client_is_bounded_by_its_own_address(tmp_path: Path) -> None:
    async def ask(hub: Hub) -> None:
        served: list[AccessRecord] = []
        takes = HubEndpoint(hub, AccessTokens([]))
        app = HubApplication(hub, takes, served.append, TrustedProxies(["127.0.0.1", "10.0.0.0/8"]))

        async def status(forwarded: bytes, peer: str = "127.0.0.1") -> int:
            answers: list[MutableMapping[str, Any]] = []

            async def send(message: MutableMapping[str, Any]) -> None:
                answers.append(message)

            form = scope(peer, b"application/x-www-form-urlencoded")
            form |= {"type": "http", "method": "POST", "raw_path": b"/"}
            form["headers"] = [*form["headers"], (b"x-forwarded-for", forwarded)]
            await app(form, coming(FORM, more=False), send)
            return int(answers[0]["status"])

        one = [await status(b"%d.1.1.1, 192.0.2.1, 10.1.1.1" % number) for number in range(1, 5)]
        assert one == [202, 202, 429, 429], "whatever it says that it passes on"
        assert await status(b"192.0.2.2") == 202
        direct = [await status(b"192.0.2.%d" % number, "198.51.100.1") for number in range(10, 14)]
        assert direct == [202, 202, 429, 429], "nobody believes who is no proxy of ours"
        assert [one.client for one in served[3:6]] == ["192.0.2.1", "192.0.2.2", "198.51.100.1"]

    with_hub(tmp_path, ask, requests_per_second=0.0001, requests_at_once=2)


@pytest.mark.parametrize("field", [b"x-forwarded-for", b"forwarded", b"via"])
def test_a_proxy_that_nobody_has_named_is_bounded_at_an_address_that_is_allowed(field: bytes, tmp_path: Path) -> None:
    """Else all strangers behind it would have no bounds."""

    async def ask(hub: Hub) -> None:
        takes = HubEndpoint(hub, AccessTokens([]))
        form = scope("127.0.0.1", b"application/x-www-form-urlencoded")
        form["headers"] = [*form["headers"], (field, b"192.0.2.1")]
        assert [(await takes.answer(form, coming(FORM, more=False))).status for _ in range(3)] == [202, 202, 429]

    with_hub(tmp_path, ask, requests_per_second=0.0001, requests_at_once=2)


@pytest.mark.parametrize("kind", [b"application/x-www-form-urlencoded", b"application/xml"])
def test_requests_that_do_not_end_leave_room_for_others(
    kind: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CLIENT_AT_ONCE", 3)

    async def ask(hub: Hub) -> None:
        takes = HubEndpoint(hub, AccessTokens([]))
        slow = [
            asyncio.ensure_future(takes.answer(scope(client, kind), coming(b"x", more=True)))
            for client in [f"2001:db8::{number}" for number in range(5)] + ["127.0.0.1"] * 5
        ]
        await asyncio.sleep(0.05)
        assert [one.result().status for one in slow if one.done()] == [503, 503], "of one network of IPv6"
        form = scope("192.0.2.1", b"application/x-www-form-urlencoded")
        assert (await takes.answer(form, coming(FORM, more=False))).status == 202
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        form["client"] = ("2001:db8::1", 1)
        assert (await takes.answer(form, coming(FORM, more=False))).status == 202, "what was taken is given back"

    with_hub(tmp_path, ask)


def test_payloads_of_one_stranger_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_CLIENT_BODY_OCTETS", 10)

    async def hand_in(hub: Hub) -> None:
        takes = HubEndpoint(hub, AccessTokens([]))
        first = asyncio.ensure_future(takes.answer(scope("192.0.2.1", b"a/b"), coming(bytes(8), more=True)))
        await asyncio.sleep(0.05)
        same = await takes.answer(scope("192.0.2.1", b"a/b"), coming(bytes(8), more=True))
        assert same.status == 503
        other = asyncio.ensure_future(takes.answer(scope("192.0.2.2", b"a/b"), coming(bytes(8), more=True)))
        await asyncio.sleep(0.05)
        assert not other.done()
        for one in (first, other):
            one.cancel()

    with_hub(tmp_path, hand_in)


@pytest.mark.parametrize("turns", range(6))
def test_a_hub_ends_that_is_told_of_something_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets that it was cancelled where what it waits for comes just then."""

    async def end(hub: Hub) -> None:
        monkeypatch.setattr(hub.deliveries, "next_due", lambda: time.time() + 100)
        hub._wake.set()
        await asyncio.sleep(0.05)
        hub._wake.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        for run in hub._runs:
            run.cancel()
        found = await asyncio.wait(hub._runs, timeout=10)
        assert not found[1]

    with_hub(tmp_path, end)


def test_what_is_fetched_at_the_word_of_strangers_is_bounded_together(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fetched again later; somebody known is not made to wait."""
    monkeypatch.setattr(topics, "_STRANGE_OCTETS", 1_000)
    links = {"link": f'<{URL}>; rel="hub"'}
    for path, octets in (("/small", 900), ("/large", 2_000)):
        subscriber.answers[path] = lambda _came, octets=octets: Answer(body=bytes(octets), headers=links)  # type: ignore[misc]

    async def ping(hub: Hub) -> None:
        for path in ("/small", "/large"):
            await subscribe(hub, subscriber.url + path, f"{subscriber.url}/of{path}")
            await hub.changed(ChangedTopics((subscriber.url + path,)), is_trusted=False)
        await until(lambda: subscriber.deliveries("/of/small") and len(subscriber.asked("/large")) > 1)
        assert hub.fetches.failed == 0
        assert not subscriber.deliveries("/of/large")
        await hub.changed(ChangedTopics((f"{subscriber.url}/large",)), is_trusted=True)
        await until(lambda: subscriber.deliveries("/of/large"))

    with_hub(tmp_path, ping)


def test_topics_that_strangers_name_delay_none_that_somebody_known_names(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_SLOTS", 1)
    subscriber.answers["/slow"] = lambda _came: Answer(status=404, body=b"", seconds=5)

    async def ping(hub: Hub) -> None:
        for path in ("/slow", "/stranger"):
            await hub.changed(ChangedTopics((subscriber.url + path,)), is_trusted=False)
        await hub.changed(ChangedTopics((f"{subscriber.url}/known",)), is_trusted=True)
        await until(lambda: subscriber.asked("/known"))
        assert not subscriber.asked("/stranger")

    with_hub(tmp_path, ping)


HUB_LINK, OTHER_LINK, SELF_LINK = f'<{URL}>; rel="hub"', '<http://o/>; rel="hub"', '<http://o/>; rel="self"'


@pytest.mark.parametrize(
    ("head", "is_trusted", "is_read"),
    [
        pytest.param(f"200 OK\r\nLink: {HUB_LINK}", False, True, id="it names the hub"),
        pytest.param(f"200 OK\r\nLink: {OTHER_LINK}", False, False, id="it names another hub"),
        pytest.param(f"200 OK\r\nLink: {HUB_LINK}, {SELF_LINK}", False, False, id="it says it is another topic"),
        pytest.param(f"200 OK\r\nLink: {HUB_LINK}, {SELF_LINK}", True, False, id="it says so to somebody known"),
        pytest.param("200 OK\r\nContent-Type: image/png", False, False, id="it names none, and cannot in its body"),
        pytest.param("200 OK\r\nContent-Type: image/png", True, True, id="somebody known has named it"),
        pytest.param("200 OK\r\nContent-Type: text/html", False, True, id="a page may name it"),
        pytest.param("200 OK\r\nContent-Type: application/atom+xml", False, True, id="a feed may name it"),
        pytest.param(f"404 Away\r\nContent-Type: text/html\r\nLink: {HUB_LINK}", True, False, id="it is not there"),
        pytest.param("302 Away\r\nLocation: http://10.0.0.1/", True, False, id="it is elsewhere"),
    ],
)
def test_a_topic_is_judged_by_its_head_before_its_body_is_read(
    head: str, is_trusted: bool, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-NT-07: whoever names topics of others has their hosts send heads."""
    monkeypatch.setattr(topics, "SECONDS", 0.5)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: 1000000\r\n\r\n".encode())  # the body never comes
        await reader.read()

    async def fetch(hub: Hub) -> None:
        async with stream_server(answer) as port:
            found = await topics.fetch_topic(hub._context, f"http://127.0.0.1:{port}/t", is_trusted=is_trusted)
        assert isinstance(found, topics.TopicFault)
        assert ("no answer within" in found.text) == is_read, found

    with_hub(tmp_path, fetch)


def test_a_topic_is_read_no_further_than_the_payload_it_is_compared_with(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-NT-07: what is longer is something else; it may be what the topic had a moment ago."""
    monkeypatch.setattr("headwater.notify.hub.hub._LEAST_OCTETS", 10)
    links = {"link": f'<{URL}>; rel="hub"'}
    subscriber.answers["/topic"] = lambda _came: Answer(
        body=b"x" * (11 if len(subscriber.asked("/topic")) > 1 else 5_000_000), headers=links
    )

    async def hand_in(hub: Hub) -> None:
        payload = Payload(topic=f"{subscriber.url}/topic", media_type="a/b", body=b"x" * 11)
        assert await hub.publish(payload, is_trusted=False) is None
        assert len(subscriber.asked("/topic")) == 2
        other = msgspec.structs.replace(payload, body=b"y" * 9)
        assert isinstance(await hub.publish(other, is_trusted=False), RequestRefusal)

    with_hub(tmp_path, hand_in)


def test_requests_at_one_moment_do_not_pass_the_bound_on_pending_ones(tmp_path: Path, subscriber: Subscriber) -> None:
    """What is looked up, or written down, is pending too: between the look at the bound and that nobody slips in."""

    async def flood(hub: Hub) -> None:
        callbacks = [f"{subscriber.url}/{number}" for number in range(50)]
        requests = [SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback=one) for one in callbacks]
        answers = await asyncio.gather(*map(hub.subscribe, requests))
        assert [answer.status for answer in answers if answer is not None] == [503] * 47

    with_hub(tmp_path / "one", flood, host_pending=3)
    with_hub(tmp_path / "all", flood, pending=3)


def test_an_answer_for_which_there_is_no_room_is_given_up(subscriber: Subscriber) -> None:
    subscriber.answers["/"] = lambda _came: Answer(body=bytes(100))

    async def ask() -> list[HttpAnswer | HttpFailure]:
        client = HttpClient(lambda _address: None, user_agent="test")
        url, rooms = f"{subscriber.url}/", ((lambda _octets: False), (lambda _octets: True))
        answers = [
            await client.request("GET", url, AnswerBounds(seconds=30, max_octets=100, has_room=has_room))
            for has_room in rooms
        ]
        client.close()
        return answers

    refused, given = asyncio.run(ask())
    assert isinstance(refused, HttpFailure)
    assert not refused.is_final
    assert isinstance(given, HttpAnswer)
    assert given.body == bytes(100)


def test_large_messages_are_sent_one_after_the_other(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts once however many receive it, and who waits for room has not failed."""
    monkeypatch.setattr(delivery, "_SENT_OCTETS", 100_000)
    under_way, most = set[str](), list[int]()

    def slowly(came: Came) -> Answer:
        if came.method == "GET":
            return Answer()
        topic = came.headers["link"].split("<")[2]
        under_way.add(topic)
        most.append(len(under_way))
        time.sleep(0.1)
        under_way.discard(topic)
        return Answer()

    async def deliver(hub: Hub) -> None:
        paths = ["/a/1", "/a/2", "/b/1"]
        for path in paths:
            subscriber.answers[path] = slowly
            await subscribe(hub, f"http://8.8.8.8{path[:2]}", subscriber.url + path)
        for name in ("/a", "/b"):
            payload = Payload(topic=f"http://8.8.8.8{name}", media_type="a/b", body=name.encode() * 40_000)
            assert await hub.publish(payload, is_trusted=True) is None
        await until(lambda: all(subscriber.deliveries(path) for path in paths) and not hub.store.counts().behind)
        assert hub.deliveries.counts["failed"] == 0

    with_hub(tmp_path, deliver)
    assert max(most) == 1
    assert [one.body for one in subscriber.deliveries("/b/1")] == [b"/b" * 40_000]


def test_an_answer_that_was_lost_is_followed_by_the_same_octets_again(tmp_path: Path, subscriber: Subscriber) -> None:
    """And by nothing later before; a first try again comes within a second or so of the failure."""
    subscriber.answers["/lossy"] = lambda came: (
        Answer(status=200, headers={"content-length": "nonsense"} if len(subscriber.deliveries("/lossy")) < 3 else {})
        if came.method == "POST"
        else Answer()
    )

    async def deliver(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/lossy")
        for body in (b"first" * 20_000, b"second"):
            assert await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=body), is_trusted=True) is None
        await until(lambda: not hub.store.counts().behind)

    with_hub(tmp_path, deliver)
    assert [one.body for one in subscriber.deliveries("/lossy")] == [b"first" * 20_000] * 3 + [b"second"]


def test_nothing_is_delivered_after_the_end_of_a_lease(tmp_path: Path, subscriber: Subscriber) -> None:
    """WS-H-09: not even what the subscriber had failed to take before."""
    subscriber.answers["/short"] = lambda came: Answer(500) if came.method == "POST" else Answer()

    async def deliver(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/short", lease=2)
        await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"x"), is_trusted=True)
        await until(lambda: not hub.store.counts().subscriptions)
        await until(lambda: not hub.deliveries.behind)
        count = len(subscriber.deliveries("/short"))
        await asyncio.sleep(3)
        assert len(subscriber.deliveries("/short")) == count

    with_hub(tmp_path, deliver, least_lease=1)


def test_slow_subscribers_and_floods_delay_nobody(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the verification of another host nor a delivery waits for those who never answer."""
    forever = AnswerBounds(seconds=3_600)
    monkeypatch.setattr(verification, "_BOUNDS", msgspec.structs.replace(verification._BOUNDS, seconds=3_600))
    monkeypatch.setattr(delivery, "_BOUNDS", forever)
    silent, ends = socket.create_server(("127.0.0.1", 0), backlog=200), threading.Event()

    def never(came: Came) -> Answer:
        if came.method == "POST":
            ends.wait(600)
        return Answer()

    subscriber.answers["/slow"] = never

    async def use(hub: Hub) -> None:
        at = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for number in range(200):  # six times as many as are asked at once
            request = SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback=f"{at}/{number}")
            assert await hub.subscribe(request) is None
        for path in ("/slow", "/calm"):
            await subscribe(hub, TOPIC, subscriber.url + path)
        for number in range(2):
            await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"%d" % number), is_trusted=True)
        await until(lambda: len(subscriber.deliveries("/calm")) == 2)
        assert len(subscriber.deliveries("/slow")) <= 1

    try:
        with_hub(tmp_path, use)
    finally:
        ends.set()
        silent.close()


def test_who_subscribes_again_is_not_made_to_wait(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gets what it missed once, though it was to be tried again later."""
    monkeypatch.setattr(delivery, "PAUSE", Backoff(3_600.0, 3_600.0))
    subscriber.answers["/back"] = lambda came: Answer(500) if came.method == "POST" else Answer()

    async def use(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/back")
        await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"1"), is_trusted=True)
        await until(lambda: hub.store.counts().failing == 1)
        del subscriber.answers["/back"]
        await subscribe(hub, TOPIC, f"{subscriber.url}/back")
        await until(lambda: not hub.deliveries.behind)
        hub.deliveries.start_due(time.time() + 7_200)
        await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"2"), is_trusted=True)
        await until(lambda: not hub.deliveries.behind)

    with_hub(tmp_path, use)
    assert [one.body for one in subscriber.deliveries("/back")] == [b"1", b"1", b"2"]


def test_a_clock_that_is_set_back_makes_nobody_wait(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has failed is tried again as soon as it was to be."""
    clock = time.time

    def once(_came: Came) -> Answer:
        del subscriber.answers["/late"]
        return Answer(500)

    async def use(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/late")
        failed = hub.deliveries._failed

        def then_set_back(*given: Any) -> None:
            failed(*given)
            monkeypatch.setattr(time, "time", lambda: clock() - 7_200)

        monkeypatch.setattr(hub.deliveries, "_failed", then_set_back)
        subscriber.answers["/late"] = once
        await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"1"), is_trusted=True)
        await until(lambda: not hub.deliveries.behind)

    with_hub(tmp_path, use)
    assert [one.body for one in subscriber.deliveries("/late")] == [b"1", b"1"]


def test_what_was_stored_by_a_later_clock_is_not_waited_for(tmp_path: Path, subscriber: Subscriber) -> None:
    """After a restart it waits for as long as after its last failure, at most."""
    subscriber.answers["/late"] = lambda came: Answer(500) if came.method == "POST" else Answer()

    async def fail(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/late")
        await hub.publish(Payload(topic=TOPIC, media_type="a/b", body=b"1"), is_trusted=True)
        await until(lambda: hub.store.counts().failing == 1)

    async def succeed(hub: Hub) -> None:
        await until(lambda: not hub.deliveries.behind)
        await until(lambda: not hub.verifications.pending)
        assert hub.store.counts().subscriptions == 2

    with_hub(tmp_path, fail)
    store = HubStore(tmp_path, HubLimits())
    request = SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback=f"{subscriber.url}/asked")
    with store.database.write() as tx:
        assert tx.run("UPDATE subscriptions SET due_at = due_at + 7200") == 1
        intent = store.ask(tx, request, 0.0)
        store.put_off(tx, msgspec.structs.replace(intent, tries=1, due_at=time.time() + 7_200))
    store.close()
    del subscriber.answers["/late"]
    with_hub(tmp_path, succeed)
    assert [one.body for one in subscriber.deliveries("/late")][-1] == b"1"


def test_a_clock_that_is_set_back_prolongs_no_lease(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WS-H-09: it ends after as long as was granted; after a restart, too, it ends some day."""
    clock, day = time.time, 86_400

    async def end(hub: Hub) -> None:
        await subscribe(hub, TOPIC, f"{subscriber.url}/a")
        monkeypatch.setattr(time, "time", lambda: clock() - day)
        await until(lambda: not hub.store.counts().subscriptions)

    async def last(hub: Hub) -> None:
        with hub.store.database.read() as tx:
            ends = tx.value("SELECT min(expires_at) FROM subscriptions")
        assert ends <= clock() + MOST_LEASE + 1  # two clocks are compared

    with_hub(tmp_path, end, least_lease=2, most_lease=2)
    monkeypatch.setattr(time, "time", clock)
    with_hub(tmp_path, lambda hub: subscribe(hub, TOPIC, f"{subscriber.url}/a"))
    store = HubStore(tmp_path, HubLimits())
    with store.database.write() as tx:
        assert tx.run("UPDATE subscriptions SET expires_at = expires_at + ?", (3_650 * day,)) == 1
    store.close()
    with_hub(tmp_path, last)


def test_the_last_subscription_there_is_room_for_is_given_once(tmp_path: Path, subscriber: Subscriber) -> None:
    """WS-H-06: whoever is confirmed later is denied, though there was room when it asked."""
    subscriber.answers["/c"] = lambda _came: Answer(seconds=0.3)

    async def ask(hub: Hub) -> None:
        for number in range(4):
            callback = f"{subscriber.url}/c?{number}"
            request = SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback=callback)
            assert await hub.subscribe(request) is None
        await until(lambda: hub.store.counts().pending == 0)
        assert hub.store.counts().subscriptions == 2
        counts = hub.verifications.counts
        assert (counts["confirmed"], counts["denied"]) == (2, 2)

    with_hub(tmp_path, ask, subscriptions=2)
    asked = [one.query["hub.mode"] for one in subscriber.asked("/c")]
    assert sorted(asked) == ["denied"] * 2 + ["subscribe"] * 4


def test_messages_of_all_topics_together_are_bounded(tmp_path: Path) -> None:
    """The topic that has most gives its oldest up."""
    store = HubStore(tmp_path, HubLimits(message_octets=100))
    with store.database.write() as tx:
        for name in ("large", "small"):
            request = SubscriptionRequest(is_unsubscribe=False, topic=f"http://t/{name}", callback="http://s/")
            intent = store.ask(tx, request, 0.0)
            assert not isinstance(store.settle(tx, intent, is_confirmed=True, asked_at=1e12), Intent)
        for number in range(10):
            store.add(tx, Payload(topic="http://t/large", media_type="a/b", body=b"%d" % number * 20), 1e9, once=False)
        store.add(tx, Payload(topic="http://t/small", media_type="a/b", body=bytes(20)), 1.0e9, once=False)
        store.tidy(tx, 1e9)
    assert (store.counts().messages, store.counts().message_octets) == (5, 100)
    assert {one.topic: one.messages for one in store.topics(9)} == {"http://t/large": 4, "http://t/small": 1}
    store.close()


def test_names_that_strangers_name_delay_only_themselves(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WS-H-02: in forms, payloads and subscriptions; whoever is known, subscribed, or another stranger, is answered."""
    answers = threading.Event()

    def look_up(host: str) -> list[str]:
        if host.endswith(".slow.example"):
            answers.wait(60)
        return ["127.0.0.1"]

    monkeypatch.setattr(http_client, "addresses_of", look_up)
    port = subscriber.url.rpartition(":")[2]
    subscriber.answers["/topic"] = lambda _came: Answer(body=b"fed", headers={"link": f'<{URL}>; rel="hub"'})

    async def use(hub: Hub) -> None:
        def at(host: str, path: str) -> str:
            return f"http://{host}.example:{port}{path}"

        async def flood(number: int) -> float:
            began, client = time.monotonic(), "192.0.2.1"
            slow = tuple(f"http://{number}-{each}.slow.example/" for each in range(10))
            await hub.changed(ChangedTopics(slow), is_trusted=False, client=client)
            request = SubscriptionRequest(is_unsubscribe=False, topic=slow[0], callback=slow[1])
            await hub.subscribe(request, client=client)
            return time.monotonic() - began

        await subscribe(hub, TOPIC, at("me", "/mine"))
        began = time.monotonic()
        forms = [asyncio.ensure_future(flood(number)) for number in range(40)]
        payload = Payload(topic="http://x.slow.example/", media_type="a/b", body=b"x")
        forms.append(asyncio.ensure_future(hub.publish(payload, is_trusted=False, client="192.0.2.1")))  # type: ignore[arg-type]
        await asyncio.sleep(0.2)
        for number, names in enumerate(("a", "b", "c")):
            news = Payload(topic=at(names, "/t"), media_type="a/b", body=b"%d" % number)
            assert await hub.publish(news, is_trusted=True) is None
            assert await hub.publish(msgspec.structs.replace(news, topic=TOPIC), is_trusted=True) is None
        await until(lambda: len(subscriber.deliveries("/mine")) == 3)
        assert await hub.changed(ChangedTopics((at("o", "/topic"),)), is_trusted=False, client="192.0.2.2") is None
        await until(lambda: subscriber.asked("/topic"))
        await subscribe(hub, at("o", "/topic"), at("o", "/other"))
        assert time.monotonic() - began < 20
        assert max(await asyncio.gather(*forms[:-1])) < 20  # a second each where the machine is not busy
        answers.set()
        await forms[-1]

    try:
        with_hub(tmp_path, use)
    finally:
        answers.set()


def test_the_names_of_a_subscription_are_looked_up_apart_from_those_of_strangers(tmp_path: Path) -> None:
    """Also those of its renewal; the domains of subscribers have shares."""
    request = SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback="http://a.b.example:7/c")
    with closing(HubStore(tmp_path, HubLimits())) as store, store.database.write() as tx:
        first = store.ask(tx, request, 0.0, stranger("192.0.2.1"))
        store.settle(tx, first, is_confirmed=True, asked_at=0.0)
        again = store.ask(tx, request, 0.0, stranger("192.0.2.1"))
    assert (first.asker, again.asker) == (stranger("192.0.2.1"), subscriber_names("z.b.example:8"))
    assert subscriber_names("a.b.example:7") != subscriber_names("a.c.example:7")


INSIDE = "http://inside.example/t"


@pytest.mark.parametrize("way", ["ping", "payload", "redirect", "callback", "denial"])
def test_a_stranger_is_told_no_address(
    way: str, tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the hub's log, and a publisher with a token reads it."""
    monkeypatch.setattr(http_client, "addresses_of", lambda _host: ["10.1.2.3"])
    subscriber.answers["/away"] = lambda _came: Answer(status=302, body=b"", headers={"location": INSIDE})
    logged: list[str] = []

    async def use(hub: Hub) -> None:
        payload = Payload(topic=INSIDE, media_type="a/b", body=b"x")
        here = f"{subscriber.url}/here"
        if way == "ping":
            refused = await hub.changed(ChangedTopics((TOPIC, INSIDE)), is_trusted=False)
            known = await hub.changed(ChangedTopics((TOPIC, INSIDE)), is_trusted=True)
        elif way in ("payload", "redirect"):
            topic = INSIDE if way == "payload" else f"{subscriber.url}/away"
            refused = await hub.publish(msgspec.structs.replace(payload, topic=topic), is_trusted=False)
            known = await hub.publish(payload, is_trusted=True)
        else:
            pair = (TOPIC, INSIDE) if way == "callback" else (INSIDE, here)
            refused = await hub.subscribe(SubscriptionRequest(is_unsubscribe=False, topic=pair[0], callback=pair[1]))
            known = RequestRefusal(403, "10.1.2.3")
        told = refused.text if refused is not None else ""
        if way == "denial":
            await until(lambda: subscriber.asked("/here"))
            told = subscriber.asked("/here")[0].query["hub.reason"]
        assert "inside.example leads to an address that is not public" in told
        assert "10." not in told
        assert known is not None
        assert "10.1.2.3" in known.text
        assert any("inside.example: 10.1.2.3 is not a public address" in line for line in logged)

    with_hub(tmp_path, use, logged=logged)


def test_names_that_are_looked_up_slowly_delay_no_subscription(
    tmp_path: Path, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WS-H-02: whoever names callbacks whose names are looked up slowly gets no early word, and delays nobody."""
    answers = threading.Event()

    def look_up(host: str) -> list[str]:
        if host.endswith(".slow.example"):
            answers.wait(60)
            return ["10.0.0.1"]
        return {"inside.example": ["10.0.0.1"], "both.example": ["8.8.8.8", "10.0.0.1"]}.get(host, ["127.0.0.1"])

    monkeypatch.setattr(http_client, "addresses_of", look_up)
    monkeypatch.setattr(http_client, "_EARLY_SECONDS", 0.05)

    async def use(hub: Hub) -> None:
        def ask(callback: str) -> Awaitable[RequestRefusal | None]:
            return hub.subscribe(SubscriptionRequest(is_unsubscribe=False, topic=TOPIC, callback=callback))

        for inside in ("http://inside.example/", "http://both.example/", "http://10.0.0.1/"):
            refused = await ask(inside)
            assert refused is not None
            assert (refused.status, "not" in refused.text) == (403, True)
        assert "10.0.0.1" not in (await ask("http://inside.example/")).text  # type: ignore[union-attr]
        flood = [ask(f"http://{number}.slow.example/") for number in range(20)]
        assert await asyncio.gather(*flood) == [None] * 20
        assert await ask(subscriber.url.replace("127.0.0.1", "me.example") + "/fine") is None
        await until(lambda: subscriber.asked("/fine"))
        answers.set()

    try:
        with_hub(tmp_path, use)
    finally:
        answers.set()
