"""The errors of a destination, each for the person who must act: code, what happened, what to do."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import SourceFault, StoreFault, Undetermined, UsageFault

_CERTIFICATE = "Check the files of --cert and --key: they belong together, in PEM form, without a passphrase."
_SPECIAL = {
    "client certificate": _CERTIFICATE,
    "private key": _CERTIFICATE,
    "certificate has expired": "The source's operator must renew it; check the clock of this machine, too.",
    "certificate is not yet valid": "Check the clock of this machine; if it is right, the source's operator must help.",
    "certificate": "Use the host name of the source's certificate; give the file of a private CA by --ca.",
    "does not speak TLS": "Begin the address with http://, or name the port at which the server speaks TLS.",
    "HTTP status 503": "The source asks to come back later: run the same command again in a while; nothing was lost.",
    "HTTP status 407": "Give the proxy with user and password, by HTTPS_PROXY or --proxy.",
}
"""What to do in cases that the network's answer tells apart."""


_OF_A_HOST = frozenset({429, 502, 503, 504})
"""Answers by which a host, or who answers in its place, speaks of itself and not of one document."""


def cause_of(status: int) -> str | None:
    """What ails a host that answers so; None where that may be of one document."""
    return f"HTTP status {status}" if status in _OF_A_HOST else None


_TLS_PERHAPS = ("Connection reset", "Empty reply", "HTTP status 400", "the answer is not HTTP")
"""How servers that speak TLS alone answer to plain HTTP."""


def _special(what: str, where: str | None, usual: str) -> str | None:
    """What to do in a special case; None where the usual advice will do."""
    if where is not None and where.startswith("http://") and any(sign in what for sign in _TLS_PERHAPS):
        return f"If the server speaks TLS alone, begin the address with https://. {usual}"
    return next((todo for sign, todo in _SPECIAL.items() if sign in what), None)


class Unreachable(SourceFault):
    """A document of the source could not be fetched; `cause` is why, where that holds for all documents of its host."""

    code: ClassVar[str] = "HW-SYN-01"
    advice: ClassVar[str] = "Check the address and the network, then run the same command again: nothing was lost."

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        rule: str | None = None,
        advice: str | None = None,
        cause: str | None = None,
    ):
        super().__init__(what, where=where, rule=rule, advice=advice or _special(what, where, self.advice))
        self.cause = cause


class IncompleteList(Unreachable):
    """Documents of a Resource List could not be read: what was read of it was done, and nothing deleted (DST-C11)."""


class SignInRefused(Unreachable):
    """The source refuses access: credentials are missing, or are not accepted (HTTP status 401, 403; DST-F2)."""

    code: ClassVar[str] = "HW-SYN-15"
    advice: ClassVar[str] = "Give credentials, such as --user or --token; they are sent to this origin only."


class RedirectRefused(Unreachable):
    """A document is redirected to a host outside the scope (DST-S12)."""


class NotResourceSync(SourceFault):
    """Nothing at the address leads to a ResourceSync document (DST-A1, DST-A2)."""

    code: ClassVar[str] = "HW-SYN-02"
    advice: ClassVar[str] = "Give the address of a Source Description, a Capability List, or a host that publishes one."

    def __init__(self, what: str, *, where: str | None = None, rule: str | None = None, advice: str | None = None):
        super().__init__(what, where=where, rule=rule, advice=advice or _special(what, where, self.advice))


class PlainSitemap(SourceFault):
    """The document is a Sitemap without ResourceSync elements (DST-A3, AMB-02)."""

    code: ClassVar[str] = "HW-SYN-03"
    advice: ClassVar[str] = "Add --sitemap to copy what this plain Sitemap lists, without times and without changes."


class WrongDocument(SourceFault):
    """A document is ResourceSync, but of the wrong kind for its place."""

    code: ClassVar[str] = "HW-SYN-04"
    advice: ClassVar[str] = "`headwater inspect` shows what the document says; the source's operator must fix it."


class NothingToCopy(SourceFault):
    """A Capability List offers neither a Resource List nor a Change List."""

    code: ClassVar[str] = "HW-SYN-05"
    advice: ClassVar[str] = "`headwater explore` shows what the source offers; ask its operator for a Resource List."


class UnknownSetName(UsageFault):
    """`--set` names a set that the source does not have."""

    code: ClassVar[str] = "HW-SYN-06"
    advice: ClassVar[str] = "Name one of the sets that are listed; `headwater explore` shows them."


class AnotherSource(UsageFault):
    """The folder is already a copy of another source."""

    code: ClassVar[str] = "HW-SYN-07"
    advice: ClassVar[str] = "Name another folder for this source, or the source that this folder is a copy of."


class MovedElsewhere(SourceFault):
    """The list at a set's new address does not match the copy (DST-F10)."""

    code: ClassVar[str] = "HW-SYN-14"
    advice: ClassVar[str] = "Nothing was changed. Name the source that this folder is a copy of, or another folder."


class FixedBase(UsageFault):
    """`--base` differs from the base of the names of this copy."""

    code: ClassVar[str] = "HW-SYN-08"
    advice: ClassVar[str] = "Names of a copy never change: omit --base, or copy into a new folder."


class DestinationLocked(StoreFault):
    """Another run works on the same folder."""

    code: ClassVar[str] = "HW-SYN-09"
    advice: ClassVar[str] = "Wait until the other run has ended, then run the same command again."


class DestinationUnusable(StoreFault):
    """The folder cannot be made, read or written."""

    code: ClassVar[str] = "HW-SYN-10"
    advice: ClassVar[str] = "Free space (--keep-free, --max-total) or give permission, then run the same command again."


class DestinationFull(StoreFault):
    """What is to be fetched does not fit on the disk, or into --max-total: nothing of it has been fetched."""

    code: ClassVar[str] = "HW-SYN-23"
    advice: ClassVar[str] = (
        "Free space, change --keep-free or --max-total, or choose less with --include and --exclude; then run the same"
        " command again."
    )


class NoFolder(UsageFault):
    """The destination, or a part of its path, is not a folder, or no destination was given."""

    code: ClassVar[str] = "HW-SYN-13"
    advice: ClassVar[str] = "Name another folder, or move away what is there: it was left as it is."


class DestinationNotFree(UsageFault):
    """The destination, or the folder for stores, lies where a command keeps its state, or in the output of publish."""

    code: ClassVar[str] = "HW-SYN-28"
    advice: ClassVar[str] = "Name a folder of its own; here it would be in the way of the command, or be handed out."


class Moving(Undetermined):
    """The documents changed each time they were read (DST-F13)."""

    code: ClassVar[str] = "HW-SYN-11"
    advice: ClassVar[str] = "Run the same command again when the source changes less; what was copied is kept."


class HistoryUnknown(Undetermined):
    """No document of the source tells what a set was at a moment (DST-5.1)."""

    code: ClassVar[str] = "HW-SYN-24"
    advice: ClassVar[str] = "What is known was copied; ask the source's operator for archives or for mementos."


class BeforeHistory(UsageFault):
    """`--at` names a moment before anything that the source tells of."""

    code: ClassVar[str] = "HW-SYN-25"
    advice: ClassVar[str] = "Give a later time: `headwater explore` shows how far back the lists of the source reach."


class CopyOfAnotherTime(UsageFault):
    """The folder is a copy of the present, or of another moment than `--at` names."""

    code: ClassVar[str] = "HW-SYN-26"
    advice: ClassVar[str] = "Name another folder: what is here was left as it is."


class NothingToCompare(Undetermined):
    """There is no Resource List to audit against (DST-Q)."""

    code: ClassVar[str] = "HW-SYN-12"
    advice: ClassVar[str] = "An audit needs a Resource List: ask the source's operator to publish one."


class NoCopy(UsageFault):
    """The folder is not a copy that `headwater sync` has made."""

    code: ClassVar[str] = "HW-SYN-20"
    advice: ClassVar[str] = "Name the folder DEST of `headwater sync`: it has .headwater/state.sqlite in it."


class NotRemembered(UsageFault):
    """No failure and no deletion held back is remembered of this URI."""

    code: ClassVar[str] = "HW-SYN-21"
    advice: ClassVar[str] = "`headwater status --json` of the folder lists what is remembered; nothing was changed."
