"""Verification of intent: what a hub asks a callback, and what is answered (WS-S-06, WS-S-07, WS-S-13). Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headwater.notify.subscriber.records import Subscription, SubscriptionState

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
