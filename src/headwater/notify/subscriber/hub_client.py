"""Asks hubs and topics: few requests to one host at a time, and one alone while a hub does not answer."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import msgspec

from headwater.notify.http_client import HttpClient
from headwater.notify.http_connection import AnswerBounds
from headwater.notify.monotonic_clock import monotonic_unix_time
from headwater.notify.subscriber.discovery import DiscoveredTopic, discover
from headwater.notify.subscriber.hub_requests import ANSWER_OCTETS, FORM_HEAD, RequestOutcome, outcome_of
from headwater.notify.subscriber.records import NotificationChannel
from headwater.retry import Backoff
from headwater.spec import uris

HUB_SECONDS: Final = 15.0
_BOUNDS: Final = AnswerBounds(seconds=HUB_SECONDS, max_octets=ANSWER_OCTETS)
_AT_ONCE: Final = 8
"""Requests to one host at a time: a hub that does not answer delays none at another."""

_REDIRECTS: Final = 3
_MOST_PLACES: Final = 10_000
"""Of hosts and hubs that were asked: a hub that names another one at each renewal fills no memory."""
_FIRST_PAUSE: Final = 0.6
_LONGEST_PAUSE: Final = 15.0


class _Failing(msgspec.Struct):
    """A hub that does not answer: how often in a row, when it was last found out, when it is asked again."""

    failures: int
    failed_at: float
    not_before: float


class FailingHubs:
    """The hubs that do not answer, and when each is asked again. Pure; times come from the caller."""

    def __init__(self) -> None:
        self._failing: dict[str, _Failing] = {}

    def wait_seconds(self, hub: str, now: float) -> float:
        """How long a request to a hub has to wait; 0: it is made now, and while the hub fails others wait for it."""
        known = self._failing.get(hub)
        if known is None:
            return 0.0
        if now < known.not_before:
            return known.not_before - now
        known.not_before = now + HUB_SECONDS
        return 0.0

    def failed(self, hub: str, asked_at: float, now: float, chance: float) -> None:
        """A request had no answer, or one that says that the hub cannot answer at this moment.

        Requests that fail at one time are one failure.
        """
        known = self._failing.get(hub)
        if known is not None and asked_at <= known.failed_at:
            return
        failures = 1 if known is None else known.failures + 1
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE).seconds(failures, chance)
        if len(self._failing) >= _MOST_PLACES and known is None:
            del self._failing[next(iter(self._failing))]
        self._failing[hub] = _Failing(failures, now, now + pause)

    def answered(self, hub: str) -> bool:
        """A hub has answered; whether it did not before, so that what has waited goes on."""
        return self._failing.pop(hub, None) is not None


class HubClient:
    """For one event loop."""

    def __init__(self, client: HttpClient) -> None:
        self.http = client
        self.failing = FailingHubs()
        self._places: dict[str, asyncio.Semaphore] = {}

    def _place(self, url: str) -> asyncio.Semaphore:
        """A place among the requests to the host of a URL."""
        origin = uris.origin(url)
        if len(self._places) >= _MOST_PLACES:
            self._places = {where: place for where, place in self._places.items() if place.locked()}
        return self._places.setdefault(f"{origin.host}:{origin.port}", asyncio.Semaphore(_AT_ONCE))

    async def discover(self, channel: NotificationChannel) -> DiscoveredTopic:
        """The hubs of a channel, and its topic."""
        async with self._place(channel.topic):
            return await discover(self.http, channel)

    async def post(self, hub: str, form: bytes) -> RequestOutcome:
        """Send a form to a hub, or to where it sends us (WS-H-03); while it does not answer, one at a time."""
        url = hub
        for number in range(_REDIRECTS):
            async with self._place(url):
                asked_at = monotonic_unix_time()
                if not number and (wait := self.failing.wait_seconds(hub, asked_at)) > 0:
                    return RequestOutcome(wait_seconds=wait)
                told = await self.http.request("POST", url, _BOUNDS, FORM_HEAD, form)
            outcome = outcome_of(told, url)
            if outcome.is_down:
                self.failing.failed(hub, asked_at, monotonic_unix_time(), random.random())
            if outcome.location is None:
                return outcome
            url = outcome.location
        return RequestOutcome(fault="the hub redirects too often")
