"""The error tree: one root, then one branch for each party that must act.

Every error carries a stable `code`, one line of `advice`, and the exit status that a command ends with when nothing
catches it. Expected outcomes are values, not exceptions: a failed transfer
stands in the report.
"""

from __future__ import annotations

from enum import IntEnum
from errno import errorcode
from typing import ClassVar


class Exit(IntEnum):
    """Exit statuses, the same for all commands (documented in the manual)."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    SOURCE = 3
    TRANSFERS_FAILED = 4
    UNDETERMINED = 5
    STORE = 6
    BUG = 70
    INTERRUPTED = 130


class HeadwaterError(Exception):
    """What Headwater raises: `what` happened, `where`, what to do: `todo`. Raised as this class itself, it is a bug.

    `code` is the same for all of a kind, `rule` that of the standard where one is broken, else None; a command ends
    with `exit_status`. As text it is one line of all but `todo`.
    """

    code: ClassVar[str] = "HW-000"
    exit_status: ClassVar[Exit] = Exit.BUG
    advice: ClassVar[str] = "This is a bug in Headwater: please report it with the lines on standard error."

    def __init__(self, what: str, *, where: str | None = None, rule: str | None = None, advice: str | None = None):
        super().__init__(what)
        self.what = what
        self.where = where
        self.rule = rule
        self.todo = advice or self.advice

    def __str__(self) -> str:
        """One line: what, where, the rule or code."""
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where} [{self.rule or self.code}]"


class UsageFault(HeadwaterError):
    """The call is invalid: the user must change it."""

    code = "HW-USE-01"
    exit_status = Exit.USAGE
    advice = "Correct the command or the configuration; `--help` shows what is possible."


class SourceFault(HeadwaterError):
    """The source is unreachable, is not ResourceSync, or sends broken or hostile documents."""

    code = "HW-SRC-01"
    exit_status = Exit.SOURCE
    advice = "Check the address in a browser; if it is right, the source's operator must fix it."


class Undetermined(HeadwaterError):
    """No verdict is possible: the source changed while it was read, or there is nothing to compare with."""

    code = "HW-UND-01"
    exit_status = Exit.UNDETERMINED
    advice = "Try again when the source is at rest."


class StoreFault(HeadwaterError):
    """Our own store failed: disk full, no permission, locked by another process, written by a newer version."""

    code = "HW-STO-01"
    exit_status = Exit.STORE
    advice = "Free space, fix permissions, or end the other process, then run the same command again."


_OUR_DISK = frozenset(
    {"ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENAMETOOLONG", "ENOTDIR"}
)


def disk_fault(error: OSError) -> StoreFault | None:
    """What a failing disk means that nobody has named: a fault of our own store; None when it is a bug of ours."""
    if errorcode.get(error.errno or 0) not in _OUR_DISK:
        return None
    return StoreFault(error.strerror or str(error), where=str(error.filename) if error.filename else None)


def bug(error: Exception) -> HeadwaterError:
    """The fault by which an error that nobody has foreseen is told of: a bug of ours."""
    return HeadwaterError(f"{type(error).__name__}: {error}")


def as_fault(error: Exception) -> HeadwaterError:
    """The fault that an error is, or the bug by which it is told of: for work that goes on whatever has happened."""
    return error if isinstance(error, HeadwaterError) else bug(error)


class Interrupted(HeadwaterError):
    """The run was interrupted; the next run finishes what is incomplete."""

    code = "HW-INT-01"
    exit_status = Exit.INTERRUPTED
    advice = "Run the same command again: it continues where this one stopped."
