"""Answers of OAI-PMH repositories, read whole or in spite of what is wrong with them."""

import gzip
import hashlib
import time
from xml.etree import ElementTree

import pytest

from headwater.ingest.oai.pages import BadPage, OaiPage, read_page
from tests.support.fake_repository import HEAD, Item, dc

OAI = "http://www.openarchives.org/OAI/2.0/"
DECLARED = f'xmlns="{OAI}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
ONE = Item("oai:example.org:1", "2024-01-02T03:04:05Z", {"oai_dc": dc(title="Ä & B")}, ("a", "b:c"))
TWO = Item("oai:example.org:2", "2024-01-02", {"oai_dc": dc(title="two")})
GONE = Item("oai:example.org:3", "2024-01-03", {}, deleted=True)


def page(*parts: str, verb: str = "ListRecords", end: str = "") -> bytes:
    date = "<responseDate>2024-06-01T00:00:00Z</responseDate><request>http://example.org</request>"
    return f"{HEAD}{date}<{verb}>{''.join(parts)}{end}</{verb}></OAI-PMH>".encode()


def read(body: bytes, content_type: str = "text/xml", **options: bool) -> OaiPage:
    return read_page(body, {"content-type": content_type}, **options)


def test_a_page_of_records_is_read() -> None:
    token = '<resumptionToken completeListSize="7" cursor="0" expirationDate="x"> next|1 </resumptionToken>'
    found = read(page(*(one.record("oai_dc") for one in (ONE, TWO, GONE)), end=token))
    told = [(one.identifier, one.datestamp, one.sets, one.is_deleted) for one in found.records]
    assert told == [
        ("oai:example.org:1", "2024-01-02T03:04:05Z", ("a", "b:c"), False),
        ("oai:example.org:2", "2024-01-02", (), False),
        ("oai:example.org:3", "2024-01-03", (), True),
    ]
    assert (found.token, found.size, str(found.responded_at)) == ("next|1", 7, "2024-06-01 00:00:00+00:00")
    assert found.records[2].octets == b""
    assert (found.has_other, found.repaired, found.left_out) == (False, [], [])


def test_octets_are_as_served_but_for_declarations_that_stand_outside() -> None:
    served = ONE.record("oai_dc").replace("<record>", "<record  >").replace("</metadata>", "</metadata><!-- x -->\n")
    octets = read(page(served)).records[0].octets
    assert octets == served.replace("<record", f"<record {DECLARED}", 1).encode()
    assert ElementTree.fromstring(octets).tag == f"{{{OAI}}}record"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<x/>", f"<x {DECLARED}/>"),
        ('<x xmlns="urn:x" xmlns:xsi="urn:y">a</x>', '<x xmlns="urn:x" xmlns:xsi="urn:y">a</x>'),
        ('<x:y xmlns:x="u" a=">"/>', f'<x:y {DECLARED} xmlns:x="u" a=">"/>'),
        (' <m><m/><metadata xmlns="urn:m"/></m > <!-- - --><second/>', None),
        ("<x><![CDATA[</x></record>]]></x>", None),
    ],
)  # fmt: skip
def test_metadata_alone(inside: str, expected: str | None) -> None:
    head = "<header><identifier>a:1</identifier><datestamp>2024-01-01</datestamp></header>"
    about = "<about><rights xmlns='urn:r'/></about>"
    record = f"<record>{head}<metadata>{inside}</metadata>{about}</record>"
    found = read(page(record, TWO.record("oai_dc")), metadata_only=True)
    assert [one.identifier for one in found.records] == ["a:1", TWO.identifier]
    octets = found.records[0].octets
    if expected is not None:
        assert octets.decode() == expected
    ElementTree.fromstring(octets)
    assert ElementTree.fromstring(found.records[1].octets).tag.endswith("}dc")


def test_prefixes_of_the_protocol_itself_do_not_matter() -> None:
    body = (
        f'<o:OAI-PMH xmlns:o="{OAI}" xmlns="urn:other"><o:responseDate>2024-06-01T00:00:00Z</o:responseDate>'
        '<o:ListRecords xmlns:q="urn:q"><o:record xmlns:own="urn:own"><o:header status="deleted"><o:identifier>a:1'
        "</o:identifier><o:datestamp>2024-01-01</o:datestamp></o:header></o:record><o:record><o:header><o:identifier>a:2"
        "</o:identifier><o:datestamp>2024-01-01</o:datestamp></o:header><o:metadata><q:x/></o:metadata></o:record>"
        "<record>of another namespace</record></o:ListRecords></o:OAI-PMH>"
    )
    found = read(body.encode())
    assert [(one.identifier, one.is_deleted) for one in found.records] == [("a:1", True), ("a:2", False)]
    tag = f'<o:record xmlns:o="{OAI}" xmlns="urn:other" xmlns:q="urn:q">'
    assert found.records[1].octets.startswith(tag.encode())
    ElementTree.fromstring(found.records[1].octets)


def test_nested_records_of_the_same_namespace_are_content() -> None:
    inner = f'<OAI-PMH xmlns="{OAI}"><ListRecords>{TWO.record("oai_dc")}</ListRecords></OAI-PMH>'
    outer = Item("a:1", "2024-01-01", {"oai_dc": inner})
    for only in (False, True):
        found = read(page(outer.record("oai_dc"), GONE.record("oai_dc")), metadata_only=only)
        assert [one.identifier for one in found.records] == ["a:1", GONE.identifier]
        assert b"two" in found.records[0].octets


def test_errors_and_identify() -> None:
    found = read(f'{HEAD}<error code="noRecordsMatch">a</error><error code="badArgument">b</error></OAI-PMH>'.encode())
    assert found.error == ("badArgument", "b")
    body = f"{HEAD}<Identify><granularity>YYYY-MM-DD</granularity><description><granularity xmlns='u'>x</granularity>"
    assert read(f"{body}</description></Identify></OAI-PMH>".encode()).values["granularity"] == "YYYY-MM-DD"


@pytest.mark.parametrize(
    ("encoding", "declared", "content_type", "name"),
    [
        ("iso-8859-1", "ISO-8859-1", "text/xml", "ISO-8859-1"),
        ("cp1252", "windows-1252", "text/xml", "windows-1252"),
        ("cp1252", "", "text/xml; charset=windows-1252", "windows-1252"),
        ("shift_jis", "Shift_JIS", "text/xml", "Shift_JIS"),
        ("utf-16", "UTF-16", "text/xml", "UTF-16"),
    ],
)
def test_other_encodings_are_kept_and_said(encoding: str, declared: str, content_type: str, name: str) -> None:
    text = "表" if encoding == "shift_jis" else "größer"
    item = Item("a:1", "2024-01-01", {"oai_dc": dc(title=text)})
    head = f' encoding="{declared}"' if declared else ""
    body = page(item.record("oai_dc")).decode().replace(' encoding="UTF-8"', head).encode(encoding)
    octets = read(body, content_type).records[0].octets
    assert octets.startswith(f'<?xml version="1.0" encoding="{name}"?>\n'.encode(encoding))
    assert text.encode(encoding)[-2:] in octets
    if encoding != "shift_jis":  # which expat does not know
        assert text in "".join(ElementTree.fromstring(octets).itertext())


BEFORE, AFTER = b"<br />\n<b>Warning</b>: x in <b>y.php</b><br />\n", b"\n<br /><b>Notice</b>: undefined & x"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: b"\n \n" + body,
        lambda body: gzip.compress(body),
        lambda body: body.replace(b'<?xml version="1.0" encoding="UTF-8"?>\n', b""),
        lambda body: body.replace(b"UTF-8", b"utf8"),
    ],
)  # fmt: skip
def test_what_is_usual_is_no_fault(spoil) -> None:
    found = read(spoil(page(ONE.record("oai_dc"))))
    assert [one.identifier for one in found.records] == [ONE.identifier]
    assert (found.has_other, found.repaired, found.left_out) == (False, [], [])


@pytest.mark.parametrize(("before", "after"), [(BEFORE, b""), (b"", AFTER), (BEFORE, AFTER)])
def test_what_stands_beside_the_document_is_left_out_and_told(before: bytes, after: bytes) -> None:
    found = read(before + page(ONE.record("oai_dc")) + after)
    assert found.has_other
    assert found.records == read(page(ONE.record("oai_dc"))).records


@pytest.mark.parametrize("bad", [b"a\x0bb", b"a\x00b", b"a&#x1;b", b"a&#11;b", b"gr\xf6\xdfe"])
def test_characters_that_xml_does_not_have_are_replaced_in_their_record_alone(bad: bytes) -> None:
    body = page(ONE.record("oai_dc"), TWO.record("oai_dc").replace("two", "BAD")).replace(b"BAD", bad)
    found = read(body)
    assert found.repaired == [TWO.identifier]
    assert found.records[0] == read(page(ONE.record("oai_dc"))).records[0]
    assert "\ufffd" in "".join(ElementTree.fromstring(found.records[1].octets).itertext())


@pytest.mark.parametrize("bad", ["&nbsp;", "a & b", "<b>", "a < b", "</dc:title>"])
def test_a_record_that_is_not_well_formed_is_left_out_alone(bad: str) -> None:
    record = TWO.record("oai_dc").replace("two", bad)
    found = read(
        page(ONE.record("oai_dc"), record, GONE.record("oai_dc"), record, end="<resumptionToken>t</resumptionToken>")
    )
    assert [one.identifier for one in found.records] == [ONE.identifier, GONE.identifier]
    assert (found.left_out, found.token) == ([TWO.identifier] * 2, "t")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.7, 0.8, 0.9, 0.99])
def test_a_document_that_is_cut_is_refused(share: float) -> None:
    body = page(*(one.record("oai_dc") for one in (ONE, TWO, GONE)))
    with pytest.raises(BadPage):
        read(body[: int(share * len(body))])


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><html><body>Are you human?</body></html>",
        b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "x" "y"><html xmlns="http://www.w3.org/1999/xhtml"/>',
        b'<?xml version="1.0"?><rss/>',
        b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><OAI-PMH xmlns="%s">&b;</OAI-PMH>' % OAI.encode(),
        b"<OAI-PMH/>",
        b'{"error": "x"}',
        page(f"<record><metadata>{'<x>' * 2_000}{'</x>' * 2_000}</metadata></record>"),
        page(ONE.record("oai_dc").replace(ONE.identifier, "a" * 20_000)),
    ],
)  # fmt: skip
def test_what_is_not_oai_pmh_is_refused(body: bytes) -> None:
    with pytest.raises(BadPage) as caught:
        read(body)
    assert caught.value.code == "HW-OAI-02"


def test_a_record_without_an_identifier_is_counted() -> None:
    found = read(page(ONE.record("oai_dc").replace(ONE.identifier, " "), TWO.record("oai_dc")))
    assert (found.left_out, len(found.records)) == ([None], 1)


def test_the_same_record_has_the_same_digest_wherever_it_stands() -> None:
    alone = read(page(ONE.record("oai_dc"))).records[0].octets
    among = read(page(TWO.record("oai_dc"), GONE.record("oai_dc"), ONE.record("oai_dc"))).records[2].octets
    assert hashlib.sha256(alone).digest() == hashlib.sha256(among).digest()


def test_namespaces_outside_the_records_are_bounded() -> None:
    """Each record gets a copy of them."""
    many = "".join(f' xmlns:n{number}="urn:{"x" * 100}{number}"' for number in range(200))
    body = page(ONE.record("oai_dc")).replace(b"<OAI-PMH ", f"<OAI-PMH{many} ".encode())
    with pytest.raises(BadPage, match="namespaces"):
        read(body)


@pytest.mark.parametrize(
    "odd",
    [
        ("<metadata>", "<!-- </record> --><metadata>"),
        ("Ä &amp; B", "<![CDATA[</record><record>]]>"),
        ("<metadata>", "<?x </record>?><metadata>"),
        ("<header>", "<!-- <header> --><header status = 'x' >"),
        ("<metadata>", "<metadata><record xmlns='urn:m' a='/>'><record/></record>"),
        ("<metadata>", "<metadata><recordInfo xmlns='urn:m'>x</recordInfo>"),
        ("<record>", "<record xmlns:x='urn:x' x:a='>' >"),
        ("oai:example.org:1", "\n<!-- x -->oai:example&#46;org:1<?x?>\n"),
        ("oai:example.org:1", "<![CDATA[oai:example.org:1]]>"),
    ],
)  # fmt: skip
def test_records_that_are_written_in_other_ways_are_read_whole(odd: tuple[str, str]) -> None:
    served, others = ONE.record("oai_dc").replace(*odd, 1), [TWO.record("oai_dc"), GONE.record("oai_dc")]
    for found in (read(page(served, *others)), read(page(*others, served, *others[:1]).replace(b"two", b"&nbsp;", 1))):
        (one,) = (one for one in found.records if one.identifier == ONE.identifier)
        assert (len(found.records), one.datestamp, one.sets) == (3, ONE.datestamp, ONE.sets)
        assert one.octets == served.replace("<record", f"<record {DECLARED}", 1).encode()
        ElementTree.fromstring(one.octets)


def test_records_whose_names_have_another_prefix_than_the_document_are_told() -> None:
    named = page(ONE.record("oai_dc")).replace(b'xmlns="', b'xmlns:o="').replace(b"OAI-PMH", b"o:OAI-PMH")
    body = named.replace(b"<List", f'<List xmlns="{OAI}"'.encode()).replace(f'"{OAI}"Records'.encode(), b"")
    with pytest.raises(BadPage):
        read(body)


def test_runs_of_blanks_cost_no_time() -> None:
    """A hostile page would hold up every set of the source."""
    blanks = " " * 3_900
    sets = Item("a:1", "2024-01-01", {"oai_dc": dc(title="x")}, tuple(f" {n}{blanks}x " for n in range(200)))
    broken = f"<record><header><identifier> a:2{' ' * 100_000}x</identifier></broken></record>"
    named = "<record><header><identifier> a:3\n</identifier></broken></record>"
    other = "<record><header><identifier>a&amp;4</identifier></broken><dc:identifier>5</dc:identifier></record>"
    began = time.perf_counter()
    found, sound = read(page(broken, named, other)), read(page(sets.record("oai_dc")))
    assert time.perf_counter() - began < 1
    assert found.left_out == [None, "a:3", None]
    assert sound.records[0].sets == tuple(f"{n}{blanks}x" for n in range(200))
