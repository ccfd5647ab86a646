"""What a subscriber decides: intents, deliveries, leases, answers of hubs, hubs of a topic, the chain of intervals."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.copy_state import NotificationChannel
from headwater.notify import subscriber_hubs as leases
from headwater.notify.http_client import HttpAnswer, HttpFailure
from headwater.notify.subscriber_hubs import (
    MOST_HUBS,
    HubClient,
    answer,
    discovered,
    judge,
    read_intent,
    subscribe_form,
    unsubscribe_form,
)
from headwater.notify.subscriber_store import (
    ChannelProgress,
    Subscription,
    SubscriptionState,
)
from headwater.notify.websub import SignatureMethod, TopicLinks, signature
from headwater.spec.kinds import Kind

TOPIC, HUB = "https://s.example/set/changenotification.xml", "https://hub.example/"
HELD = Subscription(
    kind=Kind.CHANGE_NOTIFICATION,
    identity="https://s.example/set/capabilitylist.xml",
    channel=TOPIC,
    topic=TOPIC,
    hub=HUB,
    callback="https://me.example/hook/t0ken",
    token="t0ken",
    secret=b"secret",
    state=SubscriptionState.REQUESTED,
)
ASKED = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.challenge": "c<1>", "hub.lease_seconds": "600"}
REQUESTED, ACTIVE, RETIRED, DENIED = SubscriptionState


def held(state: SubscriptionState) -> Subscription:
    return msgspec.structs.replace(HELD, state=state)


INTENTS: dict[str, tuple[SubscriptionState, dict[str, str | None], int]] = {
    "what was asked for": (REQUESTED, {}, 200),
    "again, the answer was lost": (ACTIVE, {}, 200),
    "of a subscription that is to end": (RETIRED, {}, 404),
    "of one that was denied": (DENIED, {}, 404),
    "another topic": (REQUESTED, {"hub.topic": TOPIC + "2"}, 404),
    "no topic": (REQUESTED, {"hub.topic": None}, 404),
    "an end that nobody has asked for": (ACTIVE, {"hub.mode": "unsubscribe"}, 404),
    "the end that was asked for, whatever its lease": (
        RETIRED,
        {"hub.mode": "unsubscribe", "hub.lease_seconds": "-1"},
        200,
    ),
    "no challenge": (REQUESTED, {"hub.challenge": ""}, 404),
    "a challenge without end": (REQUESTED, {"hub.challenge": "c" * 5_000}, 404),
    "an unknown mode": (REQUESTED, {"hub.mode": "publish"}, 404),
    "further fields": (REQUESTED, {"hub.other": "x", "other": "y"}, 200),
}


@pytest.mark.parametrize("case", INTENTS)
def test_only_what_was_asked_for_is_confirmed_ws_s_06(case: str) -> None:
    state, changes, status = INTENTS[case]
    fields: dict[str, str] = {name: value for name, value in {**ASKED, **changes}.items() if value is not None}
    told = answer(held(state), read_intent(urlencode(fields).encode()))
    assert told.status == status
    assert (told.body == fields["hub.challenge"].encode()) is (status == 200)  # RS-NT-12: exactly the challenge


def test_a_verification_for_no_subscription_of_ours_is_refused() -> None:
    assert answer(None, read_intent(urlencode(ASKED).encode())).status == 404


@pytest.mark.parametrize("query", [b"hub.mode=subscribe&hub.mode=denied", b"\xff=1", b"a=b&" * 200, b"a" * 20_000])
def test_a_query_that_cannot_be_understood_confirms_nothing(query: bytes) -> None:
    assert answer(HELD, read_intent(query)).status == 404


@pytest.mark.parametrize("state", [REQUESTED, ACTIVE])
def test_a_denial_is_taken_at_any_time_ws_s_13(state: SubscriptionState) -> None:
    asked = read_intent(urlencode({"hub.mode": "denied", "hub.topic": TOPIC, "hub.reason": "no"}).encode())
    assert answer(held(state), asked).status == 200
    other = read_intent(urlencode({"hub.mode": "denied", "hub.topic": TOPIC + "2"}).encode())
    assert answer(held(state), other).status == 404


BODY = b"<urlset/>"
GOOD = signature(HELD.secret, BODY, SignatureMethod.SHA256)
SELF = f'<{TOPIC}>; rel="self", <{HUB}>; rel="hub"'
DELIVERIES = {
    "signed": (GOOD, SELF, 202, True),
    "signed by SHA-1": (signature(HELD.secret, BODY, SignatureMethod.SHA1), SELF, 202, True),
    "without links": (GOOD, "", 202, True),
    "links that cannot be read": (GOOD, "<<<", 202, True),
    "of another topic": (GOOD, SELF.replace("/set/", "/other/"), 202, False),
    "forged": (signature(b"guess", BODY, SignatureMethod.SHA256), SELF, 202, False),
    "truncated": (signature(HELD.secret, BODY + b"</urlset>", SignatureMethod.SHA256), SELF, 202, False),
    "not signed": (None, SELF, 403, False),
    "signed by nothing that is known": ("md5=0123", SELF, 403, False),
}


@pytest.mark.parametrize("case", DELIVERIES)
def test_deliveries_are_taken_ignored_or_refused_ws_s_12(case: str) -> None:
    signed, links, status, is_taken = DELIVERIES[case]
    told = judge(held(ACTIVE), BODY, signed=signed, links=links)
    assert (told.status, told.fault is None) == (status, is_taken)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("600", 600), ("1", 1), ("007", 7)],
        *[("0", 300), ("-1", 300), (None, 300), ("", 300), ("1.5", 300), ("٣", 300)],
        *[("1000000000000000000", leases.LONGEST_SECONDS), ("9" * 4_000, leases.LONGEST_SECONDS)],
    ],
)
def test_leases_that_hubs_grant_are_bounded_rs_nt_13(text: str | None, seconds: int) -> None:
    assert leases.granted_seconds(text) == seconds


@given(st.integers(2, leases.LONGEST_SECONDS), st.floats(0, 1))
def test_a_subscription_is_renewed_within_its_lease_ws_s_08(lease: int, chance: float) -> None:
    assert lease * 0.49 <= leases.renewal_seconds(lease, chance) <= lease * 0.81
    assert leases.renewal_seconds(1, chance) == 1.0


def test_the_forms_have_what_hubs_need_rs_nt_08_ws_s_02() -> None:
    told = {name: values[0] for name, values in parse_qs(subscribe_form(HELD).decode()).items()}
    assert told == {
        "hub.callback": HELD.callback,
        "hub.mode": "subscribe",
        "hub.topic": TOPIC,
        "hub.lease_seconds": "86400",
        "hub.secret": "secret",
    }
    ended = parse_qs(unsubscribe_form(HELD).decode())
    assert (ended["hub.mode"], ended["hub.callback"]) == (["unsubscribe"], [HELD.callback])  # RS-NT-17


def redirect(status: int, location: str) -> HttpAnswer:
    return HttpAnswer(status, {"location": location})


FAULTS: dict[str, tuple[list[HttpAnswer | HttpFailure], str | None]] = {
    "accepted": ([HttpAnswer(202, {})], None),
    "any 2xx": ([HttpAnswer(204, {})], None),
    "another hub": ([redirect(307, "/other"), HttpAnswer(202, {})], None),
    "redirects without end": ([redirect(307, "/other")] * 6, "the hub redirects: too often"),
    "a redirect that is none of requests": ([redirect(302, "/other")], "the hub answers with HTTP status 302"),
    "to http": ([redirect(308, "http://h.example/")], "the hub redirects: from https to http"),
    "to no URL": ([redirect(308, "ftp://h.example/")], "the hub redirects: it is no http or https URL"),
    "refused, in words": (
        [HttpAnswer(400, {}, b"no \x1b[31m topic")],
        "the hub answers with HTTP status 400: no [31m topic",
    ),
    "not reached": ([HttpFailure("no answer")], "the hub cannot be asked: no answer"),
    "an address that is not connected to": ([HttpFailure("no", is_final=True)], "the hub cannot be asked: no"),
    "overloaded": ([HttpAnswer(429, {})], "the hub answers with HTTP status 429"),
    "broken": ([HttpAnswer(502, {})], "the hub answers with HTTP status 502"),
}


class ScriptedClient:
    """Gives one answer after another; `asked` has the URLs."""

    def __init__(self, answers: list[HttpAnswer | HttpFailure]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def request(self, _method: str, url: str, *_: object) -> HttpAnswer | HttpFailure:
        self.asked.append(url)
        return self.answers.pop(0)


@pytest.mark.parametrize("case", FAULTS)
def test_answers_of_hubs(case: str) -> None:  # WS-H-03
    answers, fault = FAULTS[case]
    client = ScriptedClient(answers)
    assert asyncio.run(HubClient(client).post(HUB, b"")) == fault  # type: ignore[arg-type]
    assert client.asked == [HUB, *[HUB + "other"] * 5][: len(answers)]


CHANNEL = NotificationChannel(kind=Kind.CHANGE_NOTIFICATION, identity="", topic=TOPIC, hubs=(HUB,))


@pytest.mark.parametrize(
    ("found", "topic", "hubs"),
    [
        (TopicLinks(), TOPIC, [HUB]),  # the topic says nothing: the Capability List holds (RS-CH-05)
        (TopicLinks((), TOPIC + "?2"), TOPIC + "?2", [HUB]),  # WS-S-03: its own address is what is subscribed to
        (TopicLinks((), "https://other.example/"), TOPIC, [HUB]),  # of another origin: somebody else's topic
        (TopicLinks((), "javascript:1"), TOPIC, [HUB]),
        (TopicLinks(("https://h2.example/",)), TOPIC, ["https://h2.example/", HUB]),  # RS-CH-06: several
        (TopicLinks(("http://hub.example/",)), TOPIC, [HUB]),  # WS-S-14: the one by https
        (TopicLinks(("ftp://hub.example/", "https://u:p@h.example/")), TOPIC, [HUB]),
        (TopicLinks(tuple(f"https://h{n}.example/" for n in range(9))), TOPIC, None),
    ],
)
def test_what_is_discovered_of_a_topic(found: TopicLinks, topic: str, hubs: list[str] | None) -> None:
    told = discovered(CHANNEL, found, TOPIC)
    assert told.topic == topic
    assert len(told.hubs) == MOST_HUBS if hubs is None else list(told.hubs) == hubs


# -- the chain of intervals


def test_a_chain_without_a_gap_leads_on_rs_cn_07() -> None:
    progress = ChannelProgress().raised(10)
    assert progress.joins(10, 20)
    progress = progress.raised(20)
    assert progress.joins(15, 25)
    assert progress.is_past(10, 19)
    assert not progress.is_past(10, 20)  # its last change may be at the very moment
    assert progress.raised(15) == progress


@pytest.mark.parametrize("interval", [(11, 20), (None, 20), (10, None), (20, 10), (None, None)])
def test_after_a_gap_or_without_an_interval_nothing_joins(interval: tuple[int | None, int | None]) -> None:
    progress = ChannelProgress().raised(10)
    assert not progress.joins(*interval)
    assert not progress.is_past(*interval)
    assert not ChannelProgress().joins(10, 20), "nothing was read so far"


def test_lists_are_read_until_they_lead_as_far_as_a_change_that_was_told() -> None:
    gap = ChannelProgress().raised(10).awaiting(30)
    assert (gap.reached, gap.needs_poll) == (10, True)
    assert gap.polled(25).needs_poll
    assert not gap.polled(25).polled(30).needs_poll
    assert not gap.awaiting(20).polled(30).needs_poll
    assert not ChannelProgress().raised(10).awaiting().polled(10).needs_poll


@given(st.lists(st.integers(0, 50) | st.none(), max_size=12), st.integers(0, 50))
def test_progress_never_goes_back(times: list[int | None], start: int) -> None:
    progress = ChannelProgress().raised(start)
    for time in times:
        after = progress.polled(time)
        assert (after.reached or 0) >= (progress.reached or 0)
        progress = after
