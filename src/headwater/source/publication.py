"""The event of a publication: which changes of which set have become visible, and those who are told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from headwater.publish.publisher import PublishResult


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Changes `first`..`last` of a set have become visible; `last` is less than `first` when none has.

    `is_first`: of this history of the set nothing was told before. The set is shown for the first time, or its history
    had to begin anew: what was told before is not continued. The set has `resources` now, and the history
    (`PublicationState.history`) begins with the change `history_first`.
    """

    name: str
    is_first: bool
    resources: int
    first: int
    last: int
    history: int = 0
    history_first: int = 1

    @property
    def changes(self) -> int:
        """How many changes have become visible."""
        return self.last - self.first + 1


def publication_of(result: PublishResult, told: Publication | None) -> Publication | None:
    """What has become visible since that was `told`; None when that is nothing."""
    if told is not None and (told.history, told.last) == (result.history, result.seq):
        return None
    goes_on = told is not None and told.history == result.history and told.last < result.seq
    return Publication(
        name=result.name,
        is_first=not goes_on,
        resources=result.resources,
        first=told.last + 1 if goes_on and told is not None else result.history_first,
        last=result.seq,
        history=result.history,
        history_first=result.history_first,
    )


class PublicationEvents:
    """Tells those who listen of each publication that has made changes visible. Safe for several threads.

    A listener is told at once, from the beginning of the process; it must not wait and raises nothing.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Publication], None]] = []
        self._told: dict[str, Publication] = {}
        self._lock = threading.Lock()

    def listen(self, listener: Callable[[Publication], None]) -> None:
        """Tell this one of what becomes visible from now on."""
        self._listeners.append(listener)

    def begin(self) -> None:
        """Another process may have published since: what is published next is told as if for the first time."""
        with self._lock:
            self._told.clear()

    def published(self, result: PublishResult) -> None:
        """A set was published."""
        with self._lock:  # in the order of the publications
            event = publication_of(result, self._told.get(result.name))
            if event is not None:
                self._told[result.name] = event
                for listener in self._listeners:
                    listener(event)
