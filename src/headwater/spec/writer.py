"""Writes ResourceSync documents of every kind, strictly: what breaks a MUST that one document can show is refused.

Documents come out in blocks of octets: UTF-8 with a declaration, compact, elements in the schemas' order.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Final

import msgspec

from headwater.spec.checks import ElementOrder, WriteRefused, check_head, check_types
from headwater.spec.kinds import DOCUMENT_ENTRIES, DOCUMENT_OCTETS, RULES, Kind, Root
from headwater.spec.markup import MarkupWriter, columns_of
from headwater.spec.records import ChangeKind, Document, Entry

__all__ = ["DocumentWriter", "Profile", "WriteRefused", "write_document"]

_BLOCK: Final = 512  # entries; about 150 KiB


class Profile(Enum):
    """The versions of ResourceSync whose readers a source writes for."""

    V11 = "1.1"
    BOTH = "both"
    """`datetime` plus an equal `lastmod` on every change, which is all that readers of 1.0 look at."""


class DocumentWriter:
    """One document: `head`, `entries` as often as needed, `tail`.

    Raises WriteRefused, with the rule, for what a conforming document cannot have.
    """

    def __init__(self, document: Document, profile: Profile = Profile.V11) -> None:
        if not isinstance(profile, Profile):
            raise WriteRefused(f"profile is one of Profile, not {profile!r:.200}")
        check_types(document)
        check_head(document)
        rules = RULES[document.kind]
        self._document = document
        self._rules = rules
        self._order = ElementOrder(document)
        self._pen = MarkupWriter("url" if rules.root is Root.URLSET else "sitemap")
        self._is_history = document.kind in (Kind.CHANGE_LIST, Kind.CHANGE_DUMP_MANIFEST, Kind.CHANGE_NOTIFICATION)
        self._repeats_datetime = profile is Profile.BOTH and self._is_history
        self.entry_count = 0
        self.octet_count = 0

    @property
    def long_uri_count(self) -> int:
        """`loc` with more than the 2,047 characters that sitemaps.org allows."""
        return self._pen.long_uri_count

    def head(self) -> bytes:
        """Everything before the first entry."""
        return self._count(self._pen.head(self._document, self._rules.root.value, self._rules.capability or ""))

    def entries(self, entries: Iterable[Entry]) -> bytes:
        """These entries, after all earlier ones."""
        block = list(entries)
        if not block:
            return b""
        try:
            return self._entries(block)
        except (TypeError, AttributeError, KeyError):
            for entry in block:
                check_types(entry)
            raise

    def _entries(self, block: list[Entry]) -> bytes:
        columns = columns_of(block)
        self._order.check(block, columns)
        if self._is_history:
            if any(map(_overstates, block)):
                bare = {"hash": None, "length": None, "type": None, "encoding": None}
                block = [msgspec.structs.replace(one, **bare) if _overstates(one) else one for one in block]
                columns = columns_of(block)
            if self._repeats_datetime:
                columns["lastmod"] = columns["datetime"]
        self.entry_count += len(block)
        if self.entry_count > DOCUMENT_ENTRIES:
            raise WriteRefused(f"more than {DOCUMENT_ENTRIES:,} entries in one document", rule="RS-LIM-01")
        return self._count(self._pen.entries(columns))

    def tail(self) -> bytes:
        """Everything after the last entry."""
        return self._count(f"</{self._rules.root.value}>\n")

    def _count(self, text: str) -> bytes:
        octets = text.encode("utf-8")
        self.octet_count += len(octets)
        if self.octet_count > DOCUMENT_OCTETS:
            raise WriteRefused(f"more than {DOCUMENT_OCTETS:,} octets in one document", rule="RS-LIM-01")
        return octets


def write_document(document: Document, entries: Iterable[Entry], profile: Profile = Profile.V11) -> Iterator[bytes]:
    """The document in blocks. Raises WriteRefused, perhaps after some blocks: use none before the last."""
    writer = DocumentWriter(document, profile)
    yield writer.head()
    remaining = iter(entries)
    while block := list(islice(remaining, _BLOCK)):
        yield writer.entries(block)
    yield writer.tail()


def _overstates(entry: Entry) -> bool:
    """Whether a deletion describes a representation, which it cannot have (AMB-34)."""
    return entry.change is ChangeKind.DELETED and any(
        stated is not None for stated in (entry.hash, entry.length, entry.type, entry.encoding)
    )
