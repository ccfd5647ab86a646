"""The service of `headwater sync --follow --push`: copies that are followed behind one listener."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headwater.copy_state import FOLDER
from headwater.errors import Exit, HeadwaterError, Interrupted
from headwater.http.callbacks import CallbackListener
from headwater.http.pushed_copy import PushedCopy
from headwater.http.server import AddressInUse, address_url, listen
from headwater.notify.subscriber_store import FILE, SubscriberStore
from headwater.spec import uris
from headwater.sync.connection import starting_uri
from headwater.sync.follow import PollInterval, catch_signals
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask

_LOOK_SECONDS: Final = 0.25
_SHORTEST_WAIT: Final = 0.01
_LONGEST_WAIT: Final = 60.0
_WORKERS: Final = 8
_OPEN_COPIES: Final = 16
"""Of more copies none is kept open between deliveries, nor is its file of subscriptions."""


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where callbacks are listened for, and what hubs are told that they begin with (None: the address itself).

    Without `listen` it is a free port of this machine alone, the same one as the last time where that is free.
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
    stop: threading.Event | None = None,
) -> int:
    """Keep copies current by notifications, and by polls, until SIGINT or SIGTERM (or `stop`); as `follow` does.

    `tell` gets the report of each run, and about once a second one of what was applied. Returns the exit status.
    Raises AddressInUse, UsageFault, and StoreFaults.
    """
    ended = stop or threading.Event()
    received: list[int] = []
    restore = catch_signals(ended, received)
    try:
        _Service(tasks, interval, tell, push, ended).run()
    except (Interrupted, KeyboardInterrupt):
        if not ended.is_set():
            raise
    finally:
        restore()
    return Exit.INTERRUPTED if signal.SIGINT in received else Exit.DONE


class _Service:
    """All copies, their threads and their listener."""

    def __init__(
        self,
        tasks: Sequence[SyncTask],
        interval: PollInterval,
        tell: Callable[[SyncReport], None],
        push: PushOptions,
        ended: threading.Event,
    ) -> None:
        self._tasks = [_absolute(task, ended) for task in tasks]
        self._interval = interval
        self._tell = tell
        self._push = push
        self._ended = ended
        self._telling = threading.Lock()
        self._woken = threading.Event()
        self._faults: list[BaseException] = []
        self._busy: set[int] = set()

    def run(self) -> None:
        """Until the end."""
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(self._listen())
            address = address_url(listening)
            callbacks = self._push.callback_url or f"{address}/"
            listener = CallbackListener(self._tasks, listening, callbacks, self._push.on_fault)
            copies: list[PushedCopy] = []
            stack.callback(_close, copies)
            stack.enter_context(listener)  # ends before the copies are closed
            copies += [self._copy(task, listener) for task in self._tasks]
            listener.all_added()
            self._push.on_listening(callbacks, address)
            self._follow(copies)

    def _copy(self, task: SyncTask, listener: CallbackListener) -> PushedCopy:
        stays_open = len(self._tasks) <= _OPEN_COPIES
        return PushedCopy(task, self._interval, self._told, listener, self._woken.set, stays_open=stays_open)

    def _told(self, report: SyncReport) -> None:
        with self._telling:
            self._tell(report)

    def _listen(self) -> socket.socket:
        """The socket of callbacks; where nothing is said about it, at the port of the last time if that is free."""
        if self._push.listen is not None:
            return listen(*self._push.listen)
        with contextlib.suppress(AddressInUse):
            return listen("127.0.0.1", _port_before(self._tasks[0]))
        return listen("127.0.0.1", 0)

    def _follow(self, copies: Sequence[PushedCopy]) -> None:
        """Do what is due: of one copy in this thread, of several in some others."""
        while not self._ended.is_set() and not self._faults:
            now = time.monotonic()
            due = {number: copy.due_at(now) for number, copy in enumerate(copies) if number not in self._busy}
            ready = [number for number, at in due.items() if at <= now]
            if len(copies) == 1 and ready:
                copies[0].step()
                continue
            for number in ready[: _WORKERS - len(self._busy)]:
                self._busy.add(number)
                threading.Thread(target=self._step, args=(copies[number], number), daemon=True).start()
            at = min((at for number, at in due.items() if number not in self._busy), default=now + _LONGEST_WAIT)
            self._wait(min(max(at, now + _SHORTEST_WAIT), now + _LONGEST_WAIT))
        self._end()

    def _wait(self, until: float) -> None:
        """Wait until something has come, or is due, or is to end; a signal is seen between two looks."""
        while not self._ended.is_set() and (left := until - time.monotonic()) > 0:
            if self._woken.wait(min(left, _LOOK_SECONDS)):
                self._woken.clear()
                return

    def _step(self, copy: PushedCopy, number: int) -> None:
        try:
            copy.step()
        except BaseException as fault:  # noqa: BLE001  raised where all are waited for
            self._faults.append(fault)
        finally:
            self._busy.discard(number)
            self._woken.set()

    def _end(self) -> None:
        """Wait for what is under way, which ends by itself soon."""
        self._ended.set() if self._faults else None
        until = time.monotonic() + _LOOK_SECONDS * 20
        while self._busy and time.monotonic() < until:
            self._woken.wait(_LOOK_SECONDS)
            self._woken.clear()
        real = [fault for fault in self._faults if not isinstance(fault, Interrupted)]
        if real:
            raise real[0]


def _absolute(task: SyncTask, ended: threading.Event) -> SyncTask:
    destination = Path(task.destination).absolute()
    return msgspec.structs.replace(task, url=starting_uri(task.url), destination=destination, stopped=ended.is_set)


def _close(copies: Sequence[PushedCopy]) -> None:
    for copy in copies:
        copy.close()


def _port_before(task: SyncTask) -> int:
    """The port of the callbacks that the last process has told the hubs of; 0: any."""
    folder = Path(task.destination) / FOLDER
    if not (folder / FILE).is_file():
        return 0
    with contextlib.closing(SubscriberStore(folder)) as store:
        held = store.subscriptions()
    ports = [uris.origin(one.callback).port for one in held if uris.origin(one.callback).host == "127.0.0.1"]
    return ports[-1] or 0 if ports else 0
