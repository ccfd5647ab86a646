"""The HTTP server of a hub as a bare ASGI application: the hub at `/`, its health, its metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from headwater.errors import HeadwaterError, bug
from headwater.http import responses
from headwater.http.access_record import AccessRecord, access_record, request_target
from headwater.http.hub.endpoint import HubEndpoint
from headwater.http.metrics.text_format import CONTENT_TYPE, Family, exposition
from headwater.http.responses import Response, line
from headwater.http.routes import Receive, Scope
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.trusted_proxies import TrustedProxies

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

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
        if scope["type"] != "http":
            raise RuntimeError(f"only http is spoken here, not {scope['type']}")
        began = time.perf_counter()
        peer, port = scope.get("client") or ("", 0)
        client = self._proxies.client(peer, scope["headers"])
        if client != peer:
            scope = {**scope, "client": (client, port), "is_forwarded": True}
        try:
            response = await self._respond(scope, receive)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            self._on_fault(bug(error))
            response = responses.bug(_NO_STORE + line(b"connection", b"close"))
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.start", "status": response.status, "headers": response.head})
        await send({"type": "http.response.body", "body": b"" if is_head else response.content()})
        if self._on_served is not None:
            target = request_target(scope["raw_path"], scope.get("query_string", b""))
            self._on_served(access_record(client or "-", scope["method"], target, response, began, complete=True))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        method, path = scope["method"], scope["raw_path"]
        if path == b"/":
            if method == "POST":
                return await self._endpoint.answer(scope, receive)
            if method in ("GET", "HEAD"):
                return responses.text(200, _ABOUT, _NO_STORE)
            return responses.text(405, "only GET and POST are understood here", line(b"allow", b"GET, HEAD, POST"))
        if path in (b"/health", b"/metrics"):
            if method not in ("GET", "HEAD"):
                return responses.text(405, "only GET is understood here", line(b"allow", b"GET, HEAD"))
            try:
                return await (self._health() if path == b"/health" else self._metrics())
            except HeadwaterError as fault:
                return responses.text(503, f"a fault of the hub's own store [{fault.code}]", _NO_STORE)
        return responses.text(404, "the hub is at /")

    async def _health(self) -> Response:
        counts = await asyncio.to_thread(self._hub.store.counts)
        body = msgspec.json.encode({"status": "ok", **msgspec.structs.asdict(counts)})
        return responses.data(200, body, b"application/json", _NO_STORE)

    async def _metrics(self) -> Response:
        counts = await asyncio.to_thread(self._hub.store.counts)
        deliveries, intents = self._hub.deliveries.counts, self._hub.verifications.counts
        gauges = (
            ("subscriptions", "Subscriptions whose lease is not over.", counts.subscriptions),
            ("subscriptions_behind", "Subscriptions that have not received everything.", counts.behind),
            ("subscriptions_failing", "Of those, subscriptions whose last delivery failed.", counts.failing),
            ("topics", "Topics with subscriptions or messages.", counts.topics),
            ("verifications_pending", "Requests whose intent is not verified yet.", counts.pending),
            ("messages", "Messages that somebody has not received.", counts.messages),
            ("message_octets", "Their octets.", counts.message_octets),
        )
        counters = (
            ("deliveries", "Deliveries by outcome.", "received", deliveries.received),
            ("deliveries", "", "failed", deliveries.failed),
            ("deliveries", "", "gone", deliveries.gone),
            ("verifications", "Verified requests by outcome.", "confirmed", intents.confirmed),
            ("verifications", "", "failed", intents.failed),
            ("verifications", "", "denied", intents.denied),
            ("topic_fetches", "Topics that could not be fetched.", "failed", self._hub.fetches.failed),
            ("payloads", "Payloads that were taken.", "taken", self._hub.published),
        )
        families = [Family(f"headwater_hub_{name}", "gauge", text, [((), value)]) for name, text, value in gauges]
        for name in dict.fromkeys(one[0] for one in counters):
            rows = [one for one in counters if one[0] == name]
            samples = [((("outcome", outcome),), value) for _, _, outcome, value in rows]
            families.append(Family(f"headwater_hub_{name}_total", "counter", rows[0][1], samples))
        return responses.data(200, exposition(families), CONTENT_TYPE, _NO_STORE)
