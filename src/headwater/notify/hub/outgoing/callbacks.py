"""What a hub sends to a callback: the requests that verify intent or deny, and the headers of a delivery. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from headwater.version import __version__

USER_AGENT: Final = f"headwater/{__version__} (WebSub hub)"


def verification_url(callback: str, *, mode: str, topic: str, challenge: str, lease_seconds: int | None) -> str:
    """Where intent is verified: the callback's own query is kept, and what is asked is appended (WS-H-05, WS-H-07)."""
    asked = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": challenge}
    if lease_seconds is not None:
        asked["hub.lease_seconds"] = str(lease_seconds)
    return _appended(callback, asked)


def denial_url(callback: str, *, topic: str, reason: str) -> str:
    """Where a subscriber is told that the subscription is denied (WS-H-06)."""
    return _appended(callback, {"hub.mode": "denied", "hub.topic": topic, "hub.reason": reason})


def _appended(callback: str, asked: dict[str, str]) -> str:
    joint = "" if callback.endswith(("?", "&")) else "&" if "?" in callback else "?"
    return f"{callback}{joint}{urlencode(asked)}"


def link_header(hub: str, topic: str, others: tuple[str, ...] = ()) -> str:
    """The one `Link` header of a delivery: `hub`, `self`, and what the publisher added (WS-H-11, RS-NT-14)."""
    return ", ".join((f'<{hub}>; rel="hub"', f'<{topic}>; rel="self"', *others))
