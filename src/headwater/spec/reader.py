"""Reads any ResourceSync document or Sitemap from octets as they arrive: leniently, in flat memory, trusting nothing.

expat is the one authority on XML. In front of it a fast path takes runs of `url` elements of the usual shape where the
result cannot differ (`reading/fast_entries`); behind it `reading/record_builder` turns events into records. What had to
be forgiven is kept as warnings with rule ids (tests/rules.md); what cannot be forgiven is a `DocumentFault`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headwater.errors import UsageFault
from headwater.spec import fast_entries
from headwater.spec.checks import head_lapses
from headwater.spec.decoding import Inflater, Utf8Input, charset_of
from headwater.spec.kinds import DOCUMENT_OCTETS, Kind, ReadLimits
from headwater.spec.record_builder import RecordBuilder
from headwater.spec.records import Document, Entry
from headwater.spec.text_values import DocumentFault, LimitExceeded, NotXml, ReaderWarnings, Warned
from headwater.spec.xml_parser import XmlParser

__all__ = ["ReadLimits", "Reader", "Reading", "Warned", "WholeReading", "read_bytes", "read_document"]

_PROLOGUE_PIECE: Final = 512
"""Octets given to expat at a time until the root has begun, so that a DTD is refused before it can do anything."""

_END = b"</url"
_WIDEST_SPAN: Final = 1 << 16


class Reader:
    """A push parser for one document: `feed` bytes as they come, then `close`.

    It keeps no entries. At a fault, `feed` first returns the complete entries before it; the next call raises it.
    `base_uri` is the document's own URI, against which relative ones are resolved. It recognises gzip.
    """

    def __init__(
        self, base_uri: str | None = None, limits: ReadLimits | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """`headers`: those of the HTTP answer, names in lower case (AMB-96, AMB-98)."""
        self._limits = limits or ReadLimits()
        self._warnings = ReaderWarnings()
        self._where = base_uri
        self._builder = RecordBuilder(base_uri, self._limits, self._warnings)
        self._inflater = Inflater(self._limits)
        self._tokens = XmlParser(self._builder, self._limits)
        headers = headers or {}
        self._coding = headers.get("content-encoding", "").strip().lower()
        charset = charset_of(headers.get("content-type"))
        self._input = Utf8Input(charset, self._warnings, self._tokens.skipped)
        self._fast_entries = fast_entries.FastEntries(self._builder)
        self._is_fast = fast_entries.IS_ON and fast_entries.applicable(self._limits)
        self._bound = False
        self._held = b""
        self._searched = 0
        self._span = 0
        self._octets = 0
        self._barren = 0
        self._fault: DocumentFault | None = None
        self._closed = False

    # -- what a caller sees -------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Entry]:
        """Take bytes; return the entries now complete. Raises DocumentFault for what came before."""
        if self._fault is not None:
            raise self._fault
        with self._guarded():
            for block in self._inflater.push(data):
                self._plain(block)
        return self._handed_out()

    def close(self) -> list[Entry]:
        """End the document; return the last entries. Raises DocumentFault if it is not complete."""
        if not self._closed and self._fault is None:
            with self._guarded():
                for block in self._inflater.finish():
                    self._plain(block)
                self._give(self._input.push(b"", final=True))
                held, self._held = self._held, b""
                self._tokens.feed(held)
                self._tokens.finish()
                for rule, what in head_lapses(self._builder.finish()):
                    self._warnings.warn(rule, what)
                if self._tokens.is_over or self._inflater.has_trailing:
                    self._warnings.warn("AMB-92", "what follows the end of the document was left out")
        self._closed = True
        if self._fault is not None:
            raise self._fault
        return self._handed_out()

    @property
    def document(self) -> Document | None:
        """The document's head, final after `close`."""
        return self._builder.document

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """Faults that the reader tolerated so far."""
        return self._warnings.all()

    @property
    def entry_count(self) -> int:
        """Entries read so far."""
        return self._builder.entry_count

    @property
    def skipped_count(self) -> int:
        """Entries without `loc`, or with two values for one attribute."""
        return self._builder.skipped_count

    @property
    def octet_count(self) -> int:
        """Uncompressed bytes read so far."""
        return self._octets

    @property
    def version(self) -> str | None:
        """`1.1` where the document can have no other version, else None."""
        document = self._builder.document
        if self._builder.saw_datetime:
            return "1.1"
        ordered = document is not None and document.kind in (Kind.CHANGE_LIST, Kind.CHANGE_DUMP_MANIFEST)
        return "1.1" if ordered and self._builder.saw_undated_change else None

    # -- from octets to the parser ------------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Keep the fault that ends the reading, for the next call."""
        try:
            yield
        except DocumentFault as fault:
            if isinstance(fault, NotXml) and self._coding.removeprefix("x-") not in ("", "identity", "gzip"):
                fault.what = f"{fault.what}; it came with the content coding {self._coding[:40]}"
            fault.locate(self._where)
            self._fault = fault

    def _handed_out(self) -> list[Entry]:
        entries, self._builder.entries = self._builder.entries, []
        return entries

    def _plain(self, block: bytes) -> None:
        before, self._octets = self._octets, self._octets + len(block)
        if self._octets > DOCUMENT_OCTETS >= before:
            self._warnings.warn("RS-LIM-02", f"more than {DOCUMENT_OCTETS:,} octets in one document")
        found = self._builder.found_count
        self._give(self._input.push(block))
        fruitful = self._builder.found_count > found
        self._barren = 0 if fruitful else self._barren + len(block)
        if self._barren > self._limits.barren_octets:
            raise LimitExceeded(f"more than {self._limits.barren_octets:,} octets without an entry")

    def _give(self, data: bytes) -> None:
        self._tokens.encoding = self._input.encoding
        start = 0
        while self._builder.root is None and start < len(data):
            self._tokens.feed(data[start : start + _PROLOGUE_PIECE])
            start += _PROLOGUE_PIECE
        data = data[start:]
        if not data:
            return
        if self._is_fast and not self._bound:
            self._bound = True
            if (prefixes := self._tokens.usual_prefixes()) is None:
                self._is_fast = False
            else:
                self._fast_entries.bind(prefixes)
        if self._is_fast:
            self._past_the_parser(data)
        else:
            self._tokens.feed(data)

    # -- past the parser ----------------------------------------------------------------------------------------------

    def _past_the_parser(self, data: bytes) -> None:
        data = self._held + data
        self._held = b""
        text = data.decode("latin-1")  # one character an octet; the expression accepts ASCII only
        at = 0
        while at < len(data):
            if self._tokens.between_entries() and self._builder.takes_usual_entries:
                end = self._fast_entries.take(text, at)
                if end > at:
                    self._tokens.skipped(data, at, end)
                    self._span = 0
                    at = end
                if self._hold(data, at):
                    return
            end = self._next_end(data, at)
            self._fast_entries.learn(text[at : min(end, at + fast_entries.HELD)])
            self._tokens.feed(data[at:end])
            at = end

    def _hold(self, data: bytes, at: int) -> bool:
        """Keep back an element that has begun but is not complete; it may still be of the usual shape."""
        if len(data) - at > fast_entries.HELD or data.find(_END, max(at, self._searched)) >= 0:
            self._searched = 0
            return False
        begun = data[at:].lstrip(b" \t\r\n")
        if not (begun.startswith(b"<url>") or b"<url>".startswith(begun)):
            self._searched = 0
            return False
        self._held = data[at:]
        self._searched = max(0, len(self._held) - len(_END))
        return True

    def _next_end(self, data: bytes, at: int) -> int:
        """Where to try the fast path again: after one element, then after longer and longer stretches."""
        end = data.find(_END, at + self._span)
        self._span = min(2 * self._span + 512, _WIDEST_SPAN) if self._span or end >= 0 else 512
        if end < 0:
            return len(data)
        return data.find(b">", end) + 1 or len(data)


class Reading:
    """A document read in chunks: iterate once for the entries, then look at `document` and `warnings`."""

    def __init__(self, chunks: Iterable[bytes], reader: Reader) -> None:
        self.reader = reader
        self._chunks = chunks

    def __iter__(self) -> Iterator[Entry]:
        for chunk in self._chunks:
            yield from self.reader.feed(chunk)
        yield from self.reader.close()

    @property
    def document(self) -> Document | None:
        """The document's head, final after the last entry."""
        return self.reader.document

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """Faults that the reader tolerated so far."""
        return self.reader.warnings


def read_document(chunks: Iterable[bytes], base_uri: str | None = None, limits: ReadLimits | None = None) -> Reading:
    """Read a document as its bytes arrive. Iterating raises DocumentFault after the entries before the fault."""
    return Reading(chunks, Reader(base_uri, limits))


class WholeReading(Reading):
    """A document read to its end: iterate as often as you like; `entries` is the list."""

    def __init__(self, reader: Reader, document: Document, entries: list[Entry]) -> None:
        super().__init__((), reader)
        self.entries = entries
        self._head = document

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def document(self) -> Document:
        """The document's head."""
        return self._head


def read_bytes(data: bytes, base_uri: str | None = None, limits: ReadLimits | None = None) -> WholeReading:
    """Read a whole document. Raises DocumentFault when any of it cannot be read."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UsageFault(f"a document is octets, not of type {type(data).__name__}", advice="Encode it: UTF-8.")
    reader = Reader(base_uri, limits)
    entries = reader.feed(bytes(data))
    entries += reader.close()
    document = reader.document
    if document is None:
        raise AssertionError("a document that was read has a head")
    return WholeReading(reader, document, entries)
