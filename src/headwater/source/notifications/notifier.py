"""Tells the hubs of a source what becomes visible: one thread, with an event loop in which each hub has its own pace.

It is told of publications as they happen and never waits for a hub. What it has to send is not a queue of its own but
what lies between the hub's position and what is visible, in the catalog: it survives whatever is killed, and a hub that
is down for a week costs no more than one that is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

import msgspec

from headwater.errors import HeadwaterError
from headwater.notify.http_client import HttpClient, check_authorities
from headwater.publish.publication_state import decode_publication
from headwater.source.events.publication import VisibleChanges
from headwater.source.notifications.hub_sender import HubHealth, HubSender
from headwater.source.notifications.notification_stream import NotifyContext
from headwater.version import __version__

_DROP_SECONDS = 10.0


class Notifier:
    """A listener of publications; `start` and `stop` may follow each other, as the right to publish comes and goes.

    Raises UsageFault where the certificate authorities that the settings name cannot be used.
    """

    def __init__(self, hubs: tuple[str, ...], context: NotifyContext) -> None:
        check_authorities(context.settings.authorities)
        self._hubs = hubs
        self._context = context
        self._lock = threading.Lock()
        self._visible: dict[str, VisibleChanges] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._senders: list[HubSender] = []
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    @property
    def health(self) -> list[HubHealth]:
        """How each hub is at this moment."""
        return [msgspec.structs.replace(one.health, waiting=one.waiting) for one in list(self._senders)]

    def visible(self, changes: VisibleChanges) -> None:
        """Take note of what is published of a set now. Never waits."""
        with self._lock:
            self._visible[changes.name] = changes
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._note, changes)

    def wrote(self, name: str | None, documents: Sequence[str]) -> None:
        """Take note that documents of a set, or (None) of the source, have been written. Never waits.

        What was written before the sending has begun is found when it begins.
        """
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wrote, name, documents)

    def start(self) -> None:
        """Begin to send; of what another process has sent meanwhile the catalog tells."""
        with self._lock:
            self._visible.clear()
        self._is_stopped = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="headwater-notify", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ask to end, and wait so long for it; False when it has not ended by then."""
        with self._lock:
            self._is_stopped = True
            if self._loop is not None and self._ending is not None:
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _note(self, changes: VisibleChanges) -> None:
        for sender in self._senders:
            sender.note(changes)

    def _wrote(self, name: str | None, documents: Sequence[str]) -> None:
        for sender in self._senders:
            sender.wrote(name, documents)

    async def _tell_of_gone_sets(self) -> None:
        """Sets that were published here and are not configured any more; others may share the catalog."""
        site = self._context.site
        with contextlib.suppress(HeadwaterError):  # else at the next start
            ours = {one.name for one in site.sets}
            for state in await asyncio.to_thread(self._context.catalog.sets):
                if state.name not in ours and decode_publication(state.notes).base_url == site.base_url:
                    for sender in self._senders:
                        sender.gone(state.name)

    async def _run(self) -> None:
        agent = f"headwater/{__version__} (ResourceSync source)"
        # any address will do: the hubs are named by the configuration
        settings = self._context.settings
        client = HttpClient(
            lambda _address: None,
            authorities=settings.authorities,
            user_agent=agent,
            proxy_for=settings.proxy_for,
        )
        ending = asyncio.Event()
        self._senders = [HubSender(hub, self._context, client) for hub in self._hubs]
        with self._lock:
            self._loop, self._ending = asyncio.get_running_loop(), ending
            if self._is_stopped:
                ending.set()
            known = list(self._visible.values())
        for changes in known:
            self._note(changes)
        await self._tell_of_gone_sets()
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DROP_SECONDS):
                    await ending.wait()
            client.drop_idle(asyncio.get_running_loop().time())
        with self._lock:
            self._loop = None
        for sender in self._senders:
            with contextlib.suppress(HeadwaterError):  # else the last payload is sent again, which does no harm
                await sender.close()
        client.close()
