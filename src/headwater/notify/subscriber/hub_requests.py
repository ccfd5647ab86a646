"""What a subscriber asks of a hub, by a form, and what the hub's answer means (RS-NT-08, RS-NT-17, WS-S-02). Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import msgspec

from headwater.notify.http_connection import HttpAnswer, HttpFailure
from headwater.notify.hub.requests import objection_to_url
from headwater.notify.subscriber.leases import WANTED_SECONDS
from headwater.notify.subscriber.records import Subscription
from headwater.spec import uris

FORM_HEAD: Final = b"Content-Type: application/x-www-form-urlencoded\r\n"
ANSWER_OCTETS: Final = 4_096
_PASSING: Final = frozenset({408, 425, 429})


class RequestOutcome(msgspec.Struct, frozen=True):
    """What has become of a request: accepted, to be made at another address (WS-H-03), or failed, and why."""

    is_accepted: bool = False
    location: str | None = None
    fault: str | None = None
    is_down: bool = False
    """The hub does not answer anybody at this moment."""

    wait_seconds: float = 0.0
    """It was not made: the hub does not answer, and is asked by another one until then."""


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


def outcome_of(answer: HttpAnswer | HttpFailure, asked_at: str) -> RequestOutcome:
    """What a hub's answer means; `asked_at` is the address that was asked. Any 2xx is an acceptance (as AMB-31)."""
    if isinstance(answer, HttpFailure):
        return RequestOutcome(fault=f"the hub cannot be asked: {answer.text}", is_down=not answer.is_final)
    if answer.ok:
        return RequestOutcome(is_accepted=True)
    if answer.status in (307, 308) and "location" in answer.headers:
        target = uris.resolve(asked_at, answer.headers["location"])
        downgraded = asked_at.startswith("https:") and not target.startswith("https:")
        why = objection_to_url(target) or ("from https to http" if downgraded else None)
        return RequestOutcome(fault=f"the hub redirects: {why}") if why else RequestOutcome(location=target)
    said = "".join(one for one in answer.body.decode("utf-8", "replace")[:200] if one.isprintable())
    fault = f"the hub answers with HTTP status {answer.status}{': ' if said else ''}{said}"
    return RequestOutcome(fault=fault, is_down=answer.status in _PASSING or answer.status >= 500)
