"""The errors of a destination, each for the person who must act: code, what happened, what to do."""

from __future__ import annotations

from headwater.errors import SourceFault, StoreFault, message

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


def advice_for(code: str, what: str, where: str | None) -> str:
    """What to do where the network's answer is `what`: that of the code, unless this is a special case."""
    usual = message(code).advice
    if where is not None and where.startswith("http://") and any(sign in what for sign in _TLS_PERHAPS):
        return f"If the server speaks TLS alone, begin the address with https://. {usual}"
    return next((todo for sign, todo in _SPECIAL.items() if sign in what), usual)


class Unreachable(SourceFault):
    """A document of the source could not be fetched; `cause` is why, where that holds for all documents of its host."""

    code = "HW-SYN-01"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        rule: str | None = None,
        advice: str | None = None,
        code: str | None = None,
        cause: str | None = None,
    ):
        advice = advice or advice_for(code or self.code, what, where)
        super().__init__(what, where=where, rule=rule, advice=advice, code=code)
        self.cause = cause


class IncompleteList(Unreachable):
    """Documents of a Resource List could not be read: what was read of it was done, and nothing deleted (DST-C11)."""


class RedirectRefused(Unreachable):
    """A document is redirected to a host outside the scope (DST-S12)."""


class WrongDocument(SourceFault):
    """A document is ResourceSync, but of the wrong kind for its place."""

    code = "HW-SYN-04"


class MovedElsewhere(SourceFault):
    """The list at a set's new address does not match the copy (DST-F10)."""

    code = "HW-SYN-14"


class DestinationLocked(StoreFault):
    """Another run works on the same folder."""

    code = "HW-SYN-09"


class DestinationUnusable(StoreFault):
    """The folder cannot be made, read or written."""

    code = "HW-SYN-10"
