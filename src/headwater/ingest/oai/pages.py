"""Reads one answer of an OAI-PMH repository: records with their octets as they were served, tokens, errors; no I/O.

Records are cut out of the answer as text, and expat judges whether all of it is well-formed: where it is not, record by
record. Declarations of namespaces that stand outside a record are added to its first tag; nothing else is. Where the
answer is not UTF-8, an XML declaration goes before it.
"""

import datetime as dt
import pyexpat
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.spec.decoding import MAGIC, Inflater, Utf8Input, charset_of
from headwater.spec.kinds import ReadLimits
from headwater.spec.text_values import DocumentFault, ReaderWarnings
from headwater.spec.times import from_microseconds, parse_datetime, to_microseconds

PAGE_OCTETS: Final = 128 << 20
_DEPTH: Final = 1_000
_ANY_DEPTH_OCTETS: Final = 8 << 20  # an answer of no more may be nested to any depth: expat keeps little of it
_LONGEST: Final = 16_384  # characters of an identifier, a token or another value
_MOST_SETS: Final = 200
_MOST_DECLARED: Final = 16_384  # octets of namespaces that stand outside a record: each gets a copy of them
_LIMITS: Final = ReadLimits(octets=PAGE_OCTETS, compressed_octets=PAGE_OCTETS)
_OAI: Final = "http://www.openarchives.org/OAI/2.0/ "
_BESIDE: Final = re.compile(rb"(?s:\s++|<\?.*?\?>|<!--.*?-->)*+")  # what may stand before the root, and behind it
_ROOT: Final = re.compile(rb"<((?:[A-Za-z][\w.-]*:)?)OAI-PMH[\s>]")
_ENCODING: Final = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][\w.-]{0,40})["']""")
_NAMESPACE: Final = re.compile(rb"""\s(xmlns(?::[^\s=]+)?)\s*=\s*("[^"<]*"|'[^'<]*')|"[^"<]*"|'[^'<]*'""")
_NAMED: Final = re.compile(rb"<(?:[\w.-]+:)?identifier(?:\s[^<>]*)?>(?:([^<&]{1,4000})</)?")
_SPEC: Final = re.compile(rb">([^<&]+)<")
_NAME: Final = re.compile(rb"<[^\s/>]+")
_CHILD: Final = re.compile(rb"(?s:[^<]++|<!--.*?-->|<\?.*?\?>)*+<([^\s/>!?]+)")
_ILLEGAL: Final = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|[xX]0*(?:[0-8bcefBCEF]|1[0-9a-fA-F]));"
)
_REPLACEMENT: Final = "\ufffd".encode()


class BadPage(SourceFault):
    """An answer is not OAI-PMH, or cannot be read to its end."""

    code = "HW-OAI-02"


class OaiRecord(msgspec.Struct, frozen=True, gc=False):
    """One record. `octets` are empty for a deleted one, and where there is no metadata."""

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


def read_page(body: bytes, headers: Mapping[str, str], *, metadata_only: bool = False) -> OaiPage:
    """Read an answer that came with these HTTP headers (names in lower case). Raises BadPage.

    With `metadata_only` the octets of a record are those of the element in its `metadata`.
    """
    decoded = Utf8Input(charset_of(headers.get("content-type")), ReaderWarnings(), lambda *_: None)
    try:
        if body.startswith(MAGIC):
            inflater = Inflater(_LIMITS)
            body = b"".join([*inflater.push(body), *inflater.finish()])
        served = decoded.push(body, final=True)
    except DocumentFault as fault:
        raise BadPage(fault.what) from fault
    root = _ROOT.search(served, 0, 1 << 16)
    if root is None:
        raise BadPage(f"not OAI-PMH: {served[:80].decode('utf-8', 'replace')!a}")
    begin, prefix = root.start(), root[1]
    last = served.rfind(b"</%bOAI-PMH" % prefix)
    end = served.find(b">", last) + 1
    if last < begin or not end:
        raise BadPage("the answer is cut off")
    page = OaiPage(has_other=not (_BESIDE.fullmatch(served, 0, begin) and _BESIDE.fullmatch(served, end)))
    _read_rest(page, _read_records(page, served[begin:end], prefix, metadata_only=metadata_only))
    if decoded.encoding != "utf-8":
        named = _ENCODING.search(served, 0, begin)
        page.records = [_in_encoding(one, decoded.encoding, named and named[1].decode()) for one in page.records]
    return page


@lru_cache(maxsize=256)
def _pattern(name: bytes) -> re.Pattern[bytes]:
    """Finds tags with this name, and what may look like one and is none: comments, CDATA and instructions."""
    name = re.escape(name)
    first, last = rb"%b(?:\s(?:[^<>\"']++|\"[^\"<]*\"|'[^'<]*')*+|/)?>" % name, rb"/%b\s*>" % name
    others = rb"!--.*?(?:-->|\Z)|!\[CDATA\[.*?(?:\]\]>|\Z)|\?.*?(?:\?>|\Z)"
    return re.compile(rb"(?s:<(?:%b|%b|%b))" % (first, last, others))


def _tags(text: bytes, name: bytes, at: int = 0) -> Iterator[re.Match[bytes]]:
    """The tags with this name behind a place."""
    return (tag for tag in _pattern(name).finditer(text, at) if text[tag.start() + 1] not in b"!?")


def _cut(text: bytes, name: bytes, at: int = 0) -> Iterator[tuple[int, int, int]]:
    """Where the elements with this name behind a place begin, where their first tags end, and where they end; without
    those within another one of them."""
    depth, begin, inside = 0, 0, 0
    for tag in _tags(text, name, at):
        start, end = tag.span()
        if text.startswith(b"</", start):
            depth -= 1
        else:
            if depth == 0:
                begin, inside = start, end
            depth += not text.endswith(b"/>", 0, end)
        if depth == 0:
            yield begin, inside, end
        elif depth < 0:  # of an element that began before
            return


def _read_records(page: OaiPage, text: bytes, prefix: bytes, *, metadata_only: bool) -> bytes:
    """Read the records of an answer; returns it without them."""
    root, opened = (next(_tags(text, prefix + name), None) for name in (b"OAI-PMH", b"ListRecords"))
    if root is None or opened is None:
        return text
    outside, is_sound, header = _namespaces(root[0]) | _namespaces(opened[0]), _is_well_formed(text), _header(prefix)
    first_tags, rest, at = dict[bytes, bytes](), list[bytes](), 0
    for begin, inside, end in _cut(text, b"%brecord" % prefix, opened.end()):
        rest.append(text[at:begin])
        at, tag = end, text[begin:inside]
        first = first_tags.get(tag) or first_tags.setdefault(tag, _declared(tag, outside))
        octets = first + text[inside:end]
        sound = octets if is_sound else _made_sound(octets)
        record = None if sound is None else _record(sound, header.match(sound, len(first)))
        if record is None or not record.identifier:
            named = _NAMED.search(octets)
            page.left_out.append(((named and named[1]) or b"").decode("utf-8", "replace").strip() or None)
            continue
        if sound is not octets:
            page.repaired.append(record.identifier)
        if metadata_only:
            record = msgspec.structs.replace(record, octets=_metadata(record.octets, prefix))
        page.records.append(record)
    return b"".join(rest) + text[at:]


@lru_cache(maxsize=256)
def _header(prefix: bytes) -> re.Pattern[bytes]:
    """The header of a record as nearly all write it."""
    return re.compile(
        rb"\s*<P:header(?:\s+status=\"(deleted)\")?\s*>\s*<P:identifier>([^<&]{1,4000})</P:identifier>\s*"
        rb"<P:datestamp>([^<&]{1,100})</P:datestamp>((?:\s*<P:setSpec>[^<&]{0,4000}</P:setSpec>){0,200})\s*"
        rb"</P:header>".replace(b"P:", re.escape(prefix))
    )


def _record(octets: bytes, header: re.Match[bytes] | None) -> OaiRecord:
    """The record with these octets, of which the header was found if it is a usual one."""
    if header is not None:
        identifier, datestamp = header[2].decode().strip(), header[3].decode().strip()
        sets = tuple(spec for one in _SPEC.findall(header[4]) if (spec := one.decode().strip()))
        is_deleted = header[1] is not None
    else:
        elements = _outline(octets)
        said = {one.name: one.text for one in reversed(elements) if one.parent == "header"}
        identifier, datestamp = said.get("identifier", ""), said.get("datestamp", "")
        specs = (one.text for one in elements if one.parent == "header" and one.name == "setSpec" and one.text)
        sets = tuple(specs)[:_MOST_SETS]
        is_deleted = any(one.name == "header" and one.said.get("status", "").strip() == "deleted" for one in elements)
    return OaiRecord(identifier, datestamp, sets, is_deleted, b"" if is_deleted else octets)


def _metadata(octets: bytes, prefix: bytes) -> bytes:
    """The element in the metadata of a record; empty where there is none."""
    first = next(_tags(octets, b"%brecord" % prefix), None)
    metadata = first and next(_cut(octets, b"%bmetadata" % prefix, first.end()), None)
    child = metadata and _CHILD.match(octets, *metadata[1:])
    if not (first and metadata and child):
        return b""
    outside = _namespaces(first[0]) | _namespaces(octets[metadata[0] : metadata[1]])
    begin, inside, end = next(_cut(octets, child[1], child.start(1) - 1))
    return _declared(octets[begin:inside], outside) + octets[inside:end]


def _namespaces(tag: bytes) -> dict[bytes, bytes]:
    """The declarations of namespaces in a tag, as they are written there."""
    return {name: uri for name, uri in _NAMESPACE.findall(tag) if name}


def _declared(tag: bytes, outside: Mapping[bytes, bytes]) -> bytes:
    """A first tag with the declarations added that stand outside it. Raises BadPage."""
    own = _namespaces(tag)
    added = b"".join(b" %b=%b" % (name, uri) for name, uri in outside.items() if name not in own and len(uri) > 2)
    if len(added) > _MOST_DECLARED:
        raise BadPage(f"more than {_MOST_DECLARED:,} octets of namespaces outside the records")
    return _NAME.sub(lambda name: name[0] + added, tag, count=1)


def _is_well_formed(text: bytes) -> bool:
    """Whether expat can read it. Raises BadPage for what is too deep."""
    try:
        if len(text) > _ANY_DEPTH_OCTETS:
            _outline(text)
        else:
            pyexpat.ParserCreate("utf-8", " ").Parse(text, True)  # noqa: FBT003 (takes no name)
    except pyexpat.ExpatError:
        return False
    return True


def _made_sound(text: bytes) -> bytes | None:
    """The text, where it needs that with characters replaced that XML does not have; None: it is not well-formed."""
    if _is_well_formed(text):
        return text
    text = _ILLEGAL.sub(_REPLACEMENT, text.decode("utf-8", "replace").encode())
    return text if _is_well_formed(text) else None


class _Element(NamedTuple):
    """An element of the third level, or above, of a document.

    Names without the namespace of OAI-PMH are those of other namespaces.
    """

    level: int
    name: str
    parent: str
    said: dict[str, str]
    text: str


def _outline(text: bytes) -> list[_Element]:
    """The elements of a document down to the third level, as they end. Raises ExpatError, BadPage."""
    parser = pyexpat.ParserCreate("utf-8", " ")
    found, opened, words = list[_Element](), list[tuple[str, dict[str, str]]](), list[str]()

    def start(name: str, said: dict[str, str]) -> None:
        opened.append((name.removeprefix(_OAI), said))
        if len(opened) <= 3:
            words.clear()
        elif len(opened) > _DEPTH:
            raise BadPage(f"elements more than {_DEPTH:,} deep")

    def end(_name: str) -> None:
        level, (name, said) = len(opened), opened.pop()
        if level <= 3:
            value = "".join(words).strip()
            words.clear()
            if len(value) > _LONGEST:
                raise BadPage(f"a <{name[:40]}> of more than {_LONGEST:,} characters")
            found.append(_Element(level, name, opened[-1][0] if opened else "", said, value))

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, words.append
    parser.Parse(text, True)  # noqa: FBT003 (takes no name)
    return found


def _read_rest(page: OaiPage, text: bytes) -> None:
    """Read an answer without its records. Raises BadPage."""
    sound = _made_sound(text)
    if sound is None:
        raise BadPage("not well-formed XML, or cut off")
    elements = _outline(sound)
    if all(one.level != 2 or one.name in ("responseDate", "request") for one in elements):
        raise BadPage("the answer has neither a list nor an error")
    for one in elements:
        if one.level == 3 and one.name == "record":
            raise BadPage("records with another prefix than the document")
        if one.level == 3 and one.name == "resumptionToken":
            size = one.said.get("completeListSize", "").strip()
            page.token = one.text or None
            page.size = int(size) if size.isascii() and size.isdigit() and len(size) < 16 else None
        elif one.level == 3 and one.parent == "Identify":
            page.values.setdefault(one.name, one.text)
        elif one.level == 2 and one.name == "responseDate":
            page.responded_at = time_of(one.text)
        elif one.level == 2 and one.name == "error" and (page.error is None or page.error[0] == "noRecordsMatch"):
            page.error = one.said.get("code", ""), one.text


def _in_encoding(record: OaiRecord, encoding: str, name: str | None) -> OaiRecord:
    """The record with its octets in the encoding of the answer, and a declaration that says so."""
    if not record.octets:
        return record
    name = name or encoding.replace("iso8859", "iso-8859").replace("cp125", "windows-125")
    whole = f'<?xml version="1.0" encoding="{name}"?>\n{record.octets.decode()}'
    return msgspec.structs.replace(record, octets=whole.encode(encoding, "xmlcharrefreplace"))
