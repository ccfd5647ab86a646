"""The event of a publication: which changes of which set have become visible, and those who are told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from headwater.publish.publisher import PublishResult


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Changes `first`..`last` of a set have become visible; `last` is less than `first` when none has.

    `is_first`: of this history of the set the listener was told nothing before. The set is shown for the first time, or
    its history had to begin anew: what was told before is not continued. The set has `resources` now.
    """

    name: str
    is_first: bool
    resources: int
    first: int
    last: int

    @property
    def changes(self) -> int:
        """How many changes have become visible."""
        return self.last - self.first + 1


class ListenerPosition(msgspec.Struct, frozen=True):
    """How far a listener was told of a set: up to the change `seq` of a history."""

    history: int
    seq: int


class VisibleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is published of a set: the changes `first`..`last` of a history (`PublicationState.history`)."""

    name: str
    history: int
    first: int
    last: int
    resources: int

    @property
    def position(self) -> ListenerPosition:
        """Of a listener that was told all of it."""
        return ListenerPosition(self.history, self.last)

    def after(self, position: ListenerPosition | None) -> Publication | None:
        """What a listener at this position has to be told; None when that is nothing."""
        if position == self.position:
            return None
        goes_on = position is not None and position.history == self.history and position.seq < self.last
        return Publication(
            name=self.name,
            is_first=not goes_on,
            resources=self.resources,
            first=position.seq + 1 if goes_on and position is not None else self.first,
            last=self.last,
        )


PublicationListener = Callable[[Publication], None]


class LaterListener(Protocol):
    """A listener that takes note of what is visible, and is told of it by another thread."""

    def visible(self, changes: VisibleChanges) -> None:
        """Take note of what is published of a set now. Never waits."""
        ...


class PublicationEvents:
    """Tells those who listen of each publication that has made changes visible. Safe for several threads.

    A listener of this process is told at once, from the beginning of the process; it must not wait and raises nothing.
    """

    def __init__(self) -> None:
        self._listeners: list[PublicationListener] = []
        self._later: list[LaterListener] = []
        self._told: dict[str, ListenerPosition] = {}
        self._lock = threading.Lock()

    def listen(self, listener: PublicationListener) -> None:
        """Tell this one of what is published from now on."""
        self._listeners.append(listener)

    def listen_later(self, listener: LaterListener) -> None:
        """Tell this one, too; it keeps its own positions."""
        self._later.append(listener)

    def published(self, result: PublishResult) -> None:
        """A set was published."""
        changes = VisibleChanges(
            name=result.name,
            history=result.history,
            first=result.history_first,
            last=result.seq,
            resources=result.resources,
        )
        with self._lock:  # in the order of the publications
            for later in self._later:
                later.visible(changes)
            event = changes.after(self._told.get(result.name))
            if event is None:
                return
            self._told[result.name] = changes.position
            for listener in self._listeners:
                listener(event)
