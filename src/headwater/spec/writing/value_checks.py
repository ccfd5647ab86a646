"""Strict checks of single values before they are written: URIs, relations, digests, media types, paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from headwater.spec.namespaces import CHANGE_FREQUENCIES, RS, SITEMAP
from headwater.spec.reading.text_values import HASH, URI_CHARACTERS
from headwater.spec.uris import is_absolute, to_ascii
from headwater.spec.writing import fast_columns
from headwater.spec.writing.xml_text import WriteRefused, escape

LONGEST_URI: Final = 8_192
"""Longer URIs are refused: no server and no client takes them."""

LONG_URI: Final = 2_047
"""Longer URIs break RS-DOC-19, a fact of sitemaps.org; they are written and counted, for a lost resource is worse."""

_PLAIN_URI = re.compile(f"https?://[0-9A-Za-z][{URI_CHARACTERS}]{{0,2000}}").fullmatch
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_RELATION = re.compile(r"[a-z][a-z0-9.\-]*").fullmatch
_HASH = re.compile(HASH.replace("a-fA-F", "a-f")).fullmatch
_HASH_ITEM = re.compile(r"([a-z0-9][a-z0-9.\-]*):([0-9a-f]+)").fullmatch
_MEDIA_TYPE = re.compile(r"[0-9a-z!#$&^_.+\-]+/[0-9a-z!#$&^_.+\-]+").fullmatch
_TOKEN = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~\-]+").fullmatch
_EXTRA_NAME = re.compile(r"\{([^{}\s]+)\}([A-Za-z_][A-Za-z0-9_.\-]*)").fullmatch


def uri(text: str, what: str = "loc") -> str:
    """An absolute URI, escaped; what may not stand in a URI is percent-encoded (AMB-07, AMB-08)."""
    if _PLAIN_URI(text):
        return text
    if not is_absolute(text):
        raise WriteRefused(f"{what} is not an absolute URI: {text[:200]!r}", rule="AMB-07")
    if _CONTROL.search(text):
        raise WriteRefused(f"a control character in {what}: {text[:200]!a}", rule="AMB-08")
    if not text.isascii() or not text.isprintable():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise WriteRefused(f"a character that XML cannot hold in {what}: {text[:200]!a}", rule="AMB-08") from None
    encoded = to_ascii(text)
    if len(encoded) > LONGEST_URI:
        raise WriteRefused(f"{what} is longer than {LONGEST_URI:,} characters: {text[:80]!r}", rule="RS-DOC-19")
    return escape(encoded)


def uris(texts: Sequence[str]) -> Sequence[str]:
    """Many `loc` at once."""
    return texts if fast_columns.are_plain_uris(texts) else [uri(text) for text in texts]


def relation(text: str) -> str:
    """One registered relation in lower case, or an absolute URI (RS-LN-01, AMB-42)."""
    if _RELATION(text):
        return text
    if ":" not in text:
        raise WriteRefused(
            f"rel is neither a registered relation in lower case nor a URI: {text[:200]!r}", rule="RS-LN-01"
        )
    return uri(text, "rel")


def digests(text: str) -> str:
    """`algorithm:hex` items, each algorithm once, lower case (RS-MD-05, AMB-28, AMB-32)."""
    if _HASH(text):
        return text
    seen = set()
    for item in text.split(" "):
        match = _HASH_ITEM(item)
        if match is None:
            raise WriteRefused(f"not algorithm:hexdigest in hash: {item[:200]!r}", rule="RS-MD-05")
        if match[1] in seen:
            raise WriteRefused(f"{match[1]} occurs twice in one hash", rule="AMB-32")
        seen.add(match[1])
    return text


def check_digests(texts: Iterable[str | None]) -> None:
    """Many `hash` at once; None is none."""
    stated = [text for text in texts if text is not None]
    if not fast_columns.are_right_digests(stated):
        for text in stated:
            digests(text)


def media_type(text: str) -> str:
    """The essence of a media type, lower case; parameters are left out (RS-MD-11, AMB-09)."""
    essence = text.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE(essence):
        raise WriteRefused(f"not a media type: {text[:200]!r}", rule="RS-MD-11")
    return escape(essence)


def path(text: str) -> str:
    """A location in a package: leading slash, no slash at the end, no way out of the package (RS-MD-10, DST-P3)."""
    if not text.startswith("/") or text.endswith("/") or "\\" in text or ".." in text.split("/"):
        raise WriteRefused(f"path must lead from / to a file: {text[:200]!r}", rule="RS-MD-10")
    return escape(text)


def paths(texts: Sequence[str]) -> Sequence[str]:
    """Many `path` at once."""
    return texts if fast_columns.are_plain_paths(texts) else [path(text) for text in texts]


def frequency(text: str) -> str:
    """One of the seven values (RS-DOC-15)."""
    if text not in CHANGE_FREQUENCIES:
        raise WriteRefused(f"changefreq is none of the seven values: {text[:200]!r}", rule="RS-DOC-15")
    return text


def token(text: str) -> str:
    """A single content coding (AMB-39)."""
    if not _TOKEN(text):
        raise WriteRefused(f"encoding is not one content coding: {text[:200]!r}", rule="AMB-39")
    return escape(text)


def length(number: int) -> int:
    """Octets, never negative (RS-MD-09)."""
    if number < 0:
        raise WriteRefused(f"length is negative: {number}", rule="RS-MD-09")
    return number


def priority(number: int) -> int:
    """A rank of mirrors (RS-LN-03)."""
    if not 1 <= number <= 999_999:
        raise WriteRefused(f"pri is not within 1 to 999999: {number}", rule="RS-LN-03")
    return number


def added_name(name: str) -> tuple[str, str]:
    """Namespace and local name of an attribute that a community added (RS-DOC-12, RS-DOC-13)."""
    match = _EXTRA_NAME(name)
    if match is None or match[1] in (RS, SITEMAP):
        raise WriteRefused(f"an added attribute needs a namespace of its own: {name[:200]!r}", rule="RS-DOC-13")
    return match[1], match[2]
