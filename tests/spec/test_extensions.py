"""What Headwater adds to documents: written, read back, valid under its schema, ignored by foreign readers."""

import datetime as dt
from io import BytesIO
from pathlib import Path

import pytest
from lxml import etree
from resync.capability_list import CapabilityList
from resync.resource_dump_manifest import ResourceDumpManifest

from headwater.spec.extensions import DumpLimits, DumpOffer, dump_link, dump_offer
from headwater.spec.kinds import DUMP, HEADWATER, Kind, ReadLimits
from headwater.spec.reader import read_bytes
from headwater.spec.records import AbsenceReason, AbsentResource, Document, Entry, Link
from headwater.spec.text_values import LimitExceeded
from headwater.spec.writer import WriteRefused, write_document
from tests.spec.test_schemas import XSD

UP = Link(rel="up", href="http://example.com/capabilitylist.xml")
OFFER = DumpOffer(href="http://example.com/files/dump", limits=DumpLimits(resources=50_000, octets=1 << 40, requests=8))
CAPABILITIES = Document(kind=Kind.CAPABILITY_LIST, capability="capabilitylist", links=(UP, dump_link(OFFER)))
LISTED = [Entry(loc="http://example.com/resourcelist.xml", capability="resourcelist")]
ABSENT = tuple(AbsentResource(f"http://example.com/a&b/{one.value}", one) for one in AbsenceReason)
MANIFEST = Document(
    kind=Kind.RESOURCE_DUMP_MANIFEST,
    capability="resourcedump-manifest",
    at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    links=(UP,),
    absent=ABSENT,
)
PACKED = [Entry(loc="http://example.com/a", path="/resources/a")]
DOCUMENTS = [(CAPABILITIES, LISTED), (MANIFEST, PACKED)]


def written(document: Document, entries: list[Entry]) -> bytes:
    return b"".join(write_document(document, entries))


@pytest.mark.parametrize(("document", "entries"), DOCUMENTS, ids=["offer", "absent"])
def test_round_trip(document: Document, entries: list[Entry]) -> None:
    read = read_bytes(written(document, entries))
    assert (read.document, read.entries, read.warnings) == (document, entries, ())


def test_an_offer_of_the_past_is_read() -> None:
    past = DumpOffer(href=OFFER.href, limits=OFFER.limits, past=True)
    document = Document(kind=Kind.CAPABILITY_LIST, capability="capabilitylist", links=(UP, dump_link(past)))
    assert dump_offer(read_bytes(written(document, LISTED)).document) == past


def test_an_offer_is_read() -> None:
    """RS-LN-01: its relation is an absolute URI."""
    assert dump_offer(read_bytes(written(CAPABILITIES, LISTED)).document) == OFFER
    assert dump_offer(Document(kind=Kind.CAPABILITY_LIST, links=(UP,))) is None


@pytest.mark.parametrize("limit", ["", "0", "-1", "1.5", "many", "9" * 30, "\u0661"])
@pytest.mark.parametrize("name", ["resources", "octets", "requests"])
def test_an_offer_with_limits_that_mean_nothing_is_none(name: str, limit: str) -> None:
    good = dict(dump_link(OFFER).extra)
    good[f"{{{HEADWATER}}}{name}"] = limit
    link = Link(rel=DUMP, href=OFFER.href, extra=tuple(good.items()))
    assert dump_offer(Document(kind=Kind.CAPABILITY_LIST, links=(UP, link))) is None


@pytest.mark.parametrize(("document", "entries"), DOCUMENTS, ids=["offer", "absent"])
def test_valid_with_its_schema(document: Document, entries: list[Entry]) -> None:
    """RS-DOC-13, RS-DOC-18: foreign elements and attributes pass the schemas of the standard when theirs is known."""
    schemas = {
        "http://www.sitemaps.org/schemas/sitemap/0.9": XSD / "sitemap.xsd",
        "http://www.openarchives.org/rs/terms/": XSD / "resourcesync-1.1.xsd",
        HEADWATER: Path(__file__).parents[2] / "docs" / "headwater.xsd",
    }
    imports = "".join(
        f'<xsd:import namespace="{name}" schemaLocation="{path.as_uri()}"/>' for name, path in schemas.items()
    )
    text = f'<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema">{imports}</xsd:schema>'
    schema = etree.XMLSchema(etree.parse(BytesIO(text.encode())))
    schema.validate(etree.fromstring(written(document, entries)))
    assert [str(error.message) for error in schema.error_log] == []


def test_a_foreign_reader_ignores_both() -> None:
    listed = CapabilityList()
    listed.parse(str_data=written(CAPABILITIES, LISTED).decode())
    assert [one.uri for one in listed] == [LISTED[0].loc]
    assert listed.up == UP.href
    manifest = ResourceDumpManifest()
    manifest.parse(str_data=written(MANIFEST, PACKED).decode())
    assert [(one.uri, one.path) for one in manifest] == [(PACKED[0].loc, PACKED[0].path)]


MARKUP = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'
    ' xmlns:hw="%s"><rs:md capability="resourcedump-manifest" at="2026-01-02T00:00:00Z"/>%s</urlset>'
)


@pytest.mark.parametrize(
    ("element", "absent"),
    [
        ('<hw:absent uri="http://a.example/x" reason="gone"/>', ("http://a.example/x", AbsenceReason.GONE)),
        ('<hw:absent uri="http://a.example/x" reason="eaten"/>', ("http://a.example/x", None)),
        ('<hw:absent uri="http://a.example/x"/>', ("http://a.example/x", None)),
        ('<hw:absent uri="http://a.example/x"><rs:ln/><hw:absent/></hw:absent>', ("http://a.example/x", None)),
        ("<hw:absent reason='gone'/>", None),
        ("<hw:present uri='http://a.example/x'/>", None),
    ],
)
def test_absent_resources_are_read_leniently(element: str, absent: tuple[str, AbsenceReason | None] | None) -> None:
    read = read_bytes((MARKUP % (HEADWATER, element)).encode())
    assert read.document.absent == (() if absent is None else (AbsentResource(*absent),))
    assert read.entries == []


def test_absent_resources_are_bounded() -> None:
    element = '<hw:absent uri="http://a.example/x" reason="gone"/>'
    with pytest.raises(LimitExceeded):
        read_bytes((MARKUP % (HEADWATER, element * 11)).encode(), limits=ReadLimits(entries=10))


@pytest.mark.parametrize(
    "document",
    [
        Document(kind=Kind.RESOURCE_LIST, at=MANIFEST.at, links=(UP,), absent=ABSENT),
        Document(kind=Kind.RESOURCE_DUMP_MANIFEST, at=MANIFEST.at, links=(UP,), absent=(AbsentResource("http://a/"),)),
        Document(
            kind=Kind.RESOURCE_DUMP_MANIFEST,
            at=MANIFEST.at,
            links=(UP,),
            absent=(AbsentResource("relative", AbsenceReason.GONE),),
        ),
    ],
    ids=["no manifest", "no reason", "relative"],
)
def test_what_is_no_use_is_not_written(document: Document) -> None:
    with pytest.raises(WriteRefused):
        written(document, [])
