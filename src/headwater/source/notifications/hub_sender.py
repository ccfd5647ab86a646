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
from typing import Final

import msgspec

from headwater.notify.http_client import HttpClient, HttpFailure
from headwater.notify.payload_post import PayloadPost, PostOutcome, outcome_of, pause_seconds
from headwater.publish.capabilities import CHANGE_CHANNEL
from headwater.publish.site import capability_list_name, topic_url
from headwater.source.events.publication import VisibleChanges
from headwater.source.notifications.change_channel import ChangeChannel, NotifyContext
from headwater.source.notifications.faults import HubRefuses, HubUnreachable
from headwater.source.notifications.hub_position import Begin, HubPosition, Tell, batch_pause, next_step
from headwater.source.set_health import FailureState, RetryPauses

SETS_AT_ONCE: Final = 8
REQUEST_SECONDS: Final = 10.0
_ANSWER_OCTETS: Final = 1 << 20


class HubHealth(FailureState, kw_only=True):
    """How a hub is: how many changes it has not taken, how many notifications it has, when the last, what fails."""

    hub: str
    waiting: int = 0
    sent: int = 0
    sent_at: dt.datetime | None = None


class _Set:
    """One set: what is visible, how far the hub was told, and whether that is written down."""

    def __init__(self, visible: VisibleChanges) -> None:
        self.visible = visible
        self.position: HubPosition | None = None
        self.is_read = False
        self.is_written = True
        self.refusals = 0
        self.told_at = -math.inf
        """When its last notification was begun."""
        self.news = asyncio.Event()

    @property
    def waiting(self) -> int:
        return 0 if self.position is None else self.position.waiting(self.visible)


class HubSender:
    """Sends to one hub; all of it runs in one event loop, the catalog is asked in threads."""

    def __init__(self, hub: str, context: NotifyContext, client: HttpClient) -> None:
        self.health = HubHealth(hub=hub)
        self._hub = hub
        self._context = context
        self._client = client
        self._channel = ChangeChannel(hub, context)
        self._sets: dict[str, _Set] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(SETS_AT_ONCE)
        self._probe = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._pauses = RetryPauses()

    def note(self, visible: VisibleChanges) -> None:
        """This is visible of a set now."""
        one = self._sets.get(visible.name)
        if one is None:
            one = self._sets[visible.name] = _Set(visible)
        one.visible = visible
        one.news.set()
        if visible.name not in self._tasks:
            self._tasks[visible.name] = asyncio.get_running_loop().create_task(self._follow(one))

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken, as far as is known."""
        return sum(one.waiting for one in list(self._sets.values()))

    async def close(self) -> None:
        """End, and write down what the hub has taken. Raises the catalog's faults."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for one in self._sets.values():
            await self._write(one)

    async def _follow(self, one: _Set) -> None:
        try:
            while await self._go_on(one):
                pass
        finally:  # without waiting, so that no news comes in between
            del self._tasks[one.visible.name]

    async def _go_on(self, one: _Set) -> bool:
        """Do what is next for a set; False: nothing is."""
        await self._gather(one)
        pause = 0.0
        try:
            async with self._places:
                step = await self._step(one)
            self._pauses.worked(one.visible.name)
        except Exception as fault:  # noqa: BLE001 - whatever it was, it is tried again
            self.health.add(fault, self._context.listener, f"set {one.visible.name!r}, hub {self._hub}")
            pause, step = self._pauses.failed(one.visible.name), True
        else:
            if not step:
                return False
            if one.refusals:
                pause = pause_seconds(PostOutcome.REFUSED, one.refusals, random.random())
        await asyncio.sleep(pause)
        return True

    async def _gather(self, one: _Set) -> None:
        """Wait until there is enough for a notification, or the last one is long enough ago."""
        loop = asyncio.get_running_loop()
        while one.position is not None and one.position.is_taken and one.waiting:
            left = batch_pause(
                one.waiting,
                loop.time() - one.told_at,
                batch_count=self._context.batch_count,
                batch_seconds=self._context.batch_seconds,
            )
            if not left:
                return
            one.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(one.news.wait(), left)

    async def _step(self, one: _Set) -> bool:
        if not one.is_read:
            one.position = await asyncio.to_thread(self._channel.read, one.visible.name)
            one.is_read = True
            return True
        position, visible = one.position, one.visible
        step = next_step(position, visible)
        if step is None:
            return await self._write(one)
        if isinstance(step, Begin):
            one.position = await asyncio.to_thread(self._channel.begin, visible, step)
            one.is_written = True
            return True
        assert position is not None
        if isinstance(step, Tell):
            one.told_at = asyncio.get_running_loop().time()
            position = one.position = await asyncio.to_thread(self._channel.tell, visible, step, position)
            one.is_written = True
        if await self._submit(one, position):
            one.position, one.is_written = msgspec.structs.replace(position, is_taken=True), False
        return True

    async def _write(self, one: _Set) -> bool:
        """Write down that the last payload was taken, unless that is written; whether it was not."""
        if one.is_written or one.position is None:
            return False
        await asyncio.to_thread(self._channel.write, one.visible.name, one.position)
        one.is_written = True
        return True

    async def _submit(self, one: _Set, position: HubPosition) -> bool:
        """Send a payload; True: it was taken. While the hub fails, one request at a time asks it."""
        if not self._failures:
            return await self._post(one, position)
        async with self._probe:
            await asyncio.sleep(self._not_before - asyncio.get_running_loop().time() if self._failures else 0.0)
            return await self._post(one, position)

    async def _post(self, one: _Set, position: HubPosition) -> bool:
        self._context.may_send()
        name, site = one.visible.name, self._context.site
        post = PayloadPost(
            hub=self._hub,
            topic=topic_url(site, name, CHANGE_CHANNEL),
            capability_list=site.url(capability_list_name(name)),
            token=self._context.token,
        )
        answer = await self._client.request(
            "POST",
            self._hub,
            post.head(),
            position.payload,
            seconds=REQUEST_SECONDS,
            max_octets=_ANSWER_OCTETS,
        )
        if isinstance(answer, HttpFailure):
            outcome, said, asked = PostOutcome.FAILED, answer.text, None
        else:
            outcome, asked = outcome_of(answer.status), answer.headers.get("retry-after")
            said = f"it answers {answer.status}: {answer.body[:200].decode('utf-8', 'replace').strip()}"
        self._judge(one, outcome, said, asked)
        return outcome is PostOutcome.TAKEN

    def _judge(self, one: _Set, outcome: PostOutcome, said: str, asked: str | None) -> None:
        """Keep what came of a request, and when the next one may be."""
        message = f"the notifications of {one.visible.name!r} wait, and are sent again"
        if outcome is PostOutcome.FAILED:
            self._failures += 1
            pause = pause_seconds(outcome, self._failures, random.random(), asked)
            self._not_before = asyncio.get_running_loop().time() + pause
            self.health.add(HubUnreachable(said, where=self._hub), self._context.listener, message)
            return
        self._failures = 0
        if outcome is PostOutcome.REFUSED:
            one.refusals += 1
            self.health.add(HubRefuses(said, where=self._hub), self._context.listener, message)
            return
        one.refusals = 0
        self.health.sent += 1
        self.health.sent_at = self._context.clock()
        if not any(other.refusals for other in self._sets.values()):
            self.health.clear()
