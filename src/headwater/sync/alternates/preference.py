"""The choice of a representation by preferred media types: a plain function of what an entry lists (DST-S3)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.spec.records import Link

_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/(?:\*|[a-z0-9!#$&^_.+-]+)\Z")
_ESSENCE_ENDS = ";"


def is_media_type(text: str) -> bool:
    """Whether this names a media type, or all of one kind (`image/*`)."""
    return _TYPE.match(essence(text)) is not None


def essence(text: str | None) -> str:
    """Type and subtype alone, in lower case."""
    return (text or "").partition(_ESSENCE_ENDS)[0].strip().lower()


def preferred_alternate(types: Sequence[str], own: str | None, alternates: Sequence[Link]) -> Link | None:
    """The alternate that is copied in place of `loc`, whose type is `own`; None: `loc` itself.

    The first of `types` that anything has decides; `loc` counts before alternates of the same type, of those the one
    with the best `pri`, then the first. An alternate without a type is never chosen.
    """
    for wanted in map(essence, types):
        if fits(wanted, own):
            return None
        found = [link for link in alternates if fits(wanted, link.type)]
        if found:
            return min(found, key=lambda link: link.pri or 999_999)
    return None


def fits(wanted: str, given: str | None) -> bool:
    """Whether a media type is the one that is wanted."""
    said = essence(given)
    return said == wanted or (wanted.endswith("/*") and said.startswith(wanted[:-1]))


def accept_header(types: Sequence[str]) -> str:
    """What is asked of a generic URI: the preferred types in their order, then anything (RFC 9110, 12.5.1)."""
    wanted = [essence(text) for text in types[:9]]
    return ", ".join([*(f"{text};q={1 - 0.1 * n:.1f}" if n else text for n, text in enumerate(wanted)), "*/*;q=0.05"])
