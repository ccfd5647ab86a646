"""The HTTP face as a bare ASGI application: documents, resources, health, and a page for people.

No framework: most answers are octets that lie ready, and a framework would cost more than they do
(docs/decisions/005-http-server.md). What lies ready is answered at once (`at_once`) to a server that can ask so. What
needs the disk for longer than a stat or one small read happens in a pool of threads, and what needs a catalog that is
reached by network in another; octets go out in blocks, so that a slow reader holds one of them and not a document.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, TypeVar

from headwater.errors import HeadwaterError
from headwater.http import responses, routes
from headwater.http.access_record import AccessRecord, access_record
from headwater.http.conditions import accepts_gzip, is_fresh
from headwater.http.document_cache import CachedDocument, DocumentCache, Representation
from headwater.http.home_page import home_page
from headwater.http.ingest.endpoint import IngestEndpoint
from headwater.http.metrics.text_format import CONTENT_TYPE
from headwater.http.resources.batch_lookup import BatchLookup
from headwater.http.resources.contents import SMALL_OCTETS, content_response
from headwater.http.resources.files import OpenFile, ResourceFolder
from headwater.http.resources.header_cache import LookupNeeded, LookupResult, ResourceHeaderCache, ResourceHeaders
from headwater.http.responses import Head, RequestFields, Response, fields, line
from headwater.publish.site import capability_list_name, top_names
from headwater.source.health import report
from headwater.source.protocol import ContentProvider, ServableSource

BLOCK_OCTETS = 1 << 18

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_FIELDS = {
    b"if-none-match": "if_none_match",
    b"if-modified-since": "if_modified_since",
    b"if-range": "if_range",
    b"range": "range",
    b"accept-encoding": "accept_encoding",
}
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding"})
_CLOSE: Head = line(b"connection", b"close")
_ALLOW: Head = line(b"allow", b"GET, HEAD") + _CLOSE
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EISDIR})


class Application:
    """Serves one source. `roots` are folders of its sets, or `contents` has the octets; `on_served` hears of all.

    `metrics` gives the page at /metrics; without it there is none. `ingest` takes what is announced by POST.
    """

    def __init__(
        self,
        source: ServableSource,
        roots: Mapping[str, str],
        *,
        contents: ContentProvider | None = None,
        metrics: Callable[[], bytes] | None = None,
        ingest: IngestEndpoint | None = None,
        on_served: Callable[[AccessRecord], None] | None = None,
        on_fault: Callable[[HeadwaterError | OSError], None] | None = None,
    ) -> None:
        self._source = source
        self._site = source.site
        self._base_path = source.site.base_path.encode("ascii")
        self._roots = {name: ResourceFolder(folder) for name, folder in roots.items()}
        self._contents = contents
        self._links = {
            one.name: line(b"link", f'<{self._site.url(capability_list_name(one.name))}>; rel="resourcesync"'.encode())
            for one in self._site.sets
        }
        self._shelf = DocumentCache(source.store)
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="headwater-read")
        # Documents lie on the disk: nobody waits for them while the catalog does not answer.
        self._asking = ThreadPoolExecutor(max_workers=4, thread_name_prefix="headwater-ask")
        self._cards = ResourceHeaderCache(source.catalog, self._links)
        self._lookups = BatchLookup(source.catalog, self._cards, self._asking)
        self._metrics = metrics
        self._ingest = ingest
        self._on_served = on_served
        self._on_fault = on_fault

    def close(self) -> None:
        """Give up the reading threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._asking.shutdown(wait=False, cancel_futures=True)
        if self._ingest is not None:
            self._ingest.close()

    def at_once(self, target: bytes, headers: list[tuple[bytes, bytes]], client: str) -> Response | None:
        """The answer to a GET, whole and small, when everything for it is at hand; None when it takes the long way.

        `target` is as in the request line. The answer counts as sent.
        """
        began = time.perf_counter()
        path, _, query = target.partition(b"?")
        if b"#" in target or not target.isascii():
            return None
        try:
            conditions = _conditions(headers)
            response = None if conditions.has_body else self._at_hand(path, conditions)
        except Exception:  # noqa: BLE001  the long way meets it again, and says so
            return None
        if response is None or response.octets > SMALL_OCTETS:
            return None
        if response.file is not None:
            response.file.close()
            return None
        if self._on_served is not None:
            self._on_served(access_record(client, "GET", path, query, response, began, complete=True))
        return response

    def _at_hand(self, path: bytes, conditions: RequestFields) -> Response | None:
        match routes.route(path, self._base_path, self._links):
            case routes.ResourceRoute() as found if self._source.is_known_published(found.set_name):
                return self._resource(found, conditions, is_head=False)
            case routes.DocumentRoute() as found:
                shelved = self._shelf.known(found.name)
                if shelved is None or not self._source.is_known_published(found.set_name):
                    return None
                return self._shelved(shelved, conditions)
            case _:
                return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only http is spoken here, not {scope['type']}")
        began = time.perf_counter()
        if scope["method"] == "POST" and self._ingest is not None:
            response = await self._ingest.answer(scope, receive)
        else:
            response = await self._answer(scope)
        is_head = scope["method"] == "HEAD"
        complete = False
        try:
            await send({"type": "http.response.start", "status": response.status, "headers": fields(response.head)})
            if is_head or response.octets == 0:
                await send({"type": "http.response.body", "body": b""})
                complete = True
            else:
                complete = await self._send_body(response, receive, send)
        finally:
            if response.file is not None:
                response.file.close()
            if self._on_served is not None:
                where = scope["raw_path"], scope.get("query_string", b"")
                client = scope.get("client") or ("-", 0)
                self._on_served(access_record(client[0], scope["method"], *where, response, began, complete=complete))

    async def _send_body(self, response: Response, receive: Receive, send: Send) -> bool:
        """Send the octets; False when the reader has gone, or when there are fewer of them than was said."""
        if response.octets <= BLOCK_OCTETS and response.file is None:
            await send({"type": "http.response.body", "body": response.content()})
            return True
        gone = asyncio.ensure_future(_reader_gone(receive))
        try:
            position, end = response.start, response.start + response.octets
            while position < end:
                block = await self._block(response, position, min(BLOCK_OCTETS, end - position))
                position += len(block)
                if gone.done() or not block or (position >= end and _has_changed(response)):
                    return False  # returning without the last octets makes the server cut the connection: never padded
                await send({"type": "http.response.body", "body": block, "more_body": position < end})
            return True
        finally:
            gone.cancel()

    async def _block(self, response: Response, position: int, octets: int) -> bytes | memoryview:
        if response.file is None:
            return memoryview(response.body)[position : position + octets]
        return await asyncio.get_running_loop().run_in_executor(self._pool, _read, response.file, position, octets)

    async def _answer(self, scope: Scope) -> Response:
        conditions = _conditions(scope["headers"])
        if scope["method"] not in ("GET", "HEAD"):
            return responses.text(405, "only GET and HEAD are understood here", _ALLOW)
        found = routes.route(scope["raw_path"], self._base_path, self._links)
        try:
            response = await self._reply(found, conditions, is_head=scope["method"] == "HEAD")
        except HeadwaterError as fault:
            if self._on_fault is not None:
                self._on_fault(fault)
            response = responses.text(503, f"a fault of our own store [{fault.code}]", line(b"retry-after", b"10"))
        if conditions.has_body:  # a body that nobody asked for is not waited for
            response.head += _CLOSE
        return response

    async def _reply(self, found: routes.Route, conditions: RequestFields, *, is_head: bool) -> Response:
        match found:
            case routes.ResourceRoute():
                return await self._resource_in_time(found, conditions, is_head=is_head)
            case routes.DocumentRoute():
                return await self._document(found, conditions, is_head=is_head)
            case routes.HealthRoute():
                status, body = await self._ask(report, self._source)
                return responses.data(status, body, b"application/json", line(b"cache-control", b"no-store"))
            case routes.MetricsRoute() if self._metrics is not None:
                body = await self._ask(self._metrics)
                return responses.data(200, body, CONTENT_TYPE, line(b"cache-control", b"no-store"))
            case routes.MetricsRoute():
                return responses.text(404, "metrics are not switched on here")
            case routes.HomeRoute():
                body = await self._ask(home_page, self._source)
                return responses.data(200, body, b"text/html; charset=utf-8", line(b"cache-control", b"no-cache"))
            case routes.NoRoute():
                return responses.text(found.status, found.text)

    async def _document(self, found: routes.DocumentRoute, conditions: RequestFields, *, is_head: bool) -> Response:
        loop = asyncio.get_running_loop()
        name, set_name = found.name, found.set_name
        shelved = self._shelf.known(name) or await loop.run_in_executor(self._pool, self._shelf.look, name)
        if not await self._shows(set_name):
            return _not_yet(set_name)
        if shelved is None:
            return self._no_document(name, set_name)
        response = self._shelved(shelved, conditions)
        if response is not None:
            return response
        form, coded = _form(shelved, conditions)
        body: bytes | BinaryIO | None = None
        if not is_head:
            opened = await loop.run_in_executor(self._pool, self._shelf.open, name, coded)
            if opened is None:
                return self._no_document(name, set_name)
            form, body = opened
            if isinstance(body, bytes):
                self._shelf.keep(form, body)
        return _document_reply(form, body, conditions)

    def _shelved(self, shelved: CachedDocument, conditions: RequestFields) -> Response | None:
        """The answer without waiting; None when its octets have to be read first."""
        form, _ = _form(shelved, conditions)
        if is_fresh(conditions.if_none_match, conditions.if_modified_since, form.etag, shelved.modified_second):
            return Response(304, form.unchanged)
        body = self._shelf.body(form)
        return None if body is None else _document_reply(form, body, conditions)

    async def _shows(self, set_name: str | None) -> bool:
        if self._source.is_known_published(set_name):
            return True
        if set_name is None:
            return await self._ask(self._source.is_site_published)
        return await self._ask(self._source.is_published, set_name)

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        """The answer to what the catalog may have to be asked for."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, question, *about)

    def _no_document(self, name: str, set_name: str | None) -> Response:
        """404; 503 for what every published set has: it is lost, and about to be restored."""
        if set_name is None or name in top_names(set_name):
            return _not_yet(set_name)
        return responses.text(404, f"no document {name}")

    async def _resource_in_time(
        self, found: routes.ResourceRoute, conditions: RequestFields, *, is_head: bool
    ) -> Response:
        if not await self._shows(found.set_name):
            return _not_yet(found.set_name)
        try:
            return self._resource(found, conditions, is_head=is_head)
        except LookupNeeded:
            if self._contents is not None:
                return await self._ask(partial(self._content, found, conditions, is_head=is_head))
            answer = LookupResult(await self._lookups.find(found.set_name, found.relative))
            return self._resource(found, conditions, is_head=is_head, answer=answer)

    def _content(self, found: routes.ResourceRoute, conditions: RequestFields, *, is_head: bool) -> Response:
        assert self._contents is not None
        return content_response(self._contents, found, self._links[found.set_name], conditions, is_head=is_head)

    def _resource(
        self,
        found: routes.ResourceRoute,
        conditions: RequestFields,
        *,
        is_head: bool,
        answer: LookupResult | None = None,
    ) -> Response:
        """The response for a resource of a published set. Raises LookupNeeded when the catalog has to be asked."""
        set_name, relative = found.set_name, found.relative
        if self._contents is not None:
            if self._source.catalog.is_remote and not self._contents.is_at_hand(set_name, relative):
                raise LookupNeeded
            return self._content(found, conditions, is_head=is_head)
        known = self._cards.find(set_name, relative, answer)
        if known is None or not self._source.takes(set_name, found.path):
            return responses.text(404, "no such resource")
        try:
            file = self._roots[set_name].open(found.path)
        except OSError as fault:
            return self._unreadable(fault)
        response = None
        try:
            card = self._cards.card(set_name, relative, known, file, answer)
            if card is None:
                return responses.text(404, "no such resource")
            response = _resource_reply(card, file, conditions, is_head=is_head)
            return response
        finally:
            if response is None or response.file is None:
                file.close()

    def _unreadable(self, fault: OSError) -> Response:
        if fault.errno in _GONE:
            return responses.text(404, "the resource is gone; its deletion is about to be listed")
        if fault.errno in (errno.EACCES, errno.EPERM):
            return responses.text(403, "the resource cannot be read at present")
        if self._on_fault is not None:
            self._on_fault(fault)
        return responses.text(503, "the resource cannot be read at present", line(b"retry-after", b"10"))


def _conditions(headers: list[tuple[bytes, bytes]]) -> RequestFields:
    conditions = RequestFields()
    for name, value in headers:
        field = _FIELDS.get(name)
        if field is not None:
            held = getattr(conditions, field)
            setattr(conditions, field, value if held is None else held + b", " + value)
        elif name in _BODY_FIELDS and value != b"0":
            conditions.has_body = True
    return conditions


def _not_yet(set_name: str | None) -> Response:
    return responses.not_yet(set_name or "the source")


def _form(shelved: CachedDocument, conditions: RequestFields) -> tuple[Representation, bool]:
    """The form that is asked for, and whether it is the coded one."""
    if shelved.gzip is not None and accepts_gzip(conditions.accept_encoding):
        return shelved.gzip, True
    return shelved.plain, False


def _document_reply(form: Representation, body: bytes | BinaryIO | None, conditions: RequestFields) -> Response:
    response = responses.whole_or_part(form.head, form.etag, form.octets, conditions)
    if response.status == 416:
        if body is not None and not isinstance(body, bytes):
            body.close()
    elif isinstance(body, bytes):
        response.body = body
    else:
        response.file = body
    return response


def _resource_reply(card: ResourceHeaders, file: OpenFile, conditions: RequestFields, *, is_head: bool) -> Response:
    """The answer for an open file; the answer's `file` is None when nothing more is to be read from it."""
    if (conditions.if_none_match or conditions.if_modified_since) and is_fresh(
        conditions.if_none_match, conditions.if_modified_since, card.etag, card.modified_second, is_exact=True
    ):
        return Response(304, card.unchanged)
    response = responses.whole_or_part(card.head, card.etag, file.state.st_size, conditions)
    if response.status == 416 or is_head:
        return response
    response.file, response.is_promised = file, card.is_strong
    if response.octets <= SMALL_OCTETS:
        # A file that has changed since it was opened is left to be cut off while it is sent.
        body = file.read(response.start, response.octets)
        if len(body) == response.octets and not _has_changed(response):
            response.body, response.start, response.file = body, 0, None
    return response


def _has_changed(response: Response) -> bool:
    """Whether a file is no longer the one whose digest was promised. A weak tag promises nothing of the kind."""
    return response.is_promised and isinstance(response.file, OpenFile) and not response.file.is_unchanged()


def _read(file: Any, position: int, octets: int) -> bytes:
    if isinstance(file, OpenFile):
        return file.read(position, octets)
    file.seek(position)
    block: bytes = file.read(octets)
    return block


async def _reader_gone(receive: Receive) -> None:
    """Wait until the reader has gone: to send to one that has goes unnoticed otherwise."""
    while (await receive())["type"] != "http.disconnect":
        pass
