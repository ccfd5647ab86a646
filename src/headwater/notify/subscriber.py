"""The subscriber: keeps subscriptions to the channels of copies, and takes what is delivered. For one event loop.

Channels that are wanted are discovered, asked for, verified, renewed before their leases end with another callback and
another secret (WS-S-05), and ended when they are wanted no more.
"""

import asyncio
import contextlib
import math
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headwater.copy_state import NotificationChannel
from headwater.errors import as_fault
from headwater.notify import subscriber_hubs
from headwater.notify.group_commit import GroupCommit
from headwater.notify.http_client import HttpClient
from headwater.notify.hub.policy import RequestRefusal
from headwater.notify.subscriber_hubs import (
    GONE,
    DeliveryAnswer,
    HubClient,
    IntentAnswer,
    IntentQuery,
    answer,
    judge,
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
        self.held: dict[str, Subscription] = {}  # by the token of the callback
        self._by_channel: dict[str, dict[str, Subscription]] = {}
        for one in store.subscriptions():
            self.put(one)
        self.wanted: dict[str, NotificationChannel] | None = None
        """The channels that are subscribed to, by topic; None: it is not known yet which these are."""

        self.topics: dict[str, TopicState] = {}  # what is known of the topics of these channels
        self.needs_poll = False
        """A subscription has begun, or a delivery could not be taken: a Change List has to be read once more."""

    def put(self, subscription: Subscription) -> None:
        """Hold a subscription as it is by now."""
        self.held[subscription.token] = subscription
        self._by_channel.setdefault(subscription.channel, {})[subscription.token] = subscription

    def pop(self, subscription: Subscription) -> None:
        """Hold it no more."""
        self.held.pop(subscription.token, None)
        self._by_channel.get(subscription.channel, {}).pop(subscription.token, None)

    def of(self, channel: str) -> list[Subscription]:
        """The subscriptions to a channel that are not to be ended."""
        held = self._by_channel.get(channel, {}).values()
        return [one for one in held if one.state is not SubscriptionState.RETIRED]

    def is_pushed(self, channel: str, now: float) -> bool:
        """Whether a subscription to the channel holds."""
        return any(one.state is SubscriptionState.ACTIVE and (one.ends_at or 0) > now for one in self.of(channel))


class TopicState(NamedTuple):
    """When a topic is asked for its hubs, and how often it has named none: never again, once they are known.

    A renewal, a subscription that has come to an end and a channel that comes back have it asked anew (WS-P-05).
    """

    next_at: float = 0.0
    tries: int = 0


USER_AGENT: Final = f"headwater/{__version__} (WebSub subscriber)"
_SPREAD_SECONDS: Final = 1.0  # over so long what has waited for a hub is asked for, once it answers

_LONGEST_SLEEP: Final = 3_600.0
_FULL: Final = DeliveryAnswer(503, fault="too many deliveries wait to be applied")


class Subscriber:
    """Does what is due for the subscriptions of all copies. `callbacks` is what every callback begins with."""

    def __init__(self, client: HttpClient, callbacks: str) -> None:
        self._client = client
        self._hubs = HubClient(client)
        self._callbacks = callbacks if callbacks.endswith("/") else f"{callbacks}/"
        self._copies: list[SubscribedCopy] = []
        self.has_all_copies = asyncio.Event()  # whether all copies are taken up
        self._by_token: dict[str, SubscribedCopy] = {}
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
            self._by_token[one.token] = copy
            if one.state is SubscriptionState.REQUESTED:  # what became of it is not known: it is asked for at once
                at = monotonic_unix_time() + _SPREAD_SECONDS * random.random()
                copy.put(msgspec.structs.replace(one, failures=0, next_at=min(one.next_at, at)))
            elif one.ends_at and (one.asked_at or 0.0) > monotonic_unix_time():
                # the clock was set back: who knows when it ends
                ends_at = min(one.ends_at, monotonic_unix_time() + subscriber_hubs.ASSUMED_SECONDS)
                copy.put(msgspec.structs.replace(one, asked_at=None, ends_at=ends_at, next_at=0.0))
        self._wake.set()

    def want(self, copy: SubscribedCopy, channels: Iterable[NotificationChannel]) -> None:
        """Subscribe to these channels of a copy and to no others. From any thread."""
        wanted = {one.topic: one for one in channels}

        def begin() -> None:
            kept = wanted.keys() & (copy.wanted or {})
            copy.topics = {topic: one for topic, one in copy.topics.items() if topic in kept and not one.tries}
            copy.wanted = wanted
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
        copy = self._by_token.get(token)
        return None if copy is None else (copy, copy.held[token])

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

    def is_gone(self, token: str) -> bool:
        """Whether nobody has this callback, or the hub has denied its subscription (WS-S-10)."""
        found = self.found(token)
        return found is None or found[1].state is SubscriptionState.DENIED

    def not_taken(self, token: str, refusal: RequestRefusal) -> None:
        """The body of a delivery was not taken; what is too long does not come again."""
        if refusal.status == 413 and (found := self.found(token)) is not None:
            self._doubt(*found, DeliveryAnswer(refusal.status, refusal.text, is_doubtful=True))

    async def deliver(self, token: str, body: bytes, *, signed: str | None, links: str) -> DeliveryAnswer:
        """Judge a delivery, and have it on disk before it is acknowledged."""
        if (found := self.found(token)) is None:
            return GONE
        copy, held = found
        told = judge(held, body, signed=signed, links=links)
        if told.fault is not None:
            self._doubt(copy, held, told)
            return told
        now = monotonic_unix_time()
        if not await copy.writer.write(lambda t: copy.store.queue(t, held, body, now)):
            return _FULL
        if (present := copy.held.get(token)) is not None:  # not ended meanwhile
            copy.put(msgspec.structs.replace(present, heard_at=now, fault=None))
        copy.on_news()
        return told

    def _doubt(self, copy: SubscribedCopy, held: Subscription, told: DeliveryAnswer) -> None:
        self._faulty(copy, held, f"Headwater refused a delivery: {told.fault}")
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
            if one.state is active and (one.hub, one.topic) == (held.hub, held.topic) and one.token != held.token:
                await self._retire(copy, one)
        copy.needs_poll = True

    async def _retire(self, copy: SubscribedCopy, held: Subscription) -> None:
        await self._change(copy, held, state=SubscriptionState.RETIRED, next_at=monotonic_unix_time(), failures=0)

    def _faulty(self, copy: SubscribedCopy, held: Subscription, fault: str) -> Subscription:
        """Hold it with a fault, which is told where it is a new one."""
        if fault != held.fault:
            copy.tell(fault, held.hub)
        new = msgspec.structs.replace(held, fault=fault)
        copy.put(new)
        return new

    async def _change(self, copy: SubscribedCopy, held: Subscription, **fields: Any) -> None:
        """Hold it with other fields. By the queue of writes: what is held last is on disk last, too."""
        new = msgspec.structs.replace(held, **fields)
        copy.put(new)
        await copy.writer.write(lambda t: copy.store.change(t, new))

    async def _drop(self, copy: SubscribedCopy, held: Subscription) -> None:
        copy.pop(held)
        self._by_token.pop(held.token, None)
        await copy.writer.write(lambda t: copy.store.drop(t, held.token))

    # -- what is due --------------------------------------------------------------------------------------------------

    def _start_due(self, copy: SubscribedCopy, now: float) -> float:
        """Begin what is due for a copy; returns when something is due next."""
        due = now + _LONGEST_SLEEP
        for topic, channel in (copy.wanted or {}).items():
            if (at := copy.topics.setdefault(topic, TopicState()).next_at) > now:
                due = min(due, at)
            else:
                self._start(copy, f"discover {topic}", self._discover(copy, channel))
        for token, held in list(copy.held.items()):
            if held.next_at > now:
                due = min(due, held.next_at)
            elif copy.wanted is not None or held.state is not SubscriptionState.ACTIVE:  # else it may be wanted still
                self._start(copy, f"ask {token}", self._ask(copy, token))
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
        """Find the hubs of a channel, and subscribe at each where no subscription holds or is asked for."""
        found = await self._hubs.discover(channel)
        if not found.hubs:
            tries = copy.topics.get(channel.topic, TopicState()).tries + 1
            pause = 30 * subscriber_hubs.PAUSE.seconds(tries, random.random())
            copy.topics[channel.topic] = TopicState(monotonic_unix_time() + pause, tries)
            if tries == 1:
                copy.tell("no hub is offered for this channel: the Change List is polled", channel.topic)
            return
        copy.topics[channel.topic] = TopicState(math.inf)
        asked = set[str]()
        for one in copy.of(channel.topic):
            if one.topic != found.topic or one.hub not in found.hubs or not one.callback.startswith(self._callbacks):
                await self._retire(copy, one)
            elif not one.is_replaced:
                asked.add(one.hub)
        for hub in found.hubs:
            if hub not in asked:
                await self._request(copy, channel, found.topic, hub)

    async def _request(self, copy: SubscribedCopy, channel: NotificationChannel, topic: str, hub: str) -> None:
        token = secrets.token_urlsafe(24)
        new = Subscription(
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
        await copy.writer.write(lambda t: copy.store.add(t, new))
        copy.put(new)
        self._by_token[token] = copy
        self._wake.set()

    async def _ask(self, copy: SubscribedCopy, token: str) -> None:
        """Do what is due for a subscription."""
        if (held := copy.held.get(token)) is None:
            return
        is_elsewhere = not held.callback.startswith(self._callbacks)  # of a process that listened there
        if held.state is SubscriptionState.RETIRED:
            await self._unsubscribe(copy, held)
        elif copy.wanted is not None and held.channel not in copy.wanted:
            await self._retire(copy, held)
        elif held.state is SubscriptionState.REQUESTED and not is_elsewhere:
            await self._subscribe(copy, held)
        elif held.state is SubscriptionState.ACTIVE and (held.ends_at or 0) > monotonic_unix_time():
            # renewed by another subscription, which takes the place of this one once it is verified
            await self._change(copy, held, next_at=held.ends_at)
            copy.topics[held.channel] = TopicState()
        else:  # also a denial that has held for long enough
            if held.state is SubscriptionState.ACTIVE:
                copy.tell("the lease has ended, and the hub did not renew it", held.hub)
            await self._drop(copy, held)
            copy.topics[held.channel] = TopicState()
            copy.on_news()

    async def _subscribe(self, copy: SubscribedCopy, held: Subscription) -> None:
        """Ask the hub, and again after a pause; its verification comes in the midst of it, later, or never."""
        if held.failures and held.fault is None:
            held = self._faulty(copy, held, "the hub has accepted the request and does not verify it")
        now, failures = monotonic_unix_time(), held.failures + 1
        again = now + subscriber_hubs.PAUSE.seconds(failures, random.random())
        await self._change(copy, held, asked_at=now, next_at=again, failures=failures)
        refusal = await self._hubs.post(held.hub, subscribe_form(held))
        present = copy.held.get(held.token)
        if refusal is not None and present is not None and present.state is SubscriptionState.REQUESTED:
            await self._change(copy, self._faulty(copy, present, refusal))
            copy.on_news()

    async def _unsubscribe(self, copy: SubscribedCopy, held: Subscription) -> None:
        """Ask the hub to end it; it is forgotten once that is verified, or the lease is over."""
        now = monotonic_unix_time()
        if (held.ends_at or now) <= now or not held.callback.startswith(self._callbacks):
            await self._drop(copy, held)
            return
        refusal = await self._hubs.post(held.hub, unsubscribe_form(held))
        if held.token not in copy.held:
            return  # verified meanwhile
        failures = held.failures + 1
        again = min(now + 60 * subscriber_hubs.PAUSE.seconds(failures, random.random()), held.ends_at or now)
        await self._change(copy, held, next_at=again, failures=failures, fault=refusal)
