"""Answers `/health`: what the source says of itself, also while its catalog does not answer.

Whoever watches a source asks every few seconds, and a question to a cluster that is away takes a minute. So there is
one question at a time, which all wait for together, and not for long: that nothing is known is an answer, too.
"""

from __future__ import annotations

import asyncio
import time

from headwater.errors import HeadwaterError
from headwater.http.responses import Response
from headwater.http.routes import HttpRequest
from headwater.http.source_access import SourceAccess
from headwater.source.health import FAILING_SECONDS, report, report_without_catalog

WAITING_SECONDS = FAILING_SECONDS
"""So long a question may take before it counts as not answered."""


class HealthHandler:
    """Answers with the health report. It belongs to one event loop."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._asked: asyncio.Task[tuple[int, bytes]] | None = None
        self._asked_at = 0.0

    async def answer(self, request: HttpRequest) -> Response:
        """The report; 503 with what is known without the catalog, when that fails or has not answered in time."""
        asked = self._asked
        if asked is None or asked.done():
            self._asked = asked = asyncio.ensure_future(self._access.ask(report, self._access.source))
            self._asked_at = time.monotonic()
            asked.add_done_callback(_seen)
        left = max(0.0, self._asked_at + WAITING_SECONDS - time.monotonic())
        await asyncio.wait((asked,), timeout=left)
        if not asked.done():
            return request.respond(*report_without_catalog(self._access.source, None))
        fault = asked.exception()
        if isinstance(fault, HeadwaterError):
            return request.respond(*report_without_catalog(self._access.source, fault))
        return request.respond(*asked.result())


def _seen(asked: asyncio.Task[tuple[int, bytes]]) -> None:
    """Nobody may wait any more for an exception, which is no news by then."""
    if not asked.cancelled():
        asked.exception()
