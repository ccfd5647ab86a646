"""Makes OAI-PMH records from octets and metadata: pure functions, whose results are parts of a well-formed answer.

The metadata of an XML resource stand in a record as they are, in UTF-8, without what precedes their first tag. Of a
record that was harvested the `metadata` and `about` elements stay, and only the header is ours. A resource without such
metadata has unqualified Dublin Core, made from what the catalog holds.
"""

import hashlib
import pyexpat
import re
from collections.abc import Iterable
from itertools import accumulate
from pkgutil import get_data
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote_to_bytes

import msgspec

from headwater.catalog.interface import Metadata
from headwater.spec.checks import NOT_XML, escape
from headwater.spec.decoding import Utf8Input
from headwater.spec.text_values import DocumentFault, ReaderWarnings
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.typed_decoding import from_json

OAI: Final = "http://www.openarchives.org/OAI/2.0/"
XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
RECORD_OCTETS: Final = 8 << 20  # a record of more is not handed out
_DEPTH: Final = 500


class Format(NamedTuple):
    """A metadata format, as `ListMetadataFormats` tells it."""

    prefix: str
    schema: str
    namespace: str


_LINES: Final = (get_data("headwater.publish", "oai_formats.txt") or b"").decode().splitlines()
KNOWN: Final = {one.namespace: one for one in (Format(*line.split()) for line in _LINES)}
"""The formats that are metadata wherever they stand, by namespace."""
DUBLIN_CORE: Final = KNOWN[f"{OAI}oai_dc/"]


class XmlRecord(msgspec.Struct, frozen=True):
    """The octets of a record before and after its `header`, with the format of its metadata."""

    format: Format
    rest: bytes
    opening: bytes = b"<record>"


_CLOSING: Final = b"</record>"
DELETED: Final = XmlRecord(DUBLIN_CORE, _CLOSING)
"""What a record is whose resource is gone: nothing but its header."""

_RECORD, _HEADER, _METADATA, _ABOUT = (f"{OAI} {name}" for name in ("record", "header", "metadata", "about"))
_TAG_NAME: Final = re.compile(rb"<[^\s/>]+")


def read_record(octets: bytes) -> XmlRecord | None:
    """The record that the octets of a resource make: XML, or the metadata of an item as DSpace gives them.

    None for what is neither, has a DTD, or breaks a bound, and for a record with other parts than OAI-PMH has.
    """
    try:
        if octets.startswith(b"{"):
            return _of_dspace(from_json(octets, _DspaceItem))
        if not octets.startswith(b"<") or octets[1:2] == b"\0" or b"encoding" in octets[:100]:
            octets = Utf8Input(None, ReaderWarnings(), lambda *_: None).push(octets, final=True)
        return _of_xml(octets)
    except (pyexpat.ExpatError, DocumentFault, UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


class _Element(NamedTuple):
    """An element: how deep it lies, where it begins, and its schema locations."""

    depth: int
    name: str
    start: int
    locations: str


def _elements(octets: bytes) -> tuple[list[_Element], bool]:
    """The elements of the first three levels, in order; whether the root declares a namespace without a prefix.

    Raises ExpatError; DocumentFault for a document type declaration, and for elements that lie too deep.
    """
    parser = pyexpat.ParserCreate("utf-8", " ")
    found, declared, depth = list[_Element](), list[bool](), 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        if depth < 3:
            locations = attributes.get(f"{XSI} schemaLocation", "")
            found.append(_Element(depth, name, parser.CurrentByteIndex, locations))
        elif depth > _DEPTH:
            raise DocumentFault("elements within elements, too deep")
        depth += 1

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_of: object) -> None:
        raise DocumentFault("a document type declaration")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, refuse
    parser.StartNamespaceDeclHandler = lambda prefix, _uri: declared.append(not prefix and not found)
    parser.Parse(octets, True)  # noqa: FBT003 (takes no name)
    return found, any(declared)


def _of_xml(octets: bytes) -> XmlRecord | None:
    """The record that a document is: a harvested one, its `metadata`, or what stands in these; None for another record.

    What follows the root stays behind it: comments and instructions may stand in a record, too.
    """
    elements, has_default = _elements(octets)
    root, parts = elements[0], [one for one in elements if one.depth == 1]
    names, is_record, payload = [one.name for one in parts], root.name == _RECORD, root
    if is_record and (names[:2] != [_HEADER, _METADATA] or {*names[2:]} - {_ABOUT}):
        return None
    holder = parts[1] if is_record else root
    if holder.name == _METADATA:
        payload = [*elements, root][elements.index(holder) + 1]
        if payload.depth <= holder.depth:
            return None
    opening = octets[root.start : parts[0].start if is_record else len(octets)]
    if not has_default:  # what has no namespace must not get that of the answer in which it stands
        opening = _TAG_NAME.sub(rb'\g<0> xmlns=""', opening, count=1)
    if is_record:
        return XmlRecord(_format_of(payload), octets[parts[1].start :], opening)
    body = opening if payload is not root else b"<metadata>" + opening + b"</metadata>"
    return XmlRecord(_format_of(payload), body + _CLOSING)


def _format_of(root: _Element) -> Format:
    """The format of metadata. A namespace that is not known has its short name as prefix."""
    namespace = root.name.rpartition(" ")[0]
    if (known := KNOWN.get(namespace)) is not None:
        return known
    pairs = root.locations.split()
    schema = dict(zip(pairs[::2], pairs[1::2], strict=False)).get(namespace, namespace)
    return Format(short_name(namespace), schema, namespace)


def short_name(address: str) -> str:
    """A name for an address that prefixes and setSpecs may have: its last part, and a digest of the whole."""
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/#:?]", address.rstrip("/#:"))[-1])
    digest = hashlib.sha256(address.encode("utf-8", "replace")).hexdigest()
    return f"{last.strip('-.')[:64] or 'x'}-{digest[:8]}"


# headers


def element(name: str, text: str) -> bytes:
    """An element with this text; what XML cannot hold is replaced."""
    plain = NOT_XML.sub("\ufffd", text)
    return f"<{name}>{escape(plain)}</{name}>".encode()


def datestamp(at_us: int) -> str:
    """The second in which a time lies."""
    return f"{from_microseconds(at_us).replace(tzinfo=None, microsecond=0).isoformat()}Z"


def header(identifier: str, at_us: int, specs: Iterable[str], *, is_deleted: bool) -> bytes:
    """The header of a record; it says its namespace itself, since records of others may have another one."""
    told = [("identifier", identifier), ("datestamp", datestamp(at_us)), *(("setSpec", one) for one in specs)]
    attributes = f'xmlns="{OAI}"' + ' status="deleted"' * is_deleted
    return b"<header %b>%b</header>" % (attributes.encode(), b"".join(element(*one) for one in told))


# sets

_SPEC: Final = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9_.!~*'()-]+(?::[A-Za-z0-9_.!~*'()-]+){0,7}")


def is_spec(text: str) -> bool:
    """Whether the text can be a setSpec, of at most 200 characters and 8 levels."""
    return _SPEC.fullmatch(text) is not None


def set_of(href: str) -> tuple[str, str]:
    """The setSpec and the name of a collection: as another OAI-PMH server has it, or else of its address."""
    asked = parse_qs(href.partition("?")[2].partition("#")[0], max_num_fields=None).get("set", [""])[-1]
    return (asked, asked) if is_spec(asked) else (short_name(href), href)


def with_ancestors(specs: Iterable[str]) -> list[str]:
    """The sets, and those above them in the hierarchy."""
    return list(dict.fromkeys(one for spec in specs for one in accumulate(spec.split(":"), "{}:{}".format)))


_ESCAPED = re.compile(rb"~([0-9A-F]{2})")
_DIGEST = re.compile(r"~-[0-9a-f]{64}\Z")


def unescaped(name: str) -> str | None:
    """The text for which the file name of a record stands (`ingest/harvested.py`); None: it has a digest instead."""
    if _DIGEST.search(name):
        return None
    octets = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode("utf-8", "replace"))
    return octets.decode("utf-8", "replace")


# Dublin Core

_TYPES: Final = {"text": "Text", "image": "Image", "audio": "Sound", "video": "MovingImage"}
_RELATED: Final = ("alternate", "canonical", "collection", "describedby", "describes", "item", "related")
_ELEMENTS: Final = {"author": "creator", "cite-as": "identifier", "license": "rights", "via": "source"}
_ELEMENTS.update(dict.fromkeys(_RELATED, "relation"))
_START: Final = (
    f'<metadata><oai_dc:dc xmlns:oai_dc="{DUBLIN_CORE.namespace}" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    f' xmlns:xsi="{XSI}" xsi:schemaLocation="{DUBLIN_CORE.namespace} {DUBLIN_CORE.schema}">'
).encode()


def dublin_core(item: str, url: str, metadata: Metadata) -> XmlRecord:
    """Unqualified Dublin Core of the resource at this address: its identifier or name, its type, date and links."""
    name = unquote_to_bytes(url.partition("?")[0].rstrip("/").rpartition("/")[2])
    told = [("title", item if item != url else name.decode("utf-8", "replace")), ("identifier", url)]
    if metadata.lastmod is not None:
        told.append(("date", datestamp(to_microseconds(metadata.lastmod))))
    if metadata.type is not None:
        if (kind := _TYPES.get(metadata.type.partition("/")[0])) is not None:
            told.append(("type", kind))
        told.append(("format", metadata.type))
    told += [(_ELEMENTS[one.rel], one.href) for one in metadata.links if one.rel in _ELEMENTS]
    return _of_elements(told)


def _of_elements(told: Iterable[tuple[str, str]]) -> XmlRecord:
    elements = b"".join(element(f"dc:{name}", text) for name, text in told)
    return XmlRecord(DUBLIN_CORE, _START + elements + b"</oai_dc:dc></metadata>" + _CLOSING)


class _DspaceItem(msgspec.Struct):
    """What `ingest/dspace` keeps of an item, as far as it matters here."""

    metadata: dict[str, list[dict[str, str | float | None]]]


_DC: Final = re.compile(
    "contributor|coverage|creator|date|description|format|identifier|language|publisher|relation|rights|source|subject"
    "|title|type"
)


def _of_dspace(item: _DspaceItem) -> XmlRecord:
    """Unqualified Dublin Core of the fields `dc.ELEMENT.QUALIFIER`; authors are creators."""
    told = list[tuple[str, str]]()
    for field, values in item.metadata.items():
        schema, name, qualifier = (*field.split("."), "", "")[:3]
        name = "creator" if (name, qualifier) == ("contributor", "author") else name
        if schema == "dc" and _DC.fullmatch(name) and qualifier != "provenance":
            told += [(name, text) for one in values if (text := one.get("value")) and isinstance(text, str)]
    return _of_elements(told)
