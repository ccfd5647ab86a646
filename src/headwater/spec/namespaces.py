"""XML namespaces, and the link relations that have rules of their own."""

from __future__ import annotations

from typing import Final

SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS: Final = "http://www.openarchives.org/rs/terms/"
XML: Final = "http://www.w3.org/XML/1998/namespace"

PATCH: Final = "http://www.openarchives.org/rs/terms/patch"
"""The relation of a change description (RS-REL-04); the only one of the standard that is a URI."""

UP: Final = "up"
INDEX: Final = "index"

CHANGE_FREQUENCIES: Final = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
"""The values of `changefreq` (RS-DOC-15)."""
