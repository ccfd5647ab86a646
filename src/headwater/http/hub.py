"""The application of a hub: whose address a request counts for, what is posted, its pages."""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from headwater.errors import HeadwaterError
from headwater.http import responses
from headwater.http.ingest import bearer_token
from headwater.http.metrics import CONTENT_TYPE, Family, exposition, labels
from headwater.http.requests import Receive, Scope, header, read_body
from headwater.http.responses import CLOSE, AccessRecord, Head, ReaderGone, Response, Send, access_record, line
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import (
    FORM_OCTETS,
    ChangedTopics,
    ClientShares,
    RequestRate,
    RequestRefusal,
    TrustedProxies,
    objection_to_url,
    read_form,
)
from headwater.notify.hub.store import HubCounts, Payload
from headwater.source.hubs_and_tokens import AccessTokens
from headwater.spec.discovery import parse_link_header
from headwater.transport.access import client_network

_FORM: Final = b"application/x-www-form-urlencoded"
_AT_ONCE, _CLIENT_AT_ONCE = 512, 128  # requests of senders who are not known: in all, and of one of them
_BODY_OCTETS, _CLIENT_BODY_OCTETS = 256 << 20, 64 << 20  # of their payloads under way, in the same way
_FORWARDED: Final = (b"x-forwarded-for", b"forwarded", b"via")  # fields that proxies add
_CHALLENGE: Final = line(b"www-authenticate", b'Bearer realm="headwater hub", error="invalid_token"')
_MEDIA_TYPE = re.compile(r"[!#$&^_.+\-0-9A-Za-z]+/[!#$&^_.+\-0-9A-Za-z]+(?:[ \t]*;[\t\x20-\x7e]*)?\Z")


class _Sender(NamedTuple):
    """Who has sent a request: somebody with a token (`is_trusted`), or at an address without bounds (`is_allowed`)."""

    client: str
    is_trusted: bool
    is_allowed: bool

    @property
    def is_bounded(self) -> bool:
        """Whether a stranger's bounds hold."""
        return not (self.is_trusted or self.is_allowed)


class HubEndpoint:
    """Answers POST requests to a hub. `tokens` are those of publishers who are believed."""

    def __init__(self, hub: Hub, tokens: AccessTokens) -> None:
        self._hub = hub
        self._tokens = tokens
        limits = hub.options.limits
        self._rates = {
            kind: RequestRate(limits.requests_per_second, limits.requests_at_once)
            for kind in ("subscription", "ping", "payload")
        }
        self._under_way = ClientShares(_AT_ONCE, _CLIENT_AT_ONCE)
        self._body_octets = ClientShares(_BODY_OCTETS, _CLIENT_BODY_OCTETS)
        self._allowed_octets = ClientShares(_BODY_OCTETS, _BODY_OCTETS)

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """The response to one POST request."""
        token, is_trusted = bearer_token(scope["headers"]), False
        if header(scope, b"authorization") is not None:
            is_trusted = token is not None and self._tokens.accepts(token)
            if not is_trusted:
                return _refused(401, "unknown token", _CHALLENGE)
        peer = str((scope.get("client") or ("", 0))[0])
        sender = _Sender(client_network(peer), is_trusted, is_allowed=_is_allowed(self._hub, scope, peer))
        if sender.is_bounded and not self._under_way.take(sender.client, 1):
            return _refused(503, "too many requests at this moment", line(b"retry-after", b"2"))
        try:
            kind = (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
            if kind == _FORM:
                return await self._form(scope, receive, sender)
            return await self._payload(scope, receive, sender)
        finally:
            if sender.is_bounded:
                self._under_way.give_back(sender.client, 1)

    async def _form(self, scope: Scope, receive: Receive, sender: _Sender) -> Response:
        body = await read_body(scope, receive, FORM_OCTETS)
        if isinstance(body, RequestRefusal):
            return _refused(body.status, body.text)
        form = read_form(body, is_trusted=sender.is_trusted)
        if isinstance(form, RequestRefusal):
            return responses.text(form.status, form.text)
        asked, count = ("ping", len(form.topics)) if isinstance(form, ChangedTopics) else ("subscription", 1)
        if (crowded := self._crowded(sender, asked, count)) is not None:
            return crowded
        if isinstance(form, ChangedTopics):
            refused = await self._hub.changed(form, is_trusted=sender.is_trusted, client=sender.client)
        else:
            refused = await self._hub.subscribe(form, is_trusted=sender.is_trusted, client=sender.client)
        if refused is not None:
            again = line(b"retry-after", b"10") if refused.status == 503 else b""
            return responses.text(refused.status, refused.text, again)
        return responses.text(202, "accepted")

    async def _payload(self, scope: Scope, receive: Receive, sender: _Sender) -> Response:
        """The response to a payload, which is not read where it cannot be taken whatever its body is."""
        links = parse_link_header((header(scope, b"link") or b"").decode("latin-1"), "")
        topics = {link.href for link in links if "self" in link.rel}
        if len(topics) != 1:
            return _refused(400, "a payload needs one Link header with rel=self, which names its topic")
        topic = topics.pop()
        if why := objection_to_url(topic):
            return _refused(400, f"the topic cannot be used: {why}")
        kind = (header(scope, b"content-type") or b"").decode("latin-1")
        if _MEDIA_TYPE.match(kind) is None:
            return _refused(415, "a payload needs a Content-Type, such as application/xml")
        most = self._hub.options.limits.payload_octets
        shares = self._allowed_octets if sender.is_allowed else self._body_octets
        with shares.growing(sender.client) as has_room:
            body = await read_body(scope, receive, most, (lambda _octets: True) if sender.is_trusted else has_room)
            if isinstance(body, RequestRefusal):
                return _refused(body.status, body.text)
            if not body:
                return responses.text(400, "the payload is empty")
            if (crowded := self._crowded(sender, "payload", 1)) is not None:
                return crowded
            others = tuple(f'<{link.href}>; rel="resourcesync"' for link in links if "resourcesync" in link.rel)
            payload = Payload(topic=topic, media_type=kind, body=body, links=others[:1])
            refused = await self._hub.publish(payload, is_trusted=sender.is_trusted, client=sender.client)
        if refused is not None:
            return responses.text(refused.status, refused.text)
        return responses.text(200, "queued for the subscribers")

    def _crowded(self, sender: _Sender, kind: str, count: int) -> Response | None:
        if not sender.is_bounded:
            return None
        wait = self._rates[kind].wait_seconds(sender.client, time.monotonic(), count)
        again = line(b"retry-after", b"%d" % (int(wait) + 1))
        return responses.text(429, "too many requests from this address", again) if wait > 0 else None


def _is_allowed(hub: Hub, scope: Scope, client: str) -> bool:
    """Whether the client has no bounds: its address is allowed, and it is not a proxy that nobody has named.

    Such a proxy passes on what strangers ask: they would have no bounds where its own address is allowed.
    """
    if any(header(scope, name) is not None for name in _FORWARDED) and not scope.get("is_forwarded"):
        return False
    try:
        return hub.addresses.is_allowed(client)
    except ValueError:  # no address
        return False


def _refused(status: int, words: str, head: Head = b"") -> Response:
    """A request that is answered without reading its body to the end."""
    return responses.text(status, words, head + CLOSE)


_NO_STORE: Final = line(b"cache-control", b"no-store")
_ABOUT: Final = (
    "This is a WebSub hub. Subscribe and unsubscribe by a form with hub.mode, hub.topic and hub.callback; publish by a"
    " payload with Link headers (rel=self, rel=hub), or by a form with hub.mode=publish and hub.url."
)


class HubApplication:
    """Serves one hub; `on_served` hears of each answered request."""

    def __init__(
        self,
        hub: Hub,
        endpoint: HubEndpoint,
        on_served: Callable[[AccessRecord], None] | None = None,
        proxies: TrustedProxies | None = None,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
    ) -> None:
        """`proxies`: whose word of where a request comes from is taken. `on_fault` hears of bugs."""
        self._hub = hub
        self._endpoint = endpoint
        self._on_served = on_served
        self._proxies = proxies or TrustedProxies()
        self._on_fault = on_fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.perf_counter()
        peer, port = scope.get("client") or ("", 0)
        client = self._proxies.client(peer, scope["headers"])
        if client != peer:
            scope = {**scope, "client": (client, port), "is_forwarded": True}
        try:
            response = await self._respond(scope, receive)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            response = responses.failed(error, self._on_fault, _NO_STORE)
        with suppress(ReaderGone):
            await send(response.message(response.content()))
        if self._on_served is not None:
            self._on_served(access_record(scope, response, began))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        method, path = scope["method"], scope["raw_path"]
        if path == b"/":
            if method == "POST":
                return await self._endpoint.answer(scope, receive)
            if method in ("GET", "HEAD"):
                return responses.text(200, _ABOUT, _NO_STORE)
            return responses.text(405, "this address accepts only GET and POST", line(b"allow", b"GET, HEAD, POST"))
        if path in (b"/health", b"/metrics"):
            if method not in ("GET", "HEAD"):
                return responses.text(405, "this address accepts only GET", line(b"allow", b"GET, HEAD"))
            counts = await asyncio.to_thread(self._hub.store.counts)
            if path == b"/metrics":
                return responses.data(200, self._metrics(counts), CONTENT_TYPE, _NO_STORE)
            body = msgspec.json.encode({"status": "ok", **msgspec.structs.asdict(counts)})
            return responses.data(200, body, b"application/json", _NO_STORE)
        return responses.text(404, "the hub is at /")

    def _metrics(self, counts: HubCounts) -> bytes:
        gauges = (
            ("subscriptions", "Subscriptions whose lease is not over.", counts.subscriptions),
            ("subscriptions_behind", "Subscriptions that have not received everything.", counts.behind),
            ("subscriptions_failing", "Of those, subscriptions whose last delivery failed.", counts.failing),
            ("topics", "Topics with subscriptions or messages.", counts.topics),
            ("verifications_pending", "Requests whose intent is not verified yet.", counts.pending),
            ("messages", "Messages that somebody has not received.", counts.messages),
            ("message_octets", "Their octets.", counts.message_octets),
        )
        counters: tuple[tuple[str, str, dict[str, int]], ...] = (
            ("deliveries", "Deliveries by outcome.", self._hub.deliveries.counts),
            ("verifications", "Verified requests by outcome.", self._hub.verifications.counts),
            ("topic_fetches", "Topics that could not be fetched.", {"failed": self._hub.fetches.failed}),
            ("payloads", "Payloads that were taken.", {"taken": self._hub.published}),
        )
        families = [Family(f"headwater_hub_{name}", "gauge", text, [("", value)]) for name, text, value in gauges]
        for name, text, found in counters:
            samples = [(labels(outcome=outcome), value) for outcome, value in found.items()]
            families.append(Family(f"headwater_hub_{name}_total", "counter", text, samples))
        return exposition(families)
