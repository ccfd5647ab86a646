"""The forms that a hub accepts, and its bounds: callback addresses, leases, sizes, rates (WS-H-01, WS-P-03).

Pure. Behind proxies that are trusted, a client is whom they name.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headwater.errors import UsageFault
from headwater.notify.websub import SignatureMethod
from headwater.spec import uris
from headwater.transport.access import Level, level_of

_LEAST_LEASE: Final = 300  # seconds; with MOST_LEASE and _DEFAULT_LEASE: RS-NT-11, WS-H-09
MOST_LEASE: Final = 2_678_400
_DEFAULT_LEASE: Final = 864_000


class HubLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what strangers can make a hub do."""

    least_lease: int = _LEAST_LEASE
    most_lease: int = MOST_LEASE
    payload_octets: int = 10 << 20
    topic_messages: int = 1_000  # payloads of one topic that are kept for subscribers who have not received them yet …
    topic_octets: int = 256 << 20  # … and their octets; beyond, the oldest are given up
    message_octets: int = 16 << 30  # of all topics together; beyond, the topic that has most gives its oldest up
    message_seconds: float = 86_400.0  # a payload that a subscriber has not received for so long is given up (WS-H-13)
    subscriptions: int = 1_000_000
    host_subscriptions: int = 200_000  # of callbacks at one host and port
    pending: int = 100_000  # requests whose intent is not verified yet …
    host_pending: int = 20_000  # … and those of callbacks at one host and port
    pending_topics: int = 10_000
    """Topics that wait to be fetched, beyond which only publishers who are known may name more."""
    requests_per_second: float = 20.0
    """Of one client that is not at an allowed address: subscriptions, payloads and names in pings, counted apart …"""
    requests_at_once: int = 200  # … and so many at a time

    def lease(self, wanted: int | None) -> int:
        """The lease in seconds that is granted for a wanted one (WS-H-09)."""
        return max(self.least_lease, min(_DEFAULT_LEASE if wanted is None else wanted, self.most_lease))


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub is told: its public `url`, its limits, how it signs, a file of certificate authorities."""

    url: str
    limits: HubLimits = HubLimits()
    method: SignatureMethod = SignatureMethod.SHA256
    authorities: str | None = None


class _Networks:
    """Networks by their texts. Raises UsageFault for what is none."""

    def __init__(self, texts: Iterable[str]) -> None:
        try:
            self._networks = tuple(ipaddress.ip_network(text, strict=False) for text in texts)
        except ValueError as cause:
            raise UsageFault(f"no address and no network: {cause}", code="HW-HUB-01") from cause

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self._networks)


class AddressPolicy:
    """Which addresses may be connected to: public ones, and those of `allowed` networks; with `everything` all."""

    def __init__(self, allowed: Iterable[str] = (), *, everything: bool = False) -> None:
        self._everything = everything
        self._allowed = _Networks(allowed)

    def is_allowed(self, address: str) -> bool:
        """Whether the operator has allowed this address that is not public: its owner is trusted."""
        if self._everything:
            return level_of(address) is not Level.PUBLIC
        return address in self._allowed

    def objection(self, address: str) -> str | None:
        """Why this address is not connected to; None: it is."""
        if level_of(address) is Level.PUBLIC or self.is_allowed(address):
            return None
        return f"{address} is not a public address"


def lease_bounds(text: str) -> tuple[int, int]:
    """The least and the greatest lease of `300..864000`. Raises UsageFault."""
    least, dots, most = text.partition("..")
    if not (dots and least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most) <= 10**9):
        raise UsageFault(f"not the bounds of a lease: {text!r}", code="HW-HUB-01")
    return int(least), int(most)


class RequestRate:
    """How many requests each client may make: a bucket of `burst` that fills with `per_second`."""

    def __init__(self, per_second: float, burst: int, clients: int = 10_000) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clients = clients
        self._left: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, client: str, now: float, count: int = 1) -> float:
        """Count `count` requests of a client; 0 when they are allowed, else the seconds after which they are."""
        count = min(count, self._burst)
        left, since = self._left.pop(client, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._per_second)
        if len(self._left) >= self._clients:  # whoever was silent for longest is forgotten
            del self._left[next(iter(self._left))]
        allowed = left >= count
        self._left[client] = (left - count if allowed else left, now)
        return 0.0 if allowed else (count - left) / self._per_second


class ClientShares:
    """So much of something in all, and of that a share at most for each client, so that one leaves room for others."""

    def __init__(self, whole: int, share: int) -> None:
        self._whole = whole
        self._share = share
        self._taken: dict[str, int] = {}
        self.taken = 0

    def take(self, client: str, amount: int) -> bool:
        """Take an amount for a client where there is room for it; whether there was."""
        held = self._taken.get(client, 0)
        if self.taken + amount > self._whole or held + amount > self._share:
            return False
        self._taken[client] = held + amount
        self.taken += amount
        return True

    @property
    def has_room(self) -> bool:
        """Whether there is any left."""
        return self.taken < self._whole

    def held(self, client: str) -> int:
        """How much a client has."""
        return self._taken.get(client, 0)

    def give_back(self, client: str, amount: int) -> None:
        """Give back what was taken for a client."""
        left = self._taken.get(client, 0) - amount
        self.taken -= amount
        if left > 0:
            self._taken[client] = left
        else:
            self._taken.pop(client, None)

    @contextmanager
    def growing(self, client: str = "") -> Iterator[Callable[[int], bool]]:
        """A function that takes an amount more for a client, as `take` does; all of it is given back at the end."""
        taken = 0

        def take(amount: int) -> bool:
            nonlocal taken
            took = self.take(client, amount)
            taken += amount if took else 0
            return took

        try:
            yield take
        finally:
            self.give_back(client, taken)


_OCTETS: Final = 8_192
_MOST: Final = 32  # of what a field names, so many are looked at from the right: more proxies stand in no row


class TrustedProxies:
    """The networks of proxies; with none of them every client is who connects. Raises UsageFault."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = _Networks(networks)

    def client(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """The address of the client of a request that came from `peer`.

        Each proxy appends whom it was asked by, so that the right-most address that is no trusted proxy is the client;
        what stands left of it is the client's own word, and not looked at. Where a proxy has written no address, it is
        the client itself.
        """
        if not self._networks or peer not in self._networks:
            return peer
        told = b",".join(value for name, value in headers if name.lower() == b"x-forwarded-for")
        client = peer
        for part in reversed(told[-_OCTETS:].rsplit(b",", _MOST)[-_MOST:]):
            address = _address(part)
            if address is None:
                break
            client = address
            if address not in self._networks:
                break
        return client


def _address(part: bytes) -> str | None:
    text = part.strip(b" \t").decode("latin-1")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


# forms that are posted: what cannot be accepted is a `RequestRefusal`, which tells the sender what to mend (WS-H-02)

FORM_OCTETS: Final = 64 << 10  # a form has no more: a topic, a callback, a secret
_URL_OCTETS: Final = 4_096
_SECRET_OCTETS: Final = 199  # a secret is shorter than 200 octets (WS-S-04)
TOPICS: Final = 100  # topics that one form may name as changed …
_STRANGE_TOPICS: Final = 10  # … and one without a token

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
    try:
        mode = _single(fields, "hub.mode")
        if mode == "publish":
            topics = list(dict.fromkeys(fields.get("hub.url", []) + fields.get("hub.topic", [])))
            if not topics:
                raise ValueError("hub.url is missing: the topic that has changed")
            most, whose = (TOPICS, "") if is_trusted else (_STRANGE_TOPICS, " without a token")
            if len(topics) > most:
                raise ValueError(f"one request{whose} names {most} topics at most")
            if why := next(filter(None, map(objection_to_url, topics)), None):
                raise ValueError(f"hub.url cannot be used: {why}")
            return ChangedTopics(tuple(topics))
        if mode in ("subscribe", "unsubscribe"):
            return _subscription(fields, is_unsubscribe=mode == "unsubscribe")
    except ValueError as error:
        return RequestRefusal(400, str(error))
    return RequestRefusal(400, "hub.mode has to be subscribe, unsubscribe or publish")


def objection_to_url(url: str) -> str | None:
    """Why this cannot be a topic or a callback; None: it can. Nothing is looked up."""
    if len(url) > _URL_OCTETS:
        return f"it has more than {_URL_OCTETS:,} characters"
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
        return "its host or port is impossible"
    return None


def objection_to_redirect(url: str, target: str) -> str | None:
    """Why a redirect from one URL to another is not followed; None: it is."""
    is_downgrade = url.startswith("https:") and not target.startswith("https:")
    return objection_to_url(target) or ("from https to http" if is_downgrade else None)


# these raise ValueError with the sentence for the sender


def _single(fields: dict[str, list[str]], name: str) -> str:
    values = set(fields.get(name, ()))
    if len(values) > 1:
        raise ValueError(f"{name} is there more than once, with different values")
    if not values or not (value := values.pop()):
        raise ValueError(f"{name} is missing")
    return value


def _url(fields: dict[str, list[str]], name: str) -> str:
    value = _single(fields, name)
    if why := objection_to_url(value):
        raise ValueError(f"{name} cannot be used: {why}")
    return value


def _subscription(fields: dict[str, list[str]], *, is_unsubscribe: bool) -> SubscriptionRequest:
    topic, callback = _url(fields, "hub.topic"), _url(fields, "hub.callback")
    if is_unsubscribe:  # nothing else matters
        return SubscriptionRequest(is_unsubscribe=True, topic=topic, callback=callback)
    lease: int | None = None
    if fields.get("hub.lease_seconds", [""]) != [""]:
        text = _single(fields, "hub.lease_seconds")
        if _DIGITS.match(text) is None or not text.strip("0"):
            raise ValueError("hub.lease_seconds has to be a positive whole number")
        lease = int(text) if len(text.lstrip("0")) <= _LONGEST_LEASE else 10**_LONGEST_LEASE
    secret: bytes | None = None
    if fields.get("hub.secret", [""]) != [""]:
        secret = _single(fields, "hub.secret").encode()
        if len(secret) > _SECRET_OCTETS:
            raise ValueError("hub.secret has to be shorter than 200 octets")
    return SubscriptionRequest(is_unsubscribe=False, topic=topic, callback=callback, lease_seconds=lease, secret=secret)
