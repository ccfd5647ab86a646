"""Reads what a request for a package asks for: resources by URI, as they are or were, a page, or all changed since.

Why one is refused is told with the status of the answer.
"""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

import msgspec

from headwater.errors import UsageFault
from headwater.spec import checks
from headwater.spec.checks import WriteRefused
from headwater.spec.times import parse_datetime
from headwater.typed_decoding import json_decoder


class DumpRefused(UsageFault):
    """A request for a package that cannot be answered as it stands; its code says why, and the status of the answer."""

    code: ClassVar[str] = "HW-SRV-06"


TOO_MUCH, NOT_KNOWN_SINCE, WRONG_MEDIA_TYPE = "HW-SRV-07", "HW-SRV-08", "HW-SRV-09"
TOO_MANY_DUMPS, NO_SUCH_PAGE, BODY_TOO_LATE, OLD_PROTOCOL = "HW-SRV-10", "HW-SRV-11", "HW-SRV-12", "HW-SRV-13"

BODY_OCTETS = 16 << 20
"""A body has so many octets at most: 50,000 URIs of 300 characters."""


class WantedUris(msgspec.Struct, frozen=True):
    """Resources by their URIs, each once, as the lists have them."""

    uris: list[str]
    at: dt.datetime | None = None
    """Of which moment; None: as they are."""


class WantedSince(msgspec.Struct, frozen=True):
    """All that changed after a moment, as it is now."""

    moment: dt.datetime


class WantedPage(msgspec.Struct, frozen=True):
    """The resources of one page of the Resource List."""

    number: int


Wanted = WantedUris | WantedSince | WantedPage


class PackageRequest(msgspec.Struct, frozen=True):
    """What is wanted, and whether members are deflated where that pays; on a fast line it costs more than it saves."""

    wanted: Wanted
    is_deflated: bool


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    uris: list[str] | msgspec.UnsetType = msgspec.UNSET
    since: str | msgspec.UnsetType = msgspec.UNSET
    page: int | msgspec.UnsetType = msgspec.UNSET
    at: str | msgspec.UnsetType = msgspec.UNSET
    deflate: bool = True


_SELECTIONS = ("uris", "since", "page")
_decode = json_decoder(_Body)


def read_request(body: bytes, most: int) -> PackageRequest:
    """What the body asks for; `most` resources by URI. Raises DumpRefused."""
    try:
        asked = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise DumpRefused(f"not a request for a package: {_first_line(cause)}") from cause
    return PackageRequest(_wanted(asked, most), asked.deflate)


def _wanted(asked: _Body, most: int) -> Wanted:
    given = [name for name in _SELECTIONS if getattr(asked, name) is not msgspec.UNSET]
    if len(given) != 1:
        raise DumpRefused(f"one of uris, since and page is asked for, not {len(given)}")
    if asked.uris is not msgspec.UNSET:
        at = None if asked.at is msgspec.UNSET else _moment("at", asked.at)
        return WantedUris(_uris(asked.uris, most), at)
    if asked.at is not msgspec.UNSET:
        raise DumpRefused("at stands beside uris alone")
    if asked.since is not msgspec.UNSET:
        return WantedSince(_moment("since", asked.since))
    assert asked.page is not msgspec.UNSET
    return WantedPage(asked.page)


def _uris(uris: list[str], most: int) -> list[str]:
    if not uris:
        raise DumpRefused("uris is empty")
    if len(uris) > most:
        what = f"{len(uris):,} resources are asked for, and {most:,} are given at a time"
        raise DumpRefused(what, code=TOO_MUCH)
    try:
        checks.uris(uris)  # what could not be named in the manifest is not looked for
    except WriteRefused as refused:
        raise DumpRefused(f"not a URI in uris: {refused.what}") from refused
    if (other := next((one for one in uris if "://" not in one), None)) is not None:
        raise DumpRefused(f"not the address of a resource in uris: {other[:100]!r}")
    if len(set(uris)) < len(uris):
        raise DumpRefused("a URI occurs twice in uris")
    return uris


def _moment(name: str, text: str) -> dt.datetime:
    """The moment; without a time of day or a zone it would be a guess, and changes could be missed."""
    try:
        moment, forgiven = parse_datetime(text)
    except ValueError:
        moment, forgiven = None, ()
    if moment is None or forgiven or "T" not in text:
        raise DumpRefused(f"{name} is no complete W3C Datetime with a zone: {text[:100]!r}")
    return moment


def _first_line(cause: Exception) -> str:
    if isinstance(cause, RecursionError):
        return "too deep"
    words = str(cause).partition("\n")[0][:300]
    if words == "Input data was truncated":  # of a whole text, too
        return "the JSON text is cut off, or has half a surrogate pair"
    return words
