"""Delivers messages to subscribers: each its own in order, hosts in turns, whoever fails apart from the others."""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Final

from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.hub.policy import ClientShares
from headwater.notify.hub.queues import FairQueue, HubContext, HubDriver
from headwater.notify.hub.store import AddedMessage, DueSubscription, Message, subscriber
from headwater.notify.websub import monotonic_unix_time, signature
from headwater.retry import Backoff

SECONDS: Final = 8.0  # a subscriber has so long to take a delivery
_BOUNDS: Final = AnswerBounds(seconds=SECONDS)
_SLOTS, _HOST_SLOTS = 1_024, 128
_FAILING_SLOTS, _FAILING_HOST_SLOTS = 512, 16
_CACHE_OCTETS: Final = 32 << 20
_SENT_OCTETS, _TOPIC_SENT_OCTETS = 256 << 20, 64 << 20
"""Of the messages that are being sent, each counted once however many receive it: of all topics, and of one."""
_CROWDED_SECONDS: Final = 0.5
_GONE: Final = 410  # the answer by which a subscriber ends its subscription (WS-S-09)


PAUSE: Final = Backoff(0.6, 1_800.0)  # before a failed delivery is made again


def link_header(hub: str, topic: str, others: tuple[str, ...] = ()) -> str:
    """The one `Link` header of a delivery: `hub`, `self`, and what the publisher added (WS-H-11, RS-NT-14)."""
    return ", ".join((f'<{hub}>; rel="hub"', f'<{topic}>; rel="self"', *others))


def delivery_fault(answer: HttpAnswer | HttpFailure) -> str | None:
    """Why a delivery with this answer was not received; None: it was, as a 2xx says (WS-H-13, WS-S-09)."""
    if isinstance(answer, HttpFailure):
        return answer.text
    return None if answer.ok else f"HTTP status {answer.status}"


class Deliveries(HubDriver[DueSubscription]):
    """Delivers what is due. Nothing that is due is held anywhere else: the store has it until it is received."""

    def __init__(self, context: HubContext) -> None:
        self._well: FairQueue[DueSubscription] = FairQueue(_SLOTS, _HOST_SLOTS)
        self._failing: FairQueue[DueSubscription] = FairQueue(_FAILING_SLOTS, _FAILING_HOST_SLOTS)
        super().__init__(context, self._well, self._failing)
        self._options = context.options
        self._due: dict[int, DueSubscription] = {}
        self._last: dict[int, int] = {}
        self._cache: OrderedDict[tuple[int, int], Message] = OrderedDict()
        self._cached_octets = 0
        self._room = ClientShares(_SENT_OCTETS, _TOPIC_SENT_OCTETS)
        self._sent: dict[tuple[int, int], tuple[Message, int]] = {}
        """Messages that have room taken, one copy of each for all, and how many deliveries of it are under way."""
        self.counts = {"received": 0, "failed": 0, "gone": 0}  # what came of them so far

    @property
    def behind(self) -> int:
        """How many subscriptions have not received everything."""
        return len(self._due)

    def add(self, due: Iterable[DueSubscription]) -> None:
        """Deliver to these what they have not received; to one that is known as it is now, and at once."""
        for one in due:
            known = self._due.get(one.id)
            if known is not None:
                known.callback, known.secret, known.expires_at = one.callback, one.secret, one.expires_at
                if known.failures and not known.is_busy:  # it has subscribed again, so it answers
                    known.due_at = monotonic_unix_time()
                    self._rest(known)
                continue
            if one.failures:  # what is stored may be of a clock that has been set back since
                one.due_at = min(one.due_at, monotonic_unix_time() + PAUSE.seconds(one.failures, 1.0))
            self._due[one.id] = one
            self._rest(one)

    def added(self, added: AddedMessage) -> None:
        """A message has come."""
        self._last[added.topic_id] = max(added.message.seq, self._last.get(added.topic_id, 0))
        self._remember(added.topic_id, added.message)
        self.add(added.due)

    def forget(self, ids: Iterable[int]) -> None:
        """These subscriptions have ended."""
        for number in ids:
            self._due.pop(number, None)

    def _queue_of(self, one: DueSubscription) -> FairQueue[DueSubscription]:
        return self._failing if one.failures else self._well

    def _rest(self, one: DueSubscription) -> None:
        one.is_busy = False
        if not one.failures:
            one.due_at = 0.0
        self._enqueue(one)

    def _is_current(self, one: DueSubscription) -> bool:
        return self._due.get(one.id) is one and not one.is_busy and one.due_at <= monotonic_unix_time()

    async def _work(self, one: DueSubscription) -> DueSubscription | None:
        if not self._is_current(one):
            return None  # begun meanwhile, out of the other queue
        one.is_busy = True
        try:
            return await self._deliver(one)
        except Exception:  # what was received is remembered with the next attempt
            one.due_at = 0.0
            raise
        finally:
            one.is_busy = False

    async def _deliver(self, one: DueSubscription) -> DueSubscription | None:
        while self._due.get(one.id) is one:
            if one.expires_at <= monotonic_unix_time():
                self.forget([one.id])  # its lease is over (WS-H-09)
                return None
            message = await self._next_message(one)
            if isinstance(message, int):
                one.position = message
                await self._record(one, None)
                return None
            key = one.topic_id, message.seq
            message, under_way = self._sent.get(key, (message, 0))
            if not under_way and not self._room.take(str(one.topic_id), len(message.body)):
                one.due_at = monotonic_unix_time() + _CROWDED_SECONDS
                return one
            self._sent[key] = message, under_way + 1
            try:
                answer = await self._send(one, message)
            finally:
                under_way = self._sent.pop(key)[1] - 1
                if under_way:
                    self._sent[key] = message, under_way
                else:
                    self._room.give_back(str(one.topic_id), len(message.body))
            if isinstance(answer, HttpAnswer) and answer.status == _GONE:
                self.counts["gone"] += 1
                end = partial(self._context.store.end, number=one.id, expires_at=one.expires_at)
                renewed = await self._context.writer.write(end)
                self.forget([one.id])
                self.add(renewed)
                return None
            if (fault := delivery_fault(answer)) is not None:
                self._failed(one)
                await self._record(one, one.due_at, fault)
                return one
            self.counts["received"] += 1
            one.position, one.failures = message.seq, 0
            await self._record(one, None if self._last.get(one.topic_id, 0) <= message.seq else monotonic_unix_time())
        return None

    async def _send(self, one: DueSubscription, message: Message) -> HttpAnswer | HttpFailure:
        fields = [f"Content-Type: {message.media_type}\r\n"]
        fields.append(f"Link: {link_header(self._options.url, one.topic, message.links)}\r\n")
        if one.secret is not None:
            fields.append(f"X-Hub-Signature: {signature(one.secret, message.body, self._options.method)}\r\n")
        head, asker = "".join(fields).encode("latin-1", "replace"), subscriber(one.host)
        return await self._context.client.request("POST", one.callback, _BOUNDS, head, message.body, asker)

    def _failed(self, one: DueSubscription) -> None:
        self.counts["failed"] += 1
        one.failures += 1
        one.due_at = monotonic_unix_time() + PAUSE.seconds(one.failures, random.random())

    async def _record(self, one: DueSubscription, due_at: float | None, error: str | None = None) -> None:
        behind = await self._context.writer.write(lambda tx: self._context.store.record(tx, one, due_at, error))
        if due_at is None:
            self.forget([one.id])
        self.add(behind)

    async def _next_message(self, one: DueSubscription) -> Message | int:
        """What this subscription receives next; the number of the topic's last message when it has all."""
        key = one.topic_id, one.position + 1
        if key in self._sent:
            return self._sent[key][0]
        if (message := self._cache.get(key)) is not None:
            return message
        found = await asyncio.to_thread(self._context.store.message_after, one.topic_id, one.position)
        if isinstance(found, Message):
            self._remember(one.topic_id, found)
        return found

    def _remember(self, topic_id: int, message: Message) -> None:
        key = topic_id, message.seq
        if key in self._cache or len(message.body) > _CACHE_OCTETS // 2:
            return
        self._cache[key] = message
        self._cached_octets += len(message.body)
        while self._cached_octets > _CACHE_OCTETS:
            _key, oldest = self._cache.popitem(last=False)
            self._cached_octets -= len(oldest.body)
