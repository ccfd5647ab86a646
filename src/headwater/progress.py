"""Progress as typed events: rooms below the command line report through a listener and never print."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """How far one phase of a long job has got: `done` of `total` units (`total` None: not known yet)."""

    phase: str
    done: int
    total: int | None = None
    octets: int = 0


class Notice(msgspec.Struct, frozen=True):
    """Something a person should know that does not stop the work: `rule` is a rule id or an error code."""

    rule: str
    message: str
    where: str | None = None
    set_name: str | None = None
    """The set of resources that it is about, where a source has several."""


class Done(msgspec.Struct, frozen=True):
    """One resource that a run has dealt with: `action` is created, adopted, updated, deleted or failed.

    `path` is relative to the copy, `octets` what was transferred, `reason` why it failed.
    """

    action: str
    uri: str
    path: str
    octets: int = 0
    reason: str = ""


def ignored(_done: Done) -> None:
    """What hears of each resource for a caller that does not want to."""


Listener = Callable[[Progress | Notice], None]


def of_set(listener: Listener, name: str) -> Listener:
    """A listener that passes everything on, notices as being about this set."""

    def hear(event: Progress | Notice) -> None:
        if isinstance(event, Notice) and event.set_name is None:
            event = msgspec.structs.replace(event, set_name=name)
        listener(event)

    return hear


def notices_of(listener: Listener) -> Listener:
    """A listener that passes notices on and keeps progress to itself: of many jobs at once it says nothing."""

    def hear(event: Progress | Notice) -> None:
        if isinstance(event, Notice):
            listener(event)

    return hear


def silent(_event: Progress | Notice) -> None:
    """The listener of a caller that does not listen."""
