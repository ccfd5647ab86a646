"""Reads what is posted to a hub as a form: a subscription request, or word that topics have changed (WS-H-01, WS-P-03).

Pure. What cannot be accepted is a `RequestRefusal`, whose text tells the sender what to mend (WS-H-02).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headwater.spec import uris

FORM_OCTETS: Final = 64 << 10
"""A form has no more: a topic, a callback, a secret."""
URL_OCTETS: Final = 4_096
SECRET_OCTETS: Final = 199
"""A secret is shorter than 200 octets (WS-S-04)."""
TOPICS: Final = 100
"""Topics that one form may name as changed …"""
STRANGE_TOPICS: Final = 10
"""… and one without a token."""

_LONGEST_LEASE: Final = 12
_DIGITS = re.compile(r"[0-9]+\Z")
_FIELDS: Final = 200
_NO_URL = re.compile(r"[\x00-\x20\x7f<>\"\\]")
"""The last four would end a URL in a `Link` header, or are read as something else by others."""


class RequestRefusal(msgspec.Struct, frozen=True):
    """Why a request is not accepted: the HTTP status, and a sentence for the sender."""

    status: int
    text: str


class SubscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to subscribe or to unsubscribe. `topic` and `callback` are as given: they are sent back like that."""

    is_unsubscribe: bool
    topic: str
    callback: str
    lease_seconds: int | None = None
    secret: bytes | None = None

    @property
    def topic_key(self) -> str:
        """What tells topics apart: escapes of unreserved characters undone (WS-H-16)."""
        return uris.normalise(self.topic)

    @property
    def callback_key(self) -> str:
        """What tells callbacks apart, in the same way."""
        return uris.normalise(self.callback)


class ChangedTopics(msgspec.Struct, frozen=True):
    """Word that these topics have new content, which the hub is to fetch."""

    topics: tuple[str, ...]


def read_form(body: bytes, *, is_trusted: bool = True) -> SubscriptionRequest | ChangedTopics | RequestRefusal:
    """What a form asks for, of a sender with a token (`is_trusted`) or without.

    Unknown fields are ignored (WS-H-01); fields that contradict each other are refused.
    """
    if len(body) > FORM_OCTETS:
        return RequestRefusal(413, f"a form has {FORM_OCTETS:,} octets at most")
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        return RequestRefusal(400, "the form cannot be read: it is application/x-www-form-urlencoded in UTF-8")
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name.removesuffix("[]"), []).append(value)
    mode = _single(fields, "hub.mode")
    if isinstance(mode, RequestRefusal):
        return mode
    if mode == "publish":
        return _changed_topics(fields, is_trusted=is_trusted)
    if mode in ("subscribe", "unsubscribe"):
        return _subscription(fields, is_unsubscribe=mode == "unsubscribe")
    return RequestRefusal(400, "hub.mode has to be subscribe, unsubscribe or publish")


def objection_to_url(url: str) -> str | None:
    """Why this cannot be a topic or a callback; None: it can. Nothing is looked up."""
    if len(url) > URL_OCTETS:
        return f"it has more than {URL_OCTETS:,} characters"
    if _NO_URL.search(url) or not url.isascii():
        return "it has characters that stand in no URL"
    parts = uris.split(url)
    if (parts.scheme or "").lower() not in ("http", "https") or not parts.authority:
        return "it is no http or https URL"
    if parts.fragment is not None:
        return "it has a fragment"
    if "@" in parts.authority:
        return "it has a user or a password"
    if not uris.is_connectable(parts.scheme or "", parts.authority):
        return "its host or port cannot be connected to"
    return None


def objection_to_redirect(url: str, target: str) -> str | None:
    """Why a redirect from one URL to another is not followed; None: it is."""
    is_downgrade = url.startswith("https:") and not target.startswith("https:")
    return objection_to_url(target) or ("from https to http" if is_downgrade else None)


def _single(fields: dict[str, list[str]], name: str) -> str | RequestRefusal:
    values = set(fields.get(name, ()))
    if len(values) > 1:
        return RequestRefusal(400, f"{name} is there more than once, with different values")
    if not values or not (value := values.pop()):
        return RequestRefusal(400, f"{name} is missing")
    return value


def _url(fields: dict[str, list[str]], name: str) -> str | RequestRefusal:
    value = _single(fields, name)
    if isinstance(value, RequestRefusal):
        return value
    why = objection_to_url(value)
    return value if why is None else RequestRefusal(400, f"{name} cannot be used: {why}")


def _subscription(fields: dict[str, list[str]], *, is_unsubscribe: bool) -> SubscriptionRequest | RequestRefusal:
    topic, callback = _url(fields, "hub.topic"), _url(fields, "hub.callback")
    if isinstance(topic, RequestRefusal):
        return topic
    if isinstance(callback, RequestRefusal):
        return callback
    if is_unsubscribe:  # nothing else matters
        return SubscriptionRequest(is_unsubscribe=True, topic=topic, callback=callback)
    lease: int | None = None
    if "hub.lease_seconds" in fields and fields["hub.lease_seconds"] != [""]:
        text = _single(fields, "hub.lease_seconds")
        if isinstance(text, RequestRefusal):
            return text
        if _DIGITS.match(text) is None or not text.strip("0"):
            return RequestRefusal(400, "hub.lease_seconds has to be a positive whole number")
        lease = int(text) if len(text.lstrip("0")) <= _LONGEST_LEASE else 10**_LONGEST_LEASE
    secret: bytes | None = None
    if "hub.secret" in fields and fields["hub.secret"] != [""]:
        given = _single(fields, "hub.secret")
        if isinstance(given, RequestRefusal):
            return given
        secret = given.encode()
        if len(secret) > SECRET_OCTETS:
            return RequestRefusal(400, "hub.secret has to be shorter than 200 octets")
    return SubscriptionRequest(is_unsubscribe=False, topic=topic, callback=callback, lease_seconds=lease, secret=secret)


def _changed_topics(fields: dict[str, list[str]], *, is_trusted: bool) -> ChangedTopics | RequestRefusal:
    topics = list(dict.fromkeys(fields.get("hub.url", []) + fields.get("hub.topic", [])))
    if not topics:
        return RequestRefusal(400, "hub.url is missing: the topic that has changed")
    most, whose = (TOPICS, "") if is_trusted else (STRANGE_TOPICS, " without a token")
    if len(topics) > most:
        return RequestRefusal(400, f"one request{whose} names {most} topics at most")
    for topic in topics:
        if why := objection_to_url(topic):
            return RequestRefusal(400, f"hub.url cannot be used: {why}")
    return ChangedTopics(tuple(topics))
