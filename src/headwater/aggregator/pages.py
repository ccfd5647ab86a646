"""The pages of a service over HTTP: for people, as JSON at the same addresses, and what an operator posts.

Whoever is on this machine may read; who acts, or reads from elsewhere, names the operator's token: a program by
`Authorization: Bearer`, a browser, which asks for it by itself, by `Basic` with any user name. A browser sends that
also with the forms of other pages, so that it acts only by a form of ours. A name in `Host` that is none of ours may
be that of a page which wants to read us by the reader's browser: it gets nothing.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from headwater.aggregator import rendering
from headwater.aggregator.configuration import AggregatorConfig, listen_address, read_aggregation
from headwater.aggregator.metrics import metrics_page
from headwater.aggregator.pushed_sources import PushedSources
from headwater.aggregator.status import ACTIONS, changes_by, objection_to, read_fleet
from headwater.aggregator.store import AggregatorStore
from headwater.aggregator.views import (
    View,
    events_view,
    fleet_view,
    report_page,
    run_view,
    runs_view,
    sink_view,
    source_view,
)
from headwater.errors import HeadwaterError, UsageFault
from headwater.http import responses
from headwater.http.metrics import CONTENT_TYPE
from headwater.http.requests import Receive, Scope, header, read_body, weights
from headwater.http.responses import CLOSE, Head, ReaderGone, Response, Send, line
from headwater.http.server import MakeServer, ServerLimits, ServerThread, address_url, listen
from headwater.notify.hub.policy import RequestRefusal
from headwater.sync.run import utcnow

_LONGEST_TARGET: Final = 4_096
_FORM_OCTETS: Final = 32 << 10
_MOST_FIELDS: Final = 20
_LIMITS: Final = ServerLimits(
    head_octets=16 << 10, head_seconds=10.0, connections=64, client_connections=48, shutdown_seconds=3
)
_END_SECONDS: Final = 10.0
_HTML, _JSON = b"text/html; charset=utf-8", b"application/json"
_NO_STORE: Final = line(b"cache-control", b"no-store")
_OF_STATUS: Final = {
    401: line(b"www-authenticate", b'Basic realm="the operator\'s token as password", charset="UTF-8"'),
    405: line(b"allow", b"GET, HEAD, POST") + CLOSE,
}


@cache
def _head() -> Head:
    policy = (
        f"default-src 'none'; style-src '{rendering.style_hash()}';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return (
        _NO_STORE
        + line(b"content-security-policy", policy.encode())
        + line(b"x-content-type-options", b"nosniff")
        + line(b"x-frame-options", b"DENY")
        + line(b"referrer-policy", b"same-origin")
        + line(b"cross-origin-resource-policy", b"same-origin")
        + line(b"cross-origin-opener-policy", b"same-origin")
        + line(b"vary", b"accept")
    )


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a page: `path` are its decoded segments, `form` what an operator posts."""

    path: tuple[str, ...]
    query: Mapping[str, str]
    form: Mapping[str, str]
    wants_json: bool


def read_request(scope: Scope, body: bytes) -> PageRequest | RequestRefusal:
    """What a request asks for; JSON by `Accept` or `?format=json`."""
    raw, query = scope["raw_path"], scope.get("query_string", b"")
    if len(raw) + len(query) > _LONGEST_TARGET:
        return RequestRefusal(414, "the address is too long")
    try:
        fields, form = (
            dict(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
            for text in (query, body)
        )
    except ValueError:
        return RequestRefusal(400, "the query or the form cannot be read")
    accepted = weights(header(scope, b"accept"))
    wants_json = accepted.get("application/json", 0.0) > accepted.get("text/html", 0.0)
    return PageRequest(
        path=tuple(unquote(part) for part in raw.decode("latin-1").removeprefix("/").split("/")),
        query=fields,
        form=form,
        wants_json=fields.get("format") == "json" or wants_json,
    )


def credentials(authorization: bytes | None) -> tuple[str, bytes]:
    """The scheme of a request's credentials, and the token; empty where there are none."""
    scheme, _, rest = (authorization or b"").strip().partition(b" ")
    match scheme.lower():
        case b"bearer":
            return "bearer", rest.strip()
        case b"basic":
            with suppress(binascii.Error):
                return "basic", b64decode(rest, validate=True).partition(b":")[2]
    return "", b""


class Pages:
    """The HTTP server of a service, in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        *,
        is_alive: Callable[[], bool] = lambda: True,
        reload: Callable[[AggregatorConfig], None] = lambda _config: None,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
    ) -> None:
        """Listens from now on, where `listen` of the configuration says. Raises UsageFault and AddressInUse.

        `is_alive`: whether the service does its work; `reload` lets it go on by a configuration that was read again.
        """
        assert config.listen is not None
        host, port = listen_address(config.listen)
        self._socket, self._host = listen(host, port), host.lower()
        self._is_local = ip_address(self._socket.getsockname()[0]).is_loopback
        self._config, self._store, self._on_fault = config, store, on_fault
        self._is_alive, self._reload = is_alive, reload
        self._pushed = PushedSources(config, store, on_fault)
        self._thread = ServerThread("pages", self._serve, on_fault)

    @property
    def url(self) -> str:
        """Where the pages are."""
        return address_url(self._socket)

    def use(self, config: AggregatorConfig) -> None:
        """Show a configuration that was read anew; the address stays."""
        self._config = self._pushed.config = config

    def start(self) -> None:
        """Serve from now on. Raises what keeps it from that."""
        self._thread.start()

    def stop(self) -> None:
        """End gracefully, and wait for it a while."""
        self._thread.stop(_END_SECONDS)
        self._socket.close()

    async def _serve(self, make_server: MakeServer) -> None:
        pushed = asyncio.ensure_future(self._pushed.work())
        await make_server(self._answer, _LIMITS).serve(sockets=[self._socket])
        pushed.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (of_source := self._pushed.apps.get(scope["raw_path"].rpartition(b"/")[0])) is not None:
            await of_source(scope, receive, send)
            return
        try:
            response = await self._respond(scope, receive)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            response = responses.failed(error, self._on_fault, _NO_STORE)
        with suppress(ReaderGone):
            await send(response.message(response.content()))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        is_post = scope["method"] == "POST"
        body = await read_body(scope, receive, _FORM_OCTETS) if is_post else b""
        asked = body if isinstance(body, RequestRefusal) else read_request(scope, body)
        if isinstance(asked, RequestRefusal):
            return responses.text(asked.status, asked.text, _NO_STORE + CLOSE)
        if (refusal := self._refusal(scope)) is not None:
            return self._page(asked, refusal)
        return await asyncio.to_thread(self._act if is_post else self._show, asked)

    # who may do what

    def _refusal(self, scope: Scope) -> RequestRefusal | None:
        """Why a request is not answered; None: it is."""
        host, method = header(scope, b"host"), scope["method"]
        if scope["raw_path"].startswith(b"/push/"):
            return _NOTHING
        if host is not None and not self._is_our_name(host.decode("latin-1")):
            return RequestRefusal(421, "this service does not know itself by this name: see base_url")
        if method not in ("GET", "HEAD", "POST"):
            return RequestRefusal(405, "addresses here accept only GET and POST")
        if method != "POST" and (self._is_local or scope["raw_path"] == b"/healthz"):
            return None
        if (own := self._config.operator_token) is None:
            return RequestRefusal(403, "nobody may do that here: the configuration has no operator_token")
        scheme, token = credentials(header(scope, b"authorization"))
        if not hmac.compare_digest(token, own.encode()):
            return RequestRefusal(401, "the operator's token is needed")
        if method == "POST" and scheme == "basic" and not _is_own_form(scope, host):
            return RequestRefusal(403, "this form was not sent by a page of this service")
        return None

    def _is_our_name(self, host: str) -> bool:
        """Whether a `Host` is localhost, an address, or a name of the configuration."""
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            if name not in {"localhost", self._host, urlsplit(self._config.base_url or "").hostname}:
                ip_address(name)
            return True
        return False

    # what is read

    def _show(self, asked: PageRequest) -> Response:
        config, store, found = self._config, self._store, None
        fleet = partial(read_fleet, config, store, is_alive=self._is_alive())
        match asked.path:
            case ("metrics",):
                return _response(200, metrics_page(fleet(), of_service=True), CONTENT_TYPE)
            case ("healthz",):
                is_alive = self._is_alive()
                report = {"status": "ok" if is_alive else "failing", "last_event": store.last_number()}
                return _response(200 if is_alive else 503, msgspec.json.encode(report), _JSON)
            case ("reports", name) if (page := report_page(config, store, fleet(), name)) is not None:
                return _response(200, page, _HTML)
            case ("",):
                found = fleet_view(fleet(), asked.query)
            case ("sources", name):
                found = source_view(config, store, fleet(), name)
            case ("runs",):
                found = runs_view(store, asked.query)
            case ("runs", number) if number.isascii() and number.isdecimal() and len(number) <= 15:
                found = run_view(store, int(number))
            case ("sinks", name):
                found = sink_view(store, fleet(), name)
            case ("events",):
                found = events_view(store, asked.query)
        return self._page(asked, found or _NOTHING)

    def _page(self, asked: PageRequest, found: View | RequestRefusal) -> Response:
        status, head = 200, b""
        if isinstance(found, RequestRefusal):
            status, head = found.status, _OF_STATUS.get(found.status, b"")
            found = View("error.html", {"error": found.text, "status": status})
        if asked.wants_json:
            return _response(status, msgspec.json.encode(found.data), _JSON, head)
        page = rendering.page(
            found.template,
            **found.data,
            up="../" * (len(asked.path) - 1),
            query=asked.query,
            now=utcnow(),
            can_act=self._config.operator_token is not None,
            service=self._config.path.stem,
        )
        return _response(status, page, _HTML, head)

    # what an operator does

    def _act(self, asked: PageRequest) -> Response:
        action, place = asked.form.get("action", ""), "./"
        match asked.path:
            case ("reload",):
                try:
                    self._reload(read_aggregation(self._config.path))
                except UsageFault as fault:
                    return self._page(asked, RequestRefusal(409, f"{fault.what} ({fault.where})"))
                done: dict[str, object] = {"done": "reload"}
            case ("sources", name) if (state := self._store.source(name)) is not None:
                if action not in ACTIONS:
                    return self._page(asked, RequestRefusal(400, f"an action is one of {', '.join(ACTIONS)}"))
                is_in_file, text = self._config.source(name) is not None, asked.form.get("asked")
                if (objection := objection_to(action, state, text, is_in_file=is_in_file)) is not None:
                    return self._page(asked, RequestRefusal(409, objection))
                done = {"done": action, "source": self._store.change(name, **changes_by(action, state))}
                place = quote(name, safe="")
            case _:
                return self._page(asked, _NOTHING)
        if asked.wants_json:
            return _response(200, msgspec.json.encode(done), _JSON)
        return _response(303, b"", _HTML, line(b"location", place.encode()))


_NOTHING: Final = RequestRefusal(404, "there is no such page")


def _is_own_form(scope: Scope, host: bytes | None) -> bool:
    """Whether a POST of a browser came from a page of this service.

    `Sec-Fetch-Site` says so through any proxy. A browser without it (over plain HTTP, none sends it but to loopback)
    sends `Origin`, whose host must be the one that was asked. What sends neither is no browser's form.
    """
    site, origin = header(scope, b"sec-fetch-site"), header(scope, b"origin")
    return site == b"same-origin" if site is not None else origin is not None and origin.partition(b"://")[2] == host


def _response(status: int, body: bytes, kind: bytes, head: Head = b"") -> Response:
    told = line(b"content-type", kind) + line(b"content-length", b"%d" % len(body)) + _head() + head
    return Response(status, told, body=body, octets=len(body))
