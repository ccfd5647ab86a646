"""Takes what is posted to a hub: subscriptions and pings as forms, payloads as they are (F-01, WS-H-01, RS-NT-06)."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable
from typing import Final

from headwater.address_levels import client_network
from headwater.errors import HeadwaterError
from headwater.http import responses
from headwater.http.ingest.endpoint import bearer_token
from headwater.http.request_body import header, read_body
from headwater.http.responses import Head, Response, line
from headwater.http.routes import Receive, Scope
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import ClientShares, RequestRate
from headwater.notify.hub.records import Payload
from headwater.notify.hub.requests import (
    FORM_OCTETS,
    ChangedTopics,
    RequestRefusal,
    objection_to_url,
    read_form,
)
from headwater.source.tokens import AccessTokens
from headwater.spec.discovery import HeaderLink, parse_link_header

_FORM: Final = b"application/x-www-form-urlencoded"
_AT_ONCE, _CLIENT_AT_ONCE = 512, 128
"""Requests of senders who are not known: in all, and of one of them."""
_BODY_OCTETS, _CLIENT_BODY_OCTETS = 256 << 20, 64 << 20
"""Of their payloads under way, in the same way."""
_CLOSE: Final = line(b"connection", b"close")
_FORWARDED: Final = (b"x-forwarded-for", b"forwarded", b"via")
"""Fields that proxies add."""
_CHALLENGE: Final = line(b"www-authenticate", b'Bearer realm="headwater hub", error="invalid_token"')
_MEDIA_TYPE = re.compile(r"[!#$&^_.+\-0-9A-Za-z]+/[!#$&^_.+\-0-9A-Za-z]+(?:[ \t]*;[\t\x20-\x7e]*)?\Z")


class HubEndpoint:
    """Answers POST requests to a hub. `tokens` are those of publishers who are believed."""

    def __init__(
        self, hub: Hub, tokens: AccessTokens, on_fault: Callable[[HeadwaterError], None] = lambda _fault: None
    ) -> None:
        self._hub = hub
        self._tokens = tokens
        self._on_fault = on_fault
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
        is_trusted, refusal = self._trusted(scope)
        if refusal is not None:
            return refusal
        client = _client(scope)
        is_counted = not is_trusted and not _is_allowed(self._hub, scope)
        if is_counted and not self._under_way.take(client_network(client), 1):
            return _refused(503, "too many requests at this moment", line(b"retry-after", b"2"))
        try:
            return await self._answer(scope, receive, is_trusted=is_trusted)
        except HeadwaterError as fault:
            self._on_fault(fault)
            return _refused(503, f"a fault of the hub's own store [{fault.code}]", line(b"retry-after", b"10"))
        finally:
            if is_counted:
                self._under_way.give_back(client_network(client), 1)

    async def _answer(self, scope: Scope, receive: Receive, *, is_trusted: bool) -> Response:
        kind = (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
        is_form = kind == _FORM
        if not is_form and (early := self._early(scope)) is not None:
            return early
        if not is_form:
            return await self._payload(scope, receive, is_trusted=is_trusted)
        body = await read_body(scope, receive, FORM_OCTETS)
        if isinstance(body, RequestRefusal):
            return _refused(body.status, body.text)
        form = read_form(body, is_trusted=is_trusted)
        if isinstance(form, RequestRefusal):
            return responses.text(form.status, form.text)
        asked, count = ("ping", len(form.topics)) if isinstance(form, ChangedTopics) else ("subscription", 1)
        if (wait := self._wait(scope, asked, is_trusted=is_trusted, count=count)) > 0:
            return _crowded(wait)
        client = client_network(_client(scope))
        if isinstance(form, ChangedTopics):
            refused = await self._hub.changed(form, is_trusted=is_trusted, client=client)
        else:
            refused = await self._hub.subscribe(form, is_trusted=is_trusted, client=client)
        if refused is not None:
            return responses.text(
                refused.status, refused.text, line(b"retry-after", b"10") if refused.status == 503 else ()
            )
        return responses.text(202, "accepted")

    def _trusted(self, scope: Scope) -> tuple[bool, Response | None]:
        """Whether the request has one of the tokens; a wrong one is refused."""
        if header(scope, b"authorization") is None:
            return False, None
        token = bearer_token(scope["headers"])
        if token is not None and self._tokens.accepts(token):
            return True, None
        return False, _refused(401, "this token is not known", _CHALLENGE)

    def _early(self, scope: Scope) -> Response | None:
        """The answer to a payload that cannot be taken whatever its body is."""
        self_links = [link.href for link in _links(scope) if "self" in link.rel]
        if len(set(self_links)) != 1:
            return _refused(400, "a payload needs one Link header with rel=self, which names its topic")
        if why := objection_to_url(self_links[0]):
            return _refused(400, f"the topic cannot be used: {why}")
        kind = header(scope, b"content-type")
        if kind is None or _MEDIA_TYPE.match(kind.decode("latin-1")) is None:
            return _refused(415, "a payload needs a Content-Type, such as application/xml")
        return None

    async def _payload(self, scope: Scope, receive: Receive, *, is_trusted: bool) -> Response:
        taken, client = 0, client_network(_client(scope))
        shares = self._allowed_octets if _is_allowed(self._hub, scope) else self._body_octets

        def has_room(octets: int) -> bool:
            nonlocal taken
            took = shares.take(client, octets)
            taken += octets if took else 0
            return took

        most = self._hub.options.limits.payload_octets
        try:
            body = await read_body(scope, receive, most, (lambda _octets: True) if is_trusted else has_room)
            if isinstance(body, RequestRefusal):
                return _refused(body.status, body.text)
            return await self._handed_in(scope, body, is_trusted=is_trusted)
        finally:
            shares.give_back(client, taken)

    async def _handed_in(self, scope: Scope, body: bytes, *, is_trusted: bool) -> Response:
        if not body:
            return responses.text(400, "the payload is empty")
        if (wait := self._wait(scope, "payload", is_trusted=is_trusted)) > 0:
            return _crowded(wait)
        links = _links(scope)
        topic = next(link.href for link in links if "self" in link.rel)
        others = tuple(f'<{link.href}>; rel="resourcesync"' for link in links if "resourcesync" in link.rel)
        kind = (header(scope, b"content-type") or b"").decode("latin-1")
        payload = Payload(topic=topic, media_type=kind, body=body, links=others[:1])
        refused = await self._hub.publish(payload, is_trusted=is_trusted, client=client_network(_client(scope)))
        if refused is not None:
            return responses.text(refused.status, refused.text)
        return responses.text(200, "queued for the subscribers")

    def _wait(self, scope: Scope, kind: str, *, is_trusted: bool, count: int = 1) -> float:
        client = _client(scope)
        if is_trusted or _is_allowed(self._hub, scope):
            return 0.0
        return self._rates[kind].wait_seconds(client_network(client), time.monotonic(), count)


def _client(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _is_allowed(hub: Hub, scope: Scope) -> bool:
    """Whether the client has no bounds: its address is allowed, and it is not a proxy that nobody has named.

    Such a proxy passes on what strangers ask: they would have no bounds where its own address is allowed.
    """
    client = _client(scope)
    if any(header(scope, name) is not None for name in _FORWARDED) and not scope.get("is_forwarded"):
        return False
    try:
        ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return False
    return hub.addresses.is_allowed(client)


def _links(scope: Scope) -> list[HeaderLink]:
    value = (header(scope, b"link") or b"").decode("latin-1")
    return parse_link_header(value, "")


def _crowded(wait: float) -> Response:
    return responses.text(429, "too many requests from this address", line(b"retry-after", b"%d" % (int(wait) + 1)))


def _refused(status: int, words: str, head: Head = ()) -> Response:
    """A request that is answered without reading its body to the end."""
    return responses.text(status, words, head + _CLOSE)
