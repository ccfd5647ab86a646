"""Which links of an entry are passed on by who publishes a copy, and the `via` that says where it came from.

An aggregator drops inherited links that are not right from its own viewpoint (RS-REL-20). `via` is kept as it is, or
added, pointing at the resource of the source that was copied (RS-REL-12, DST-S9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from headwater.spec.namespaces import PATCH
from headwater.spec.records import Link
from headwater.spec.uris import normalise

VIA: Final = "via"

NOT_OURS: Final = {
    "canonical": "our URI is no variant of the origin's generic one (RS-REL-03)",
    "collection": "whether it belongs to a collection is said of the origin's resource (RS-REL-11)",
    PATCH: "patches lead from one state to the next of the origin's own history (RS-REL-04)",
    "memento": "versions are those of the origin's URI (RS-REL-08)",
    "timegate": "the same (RS-REL-09)",
    "timemap": "the same (RS-REL-10)",
    "original": "the same (RFC 7089)",
    "first": "a place in a row of the origin's resources",
    "last": "the same",
    "prev": "the same",
    "next": "the same",
    "self": "our resource is not the origin's",
    "edit": "ours is not edited there",
    "edit-media": "the same",
    "up": "leads from document to document of the origin (RS-LN-01)",
    "index": "the same",
    "contents": "of packages of the origin (RS-REL-13)",
    "archives": "of documents of the origin",
    "resourcesync": "our resources lead to our own Capability List (RS-DISC-04)",
}
"""The relations that are not passed on, each with why; all others are: `duplicate` (mirrors have the same octets,
whoever lists them), `alternate`, `describedby`, `describes`, `profile`, and whatever else is said of the content."""

_LEADS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]")


def passed_on(links: Iterable[Link], came_from: Link, own_uri: str) -> tuple[Link, ...]:
    """The links of a resource of ours at `own_uri`, given those of the entry that it was copied by.

    `came_from` is the `via` that is added where there is none.
    """
    given = [link for link in links if _LEADS.match(link.href)]
    kept = [_outside_packages(link) for link in given if _is_passed_on(link, own_uri)]
    if not any(link.rel.lower() == VIA for link in kept):
        kept.append(came_from)
    return tuple(kept)


def leads_home(links: Iterable[Link], base_url: str) -> bool:
    """Whether a resource came from below this address in the end: then it goes in a circle."""
    home = normalise(base_url.rstrip("/") + "/")
    return any(link.rel.lower() == VIA and (normalise(link.href) + "/").startswith(home) for link in links)


def _is_passed_on(link: Link, own_uri: str) -> bool:
    relation = link.rel if ":" in link.rel else link.rel.lower()
    if relation == "duplicate" and link.href == own_uri:
        return False  # no mirror of itself
    return relation not in NOT_OURS


def _outside_packages(link: Link) -> Link:
    """A path in a package of the origin is none in ours (RS-MD-10)."""
    return link if link.path is None else msgspec.structs.replace(link, path=None)
