"""`headwater sync --follow --push`: copies behind one listener, polled more seldom while hubs deliver changes."""

import contextlib
import datetime as dt
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from headwater.copy_state import FOLDER, STATE, NotificationChannel, lock_as_follower, without_lock
from headwater.errors import HeadwaterError, Interrupted, SourceFault
from headwater.http.callbacks import CallbackListener
from headwater.http.server import AddressInUse, address_url, listen
from headwater.notify.subscriber import SubscribedCopy
from headwater.notify.subscriber_store import MODE, ChannelProgress, QueuedDelivery, SubscriberStore
from headwater.notify.websub import monotonic_unix_time
from headwater.progress import Notice
from headwater.retry import Backoff
from headwater.spec.kinds import Kind
from headwater.sync.connection import starting_uri
from headwater.sync.copy.file_tree import DestinationLocked
from headwater.sync.push import (
    FollowedSet,
    LiveCopy,
    ReadPayload,
    UnusablePayload,
    changed_documents,
    followed_sets,
    read_payload,
)
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask, is_busy, poll
from headwater.sync.sets.polling import PollHistory, PollingHints, PollInterval, next_wait, slow_interval
from headwater.sync.source_times import micros

# one copy: what is delivered is a hint of what the lists say. It is applied at once, and whatever is odd about it (a
# gap, a payload that cannot be read, a resource that cannot be had) leads to a poll.

_FIRST_EARLY: Final = 0.4


class PollSchedule(msgspec.Struct, kw_only=True):
    """What is known of the polls of one copy."""

    interval: PollInterval
    polled_at: float | None = None  # when the last poll ended
    chance: float = 0.0
    history: PollHistory = msgspec.field(default_factory=PollHistory)
    hints: PollingHints = msgspec.field(default_factory=PollingHints)
    early_at: float | None = None
    early_count: int = 0  # how many polls in a row were early ones

    def ask(self, now: float, delay: float = 0.0) -> None:
        """Poll early; one early poll after another comes more and more slowly, up to the usual interval."""
        least = 0.0
        if self.polled_at is not None and self.early_count:
            least = self.polled_at + Backoff(_FIRST_EARLY, self.interval.seconds).seconds(self.early_count)
        at = max(now + delay, least)
        self.early_at = at if self.early_at is None else min(self.early_at, at)

    def due_at(self, *, is_pushed: bool) -> float:
        """When the next poll is due; `is_pushed`: push is at work for all sets."""
        if self.polled_at is None:
            return 0.0
        interval = slow_interval(self.interval) if is_pushed else self.interval
        quiet = 0 if is_pushed else self.history.quiet
        wait = next_wait(interval, quiet, self.hints, failures=self.history.failures, chance=self.chance)
        usual = self.polled_at + wait
        return usual if self.early_at is None else min(usual, self.early_at)

    def polled(self, now: float, *, chance: float) -> None:
        """A poll has ended."""
        self.early_count = self.early_count + 1 if self.early_at is not None and self.early_at <= now else 0
        self.early_at = None
        self.polled_at, self.chance = now, chance


_LOCKED_SECONDS: Final = 0.5
_REPORT_SECONDS: Final = 1.0
_EARLY_SECONDS: Final = 0.4
"""How long after something odd the source is polled: its lists may be written a moment after it has told of them."""


class PushedCopy:
    """One copy. `step` does what is due, in one thread at a time; `news` may be called from any."""

    def __init__(
        self,
        task: SyncTask,
        interval: PollInterval,
        tell: Callable[[SyncReport], None],
        subscriptions: CallbackListener,
        wake: Callable[[], None],
        *,
        stays_open: bool = True,
    ) -> None:
        """`stays_open`: the copy is kept open between deliveries, so that the first of them is applied as fast."""
        self._task = task
        self._tell = tell
        self._wake = wake
        self._subscriptions = subscriptions
        self._stays_open = stays_open
        self._subscribed: SubscribedCopy | None = None
        self._live = LiveCopy(task)
        self._schedule = PollSchedule(interval=interval)
        self._news = threading.Event()
        self._news.set()  # what was queued before a restart
        self._channels: dict[str, NotificationChannel] = {}
        self._without_channel: set[str] = set()
        self._changed: set[str] = set()
        """Documents that Framework Notifications have named since the last poll; at the start, the Capability Lists
        that named no channel: by now they may, without a word in the Source Description."""

        self._told_at = 0.0
        self._report_at: float | None = None
        self._locked_until = 0.0
        self._was_pushed: bool | None = None
        self._lock: int | None = None
        folder = Path(task.destination) / FOLDER
        if (folder / STATE).is_file():
            self._take_up(folder)
            followed = self._follow_sets(None)
            self._changed |= {one.identity for one in followed if one.changes is None}

    def _take_up(self, folder: Path) -> SubscribedCopy:
        """Open what is remembered of subscriptions; only beside the state of a copy, which a first run makes."""
        if self._stays_open:
            self._lock = lock_as_follower(folder)
        else:
            without_lock(folder)
        store = SubscriberStore(folder, stays_open=self._stays_open)
        self._subscribed = SubscribedCopy(store, self.news, self._notice)
        self._subscriptions.subscriber.add(self._subscribed)
        return self._subscribed

    def news(self) -> None:
        """Something was queued, or a subscription has changed."""
        self._news.set()
        self._wake()

    def close(self) -> None:
        """End what is open; after the subscriptions have ended."""
        self._live.close()
        if self._subscribed is not None:
            self._subscribed.store.close()
        if self._lock is not None:
            os.close(self._lock)

    def due_at(self, now: float) -> float:
        """When something is to be done, by the monotonic clock; in the past: now."""
        if self._locked_until > now:
            return self._locked_until
        if self._news.is_set():
            return now
        due = self._schedule.due_at(is_pushed=self._is_pushed())
        return due if self._report_at is None else min(due, self._report_at)

    def step(self) -> None:
        """Do what is due. Raises StoreFault, UsageFault and Interrupted, as a run does."""
        try:
            if self._schedule.polled_at is None:
                self._poll()
            if self._news.is_set():
                self._news.clear()
                if self._subscribed is not None and self._subscribed.needs_poll:
                    self._subscribed.needs_poll = False
                    self._schedule.ask(time.monotonic(), _EARLY_SECONDS)
                self._apply_all()
            if self._report_at is not None and self._report_at <= time.monotonic():
                self._report()
            self._tell_mode()
            if self._schedule.due_at(is_pushed=self._is_pushed()) <= time.monotonic():
                self._poll()
                self._tell_mode()
        except DestinationLocked as fault:
            self._locked_until = time.monotonic() + _LOCKED_SECONDS
            self._news.set()
            self._notice(f"{fault.what}; it is tried again", fault.where or "")

    # -- what was delivered -------------------------------------------------------------------------------------------

    def _apply_all(self) -> None:
        if self._subscribed is None:
            return
        applied, store = False, self._subscribed.store
        try:
            until = time.monotonic() + _REPORT_SECONDS
            while not (self._task.stopped and self._task.stopped()) and (batch := store.next_deliveries()):
                applied = True
                self._apply(store, batch)
                if time.monotonic() > until:
                    self._news.set()  # and go on after whatever else is due
                    break
        finally:
            self._live.rest()
        if applied and self._report_at is None:
            self._report_at = max(time.monotonic(), self._told_at + _REPORT_SECONDS)

    def _apply(self, store: SubscriberStore, batch: Sequence[QueuedDelivery]) -> None:
        """Apply deliveries of one channel, and take them out of the queue with the progress they bring."""
        channel = batch[0].channel
        progress = store.progress(channel)
        wanted = self._channels.get(channel)
        if wanted is None:
            self._schedule.ask(time.monotonic())  # it is not offered any more
        elif wanted.kind is Kind.FRAMEWORK_NOTIFICATION:
            named = frozenset[str]().union(*map(changed_documents, self._readable(batch, wanted)))
            if named:
                self._schedule.ask(time.monotonic())
            self._changed |= named
        else:
            progress = self._applied(batch, wanted, progress)
        store.applied([one.seq for one in batch], channel, progress)

    def _readable(self, batch: Sequence[QueuedDelivery], channel: NotificationChannel) -> list[ReadPayload]:
        """The payloads that are what they should be; of others it is told, and a poll finds out what they meant."""
        found: list[ReadPayload] = []
        for one in batch:
            came_at = dt.datetime.fromtimestamp(one.came_at, dt.UTC)
            try:
                found.append(read_payload(one.body, channel.topic, channel.kind, came_at, channel.identity))
            except UnusablePayload as fault:
                self._notice(f"{fault.what}; {fault.todo}", channel.topic, fault.rule or fault.code)
                self._schedule.ask(time.monotonic(), _EARLY_SECONDS)
        return found

    def _applied(
        self, batch: Sequence[QueuedDelivery], channel: NotificationChannel, progress: ChannelProgress
    ) -> ChannelProgress:
        """Apply what goes on where the changes that were told end; of the rest the lists have to tell (RS-CN-06)."""
        payloads = self._readable(batch, channel)
        after = progress if len(payloads) == len(batch) else progress.awaiting()
        joining: list[ReadPayload] = []
        for one in sorted(payloads, key=lambda one: one.from_ or 0):
            if not after.joins(one.from_, one.until):
                after = after.awaiting(one.changed_at)
            elif not progress.is_past(one.from_, one.until):
                joining.append(one)
                after = after.raised(one.until)
        failed = 0
        try:
            if joining:
                failed = self._live.apply(channel.identity, channel.topic, joining, progress.reached)
        except (SourceFault, KeyError) as fault:  # KeyError: it has no position yet, is moving, or links choose
            if isinstance(fault, SourceFault):
                self._notice(f"a payload cannot be applied: {fault.what}", channel.topic, fault.rule or fault.code)
            after = progress.awaiting(max(one.changed_at for one in payloads))
        if after.needs_poll or failed:
            self._schedule.ask(time.monotonic(), _EARLY_SECONDS)
        return after

    def _report(self) -> None:
        """Tell what was done since this was told last: about once a second while something is."""
        self._report_at, self._told_at = None, time.monotonic()
        report = self._live.take_report()
        if not self._stays_open:
            self._live.close()
        if report is not None and (is_busy(report) or report.exit_status):
            self._tell(report)

    # -- polls --------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """One run, as without push; then positions and channels are those of the sets that are offered by now."""
        self._report()
        self._live.close()
        hints, named = PollingHints(), frozenset(self._changed)
        task = msgspec.structs.replace(self._task, hints=hints, changed_documents=named)
        report = poll(task, self._schedule.history)
        self._schedule.hints = hints
        self._schedule.polled(time.monotonic(), chance=random.random())
        self._news.set()  # what was delivered meanwhile
        if report is None:
            return
        self._changed -= named
        self._tell(report)
        subscribed = self._subscribed or self._take_up(Path(self._task.destination) / FOLDER)
        reports = {one.name: one for one in report.sets}
        kept: dict[str, ChannelProgress] = {}
        for one in self._follow_sets(reports):
            if one.retry_at is not None:
                left = one.retry_at - (micros(self._task.now()) or 0)
                self._schedule.ask(time.monotonic(), max(0.0, left / 1_000_000))
            if one.changes is None:
                continue
            is_complete, before = reports[one.name].complete, subscribed.store.progress(one.changes)
            move = before.polled if is_complete else before.raised
            progress = kept[one.changes] = move(one.position.time)
            if progress.needs_poll:
                wait = self._schedule.interval.seconds if is_complete else _EARLY_SECONDS
                self._schedule.ask(time.monotonic(), wait)
        subscribed.store.keep_progress(kept)
        if self._subscriptions.is_alive:
            self._subscriptions.subscriber.want(subscribed, self._channels.values())
        if self._stays_open and any(map(self._has_subscription, self._channels)):
            self._live.open()

    def _follow_sets(self, names: Collection[str] | None) -> list[FollowedSet]:
        """Take over the channels that are remembered of these sets (None: of all that are wanted)."""
        followed = followed_sets(self._task, names)
        self._without_channel = {one.name for one in followed if one.changes is None}
        self._channels = {channel.topic: channel for one in followed for channel in one.channels}
        return followed

    # -- how it stands ------------------------------------------------------------------------------------------------

    def _is_pushed(self) -> bool:
        """Whether push is at work for every set, so that polls are a back-up alone."""
        topics = [topic for topic, one in self._channels.items() if one.kind is Kind.CHANGE_NOTIFICATION]
        if not topics or self._without_channel or not self._subscriptions.is_alive:
            return False
        return all(map(self._has_subscription, topics))

    def _has_subscription(self, topic: str) -> bool:
        return self._subscribed is not None and self._subscribed.is_pushed(topic, monotonic_unix_time())

    def _tell_mode(self) -> None:
        is_pushed = self._is_pushed()
        if is_pushed is self._was_pushed or self._schedule.polled_at is None:
            return
        seconds = self._schedule.interval.seconds
        if is_pushed:
            self._notice("push is at work: changes come by notifications", self._task.url, "HW-PSH-01")
        elif self._was_pushed:
            self._notice(f"push is not at work: the source is polled every {seconds:g} s", self._task.url, "HW-PSH-01")
        elif self._without_channel:
            names = ", ".join(sorted(self._without_channel)[:5])
            what = f"the source offers no notifications for {names}: Headwater polls it every {seconds:g} s"
            self._notice(what, self._task.url, "RS-CH-05")
        self._was_pushed = is_pushed
        if self._subscribed is not None:
            self._subscribed.store.keep_fact(MODE, "push" if is_pushed else "poll")

    def _notice(self, what: str, where: str, rule: str = "HW-PSH-02") -> None:
        self._task.listener(Notice(rule, what, where or None))


# all copies

_SIGNAL_SECONDS: Final = 0.25
_SHORTEST_WAIT: Final = 0.01
_LONGEST_WAIT: Final = 60.0
_WORKERS: Final = 8
_END_SECONDS: Final = 5.0
_OPEN_COPIES: Final = 16  # of more copies none is kept open between deliveries, nor is its file of subscriptions


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where callbacks are listened for, and what hubs are told that they begin with (None: the address itself).

    Without `listen` it is a port of this machine alone, the same one after each start where that is free.
    """

    listen: tuple[str, int] | None = None
    callback_url: str | None = None
    on_listening: Callable[[str, str], None] = lambda _callbacks, _address: None
    """Hears what callbacks begin with, and the address that is listened on."""

    on_fault: Callable[[HeadwaterError], None] = lambda _fault: None
    """Hears of bugs that requests of hubs have met, in another thread."""


def follow_push(
    tasks: Sequence[SyncTask],
    interval: PollInterval,
    tell: Callable[[SyncReport], None],
    push: PushOptions,
    *,
    stop: threading.Event,
) -> None:
    """Keep copies current by notifications, and by polls, until `stop` is set; as `follow` does.

    `tell` gets the report of each run, and about once a second one of what was applied. Raises AddressInUse,
    UsageFault, and StoreFaults.
    """
    tasks = [
        msgspec.structs.replace(
            task, url=starting_uri(task.url), destination=Path(task.destination).absolute(), stopped=stop.is_set
        )
        for task in tasks
    ]
    telling, woken = threading.Lock(), threading.Event()

    def told(report: SyncReport) -> None:
        with telling:
            tell(report)

    busy: set[PushedCopy] = set()

    def close(copy: PushedCopy) -> None:
        if copy not in busy:  # else it ends as by a kill
            copy.close()

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(push, tasks[0]))
        address = address_url(listening)
        callbacks = push.callback_url or f"{address}/"
        listener = CallbackListener(tasks, [listening], callbacks, push.on_fault)
        copies_end = stack.enter_context(contextlib.ExitStack())
        stack.enter_context(listener)  # ends before the copies are closed
        copies: list[PushedCopy] = []
        for task in tasks:
            stays_open = len(tasks) <= _OPEN_COPIES
            copies.append(PushedCopy(task, interval, told, listener, woken.set, stays_open=stays_open))
            copies_end.callback(close, copies[-1])
        listener.subscriber.all_added()
        push.on_listening(callbacks, address)
        _follow(copies, busy, stop, woken)


_FIRST_PORT: Final = 20_000
_PORTS: Final = 12_000  # below those from which the system takes ports for connections


def _listen(push: PushOptions, task: SyncTask) -> socket.socket:
    """The socket of callbacks; where nothing is said about it, at a port that a copy has after each start, if free."""
    if push.listen is not None:
        return listen(*push.listen)
    with contextlib.suppress(AddressInUse):
        return listen("127.0.0.1", _FIRST_PORT + crc32(os.fsencode(task.destination)) % _PORTS)
    return listen("127.0.0.1", 0)


def _follow(copies: Sequence[PushedCopy], busy: set[PushedCopy], stop: threading.Event, woken: threading.Event) -> None:
    """Do what is due, of each copy in one thread at a time. Raises what a copy raises, once the others have ended.

    `busy` has the copies that are at work. One that is blocked keeps no process from ending.
    """
    faults: list[BaseException] = []

    def step(copy: PushedCopy) -> None:
        try:
            copy.step()
        except BaseException as fault:  # noqa: BLE001  raised below
            faults.append(fault)
        finally:
            busy.discard(copy)
            woken.set()

    try:
        while not stop.is_set():
            woken.clear()
            now = time.monotonic()
            due = {copy: copy.due_at(now) for copy in copies if copy not in busy}
            if faults:
                break
            for copy in [copy for copy, at in due.items() if at <= now][: _WORKERS - len(busy)]:
                busy.add(copy)
                threading.Thread(target=step, args=(copy,), name="copy", daemon=True).start()
            at = min((at for copy, at in due.items() if at > now), default=now + _LONGEST_WAIT)
            until = min(max(at, now + _SHORTEST_WAIT), now + _LONGEST_WAIT)
            while not stop.is_set() and (left := until - time.monotonic()) > 0:  # a signal is seen between two looks
                if woken.wait(min(left, _SIGNAL_SECONDS)):
                    break
    finally:
        stop.set()
        until = time.monotonic() + _END_SECONDS
        while busy and time.monotonic() < until:
            time.sleep(_SHORTEST_WAIT)
    for fault in faults:
        if not isinstance(fault, Interrupted):
            raise fault
