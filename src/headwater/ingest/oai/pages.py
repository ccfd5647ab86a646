"""Reads one answer of an OAI-PMH repository: records with their octets as they were served, tokens, errors; no I/O.

A record is cut out of the answer by the positions that expat tells. Declarations of namespaces that stand outside it
are added to its first tag; nothing else is. Where the answer is not UTF-8, an XML declaration goes before it.
"""

import datetime as dt
import pyexpat
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from xml.sax.saxutils import quoteattr

import msgspec

from headwater.errors import SourceFault
from headwater.ingest.oai import fast_pages
from headwater.spec.decoding import Inflater, Utf8Input, charset_of
from headwater.spec.kinds import ReadLimits
from headwater.spec.text_values import DocumentFault, ReaderWarnings, Truncated
from headwater.spec.times import from_microseconds, parse_datetime, to_microseconds

PAGE_OCTETS: Final = 128 << 20
_DEPTH: Final = 1_000
_LONGEST: Final = 16_384  # characters of an identifier, a token or another value
_MOST_SETS: Final = 200
_MOST_DECLARED: Final = 16_384  # characters of namespaces that stand outside a record: each gets a copy of them
_MOST_UNREADABLE: Final = 50  # records that are left out of one answer, before all of it counts as broken
_LIMITS: Final = ReadLimits(octets=PAGE_OCTETS, compressed_octets=PAGE_OCTETS)
_OAI: Final = "http://www.openarchives.org/OAI/2.0/ "
_CUT_OFF: Final = frozenset({3, 5, 6, 20})  # of expat: no element, unclosed token, partial character, unclosed CDATA
_ROOT: Final = re.compile(rb"<\?xml\s|<(?:[A-Za-z][\w.-]*:)?OAI-PMH[\s>]")
_ENCODING: Final = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][\w.-]{0,40})["']""")
_TAG: Final = re.compile(rb"<([^\s/>]+)")
_NAMED: Final = re.compile(rb"<(?:[\w.-]+:)?identifier>\s*([^<]{1,4000}?)\s*</")
_ILLEGAL: Final = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|[xX]0*(?:[0-8bcefBCEF]|1[0-9a-fA-F]));"
)
_REPLACEMENT: Final = "\ufffd".encode()


class BadPage(SourceFault):
    """An answer is not OAI-PMH, or cannot be read to its end. `is_cut`: it ends too early."""

    code = "HW-OAI-02"
    is_cut = False


class OaiRecord(msgspec.Struct, frozen=True, gc=False):
    """One record or header. `octets` are empty for a deleted one, for a header, and where there is no metadata."""

    identifier: str
    datestamp: str
    sets: tuple[str, ...]
    is_deleted: bool
    octets: bytes


class OaiPage(msgspec.Struct, kw_only=True):
    """One answer. `error` is an OAI-PMH error: its code and text; `values` are those of `Identify`.

    `size` is `completeListSize`. `repaired` names records with characters that XML does not have, which were replaced;
    `left_out` those that cannot be read, None where they have no name. `has_other`: beside the document there was
    something else, which was left out.
    """

    records: list[OaiRecord] = msgspec.field(default_factory=list)
    token: str | None = None
    size: int | None = None
    responded_at: dt.datetime | None = None
    error: tuple[str, str] | None = None
    values: dict[str, str] = msgspec.field(default_factory=dict)
    repaired: list[str] = msgspec.field(default_factory=list)
    left_out: list[str | None] = msgspec.field(default_factory=list)
    has_other: bool = False


@lru_cache(maxsize=4_096)
def time_of(text: str) -> dt.datetime | None:
    """A datestamp as a time, that of a day as its beginning; None for what is no time."""
    try:
        if len(text) == 20 and text[-1] == "Z":  # nearly all, and quick
            return dt.datetime.fromisoformat(text)
        return from_microseconds(to_microseconds(parse_datetime(text)[0]))
    except ValueError:
        return None


def _bad(what: str, *, is_cut: bool = False) -> BadPage:
    fault = BadPage(what)
    fault.is_cut = is_cut
    return fault


class _Element(msgspec.Struct, gc=False):
    """An element of the third level, or above, of a document: its name, that of its parent, and where it lies.

    Names without the namespace of OAI-PMH are those of other namespaces. `outside` are the declarations that it needs.
    """

    level: int
    name: str
    parent: str
    said: dict[str, str]
    begin: int
    outside: str
    end: int = 0
    text: str = ""


class _Scan:
    """Reads a document down to its third level: `elements` are those that have ended, `last` is the one that began."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.elements: list[_Element] = []
        self.last: _Element | None = None
        self.is_over = False
        self.parser = pyexpat.ParserCreate("utf-8", " ")

    def read(self) -> list[_Element]:
        """The elements. Raises ExpatError, BadPage; what follows the root is nothing (`is_over`)."""
        parser, depth, declared = self.parser, 0, dict[str | None, str]()
        opened, scopes, words = list[_Element](), [dict[str | None, str]()], list[str]()

        def start(name: str, attributes: list[str]) -> None:
            nonlocal depth
            depth += 1
            if depth > 3:
                if depth > _DEPTH:
                    raise _bad(f"elements more than {_DEPTH:,} deep")
                return
            local = name[len(_OAI) :] if name.startswith(_OAI) else name
            outside = scopes[-1]
            if depth == 3:
                parser.StartNamespaceDeclHandler = None
                added = _declarations(outside, declared) if declared else plain[0]
            else:
                scopes.append(outside | declared)
                plain[0], added = _declarations(scopes[-1], {}), ""
            declared.clear()
            said = dict(zip(attributes[::2], attributes[1::2], strict=True)) if attributes else {}
            parent = opened[-1].name if opened else ""
            self.last = one = _Element(depth, local, parent, said, parser.CurrentByteIndex, added)
            opened.append(one)
            words.clear()
            parser.CharacterDataHandler = None if local == "record" else words.append

        def end(_name: str) -> None:
            nonlocal depth
            if depth <= 3:
                one, at = opened.pop(), parser.CurrentByteIndex
                one.text = "".join(words).strip()
                words.clear()
                if depth == 3:
                    parser.StartNamespaceDeclHandler = declared.__setitem__
                    tag = _TAG.match(self.text, one.begin)
                    is_empty = tag is None or not self.text.startswith(b"</" + tag[1], at)  # then `at` is its end
                    one.end = at if is_empty else self.text.index(b">", at) + 1
                else:
                    scopes.pop()
                if len(one.text) > _LONGEST:
                    raise _bad(f"a <{one.name[:40]}> of more than {_LONGEST:,} characters")
                self.elements.append(one)
            depth -= 1

        plain = [""]
        parser.buffer_text = parser.ordered_attributes = True
        parser.StartDoctypeDeclHandler = _refuse_dtd
        parser.StartNamespaceDeclHandler = declared.__setitem__
        parser.StartElementHandler, parser.EndElementHandler = start, end
        try:
            parser.Parse(self.text, True)  # noqa: FBT003 (takes no name)
        except pyexpat.ExpatError:
            if depth or not self.elements:
                raise
            self.is_over = True
        return self.elements

    def cut(self, one: _Element) -> bytes:
        """The octets of an element of the third level, with the declarations that stand outside it."""
        tag = _TAG.match(self.text, one.begin)
        assert tag is not None
        return b"%b%b%b" % (tag[0], one.outside.encode(), self.text[tag.end() : one.end])


def _refuse_dtd(*_: object) -> None:
    raise _bad("a web page, or a document with a DTD, in place of OAI-PMH")


def _declarations(outside: Mapping[str | None, str], own: Mapping[str | None, str]) -> str:
    """The declarations of namespaces that stand outside an element which has its `own`. Raises BadPage."""
    text = "".join(
        f" xmlns{f':{prefix}' if prefix else ''}={quoteattr(uri)}"
        for prefix, uri in outside.items()
        if uri and prefix not in own
    )
    if len(text) > _MOST_DECLARED:
        raise _bad(f"more than {_MOST_DECLARED:,} characters of namespaces outside the records")
    return text


def read_page(body: bytes, headers: Mapping[str, str], *, metadata_only: bool = False) -> OaiPage:
    """Read an answer that came with these HTTP headers (names in lower case). Raises BadPage.

    With `metadata_only` the octets of a record are those of the element in its `metadata`.
    """
    decoded, inflater = Utf8Input(charset_of(headers.get("content-type")), ReaderWarnings(), lambda *_: None), None
    try:
        if body.startswith(b"\x1f\x8b"):
            inflater = Inflater(_LIMITS)
            body = b"".join([*inflater.push(body), *inflater.finish()])
        text = decoded.push(body, final=True)
    except DocumentFault as fault:
        raise _bad(fault.what, is_cut=isinstance(fault, Truncated)) from fault
    begin = _ROOT.search(text, 0, 1 << 16)
    if begin is None:
        raise _bad(f"not OAI-PMH: {text[:80].decode('utf-8', 'replace')!a}", is_cut=not text)
    served = text[begin.start() :]
    is_usual = fast_pages.IS_ON and decoded.encoding == "utf-8" and not metadata_only
    found = fast_pages.find_records(served) if is_usual else None
    page = _page(served, decoded.encoding, found, metadata_only=metadata_only)
    if found is not None and not page.records:  # they are something else
        page = _page(served, decoded.encoding, metadata_only=metadata_only)
    page.has_other = page.has_other or begin.start() > 0
    return page


def _page(
    served: bytes, encoding: str, found: fast_pages.FoundRecords | None = None, *, metadata_only: bool = False
) -> OaiPage:
    """Read the text of an answer, or the rest of it where its records were found."""
    text, page = served if found is None else found.rest, OaiPage()
    while True:
        scan = _Scan(text)
        try:
            elements = scan.read()
            break
        except pyexpat.ExpatError as cause:
            what = pyexpat.ErrorString(cause.code)
            if cause.code in _CUT_OFF:
                raise _bad(f"the answer is cut off ({what})", is_cut=True) from cause
            text, before = _ILLEGAL.sub(_REPLACEMENT, text.decode("utf-8", "replace").encode()), text
            if text != before:
                continue
            place = _broken_record(scan)
            if place is None or len(page.left_out) >= _MOST_UNREADABLE:
                raise _bad(f"not well-formed XML: {what}, line {cause.lineno}") from cause
            named = _NAMED.search(text, *place)
            page.left_out.append(named[1].decode() if named else None)
            text = text[: place[0]] + text[place[1] :]
    if elements[-1].name != "OAI-PMH":
        raise _bad(f"not OAI-PMH, but <{elements[-1].name.rpartition(' ')[2][:40]}>")
    if all(one.level != 2 or one.name in ("responseDate", "request") for one in elements):
        raise _bad("the answer has neither a list nor an error", is_cut=True)
    page.has_other = scan.is_over
    for one in elements:
        if one.level == 3 and one.name == "record" and found is not None:
            tag = f"<record{one.outside}>".encode()
            page.records = [
                OaiRecord(name, datestamp, sets, is_deleted, octets and tag + octets)
                for name, datestamp, sets, is_deleted, octets in found.records
            ]
        elif one.level == 3 and one.name in ("record", "header"):
            octets = scan.cut(one)
            record = _record(octets, is_record=one.name == "record", metadata_only=metadata_only)
            if not record.identifier:
                page.left_out.append(None)
                continue
            if text is not served and text[one.begin : one.end] not in served:
                page.repaired.append(record.identifier)
            if encoding != "utf-8" and record.octets:
                record = msgspec.structs.replace(record, octets=_in_encoding(record.octets, encoding, served))
            page.records.append(record)
        elif one.level == 3 and one.name == "resumptionToken":
            size = one.said.get("completeListSize", "").strip()
            page.token = one.text or None
            page.size = int(size) if size.isascii() and size.isdigit() and len(size) < 16 else None
        elif one.level == 3 and one.parent == "Identify":
            page.values.setdefault(one.name, one.text)
        elif one.level == 2 and one.name == "responseDate":
            page.responded_at = time_of(one.text)
        elif one.level == 2 and one.name == "error" and (page.error is None or page.error[0] == "noRecordsMatch"):
            page.error = one.said.get("code", ""), one.text
    return page


def _broken_record(scan: _Scan) -> tuple[int, int] | None:
    """Where the record lies in which the reading ended; None: what is wrong is not in a record, or that has no end."""
    one = scan.last
    if one is None or one.level < 3 or one.end or (tag := _TAG.match(scan.text, one.begin)) is None:
        return None
    end = re.compile(rb"</" + re.escape(tag[1]) + rb"\s*>").search(scan.text, scan.parser.ErrorByteIndex)
    return None if end is None else (one.begin, end.end())


def _record(octets: bytes, *, is_record: bool, metadata_only: bool) -> OaiRecord:
    """The record or header with these octets."""
    scan = _Scan(octets if is_record else b"<r>%b</r>" % octets)
    elements = scan.read()
    inside = [one for one in elements if one.level == 3]
    said = {one.name: one.text for one in reversed(inside) if one.parent == "header"}
    sets = tuple(one.text for one in inside if one.parent == "header" and one.name == "setSpec" and one.text)
    is_deleted = any(one.name == "header" and one.said.get("status", "").strip() == "deleted" for one in elements)
    metadata = [one for one in inside if one.parent == "metadata"]
    kept = octets if is_record else b""
    if metadata_only:
        kept = scan.cut(metadata[0]) if metadata else b""
    return OaiRecord(
        said.get("identifier", ""),
        said.get("datestamp", ""),
        sets[:_MOST_SETS],
        is_deleted,
        b"" if is_deleted else kept,
    )


def _in_encoding(octets: bytes, encoding: str, served: bytes) -> bytes:
    """The octets in the encoding of the answer, with a declaration that says so."""
    named = _ENCODING.match(served)
    name = named[1].decode() if named else encoding.replace("iso8859", "iso-8859").replace("cp125", "windows-125")
    whole = f'<?xml version="1.0" encoding="{name}"?>\n{octets.decode()}'
    return whole.encode(encoding, "xmlcharrefreplace")
