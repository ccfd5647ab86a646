"""Sends to one hub what becomes visible: set by set in order, several sets at a time, until the hub has taken it.

A hub that fails is asked by one request at a time, after pauses that grow; what it refuses of one set holds up
no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import math
import random
from collections.abc import Sequence
from typing import Final

from headwater.notify.http_client import HttpClient
from headwater.notify.http_connection import AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.payload_post import (
    PayloadPost,
    PostOutcome,
    is_not_understood,
    outcome_of,
    pause_seconds,
    ping,
)
from headwater.publish.site import capability_list_name, topic_url
from headwater.retry_times import retry_after_seconds
from headwater.source.events.publication import VisibleChanges
from headwater.source.notifications.change_stream import ChangeStream
from headwater.source.notifications.faults import HubRefuses, HubUnreachable
from headwater.source.notifications.framework_stream import FrameworkStream
from headwater.source.notifications.notification_stream import NotifyContext
from headwater.source.set_health import FailureState, RetryPauses

STREAMS_AT_ONCE: Final = 8
REQUEST_SECONDS: Final = 10.0
_SAID_OCTETS: Final = 400
"""Of what a hub says to a refusal so much is told."""
_ANSWER_OCTETS: Final = 1 << 20
_BOUNDS: Final = AnswerBounds(seconds=REQUEST_SECONDS, max_octets=_ANSWER_OCTETS)

AnyStream = ChangeStream | FrameworkStream


class HubHealth(FailureState, kw_only=True):
    """How a hub is: how many changes it has not taken, how many notifications it has, when the last, what fails."""

    hub: str
    waiting: int = 0
    sent: int = 0
    sent_at: dt.datetime | None = None


class _Sending:
    """One stream: when its last payload was made, how often the hub has refused that, and whether there is news."""

    def __init__(self, stream: AnyStream) -> None:
        self.stream = stream
        self.refusals = 0
        self.made_at = -math.inf
        self.news = asyncio.Event()


class HubSender:
    """Sends to one hub; all of it runs in one event loop, the catalog is asked in threads."""

    def __init__(self, hub: str, context: NotifyContext, client: HttpClient) -> None:
        self.health = HubHealth(hub=hub)
        self._hub = hub
        self._context = context
        self._client = client
        self._changes: dict[str, ChangeStream] = {}
        self._frameworks: dict[str, FrameworkStream] = {}
        self._sending: dict[AnyStream, _Sending] = {}
        self._tasks: dict[AnyStream, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(STREAMS_AT_ONCE)
        self._probe = asyncio.Lock()
        self._takes_no_payloads = False
        """It is told which topic has changed, and fetches what the topic shows then."""
        self._takes_payloads = False
        """It has taken one, so that what it refuses is that payload."""
        self._failures = 0
        self._not_before = 0.0
        self._pauses = RetryPauses()

    def note(self, visible: VisibleChanges) -> None:
        """This is visible of a set now."""
        name = visible.name
        changes = self._changes.get(name)
        if changes is None:
            changes = self._changes[name] = ChangeStream(visible, self._hub, self._context)
        changes.visible = visible
        self._has_news(changes)
        framework = self._frameworks.get(name)
        if framework is None:
            framework = self._frameworks[name] = FrameworkStream(name, self._hub, self._context)
        if framework.has_news:
            self._has_news(framework)

    def wrote(self, name: str | None, documents: Sequence[str]) -> None:
        """These documents of a set, or (None) of the source were written."""
        streams = list(self._frameworks.values()) if name is None else [self._frameworks.get(name)]
        for one in streams:
            if one is not None and one.wrote(documents):
                self._has_news(one)

    def gone(self, name: str) -> None:
        """This is no longer a set of the source."""
        stream = self._frameworks[name] = FrameworkStream(name, self._hub, self._context, is_gone=True)
        self._has_news(stream)

    def _has_news(self, stream: AnyStream) -> None:
        one = self._sending.get(stream)
        if one is None:
            one = self._sending[stream] = _Sending(stream)
        one.news.set()
        if stream not in self._tasks:
            self._tasks[stream] = asyncio.get_running_loop().create_task(self._follow(one))

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken, as far as is known."""
        return sum(one.waiting for one in list(self._changes.values()))

    async def close(self) -> None:
        """End, and write down what the hub has taken. Raises the catalog's faults."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for stream in self._sending:
            await asyncio.to_thread(stream.settle)

    async def _follow(self, one: _Sending) -> None:
        try:
            while await self._go_on(one):
                pass
        finally:  # without waiting, so that no news comes in between
            del self._tasks[one.stream]

    async def _go_on(self, one: _Sending) -> bool:
        """Do what is next for a stream; False: nothing is."""
        await self._gather(one)
        pause, name = 0.0, one.stream.name
        one.news.clear()
        try:
            async with self._places:
                is_more = await self._step(one)
            self._pauses.worked(name)
        except Exception as fault:  # noqa: BLE001 - whatever it was, it is tried again
            self.health.add(fault, self._context.listener, f"set {name!r}, hub {self._hub}")
            pause = self._pauses.failed(name)
        else:
            if not is_more:
                return one.news.is_set()
            if one.refusals:
                pause = pause_seconds(PostOutcome.REFUSED, one.refusals, random.random())
        await asyncio.sleep(pause)
        return True

    async def _gather(self, one: _Sending) -> None:
        """Wait until there is enough for a notification, or the last one is long enough ago."""
        loop = asyncio.get_running_loop()
        while (left := one.stream.pause(loop.time() - one.made_at)) > 0:
            one.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await one.news.wait()

    async def _step(self, one: _Sending) -> bool:
        """Send the next payload of a stream; False: there is none."""
        at = asyncio.get_running_loop().time()
        payload = await asyncio.to_thread(one.stream.next_payload)
        if payload is None:
            await asyncio.to_thread(one.stream.settle)
            return False
        one.made_at = at
        if await self._submit(one, payload):
            one.stream.taken()
        return True

    async def _submit(self, one: _Sending, payload: bytes) -> bool:
        """Send a payload; True: it was taken. While the hub fails, one request at a time asks it."""
        if not self._failures:
            return await self._post(one, payload)
        async with self._probe:
            await asyncio.sleep(self._not_before - asyncio.get_running_loop().time() if self._failures else 0.0)
            return await self._post(one, payload)

    async def _post(self, one: _Sending, payload: bytes) -> bool:
        self._context.may_send()
        failures = self._failures
        name, site = one.stream.name, self._context.site
        post = PayloadPost(
            hub=self._hub,
            topic=topic_url(site, name, one.stream.channel),
            capability_list=site.url(capability_list_name(name)),
            token=self._context.token,
        )
        answer = None if self._takes_no_payloads else await self._ask(post.head(), payload)
        is_refused = isinstance(answer, HttpAnswer) and is_not_understood(answer.status)
        self._takes_payloads |= isinstance(answer, HttpAnswer) and answer.ok
        if answer is None or (is_refused and not self._takes_payloads):
            pinged = await self._ask(*ping(post.topic, post.token))
            self._takes_no_payloads = isinstance(pinged, HttpAnswer) and pinged.ok
            answer = pinged if answer is None or self._takes_no_payloads else answer
        if isinstance(answer, HttpFailure):
            outcome, said, asked = PostOutcome.FAILED, answer.text, 0.0
        else:
            outcome = outcome_of(answer.status)
            now, fields = self._context.clock().timestamp(), answer.headers
            asked = retry_after_seconds(fields.get("retry-after"), fields.get("date"), now) or 0.0
            said = f"the hub answers {answer.status}: {answer.body[:_SAID_OCTETS].decode('utf-8', 'replace').strip()}"
        if outcome is PostOutcome.FAILED and self._failures > failures:
            self._failures -= 1  # requests that fail at one time are one failure
        self._judge(one, outcome, said, asked)
        return outcome is PostOutcome.TAKEN

    async def _ask(self, head: bytes, body: bytes) -> HttpAnswer | HttpFailure:
        return await self._client.request("POST", self._hub, _BOUNDS, head, body)

    def _judge(self, one: _Sending, outcome: PostOutcome, said: str, asked: float) -> None:
        """Keep what came of a request, and when the next one may be."""
        message = f"the notifications of {one.stream.name!r} wait, and are sent again"
        if outcome is PostOutcome.FAILED:
            self._failures += 1
            pause = pause_seconds(outcome, self._failures, random.random(), asked)
            self._not_before = asyncio.get_running_loop().time() + pause
            self.health.add(HubUnreachable(said, where=self._hub), self._context.listener, message)
            return
        self._failures = 0
        if outcome is PostOutcome.TOO_LARGE and one.stream.too_large():
            return
        if outcome is not PostOutcome.TAKEN:
            one.refusals += 1
            self.health.add(HubRefuses(said, where=self._hub), self._context.listener, message)
            return
        one.refusals = 0
        self.health.sent += 1
        self.health.sent_at = self._context.clock()
        if not any(other.refusals for other in self._sending.values()):
            self.health.clear()
