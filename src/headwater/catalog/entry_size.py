"""Upper bounds of the serialised size of entries, by which pages and segments are cut.

The bound is of an entry as any profile writes it (`lastmod` and `datetime` both, RS-VER-20) and of a URI whose prefix
only `publish` knows. What the strict writer would refuse is refused here, before it is in the catalog: one resource
that cannot be written would hold up the document of fifty thousand.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NoReturn

from headwater.catalog.faults import Unacceptable
from headwater.catalog.interface import Metadata
from headwater.spec import checks as grammar
from headwater.spec.checks import WriteRefused
from headwater.spec.markup import MarkupWriter, added
from headwater.spec.records import Link
from headwater.spec.text_values import URI_CHARACTERS

URI_PREFIX_OCTETS: Final = 300
"""The longest URI of a set's folder of resources for which the bound holds."""

LONGEST_URI: Final = grammar.LONGEST_URI - URI_PREFIX_OCTETS
"""The longest URI, percent-encoded, that a catalog takes."""

_MOMENT = "0000-00-00T00:00:00.000000Z"
FIXED_OCTETS: Final = URI_PREFIX_OCTETS + len(
    f"  <url>\n    <loc></loc>\n    <lastmod>{_MOMENT}</lastmod>\n    <changefreq></changefreq>\n"
    f'    <rs:md change="created" datetime="{_MOMENT}" encoding="" hash="" length="" type=""/>\n  </url>\n'
)
_LINK_MARGIN: Final = 16
DIGITS: Final = 20
LENGTH_END: Final = 1 << 63
_ANY_PREFIX: Final = "http://a/"

# A class of three runs is matched by one look into a bitmap, which is twice as fast: NUL is looked for on its own.
MD5, SHA_256 = r"md5:[0-9a-f\0]{32}", r"sha-256:[0-9a-f\0]{64}"
_usual_hash = re.compile(f"{MD5} {SHA_256}|{SHA_256}|{MD5}").fullmatch
_plain_uri = re.compile(f"[{URI_CHARACTERS}]*+").fullmatch
_markup = MarkupWriter("url")


def weight(uri: str, metadata: Metadata) -> int:
    """An upper bound of the octets of the entry. Raises Unacceptable for what no document can hold."""
    try:
        octets = FIXED_OCTETS + (len(uri) if len(uri) <= LONGEST_URI and _plain_uri(uri) else _odd_uri_octets(uri))
        text = metadata.hash
        if text is not None:
            octets += len(text) if _usual_hash(text) and "\0" not in text else len(grammar.digests(text))
        if metadata.type is not None:
            octets += _type_octets(metadata.type)
        if metadata.length is not None:
            octets += DIGITS if 0 <= metadata.length < LENGTH_END else _refuse_length(metadata.length)
        if metadata.encoding is not None:
            octets += _encoding_octets(metadata.encoding)
        if metadata.changefreq is not None:
            octets += len(grammar.frequency(metadata.changefreq))
        for link in metadata.links:
            octets += _link_octets(link)
        if metadata.extra:
            octets += len(added(metadata.extra).encode())
    except WriteRefused as cause:
        raise Unacceptable(cause.what, where=ascii(uri[:200]), rule=cause.rule) from cause
    return octets


def _odd_uri_octets(uri: str) -> int:
    """A URI that is written percent-encoded or escaped."""
    octets = len(grammar.uri(_ANY_PREFIX + uri))
    if octets > LONGEST_URI:
        raise Unacceptable(f"a URI of more than {LONGEST_URI:,} octets", where=ascii(uri[:200]), rule="RS-DOC-19")
    return octets


@lru_cache(maxsize=4096)
def _type_octets(text: str) -> int:
    return len(grammar.media_type(text))


@lru_cache(maxsize=256)
def _encoding_octets(text: str) -> int:
    return len(grammar.token(text))


def _refuse_length(length: int) -> NoReturn:
    raise Unacceptable(f"a length of {length} octets", rule="AMB-33")


def link_octets(link: Link) -> int:
    """An upper bound of the octets of a link. Raises WriteRefused for what cannot be written."""
    return len(_markup.link(link).encode()) + _LINK_MARGIN


def _link_octets(link: Link) -> int:
    if link.path is not None:
        raise Unacceptable("a link with a path, which stands only in manifests", where=link.href, rule="RS-MD-10")
    if link.length is not None and not 0 <= link.length < LENGTH_END:
        _refuse_length(link.length)
    return link_octets(link)
