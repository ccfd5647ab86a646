"""Progress as typed events: rooms below the command line report through a listener and never print."""

from collections.abc import Callable

import msgspec

PHASES = {
    "sets": "copying, exploring: sets dealt with",
    "reading sets": "copying: Capability Lists read, of those that the source names",
    "listing": "copying, proving: entries of a Resource List read",
    "reading changes": "copying, proving: Change Lists read",
    "transferring": "copying: resources dealt with, of those planned, with the octets of their content",
    "deleting": "copying: files deleted",
    "hashing": "proving, repairing: files hashed",
    "look": "publishing: files looked at",
    "read": "publishing: files read, with their octets",
    "pages": "publishing: documents of the Resource List written",
    "packing": "publishing: resources or changes packed, of those of one dump package or page",
    "documents": "ingesting: documents of an index read",
    "lines": "ingesting: lines of a file sent",
}
"""What `phase` of `Progress` may be, and what is counted in it. New ones may come."""


class Progress(msgspec.Struct, frozen=True):
    """How far one phase of a long job has got: `done` of `total` units (`total` None: not known yet).

    docs/library.md lists the values of `phase`; `octets` is of content, where that is counted.
    """

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
