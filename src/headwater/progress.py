"""Progress as typed events: rooms below the command line report through a listener and never print."""

from collections.abc import Callable

import msgspec

PHASES = {
    "sets": "copying, exploring: sets done",
    "reading sets": "copying: Capability Lists read of the source",
    "listing": "copying, proving: entries of a Resource List read",
    "reading changes": "copying, proving: Change Lists read",
    "waiting for the source's clock": "copying, proving: readings of a Change List that may not tell all yet",
    "transferring": "copying: resources done, of those planned, with their bytes",
    "deleting": "copying: files deleted",
    "hashing": "proving, repairing: files hashed",
    "look": "publishing: files looked at",
    "read": "publishing: files read, with their bytes",
    "pages": "publishing: documents of the Resource List written",
    "packing": "publishing: resources or changes packed, of one package or page",
    "documents": "ingesting: documents of an index read",
    "records": "harvesting: records of a repository read",
    "lines": "ingesting: lines of a file sent",
}
"""What `phase` of `Progress` may be, and what is counted in it. New ones may come."""


class Progress(msgspec.Struct, frozen=True):
    """How far one phase of a long job is: `done` of `total` units (None: unknown), and bytes of content."""

    phase: str
    done: int
    total: int | None = None
    octets: int = 0


class Notice(msgspec.Struct, frozen=True):
    """Something to know that does not stop the work; `rule` is a rule id or an error code."""

    rule: str
    message: str
    where: str | None = None
    set_name: str | None = None
    """The set, where a source has several."""


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
