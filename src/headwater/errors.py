"""The error tree: one root, then one branch for each party that must act.

Every error has a stable `code`, by which `messages.txt` tells what to do, and the exit status that a command ends with
when nothing catches it. One is raised as its branch with its code; only what somebody catches has a class of its own.
Expected outcomes are values, not exceptions: a failed transfer stands in the report.
"""

import re
from enum import IntEnum
from errno import errorcode
from functools import cache
from pkgutil import get_data
from typing import ClassVar, Final, NamedTuple

_TEXT: Final = (get_data("headwater", "messages.txt") or b"").decode()
"""Read at once: an error may be that no file can be opened any more."""


class Exit(IntEnum):
    """Exit statuses, the same for all commands."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    SOURCE = 3
    TRANSFERS_FAILED = 4
    UNDETERMINED = 5
    STORE = 6
    BUG = 70
    INTERRUPTED = 130


class KnownMessage(NamedTuple):
    """One error or notice: its code, who must act, what has happened, what to do, and why, where that is not clear.

    `example` has the fields of its example, which only the page of messages shows.
    """

    code: str
    who: str
    what: str
    advice: str
    rule: str | None
    exit_status: int | None
    http_status: int | None
    why: str
    example: dict[str, str]


def message(code: str) -> KnownMessage:
    """The message of a code. Raises KeyError where there is none."""
    return messages()[code]


@cache
def messages() -> dict[str, KnownMessage]:
    """All of them, by their codes."""
    found: dict[str, KnownMessage] = {}
    for block in re.split(r"\n+(?=\S)", _TEXT.partition("\n----\n")[2].strip()):
        head, *fields = re.split(r"\n  (?=[a-z]+: )", block)
        said = {name: " ".join(text.split()) for name, _, text in (one.partition(": ") for one in fields)}
        code, who, *more = head.split()
        options = dict(one.split("=") for one in more)
        if code in found:
            raise ValueError(f"two messages have the code {code}")
        found[code] = KnownMessage(
            code,
            who,
            said.pop("what"),
            said.pop("do"),
            options.get("rule"),
            int(options.get("exit", 0)) or None,
            int(options.get("http", 0)) or None,
            said.pop("why", ""),
            said,
        )
    return found


class HeadwaterError(Exception):
    """Base of all errors: `what` happened, `where`, and what to do, `todo`. Itself, it is a bug in Headwater.

    `code` is stable; `rule` is the broken rule of the standard, or None; a command ends with `exit_status`. As text it
    is one line without `todo`.
    """

    code: ClassVar[str] = "HW-000"
    exit_status: ClassVar[Exit] = Exit.BUG

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        rule: str | None = None,
        advice: str | None = None,
        code: str | None = None,
    ):
        """`code`: another one than that of its class; `rule`, `advice`: others than those of the code."""
        super().__init__(what)
        if code is not None:
            self.code = code  # type: ignore[misc]
        known = message(self.code)
        if known.exit_status is not None:
            self.exit_status = Exit(known.exit_status)  # type: ignore[misc]
        self.what = what
        self.where = where
        self.rule = rule or known.rule
        self.todo = advice or known.advice

    def __str__(self) -> str:
        """One line: what, where, code and rule."""
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where} [{self.code}{f', {self.rule}' if self.rule else ''}]"


class UsageFault(HeadwaterError):
    """The call is invalid: correct it."""

    code = "HW-USE-01"
    exit_status = Exit.USAGE


class SourceFault(HeadwaterError):
    """The source is unreachable, is not ResourceSync, or sends broken documents."""

    code = "HW-SRC-01"
    exit_status = Exit.SOURCE


class Undetermined(HeadwaterError):
    """No verdict is possible: the source changed, or nothing can be compared."""

    code = "HW-UND-01"
    exit_status = Exit.UNDETERMINED


class StoreFault(HeadwaterError):
    """A fault on your side: disk full, no permission, locked, or written by a newer version."""

    code = "HW-STO-01"
    exit_status = Exit.STORE


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
    if isinstance(error, HeadwaterError):
        return error
    return (disk_fault(error) if isinstance(error, OSError) else None) or bug(error)


class Interrupted(HeadwaterError):
    """The run was interrupted; the next run continues."""

    code = "HW-INT-01"
    exit_status = Exit.INTERRUPTED


_STATUSES = {
    "usage": Exit.USAGE,
    "source": Exit.SOURCE,
    "undetermined": Exit.UNDETERMINED,
    "store": Exit.STORE,
    "interrupted": Exit.INTERRUPTED,
    "bug": Exit.BUG,
}


def exit_status_of(known: KnownMessage) -> Exit:
    """The status that a command ends with by an error of this message."""
    return Exit(known.exit_status) if known.exit_status is not None else _STATUSES[known.who]
