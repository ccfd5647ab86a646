"""What a delivery to a callback comes to: taken, ignored, or refused (WS-S-09, WS-S-10, WS-S-12). Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.notify.signatures import SignatureVerdict, verify
from headwater.notify.subscriber.records import Subscription, SubscriptionState
from headwater.spec import uris
from headwater.spec.discovery import parse_link_header

PAYLOAD_OCTETS: Final = 10 << 20
"""No payload is longer: as much as our hub takes."""

QUEUED_PAYLOADS: Final = 10_000
QUEUED_OCTETS: Final = 256 << 20
"""So much of a copy may wait to be applied; beyond, hubs are asked to come again."""


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
