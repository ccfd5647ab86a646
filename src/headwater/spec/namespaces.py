"""XML namespaces, and the link relations that have rules of their own."""

from __future__ import annotations

from typing import Final

SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS: Final = "http://www.openarchives.org/rs/terms/"
XML: Final = "http://www.w3.org/XML/1998/namespace"
HEADWATER: Final = "urn:uuid:5409b1f3-7628-44aa-9add-d44fd627bfb7"
"""What Headwater adds to ResourceSync documents (docs/extensions.md). A name only: nothing is to be fetched there."""

DUMP: Final = f"{HEADWATER}#dump"
"""The relation of the address that makes packages on demand: an absolute URI, as RS-LN-01 asks of one of our own."""

PATCH: Final = "http://www.openarchives.org/rs/terms/patch"
"""The relation of a change description (RS-REL-04); the only one of the standard that is a URI."""

UP: Final = "up"
INDEX: Final = "index"

CHANGE_FREQUENCIES: Final = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
"""The values of `changefreq` (RS-DOC-15)."""

_SPELLINGS: Final = {"sitemaps.org/schemas/sitemap/0.9": SITEMAP, "openarchives.org/rs/terms": RS}


def usual_name(name: str) -> str:
    """A `namespace name` with our namespace where it is written in another way: https, capitals, a slash (AMB-97)."""
    space, _, local = name.rpartition(" ")
    plain = space.lower().removeprefix("https://").removeprefix("http://").removeprefix("www.").rstrip("/")
    known = _SPELLINGS.get(plain)
    return name if known is None else f"{known} {local}"
