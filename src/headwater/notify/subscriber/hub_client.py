"""Asks hubs and topics, few requests to one host at a time; leases, and when hubs are asked again."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import msgspec

from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.notify.hub.policy import objection_to_redirect, objection_to_url
from headwater.notify.subscriber.store import NotificationChannel, Subscription
from headwater.notify.websub import TopicLinks, topic_links
from headwater.retry import Backoff
from headwater.spec import uris

WANTED_SECONDS: Final = 86_400
"""The lease that is asked for: within what hubs should grant (RS-NT-11), and short enough to notice a dead hub by."""

LONGEST_SECONDS: Final = 2_678_400
"""A longer lease that a hub claims to grant is taken for this one (RS-NT-11)."""

ASSUMED_SECONDS: Final = 300
"""What a lease is taken for that a hub does not state as a positive number."""

VERIFICATION: Final = Backoff(5.0, 600.0)
"""How long a hub may take to verify what it has accepted, before it is asked again."""

DENIED_SECONDS: Final = 86_400.0
"""How long a denial holds, before the hub is asked once more (WS-S-13)."""

PAUSE: Final = Backoff(0.6, 600.0)
"""Before a request is made again that has failed."""

_LEAST_RENEWAL: Final = 1.0
_MOST_DIGITS: Final = 12


def granted_seconds(text: str | None) -> int:
    """The lease that `hub.lease_seconds` of a verification grants, in seconds from 1 to the longest (RS-NT-13)."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        return ASSUMED_SECONDS
    digits = text.lstrip("0")
    return LONGEST_SECONDS if len(digits) > _MOST_DIGITS else min(int(digits), LONGEST_SECONDS)


def renewal_seconds(lease: float, chance: float) -> float:
    """After how many seconds of a lease it is renewed: at 50 to 80 % of it, by `chance` in 0 to 1 (WS-S-08)."""
    return max(_LEAST_RENEWAL, lease * (0.5 + 0.3 * chance))


MOST_HUBS: Final = 3
"""Of several hubs so many are subscribed at: where one is dead another delivers."""

_SECONDS: Final = 10.0
_OCTETS: Final = 12 << 20
_TOPIC_BOUNDS: Final = AnswerBounds(seconds=_SECONDS, max_octets=_OCTETS)
_TOPIC_REDIRECTS: Final = 5


class DiscoveredTopic(msgspec.Struct, frozen=True):
    """Where to subscribe, and to which topic (WS-S-03)."""

    topic: str
    hubs: tuple[str, ...]


async def discover(client: HttpClient, channel: NotificationChannel) -> DiscoveredTopic:
    """Ask the topic; where it does not answer, or says nothing, what the Capability List says holds.

    An address that the topic gives as its own counts only where it is of the same origin as the one that was asked.
    """
    url, found = channel.topic, TopicLinks()
    for _ in range(_TOPIC_REDIRECTS + 1):
        answer = await client.request("GET", url, _TOPIC_BOUNDS)
        if not isinstance(answer, HttpAnswer):
            break
        if answer.is_redirect:
            target = uris.resolve(url, answer.headers["location"])
            if objection_to_redirect(url, target):
                break
            url = target
            continue
        if answer.ok:
            media_type = answer.headers.get("content-type", "")
            found = topic_links(answer.headers.get("link", ""), answer.body, media_type, url)
        break
    return discovered(channel, found, url)


def discovered(channel: NotificationChannel, found: TopicLinks, url: str) -> DiscoveredTopic:
    """What holds, of what the Capability List and the topic at `url` say: hubs of the topic first, https first."""
    topic = channel.topic
    if found.canonical is not None and not objection_to_url(found.canonical):
        origins = {uris.origin(channel.topic), uris.origin(url)}
        topic = found.canonical if uris.origin(found.canonical) in origins else topic
    usable = [hub for hub in dict.fromkeys((*found.hubs, *channel.hubs)) if not objection_to_url(hub)]
    secure = {hub.partition(":")[2] for hub in usable if hub.startswith("https:")}
    kept = [hub for hub in usable if hub.startswith("https:") or hub.partition(":")[2] not in secure]  # WS-S-14
    return DiscoveredTopic(topic, tuple(kept[:MOST_HUBS]))


FORM_HEAD: Final = b"Content-Type: application/x-www-form-urlencoded\r\n"
ANSWER_OCTETS: Final = 4_096


def subscribe_form(wanted: Subscription) -> bytes:
    """The form that asks for a subscription."""
    told = {
        "hub.callback": wanted.callback,
        "hub.mode": "subscribe",
        "hub.topic": wanted.topic,
        "hub.lease_seconds": str(WANTED_SECONDS),
        "hub.secret": wanted.secret.decode(),
    }
    return urlencode(told).encode()


def unsubscribe_form(held: Subscription) -> bytes:
    """The form that asks for the end of a subscription."""
    told = {"hub.callback": held.callback, "hub.mode": "unsubscribe", "hub.topic": held.topic}
    return urlencode(told).encode()


def request_fault(answer: HttpAnswer | HttpFailure) -> str | None:
    """Why a hub has not accepted a request; None: it has, as any 2xx says (as AMB-31)."""
    if isinstance(answer, HttpFailure):
        return f"the hub cannot be asked: {answer.text}"
    if answer.ok:
        return None
    said = "".join(one for one in answer.body.decode("utf-8", "replace")[:200] if one.isprintable())
    return f"the hub answers with HTTP status {answer.status}{': ' if said else ''}{said}"


HUB_SECONDS: Final = 15.0
_BOUNDS: Final = AnswerBounds(seconds=HUB_SECONDS, max_octets=ANSWER_OCTETS)
_AT_ONCE: Final = 8
"""Requests to one host at a time: a hub that does not answer delays none at another."""

_REDIRECTS: Final = 3
_SAME_METHOD: Final = (307, 308)
"""Redirects that ask for the same request elsewhere (RFC 9110, 15.4.8)."""


class HubClient:
    """For one event loop."""

    def __init__(self, client: HttpClient) -> None:
        self.http = client
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def _place(self, url: str) -> asyncio.Semaphore:
        """A place among the requests to the host of a URL."""
        origin = uris.origin(url)
        return self._places.setdefault(f"{origin.host}:{origin.port}", asyncio.Semaphore(_AT_ONCE))

    async def discover(self, channel: NotificationChannel) -> DiscoveredTopic:
        """The hubs of a channel, and its topic."""
        async with self._place(channel.topic):
            return await discover(self.http, channel)

    async def post(self, hub: str, form: bytes) -> str | None:
        """Send a form to a hub, or to where it sends us (WS-H-03). Returns why it is not accepted; None: it is."""
        url = hub
        for _ in range(_REDIRECTS):
            async with self._place(url):
                answer = await self.http.request("POST", url, _BOUNDS, FORM_HEAD, form)
            if isinstance(answer, HttpFailure) or not (answer.is_redirect and answer.status in _SAME_METHOD):
                return request_fault(answer)
            target = uris.resolve(url, answer.headers["location"])
            if why := objection_to_redirect(url, target):
                return f"the hub redirects: {why}"
            url = target
        return "the hub redirects too often"
