"""Makes OAI-PMH records from octets and metadata: pure functions, whose results are parts of a well-formed answer.

The metadata of an XML resource stand in a record as they are, in UTF-8, without what precedes their first tag. Of a
record that was harvested the `metadata` and `about` elements stay, and only the header is ours. A resource without such
metadata has unqualified Dublin Core, made from what the catalog holds.
"""

import datetime as dt
import hashlib
import pyexpat
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qs, unquote_to_bytes

import msgspec

from headwater.catalog.interface import Metadata
from headwater.spec.checks import escape
from headwater.spec.decoding import Utf8Input
from headwater.spec.text_values import DocumentFault, ReaderWarnings
from headwater.spec.times import from_microseconds
from headwater.typed_decoding import from_json

OAI: Final = "http://www.openarchives.org/OAI/2.0/"
XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
RECORD_OCTETS: Final = 8 << 20  # a record of more is not handed out
_DEPTH: Final = 500
_LONGEST_SPEC, _SPEC_LEVELS = 200, 8  # characters of a setSpec, and sets within sets


class Format(msgspec.Struct, frozen=True):
    """A metadata format, as `ListMetadataFormats` tells it."""

    prefix: str
    namespace: str
    schema: str


_FORMATS: Final = """
oai_dc http://www.openarchives.org/OAI/2.0/oai_dc/ http://www.openarchives.org/OAI/2.0/oai_dc.xsd
marcxml http://www.loc.gov/MARC21/slim http://www.loc.gov/standards/marcxml/schema/MARC21slim.xsd
mods http://www.loc.gov/mods/v3 http://www.loc.gov/standards/mods/v3/mods-3-8.xsd
mets http://www.loc.gov/METS/ http://www.loc.gov/standards/mets/mets.xsd
dim http://www.dspace.org/xmlns/dspace/dim http://www.dspace.org/schema/dim.xsd
qdc http://dspace.org/qualifieddc/ http://dublincore.org/schemas/xmls/qdc/2006/01/06/dcterms.xsd
oai_etdms http://www.ndltd.org/standards/metadata/etdms/1.1/ http://www.ndltd.org/standards/metadata/etdms/1-1/etdms.xsd
datacite http://datacite.org/schema/kernel-4 http://schema.datacite.org/meta/kernel-4/metadata.xsd
oai_datacite http://schema.datacite.org/oai/oai-1.1/ http://schema.datacite.org/oai/oai-1.1/oai.xsd
oai_openaire http://namespace.openaire.eu/schema/oaire/ https://www.openaire.eu/schema/repo-lit/4.0/openaire.xsd
jpcoar_2.0 https://github.com/JPCOAR/schema/blob/master/2.0/ https://github.com/JPCOAR/schema/raw/master/2.0/jpcoar_scm.xsd
lido http://www.lido-schema.org http://www.lido-schema.org/schema/v1.0/lido-v1.0.xsd
ead urn:isbn:1-931666-22-9 http://www.loc.gov/ead/ead.xsd
"""
_KNOWN: Final = {one.namespace: one for one in (Format(*line.split()) for line in _FORMATS.strip().splitlines())}
DUBLIN_CORE: Final = _KNOWN[f"{OAI}oai_dc/"]


class XmlRecord(msgspec.Struct, frozen=True):
    """A resource as the octets before and after the `header` of its record, with the format of its metadata.

    `declares`: the header has to say its namespace itself. `identifier` and `sets` are those of a harvested header.
    """

    format: Format
    opening: bytes
    rest: bytes
    declares: bool = False
    identifier: str = ""
    sets: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the namespace is one of those that are metadata wherever they stand."""
        return self.format.namespace in _KNOWN


_OPENING: Final = b"<record>"
_CLOSING: Final = b"</record>"
_TAG = re.compile(rb"<[^\s/>]+(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
_NAME = re.compile(rb"<[^\s/>]+")
_UNFIT_IN_PREFIX = re.compile(r"[^A-Za-z0-9._-]+")


def read_record(octets: bytes) -> XmlRecord | None:
    """The record that the octets of a resource make: XML, or the metadata of an item as DSpace gives them.

    None for what is neither, has a DTD, or breaks a bound.
    """
    try:
        if octets.startswith(b"{"):
            return _of_dspace(from_json(octets, _DspaceItem))
        if not octets.startswith(b"<") or octets[1:2] == b"\0" or b"encoding" in octets[:100]:
            octets = Utf8Input(None, ReaderWarnings(), lambda *_: None).push(octets, final=True)
        return _Reading(octets).record()
    except (pyexpat.ExpatError, DocumentFault, UnicodeDecodeError, msgspec.DecodeError):
        return None


class _Reading:
    """One document: where its root, and the header of a harvested record, begin and end."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._depth, self._names = 0, list[str]()  # of the elements that are open, the first three
        self._root, self._within = "", 0  # the depth at which metadata stand
        self._root_at = self._end_at = self._header_at = self._header_end_at = -1
        self._has_default = False
        self._payload: tuple[str, str] | None = None  # name and schema locations of the root of the metadata
        self._text: list[str] | None = None
        self._identifier = ""
        self._sets: list[str] = []
        parser = self._parser = pyexpat.ParserCreate("utf-8", " ")
        parser.namespace_prefixes = True
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartNamespaceDeclHandler = self._declared
        parser.Parse(octets, True)  # noqa: FBT003 (takes no name)

    def record(self) -> XmlRecord | None:
        """The parts; None for a record without a header or metadata."""
        is_record = self._root == f"{OAI} record"
        if self._payload is None or (is_record and self._header_end_at < 0):
            return None
        whole = self._octets[self._root_at : self._header_at if is_record else self._end_at]
        if not self._has_default:  # what has no namespace must not get that of the answer in which it stands
            whole = _NAME.sub(rb'\g<0> xmlns=""', whole, count=1)
        told = _format_of(*self._payload)
        if is_record:
            declares = not self._has_default or b":" in whole.split(maxsplit=1)[0]
            rest = self._octets[self._header_end_at : self._end_at]
            return XmlRecord(told, whole, rest, declares, self._identifier, tuple(self._sets))
        body = whole if self._root == f"{OAI} metadata" else b"<metadata>" + whole + b"</metadata>"
        return XmlRecord(told, _OPENING, body + _CLOSING)

    def _declared(self, prefix: str | None, _uri: str | None) -> None:
        self._has_default = self._has_default or (prefix is None and not self._depth)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        depth = self._depth
        self._depth += 1
        if depth > 2:  # nothing in there matters
            if depth > _DEPTH:
                raise DocumentFault("elements within elements, too deep")
            return
        expanded = name.rpartition(" ")[0] if name.count(" ") > 1 else name
        if depth == 0:
            self._root, self._root_at = expanded, self._parser.CurrentByteIndex
            self._within = {f"{OAI} record": 2, f"{OAI} metadata": 1}.get(expanded, 0)
        within, above = self._within, self._names[-1] if depth else ""
        if within == 2 and depth == 1 and expanded == f"{OAI} header" and self._header_at < 0:
            self._header_at = self._parser.CurrentByteIndex
        elif within == 2 and depth == 2 and above == f"{OAI} header":
            self._text = []
        if self._payload is None and depth == within and (within < 2 or above == f"{OAI} metadata"):
            locations = next((text for key, text in attributes.items() if key.startswith(f"{XSI} schemaLocation")), "")
            self._payload = name, locations
        self._names.append(expanded)

    def _end(self, _name: str) -> None:
        self._depth -= 1
        if self._depth > 2:
            return
        name = self._names.pop()
        if self._text is not None and self._depth == 2:
            text = "".join(self._text).strip()
            if name == f"{OAI} identifier":
                self._identifier = text
            elif name == f"{OAI} setSpec":
                self._sets.append(text)
            self._text = None
        elif self._depth == 1 and name == f"{OAI} header" and self._header_end_at < 0:
            self._header_end_at = self._end_of(self._header_at)
        elif self._depth == 0:
            self._end_at = self._end_of(self._root_at)

    def _end_of(self, start: int) -> int:
        """Where the element ends that began there, at its end."""
        tag = _TAG.match(self._octets, start)
        if tag is not None and tag[0].endswith(b"/>"):
            return tag.end()
        return self._octets.find(b">", self._parser.CurrentByteIndex) + 1

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _refuse(self, *_of: object) -> None:
        raise DocumentFault("a document type declaration")


def _format_of(name: str, locations: str) -> Format:
    """The format of metadata with this root: namespace, local name and prefix, and its schema locations."""
    parts = name.split(" ")
    namespace, local, written = (["", *parts, ""] if len(parts) == 1 else [*parts, ""])[:3]
    pairs = locations.split()
    schema = dict(zip(pairs[::2], pairs[1::2], strict=False)).get(namespace)
    if (known := _KNOWN.get(namespace)) is not None:
        return known if schema is None else msgspec.structs.replace(known, schema=schema)
    last = re.split(r"[/#:]", namespace.rstrip("/#"))[-1]
    fitting = (_UNFIT_IN_PREFIX.sub("-", text).strip("-.") for text in (written, last, local, "xml"))
    return Format(next(filter(None, fitting))[:64], namespace, schema or namespace)


# headers

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def element(name: str, text: str) -> bytes:
    """An element with this text; what XML cannot hold is replaced."""
    plain = _NOT_XML.sub("\ufffd", text)
    return f"<{name}>{escape(plain)}</{name}>".encode()


def datestamp(at_us: int) -> str:
    """The second in which a time lies."""
    return from_microseconds(at_us).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def header(identifier: str, at_us: int, specs: Iterable[str], *, is_deleted: bool, declares: bool) -> bytes:
    """The header of a record."""
    attributes = (f' xmlns="{OAI}"' if declares else "") + (' status="deleted"' if is_deleted else "")
    told = [("identifier", identifier), ("datestamp", datestamp(at_us)), *(("setSpec", one) for one in specs)]
    return b"<header%b>%b</header>" % (attributes.encode(), b"".join(element(*one) for one in told))


# sets

_SPEC = re.compile(r"[A-Za-z0-9_.!~*'()-]+(?::[A-Za-z0-9_.!~*'()-]+)*")
_UNFIT_IN_SPEC = re.compile(rb"[^A-Za-z0-9._-]")


def is_text(text: str) -> bool:
    """Whether XML can hold the text."""
    return _NOT_XML.search(text) is None


def is_spec(text: str) -> bool:
    """Whether the text can be a setSpec, of at most 200 characters and 8 levels."""
    return len(text) <= _LONGEST_SPEC and text.count(":") < _SPEC_LEVELS and _SPEC.fullmatch(text) is not None


def spec_of(href: str) -> str:
    """The setSpec of a collection: that of its address at another OAI-PMH server, or else the address, encoded."""
    asked = parse_qs(href.partition("?")[2].partition("#")[0], max_num_fields=None).get("set", [""])[-1]
    if is_spec(asked):
        return asked
    octets = href.encode("utf-8", "replace")
    spec = _UNFIT_IN_SPEC.sub(lambda found: b"~%02X" % found[0][0], octets).decode("ascii")
    return spec if is_spec(spec) else f"{spec[:120]}~-{hashlib.sha256(octets).hexdigest()}"


def with_ancestors(specs: Iterable[str]) -> tuple[str, ...]:
    """The sets, and those above them in the hierarchy."""
    found: dict[str, None] = {}
    for spec in specs:
        parts = spec.split(":")
        found |= dict.fromkeys(":".join(parts[:count]) for count in range(1, len(parts) + 1))
    return tuple(found)


# identifiers of harvested records

_ESCAPED = re.compile(rb"~([0-9A-F]{2})")
_DIGEST = re.compile(r"~-[0-9a-f]{64}\Z")


def harvested_identifier(name: str) -> str | None:
    """The identifier for which a file name stands (`ingest/harvested.py`); None where it holds a digest alone."""
    name = name.removesuffix(".xml")
    if _DIGEST.search(name):
        return None
    octets = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode("utf-8", "replace"))
    return octets.decode("utf-8", "replace")


# Dublin Core

_TYPES: Final = {"text": "Text", "image": "Image", "audio": "Sound", "video": "MovingImage"}
_ELEMENTS: Final = {"author": "creator", "cite-as": "identifier", "license": "rights", "via": "source"}
_RELATED: Final = frozenset({"alternate", "canonical", "collection", "describedby", "describes", "item", "related"})
_START: Final = (
    f'<metadata><oai_dc:dc xmlns:oai_dc="{DUBLIN_CORE.namespace}" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    f' xmlns:xsi="{XSI}" xsi:schemaLocation="{DUBLIN_CORE.namespace} {DUBLIN_CORE.schema}">'
).encode()


def dublin_core(title: str, url: str, metadata: Metadata) -> XmlRecord:
    """Unqualified Dublin Core of the resource at this address: its title or else its name, its type, date and links."""
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    told = [("title", title or unquote_to_bytes(name).decode("utf-8", "replace")), ("identifier", url)]
    if metadata.lastmod is not None:
        told.append(("date", metadata.lastmod.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
    if metadata.type is not None:
        if (kind := _TYPES.get(metadata.type.partition("/")[0])) is not None:
            told.append(("type", kind))
        told.append(("format", metadata.type))
    elements = ((_ELEMENTS.get(one.rel) or (one.rel in _RELATED and "relation"), one.href) for one in metadata.links)
    told += [(name, href) for name, href in elements if name]
    return _of_elements(told)


def _of_elements(told: Iterable[tuple[str, str]]) -> XmlRecord:
    elements = b"".join(element(f"dc:{name}", text) for name, text in told)
    return XmlRecord(DUBLIN_CORE, _OPENING, _START + elements + b"</oai_dc:dc></metadata>" + _CLOSING)


class _DspaceValue(msgspec.Struct):
    value: str | None = None


class _DspaceItem(msgspec.Struct):
    """What `ingest/dspace` keeps of an item, as far as it matters here."""

    metadata: dict[str, list[_DspaceValue]]


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
            told += [(name, one.value) for one in values if one.value]
    return _of_elements(told)


DELETED: Final = XmlRecord(DUBLIN_CORE, _OPENING, _CLOSING)
"""What a record is whose resource is gone: nothing but its header."""
