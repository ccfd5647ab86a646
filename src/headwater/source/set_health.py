"""The health of one set, and how a failure becomes part of it: shown until it is over, told when it is new."""

from __future__ import annotations

import datetime as dt

import msgspec

from headwater.errors import HeadwaterError
from headwater.progress import Listener, Notice


class FailureState(msgspec.Struct, kw_only=True):
    """What fails at present: how often in a row, and what went wrong last."""

    failures: int = 0
    error: str | None = None
    error_code: str | None = None

    def add(self, fault: Exception, listener: Listener, message: str) -> None:
        """Count a failure; `message` and what went wrong are told unless it is what went wrong before."""
        text = f"{type(fault).__name__}: {fault}"
        code = HeadwaterError.code
        if isinstance(fault, HeadwaterError):  # its code is told beside it
            text = fault.what + (f" ({fault.where})" if fault.where else "")
            code = fault.code
        if text != self.error:
            listener(Notice(code, f"{message}: {text}"))
        self.failures += 1
        self.error, self.error_code = text, code

    def clear(self) -> None:
        """Nothing fails any more."""
        self.failures = 0
        self.error = self.error_code = None


class SetHealth(FailureState, kw_only=True):
    """How one set is: what is being done, since when all is known, what went wrong last."""

    name: str
    phase: str = "starting"
    watching: bool = False
    unwatched: int = 0
    """Folders below that are not watched because they cannot be read; they are from the moment when they can be."""
    scans: int = 0
    scanned_at: dt.datetime | None = None
    scan_seconds: float = 0.0
    held_back: str | None = None
    remarks: dict[str, int] = msgspec.field(default_factory=dict)
    error_at: dt.datetime | None = None
    failing_since: dt.datetime | None = None
    """When the first of the present failures was."""
    watch_error: str | None = None

    def failed(self, fault: Exception, at: dt.datetime, listener: Listener) -> None:
        """Something went wrong at this time, and is tried again."""
        self.add(fault, listener, f"the set {self.name!r} cannot be brought up to date, and is tried again")
        self.phase = "failing"
        self.error_at = at
        self.failing_since = self.failing_since or at

    def recovered(self) -> None:
        """Nothing fails any more."""
        self.clear()
        self.failing_since = None
