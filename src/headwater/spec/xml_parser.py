"""The XML parser: expat with namespaces on, DTDs refused, tokens bounded, and time linear in the document's length."""

import pyexpat
import re
from typing import Final

from headwater.spec.kinds import RS, SITEMAP, ReadLimits
from headwater.spec.record_builder import RecordBuilder
from headwater.spec.text_values import (
    DocumentFault,
    DtdRefused,
    EmptyDocument,
    LimitExceeded,
    NotSitemap,
    NotXml,
    Truncated,
)

_PIECE: Final = 1 << 16
_ALWAYS: Final = 1 << 14
"""Up to this many octets of an unfinished token expat may start over for each piece; beyond, pieces are gathered."""

_NO_ELEMENTS: Final = 3
_LONG_LINE: Final = 1_000  # octets of a line, on average, beyond which a fault tells its octet as well
_CUT_OFF: Final = frozenset({_NO_ELEMENTS, 5, 6, 20})  # no element, unclosed token, partial character, unclosed CDATA
_INVALID: Final = 4
_TEXT_MET: Final = "a text Sitemap (an address on each line), which Headwater does not read"
_TEXT_ADVICE: Final = "Give the address of a Sitemap in XML, or of a ResourceSync document."
_TEXT_SITEMAP = re.compile(rb"https?://[^\s<>]+[ \t]*(?:[\r\n]|$)", re.IGNORECASE)
_PAGE_MET: Final = "a web page (HTML), not a ResourceSync document"
_HEAD: Final = 1 << 10
"""Octets from the beginning that are kept, to tell a web page from broken XML."""

WEB_PAGE = re.compile(
    rb"(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)


class XmlParser:
    """Feeds expat, and knows at each moment whether it stands between two entries."""

    def __init__(self, builder: RecordBuilder, limits: ReadLimits) -> None:
        self._builder = builder
        self._limits = limits
        self._fed = 0
        self._gathered = bytearray()
        self._skipped_lines = self._skipped_octets = 0
        self._in_cdata = False
        self._bindings: dict[str | None, str | None] = {}
        self._head = b""
        self.encoding = "utf-8"
        """What the octets were in before they were recoded, for the message of a fault."""

        self.is_over = False
        """Whether something that is no XML follows the end of the root, and was not read (AMB-92)."""

        parser = self._parser = pyexpat.ParserCreate("utf-8", " ")  # whatever the document declares
        parser.buffer_text = True
        parser.ordered_attributes = True
        if (deferral := getattr(parser, "SetReparseDeferralEnabled", None)) is not None:
            # expat 2.6 and later hold finished tokens back to stay linear; `feed` sees to that itself
            deferral(False)  # noqa: FBT003 (takes no name)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = builder.end
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartCdataSectionHandler = lambda: setattr(self, "_in_cdata", True)
        parser.EndCdataSectionHandler = lambda: setattr(self, "_in_cdata", False)
        parser.StartNamespaceDeclHandler = self._bindings.__setitem__

    # -- feeding ------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Give octets in UTF-8 to expat, from the first markup on. Raises DocumentFault."""
        if not data:
            return
        if len(self._head) < _HEAD:
            self._head += data[: _HEAD - len(self._head)]
        for start in range(0, len(data), _PIECE):
            if self.is_over:
                return
            piece = data[start : start + _PIECE]
            unfinished = self._unfinished()
            if unfinished > _ALWAYS or self._gathered:
                # expat 2.5 scans an unfinished token from its start for each piece: gather until it has doubled
                self._gathered += piece
                if unfinished + len(self._gathered) > self._limits.token_octets + _PIECE:
                    self._end(self._too_long())
                    return
                if len(self._gathered) < unfinished:
                    continue
                piece = bytes(self._gathered)
                self._gathered.clear()
            self._parse(piece)
            if self._unfinished() > self._limits.token_octets:
                self._end(self._too_long())

    def finish(self) -> None:
        """The end of the document. Raises Truncated, EmptyDocument or NotXml when it is not complete."""
        for piece, final in ((bytes(self._gathered), False), (b"", True)):
            if not self.is_over:
                self._parse(piece, final=final)

    def skipped(self, data: bytes, start: int, end: int) -> None:
        """Octets that went past expat: they matter for the place of a fault."""
        self._skipped_octets += end - start
        self._skipped_lines += data.count(b"\n", start, end)
        if data.find(b"\r", start, end) >= 0:
            self._skipped_lines += data.count(b"\r", start, end) - data.count(b"\r\n", start, end)

    def between_entries(self) -> bool:
        """Whether all that was fed is complete and what comes next stands directly below the root."""
        return (
            self._builder.depth == 1
            and not self._in_cdata
            and not self._gathered
            and self._parser.CurrentByteIndex == self._fed
        )

    def usual_prefixes(self) -> frozenset[str] | None:
        """The prefixes of the ResourceSync namespace, once the root has begun; None where the fast path is no use."""
        if self._bindings.get(None) != SITEMAP:
            return None
        return frozenset(prefix for prefix, uri in self._bindings.items() if prefix is not None and uri == RS)

    def _unfinished(self) -> int:
        return self._fed - max(self._parser.CurrentByteIndex, 0)

    def _too_long(self) -> LimitExceeded:
        return LimitExceeded(f"a tag or comment of more than {self._limits.token_octets:,} octets", rule="AMB-10")

    def _parse(self, piece: bytes, *, final: bool = False) -> None:
        self._fed += len(piece)
        try:
            self._parser.Parse(piece, final)
        except pyexpat.ExpatError as cause:
            self._end(self._fault_of(cause, final=final))
        except DocumentFault as fault:
            self._placed(fault)
            raise

    def _end(self, fault: DocumentFault) -> None:
        """Raise the fault; none is a fault once the root is closed, for then the document is complete (AMB-92)."""
        if self._builder.root is None or self._builder.depth:
            raise self._placed(fault)
        self.is_over = True

    def _placed(self, fault: DocumentFault) -> DocumentFault:
        """The fault with its place: where lines are long, a line alone would be none."""
        if self._head:
            fault.line = self._parser.CurrentLineNumber + self._skipped_lines
            octet = self._parser.CurrentByteIndex + self._skipped_octets + 1
            fault.what += f", at byte {octet:,}" if octet > _LONG_LINE * fault.line else ""
        return fault

    def _fault_of(self, cause: pyexpat.ExpatError, *, final: bool) -> DocumentFault:
        if final and not self._head and cause.code == _NO_ELEMENTS:
            return EmptyDocument("the document is empty")
        if self._builder.root is None and WEB_PAGE.match(self._head):
            return NotSitemap(_PAGE_MET)  # HTML as it is usually written, which XML cannot read
        if self._builder.root is None and _TEXT_SITEMAP.match(self._head):
            return NotSitemap(_TEXT_MET, advice=_TEXT_ADVICE)
        what = pyexpat.ErrorString(cause.code)
        if cause.code == _INVALID and self.encoding != "utf-8":
            what += f", read as {self.encoding}"
        if final and cause.code in _CUT_OFF:
            return Truncated(f"the document is cut off ({what})")
        return NotXml(f"not well-formed XML: {what}")

    # -- what expat says ----------------------------------------------------------------------------------------------

    def _start(self, name: str, attributes: list[str]) -> None:
        builder = self._builder
        if builder.depth == 0:
            builder.start(name, attributes)
            # The root is known and its bindings with it; from here on namespaces are expat's own affair, and
            # characters matter.
            self._parser.StartNamespaceDeclHandler = None
            self._parser.StartElementHandler = builder.start
            self._parser.CharacterDataHandler = builder.text
            return
        builder.start(name, attributes)

    def _doctype(self, name: str, _system: str | None, _public: str | None, _has_internal_subset: int) -> None:
        if name.lower() == "html":
            raise NotSitemap(_PAGE_MET)
        raise DtdRefused("the document has a document type declaration (DTD)")
