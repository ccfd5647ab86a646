"""Parts of WebSub that publisher, hub and subscriber share: payloads, signatures, links of topics, the clock of leases.

But for the clock, functions over values.
"""

import hmac
import pyexpat
import time
from collections.abc import Iterable
from enum import Enum, StrEnum, auto
from typing import Final
from urllib.parse import urlencode

import msgspec

from headwater.retry import Backoff
from headwater.spec.discovery import HeaderLink, html_links, parse_link_header
from headwater.spec.uris import resolve

# what a publisher posts to a hub, and what follows from the hub's answer (RS-NT-04, RS-NT-06, WS-P-03)

_FAILED: Final = Backoff(0.5, 5.0)
"""The pauses before what has failed is sent again, by one stream for all, without a word of the hub. A hub that is back
is used within seconds; what asks a hub that is not is one request each time."""
_REFUSED: Final = Backoff(10.0, 600.0)  # those after a refusal, which another try alone will not change
_LONGEST_ASKED_SECONDS: Final = 3_600.0  # a hub that asks for a longer pause is asked again after this
_PASSING: Final = frozenset({408, 425, 429})
NOT_UNDERSTOOD: Final = frozenset({400, 405, 411, 415, 422, 501})
"""A hub that answers a payload with one of these may be one that takes none: it fetches what has changed."""
TOO_LARGE: Final = 413
"""One that answers this fetches what it does not take: it may take more of what it asks for itself."""


class PostOutcome(Enum):
    """What a hub has made of a payload."""

    TAKEN = auto()
    FAILED = auto()  # it may well be taken when it is sent again
    REFUSED = auto()  # it is not taken until somebody changes something


def payload_head(hub: str, topic: str, capability_list: str, token: str | None) -> bytes:
    """The header lines of a payload beside those of every request (RS-NT-04, RS-NT-05)."""
    links = f'<{topic}>; rel="self", <{hub}>; rel="hub", <{capability_list}>; rel="resourcesync"'
    sent = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"Content-Type: application/xml\r\nLink: {links}\r\n{sent}".encode("ascii")


def ping(topic: str, token: str | None) -> tuple[bytes, bytes]:
    """Header lines and body by which such a hub is told that a topic has changed (WS-P-03), by both names in use."""
    sent = "" if token is None else f"Authorization: Bearer {token}\r\n"
    head = f"Content-Type: application/x-www-form-urlencoded\r\n{sent}".encode("ascii")
    return head, urlencode({"hub.mode": "publish", "hub.url": topic, "hub.topic": topic}).encode("ascii")


def outcome_of(status: int) -> PostOutcome:
    """What an answer with this status means: any 2xx is success (AMB-31), redirects are not followed."""
    if 200 <= status < 300:
        return PostOutcome.TAKEN
    return PostOutcome.REFUSED if 300 <= status < 500 and status not in _PASSING else PostOutcome.FAILED


def pause_seconds(outcome: PostOutcome, failures: int, chance: float, asked_seconds: float = 0.0) -> float:
    """How long to wait after so many failures in a row: twice as long each time, a quarter less or more.

    `chance` is from 0 to 1. The first pause after a failure is less than a second. What the hub has asked for is a
    bound below.
    """
    pause = (_REFUSED if outcome is PostOutcome.REFUSED else _FAILED).seconds(failures, chance)
    return max(pause, min(asked_seconds, _LONGEST_ASKED_SECONDS))


# signatures of deliveries: `X-Hub-Signature`, an HMAC over the octets of a body (WS-H-14, WS-S-12)


class SignatureMethod(StrEnum):
    """The digests by which deliveries may be signed (WS-H-14)."""

    SHA1 = "sha1"
    SHA256 = "sha256"
    SHA384 = "sha384"
    SHA512 = "sha512"


class SignatureVerdict(Enum):
    """What the signature of a delivery comes to."""

    GOOD = auto()
    MISSING = auto()
    UNKNOWN = auto()  # it cannot be read, or its method is none of `SignatureMethod`
    WRONG = auto()


def signature(secret: bytes, body: bytes, method: SignatureMethod) -> str:
    """The value of `X-Hub-Signature`: HMAC over the octets of the body (WS-H-14)."""
    return f"{method.value}={hmac.new(secret, body, method.value).hexdigest()}"


def verify(header: str | None, secret: bytes, body: bytes) -> SignatureVerdict:
    """Judge the value of `X-Hub-Signature` by the method that it names, in constant time (WS-S-12)."""
    if header is None or not header.strip():
        return SignatureVerdict.MISSING
    name, equals, digest = header.strip().partition("=")
    try:
        method = SignatureMethod(name.strip().lower())
        told = bytes.fromhex(digest.strip())
    except ValueError:
        return SignatureVerdict.UNKNOWN
    if not equals:
        return SignatureVerdict.UNKNOWN
    if not hmac.compare_digest(hmac.digest(secret, body, method.value), told):
        return SignatureVerdict.WRONG
    return SignatureVerdict.GOOD


# links of a topic: its hubs and its canonical address, in `Link` headers, else in a feed or in the head of a web page
# (WS-S-01). Each function takes whatever a server sent, reads a bounded part of it, and never raises.

_FEED_OCTETS: Final = 256 << 10
_LINKS: Final = 1_000
_DEPTH: Final = 8


class TopicLinks(msgspec.Struct, frozen=True):
    """The hubs of a topic in their order, its canonical address and its Capability List where it says them."""

    hubs: tuple[str, ...] = ()
    canonical: str | None = None
    capability_list: str | None = None


def topic_links(header: str, body: bytes, media_type: str, base: str) -> TopicLinks:
    """The links of a topic that was fetched from `base`: those of its `Link` headers, and only without those others.

    `header` are the values of `Link` joined by commas.
    """
    found = _of(parse_link_header(header, base))
    if found.hubs or found.canonical is not None:
        return found
    kind = _kind(media_type)
    if kind:
        return _of(html_links(body, base) if kind == "page" else _feed_links(body, base))
    return found


def are_in_head(header: str, media_type: str, base: str) -> bool:
    """Whether the head of a topic tells its links, or that it has none: its body is a web page or a feed if not."""
    found = _of(parse_link_header(header, base))
    return bool(found.hubs) or found.canonical is not None or not _kind(media_type)


def _kind(media_type: str) -> str:
    """`page` for a web page, `feed` for what may be a feed, else nothing."""
    essence = media_type.partition(";")[0].strip().lower()
    if essence in ("text/html", "application/xhtml+xml"):
        return "page"
    return "feed" if essence.endswith(("/xml", "+xml")) else ""


def _of(links: Iterable[HeaderLink]) -> TopicLinks:
    hubs: dict[str, None] = {}
    canonical: str | None = None
    capability_list: str | None = None
    for link in links:
        if "hub" in link.rel:
            hubs.setdefault(link.href)
        if "self" in link.rel and canonical is None:
            canonical = link.href
        if "resourcesync" in link.rel and capability_list is None:
            capability_list = link.href
    return TopicLinks(tuple(hubs), canonical, capability_list)


class _EnoughError(Exception):
    """What is looked for has come."""


def _feed_links(body: bytes, base: str) -> list[HeaderLink]:
    """The `link` elements of Atom's namespace that stand before the first entry, at a feed or a channel."""
    links: list[HeaderLink] = []
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        namespace, _, local = name.rpartition(" ")
        if local in ("entry", "item") or depth > _DEPTH or len(links) >= _LINKS:
            raise _EnoughError
        if namespace == "http://www.w3.org/2005/Atom" and local == "link" and "href" in attributes:
            relations = tuple(attributes.get("rel", "alternate").lower().split())
            links.append(HeaderLink(relations, resolve(base, attributes["href"].strip())))

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise _EnoughError

    parser = pyexpat.ParserCreate(None, " ")
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body[:_FEED_OCTETS], False)  # noqa: FBT003 (takes no name)
    except (pyexpat.ExpatError, _EnoughError, ValueError, LookupError):
        return links
    return links


# the clock by which leases and pauses count, of a hub and of its subscribers. Where the machine's clock is set back
# meanwhile, this one counts on: a hub would prolong leases, a subscriber renew them too late, and what is to be tried
# again in a second would wait for as long. It goes ahead with the machine's clock, unlike `time.monotonic`, which
# stands still while a machine sleeps.

_began = time.time() - time.monotonic()


def monotonic_unix_time() -> float:
    """The time in seconds; it never goes back."""
    global _began
    now = time.monotonic()
    _began = max(_began, time.time() - now)
    return _began + now
