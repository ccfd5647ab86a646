"""Writes plain Sitemaps (sitemaps.org) out of our markup: for search engines, which may refuse `rs:` (AMB-64).

Both functions over markup take blocks of whole entries, as `MarkupWriter` writes them: a `<` or `>` that belongs to a
value is escaped there.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Final

from headwater.spec.namespaces import SITEMAP
from headwater.spec.writing import value_checks as grammar
from headwater.spec.writing.markup import moment

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="' + SITEMAP + '">\n'
_RESOURCESYNC: Final = re.compile(rb"<rs:[^<>]*/>")
_LONG: Final = re.compile(rb"<url><loc>[^<]{%d,}</loc>(?:(?!</url>).)*</url>\n" % (grammar.LONG_URI + 1), re.DOTALL)
_WITH_MD5: Final = re.compile(rb' hash="(?:[^"]* )?(md5:[0-9A-Fa-f]+)(?: [^"]*)?"')

SITEMAP_HEAD: Final = _HEAD.format(root="urlset").encode()
SITEMAP_TAIL: Final = b"</urlset>\n"


def plain_entries(block: bytes) -> bytes:
    """The entries without what ResourceSync has added; those are left out whose `loc` is too long for a Sitemap."""
    return _LONG.sub(b"", _RESOURCESYNC.sub(b"", block))


def md5_alone(block: bytes) -> bytes:
    """The entries with MD5 as the only digest wherever there is one.

    Some readers know no other; some take all that follows the first colon for the value of one digest, and fetch the
    resource again and again.
    """
    return _WITH_MD5.sub(rb' hash="\1"', block)


def sitemap_index(parts: Iterable[tuple[str, dt.datetime]]) -> bytes:
    """An index of Sitemaps: each with its address and the time of its last modification."""
    entries = (
        f"<sitemap><loc>{grammar.uri(address, 'loc')}</loc><lastmod>{moment(modified)}</lastmod></sitemap>\n"
        for address, modified in parts
    )
    return (_HEAD.format(root="sitemapindex") + "".join(entries) + "</sitemapindex>\n").encode()
