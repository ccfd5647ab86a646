"""How many octets a resource or a change can take in a document: the upper bound by which pages and segments are cut.

The bound is of an entry as any profile writes it (`lastmod` and `datetime` both, RS-VER-20) and of a URI whose prefix
only `publish` knows. What cannot be written in a document at all is refused here, before it is in the catalog.
"""

from __future__ import annotations

import re
from typing import Final

from headwater.catalog.interface import Metadata, Unacceptable
from headwater.spec.records import Link

URI_PREFIX_OCTETS: Final = 300
"""The longest URI of a set's folder of resources for which the bound holds."""

_MOMENT = "0000-00-00T00:00:00.000000Z"
_ENTRY: Final = len(
    f"  <url>\n    <loc></loc>\n    <lastmod>{_MOMENT}</lastmod>\n    <changefreq></changefreq>\n"
    f'    <rs:md change="created" datetime="{_MOMENT}" encoding="" hash="" length="" type=""/>\n  </url>\n'
)
_LINK: Final = len(
    f'    <rs:ln encoding="" hash="" href="" length="" modified="{_MOMENT}" path="" pri="" profile="" rel="" type="" />'
)
_ATTRIBUTE: Final = len(' xmlns:ns00000000="" ns00000000:=""')
_FIXED: Final = _ENTRY + URI_PREFIX_OCTETS
_DIGITS: Final = 20
_LENGTH_END: Final = 1 << 63

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = re.compile("[&<>\"'\t\n\r]")


def weight(uri: str, metadata: Metadata) -> int:
    """An upper bound of the octets of the entry. Raises Unacceptable for what no document can hold."""
    octets = _FIXED + text_octets(uri)
    if metadata.hash is not None:
        octets += text_octets(metadata.hash)
    if metadata.type is not None:
        octets += text_octets(metadata.type)
    if metadata.length is not None:
        octets += _number_octets(metadata.length)
    if metadata.encoding is not None:
        octets += text_octets(metadata.encoding)
    if metadata.changefreq is not None:
        octets += text_octets(metadata.changefreq)
    for link in metadata.links:
        octets += _link_octets(link)
    return octets


def text_octets(text: str) -> int:
    """An upper bound of the octets of a text in XML. Raises Unacceptable for characters that XML cannot hold."""
    if text.isascii() and text.isprintable():
        if "&" in text or "<" in text or ">" in text or '"' in text or "'" in text:
            return len(text) + 5 * len(_ESCAPED.findall(text))
        return len(text)
    if _NOT_XML.search(text):
        raise Unacceptable(f"a character that no document can hold in {text[:200]!a}")
    return len(text.encode()) + 5 * len(_ESCAPED.findall(text))


def _number_octets(length: int) -> int:
    if not 0 <= length < _LENGTH_END:
        raise Unacceptable(f"a length of {length} octets")
    return _DIGITS


def _link_octets(link: Link) -> int:
    octets = _LINK + text_octets(link.rel) + text_octets(link.href) + 2 * _DIGITS
    for text in (link.encoding, link.hash, link.path, link.type, link.profile):
        octets += text_octets(text) if text is not None else 0
    for name, value in link.extra:
        octets += _ATTRIBUTE + text_octets(name) + text_octets(value)
    if link.length is not None:
        _number_octets(link.length)
    return octets
