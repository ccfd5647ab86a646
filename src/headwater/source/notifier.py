"""Tells the hubs of a source what becomes visible: one thread, with an event loop in which each hub has its own pace.

It is told of publications as they happen and never waits for a hub. What it has to send is not a queue of its own but
what lies between the hub's position and what is visible, in the catalog: it survives whatever is killed, and a hub that
is down for a week costs no more than one that is there. To one hub it sends set by set in order, several sets at a
time, until the hub has taken it. A hub that fails is asked by one request at a time, after pauses that grow; what it
refuses of one set holds up no other.

Each hub has its own chain of intervals, without gap or overlap (RS-CN-05). How far it was told, and the last payload,
are a row of the set in the catalog, written before the payload is sent: what is sent again, after whatever was lost or
killed, is the same octets. Change Notifications tell what lies between the hub's position and what is visible (RS-CN),
Framework Notifications what the documents are now, against what the hub was told (RS-FN).
"""

import asyncio
import contextlib
import datetime as dt
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec

from headwater.catalog.interface import Catalog, StateRow, StateUpdate, UnknownSet
from headwater.errors import HeadwaterError, SourceFault
from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.notify.websub import (
    NOT_UNDERSTOOD,
    TOO_LARGE,
    PostOutcome,
    outcome_of,
    pause_seconds,
    payload_head,
    ping,
)
from headwater.publish.document_names import CHANGE_CHANNEL, FRAMEWORK_CHANNEL, Channel
from headwater.publish.notifications import (
    FrameworkDocument,
    change_payload,
    document_changes,
    document_named,
    framework_documents,
    framework_payload,
)
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import published_names
from headwater.publish.site import capability_list_name, source_description_name, topic_url
from headwater.publish.store_writer import PublishContext, StoreWriter, decode_mark
from headwater.retry import retry_after_seconds
from headwater.source.hubs_and_tokens import NotifyConfig
from headwater.source.set_health import PAUSES, FailureState, Publication
from headwater.transport.access import check_authorities
from headwater.typed_decoding import from_json
from headwater.version import __version__


class HubPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A hub was told, or is being told, of a channel up to `until`.

    `payload` are the octets of the last notification, none before the first; it was taken if `is_taken`. Of changes of
    a history it was told up to `seq`, and the last notification tells of what follows the change `after`. Of
    `documents` it was told that they have these digests.
    """

    until: dt.datetime
    payload: bytes = b""
    is_taken: bool = True
    history: int = 0
    after: int = 0
    seq: int = 0
    documents: dict[str, str] = msgspec.field(default_factory=dict)

    def waiting(self, visible: Publication) -> int:
        """How many changes are visible that the hub has not taken."""
        if self.history != visible.history:
            return visible.last - visible.history_first + 1
        return visible.last - (self.seq if self.is_taken else self.after)


def chain_begin(position: HubPosition | None, visible: Publication) -> int | None:
    """After which change a chain begins for a hub at this position; None: the chain goes on.

    A hub that is new hears of what changes from now on. Where the history of a set had to begin anew, so does the
    chain, with that history: its `from` is later than the last `until`, which tells subscribers of the gap.
    """
    if position is None:
        return visible.last
    return visible.history_first - 1 if position.history != visible.history else None


def latest_payload(catalog: Catalog, name: str, channel: Channel, hubs: Iterable[str]) -> bytes:
    """The octets of the newest notification of a channel, as a hub gets it; none before the first (RS-NT-03).

    Raises the catalog's faults.
    """
    try:
        rows = catalog.rows(name, [(channel.capability, hub) for hub in hubs])
    except UnknownSet:
        return b""
    told = [one for row in rows.values() if (one := from_json(row.value, HubPosition)).payload]
    return max(told, key=lambda one: one.until).payload if told else b""


class NotifyContext(PublishContext, frozen=True, kw_only=True):
    """What notifications are made with. `may_write` raises when another process has the right to send.

    `is_shown` says whether the documents of a set can be had. Where the source `is_static`, no server answers at the
    topics: the newest notifications lie there as files, and sets of other runs are none that have gone.
    """

    is_shown: Callable[[str], bool]
    token: str | None
    settings: NotifyConfig
    is_static: bool = False


class NotificationStream:
    """What one hub is told on one channel of a set. `next_payload` and `taken` wait for the catalog."""

    channel: Channel

    def __init__(self, name: str, hub: str, context: NotifyContext) -> None:
        self.name = name
        self.position: HubPosition | None = None
        self._key = (self.channel.capability, hub)  # of the row of the position
        self._context = context
        self._is_read = False
        self.news = asyncio.Event()  # whether there may be something to send
        self.made_at = -math.inf  # when its last payload was made, by the clock of the event loop
        self.failures = 0  # how often in a row its payload was not taken, or could not be made
        self.rests = False  # whether it waits for news, or for its time

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0

    def pause(self, since_last: float) -> float:
        """For how many seconds the next payload still waits for more; the last was made `since_last` seconds ago.

        One that comes after a quiet time does not wait.
        """
        if self.position is None or not self.position.is_taken:
            return 0.0
        return max(0.0, self._interval - since_last)

    @property
    def _interval(self) -> float:
        """Seconds from one payload to the next."""
        raise NotImplementedError

    @property
    def _history(self) -> int:
        """Of what it tells now."""
        return 0

    def next_payload(self) -> bytes | None:
        """What is to be sent now; None: nothing. New octets are kept before they are returned."""
        if not self._is_read:
            row = self._context.catalog.rows(self.name, [self._key]).get(self._key)
            self._hold(None if row is None else from_json(row.value, HubPosition))
            self._is_read = True
        position = self.position
        if position is not None and not position.is_taken and position.history == self._history:
            return position.payload
        made = self._made(position)
        if made is None:
            return None
        self._write(made)
        return made.payload

    def taken(self) -> None:
        """Write down that the hub has taken the payload."""
        assert self.position is not None
        self._write(msgspec.structs.replace(self.position, is_taken=True))

    def _hold(self, position: HubPosition | None) -> None:
        """Keep in mind where the hub is; a payload that was taken is in its row alone: there are thousands of sets."""
        if position is not None and position.is_taken:
            position = msgspec.structs.replace(position, payload=b"")
        self.position = position

    def _made(self, position: HubPosition | None) -> HubPosition | None:
        """The position with the next payload; None: there is nothing to tell."""
        raise NotImplementedError

    def _write(self, position: HubPosition) -> None:
        self._context.may_write()
        update = StateUpdate([StateRow(*self._key, msgspec.json.encode(position))])
        self._context.catalog.record(self.name, [], self._context.clock(), state=update)
        if self._context.is_static and not (position.is_taken and position.payload):
            StoreWriter(self._context).blocks(f"{self.name}/{self.channel.name}", [position.payload])
        self._hold(position)


class ChangeStream(NotificationStream):
    """Those of one set; `visible` is what is published of it."""

    channel = CHANGE_CHANNEL

    def __init__(self, visible: Publication, hub: str, context: NotifyContext) -> None:
        super().__init__(visible.name, hub, context)
        self.visible = visible
        self._first_visible = visible  # a hub that is new hears of what comes after that, however soon it comes

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0 if self.position is None else self.position.waiting(self.visible)

    @property
    def _interval(self) -> float:
        settings = self._context.settings
        return settings.batch_seconds if 0 < self.waiting < settings.batch_count else 0.0

    @property
    def _history(self) -> int:
        return self.visible.history

    def _made(self, position: HubPosition | None) -> HubPosition | None:
        visible = self.visible
        is_new = position is None and self._first_visible.history == visible.history
        begin = chain_begin(position, self._first_visible if is_new else visible)
        if begin is not None:  # nothing is sent for it
            # A time that this change is not after, and all later ones are: where the interval of these begins.
            catalog = self._context.catalog
            times = [one.from_ for one in catalog.segments(self.name) if one.first == begin + 1]
            times += [one.at for one in catalog.changes(self.name, begin - 1, 1)] if begin > 0 else []
            self._write(HubPosition(history=visible.history, after=begin, seq=begin, until=max(times)))
            position = self.position
        assert position is not None
        if position.seq >= visible.last:
            return None
        payload = change_payload(
            self._context.site,
            self._context.catalog,
            self.name,
            position.until,
            after=position.seq,
            last=visible.last,
            most=self._context.settings.batch_count,
        )
        return HubPosition(
            history=visible.history,
            after=position.seq,
            seq=payload.last,
            until=payload.until,
            payload=payload.octets,
            is_taken=False,
        )


class FrameworkStream(NotificationStream):
    """Those of one set. One that `is_gone` is no longer a set of the source; that is told once."""

    channel = FRAMEWORK_CHANNEL

    def __init__(self, name: str, hub: str, context: NotifyContext, *, is_gone: bool = False) -> None:
        super().__init__(name, hub, context)
        self._is_gone = is_gone

    @property
    def _interval(self) -> float:
        """Lists that go on changing are told of now and then."""
        return self._context.settings.framework_seconds

    def _made(self, position: HubPosition | None) -> HubPosition | None:
        context, name = self._context, self.name
        if not self._is_gone and not context.is_shown(name):
            return None
        there: dict[FrameworkDocument, str] = {}
        if not self._is_gone:
            etags = {one: context.store.noted_etag(one.name) for one in framework_documents(name, self._names())}
            there = {one: etag for one, etag in etags.items() if etag is not None}
        told = {} if position is None else position.documents
        changes = document_changes(told, there, name)
        if not changes:
            return None
        payload = framework_payload(context.site, name, changes, self._changed_at)
        documents = {one.name: digest for one, digest in there.items()}
        return HubPosition(documents=documents, until=context.clock(), payload=payload, is_taken=False)

    def _names(self) -> Iterator[str]:
        """The documents that are published: what the catalog has noted after they and their indexes were written."""
        yield source_description_name(self._context.site, self.name)
        notes = self._context.catalog.state(self.name).notes
        yield from published_names(self.name, decode_publication(notes))

    def _changed_at(self, name: str) -> dt.datetime | None:
        """When a document was written, and never before a time that it states: storages' clocks are late or coarse."""
        store = self._context.store
        held, mark = store.stat(name), decode_mark(store.mark(name))
        if held is None:
            return None
        return held.modified if mark is None else max(held.modified, mark.latest)


# The hubs


class HubUnreachable(SourceFault):
    """A hub does not answer, or cannot take a notification at this moment."""

    code: ClassVar[str] = "HW-NTF-01"


class HubRefuses(SourceFault):
    """A hub does not take the notifications of a set."""

    code: ClassVar[str] = "HW-NTF-02"


STREAMS_AT_ONCE: Final = 8
REQUEST_SECONDS: Final = 10.0
_SAID_OCTETS: Final = 400  # of what a hub says to a refusal so much is told
_ANSWER_OCTETS: Final = 1 << 20
_BOUNDS: Final = AnswerBounds(seconds=REQUEST_SECONDS, max_octets=_ANSWER_OCTETS)


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
        self._tasks: dict[NotificationStream, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(STREAMS_AT_ONCE)
        self._probe = asyncio.Lock()
        self._takes_no_payloads = False  # it is told which topic has changed, and fetches what the topic shows then
        self._takes_payloads = False  # it has taken one, so that what it refuses is that payload
        self._failures = 0
        self._not_before = 0.0

    def note(self, visible: Publication) -> None:
        """This is visible of a set now."""
        name = visible.name
        changes = self._changes.setdefault(name, ChangeStream(visible, self._hub, self._context))
        changes.visible = visible
        self._has_news(changes)
        self._has_news(self._frameworks.setdefault(name, FrameworkStream(name, self._hub, self._context)))

    def wrote(self, name: str | None, documents: Sequence[str]) -> None:
        """These documents of a set, or (None) of the source were written."""
        streams = list(self._frameworks.values()) if name is None else [self._frameworks.get(name)]
        for one in streams:
            if one is not None and any(document_named(one.name, document) for document in documents):
                self._has_news(one)

    def gone(self, name: str) -> None:
        """This is no longer a set of the source."""
        stream = self._frameworks[name] = FrameworkStream(name, self._hub, self._context, is_gone=True)
        self._has_news(stream)

    def _has_news(self, stream: NotificationStream) -> None:
        stream.news.set()
        if stream not in self._tasks:
            self._tasks[stream] = asyncio.get_running_loop().create_task(self._follow(stream))

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken, as far as is known."""
        return sum(one.waiting for one in list(self._changes.values()))

    @property
    def is_busy(self) -> bool:
        """Whether there is something that the hub is to be told now."""
        return any(one.waiting or not one.rests for one in self._tasks)

    async def close(self) -> None:
        """End."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self, one: NotificationStream) -> None:
        """Send what there is to tell of a stream, and what comes meanwhile; whatever fails is tried again."""
        loop, is_more = asyncio.get_running_loop(), True
        try:
            while is_more or one.news.is_set():
                # Until there is enough for a notification, or the last one is long enough ago.
                while (left := one.pause(loop.time() - one.made_at)) > 0:
                    one.news.clear()
                    one.rests = True
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await one.news.wait()
                one.rests = False
                one.news.clear()
                try:
                    async with self._places:
                        is_more = await self._step(one)
                    one.failures, pause = 0, 0.0
                    if not any(other.failures for other in (*self._changes.values(), *self._frameworks.values())):
                        self.health.clear()
                except Exception as fault:  # noqa: BLE001 - whatever it was, it is tried again
                    text = f"the notifications of {one.name!r} to {self._hub} wait, and are sent again"
                    self.health.add(fault, self._context.listener, text)
                    one.failures += 1
                    is_more, pause = True, PAUSES.seconds(one.failures)
                    if isinstance(fault, HubRefuses):
                        pause = pause_seconds(PostOutcome.REFUSED, one.failures, random.random())
                    elif isinstance(fault, HubUnreachable):  # all streams wait for the hub
                        pause = 0.0
                if is_more:
                    await asyncio.sleep(pause)
        finally:  # without waiting, so that no news comes in between
            del self._tasks[one]

    async def _step(self, one: NotificationStream) -> bool:
        """Send the next payload of a stream; False: there is none. While the hub fails, one request at a time asks.

        Raises whatever is wrong.
        """
        loop = asyncio.get_running_loop()
        at = loop.time()
        payload = await asyncio.to_thread(one.next_payload)
        if payload is None:
            return False
        one.made_at = at
        async with self._probe if self._failures else contextlib.nullcontext():
            await asyncio.sleep(self._not_before - loop.time())
            await self._post(one, payload)
        await asyncio.to_thread(one.taken)
        return True

    async def _post(self, one: NotificationStream, payload: bytes) -> None:
        """Send a payload, or a ping in its place. Raises HubUnreachable, HubRefuses and NotLeader."""
        self._context.may_write()
        failures = self._failures
        site, token = self._context.site, self._context.token
        topic, capability_list = topic_url(site, one.name, one.channel), site.url(capability_list_name(one.name))
        head = payload_head(self._hub, topic, capability_list, token)
        ask = partial(self._client.request, "POST", self._hub, _BOUNDS)
        answer = None if self._takes_no_payloads else await ask(head, payload)
        status = answer.status if isinstance(answer, HttpAnswer) else 0
        self._takes_payloads |= 200 <= status < 300
        if answer is None or status == TOO_LARGE or (status in NOT_UNDERSTOOD and not self._takes_payloads):
            pinged = await ask(*ping(topic, token))
            is_pinged = isinstance(pinged, HttpAnswer) and pinged.ok
            self._takes_no_payloads = is_pinged and status != TOO_LARGE
            answer = pinged if answer is None or is_pinged else answer
        if isinstance(answer, HttpFailure):
            outcome, said, asked = PostOutcome.FAILED, answer.text, 0.0
        else:
            outcome = outcome_of(answer.status)
            now, fields = self._context.clock().timestamp(), answer.headers
            asked = retry_after_seconds(fields.get("retry-after"), fields.get("date"), now) or 0.0
            said = f"the hub answers {answer.status}: {answer.body[:_SAID_OCTETS].decode('utf-8', 'replace').strip()}"
        if outcome is PostOutcome.FAILED:
            self._failures = failures + 1  # requests that fail at one time are one failure
            pause = pause_seconds(outcome, self._failures, random.random(), asked)
            self._not_before = asyncio.get_running_loop().time() + pause
            raise HubUnreachable(said, where=self._hub)
        self._failures, self._not_before = 0, 0.0
        if outcome is PostOutcome.REFUSED:
            raise HubRefuses(said, where=self._hub)
        self.health.sent += 1
        self.health.sent_at = self._context.clock()


_DROP_SECONDS = 10.0
_SETTLED_SECONDS = 0.02


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
        self._has_begun: asyncio.Event
        self._senders: list[HubSender] = []
        self._thread: threading.Thread | None = None

    @property
    def health(self) -> list[HubHealth]:
        """How each hub is at this moment."""
        return [msgspec.structs.replace(one.health, waiting=one.waiting) for one in list(self._senders)]

    def visible(self, changes: Publication) -> None:
        """Take note of what is published of a set now. Never waits."""
        self._tell(lambda sender: sender.note(changes))

    def wrote(self, name: str | None, documents: Sequence[str]) -> None:
        """Take note that documents of a set, or (None) of the source, have been written. Never waits.

        What was written before the sending has begun is found when it begins.
        """
        self._tell(lambda sender: sender.wrote(name, documents))

    def _tell(self, tell: Callable[[HubSender], None]) -> None:
        with self._lock:
            if self._loop is not None:
                for sender in self._senders:
                    self._loop.call_soon_threadsafe(tell, sender)

    def start(self) -> None:
        """Begin to send; of what another process has sent meanwhile the catalog tells."""
        is_ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(is_ready)), name="headwater-notify", daemon=True
        )
        self._thread.start()
        is_ready.wait()

    def settle(self, timeout: float) -> None:
        """Wait until the hubs have taken what was visible, for so long at most. It has begun to send."""
        assert self._loop is not None
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._settled(), self._loop).result(timeout)

    async def _settled(self) -> None:
        await self._has_begun.wait()
        while any(one.is_busy for one in self._senders):
            await asyncio.sleep(_SETTLED_SECONDS)

    def stop(self, timeout: float) -> bool:
        """Ask to end, and wait so long for it; False when it has not ended by then."""
        with self._lock:
            if self._loop is not None and self._ending is not None:
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    async def _run(self, is_ready: threading.Event) -> None:
        agent = f"headwater/{__version__} (ResourceSync source)"
        # any address will do: the hubs are named by the configuration
        settings = self._context.settings
        client = HttpClient(
            lambda _address: None, authorities=settings.authorities, user_agent=agent, proxy_for=settings.proxy_for
        )
        ending, self._has_begun = asyncio.Event(), asyncio.Event()
        self._senders = [HubSender(hub, self._context, client) for hub in self._hubs]
        with self._lock:
            self._loop, self._ending = asyncio.get_running_loop(), ending
        is_ready.set()
        site = self._context.site
        with contextlib.suppress(HeadwaterError):  # else at the next start
            ours = {one.name for one in site.sets}
            others = [] if self._context.is_static else await asyncio.to_thread(self._context.catalog.sets)
            for state in others:  # others may share the catalog
                if state.name not in ours and decode_publication(state.notes).base_url == site.base_url:
                    for sender in self._senders:
                        sender.gone(state.name)
        self._has_begun.set()
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DROP_SECONDS):
                    await ending.wait()
            client.drop_idle(asyncio.get_running_loop().time())
        with self._lock:
            self._loop = None
        for sender in self._senders:
            await sender.close()
        client.close()
