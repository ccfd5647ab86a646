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


Listener = Callable[[Progress | Notice], None]


def silent(_event: Progress | Notice) -> None:
    """The listener of a caller that does not listen."""
