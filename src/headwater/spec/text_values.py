"""Lenient parsing of attribute and element texts, warnings of what was forgiven, and errors that end the reading.

Each function gives a value or None and warns of what it forgave.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import CAPABILITIES, CHANGE_FREQUENCIES, RENAMED
from headwater.spec.records import ChangeKind, parse_hash
from headwater.spec.times import parse_datetime

# errors that end the reading of a document, each with its rule id and, where known, the line


class DocumentFault(SourceFault):
    """A document cannot be read to its end. `line` counts from 1; None where there are no lines."""

    code = "HW-DOC-01"

    def __init__(self, what: str, *, line: int | None = None, rule: str | None = None, advice: str | None = None):
        super().__init__(what, rule=rule, advice=advice)
        self.line = line
        self.locate(None)

    def locate(self, where: str | None) -> None:
        """Say which document it is."""
        self.where = where if self.line is None else f"{where or 'document'}, line {self.line}"


class NotXml(DocumentFault):
    """Not well-formed XML, or in an unknown encoding."""

    code = "HW-DOC-02"


class EmptyDocument(NotXml):
    """The document is empty, or has nothing but white space."""

    code = "HW-DOC-03"


class Truncated(NotXml):
    """The document, or its compressed form, is truncated."""

    code = "HW-DOC-04"


class BadCompression(NotXml):
    """A gzip document whose compressed form is damaged."""

    code = "HW-DOC-05"


class DtdRefused(DocumentFault):
    """A document type declaration: no ResourceSync document needs one, and entities are a known attack."""

    code = "HW-DOC-06"


class NotSitemap(DocumentFault):
    """A web page, or XML whose root is neither `urlset` nor `sitemapindex` in the Sitemap namespace (RS-DOC-01)."""

    code = "HW-DOC-07"


class LimitExceeded(DocumentFault):
    """The document is larger, deeper or denser than the limits allow."""

    code = "HW-DOC-08"


# values

TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|\+00:00)"
"""The usual form of a time, for which `datetime.fromisoformat` is right and quick; it still may be no real time."""

_HEX = "[0-9a-fA-F]"
_MD5, _SHA1, _SHA256, _SHA512 = (
    f"md5:{_HEX}{{32}}",
    f"sha-1:{_HEX}{{40}}",
    f"sha-256:{_HEX}{{64}}",
    f"sha-512:{_HEX}{{128}}",
)
HASH: Final = (
    f"(?:{_MD5}(?: {_SHA1})?(?: {_SHA256})?(?: {_SHA512})?|{_SHA256}(?: {_MD5}| {_SHA512})?"
    f"|{_SHA1}(?: {_MD5}| {_SHA256})?|{_SHA512})"
)
"""A `hash` with nothing to forgive."""

URI_CHARACTERS: Final = r"!#$%'()*+,\-./0-9:;=?@A-Z\[\]_a-z~"
"""What may stand in a URI, as the inside of a character class, without the ampersand."""

_usual_hash = re.compile(HASH).fullmatch
_legal_uri = re.compile(f"[{URI_CHARACTERS}&]*").fullmatch
usual_uri: Final = re.compile(rf"https?://[0-9A-Za-z\[][{URI_CHARACTERS}&]*").fullmatch
"""Matches an absolute http(s) URI with nothing to forgive."""
_digits = re.compile("[0-9]{1,19}", re.ASCII).fullmatch
_media_type = re.compile(r"[0-9A-Za-z!#$&^_.+\-]+/[0-9A-Za-z!#$&^_.+*\-]+\s*(?:;.*)?", re.DOTALL).fullmatch
_LARGEST: Final = (1 << 63) - 1  # lengths are 64 bit, and every store we know is signed
_SPACE: Final = " \t\r\n"

_CHANGES: Final = {change.value: change for change in ChangeKind}


def moment(text: str, warnings: ReaderWarnings) -> dt.datetime | None:
    """A time (AMB-06); None and a warning when it cannot be read."""
    try:
        value, forgiven = parse_datetime(text)
    except ValueError:
        warnings.warn("AMB-06", "a time that cannot be read was ignored", text)
        return None
    for leniency in forgiven:
        warnings.warn("AMB-06", leniency.value, text)
    return value


def number(text: str, warnings: ReaderWarnings) -> int | None:
    """A length in octets (AMB-33)."""
    trimmed = text.strip(_SPACE)
    if _digits(trimmed) and (value := int(trimmed)) <= _LARGEST:
        return value
    warnings.warn("AMB-33", "a length that is no number of octets was ignored", text)
    return None


def priority(text: str, warnings: ReaderWarnings) -> int:
    """A `pri` (RS-LN-03); one that is out of range counts as the last (AMB-37)."""
    trimmed = text.strip(_SPACE)
    if _digits(trimmed) and 1 <= (value := int(trimmed)) <= 999_999:
        return value
    warnings.warn("AMB-37", "a pri outside 1 to 999999 was taken as 999999", text)
    return 999_999


def change(text: str, warnings: ReaderWarnings) -> ChangeKind:
    """A `change`; an unknown one is an update, for the next GET decides (AMB-35)."""
    if (known := _CHANGES.get(text)) is not None:
        return known
    if (known := _CHANGES.get(text.strip(_SPACE).lower())) is not None:
        warnings.warn("AMB-35", "a change that is not written in lower case", text)
        return known
    warnings.warn("AMB-35", "an unknown change was taken as updated", text)
    return ChangeKind.UPDATED


def frequency(text: str, warnings: ReaderWarnings) -> str | None:
    """A `changefreq` (AMB-40)."""
    trimmed = text.strip(_SPACE)
    if trimmed in CHANGE_FREQUENCIES:
        return trimmed
    warnings.warn("AMB-40", "an unknown changefreq was ignored", text)
    return None


def digests(text: str, warnings: ReaderWarnings) -> str | None:
    """A `hash`, kept as text; what of it can never be verified is said (AMB-28, AMB-32)."""
    if _usual_hash(text):
        return text
    trimmed = text.strip(_SPACE)
    read = parse_hash(trimmed)
    if read.unreadable:
        warnings.warn("AMB-28", "a digest that cannot be verified", read.unreadable[0])
    if read.guessed:
        warnings.warn("AMB-28", "a digest without its algorithm, which was guessed from its length", read.guessed[0])
    if read.contradictory:
        warnings.warn("AMB-32", "two different digests of one algorithm; the first was taken", read.contradictory[0])
    if not trimmed:
        warnings.warn("RS-MD-05", "an empty hash was ignored")
    return trimmed or None


def path(text: str, warnings: ReaderWarnings) -> str | None:
    """A `path`, kept as written: which member it means is found by trying (AMB-36, DST-P3)."""
    if not text.startswith("/") or text.endswith("/") or "\\" in text:
        warnings.warn("AMB-36", "a path that does not lead from / to a file", text)
    return text or None


def media_type(text: str, warnings: ReaderWarnings) -> str | None:
    """A `type`, kept as written but for white space around it (AMB-09)."""
    trimmed = text.strip(_SPACE)
    if _media_type(trimmed) is None:
        warnings.warn("AMB-09", "a type that is no media type", text)
    return trimmed or None


def token(text: str, _warnings: ReaderWarnings) -> str | None:
    """A text in which only the white space around it means nothing."""
    return text.strip(_SPACE) or None


def capability(text: str, warnings: ReaderWarnings) -> str | None:
    """A `capability`: as the standard writes it, where it has old names or capitals; an unknown one is kept."""
    trimmed = text.strip(_SPACE)
    if trimmed in CAPABILITIES or not trimmed:
        return trimmed or None
    lower = trimmed.lower()
    if lower in RENAMED:
        warnings.warn("AMB-50", "an old name of a capability", trimmed)
        return RENAMED[lower]
    if lower in CAPABILITIES:
        warnings.warn("AMB-97", "a capability that is not written in lower case", trimmed)
        return lower
    warnings.warn("AMB-12", "an unknown capability was kept", trimmed)
    return trimmed


def check_characters(uri: str, warnings: ReaderWarnings) -> None:
    """Say that a URI has characters that may not stand in one; it is kept as written (AMB-08)."""
    if _legal_uri(uri) is None:
        warnings.warn("AMB-08", "a URI with characters that must be percent-encoded", uri)


EXAMPLES: Final = 3
_EXAMPLE_LENGTH: Final = 200
_KINDS: Final = 200  # messages are constants of our code, so this is never reached; it is here so that nothing can grow


class Warned(msgspec.Struct, frozen=True):
    """A warning: the broken rule, what was done, how often, and the first few texts."""

    rule: str
    message: str
    count: int
    examples: tuple[str, ...]


class ReaderWarnings:
    """The warnings of one reading, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._examples: dict[tuple[str, str], list[str]] = {}

    def warn(self, rule: str, message: str, example: str = "") -> None:
        """Count one lapse."""
        key = (rule, message)
        if key not in self._counts:
            if len(self._counts) >= _KINDS:
                return
            self._counts[key] = 0
            self._examples[key] = []
        self._counts[key] += 1
        examples = self._examples[key]
        if example and len(examples) < EXAMPLES and (shown := example[:_EXAMPLE_LENGTH]) not in examples:
            examples.append(shown)

    def all(self) -> tuple[Warned, ...]:
        """Every kind of lapse so far."""
        return tuple(
            Warned(rule, message, count, tuple(self._examples[rule, message]))
            for (rule, message), count in self._counts.items()
        )
