"""The two ways in which an answer with records is read give the same."""

import pytest

from headwater.ingest.oai import fast_pages
from headwater.ingest.oai.pages import BadPage, OaiPage, read_page
from tests.ingest.test_oai_pages import GONE, OAI, ONE, TWO, page
from tests.support.fake_repository import Item, dc

RECORDS = [one.record("oai_dc") for one in (ONE, TWO, GONE)]
NESTED = f'<OAI-PMH xmlns="{OAI}">{RECORDS[1]}{RECORDS[2]}</OAI-PMH>'
END = '<resumptionToken completeListSize="9">a|b &amp; c</resumptionToken>'


def both(body: bytes, monkeypatch: pytest.MonkeyPatch) -> OaiPage | str:
    found: list[OaiPage | str] = []
    for is_on in (True, False):
        monkeypatch.setattr(fast_pages, "IS_ON", is_on)
        try:
            found.append(read_page(body, {}))
        except BadPage as fault:
            found.append(str(fault))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "body",
    [
        page(*RECORDS, end=END),
        page(*("\n " + one + "\n" for one in RECORDS), end=END),
        page(RECORDS[0]),
        page(*RECORDS).replace(b"<ListRecords>", b'<ListRecords xmlns:x="urn:x">'),
        page(*RECORDS).replace(b'xmlns="', b'xmlns:a="urn:a&amp;b" xmlns="'),
    ],
)
def test_usual_answers_are_found_and_read_the_same(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_pages.find_records(body) is not None
    assert both(body, monkeypatch)


@pytest.mark.parametrize(
    "record",
    [
        RECORDS[0].replace("<metadata>", "<!-- </record> --><metadata>"),
        RECORDS[0].replace("Ä &amp; B", "<![CDATA[</record><record>]]>"),
        RECORDS[0].replace("<metadata>", "<?x </record>?><metadata>"),
        RECORDS[0].replace("oai:example.org:1", "a&amp;b"),
        RECORDS[0].replace("oai:example.org:1", " "),
        RECORDS[0].replace("<header>", "<header status='deleted'>"),
        RECORDS[0].replace("<record>", '<record xmlns:x="urn:x">'),
        Item("a", "2024-01-01", {"oai_dc": "<record><header/></record>"}).record("oai_dc"),
        Item("a", "2024-01-01", {"oai_dc": '<recordInfo xmlns="urn:m">x</recordInfo>'}).record("oai_dc"),
        Item("a", "2024-01-01", {"oai_dc": NESTED}).record("oai_dc"),
        RECORDS[0].replace("<record>", "<x:record xmlns:x='urn:x'>").replace("</record>", "</x:record>"),
        RECORDS[0].replace("Ä", "\x0b"),
        RECORDS[0].replace("</dc:title>", ""),
        RECORDS[0].replace("dc:", "undeclared:", 1),
    ],
)  # fmt: skip
def test_unusual_answers_are_read_the_same(record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (page(record), page(*RECORDS, record, *RECORDS, end=END), page(record, *RECORDS)):
        both(body, monkeypatch)


@pytest.mark.parametrize("name", ["List", "GetRecord"])
def test_records_that_stand_elsewhere_are_read_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both(page(*RECORDS, verb=name), monkeypatch)
    both(page(f"<x>{''.join(RECORDS)}</x>"), monkeypatch)
    named = page(*RECORDS).replace(b'xmlns="', b'xmlns:o="').replace(b"OAI-PMH", b"o:OAI-PMH")
    both(named, monkeypatch)
    both(page(*RECORDS) + b"<br>", monkeypatch)
    both(page(dc(title="x")), monkeypatch)
