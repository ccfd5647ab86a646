"""Fetches topics: for their new content (WebSub), or to see whether what was handed in for one is true (RS-NT-07)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from headwater.errors import as_fault
from headwater.notify.http_connection import AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.hub.context import HubContext
from headwater.notify.hub.outgoing.fair_queue import FairQueue
from headwater.notify.hub.outgoing.task_group import TaskGroup
from headwater.notify.hub.policy import ClientShares
from headwater.notify.hub.records import ChangedTopic, Payload
from headwater.notify.hub.requests import objection_to_url
from headwater.notify.hub.store import host_of
from headwater.notify.monotonic_clock import monotonic_unix_time
from headwater.notify.topic_links import topic_links
from headwater.spec import uris

SECONDS: Final = 8.0
_REDIRECTS: Final = 5
_SLOTS, _HOST_SLOTS = 64, 8
_PAUSES: Final = (0.6, 3.0, 15.0, 60.0)
_STRANGE_OCTETS, _STRANGE_HOST_OCTETS = 128 << 20, 32 << 20
"""Of topics that are being fetched at the word of somebody who is not known: in all, and of one host."""


class TopicFault(msgspec.Struct, frozen=True):
    """Why a topic cannot be used. `is_passing`: another try may succeed. `is_too_long`: it has more than allowed."""

    text: str
    is_passing: bool = False
    is_too_long: bool = False


async def fetch_topic(
    context: HubContext,
    topic: str,
    *,
    is_trusted: bool,
    max_octets: int | None = None,
    has_room: Callable[[int], bool] = lambda _octets: True,
) -> Payload | TopicFault:
    """Fetch a topic, over a few redirects, each of which is judged. It has to name this hub unless it `is_trusted`.

    A topic that says that its address is another one is not taken for it (WS-H-17). `max_octets`: what it may have, as
    much as any payload unless given; `has_room` as for a request.
    """
    url, options = topic, context.options
    most = options.limits.payload_octets if max_octets is None else max_octets
    bounds = AnswerBounds(seconds=SECONDS, max_octets=most, has_room=has_room)
    for _ in range(_REDIRECTS + 1):
        answer = await context.client.request("GET", url, bounds)
        if isinstance(answer, HttpFailure):
            text = f"the topic cannot be fetched: {answer.text}"
            return TopicFault(text, is_passing=not answer.is_final, is_too_long=answer.is_too_long)
        if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
            return _judged(answer, url, topic, hub=options.url, is_trusted=is_trusted)
        target = uris.resolve(url, answer.headers["location"])
        if why := objection_to_url(target):
            return TopicFault(f"the topic redirects to where nobody can follow: {why}")
        if url.startswith("https:") and not target.startswith("https:"):
            return TopicFault("the topic redirects from https to http")
        url = target
    return TopicFault("the topic redirects too often")


def _judged(answer: HttpAnswer, url: str, topic: str, *, hub: str, is_trusted: bool) -> Payload | TopicFault:
    if not answer.ok:
        return TopicFault(f"the topic answers with HTTP status {answer.status}", is_passing=answer.status >= 500)
    media_type = answer.headers.get("content-type", "application/octet-stream")
    links = topic_links(answer.headers.get("link", ""), answer.body, media_type, url)
    if not is_trusted and uris.normalise(hub) not in map(uris.normalise, links.hubs):
        return TopicFault(f"the topic does not name this hub, {hub}, in a link with rel=hub")
    if links.canonical is not None and uris.normalise(links.canonical) != uris.normalise(topic):
        return TopicFault(f"the topic says that its address is {links.canonical}")
    return Payload(topic=topic, media_type=media_type, body=answer.body)


class TopicFetches:
    """Fetches topics that have changed, hosts in turns, and hands on what they have: `on_content`, then `on_end`."""

    def __init__(
        self,
        context: HubContext,
        on_content: Callable[[Payload], Awaitable[None]],
        on_end: Callable[[ChangedTopic, TopicFault | None], Awaitable[None]],
    ) -> None:
        self._context = context
        self._on_content = on_content
        self._on_end = on_end
        self._wake = context.wake
        self._queue: FairQueue[tuple[ChangedTopic, int]] = FairQueue(_SLOTS, _HOST_SLOTS)
        self._octets = ClientShares(_STRANGE_OCTETS, _STRANGE_HOST_OCTETS)
        self._latest: dict[str, float] = {}
        self._tasks = TaskGroup(context.wake)
        self.failed = 0

    @property
    def pending(self) -> int:
        """How many requests to fetch are queued, also those that later ones have taken the place of."""
        return len(self._queue)

    def add(self, changed: ChangedTopic) -> None:
        """Fetch a topic soon; word that came before and waits is passed over."""
        self._latest[changed.topic] = changed.noted_at
        self._queue.add(host_of(changed.topic), (changed, 0))
        self._wake.set()

    def start_due(self, now: float) -> None:
        """Begin what is due."""
        while (taken := self._queue.take(now)) is not None:
            changed, tries = taken
            if self._latest.get(changed.topic) == changed.noted_at:
                self._tasks.start(self._run(changed, tries))
            else:
                self._queue.done(host_of(changed.topic))

    def next_due(self) -> float | None:
        """When the next is due."""
        return self._queue.next_due()

    async def close(self) -> None:
        """Give up what is under way; it begins anew with the next start."""
        await self._tasks.close()

    async def _run(self, changed: ChangedTopic, tries: int) -> None:
        host, octets = host_of(changed.topic), 0

        def has_room(more: int) -> bool:
            nonlocal octets
            took = self._octets.take(host, more)
            octets += more if took else 0
            return took

        known: Callable[[int], bool] = lambda _octets: True  # noqa: E731
        try:
            found = await fetch_topic(
                self._context,
                changed.topic,
                is_trusted=changed.is_trusted,
                has_room=known if changed.is_trusted else has_room,
            )
            if isinstance(found, TopicFault) and found.is_passing and tries < len(_PAUSES):
                due_at = monotonic_unix_time() + _PAUSES[tries] * (0.75 + random.random() / 2)
                self._queue.add(host, (changed, tries + 1), due_at)
                return
            if isinstance(found, TopicFault):
                self.failed += 1
            else:
                await self._on_content(found)
            await self._on_end(changed, found if isinstance(found, TopicFault) else None)
            if self._latest.get(changed.topic) == changed.noted_at:
                del self._latest[changed.topic]
        except Exception as error:  # noqa: BLE001 - our own store, or a bug: tried again later
            self._context.on_fault(as_fault(error))
            self._queue.add(host, (changed, tries), monotonic_unix_time() + _PAUSES[1])
        finally:
            self._octets.give_back(host, octets)
            self._queue.done(host)
