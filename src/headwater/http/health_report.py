"""Answers `/health`: what the source says of itself, also while its catalog does not answer.

Whoever watches a source asks every few seconds, and a question to a cluster that is away takes a minute. So there is
one question at a time, which all wait for together, and not for long: that nothing is known is an answer, too.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from headwater.errors import HeadwaterError
from headwater.http.responses import Response
from headwater.http.routes import NO_STORE, HttpRequest, Route
from headwater.http.source_access import SourceAccess
from headwater.source.health import FAILING_SECONDS, report, report_without_catalog

WAITING_SECONDS = FAILING_SECONDS
"""So long a question may take before it counts as not answered."""

Report = tuple[int, bytes]
"""A status and a body in JSON."""


class HealthHandler:
    """Answers with the health report; `first` asks the first process of the socket for it, where this is another."""

    def __init__(self, access: SourceAccess, first: Callable[[], Report] | None = None) -> None:
        self._access = access
        self._ask = first or (lambda: report(access.source))
        self._waiting_seconds = WAITING_SECONDS if first is None else math.inf  # it is waited for there
        self._lock = threading.Lock()
        self._asked: Future[Report] | None = None
        self._asked_at = 0.0

    def route(self) -> Route:
        """The row of the report."""
        return Route(
            name="health", pattern="/health", handler=self.answer, media_type=b"application/json", cache=NO_STORE
        )

    async def answer(self, request: HttpRequest) -> Response:
        """The report; 503 with what is known without the catalog, when that fails or has not answered in time."""
        asked, left = self._question()
        answered = asyncio.wrap_future(asked)
        answered.add_done_callback(_seen)
        await asyncio.wait((answered,), timeout=left)
        return request.respond(*self._told(asked))

    def report(self) -> Report:
        """The same, for who asks from a thread and may wait."""
        asked, left = self._question()
        wait((asked,), timeout=left)
        return self._told(asked)

    def _question(self) -> tuple[Future[Report], float]:
        """The question that is under way, and how long its answer is still waited for."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = self._access.askers.submit(self._ask)
                self._asked_at = time.monotonic()
            return self._asked, max(0.0, self._asked_at + self._waiting_seconds - time.monotonic())

    def _told(self, asked: Future[Report]) -> Report:
        if not asked.done():
            return report_without_catalog(self._access.source, None)
        fault = asked.exception()
        if isinstance(fault, HeadwaterError):
            return report_without_catalog(self._access.source, fault)
        return asked.result()


def _seen(answered: asyncio.Future[Report]) -> None:
    """Nobody may wait any more for an exception, which is no news by then."""
    if not answered.cancelled():
        answered.exception()
