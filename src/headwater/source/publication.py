"""The event of a publication: which changes of which set have become visible, and those who are told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

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


class VisibleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What is published of a set: the changes `first`..`last` of a history (`PublicationState.history`)."""

    name: str
    history: int
    first: int
    last: int
    resources: int

    def after(self, told: VisibleChanges | None) -> Publication | None:
        """What a listener has to be told who was `told` of that last; None when that is nothing."""
        if told is not None and (told.history, told.last) == (self.history, self.last):
            return None
        goes_on = told is not None and told.history == self.history and told.last < self.last
        return Publication(
            name=self.name,
            is_first=not goes_on,
            resources=self.resources,
            first=told.last + 1 if goes_on and told is not None else self.first,
            last=self.last,
        )


class PublicationEvents:
    """Tells those who listen of each publication that has made changes visible. Safe for several threads.

    A listener is told at once, from the beginning of the process; it must not wait and raises nothing.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Publication], None]] = []
        self._observers: list[Callable[[VisibleChanges], None]] = []
        self._told: dict[str, VisibleChanges] = {}
        self._lock = threading.Lock()

    def listen(self, listener: Callable[[Publication], None]) -> None:
        """Tell this one of what becomes visible from now on."""
        self._listeners.append(listener)

    def observe(self, observer: Callable[[VisibleChanges], None]) -> None:
        """Tell this one after each publication what is visible then; it keeps its own positions."""
        self._observers.append(observer)

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
            for observer in self._observers:
                observer(changes)
            event = changes.after(self._told.get(result.name))
            if event is not None:
                self._told[result.name] = changes
                for listener in self._listeners:
                    listener(event)
