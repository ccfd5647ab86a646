"""The error for an answer 401, 403 or 407: what was sent to sign in, and what the source asks for (DST-F2)."""

from __future__ import annotations

from headwater.spec.uris import origin
from headwater.sync.faults import SignInRefused
from headwater.sync.network.authentication import REFUSED, Presented, challenged
from headwater.sync.network.transport import Fetched, StreamedAnswer

_TOKEN = "a bearer token by --token or HEADWATER_TOKEN"  # noqa: S105
_PASSWORD = "a name by --user or HEADWATER_USER, its password by HEADWATER_PASSWORD, or both in ~/.netrc"  # noqa: S105
_ONLY = "It is sent to the origin of the address and nowhere else."


def sign_in_refused(uri: str, answer: Fetched | StreamedAnswer) -> SignInRefused | None:
    """The fault that an answer to `uri` is; None where it is none of this kind."""
    if answer.status not in REFUSED:
        return None
    said = f"HTTP status {answer.status}"
    schemes = challenged(answer.headers.get("www-authenticate"))
    if answer.presented is Presented.WITHHELD:
        what, advice = _withheld(uri, answer.uri)
    elif answer.presented is Presented.NOTHING:
        what = "the source wants to know who asks" if answer.status == 401 else "the source lets nobody in unasked"
        advice = _ways_in(schemes)
    else:
        accepted = "is" if answer.presented is Presented.TOKEN else "are"
        accepted = "is" if answer.presented is Presented.OTHER else accepted
        told = "not accepted" if answer.status == 401 else "not enough to read this"
        what = f"{answer.presented} {accepted} {told}"
        advice = (
            f"Check what was given: it may be of another source, or have run out. {_others(answer.presented, schemes)}"
        )
    what = f"{what} ({said})"
    return SignInRefused(what, where=uri, rule="DST-F2", advice=advice.strip(), cause=what)


def _withheld(asked: str, final: str) -> tuple[str, str]:
    if origin(asked) != origin(final):
        what = f"this redirects to {final}, and what was given to sign in is sent to its own origin only"
        return what, f"If you trust it, give that address in place of yours: {final}"
    what = "what was given to sign in is not sent here, because this is not the origin of the address that was given"
    return what, "Give the address of this origin, if the source is there; nothing can be given for a second one."


def _ways_in(schemes: tuple[str, ...]) -> str:
    ways = [text for name, text in (("basic", _PASSWORD), ("bearer", _TOKEN)) if name in schemes]
    if ways:
        return f"Give {'; or '.join(ways)}. {_ONLY}"
    if schemes:
        asked = ", ".join(name[:40] for name in schemes[:5])
        return (
            f"The source asks for {asked}, which is not spoken here: ask its operator for a token or a password, or"
            " give the header that it wants by --header."
        )
    return f"Give {_TOKEN}; or {_PASSWORD}. {_ONLY}"


def _others(presented: Presented, schemes: tuple[str, ...]) -> str:
    own = {Presented.TOKEN: "bearer", Presented.PASSWORD: "basic"}.get(presented)
    return "" if not schemes or own in schemes else f"This server asks for another way: {_ways_in(schemes)}"
