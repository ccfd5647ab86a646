"""A chain of Change Lists read as their index: what reads Change Lists so reads archived ones, by the same rules.

Only the lists of the chain are there; each must tell of all that the chain relies on (RS-ARC-27).
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.spec.times import from_microseconds, from_optional
from headwater.sync.archives.archive_documents import listed
from headwater.sync.archives.coverage import ListedDocument, ToldPeriods
from headwater.sync.faults import WrongDocument
from headwater.sync.lists.documents import (
    DocumentRead,
    EntryConsumer,
    ListDocuments,
    MissingDocument,
    UnchangedDocument,
    take_whole,
)
from headwater.sync.lists.entries import DocumentsOver
from headwater.sync.source_times import last_micros, micros
from headwater.sync.state.validators import Validators
from headwater.transport.fetch import Objection


class ChangeListChain(DocumentsOver[ListDocuments]):
    """The documents of a source, with `lists` as the Change List Index at `uri` (a `ListDocuments`)."""

    def __init__(self, documents: ListDocuments, uri: str, lists: Sequence[ListedDocument]) -> None:
        super().__init__(documents)
        self._uri = uri
        self._lists = tuple(lists)
        self._told = {one.uri: one for one in lists}

    def read(
        self,
        uri: str,
        consumer: EntryConsumer,
        validators: Validators | None = None,
        *,
        fresh: bool = False,
        objection: Objection | None = None,
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        """`Documents.read`; raises WrongDocument for a list that does not tell of all that it is relied on for."""
        if uri == self._uri:
            return self._index(consumer)
        told = self._told.get(uri)
        parts = _PartsSeen(consumer)
        answer = self._documents.read(uri, parts, None if told else validators, fresh=fresh, objection=objection)
        if isinstance(answer, DocumentRead) and told is not None:
            self._check(told, answer, parts.entries)
        return answer

    def _index(self, consumer: EntryConsumer) -> DocumentRead:
        begin = min((one.from_ for one in self._lists if one.from_ is not None), default=None)
        head = Document(kind=Kind.CHANGE_LIST_INDEX, from_=from_optional(begin))
        entries = [
            Entry(loc=one.uri, from_=from_optional(one.from_), until=from_optional(one.until)) for one in self._lists
        ]
        newest = max((one.until or one.from_ or 0 for one in self._lists), default=0)
        return take_whole(self._uri, head, entries, consumer, from_microseconds(newest))

    def _check(self, told: ListedDocument, answer: DocumentRead, parts: Sequence[Entry]) -> None:
        own = answer.document
        from_ = micros(own.from_)
        until = None if own.until is None else last_micros(own.until)
        if told.until is not None and until is None:
            raise WrongDocument("the archived list is open", where=told.uri, rule="RS-ARC-26")
        is_late = from_ is None or told.from_ is None or from_ > told.from_
        if is_late or (until is not None and told.until is not None and until < told.until):
            raise WrongDocument(
                "the archived list tells of less than its archive says", where=told.uri, rule="RS-ARC-27"
            )
        if own.kind is not Kind.CHANGE_LIST_INDEX or told.from_ is None:
            return
        lists = [listed(one) for one in parts]
        covered = ToldPeriods.of_lists(lists)
        if told.until is not None and covered.hole(told.from_ - 1, told.until - 1) is not None:
            raise WrongDocument("the archived index leaves out changes", where=told.uri, rule="RS-ARC-19")
        self._told |= {one.uri: one for one in lists}


class _PartsSeen:
    """Passes entries on, and holds those of an index (an `EntryConsumer`)."""

    def __init__(self, consumer: EntryConsumer) -> None:
        self._consumer = consumer
        self.entries: list[Entry] = []

    def begin(self) -> None:
        self.entries = []
        self._consumer.begin()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind is Kind.CHANGE_LIST_INDEX:
            self.entries += entries
        self._consumer.take(document, entries)
