"""Reads the head of a document alone: what it is, of which time, without waiting for its entries."""

from __future__ import annotations

from typing import Protocol

from headwater.spec.records import Document, Entry
from headwater.sync.lists.documents import DocumentRead, EntryConsumer, MissingDocument, UnchangedDocument
from headwater.sync.network.fetch import Objection


class DocumentReader(Protocol):
    """What reads documents, as `Documents.read` does."""

    def read(
        self, uri: str, consumer: EntryConsumer, *, objection: Objection | None = None
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """Read a document to its end, feeding `consumer`. Raises SourceFault when it cannot be read."""
        ...


def read_head(documents: DocumentReader, uri: str, objection: Objection | None) -> Document | None:
    """The head of the document at `uri`; None where there is none. Raises SourceFault."""
    head = _HeadOnly()
    try:
        answer = documents.read(uri, head, objection=objection)
    except _HeadRead:
        return head.document
    return answer.document if isinstance(answer, DocumentRead) else None


class _HeadRead(Exception):
    """The head of a document is known, and the rest is not wanted."""


class _HeadOnly:
    """Reads a document as far as its head (an `EntryConsumer`)."""

    def __init__(self) -> None:
        self.document: Document | None = None

    def begin(self) -> None:
        self.document = None

    def take(self, document: Document, entries: list[Entry]) -> None:
        self.document = document
        raise _HeadRead
