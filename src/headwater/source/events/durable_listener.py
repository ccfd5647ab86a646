"""Durable listeners: told of publications at least once, also of those before a crash, and never in the way of one.

How far such a listener was told of a set, its position, is a row of the set in the catalog. What lies between that and
what is published is told to it in order, each set on its own: a set of which telling fails is tried again after a pause
that grows, and holds up no other. Publications that come meanwhile are told together, as one event. A position is
written some time after the event was dealt with, so that many small ones are not as many writes: after a crash the last
are told again.
"""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import StateRow, StateUpdate
from headwater.progress import Listener, silent
from headwater.source.events.publication import ListenerPosition, PublicationListener, VisibleChanges
from headwater.source.set_health import FailureState, RetryPauses
from headwater.typed_decoding import from_json

POSITION_KIND: Final = "listener position"
"""The kind of the rows; their keys are the names of the listeners."""
POSITION_SECONDS: Final = 1.0
"""Between writes of the position in one set."""


class ListenerHealth(FailureState, kw_only=True):
    """How a durable listener is: the sets of which it has not been told everything, and what went wrong last."""

    name: str
    behind: int = 0


class _Told(msgspec.Struct):
    """One set: what is visible, up to where it was told, up to where that is written, and when to go on."""

    visible: VisibleChanges
    position: ListenerPosition | None = None
    is_read: bool = False
    written: ListenerPosition | None = None
    due_at: float = 0.0
    write_at: float = 0.0

    def next_at(self) -> float:
        """When there is something to do."""
        if self.position != self.visible.position:
            return self.due_at
        return max(self.due_at, self.write_at) if self.position != self.written else math.inf


class DurableListener:
    """A listener with a name, which is kept with its positions. It may be slow, and raise what it likes.

    A task of the scheduler, and safe for several threads. `wake` is called when it has become due.
    """

    def __init__(
        self,
        name: str,
        hear: PublicationListener,
        catalog: Catalog,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
    ) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._hear = hear
        self._catalog = catalog
        self._clock = clock
        self._listener = listener
        self._health = ListenerHealth(name=name)
        self._sets: dict[str, _Told] = {}
        self._unsettled: dict[str, _Told] = {}
        """Those of them in which something is to be done."""
        self._pauses = RetryPauses()
        self._lock = threading.Lock()

    @property
    def health(self) -> ListenerHealth:
        """How it is at this moment."""
        with self._lock:
            behind = sum(one.position != one.visible.position for one in self._unsettled.values())
        return msgspec.structs.replace(self._health, behind=behind)

    def visible(self, changes: VisibleChanges) -> None:
        """Take note of what is published of a set now. Never waits."""
        with self._lock:
            told = self._sets.get(changes.name)
            if told is not None and told.visible == changes:
                return
            if told is None:
                told = self._sets[changes.name] = _Told(changes)
            told.visible = changes
            self._unsettled[changes.name] = told
        self.wake()

    def forget(self) -> None:
        """Read the positions anew: another process may have gone on since."""
        with self._lock:
            self._sets.clear()
            self._unsettled.clear()

    def due_at(self) -> float:
        """When a set is to be told, or a position to be written."""
        with self._lock:
            return min((one.next_at() for one in self._unsettled.values()), default=math.inf)

    def is_long(self) -> bool:
        """Nobody knows."""
        return True

    def run(self) -> None:
        """Tell of each set that is due, once; a failure is shown by `health`."""
        now = time.monotonic()
        with self._lock:
            due = [one for one in self._unsettled.values() if one.next_at() <= now]
        for told in due:
            name = told.visible.name
            try:
                self._go_on(told)
            except Exception as fault:  # noqa: BLE001 - whatever a listener raises, it is tried again
                self._health.add(fault, self._listener, f"listener {self._health.name!r} on set {name!r}")
                told.due_at = time.monotonic() + self._pauses.failed(name)
            else:
                self._pauses.worked(name)
                if not self._pauses:
                    self._health.clear()
            with self._lock:
                if told.next_at() == math.inf:
                    self._unsettled.pop(name, None)

    def settle(self) -> None:
        """Write down the positions that are not written yet. Raises the catalog's faults."""
        with self._lock:
            unwritten = [one for one in self._unsettled.values() if one.position != one.written]
        for told in unwritten:
            self._write(told)

    def _go_on(self, told: _Told) -> None:
        visible = told.visible
        if not told.is_read:
            told.position = told.written = self._read(visible.name)
            told.is_read = True
        event = visible.after(told.position)
        if event is not None:
            self._hear(event)
            told.position = visible.position
        if told.position != told.written and time.monotonic() >= told.write_at:
            self._write(told)

    def _read(self, name: str) -> ListenerPosition | None:
        key = (POSITION_KIND, self._health.name)
        row = self._catalog.rows(name, [key]).get(key)
        return None if row is None else from_json(row.value, ListenerPosition)

    def _write(self, told: _Told) -> None:
        position = told.position
        row = StateRow(POSITION_KIND, self._health.name, msgspec.json.encode(position))
        self._catalog.record(told.visible.name, [], self._clock(), state=StateUpdate([row]))
        told.written, told.write_at = position, time.monotonic() + POSITION_SECONDS
