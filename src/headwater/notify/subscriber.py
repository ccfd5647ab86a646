"""The subscriber: keeps subscriptions to the channels of copies, and takes what is delivered. For one event loop.

Channels that are wanted are discovered, asked for, verified, renewed before their leases end with another callback and
another secret (WS-S-05), and ended when they are wanted no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec

from headwater.copy_state import NotificationChannel
from headwater.errors import as_fault
from headwater.notify import subscriber_hubs
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.subscriber_hubs import (
    GONE,
    DeliveryAnswer,
    DiscoveredTopic,
    HubClient,
    IntentAnswer,
    IntentQuery,
    answer,
    judge,
    judge_early,
    subscribe_form,
    unsubscribe_form,
)
from headwater.notify.subscriber_store import SubscriberStore, Subscription, SubscriptionState
from headwater.notify.websub import monotonic_unix_time
from headwater.version import __version__


class SubscribedCopy:
    """What the subscriber holds of one copy. Its event loop changes it, other threads may look."""

    def __init__(self, store: SubscriberStore, on_news: Callable[[], None], tell: Callable[[str, str], None]) -> None:
        """`on_news` is called when something was queued, or a subscription has changed; `tell` says what, and where."""
        self.store = store
        self.on_news = on_news
        self.tell = tell
        self.writer = GroupCommit(store.write)
        self.held: dict[int, Subscription] = {}
        self._by_channel: dict[str, dict[int, Subscription]] = {}
        for one in store.subscriptions():
            self.put(one)
        self.wanted: dict[str, NotificationChannel] | None = None
        """The channels that are subscribed to, by topic; None: it is not known yet which these are."""

        self.discovered: dict[str, DiscoveredTopic] = {}
        self.tried: dict[str, tuple[int, float]] = {}
        """Of channels without a hub: how often they were asked, and when they are again."""

        self.needs_poll = False
        """A subscription has begun, or a delivery could not be taken: a Change List has to be read once more."""

    def put(self, subscription: Subscription) -> None:
        """Hold a subscription as it is by now."""
        self.held[subscription.id] = subscription
        self._by_channel.setdefault(subscription.channel, {})[subscription.id] = subscription

    def pop(self, subscription: Subscription) -> None:
        """Hold it no more."""
        self.held.pop(subscription.id, None)
        self._by_channel.get(subscription.channel, {}).pop(subscription.id, None)

    def of(self, channel: str) -> list[Subscription]:
        """The subscriptions to a channel."""
        return list(self._by_channel.get(channel, {}).values())

    def is_pushed(self, channel: str, now: float) -> bool:
        """Whether a subscription to the channel holds."""
        return any(one.state is SubscriptionState.ACTIVE and (one.ends_at or 0) > now for one in self.of(channel))


USER_AGENT: Final = f"headwater/{__version__} (WebSub subscriber)"
_SPREAD_SECONDS: Final = 1.0
"""Over so long what has waited for a hub is asked for, once it answers."""

_LONGEST_SLEEP: Final = 3_600.0
_FULL: Final = DeliveryAnswer(503, fault="too much waits to be applied")


class Subscriber:
    """Does what is due for the subscriptions of all copies. `callbacks` is what every callback begins with."""

    def __init__(self, client: HttpClient, callbacks: str) -> None:
        self._client = client
        self._hubs = HubClient(client)
        self._callbacks = callbacks if callbacks.endswith("/") else f"{callbacks}/"
        self._copies: list[SubscribedCopy] = []
        self.has_all_copies = asyncio.Event()
        """Whether all copies are taken up."""

        self._by_token: dict[str, tuple[SubscribedCopy, int]] = {}
        self._wake = asyncio.Event()
        self._busy: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    def add(self, copy: SubscribedCopy) -> None:
        """Take up a copy; its callbacks are answered from now on. From any thread."""
        self._loop.call_soon_threadsafe(self._add, copy)

    def all_added(self) -> None:
        """All copies are taken up: a callback that none of them has is nobody's. From any thread."""
        self._loop.call_soon_threadsafe(self.has_all_copies.set)

    def _add(self, copy: SubscribedCopy) -> None:
        self._copies.append(copy)
        for one in list(copy.held.values()):
            self._by_token[one.token] = (copy, one.id)
            if one.state is SubscriptionState.REQUESTED:  # what became of it is not known: it is asked for at once
                at = monotonic_unix_time() + _SPREAD_SECONDS * random.random()
                copy.put(msgspec.structs.replace(one, asked_at=None, failures=0, next_at=min(one.next_at, at)))
            elif one.ends_at and (one.asked_at or 0.0) > monotonic_unix_time():
                # the clock was set back: who knows when it ends
                ends_at = min(one.ends_at, monotonic_unix_time() + subscriber_hubs.ASSUMED_SECONDS)
                copy.put(msgspec.structs.replace(one, asked_at=None, ends_at=ends_at, next_at=0.0))
        self._wake.set()

    def want(self, copy: SubscribedCopy, channels: Iterable[NotificationChannel]) -> None:
        """Subscribe to these channels of a copy and to no others. From any thread."""
        wanted = {one.topic: one for one in channels}

        def begin() -> None:
            copy.wanted, copy.tried = wanted, {}
            for held in list(copy.held.values()):
                if held.channel not in wanted and held.state is not SubscriptionState.RETIRED:
                    copy.put(msgspec.structs.replace(held, next_at=0.0))
            self._wake.set()

        self._loop.call_soon_threadsafe(begin)

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                now = monotonic_unix_time()
                due = min((self._start_due(copy, now) for copy in self._copies), default=now + _LONGEST_SLEEP)
                self._client.drop_idle(time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.05, min(due - now, _LONGEST_SLEEP))):
                        await self._wake.wait()
        finally:
            tasks = list(self._busy.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for copy in self._copies:
                await copy.writer.close()

    # -- what a hub asks and delivers ---------------------------------------------------------------------------------

    def found(self, token: str) -> tuple[SubscribedCopy, Subscription] | None:
        """The subscription whose callback ends with this token."""
        at = self._by_token.get(token)
        held = at[0].held.get(at[1]) if at is not None else None
        return None if at is None or held is None else (at[0], held)

    async def verify(self, token: str, asked: IntentQuery | None) -> IntentAnswer:
        """Answer a verification of intent; what it changes is on disk before it is answered."""
        found = self.found(token)
        told = answer(found[1] if found else None, asked)
        if found is None or asked is None or told.status != 200:
            return told
        copy, held = found
        if asked.mode == "subscribe":
            await self._confirmed(copy, held, asked)
        elif asked.mode == "unsubscribe":
            await self._drop(copy, held)
        else:
            why = f"the hub denies the subscription{': ' if asked.reason else ''}{asked.reason[:200]}"
            copy.tell(why, held.hub)
            again, denied = monotonic_unix_time() + subscriber_hubs.DENIED_SECONDS, SubscriptionState.DENIED
            await self._change(copy, held, state=denied, ends_at=None, next_at=again, fault=why)
        self._wake.set()
        copy.on_news()
        return told

    def early(self, token: str, content_length: int | None) -> DeliveryAnswer | None:
        """What is known of a delivery before its body is read."""
        found = self.found(token)
        told = judge_early(found[1] if found else None, content_length)
        if told is not None and found is not None:
            self._doubt(*found, told)
        return told

    async def deliver(self, token: str, body: bytes, *, signed: str | None, links: str) -> DeliveryAnswer:
        """Judge a delivery, and have it on disk before it is acknowledged."""
        found = self.found(token)
        if found is None:
            return GONE
        copy, held = found
        told = judge(held, body, signed=signed, links=links)
        if told.fault is not None:
            self._doubt(copy, held, told)
            return told
        now = monotonic_unix_time()
        if not await copy.writer.write(lambda t: copy.store.queue(t, held, body, now)):
            return _FULL
        if (present := copy.held.get(held.id)) is not None:  # not ended meanwhile
            copy.put(msgspec.structs.replace(present, heard_at=now, fault=None))
        copy.on_news()
        return told

    def _doubt(self, copy: SubscribedCopy, held: Subscription, told: DeliveryAnswer) -> None:
        fault = f"a delivery was not taken: {told.fault}"
        self._tell_fault(copy, held, fault)
        copy.put(msgspec.structs.replace(held, fault=fault))
        if told.is_doubtful:
            copy.needs_poll = True
            copy.on_news()

    # -- what becomes of subscriptions --------------------------------------------------------------------------------

    async def _confirmed(self, copy: SubscribedCopy, held: Subscription, asked: IntentQuery) -> None:
        now, lease = monotonic_unix_time(), subscriber_hubs.granted_seconds(asked.lease_seconds)
        was_active = held.state is SubscriptionState.ACTIVE
        renewed_at = now + subscriber_hubs.renewal_seconds(lease, random.random())
        active = SubscriptionState.ACTIVE
        await self._change(copy, held, state=active, ends_at=now + lease, next_at=renewed_at, failures=0, fault=None)
        if was_active:
            return
        for one in copy.of(held.channel):
            same = one.hub == held.hub and one.topic == held.topic
            if one.id != held.id and same and one.state is SubscriptionState.ACTIVE:
                await self._retire(copy, one)
        copy.needs_poll = True

    async def _retire(self, copy: SubscribedCopy, held: Subscription) -> None:
        await self._change(copy, held, state=SubscriptionState.RETIRED, next_at=monotonic_unix_time(), failures=0)

    async def _change(self, copy: SubscribedCopy, held: Subscription, **fields: Any) -> None:
        """Hold it with other fields. By the queue of writes: what is held last is on disk last, too."""
        new = msgspec.structs.replace(held, **fields)
        copy.put(new)
        await copy.writer.write(lambda t: copy.store.change(t, new))

    async def _drop(self, copy: SubscribedCopy, held: Subscription) -> None:
        copy.pop(held)
        self._by_token.pop(held.token, None)
        await copy.writer.write(lambda t: copy.store.drop(t, held.id))

    # -- what is due --------------------------------------------------------------------------------------------------

    def _start_due(self, copy: SubscribedCopy, now: float) -> float:
        """Begin what is due for a copy; returns when something is due next."""
        due = now + _LONGEST_SLEEP
        for topic, channel in (copy.wanted or {}).items():
            if topic in copy.discovered:
                continue
            again = copy.tried.get(topic, (0, 0.0))[1]
            if again > now:
                due = min(due, again)
            else:
                self._start(copy, f"discover {topic}", self._discover(copy, channel))
        for held in list(copy.held.values()):
            if held.next_at > now:
                due = min(due, held.next_at)
            elif copy.wanted is not None or held.state is not SubscriptionState.ACTIVE:  # else it may be wanted still
                self._start(copy, f"ask {held.id}", self._ask(copy, held.id))
        return due

    def _start(self, copy: SubscribedCopy, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin something once; what goes wrong in our own store, or is a bug, is told, and tried again later."""
        key = (id(copy), what)
        if key in self._busy:
            work.close()
            return

        async def run() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - what is not told here is never heard of, and begun again at once
                copy.tell(str(as_fault(error)), "")
                await asyncio.sleep(1.0)
            finally:
                del self._busy[key]
                self._wake.set()

        self._busy[key] = asyncio.ensure_future(run())

    async def _discover(self, copy: SubscribedCopy, channel: NotificationChannel) -> None:
        found = await self._hubs.discover(channel)
        if not found.hubs:
            tries = copy.tried.get(channel.topic, (0, 0.0))[0] + 1
            pause = 30 * subscriber_hubs.PAUSE.seconds(tries, random.random())
            copy.tried[channel.topic] = (tries, monotonic_unix_time() + pause)
            if tries == 1:
                copy.tell("no hub is offered for this channel: the Change List is polled", channel.topic)
            return
        copy.discovered[channel.topic] = found
        for one in copy.of(channel.topic):
            fits = one.topic == found.topic and one.hub in found.hubs and one.callback.startswith(self._callbacks)
            if not fits and one.state is not SubscriptionState.RETIRED:
                await self._retire(copy, one)
        live = [one for one in copy.of(channel.topic) if one.state is not SubscriptionState.RETIRED]
        for hub in found.hubs:
            if not any(one.hub == hub for one in live):
                await self._request(copy, channel, found.topic, hub)

    async def _request(self, copy: SubscribedCopy, channel: NotificationChannel, topic: str, hub: str) -> None:
        token = secrets.token_urlsafe(24)
        new = Subscription(
            id=0,
            kind=channel.kind,
            identity=channel.identity,
            channel=channel.topic,
            topic=topic,
            hub=hub,
            callback=f"{self._callbacks}{token}",
            token=token,
            secret=secrets.token_hex(32).encode(),
            state=SubscriptionState.REQUESTED,
        )
        new = await asyncio.to_thread(copy.store.add, new)
        copy.put(new)
        self._by_token[token] = (copy, new.id)
        self._wake.set()

    async def _ask(self, copy: SubscribedCopy, number: int) -> None:
        held = copy.held.get(number)
        if held is None:
            return
        wanted = copy.wanted is None or held.channel in copy.wanted
        if held.state is SubscriptionState.REQUESTED and not held.callback.startswith(self._callbacks):
            await self._drop(copy, held)  # of a process that listened elsewhere
        elif held.state is SubscriptionState.RETIRED:
            await self._unsubscribe(copy, held)
        elif not wanted:
            await self._retire(copy, held)
        elif held.state is SubscriptionState.REQUESTED:
            await self._subscribe(copy, held)
        elif held.state is SubscriptionState.ACTIVE:
            await self._follow_up(copy, held)
        else:  # a denial that has held for long enough
            await self._drop(copy, held)
            copy.discovered.pop(held.channel, None)

    async def _follow_up(self, copy: SubscribedCopy, held: Subscription) -> None:
        """Renew by another subscription, which takes the place of this one once it is verified."""
        now = monotonic_unix_time()
        pending = any(one.state is SubscriptionState.REQUESTED and one.hub == held.hub for one in copy.of(held.channel))
        if (held.ends_at or 0) <= now:
            copy.tell("the lease has ended, and the hub has not renewed it", held.hub)
            await self._drop(copy, held)
            copy.discovered.pop(held.channel, None)
            copy.on_news()
        elif pending or (channel := (copy.wanted or {}).get(held.channel)) is None:
            await self._change(copy, held, next_at=held.ends_at or now)
        else:
            found = await self._hubs.discover(channel)  # WS-P-05
            copy.discovered[channel.topic] = found if found.hubs else DiscoveredTopic(held.topic, (held.hub,))
            hubs = found.hubs or (held.hub,)
            await self._request(copy, channel, found.topic, held.hub if held.hub in hubs else hubs[0])
            await self._change(copy, held, next_at=held.ends_at or now)

    async def _subscribe(self, copy: SubscribedCopy, held: Subscription) -> None:
        """Ask the hub; its verification comes later, or in the midst of it."""
        now, failures = monotonic_unix_time(), held.failures + (held.asked_at is not None)
        fault = None if held.asked_at is None else "the hub has accepted the request and does not verify it"
        self._tell_fault(copy, held, fault)
        waits = subscriber_hubs.VERIFICATION.seconds(failures + 1, random.random())
        waiting = msgspec.structs.replace(held, asked_at=now, next_at=now + waits, failures=failures, fault=fault)
        copy.put(waiting)
        refusal = await self._hubs.post(held.hub, subscribe_form(held))
        present = copy.held.get(held.id)
        if present is None or present.state is not SubscriptionState.REQUESTED:
            return  # verified, or denied, meanwhile
        if refusal is None:
            await self._change(copy, waiting)
            return
        self._tell_fault(copy, held, refusal)
        pause = subscriber_hubs.PAUSE.seconds(failures + 1, random.random())
        again = monotonic_unix_time() + pause
        await self._change(copy, held, asked_at=None, next_at=again, failures=failures + 1, fault=refusal)
        copy.on_news()

    def _tell_fault(self, copy: SubscribedCopy, held: Subscription, fault: str | None) -> None:
        if fault not in (None, held.fault):
            copy.tell(fault, held.hub)

    async def _unsubscribe(self, copy: SubscribedCopy, held: Subscription) -> None:
        """Ask the hub to end it; it is forgotten once that is verified, or the lease is over."""
        now = monotonic_unix_time()
        if (held.ends_at or now) <= now or not held.callback.startswith(self._callbacks):
            await self._drop(copy, held)
            return
        refusal = await self._hubs.post(held.hub, unsubscribe_form(held))
        if held.id not in copy.held:
            return  # verified meanwhile
        failures = held.failures + 1
        again = min(now + 60 * subscriber_hubs.PAUSE.seconds(failures, random.random()), held.ends_at or now)
        await self._change(copy, held, next_at=again, failures=failures, fault=refusal)
