"""What a hub decides: forms, leases, addresses, signatures, turns of hosts, links of topics."""

from __future__ import annotations

import hmac
import ipaddress
from collections import Counter
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.notify.http_client import HttpAnswer, HttpFailure
from headwater.notify.hub.delivery import PAUSE, delivery_fault, link_header
from headwater.notify.hub.policy import (
    AddressPolicy,
    ChangedTopics,
    HubLimits,
    RequestRate,
    RequestRefusal,
    SubscriptionRequest,
    TrustedProxies,
    lease_bounds,
    read_form,
)
from headwater.notify.hub.queues import FairQueue
from headwater.notify.hub.verification import denial_url, is_confirmed, may_try_again, verification_url
from headwater.notify.websub import SignatureMethod, signature, topic_links
from headwater.transport.access import client_network
from tests.support.failing import failing

TOPIC, CALLBACK = "http://t.example/topic?x=%7E1", "https://s.example:8443/cb?a=b"
GOOD = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": CALLBACK}


@pytest.mark.parametrize(
    ("more", "lease", "secret"),
    [
        ({}, None, None),
        ({"hub.lease_seconds": "60", "hub.secret": "s" * 199}, 60, b"s" * 199),  # WS-S-02, WS-S-04
        ({"hub.lease_seconds": "9" * 400, "hub.verify": "sync", "other": "x"}, 10**12, None),  # WS-H-01, F-14
        ({"hub.lease_seconds": "", "hub.secret": ""}, None, None),
    ],
)
def test_a_subscription_is_read(more: dict[str, str], lease: int | None, secret: bytes | None) -> None:
    request = read_form(urlencode(GOOD | more).encode())
    assert request == SubscriptionRequest(
        is_unsubscribe=False, topic=TOPIC, callback=CALLBACK, lease_seconds=lease, secret=secret
    )
    assert isinstance(request, SubscriptionRequest)
    assert request.topic_key == "http://t.example/topic?x=~1"  # WS-H-16


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hub.mode": ""}, "hub.mode is missing"),
        ({"hub.mode": "dance"}, "hub.mode has to be"),
        ({"hub.callback": ""}, "hub.callback is missing"),
        ({"hub.callback": "ftp://a/"}, "no http or https"),
        ({"hub.callback": "http://a/#f"}, "fragment"),
        ({"hub.callback": "http://u:p@a/"}, "a user or a password"),
        ({"hub.topic": "http://a/>;rel=x"}, "stand in no URL"),
        ({"hub.callback": "http://a\\@b/"}, "stand in no URL"),
        ({"hub.callback": "http://a:99999/"}, "host or port"),
        ({"hub.callback": "http://a:x/"}, "host or port"),
        ({"hub.callback": "http://a:-1/"}, "host or port"),
        ({"hub.callback": "http://a:80:81/"}, "host or port"),
        ({"hub.topic": "http://[::1/"}, "host or port"),
        ({"hub.topic": "http://[::g]/"}, "host or port"),
        ({"hub.callback": "http://a/\r\nX: y"}, "characters"),
        ({"hub.callback": "http://a/" + "x" * 5_000}, "characters"),
        ({"hub.topic": "/relative"}, "no http or https"),
        ({"hub.lease_seconds": "0"}, "positive"),
        ({"hub.lease_seconds": "-1"}, "positive"),
        ({"hub.lease_seconds": "1e9"}, "positive"),
        ({"hub.secret": "s" * 200}, "shorter than 200"),
        ({"hub.mode": "publish", "hub.topic": "x"}, "hub.url cannot be used"),
    ],
)
def test_a_form_that_cannot_be_accepted_is_told_why(fields: dict[str, str], said: str) -> None:
    refusal = read_form(urlencode(GOOD | fields).encode())
    assert isinstance(refusal, RequestRefusal)
    assert refusal.status == 400
    assert said in refusal.text


def test_values_that_contradict_each_other_are_refused() -> None:
    body = urlencode([*GOOD.items(), ("hub.topic", "http://other.example/")]).encode()
    assert read_form(body) == RequestRefusal(400, "hub.topic is there more than once, with different values")


@pytest.mark.parametrize("field", ["hub.url", "hub.topic", "hub.url[]"])
def test_changed_topics_have_either_name(field: str) -> None:
    body = urlencode([("hub.mode", "publish"), (field, "http://a/1"), (field, "http://a/2")]).encode()
    assert read_form(body) == ChangedTopics(("http://a/1", "http://a/2"))


@given(st.binary(max_size=300))
def test_any_octets_are_read_or_refused(body: bytes) -> None:
    assert isinstance(read_form(body), SubscriptionRequest | ChangedTopics | RequestRefusal)


@pytest.mark.parametrize(("wanted", "granted"), [(None, 864_000), (1, 300), (301, 301), (10**12, 2_678_400)])
def test_leases_keep_their_bounds_ws_h_09_rs_nt_11(wanted: int | None, granted: int) -> None:
    assert HubLimits().lease(wanted) == granted


@pytest.mark.parametrize("text", ["", "1", "5..4", "0..5", "-1..5", "1..x", "1...5"])
def test_bounds_of_leases_that_are_none(text: str) -> None:
    assert lease_bounds("60..864000") == (60, 864_000)
    with failing("HW-HUB-01"):
        lease_bounds(text)


@pytest.mark.parametrize(
    ("address", "plain", "everything", "one"),
    [
        ("8.8.8.8", True, True, True),
        ("127.0.0.1", False, True, True),
        ("127.0.0.2", False, True, False),
        ("::ffff:127.0.0.1", False, True, True),
        ("10.1.2.3", False, True, False),
        ("169.254.169.254", False, True, False),
        ("::1", False, True, False),
    ],
)
def test_addresses_that_are_not_public_need_leave(address: str, plain: bool, everything: bool, one: bool) -> None:
    policies = AddressPolicy(), AddressPolicy(everything=True), AddressPolicy(["127.0.0.1/32"])
    assert [policy.objection(address) is None for policy in policies] == [plain, everything, one]
    with failing("HW-HUB-01"):
        AddressPolicy(["localhost"])


def test_the_rate_of_one_client_bounds_no_other() -> None:
    rate = RequestRate(2.0, 3, clients=2)
    assert [rate.wait_seconds("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.wait_seconds("b", 0.0) == 0
    assert rate.wait_seconds("a", 0.5) == 0


@pytest.mark.parametrize(
    ("callback", "begin"),
    [
        ("http://a/cb", "http://a/cb?hub.mode="),
        ("http://a/cb?x=1&hub.mode=mine", "http://a/cb?x=1&hub.mode=mine&hub.mode="),
        ("http://a/cb?", "http://a/cb?hub.mode="),
    ],
)
def test_a_callback_keeps_its_query_ws_h_05(callback: str, begin: str) -> None:
    url = verification_url(callback, mode="subscribe", topic=TOPIC, challenge="c", lease_seconds=5)
    assert url.startswith(begin + "subscribe")
    query = parse_qs(urlsplit(url).query)
    assert (query["hub.topic"], query["hub.challenge"], query["hub.lease_seconds"]) == ([TOPIC], ["c"], ["5"])
    assert denial_url(callback, topic=TOPIC, reason="full").startswith(begin + "denied")


@pytest.mark.parametrize("method", SignatureMethod)
def test_signatures_are_hmac_over_the_body_ws_h_14(method: SignatureMethod) -> None:
    expected = hmac.new(b"secret", b"body", method.value).hexdigest()
    assert signature(b"secret", b"body", method) == f"{method.value}={expected}"


def test_one_link_header_has_hub_and_self_ws_h_11() -> None:
    text = link_header("http://h/", "http://t/", ('<http://c/>; rel="resourcesync"',))
    assert text == '<http://h/>; rel="hub", <http://t/>; rel="self", <http://c/>; rel="resourcesync"'


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (HttpAnswer(200, {}), None),
        (HttpAnswer(299, {}), None),
        (HttpAnswer(301, {"location": "http://x/"}), "HTTP status 301"),  # WS-S-09
        (HttpAnswer(410, {}), "HTTP status 410"),  # WS-H-13
        (HttpAnswer(500, {}), "HTTP status 500"),
        (HttpFailure("no"), "no"),
    ],
)
def test_answers_to_deliveries(answer: HttpAnswer | HttpFailure, fault: str | None) -> None:
    assert delivery_fault(answer) == fault


@pytest.mark.parametrize(
    ("answer", "confirmed", "again"),
    [
        (HttpAnswer(200, {}, b"challenge"), True, False),
        (HttpAnswer(206, {}, b"challenge"), True, False),
        (HttpAnswer(200, {}, b"challenge\n"), False, False),
        (HttpAnswer(200, {}, b"another"), False, False),
        (HttpAnswer(302, {}, b"challenge"), False, False),  # WS-H-08
        (HttpAnswer(404, {}, b"challenge"), False, False),
        (HttpAnswer(503, {}, b"challenge"), False, True),
    ],
)
def test_answers_to_verifications(answer: HttpAnswer, confirmed: bool, again: bool) -> None:
    assert is_confirmed(answer, "challenge") is confirmed
    assert may_try_again(answer, 1) is again
    assert not may_try_again(answer, 9)
    assert not may_try_again(HttpFailure("inside", is_final=True), 1)


def test_pauses_grow_and_begin_below_a_second() -> None:
    assert all(0 < PAUSE.seconds(1, chance) < 1 for chance in (0.0, 0.5, 1.0))
    pauses = [PAUSE.seconds(failures, 0.5) for failures in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE.longest


HOSTS = ["a:1", "a:2", "b:1", "c:1"]


@given(st.lists(st.tuples(st.sampled_from(HOSTS), st.floats(0, 5)), max_size=40), st.integers(1, 6), st.integers(1, 3))
def test_hosts_take_turns_within_their_slots(items: list[tuple[str, float]], slots: int, host_slots: int) -> None:
    queue: FairQueue[tuple[str, float, int]] = FairQueue(slots, host_slots)
    for number, (host, due_at) in enumerate(items):
        queue.add(host, (host, due_at, number), due_at)
    now = 0.0
    active: list[str] = []
    taken: list[tuple[str, float, int]] = []
    while len(taken) < len(items):
        while (item := queue.take(now)) is not None:
            assert item[1] <= now
            active.append(item[0])
            taken.append(item)
            assert len(active) <= slots
            assert max(Counter(active).values()) <= host_slots
        if active:
            queue.done(active.pop(0))
        else:
            due = queue.next_due()
            assert due is not None
            now = due
    assert sorted(item[2] for item in taken) == list(range(len(items)))
    assert len(queue) == 0


def test_a_host_with_much_waiting_delays_no_other() -> None:
    queue: FairQueue[str] = FairQueue(4, 2)
    for number in range(1_000):
        queue.add("busy:80", f"busy {number}")
    queue.add("other:80", "other")
    assert [queue.take(0.0) for _ in range(4)] == ["busy 0", "other", "busy 1", None]


FEED = b'<feed xmlns="http://www.w3.org/2005/Atom"><link rel="hub" href="/h"/><link rel="self" href="/s"/><entry>'


@pytest.mark.parametrize(
    ("header", "body", "media_type", "hubs", "canonical"),
    [
        ('<http://h/>; rel="hub", </s>; rel="self"', FEED, "application/atom+xml", ("http://h/",), "http://t/s"),
        ("<http://h/>; rel=hub, <http://i/>; rel=hub", b"", "", ("http://h/", "http://i/"), None),
        ("", FEED, "application/atom+xml; charset=utf-8", ("http://t/h",), "http://t/s"),
        (
            "",
            b'<rss xmlns:a="http://www.w3.org/2005/Atom"><channel><a:link rel="hub" href="http://h/"/><item/></channel></rss>',
            "application/rss+xml",
            ("http://h/",),
            None,
        ),
        (
            "",
            b'<html><head><link rel="hub" href="http://h/"><link rel=self href="/s"></head><p><link rel=hub href=n>',
            "text/html",
            ("http://h/",),
            "http://t/s",
        ),
        ("", b"<!DOCTYPE feed [<!ENTITY a 'b'>]>" + FEED, "text/xml", (), None),
        ("", FEED, "text/plain", (), None),
        ("", b"<feed", "text/xml", (), None),
    ],
)
def test_links_of_topics_ws_s_01(
    header: str, body: bytes, media_type: str, hubs: tuple[str, ...], canonical: str | None
) -> None:
    found = topic_links(header, body, media_type, "http://t/topic")
    assert (found.hubs, found.canonical) == (hubs, canonical)


FORWARDED: dict[str, tuple[str, list[bytes], str]] = {
    "nobody is trusted but proxies": ("198.51.100.1", [b"192.0.2.1"], "198.51.100.1"),
    "one proxy": ("127.0.0.1", [b"192.0.2.1"], "192.0.2.1"),
    "a row of proxies": ("127.0.0.1", [b"192.0.2.1, 10.1.2.3,10.9.9.9"], "192.0.2.1"),
    "what a client invents stands on the left": ("127.0.0.1", [b"203.0.113.9, 127.0.0.1, 192.0.2.1"], "192.0.2.1"),
    "several fields": ("127.0.0.1", [b"203.0.113.9", b"192.0.2.1, 10.0.0.1"], "192.0.2.1"),
    "proxies alone": ("127.0.0.1", [b"10.0.0.1, 10.0.0.2"], "10.0.0.1"),
    "no field": ("127.0.0.1", [], "127.0.0.1"),
    "an empty field": ("127.0.0.1", [b""], "127.0.0.1"),
    "no address": ("127.0.0.1", [b"192.0.2.1, unknown"], "127.0.0.1"),
    "no address, behind two": ("127.0.0.1", [b"192.0.2.1, x\xff\x00, 10.0.0.1"], "10.0.0.1"),
    "a port": ("127.0.0.1", [b"192.0.2.1:4711"], "192.0.2.1"),
    "IPv6": ("127.0.0.1", [b"2001:db8::1"], "2001:db8::1"),
    "IPv6 with a port": ("127.0.0.1", [b"[2001:db8::1]:4711"], "2001:db8::1"),
    "IPv4 within IPv6": ("::ffff:127.0.0.1", [b"::ffff:192.0.2.1, ::ffff:10.0.0.1"], "::ffff:192.0.2.1"),
    "a long one": ("127.0.0.1", [b"192.0.2.1," * 100_000 + b"192.0.2.2"], "192.0.2.2"),
    "a long row of proxies": ("127.0.0.1", [b"192.0.2.1," + b"10.0.0.1," * 1_000 + b"10.0.0.2"], "10.0.0.1"),
    "a socket without an address": ("", [b"192.0.2.1"], ""),
}


@pytest.mark.parametrize("case", FORWARDED)
def test_which_client_asks(case: str) -> None:
    peer, fields, client = FORWARDED[case]
    headers = [(b"host", b"hub.example"), *((b"x-forwarded-for", value) for value in fields)]
    found = TrustedProxies(["127.0.0.1", "10.0.0.0/8"]).client(peer, headers)
    assert client_network(found) == client_network(client)
    assert TrustedProxies().client(peer, headers) == peer


@given(st.binary(max_size=200))
def test_no_forwarded_address_raises(value: bytes) -> None:
    client = TrustedProxies(["127.0.0.1"]).client("127.0.0.1", [(b"x-forwarded-for", value)])
    assert ipaddress.ip_address(client)
