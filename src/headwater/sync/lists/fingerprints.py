"""Fingerprints of a Resource List, its index and components: what changed (DST-B1)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.storage.sqlite.transaction import Row
from headwater.sync.lists.entries import EntryFilter

_INDEXES = (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX)
_LINES = msgspec.json.Encoder()


class Component(msgspec.Struct, frozen=True, array_like=True):
    """The index itself, or one component as it was read: what asks for it again, and the digest of its octets."""

    uri: str
    etag: str | None
    last_modified: str | None
    digest: str
    is_timed: bool = False
    """Whether the index states the time that the component has: while the index is what it was, so is that."""


class CompletedBaseline(msgspec.Struct, frozen=True):
    """The list of the last completed baseline: its `at`, the digest of its octets, and its components."""

    at: int | None
    print: str | None
    components: tuple[Component, ...] = ()


def is_completed(at: int | None, print_: str, done: CompletedBaseline) -> bool:
    """Whether it is the list of that `at` with the same octets: with others it was mended, or `at` means nothing."""
    return at is not None and (at, print_) == (done.at, done.print)


def digest_of(*digests: str) -> str:
    return blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()


class ListFingerprint:
    """A running digest over the entries of a list or an index: another one means that it has changed."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def take_parts(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries of an index, whose own `at` counts too: it stands for all of its components."""
        for entry in entries:
            line = f"{document.at} {document.completed} {entry.loc} {entry.at} {entry.lastmod}\n"
            self._digest.update(line.encode("utf-8", "surrogatepass"))

    def take_rows(self, rows: Sequence[Row]) -> None:
        """Take the next resources of a list; not its `at`, which a source may make anew for each answer."""
        self._digest.update(_LINES.encode_lines(rows))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class FingerprintReader:
    """Reads a document only for its fingerprint, to see whether it has changed."""

    def __init__(self, intake: EntryFilter) -> None:
        self._intake = intake
        self._print = ListFingerprint()

    def begin(self) -> None:
        self._print = ListFingerprint()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind in _INDEXES:
            self._print.take_parts(document, entries)
        else:
            self._print.take_rows(self._intake.rows(entries))

    def fingerprint(self) -> str:
        return self._print.hexdigest()
