"""What Headwater adds to ResourceSync documents in its own namespace: packages made on demand, canonical hashes.

A Capability List has a root link to the address that makes them, with their limits as attributes; foreign readers
ignore links whose relation they do not know (docs/reference/addresses-and-additions.md,
docs/decisions/031-dumps-on-demand.md). An entry of an RDF document may have the hash of what it says
(docs/decisions/062-hashes-of-canonical-n-quads.md).
"""

import re
from typing import Final

import msgspec

from headwater.spec.kinds import DUMP, HEADWATER
from headwater.spec.records import Document, Extra, Link

CANONICAL: Final = f"{{{HEADWATER}}}canonical"
"""The attribute of an entry: the hash of the canonical N-Quads of an RDF document."""
EMPTY_DATASET: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""The hash of a document without statements: of no octets."""
_canonical = re.compile("sha-256:([0-9a-f]{64})", re.ASCII | re.IGNORECASE).fullmatch
_LIMITS: Final = ("resources", "octets", "requests")
_number = re.compile("[0-9]{1,18}", re.ASCII).fullmatch


class DumpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of packages made for a request: resources, uncompressed bytes, requests at a time."""

    resources: int
    octets: int
    requests: int


class DumpOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A Capability List's offer: `POST` to `href`, within `limits`."""

    href: str
    limits: DumpLimits
    past: bool = False  # whether resources can be asked for as they were at a moment


def dump_link(offer: DumpOffer) -> Link:
    """The root link of a Capability List that makes an offer."""
    stated = tuple((f"{{{HEADWATER}}}{name}", str(getattr(offer.limits, name))) for name in _LIMITS)
    if offer.past:
        stated += ((f"{{{HEADWATER}}}past", "true"),)
    return Link(rel=DUMP, href=offer.href, type="application/zip", extra=stated)


def dump_offer(document: Document) -> DumpOffer | None:
    """The offer of a Capability List; None without one, or with one whose limits cannot be read or allow nothing."""
    link = document.link(DUMP)
    if link is None:
        return None
    stated = dict(link.extra)
    values = [stated.get(f"{{{HEADWATER}}}{name}", "") for name in _LIMITS]
    if not all(map(_number, values)) or not all(map(int, values)):
        return None
    resources, octets, requests = map(int, values)
    limits = DumpLimits(resources=resources, octets=octets, requests=requests)
    return DumpOffer(href=link.href, limits=limits, past=stated.get(f"{{{HEADWATER}}}past") in ("true", "1"))


def canonical_attribute(digest: str) -> Extra:
    """The attribute that states the SHA-256 (hexadecimal) of an RDF document's canonical N-Quads."""
    return ((CANONICAL, f"sha-256:{digest}"),)


def canonical_digest(extra: Extra) -> str | None:
    """The SHA-256 that it states; None without it, or where it cannot be read."""
    found = _canonical(dict(extra).get(CANONICAL, "").strip())
    return None if found is None else found[1].lower()
