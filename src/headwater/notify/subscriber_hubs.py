"""What passes between a subscriber and hubs: requests to subscribe, their leases, the answers at a callback.

Hubs ask for verification (WS-S-06, WS-S-07) and deliver (WS-S-09 to WS-S-12): these answers are functions over values.
"""

import asyncio
from collections.abc import Container
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode
from weakref import WeakValueDictionary

import msgspec

from headwater.copy_state import NotificationChannel
from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.notify.hub.policy import objection_to_redirect, objection_to_url
from headwater.notify.subscriber_store import Subscription, SubscriptionState
from headwater.notify.websub import SignatureVerdict, TopicLinks, topic_links, verify
from headwater.retry import Backoff
from headwater.spec import uris
from headwater.spec.discovery import parse_link_header

_CHALLENGE_OCTETS: Final = 4_096
_QUERY_OCTETS: Final = 16_384
_FIELDS: Final = 100


class IntentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub asks: the fields of the query that begin with `hub.`."""

    mode: str = ""
    topic: str = ""
    challenge: str = ""
    lease_seconds: str | None = None
    reason: str = ""


class IntentAnswer(NamedTuple):
    """The answer to a hub: 200 confirms what its mode says, and 404 changes nothing."""

    status: int = 404
    body: bytes = b"nobody has asked for this"


def read_intent(query: bytes) -> IntentQuery | None:
    """The fields of a query; None where it cannot be read, or says one of them twice."""
    if len(query) > _QUERY_OCTETS:
        return None
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except (ValueError, UnicodeError):
        return None
    told = [(name.removeprefix("hub."), value) for name, value in pairs if name.startswith("hub.")]
    known = {name: value for name, value in told if name in IntentQuery.__struct_fields__}
    if any(known.get(name, value) != value for name, value in told):
        return None
    return IntentQuery(**known)


_STATES: Final = {
    "subscribe": (SubscriptionState.REQUESTED, SubscriptionState.ACTIVE),
    "unsubscribe": (SubscriptionState.RETIRED,),
}
"""In which states a mode is confirmed."""


def answer(held: Subscription | None, asked: IntentQuery | None) -> IntentAnswer:
    """The answer to a verification at the callback of the subscription `held` (None: it is none of ours).

    Only what was asked for is confirmed: the mode, and the topic to the letter. What was confirmed before is confirmed
    again, because the hub may not have received the answer.
    """
    if held is None or asked is None or asked.topic != held.topic:
        return IntentAnswer()
    if asked.mode == "denied":
        return IntentAnswer(200, b"")
    challenge = asked.challenge.encode()
    is_meant = held.state in _STATES.get(asked.mode, ()) and 0 < len(challenge) <= _CHALLENGE_OCTETS
    return IntentAnswer(200, challenge) if is_meant else IntentAnswer()


PAYLOAD_OCTETS: Final = 10 << 20  # no payload is longer: as much as our hub takes


class DeliveryAnswer(NamedTuple):
    """The status that a hub gets; `fault` says why the delivery is not taken, for a person.

    `is_doubtful`: something may have been missed, so that the Change List has to be read.
    """

    status: int
    fault: str | None = None
    is_doubtful: bool = False


GONE: Final = DeliveryAnswer(410, fault="this callback does not exist")
_UNSIGNED: Final = {
    SignatureVerdict.MISSING: "it is not signed",
    SignatureVerdict.UNKNOWN: "its signature is of no known method",
}


def judge(held: Subscription, body: bytes, *, signed: str | None, links: str) -> DeliveryAnswer:
    """Judge a whole delivery by its body and the values of `X-Hub-Signature` and `Link`.

    The subscription is that of the callback (WS-S-11). A wrong signature is answered as a right one is and the message
    ignored, so that nobody can try signatures; one that is missing or of no known method is refused, which the hub's
    operator sees. A delivery that says it is of another topic is ignored.
    """
    verdict = verify(signed, held.secret, body)
    if verdict in _UNSIGNED:
        return DeliveryAnswer(403, fault=_UNSIGNED[verdict])
    if verdict is SignatureVerdict.WRONG:
        return DeliveryAnswer(202, fault="its signature is wrong")
    told = [link.href for link in parse_link_header(links, held.topic) if "self" in link.rel]
    ours = {uris.normalise(held.topic), uris.normalise(held.channel)}
    if told and not ours.intersection(map(uris.normalise, told)):
        return DeliveryAnswer(202, fault=f"it is of another topic, {told[0]}"[:300], is_doubtful=True)
    return DeliveryAnswer(202)


# requests to hubs and topics, few to one host at a time; leases, and when hubs are asked again

_WANTED_SECONDS: Final = 86_400
"""The lease that is asked for: within what hubs should grant (RS-NT-11), and short enough to notice a dead hub by."""

LONGEST_SECONDS: Final = 2_678_400  # a longer lease that a hub claims to grant is taken for this one (RS-NT-11)
ASSUMED_SECONDS: Final = 300  # what a lease is taken for that a hub does not state as a positive number
DENIED_SECONDS: Final = 86_400.0  # how long a denial holds, before the hub is asked once more (WS-S-13)

PAUSE: Final = Backoff(1.0, 600.0)
"""Before a request is made again that was refused, was not answered, or is not verified."""


def granted_seconds(text: str | None) -> int:
    """The lease that `hub.lease_seconds` of a verification grants, in seconds from 1 to the longest (RS-NT-13)."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdigit() and text.strip("0")):
        return ASSUMED_SECONDS
    return min(int(text.lstrip("0")[:13]), LONGEST_SECONDS)  # of more digits the first ones are too many


def renewal_seconds(lease: float, chance: float) -> float:
    """After how many seconds of a lease it is renewed: at 50 to 80 % of it, by `chance` in 0 to 1 (WS-S-08)."""
    return max(1.0, lease * (0.5 + 0.3 * chance))


MOST_HUBS: Final = 3  # of several hubs so many are subscribed at: where one is dead another delivers

_TOPIC_BOUNDS: Final = AnswerBounds(seconds=10.0, max_octets=12 << 20)


class DiscoveredTopic(msgspec.Struct, frozen=True):
    """Where to subscribe, and to which topic (WS-S-03)."""

    topic: str
    hubs: tuple[str, ...]


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


_FORM_HEAD: Final = b"Content-Type: application/x-www-form-urlencoded\r\n"


def subscribe_form(wanted: Subscription) -> bytes:
    """The form that asks for a subscription."""
    told = {
        "hub.callback": wanted.callback,
        "hub.mode": "subscribe",
        "hub.topic": wanted.topic,
        "hub.lease_seconds": str(_WANTED_SECONDS),
        "hub.secret": wanted.secret.decode(),
    }
    return urlencode(told).encode()


def unsubscribe_form(held: Subscription) -> bytes:
    """The form that asks for the end of a subscription."""
    told = {"hub.callback": held.callback, "hub.mode": "unsubscribe", "hub.topic": held.topic}
    return urlencode(told).encode()


_BOUNDS: Final = AnswerBounds(seconds=15.0, max_octets=4_096)
_AT_ONCE: Final = 8  # requests to one host at a time: a hub that does not answer delays none at another

_REDIRECTS: Final = 5
_REDIRECTED: Final = range(300, 400)
_SAME_METHOD: Final = (307, 308)  # redirects that ask for the same request elsewhere (RFC 9110, 15.4.8)


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
        """Ask the topic for its hubs; where it does not answer, or says nothing, what the Capability List says holds.

        An address that the topic gives as its own counts only where it is of the same origin as the one that was asked.
        """
        found, (url, answer) = TopicLinks(), await self._answer("GET", channel.topic, _TOPIC_BOUNDS, _REDIRECTED)
        if isinstance(answer, HttpAnswer) and answer.ok:
            media_type = answer.headers.get("content-type", "")
            found = topic_links(answer.headers.get("link", ""), answer.body, media_type, url)
        return discovered(channel, found, url)

    async def post(self, hub: str, form: bytes) -> str | None:
        """Send a form to a hub, or to where it sends us (WS-H-03). Returns why it is not accepted.

        None: it is, as any 2xx says (as AMB-31).
        """
        _, answer = await self._answer("POST", hub, _BOUNDS, _SAME_METHOD, form)
        if isinstance(answer, str):
            return f"the hub redirects: {answer}"
        if isinstance(answer, HttpFailure):
            return f"the hub cannot be asked: {answer.text}"
        said = "".join(one for one in answer.body.decode("utf-8", "replace")[:200] if one.isprintable())
        return None if answer.ok else f"the hub answers with HTTP status {answer.status}{': ' if said else ''}{said}"

    async def _answer(
        self, method: str, url: str, bounds: AnswerBounds, statuses: Container[int], form: bytes | None = None
    ) -> tuple[str, HttpAnswer | HttpFailure | str]:
        """Where redirects of these statuses lead to, and the answer there, or why they are not followed."""
        for _ in range(_REDIRECTS + 1):
            async with self._place(url):
                answer = await self.http.request(method, url, bounds, b"" if form is None else _FORM_HEAD, form)
            if not (isinstance(answer, HttpAnswer) and answer.is_redirect and answer.status in statuses):
                return url, answer
            target = uris.resolve(url, answer.headers["location"])
            if why := objection_to_redirect(url, target):
                return url, why
            url = target
        return url, "too often"
