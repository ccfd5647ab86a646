"""The pages of a service over HTTP: for people, as JSON at the same addresses, and what an operator posts.

Whoever reaches the address may read; it is on loopback unless the configuration says otherwise. Who acts has to know
the operator's token. The store is asked in few threads, and of more than some waiting requests the newest are refused.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from headwater.aggregator import rendering
from headwater.aggregator.configuration import AggregatorConfig, listen_address
from headwater.aggregator.metrics import metrics_page
from headwater.aggregator.operator_sessions import OperatorSessions, cookie, is_own_form
from headwater.aggregator.source_report import report_page
from headwater.aggregator.status import ACTIONS, objection_to, read_fleet
from headwater.aggregator.store import AggregatorStore
from headwater.aggregator.views import (
    DONE,
    View,
    events_view,
    fleet_view,
    run_view,
    runs_view,
    sink_view,
    source_view,
)
from headwater.errors import HeadwaterError
from headwater.http import responses
from headwater.http.ingest import bearer_token
from headwater.http.metrics import CONTENT_TYPE
from headwater.http.requests import Receive, Scope, header, read_body, weights
from headwater.http.responses import CLOSE, ReaderGone, Response, Send, line
from headwater.http.server import MakeServer, ServerLimits, ServerThread, address_url, listen
from headwater.notify.hub.policy import RequestRefusal
from headwater.version import __version__

_PORT: Final = 8_600
_LONGEST_TARGET: Final = 4_096
_FORM_OCTETS: Final = 8_192
_MOST_FIELDS: Final = 20
_THREADS: Final = 4
_MOST_WAITING: Final = 64
_LIMITS: Final = ServerLimits(
    head_octets=16 << 10, head_seconds=10.0, connections=200, client_connections=100, shutdown_seconds=3
)
_END_SECONDS: Final = 10.0

_SAFE: Final = (
    line(b"cache-control", b"no-store")
    + line(b"x-content-type-options", b"nosniff")
    + line(b"x-frame-options", b"DENY")
    + line(b"referrer-policy", b"same-origin")
    + line(b"cross-origin-resource-policy", b"same-origin")
    + line(b"cross-origin-opener-policy", b"same-origin")
    + line(b"vary", b"accept, cookie")
)


def _policy(style: str) -> bytes:
    policy = f"default-src 'none'; style-src {style}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    return line(b"content-security-policy", policy.encode())


_HTML, _JSON = b"text/html; charset=utf-8", b"application/json"


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a page: `path` are its decoded segments, `up` leads from there to the top."""

    path: tuple[str, ...]
    query: Mapping[str, str]
    wants_json: bool
    up: str
    session: str | None
    """The secret of the operator's session, if the browser has one."""


def read_target(scope: Scope, session: str | None) -> PageRequest | RequestRefusal:
    """What a request asks for; JSON by `Accept`, `?format=json`, or `.json` at the end of the path."""
    raw, query = scope["raw_path"], scope.get("query_string", b"")
    if len(raw) + len(query) > _LONGEST_TARGET:
        return RequestRefusal(414, "the address is too long")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return RequestRefusal(400, "the query cannot be read")
    fields = dict(pairs)
    segments = tuple(unquote(part) for part in raw.decode("latin-1").removeprefix("/").split("/"))
    accepted = weights(header(scope, b"accept"))
    wants_json = accepted.get("application/json", 0.0) > accepted.get("text/html", 0.0)
    return PageRequest(
        path=segments,
        query=fields,
        wants_json=fields.get("format") == "json" or wants_json,
        up="../" * (len(segments) - 1),
        session=session,
    )


class PagesApplication:
    """Answers the requests to the pages of one service. `is_alive`: whether the service does its work."""

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        is_alive: Callable[[], bool],
        on_fault: Callable[[HeadwaterError], None],
    ) -> None:
        self.config = config
        """May be replaced by a newer one at any time."""

        self._store = store
        self._is_alive = is_alive
        self._on_fault = on_fault
        self._sessions = OperatorSessions(config.operator_token)
        self._threads = ThreadPoolExecutor(_THREADS, "pages")
        self._waiting = 0

    def close(self) -> None:
        """Give up the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def use(self, config: AggregatorConfig) -> None:
        """Show another configuration from now on; with another token, all sessions end."""
        if config.operator_token != self.config.operator_token:
            self._sessions = OperatorSessions(config.operator_token)
        self.config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._respond(scope, receive)
        except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
            response = responses.failed(error, self._on_fault, _SAFE)
        with suppress(ReaderGone):
            await send(response.message(response.content()))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        method = scope["method"]
        cookies = (header(scope, b"cookie") or b"").decode("latin-1")
        request = read_target(scope, self._sessions.csrf(cookies, time.monotonic()))
        if isinstance(request, RequestRefusal):
            return responses.text(request.status, request.text, _SAFE + CLOSE)
        kind = request.path[0]
        if method == "POST" and kind in ("sources", "session"):
            return await self._post(scope, receive, request)
        if method not in ("GET", "HEAD"):
            return responses.text(405, "this address accepts only GET", _SAFE + CLOSE + line(b"allow", b"GET, HEAD"))
        if request.path == ("style.css",):
            return _answer(200, rendering.style().encode(), b"text/css; charset=utf-8", "'none'")
        return await self._ask(self._get, request)

    async def _ask(self, answer: Callable[..., Response], *given: Any) -> Response:
        if self._waiting >= _MOST_WAITING:
            return responses.text(503, "too many requests at this moment", _SAFE + line(b"retry-after", b"2"))
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, answer, *given)
        finally:
            self._waiting -= 1

    # what is read

    def _get(self, request: PageRequest) -> Response:
        match request.path:
            case ("metrics",):
                page = metrics_page(read_fleet(self.config, self._store, is_alive=self._is_alive()), of_service=True)
                return _answer(200, page, CONTENT_TYPE, "'none'")
            case ("healthz",):
                return self._health()
            case ("session",):
                values = {"problem": "", "next": request.query.get("next", "")}
                return self._page(request, View(template="session.html", values=values, data={}))
            case ("reports", name):
                report = report_page(self.config, self._store, name)
                if report is not None:
                    return _answer(200, report, _HTML, f"'{rendering.style_hash()}'")
        found = self._view(request.path, request)
        last = request.path[-1]
        if found is None and last.endswith(".json"):
            shorter = (*request.path[:-1], last.removesuffix(".json"))
            found = self._view(("",) if shorter == ("index",) else shorter, request)
            request = msgspec.structs.replace(request, wants_json=True)
        return self._page(request, found or _nothing("there is no such page"))

    def _view(self, path: tuple[str, ...], request: PageRequest) -> View | None:
        config, store = self.config, self._store
        match path:
            case ("",):
                return fleet_view(config, store, request.query, is_alive=self._is_alive())
            case ("sources", name):
                return source_view(config, store, name, request.query.get("done", ""))
            case ("runs",):
                return runs_view(store, request.query)
            case ("runs", number) if number.isascii() and number.isdecimal() and len(number) <= 15:
                return run_view(store, int(number))
            case ("sinks", name):
                return sink_view(config, store, name)
            case ("events",):
                return events_view(store, request.query)
        return None

    def _health(self) -> Response:
        """Whether the service itself does its work; how sources do, their pages and figures say."""
        is_alive = self._is_alive()
        report = {"status": "ok" if is_alive else "failing", "last_event": self._store.last_number()}
        return _answer(200 if is_alive else 503, msgspec.json.encode(report), _JSON, "'none'")

    def _page(self, request: PageRequest, view: View) -> Response:
        if request.wants_json:
            return _answer(view.status, msgspec.json.encode(view.data), _JSON, "'none'")
        page = rendering.page(
            view.template,
            **view.values,
            up=request.up,
            now=dt.datetime.now(dt.UTC),
            session=request.session,
            can_act=self._sessions.can_act,
            json=_json_address(request) if view.data else "",
            fleet_name=self.config.path.stem,
            version=__version__,
        )
        return _answer(view.status, page, _HTML, "'self'")

    # what an operator does

    async def _post(self, scope: Scope, receive: Receive, request: PageRequest) -> Response:
        body = await read_body(scope, receive, _FORM_OCTETS)
        if isinstance(body, RequestRefusal):
            return responses.text(body.status, body.text, _SAFE + CLOSE)
        try:
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return responses.text(400, "the form cannot be read", _SAFE + CLOSE)
        form = dict(pairs)
        if not self._sessions.can_act:
            return self._page(request, _nothing("nobody may act here: the configuration has no operator_token", 403))
        if request.path == ("session",):
            return self._session(scope, request, form)
        problem = self._objection(scope, form)
        if problem is not None:
            return self._page(request, _nothing(problem.text, problem.status))
        if len(request.path) != 2:
            return self._page(request, _nothing("there is no such page"))
        return await self._ask(self._act, request, request.path[1], form.get("action", ""))

    def _objection(self, scope: Scope, form: Mapping[str, str]) -> RequestRefusal | None:
        """Why this request may not act; None: it may.

        A program names the token in its head, which no page can make a browser do. A form has the token, or the secret
        of a session; it must come from a page of ours in either case.
        """
        now = time.monotonic()
        cookies = (header(scope, b"cookie") or b"").decode("latin-1")
        bearer = bearer_token(scope["headers"])
        token = form.get("token") if bearer is None else bearer.decode("latin-1")
        if bearer is None and not _is_own(scope):
            return RequestRefusal(403, "this form was not sent by a page of this service")
        if token is not None:
            return self._refused_token(scope, token, now)
        if self._sessions.is_form_of(cookies, form.get("csrf", ""), now):
            return None
        return RequestRefusal(403, "the session is over: enter the token again")

    def _refused_token(self, scope: Scope, token: str, now: float) -> RequestRefusal | None:
        if self._sessions.knows(token):
            return None
        client = str((scope.get("client") or ("", 0))[0])
        if self._sessions.wait_seconds(client, now) > 0:
            return RequestRefusal(429, "too many wrong tokens: wait a minute")
        return RequestRefusal(401, "this is not the operator's token")

    def _session(self, scope: Scope, request: PageRequest, form: Mapping[str, str]) -> Response:
        now, cookies = time.monotonic(), (header(scope, b"cookie") or b"").decode("latin-1")
        if not _is_own(scope):
            return self._page(request, _nothing("this form was not sent by a page of this service", 403))
        is_secure = (header(scope, b"origin") or b"").startswith(b"https://")
        if "end" in form:
            if self._sessions.is_form_of(cookies, form.get("csrf", ""), now):
                self._sessions.end(cookies)
            return _redirect("./", line(b"set-cookie", cookie("", "/", is_secure=is_secure).encode()))
        target = form.get("next", "")
        if (refused := self._refused_token(scope, form.get("token", ""), now)) is not None:
            values = {"problem": refused.text, "next": target}
            return self._page(request, View(template="session.html", values=values, data={}, status=refused.status))
        kind, _, name = target.partition("/")
        place = f"sources/{quote(unquote(name), safe='')}" if kind == "sources" and name else "./"
        key = self._sessions.begin(now)
        return _redirect(place, line(b"set-cookie", cookie(key, "/", is_secure=is_secure).encode()))

    def _act(self, request: PageRequest, name: str, action: str) -> Response:
        fields, state = ACTIONS.get(action), self._store.source(name)
        if state is None:
            return self._page(request, _nothing("there is no such source"))
        if fields is None:
            return self._page(request, _nothing(f"an action is one of {', '.join(ACTIONS)}", 400))
        if (objection := objection_to(action, state)) is not None:
            return self._page(request, _nothing(objection, 409))
        changed = self._store.change(name, **fields)
        if request.wants_json:
            return _answer(200, msgspec.json.encode({"source": changed, "done": DONE[action]}), _JSON, "'none'")
        return _redirect(f"{quote(name, safe='')}?done={action}")


def _is_own(scope: Scope) -> bool:
    asked = (header(scope, name) for name in (b"sec-fetch-site", b"origin", b"host"))
    return is_own_form(*(None if one is None else one.decode("latin-1") for one in asked))


def _nothing(said: str, status: int = 404) -> View:
    return View(template="error.html", values={"said": said, "status": status}, data={"error": said}, status=status)


def _json_address(request: PageRequest) -> str:
    fields = {name: text for name, text in request.query.items() if name not in ("format", "done")}
    return f"?{rendering.query_of(fields)}format=json"


def _answer(status: int, body: bytes, kind: bytes, style: str) -> Response:
    head = line(b"content-type", kind) + line(b"content-length", b"%d" % len(body)) + _policy(style) + _SAFE
    return Response(status, head, body=body, octets=len(body))


def _redirect(place: str, head: bytes = b"") -> Response:
    return Response(303, line(b"location", place.encode("ascii")) + line(b"content-length", b"0") + _SAFE + head)


class Pages:
    """The HTTP server of a service, in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        *,
        is_alive: Callable[[], bool] = lambda: True,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
    ) -> None:
        """Listens from now on, where `listen` of the configuration says. Raises UsageFault and AddressInUse."""
        host, port = listen_address(config.listen or str(_PORT))
        self._socket = listen(host, port)
        self._app = PagesApplication(config, store, is_alive, on_fault)
        self._thread = ServerThread("pages", self._serve, on_fault)

    @property
    def url(self) -> str:
        """Where the pages are."""
        return address_url(self._socket)

    def use(self, config: AggregatorConfig) -> None:
        """Show a configuration that was read anew; the address stays."""
        self._app.use(config)

    def start(self) -> None:
        """Serve from now on. Raises what keeps it from that."""
        self._thread.start()

    def stop(self) -> None:
        """End gracefully, and wait for it a while."""
        self._thread.stop(_END_SECONDS)
        self._app.close()
        self._socket.close()

    async def _serve(self, make_server: MakeServer) -> None:
        await make_server(self._app, _LIMITS).serve(sockets=[self._socket])
