"""What a publisher posts to a hub, and what follows from the hub's answer (RS-NT-04, RS-NT-06, WS-P-03). Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final
from urllib.parse import urlencode

from headwater.retry import Backoff

_FAILED: Final = Backoff(0.5, 5.0)
"""The pauses before what has failed is sent again, by one stream for all, without a word of the hub. A hub that is back
is used within seconds; what asks a hub that is not is one request each time."""
_REFUSED: Final = Backoff(10.0, 600.0)
"""Those after a refusal, which another try alone will not change."""
LONGEST_ASKED_SECONDS: Final = 3_600.0
"""A hub that asks for a longer pause is asked again after this."""
_PASSING: Final = frozenset({408, 425, 429})
_NO_FORM: Final = frozenset({400, 405, 411, 415, 422, 501})


class PostOutcome(Enum):
    """What a hub has made of a payload."""

    TAKEN = auto()
    FAILED = auto()
    """It may well be taken when it is sent again."""
    REFUSED = auto()
    """It is not taken until somebody changes something."""
    TOO_LARGE = auto()
    """Something shorter may be taken."""


def payload_head(hub: str, topic: str, capability_list: str, token: str | None) -> bytes:
    """The header lines of a payload beside those of every request (RS-NT-04, RS-NT-05)."""
    links = f'<{topic}>; rel="self", <{hub}>; rel="hub", <{capability_list}>; rel="resourcesync"'
    sent = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"Content-Type: application/xml\r\nLink: {links}\r\n{sent}".encode("ascii")


def is_not_understood(status: int) -> bool:
    """Whether a hub that answers a payload with this status may be one that takes none: it fetches what has changed."""
    return status in _NO_FORM


def ping(topic: str, token: str | None) -> tuple[bytes, bytes]:
    """Header lines and body by which such a hub is told that a topic has changed (WS-P-03), by both names in use."""
    sent = "" if token is None else f"Authorization: Bearer {token}\r\n"
    head = f"Content-Type: application/x-www-form-urlencoded\r\n{sent}".encode("ascii")
    return head, urlencode({"hub.mode": "publish", "hub.url": topic, "hub.topic": topic}).encode("ascii")


def outcome_of(status: int) -> PostOutcome:
    """What an answer with this status means: any 2xx is success (AMB-31), redirects are not followed."""
    if 200 <= status < 300:
        return PostOutcome.TAKEN
    if status == 413:
        return PostOutcome.TOO_LARGE
    return PostOutcome.REFUSED if 300 <= status < 500 and status not in _PASSING else PostOutcome.FAILED


def pause_seconds(outcome: PostOutcome, failures: int, chance: float, asked_seconds: float = 0.0) -> float:
    """How long to wait after so many failures in a row: twice as long each time, a quarter less or more.

    `chance` is from 0 to 1. The first pause after a failure is less than a second. What the hub has asked for is a
    bound below.
    """
    pause = (_REFUSED if outcome is PostOutcome.REFUSED else _FAILED).seconds(failures, chance)
    return max(pause, min(asked_seconds, LONGEST_ASKED_SECONDS))
