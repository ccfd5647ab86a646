"""Answers hubs at a callback: to verifications of intent (WS-S-06, WS-S-07), to deliveries (WS-S-09 to WS-S-12)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headwater.notify.subscriber.store import Subscription, SubscriptionState
from headwater.notify.websub import SignatureVerdict, verify
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


class IntentOutcome(Enum):
    """What an answer means for the subscription."""

    CONFIRMED = auto()
    ENDED = auto()
    DENIED = auto()
    REFUSED = auto()


class IntentAnswer(msgspec.Struct, frozen=True):
    """The answer to a hub: its status, its body, and what it means."""

    status: int
    body: bytes
    outcome: IntentOutcome


_REFUSED: Final = IntentAnswer(404, b"nobody has asked for this", IntentOutcome.REFUSED)


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


def answer(held: Subscription | None, asked: IntentQuery | None) -> IntentAnswer:
    """The answer to a verification at the callback of the subscription `held` (None: it is none of ours).

    Only what was asked for is confirmed: the mode, and the topic to the letter. What was confirmed before is confirmed
    again, because the hub may not have received the answer.
    """
    if held is None or asked is None or asked.topic != held.topic:
        return _REFUSED
    if asked.mode == "denied":
        return IntentAnswer(200, b"", IntentOutcome.DENIED)
    is_wanted = held.state in (SubscriptionState.REQUESTED, SubscriptionState.ACTIVE)
    challenge = asked.challenge.encode()
    if not challenge or len(challenge) > _CHALLENGE_OCTETS:
        return _REFUSED
    if asked.mode == "subscribe" and is_wanted:
        return IntentAnswer(200, challenge, IntentOutcome.CONFIRMED)
    if asked.mode == "unsubscribe" and held.state is SubscriptionState.RETIRED:
        return IntentAnswer(200, challenge, IntentOutcome.ENDED)
    return _REFUSED


PAYLOAD_OCTETS: Final = 10 << 20
"""No payload is longer: as much as our hub takes."""


class DeliveryAnswer(msgspec.Struct, frozen=True):
    """The status that a hub gets, and what is to be done; `fault` says what is wrong, for a person.

    `is_doubtful`: something may have been missed, so that the Change List has to be read.
    """

    status: int
    is_taken: bool = False
    fault: str | None = None
    is_doubtful: bool = False


GONE: Final = DeliveryAnswer(410, fault="nobody has this callback")
TOO_LONG: Final = DeliveryAnswer(413, fault=f"a payload has {PAYLOAD_OCTETS:,} octets at most", is_doubtful=True)
_TAKEN: Final = DeliveryAnswer(202, is_taken=True)
_UNSIGNED: Final = {
    SignatureVerdict.MISSING: "it is not signed",
    SignatureVerdict.UNKNOWN: "its signature is of no known method",
}


def judge_early(held: Subscription | None, content_length: int | None) -> DeliveryAnswer | None:
    """What is known before the body is read; None: it has to be read."""
    if held is None or held.state is SubscriptionState.DENIED:
        return GONE  # WS-S-10
    return TOO_LONG if content_length is not None and content_length > PAYLOAD_OCTETS else None


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
    return _TAKEN
