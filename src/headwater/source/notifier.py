"""Tells the hubs of a source what becomes visible: one thread, with an event loop in which each hub has its own pace.

It is told of publications as they happen and never waits for a hub. What it has to send is not a queue of its own but
what lies between the hub's position and what is visible, in the catalog: it survives whatever is killed, and a hub that
is down for a week costs no more than one that is there. To one hub it sends set by set in order, several sets at a
time, until the hub has taken it. A hub that fails is asked by one request at a time, after pauses that grow; what it
refuses of one set holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import threading
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.notify.websub import (
    PostOutcome,
    is_not_understood,
    outcome_of,
    pause_seconds,
    payload_head,
    ping,
)
from headwater.publish.publication_state import decode_publication
from headwater.publish.site import capability_list_name, topic_url
from headwater.retry import retry_after_seconds
from headwater.source.hub_streams import ChangeStream, FrameworkStream, NotifyContext
from headwater.source.set_health import PAUSES, FailureState, Publication
from headwater.transport.access import check_authorities
from headwater.version import __version__


class HubUnreachable(SourceFault):
    """A hub does not answer, or cannot take a notification at this moment."""

    code: ClassVar[str] = "HW-NTF-01"


class HubRefuses(SourceFault):
    """A hub does not take the notifications of a set."""

    code: ClassVar[str] = "HW-NTF-02"


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


class HubSender:
    """Sends to one hub; all of it runs in one event loop, the catalog is asked in threads."""

    def __init__(self, hub: str, context: NotifyContext, client: HttpClient) -> None:
        self.health = HubHealth(hub=hub)
        self._hub = hub
        self._context = context
        self._client = client
        self._changes: dict[str, ChangeStream] = {}
        self._frameworks: dict[str, FrameworkStream] = {}
        self._tasks: dict[AnyStream, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(STREAMS_AT_ONCE)
        self._probe = asyncio.Lock()
        self._takes_no_payloads = False
        """It is told which topic has changed, and fetches what the topic shows then."""
        self._takes_payloads = False
        """It has taken one, so that what it refuses is that payload."""
        self._failures = 0
        self._not_before = 0.0

    def note(self, visible: Publication) -> None:
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
        stream.news.set()
        if stream not in self._tasks:
            self._tasks[stream] = asyncio.get_running_loop().create_task(self._follow(stream))

    @property
    def _streams(self) -> list[AnyStream]:
        return [*self._changes.values(), *self._frameworks.values()]

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken, as far as is known."""
        return sum(one.waiting for one in list(self._changes.values()))

    async def close(self) -> None:
        """End, and write down what the hub has taken. Raises the catalog's faults."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for stream in self._streams:
            await asyncio.to_thread(stream.settle)

    async def _follow(self, one: AnyStream) -> None:
        """Send what there is to tell of a stream, and what comes meanwhile; whatever fails is tried again."""
        loop, is_more = asyncio.get_running_loop(), True
        try:
            while is_more or one.news.is_set():
                # Until there is enough for a notification, or the last one is long enough ago.
                while (left := one.pause(loop.time() - one.made_at)) > 0:
                    one.news.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await one.news.wait()
                one.news.clear()
                try:
                    async with self._places:
                        is_more = await self._step(one)
                    one.faults, pause = 0, 0.0
                    if is_more and one.refusals:
                        pause = pause_seconds(PostOutcome.REFUSED, one.refusals, random.random())
                except Exception as fault:  # noqa: BLE001 - whatever it was, it is tried again
                    self.health.add(fault, self._context.listener, f"set {one.name!r}, hub {self._hub}")
                    one.faults += 1
                    is_more, pause = True, PAUSES.seconds(one.faults)
                if is_more:
                    await asyncio.sleep(pause)
        finally:  # without waiting, so that no news comes in between
            del self._tasks[one]

    async def _step(self, one: AnyStream) -> bool:
        """Send the next payload of a stream; False: there is none. While the hub fails, one request at a time asks."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        payload = await asyncio.to_thread(one.next_payload)
        if payload is None:
            await asyncio.to_thread(one.settle)
            return False
        one.made_at = at
        if not self._failures:
            is_taken = await self._post(one, payload)
        else:
            async with self._probe:
                await asyncio.sleep(self._not_before - loop.time() if self._failures else 0.0)
                is_taken = await self._post(one, payload)
        if is_taken:
            one.taken()
        return True

    async def _post(self, one: AnyStream, payload: bytes) -> bool:
        self._context.may_send()
        failures = self._failures
        site, token = self._context.site, self._context.token
        topic, capability_list = topic_url(site, one.name, one.channel), site.url(capability_list_name(one.name))
        head = payload_head(self._hub, topic, capability_list, token)
        ask = partial(self._client.request, "POST", self._hub, _BOUNDS)
        answer = None if self._takes_no_payloads else await ask(head, payload)
        is_refused = isinstance(answer, HttpAnswer) and is_not_understood(answer.status)
        self._takes_payloads |= isinstance(answer, HttpAnswer) and answer.ok
        if answer is None or (is_refused and not self._takes_payloads):
            pinged = await ask(*ping(topic, token))
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

    def _judge(self, one: AnyStream, outcome: PostOutcome, said: str, asked: float) -> None:
        """Keep what came of a request, and when the next one may be."""
        message = f"the notifications of {one.name!r} wait, and are sent again"
        if outcome is PostOutcome.FAILED:
            self._failures += 1
            pause = pause_seconds(outcome, self._failures, random.random(), asked)
            self._not_before = asyncio.get_running_loop().time() + pause
            self.health.add(HubUnreachable(said, where=self._hub), self._context.listener, message)
            return
        self._failures = 0
        if outcome is PostOutcome.TOO_LARGE and one.too_large():
            return
        if outcome is not PostOutcome.TAKEN:
            one.refusals += 1
            self.health.add(HubRefuses(said, where=self._hub), self._context.listener, message)
            return
        one.refusals = 0
        self.health.sent += 1
        self.health.sent_at = self._context.clock()
        if not any(other.refusals for other in self._streams):
            self.health.clear()


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._senders: list[HubSender] = []
        self._thread: threading.Thread | None = None

    @property
    def health(self) -> list[HubHealth]:
        """How each hub is at this moment."""
        return [msgspec.structs.replace(one.health, waiting=one.waiting) for one in list(self._senders)]

    def visible(self, changes: Publication) -> None:
        """Take note of what is published of a set now. Never waits."""
        with self._lock:
            if self._loop is not None:
                for sender in self._senders:
                    self._loop.call_soon_threadsafe(sender.note, changes)

    def wrote(self, name: str | None, documents: Sequence[str]) -> None:
        """Take note that documents of a set, or (None) of the source, have been written. Never waits.

        What was written before the sending has begun is found when it begins.
        """
        with self._lock:
            if self._loop is not None:
                for sender in self._senders:
                    self._loop.call_soon_threadsafe(sender.wrote, name, documents)

    def start(self) -> None:
        """Begin to send; of what another process has sent meanwhile the catalog tells."""
        is_ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(is_ready)), name="headwater-notify", daemon=True
        )
        self._thread.start()
        is_ready.wait()

    def stop(self, timeout: float) -> bool:
        """Ask to end, and wait so long for it; False when it has not ended by then."""
        with self._lock:
            if self._loop is not None and self._ending is not None:
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    async def _tell_of_gone_sets(self) -> None:
        """Sets that were published here and are not configured any more; others may share the catalog."""
        site = self._context.site
        with contextlib.suppress(HeadwaterError):  # else at the next start
            ours = {one.name for one in site.sets}
            for state in await asyncio.to_thread(self._context.catalog.sets):
                if state.name not in ours and decode_publication(state.notes).base_url == site.base_url:
                    for sender in self._senders:
                        sender.gone(state.name)

    async def _run(self, is_ready: threading.Event) -> None:
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
        is_ready.set()
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
