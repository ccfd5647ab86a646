"""A hub as a process, with subscribers and topics that are real servers (WebSub, RS-NT)."""

from __future__ import annotations

import hashlib
import hmac
import json
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notify.hub_process import TOKEN, HubProcess
from tests.notify.subscriber import Answer, Came, Subscriber
from tests.support.scripted_server import Request, ScriptedServer

pytestmark = pytest.mark.long(25)


@pytest.fixture(scope="module")
def subscriber() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    one = HubProcess(tmp_path_factory.mktemp("hub"), "--lease-bounds", "1..864000")
    yield one
    assert one.stop() == 0


def subscribed(hub: HubProcess, subscriber: Subscriber, topic: str, path: str, **more: str) -> str:
    """Subscribe a callback at a path, and wait until it has taken effect."""
    assert hub.ask("subscribe", topic, subscriber.url + path, **more)[0] == 202  # RS-NT-09, WS-H-02
    subscriber.wait(lambda: hub.has_subscription(topic, subscriber.url + path))
    return topic


def test_subscribe_receive_unsubscribe(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/1", "/one", lease_seconds="77", secret="secret")
    asked = subscriber.asked("/one")[-1].query
    assert (asked["hub.mode"], asked["hub.topic"], asked["hub.lease_seconds"]) == ("subscribe", topic, "77")  # RS-NT-10
    status, _text = hub.publish(topic, b"<urlset/>", links=', <http://c.example/>; rel="resourcesync"')
    assert status == 200  # RS-NT-06
    came = subscriber.wait(lambda: subscriber.deliveries("/one"))[0]
    assert came.body == b"<urlset/>"
    assert came.headers["content-type"] == "application/xml"  # RS-NT-14
    links = f'<{hub.url}>; rel="hub", <{topic}>; rel="self", <http://c.example/>; rel="resourcesync"'
    assert came.headers["link"] == links
    assert came.headers["x-hub-signature"] == "sha256=" + hmac.new(b"secret", came.body, hashlib.sha256).hexdigest()
    assert hub.ask("unsubscribe", topic, f"{subscriber.url}/one")[0] == 202
    subscriber.wait(lambda: subscriber.asked("/one")[-1].query["hub.mode"] == "unsubscribe")
    assert "hub.lease_seconds" not in subscriber.asked("/one")[-1].query  # WS-H-07
    subscriber.wait(lambda: not hub.has_subscription(topic, f"{subscriber.url}/one"))
    subscribed(hub, subscriber, topic, "/another")
    hub.publish(topic, b"<urlset>2</urlset>")
    subscriber.wait(lambda: subscriber.deliveries("/another"))
    assert len(subscriber.deliveries("/one")) == 1


def test_any_content_type_is_delivered_as_it_is(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/binary", "/binary")
    body = bytes(range(256)) * 100
    assert hub.publish(topic, body, "image/x-any; a=b")[0] == 200
    came = subscriber.wait(lambda: subscriber.deliveries("/binary"))[0]
    assert (came.body, came.headers["content-type"]) == (body, "image/x-any; a=b")  # F-11
    assert "x-hub-signature" not in came.headers


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("another challenge", Answer(body=b"another")),
        ("404", Answer(404)),
        ("a redirect", Answer(302, headers={"location": "/"})),
        ("an endless body", Answer(body=b"x" * 100_000)),
    ],
)
def test_intent_that_is_not_confirmed(hub: HubProcess, subscriber: Subscriber, name: str, answer: Answer) -> None:
    path = "/no-" + name.replace(" ", "-")
    subscriber.answers[path] = lambda _came: answer
    assert hub.ask("subscribe", "http://t.example/no", subscriber.url + path)[0] == 202
    subscriber.wait(lambda: subscriber.asked(path) and hub.counts()["pending"] == 0)
    assert not hub.has_subscription("http://t.example/no", subscriber.url + path)
    assert len(subscriber.asked(path)) == 1


def test_a_new_request_that_fails_leaves_the_subscription_as_it_was(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/renewed", "/renewed", secret="first")
    subscriber.answers["/renewed"] = lambda _came: Answer(404)
    assert hub.ask("subscribe", topic, f"{subscriber.url}/renewed", secret="second")[0] == 202
    subscriber.wait(lambda: len(subscriber.asked("/renewed")) == 2 and hub.counts()["pending"] == 0)
    del subscriber.answers["/renewed"]
    hub.publish(topic, b"a")
    came = subscriber.wait(lambda: subscriber.deliveries("/renewed"))[0]  # WS-H-04
    assert came.headers["x-hub-signature"].endswith(hmac.new(b"first", b"a", hashlib.sha256).hexdigest())
    assert hub.ask("subscribe", topic, f"{subscriber.url}/renewed", secret="third")[0] == 202
    subscriber.wait(lambda: len(subscriber.asked("/renewed")) == 3 and hub.counts()["pending"] == 0)
    hub.publish(topic, b"b")
    came = subscriber.wait(lambda: subscriber.deliveries("/renewed")[1:])[0]
    assert came.headers["x-hub-signature"].endswith(hmac.new(b"third", b"b", hashlib.sha256).hexdigest())


def test_challenges_are_new_each_time(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/challenge", "/challenge")
    assert hub.ask("subscribe", topic, f"{subscriber.url}/challenge")[0] == 202
    subscriber.wait(lambda: len(subscriber.asked("/challenge")) == 2)
    first, second = (one.query["hub.challenge"] for one in subscriber.asked("/challenge"))
    assert first != second
    assert min(len(first), len(second)) >= 32  # WS-H-10


def test_a_callback_is_used_exactly_as_it_was_given(hub: HubProcess, subscriber: Subscriber) -> None:
    path = "/exact/%7Eme/a%2Fb/../c;d=1?q=%c3%a9&hub.mode=mine"
    topic = "http://t.example/%7Eexact"
    assert hub.ask("subscribe", topic, subscriber.url + path)[0] == 202
    subscriber.wait(lambda: hub.has_subscription(topic, subscriber.url + path))
    hub.publish("http://t.example/~exact", b"x")  # WS-H-16: the same topic
    came = subscriber.wait(lambda: [one for one in subscriber.came if one.path == path])[0]
    assert came.headers["link"].endswith(f'<{topic}>; rel="self"')  # WS-H-15


def test_a_failed_delivery_comes_again_in_order_and_delays_nobody(hub: HubProcess, subscriber: Subscriber) -> None:
    """It fails until another subscriber has everything."""
    topic = subscribed(hub, subscriber, "http://t.example/failing", "/failing")
    subscribed(hub, subscriber, topic, "/well")
    failures = iter([Answer(500), Answer(301, headers={"location": f"{subscriber.url}/elsewhere"})])

    def fail(came: Came) -> Answer:
        if came.method == "GET":
            return Answer()
        return next(failures, Answer() if len(subscriber.deliveries("/well")) == 3 else Answer(500))

    subscriber.answers["/failing"] = fail
    for body in (b"1", b"2", b"3"):
        assert hub.publish(topic, body)[0] == 200
    subscriber.wait(lambda: len(subscriber.deliveries("/well")) == 3)
    subscriber.wait(lambda: subscriber.deliveries("/failing") and subscriber.deliveries("/failing")[-1].body == b"3")
    came = [one.body for one in subscriber.deliveries("/failing")]
    tries = came.count(b"1")
    assert tries >= 3
    assert came == [b"1"] * tries + [b"2", b"3"]
    assert not subscriber.deliveries("/elsewhere")


def test_410_ends_a_subscription(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/gone", "/gone")
    subscribed(hub, subscriber, topic, "/stays")
    subscriber.answers["/gone"] = lambda _came: Answer(410)
    hub.publish(topic, b"a")
    subscriber.wait(lambda: not hub.has_subscription(topic, f"{subscriber.url}/gone"))
    hub.publish(topic, b"b")
    subscriber.wait(lambda: len(subscriber.deliveries("/stays")) == 2)
    assert len(subscriber.deliveries("/gone")) == 1


def test_a_lease_ends(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/short", "/long")
    callback = f"{subscriber.url}/short"
    assert hub.ask("subscribe", topic, callback, lease_seconds="1")[0] == 202
    subscriber.wait(lambda: subscriber.asked("/short") and hub.counts()["pending"] == 0)  # it may be over by now
    subscriber.wait(lambda: not hub.has_subscription(topic, callback))
    hub.publish(topic, b"late")
    subscriber.wait(lambda: subscriber.deliveries("/long"))
    assert not subscriber.deliveries("/short")  # WS-H-09


def test_a_payload_comes_once_however_often_it_is_handed_in(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = subscribed(hub, subscriber, "http://t.example/again", "/again")
    notification = b'<urlset><rs:md capability="change-notification"/></urlset>'
    for body in (notification, notification, b"plain", b"plain"):
        assert hub.publish(topic, body)[0] == 200
    subscriber.wait(lambda: len(subscriber.deliveries("/again")) == 3)
    assert [one.body for one in subscriber.deliveries("/again")] == [notification, b"plain", b"plain"]


def topic_of(subscriber: Subscriber, hub: HubProcess, path: str, body: bytes, **answer: str) -> str:
    """A topic that names the hub."""
    links = {"link": f'<{hub.url}>; rel="hub", <{subscriber.url}{path}>; rel="self"', "content-type": "text/x-any"}
    subscriber.answers[path] = lambda _came: Answer(body=body, headers=links | answer)
    return f"{subscriber.url}{path}"


def test_a_ping_has_the_topic_fetched_and_distributed(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = topic_of(subscriber, hub, "/topic", b"one")
    subscribed(hub, subscriber, topic, "/pinged")
    for field, body, count in (("hub.url", b"one", 1), ("hub.url", b"one", 1), ("hub.topic", b"two", 2)):
        topic_of(subscriber, hub, "/topic", body)
        fetched = len(subscriber.asked("/topic")) + 1
        assert hub.form({"hub.mode": "publish", field: topic})[0] == 202
        subscriber.wait_for("/topic", "GET", fetched)
        subscriber.wait(lambda: hub.counts()["changed_topics"] == 0)
        subscriber.wait_for("/pinged", "POST", count)
    assert [(one.body, one.headers["content-type"]) for one in subscriber.deliveries("/pinged")] == [
        (b"one", "text/x-any"),
        (b"two", "text/x-any"),
    ]


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ({}, "403"),
        ({"link": '<http://other.example/>; rel="hub"'}, "403"),
        ({"link": '<{hub}>; rel="hub", <http://other.example/>; rel="self"'}, "403"),
    ],
)
def test_a_topic_that_does_not_name_the_hub_is_not_believed(
    hub: HubProcess, subscriber: Subscriber, links: dict[str, str], told: str
) -> None:
    subscriber.answers["/liar"] = lambda _came: Answer(
        body=b"x", headers={name: value.replace("{hub}", hub.url) for name, value in links.items()}
    )
    assert str(hub.publish(f"{subscriber.url}/liar", b"x", token=None)[0]) == told


def test_who_has_no_token_hands_in_what_the_topic_has(hub: HubProcess, subscriber: Subscriber) -> None:
    topic = topic_of(subscriber, hub, "/checked", b"<true/>")
    subscribed(hub, subscriber, topic, "/reader")
    status, text = hub.publish(topic, b"<forged/>", token=None)  # RS-NT-07
    assert status == 403
    assert "other content" in text
    assert hub.publish(topic, b"<true/>", token=None)[0] == 200
    assert hub.publish(topic, b"<true/>", token="not-a-token-of-ours")[0] == 401
    subscriber.wait(lambda: subscriber.deliveries("/reader"))
    assert [one.body for one in subscriber.deliveries("/reader")] == [b"<true/>"]


def test_what_has_no_token_is_delivered_once_and_as_the_topic_has_it(hub: HubProcess, subscriber: Subscriber) -> None:
    """RS-NT-07: neither type nor links of a stranger are delivered, and no repetition, whatever the content."""
    topic = topic_of(subscriber, hub, "/true", b"<feed/>")
    named = f'<{hub.url}>; rel="hub", <{topic}>; rel="self", <http://t.example/capabilitylist.xml>; rel="resourcesync"'
    subscriber.answers["/true"] = lambda _came: Answer(
        body=b"<feed/>", headers={"link": named, "content-type": "application/atom+xml"}
    )
    subscribed(hub, subscriber, topic, "/feed")
    evil = ', <http://evil.example/capabilitylist.xml>; rel="resourcesync"'
    for _ in range(3):
        assert hub.publish(topic, b"<feed/>", "text/html", token=None, links=evil)[0] == 200
    assert hub.publish(topic, b"<feed/>", "text/plain")[0] == 200  # of somebody known
    subscriber.wait(lambda: len(subscriber.deliveries("/feed")) == 2)
    first, known = subscriber.deliveries("/feed")
    assert first.headers["content-type"] == "application/atom+xml"
    assert '<http://t.example/capabilitylist.xml>; rel="resourcesync"' in first.headers["link"]
    assert "evil" not in first.headers["link"]
    assert known.headers["content-type"] == "text/plain"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "application/xml"}, b"x", 400),
        ({"Content-Type": "application/xml", "Link": '</relative>; rel="self"'}, b"x", 400),
        ({"Content-Type": "none", "Link": '<http://t/>; rel="self"'}, b"x", 415),
        (
            {"Content-Type": "application/xml", "Link": '<http://t/>; rel="self"', "Content-Length": "99999999"},
            b"x",
            413,
        ),
        ({"Content-Type": "application/xml", "Link": '<http://8.8.8.8/>; rel="self"'}, b"", 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"a" * 70_000, 413),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"hub.mode=subscribe", 400),
    ],
)
def test_requests_that_cannot_be_taken(hub: HubProcess, headers: dict[str, str], body: bytes, status: int) -> None:
    with_token = {"Authorization": f"Bearer {TOKEN}"} | headers
    assert hub.post(body, with_token)[0] == status


def test_private_addresses_are_refused_unless_allowed(tmp_path: Path, subscriber: Subscriber) -> None:
    hub = HubProcess(tmp_path, private=False)
    try:
        for inside in (
            "http://127.0.0.1:1",
            "http://10.0.0.1",
            "http://[::ffff:10.0.0.1]",
            "http://localhost",
            subscriber.url,
        ):
            for mode in ("subscribe", "unsubscribe"):
                status, words = hub.ask(mode, "http://8.8.8.8/t", f"{inside}/inside")
                assert (status, "hub.callback cannot be used" in words) == (403, True), words  # WS-H-02, WS-H-17
        assert hub.publish("http://127.0.0.1/t", b"x")[0] == 403
        assert hub.form({"hub.mode": "publish", "hub.url": "http://[::1]/t"})[0] == 403
        assert hub.counts()["subscriptions"] == 0
        assert not subscriber.asked("/inside")
    finally:
        hub.stop()


def test_a_topic_at_a_private_address_is_denied(tmp_path: Path, subscriber: Subscriber) -> None:
    hub = HubProcess(tmp_path, "--allow-private", "127.0.0.1", private=False)
    try:
        hub.ask("subscribe", "http://10.0.0.1/t", f"{subscriber.url}/denied")
        asked = subscriber.wait(lambda: subscriber.asked("/denied"))[0].query
        assert (asked["hub.mode"], asked["hub.topic"]) == ("denied", "http://10.0.0.1/t")  # WS-H-06
        assert "10.0.0.1" in asked["hub.reason"]
    finally:
        hub.stop()


def test_what_was_answered_survives_a_kill(tmp_path: Path, subscriber: Subscriber) -> None:
    hub = HubProcess(tmp_path)
    topic = "http://t.example/killed"
    down = {"yes": True}

    def hanging(came: Came) -> Answer:
        return Answer(503 if down["yes"] else 200)

    subscriber.answers["/killed"] = hanging
    assert hub.ask("subscribe", topic, f"{subscriber.url}/killed")[0] == 202
    subscriber.wait(lambda: subscriber.asked("/killed"))
    hub.kill()
    down["yes"] = False
    hub.start()
    subscriber.wait(lambda: hub.counts()["subscriptions"] == 1)
    down["yes"] = True
    sent = [b"%d" % number for number in range(20)]
    for number, body in enumerate(sent):
        assert hub.publish(topic, body)[0] == 200
        if number % 5 == 4:
            hub.kill()
            down["yes"] = number % 10 == 4
            hub.start()
    down["yes"] = False
    subscriber.wait(lambda: hub.counts()["behind"] == 0)
    taken = [one.body for one in subscriber.deliveries("/killed")]
    in_order = sorted(set(taken), key=taken.index)
    last = {body: len(taken) - 1 - taken[::-1].index(body) for body in sent}
    assert in_order == sent
    assert sorted(last.values()) == [last[body] for body in sent]  # the same again, never an older one after a newer
    assert hub.stop() == 0


def test_a_hub_that_works_there_already_is_told(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path)
    try:
        command = [sys.executable, "-m", "headwater", "hub", "--listen", "127.0.0.1:0", "--state", str(tmp_path)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 6
        assert "HW-HUB-02" in second.stderr
        shown = subprocess.run(
            [sys.executable, "-m", "headwater", "hub", "status", "--state", str(tmp_path), "--json"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert json.loads(shown.stdout)["subscriptions"] == 0
    finally:
        hub.stop()


def test_one_of_something_is_told_as_one(tmp_path: Path, subscriber: Subscriber) -> None:
    hub = HubProcess(tmp_path)
    try:
        topic = subscribed(hub, subscriber, "http://t.example/told", "/told")
        subscriber.answers["/told"] = lambda _came: Answer(503)
        hub.publish(topic, b"<urlset/>")
        subscriber.wait(lambda: hub.counts()["failing"] == 1)
        command = [sys.executable, "-m", "headwater", "hub", "status", "--state", str(tmp_path)]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    finally:
        hub.stop()
    assert shown == [
        "1 subscription to 1 topic, 0 not verified yet",
        "1 behind, 1 of them not answering; 1 message kept for them",
        f"  {topic}  1 subscription, 1 behind",
    ]


def test_metrics_and_pages(hub: HubProcess) -> None:
    with urllib.request.urlopen(f"{hub.url}metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'headwater_hub_deliveries_total{outcome="received"}' in text
    assert hub.post(b"x", {"Content-Type": "text/plain"})[0] == 400
    with urllib.request.urlopen(hub.url, timeout=30) as answer:
        assert b"WebSub hub" in answer.read()


def test_a_hub_ends_though_its_store_takes_nothing_more(tmp_path: Path, subscriber: Subscriber) -> None:
    """What was received and cannot be remembered is delivered again after the next start."""
    hub = HubProcess(tmp_path)
    topic = subscribed(hub, subscriber, "http://t.example/full", "/full")
    subscriber.answers["/full"] = lambda _came: Answer(seconds=1.0)
    assert hub.publish(topic, b"a")[0] == 200
    subscriber.wait(lambda: subscriber.deliveries("/full"))
    full = resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY)
    resource.prlimit(hub.process.pid, *full)
    time.sleep(1.5)
    assert hub.stop() == 0
    hub.start()
    subscriber.wait(lambda: subscriber.deliveries("/full")[1:])
    hub.stop()


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 1_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=", b"b" * 60_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 10_000),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b" * 60_000),
    ],
)
def test_an_answer_without_end_is_given_up_at_once(
    hub: HubProcess, subscriber: Subscriber, begin: bytes, again: bytes
) -> None:
    sent = [0]

    def flow(_request: Request, connection: socket.socket) -> None:
        connection.sendall(begin)
        while sent[0] < 50_000_000:
            sent[0] += connection.send(again)

    endless = ScriptedServer({})
    endless.respond = lambda request, connection: flow(request, connection)  # type: ignore[method-assign]
    try:
        before = hub.counts()["pending"]
        assert hub.ask("subscribe", "http://t.example/endless", f"http://127.0.0.1:{endless.port}/")[0] == 202
        subscriber.wait(lambda: sent[0] and hub.counts()["pending"] <= before)
        assert sent[0] < 50_000_000
    finally:
        endless.close()
