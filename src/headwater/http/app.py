"""The HTTP server of a source as a bare ASGI application: routes, responses, the home page and `/health`.

No framework: most responses are octets that lie ready, and a framework would cost more than they do
(docs/decisions/005-http-server.md). What needs the disk for longer than a stat or one small read happens in a pool of
threads, and what needs a catalog that is reached by network in another; octets go out in blocks, so that a slow reader
holds one of them and not a document.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from headwater.catalog.interface import SetState
from headwater.errors import HeadwaterError
from headwater.http import responses
from headwater.http.documents import DocumentHandler
from headwater.http.requests import Receive, Scope
from headwater.http.resources import FileHandler, Links, content_route
from headwater.http.responses import CLOSE, AccessRecord, ReaderGone, RequestFields, Response, Send, access_record, line
from headwater.http.routes import REVALIDATE, Answer, HttpRequest, NoMatch, Route, RouteTable, page_of
from headwater.http.source_access import Precedence, SourceAccess
from headwater.publish.site import DUMP, ROBOTS, SOURCE_DESCRIPTION, SetSettings, Site, dataset_name, oai_link, offered
from headwater.source.health import (
    FAILING_SECONDS,
    ContentProvider,
    ServableSource,
    report,
    report_without_catalog,
    shows,
    waits,
)

if TYPE_CHECKING:
    from headwater.http.dump_endpoint import PackageStream

# what the source says of itself. `/health` answers also while the catalog does not. Who watches a source asks every few
# seconds, and a question to a cluster that is away takes a minute. So there is one question at a time, which all wait
# for together, and not for long: that nothing is known is an answer, too.

_STYLE = """
:root{color-scheme:light dark;--line:color-mix(in srgb,currentColor 18%,transparent)}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:3rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .25rem}p{margin:.25rem 0 1.5rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.5rem .75rem;border-bottom:1px solid var(--line)}
th{font-weight:600}.t,.n,thead th,td+td a{white-space:nowrap}code{overflow-wrap:anywhere}
.n{text-align:right;font-variant-numeric:tabular-nums}
code{background:var(--line);padding:.1rem .35rem;border-radius:.25rem}a{color:inherit}
code{-webkit-box-decoration-break:clone;box-decoration-break:clone}
footer{margin-top:2rem;font-size:.875rem;opacity:.75}
@media(max-width:48rem){body{margin-top:1.5rem;overflow-wrap:anywhere}thead{display:none}
tr{display:block;padding:.5rem 0;border-bottom:1px solid var(--line)}
th,td,td+td,td.n{display:block;padding:0;border:0;text-align:left;white-space:normal}td.n:before{content:"Resources: "}
td.t:before{content:"Complete until (UTC): "}}
"""


def home_page(source: ServableSource) -> bytes:
    """The page as HTML."""
    states = {state.name: state for state in source.catalog.sets()}
    waiting = waits(source, states)
    site = source.site
    title = escape(site.title or "ResourceSync source")
    about = f'<a href="{escape(site.describedby)}">About this source</a> · ' if site.describedby else ""
    rows = "".join(
        _row(site, one, states, ready=shows(source, one.name, states), is_waiting=one.name in waiting)
        for one in site.sets
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="alternate" type="application/xml" title="Source Description" href="{escape(site.url(SOURCE_DESCRIPTION))}">
<style>{_STYLE}</style></head><body><main>
<h1>{title}</h1>
<p>{about}Copy this source, and keep the copy current: <code>headwater sync {escape(site.base_url)} DIR</code></p>
<table><thead><tr><th scope="col">Set of resources</th><th scope="col" class="n">Resources</th>
<th scope="col">Complete until (UTC)</th><th scope="col">Documents</th></tr></thead><tbody>{rows}</tbody></table>
</main><footer><a href="{escape(site.url(SOURCE_DESCRIPTION))}">Source Description</a> ·
<a href="{escape(site.url(ROBOTS))}">robots.txt</a> · <a href="{escape(site.url("health"))}">health</a> ·
ResourceSync (ANSI/NISO Z39.99-2017) by Headwater</footer>
</body></html>
""".encode()


def _row(site: Site, settings: SetSettings, states: Mapping[str, SetState], *, ready: bool, is_waiting: bool) -> str:
    state = states.get(settings.name)
    name = escape(settings.title or settings.name)
    if settings.describedby:
        name = f'<a href="{escape(settings.describedby)}">{name}</a>'
    if settings.title:  # by its name it is chosen: `headwater sync --set NAME`
        name = f"{name} <code>{escape(settings.name)}</code>"
    head = f'<tr><th scope="row">{name}</th>'
    if is_waiting:
        return f'{head}<td class="n">–</td><td colspan="2">waiting for its first records</td></tr>'
    if state is None or not ready:
        return f'{head}<td class="n">–</td><td colspan="2">being prepared</td></tr>'
    last = state.last_at.strftime("%Y-%m-%d %H:%M:%S") if state.last_at else "–"
    links = ", ".join(
        f'<a href="{escape(site.url(f"{settings.name}/{row.top.name}"))}">{row.title}</a>' for row in offered(settings)
    )
    if settings.dataset:
        links = f'<a href="{escape(site.url(dataset_name(settings.name)))}">RDF dataset</a>, {links}'
    if settings.oai:
        links += f', <a href="{escape(oai_link(site, settings).href)}">OAI-PMH</a>'
    if settings.dumps is not None:
        links += f", packages on demand at <code>{escape(site.url(f'{settings.name}/{DUMP}'))}</code>"
    return f'{head}<td class="n">{state.count:,}</td><td class="t">{last}</td><td>{links}</td></tr>'


WAITING_SECONDS = FAILING_SECONDS  # so long a question may take before it counts as not answered


def health(access: SourceAccess) -> Answer:
    """The health report; 503 with what is known without the catalog, when that fails or has not answered in time."""
    asked, until = access.health
    if asked is None or asked.done():
        asked, until = access.watchers.submit(report, access.source), time.monotonic() + WAITING_SECONDS
        access.health = asked, until
    try:
        return asked.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return report_without_catalog(access.source, None)
    except HeadwaterError as fault:
        return report_without_catalog(access.source, fault)


# routes and responses

BLOCK_OCTETS, CROWDED_BLOCK_OCTETS = 1 << 18, 1 << 15
_CROWD = 128
"""Of so many answers that are being sent each has a block of the first size in memory, any more one of the second."""


class Application:
    """Serves one source. `folders` are those of its sets, or `contents` has the octets; `on_served` hears of all.

    `routes` are further rows of the route table; a row of ours with the same method and pattern gives way. Each file is
    sent with its `links`.
    """

    def __init__(
        self,
        source: ServableSource,
        folders: Mapping[str, str],
        *,
        contents: ContentProvider | None = None,
        routes: Iterable[Route] = (),
        links: Links = lambda _set_name, _relative: b"",
        on_served: Callable[[AccessRecord], None] | None = None,
        on_fault: Callable[[HeadwaterError | OSError], None] = lambda _fault: None,
    ) -> None:
        self.on_package: Callable[[AccessRecord], None] = lambda _request: None  # hears of each package on demand
        self.precedence = Precedence()
        self._access = SourceAccess(source)
        files = FileHandler(self._access, folders, links, on_fault)
        self.health = partial(health, self._access)
        self.routes = RouteTable(
            [
                *_OWN_ROUTES,
                page_of("health", b"application/json", self.health),
                *DocumentHandler(self._access).routes(),
                *(files.routes() if contents is None else (content_route(self._access, contents),)),
                *routes,
            ],
            source.site.base_path.encode("ascii"),
            frozenset(settings.name for settings in source.site.sets),
        )
        self.on_served = on_served
        self._on_fault = on_fault
        self._sending = 0

    def close(self) -> None:
        """Give up the reading threads."""
        self._access.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began = time.perf_counter()
        response = await self._respond(scope, receive)
        is_head = scope["method"] == "HEAD"
        complete = False
        try:
            if response.stream is not None:
                complete = await self._send_stream(response, response.stream, send)
            elif is_head or (response.file is None and response.octets <= BLOCK_OCTETS):
                await send(response.message(response.content()))
                complete = True
            else:
                complete = await self._send_body(response, send)
        except ReaderGone:
            pass  # nobody waits for the rest
        finally:
            if response.file is not None:
                response.file.close()
            if response.stream is not None:
                await response.stream.close()
            if response.stream is not None:
                self.on_package(access_record(scope, response, began, complete=complete))
            if self.on_served is not None:
                self.on_served(access_record(scope, response, began, complete=complete))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        request_fields = RequestFields.read(scope["headers"])
        method: str = scope["method"]
        match = self.routes.find(scope["raw_path"])
        route = None if isinstance(match, NoMatch) else match.route(method)
        if isinstance(match, NoMatch) and match.is_of_set and method not in ("GET", "HEAD"):
            response = _not_allowed(("GET", "HEAD"))  # of what a set could have, nothing is understood but this
        elif isinstance(match, NoMatch):
            response = responses.text(match.status, match.text)
        elif route is None:
            response = _not_allowed(match.allowed)
        else:
            try:
                if method in ("GET", "HEAD"):
                    self.precedence.give_way()
                if route.when_published and not await self._access.is_published(match.set_name):
                    response = responses.not_published(match.set_name)
                else:
                    request = HttpRequest(method, route, match, request_fields, scope, receive, self._access)
                    response = await route.handler(request)
            except Exception as error:  # noqa: BLE001 - what is not told here is never heard of
                response = responses.failed(error, self._on_fault)
        # a body that nobody asked for is not waited for
        if request_fields.has_body and (route is None or method in ("GET", "HEAD")):
            response.head += CLOSE
        return response

    async def _send_body(self, response: Response, send: Send) -> bool:
        """Send the octets; False when there are fewer of them than was said. Raises ReaderGone."""
        await send(response.message(b"", more=True))
        self._sending += 1
        try:
            position, end = response.start, response.start + response.octets
            while position < end:
                most = BLOCK_OCTETS if self._sending <= _CROWD else CROWDED_BLOCK_OCTETS
                octets = min(most, end - position)
                if response.file is None:
                    block: bytes | memoryview = memoryview(response.body)[position : position + octets]
                else:
                    block = await self._access.read(response.file.read, position, octets)
                position += len(block)
                if not block or (position >= end and response.has_changed()):
                    return False  # returning without the last octets makes the server cut the connection: never padded
                await send({"body": block, "more_body": position < end})
            return True
        finally:
            self._sending -= 1

    async def _send_stream(self, response: Response, stream: PackageStream, send: Send) -> bool:
        """Send a body as it is made, one block ahead; False when it could not be made. Raises ReaderGone."""
        await send(response.message(b"", more=True))
        following = asyncio.ensure_future(stream.next_block())
        try:
            while block := await following:
                following = asyncio.ensure_future(stream.next_block())
                await send({"body": block, "more_body": True})
                response.octets += len(block)
            await send({"body": b"", "more_body": False})
            return True
        except TimeoutError:
            return False
        except (HeadwaterError, OSError) as fault:  # without its last chunk nobody takes the answer for whole
            self._on_fault(fault)
            return False
        finally:
            if not following.cancel() and not following.cancelled():
                following.exception()  # nobody waits for it any longer


async def _home(request: HttpRequest) -> Response:
    return request.respond(200, await request.access.ask(home_page, request.access.source))


async def _no_metrics(_request: HttpRequest) -> Response:
    return responses.text(404, "metrics are off here")


_OWN_ROUTES = (
    Route(name="home", pattern="/", handler=_home, media_type=b"text/html; charset=utf-8", cache=REVALIDATE),
    Route(name="metrics", pattern="/metrics", handler=_no_metrics),
)


def _not_allowed(methods: Iterable[str]) -> Response:
    listed = tuple(methods)
    text = f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else listed[0]
    return responses.text(405, f"this address accepts only {text}", line(b"allow", ", ".join(listed).encode("ascii")))
