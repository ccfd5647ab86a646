"""Tells what a source says of itself: the home page, for people, and `/health`, for monitors.

`/health` answers also while the catalog does not. Who watches a source asks every few seconds, and a question to a
cluster that is away takes a minute. So there is one question at a time, which all wait for together, and not for long:
that nothing is known is an answer, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from html import escape

from headwater.catalog.interface import SetState
from headwater.errors import HeadwaterError
from headwater.http.responses import Response
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.http.source_access import SourceAccess
from headwater.publish.site import DUMP, ROBOTS, SOURCE_DESCRIPTION, SetSettings, Site, dataset_name, offered
from headwater.source.health import FAILING_SECONDS, ServableSource, report, report_without_catalog, shows, waits

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
<p>{_about(site)}Keep a copy of it in step: <code>headwater sync {escape(site.base_url)} DIR</code></p>
<table><thead><tr><th scope="col">Set of resources</th><th scope="col" class="n">Resources</th>
<th scope="col">Complete until (UTC)</th><th scope="col">Documents</th></tr></thead><tbody>{rows}</tbody></table>
</main><footer><a href="{escape(site.url(SOURCE_DESCRIPTION))}">Source Description</a> ·
<a href="{escape(site.url(ROBOTS))}">robots.txt</a> · <a href="{escape(site.url("health"))}">health</a> ·
ResourceSync (ANSI/NISO Z39.99-2017) by Headwater</footer>
</body></html>
""".encode()


def _about(site: Site) -> str:
    return f'<a href="{escape(site.describedby)}">About this source</a> · ' if site.describedby else ""


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
    if settings.dumps is not None:
        links += f", packages on demand at <code>{escape(site.url(f'{settings.name}/{DUMP}'))}</code>"
    return f'{head}<td class="n">{state.count:,}</td><td class="t">{last}</td><td>{links}</td></tr>'


WAITING_SECONDS = FAILING_SECONDS
"""So long a question may take before it counts as not answered."""

Report = tuple[int, bytes]
"""A status and a body in JSON."""


class HealthHandler:
    """Answers with the health report."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._asked: Future[Report] | None = None
        self._asked_at = 0.0

    def route(self) -> Route:
        """The row of the report."""
        kind = b"application/json"
        return Route(name="health", pattern="/health", handler=self.answer, media_type=kind, cache=NO_STORE)

    async def answer(self, request: HttpRequest) -> Response:
        """The report; 503 with what is known without the catalog, when that fails or has not answered in time."""
        return request.respond(*await request.access.wait(self.report))

    def report(self) -> Report:
        """The same, for who asks from a thread and may wait."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = self._access.askers.submit(report, self._access.source)
                self._asked_at = time.monotonic()
            asked = self._asked
            left = max(0.0, self._asked_at + WAITING_SECONDS - time.monotonic())
        wait((asked,), left)
        if not asked.done():
            return report_without_catalog(self._access.source, None)
        fault = asked.exception()
        if isinstance(fault, HeadwaterError):
            return report_without_catalog(self._access.source, fault)
        return asked.result()
