"""The hub: it stores each request durably before it answers, and carries it out then (WebSub, RS-NT)."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import KNOWN, HttpClient
from headwater.notify.hub.delivery import Deliveries
from headwater.notify.hub.policy import (
    AddressPolicy,
    ChangedTopics,
    ClientShares,
    HubOptions,
    RequestRefusal,
    SubscriptionRequest,
)
from headwater.notify.hub.queues import USER_AGENT, HubContext
from headwater.notify.hub.store import ChangedTopic, DueSubscription, HubStore, Intent, Payload, host_of, stranger
from headwater.notify.hub.topics import TopicFault, TopicFetches, fetch_topic
from headwater.notify.hub.verification import Verifications
from headwater.notify.websub import monotonic_unix_time
from headwater.storage.lock import LockHeld, lock_exclusive
from headwater.transport.access import check_authorities

_TIDY_SECONDS: Final = 2.0
_HEAD_OCTETS: Final = 4_096
_LEAST_OCTETS: Final = 64 << 10
_TRIES: Final = 3
_TRY_SECONDS: Final = 0.2
_ALLOWING: Final = "the hub's operator allows it by --allow-private ADDRESS, or allow_private of [hub]"
"""Said to publishers with a token."""


class Hub:
    """One hub, for one event loop. `start` it, and `close` it; what it has promised outlives any end of the process."""

    def __init__(
        self,
        folder: Path,
        options: HubOptions,
        addresses: AddressPolicy,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
        on_topic_fault: Callable[[str, str], None] = lambda _topic, _text: None,
        topics: Collection[str] = (),
    ) -> None:
        """`topics`: as soon as there are any, nobody subscribes to others."""
        self.options = options
        self.addresses = addresses
        self._topics = topics
        check_authorities(options.authorities)
        self._lock = _locked(folder)
        self.store = HubStore(folder, options.limits)
        self._writing_thread = ThreadPoolExecutor(1, "writer")
        self._writer = GroupCommit(self.store.database.write, self._writing_thread)
        self._client = HttpClient(addresses.objection, authorities=options.authorities, user_agent=USER_AGENT)
        self._wake = asyncio.Event()
        self._context = HubContext(
            options=options,
            store=self.store,
            writer=self._writer,
            client=self._client,
            wake=self._wake,
            on_fault=on_fault,
            on_topic_fault=on_topic_fault,
        )
        self.deliveries = Deliveries(self._context)
        self.verifications = Verifications(self._context, self._settled)
        self.fetches = TopicFetches(self._context, self._fetched)
        self._drivers = (self.fetches, self.verifications, self.deliveries)
        self._asking = ClientShares(options.limits.pending, options.limits.host_pending)
        """Requests to subscribe that are looked at, by the host of the callback."""

        self._runs: list[asyncio.Task[None]] = []
        self.published = 0

    def start(self) -> None:
        """Take up what was left, then go on. Raises the store's faults."""
        now = monotonic_unix_time()
        with self.store.database.write() as tx:
            self.store.tidy(tx, now)
        self.deliveries.add(self.store.due())
        for intent in self.store.intents():
            self.verifications.add(intent)
        for changed in self.store.changed():
            self.fetches.add(changed)
        self._runs = [asyncio.ensure_future(run) for run in (self._run(), self._tidy())]

    async def close(self) -> None:
        """Give up what is under way, and remember what was received."""
        for run in self._runs:
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
        for driver in self._drivers:
            await driver.close()
        await self._writer.close()
        self._writing_thread.shutdown()
        self._client.close()
        self.store.close()
        os.close(self._lock)

    async def subscribe(
        self, request: SubscriptionRequest, *, is_trusted: bool = False, client: str = ""
    ) -> RequestRefusal | None:
        """Remember a request of a `client` to subscribe or unsubscribe, durably, and verify it then; or why not."""
        limits, pending = self.options.limits, self.verifications
        if self._topics and request.topic_key not in self._topics and not request.is_unsubscribe:
            return RequestRefusal(404, "this hub has no such topic: see the Capability Lists of its source")
        host = host_of(request.callback)
        under_way, of_host = self._asking.taken, self._asking.held(host)
        if pending.pending + under_way >= limits.pending or pending.pending_of(host) + of_host >= limits.host_pending:
            return RequestRefusal(503, "too many requests wait to be verified")
        with self._asking.growing(host) as asks:
            asks(1)
            asker = KNOWN if is_trusted else stranger(client)
            objections = await self._client.objections_to([request.callback], asker)
            for callback, objection in objections.items():  # no word of ours could reach it (WS-H-17)
                self._context.on_topic_fault(callback, objection.text)
                why = f"{objection.public_text}, and this hub calls no such address"
                return RequestRefusal(403, f"hub.callback cannot be used: {why}")
            now = monotonic_unix_time()
            self.verifications.add(await self._writer.write(lambda tx: self.store.ask(tx, request, now, asker)))
        return None

    async def publish(self, payload: Payload, *, is_trusted: bool, client: str = "") -> RequestRefusal | None:
        """Keep a payload for the subscribers of its topic, durably; or why not.

        One of a publisher who is not known is taken only where the topic names this hub and has these very octets, and
        only once; its type and links are then those of the topic.
        """
        if (refusal := await self._objected([payload.topic], is_trusted=is_trusted, client=client)) is not None:
            return refusal
        if not is_trusted:
            found = await self._confirmed(payload, client)
            if isinstance(found, RequestRefusal):
                return found
            payload = found
        await self._distribute(payload, once=not is_trusted or b"-notification" in payload.body[:_HEAD_OCTETS])
        return None

    async def changed(self, topics: ChangedTopics, *, is_trusted: bool, client: str = "") -> RequestRefusal | None:
        """Remember that topics have new content, durably, and fetch them then; or why not."""
        if not is_trusted and self.fetches.pending >= self.options.limits.pending_topics:
            return RequestRefusal(503, "too many topics wait to be fetched")
        if (refusal := await self._objected(topics.topics, is_trusted=is_trusted, client=client)) is not None:
            return refusal
        now = monotonic_unix_time()
        noted = await self._writer.write(
            lambda tx: self.store.note_changed(tx, topics.topics, now, is_trusted=is_trusted)
        )
        for one in noted:
            one.client = client
            self.fetches.add(one)
        return None

    async def _objected(self, topics: Sequence[str], *, is_trusted: bool, client: str) -> RequestRefusal | None:
        """Why topics cannot be used by where they are; only somebody known is told the address."""
        objections = await self._client.objections_to(topics, KNOWN if is_trusted else stranger(client))
        for topic, objection in objections.items():
            if is_trusted:
                return RequestRefusal(403, f"the topic cannot be used: {objection.text}; {_ALLOWING}")
            self._context.on_topic_fault(topic, objection.text)
            return RequestRefusal(403, f"the topic cannot be used: {objection.public_text}")
        return None

    async def _confirmed(self, payload: Payload, client: str) -> Payload | RequestRefusal:
        """What the topic of a payload of somebody who is not known has, if that are its octets; or why not."""
        for tries in range(_TRIES):  # the topic may show it a moment later
            most = max(len(payload.body), _LEAST_OCTETS)
            found = await fetch_topic(self._context, payload.topic, is_trusted=False, client=client, max_octets=most)
            if isinstance(found, Payload) and found.body == payload.body:
                return found
            if isinstance(found, TopicFault) and not found.is_too_long:
                self._context.on_topic_fault(payload.topic, found.text)
                return RequestRefusal(403, found.public_text or found.text)
            if tries < _TRIES - 1:
                await asyncio.sleep(_TRY_SECONDS)
        return RequestRefusal(403, "the topic has other content: use a token, or send the topic's content")

    async def _distribute(self, payload: Payload, *, once: bool) -> None:
        now = monotonic_unix_time()
        added = await self._writer.write(lambda tx: self.store.add(tx, payload, now, once=once))
        if added is not None:
            self.published += 1
            self.deliveries.added(added)

    async def _fetched(self, changed: ChangedTopic, found: Payload | TopicFault) -> None:
        if isinstance(found, Payload):
            await self._distribute(found, once=True)
        else:
            self._context.on_topic_fault(changed.topic, found.text)
        await self._writer.write(lambda tx: self.store.fetched(tx, changed.topic, changed.noted_at))

    def _settled(self, found: DueSubscription | Intent | int) -> None:
        if isinstance(found, Intent):
            self.verifications.add(found)
        elif isinstance(found, DueSubscription):
            self.deliveries.add([found])
        else:
            self.deliveries.forget([found])

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = monotonic_unix_time()
            for driver in self._drivers:
                driver.start_due(now)
            due = min((at for driver in self._drivers if (at := driver.next_due()) is not None), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.01, due - now)):
                    await self._wake.wait()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self._client.drop_idle(time.monotonic())
            try:
                ended = await self._writer.write(lambda tx: self.store.tidy(tx, monotonic_unix_time()))
                self.deliveries.forget(ended)
            except Exception as error:  # noqa: BLE001 - what is done now and then goes on
                self._context.on_fault(as_fault(error))


def _locked(folder: Path) -> int:
    """Hold the state folder; returns the descriptor that does. Raises StoreFault."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark_folder(folder, STATE_MARK)
        return lock_exclusive(folder / "lock")
    except LockHeld as cause:
        raise StoreFault(
            "another process, a hub or a source, is using this state folder", code="HW-HUB-02", where=str(folder)
        ) from cause
    except OSError as cause:
        raise StoreFault(f"cannot be used for state: {cause.strerror}", code="HW-HUB-02", where=str(folder)) from cause
