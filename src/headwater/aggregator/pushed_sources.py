"""Sources that are polled at once when their hubs notify: `push` in aggregate.toml.

A notification says "poll now" and nothing else: its source is due, and pauses, windows and leases hold. A subscription
that is lost costs no more than the interval; what is known of it is beside the copy, where `headwater status` reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from headwater.aggregator.configuration import AggregatorConfig
from headwater.aggregator.store import AggregatorStore
from headwater.copy_state import FOLDER, NotificationChannel
from headwater.errors import HeadwaterError
from headwater.http.callbacks import CallbackApplication, CallbackListener
from headwater.notify.subscriber import SubscribedCopy
from headwater.notify.subscriber_store import SubscriberStore
from headwater.sync.connection import starting_uri
from headwater.sync.push import followed_sets
from headwater.sync.run import SyncTask, utcnow

LOOK_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 5.0  # so long after a run no hub can have the next one begin
_MOST_CHANNELS: Final = 100
_Wanted = tuple[str, SyncTask, tuple[NotificationChannel, ...]]  # with what callbacks begin with


class _Subscriptions(SubscriberStore):
    """Subscriptions of a source, without what is delivered: that something came is enough."""

    def queue(self, *_: object) -> bool:
        return True


class PushedSources:
    """Subscribes at the hubs of sources. `apps` has what answers them, by the paths `/push/NAME`."""

    def __init__(
        self, config: AggregatorConfig, store: AggregatorStore, on_fault: Callable[[HeadwaterError], None]
    ) -> None:
        self.config, self._store, self._on_fault = config, store, on_fault
        self.apps: dict[bytes, CallbackApplication] = {}
        self._held: dict[str, tuple[_Wanted, AsyncExitStack]] = {}
        self._heard = set[str]()
        self._read: dict[str, tuple[Any, tuple[NotificationChannel, ...]]] = {}
        self._seen: tuple[int, AggregatorConfig] | None = None
        self._wanted: dict[str, _Wanted] = {}

    async def work(self) -> None:
        """Hold subscriptions, and have sources polled of which hubs have told, until cancelled."""
        try:
            while True:
                with suppress(HeadwaterError, OSError):  # of the store: those tell of it who run sources
                    await asyncio.to_thread(self._look)
                await self._hold(self._wanted)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._hold({})

    async def _hold(self, wanted: dict[str, _Wanted]) -> None:
        for name in [name for name, (held, _) in self._held.items() if held != wanted.get(name)]:
            del self.apps[f"/push/{name}".encode()]
            await self._held.pop(name)[1].aclose()
        for name in wanted.keys() - self._held.keys():
            with suppress(HeadwaterError, OSError):  # with its options no hub can be asked, or the disk is full
                callbacks, task, channels = wanted[name]
                store, stack = _Subscriptions(Path(task.destination, FOLDER), stays_open=False), AsyncExitStack()
                copy = SubscribedCopy(store, partial(self._heard.add, name), lambda _what, _where: None)
                listener = CallbackListener([task], [], callbacks, self._on_fault)
                app = await stack.enter_async_context(listener.at_work())
                listener.subscriber.add(copy)
                listener.subscriber.want(copy, channels)
                listener.subscriber.all_added()
                self.apps[f"/push/{name}".encode()], self._held[name] = app, (wanted[name], stack)

    def _look(self) -> None:
        for name in set(self._heard) - {run.name for run in self._store.running()}:  # a run may have passed it by
            state, now = self._store.source(name), utcnow()
            if state is None or state.planned_at is None or (now - state.planned_at).total_seconds() < PAUSE_SECONDS:
                continue
            self._heard.discard(name)
            if not state.failures and state.next_at is not None and state.next_at > now:
                self._store.change(name, next_at=now)
        config, seen = self.config, (self._store.changed(), self.config)
        if seen == self._seen:
            return
        found, sources = {}, {one.name: one for one in config.sources if config.push and one.push and one.enabled}
        for state in self._store.sources() if sources else ():
            name, source = state.name, sources.get(state.name)
            if source is None or state.is_paused or state.retirement is not None:
                continue
            task = SyncTask(url=starting_uri(source.url), destination=config.state / name, options=source.options)
            if self._read.get(name, ((), ()))[0] != (key := (state.planned_at, task)):
                self._read[name] = key, ()
                with suppress(HeadwaterError, OSError):  # there is no copy yet
                    channels = [channel for one in followed_sets(task, None) for channel in one.channels]
                    self._read[name] = key, tuple(channels[:_MOST_CHANNELS])
            if offered := self._read[name][1]:
                found[name] = f"{(config.push or '').rstrip('/')}/{name}/", task, offered
        self._wanted, self._seen = found, seen
