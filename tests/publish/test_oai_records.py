"""Octets of any kind as records of OAI-PMH: what comes of them stands in an answer without harm to it."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

import pytest

from headwater.catalog.interface import Metadata
from headwater.publish.oai_records import (
    OAI,
    XmlRecord,
    dublin_core,
    header,
    is_spec,
    read_record,
    set_of,
    unescaped,
    with_ancestors,
)

START = f'<OAI-PMH xmlns="{OAI}"><ListRecords>'.encode()
GOOD = [
    f'<record xmlns="{OAI}" xmlns:x="urn:x"><header><identifier>i</identifier><setSpec>s</setSpec></header>'
    '<metadata><x:a b="&lt;/>"><c/>ä</x:a></metadata><about><d xmlns=""/></about></record>',
    f"<o:record\n\txmlns:o=\"{OAI}\"><o:header status=''><o:identifier>i</o:identifier></o:header>"
    "<o:metadata><a/></o:metadata></o:record>",
    f'<?xml version="1.0"?><!-- <record> --><metadata xmlns="{OAI}"><a xmlns="urn:a"><![CDATA[</a>]]></a></metadata>',
    '<m:a xmlns:m="urn:m#b" m:c=">" d=\'"\'><e><?f g?></e></m:a><!-- > -->\n',
]


def answer(record: XmlRecord) -> ET.Element:
    """The root of an answer with this record."""
    head = header("i&<", 0, ["s"], is_deleted=False)
    return ET.fromstring(b"".join((START, record.opening, head, record.rest, b"</ListRecords></OAI-PMH>")))


def check(record: XmlRecord) -> None:
    root = answer(record)
    (found,) = root.findall(f".//{{{OAI}}}ListRecords/{{{OAI}}}record")
    assert [one.tag.partition("}")[2] for one in found][:2] == ["header", "metadata"]
    assert found.findtext(f"{{{OAI}}}header/{{{OAI}}}identifier") == "i&<"


@pytest.mark.parametrize("text", GOOD)
def test_a_record_is_spliced_into_an_answer(text: str) -> None:
    record = read_record(text.encode())
    assert record is not None
    check(record)
    assert b"\xc3\xa4" in record.rest or "ä" not in text


def test_a_comment_that_holds_the_header_stays_whole() -> None:
    head = "<header><identifier>i</identifier></header>"
    text = f'<record xmlns="{OAI}"><!--{head}-->{head}<metadata><a xmlns="urn:a"/></metadata></record>'
    record = read_record(text.encode())
    assert record is not None
    assert record.opening.endswith(f"<!--{head}-->".encode())
    check(record)


@pytest.mark.parametrize(
    "text",
    [
        f'<record xmlns="{OAI}"><metadata><a/></metadata></record>',
        f'<record xmlns="{OAI}"><header/><metadata/></record>',
        f'<record xmlns="{OAI}"><header/></record>',
        f'<record xmlns="{OAI}"><header/><header/><metadata><a/></metadata></record>',
        f'<record xmlns="{OAI}"><header/><metadata><a/></metadata><header/></record>',
        f'<record xmlns="{OAI}"><metadata><a/></metadata><header/></record>',
        f'<record xmlns="{OAI}"/>',
        f'<metadata xmlns="{OAI}"/>',
        "{}",
        '{"metadata": {"dc.title": [1]}}',
        "[]",
        pytest.param('{"metadata": {}, "x": ' + "[" * 200_000 + "]" * 200_000 + "}", id="deep"),
        "text",
        "\0",
    ],
)
def test_what_is_no_record(text: str) -> None:
    assert read_record(text.encode()) is None


@pytest.mark.parametrize("text", ["<é/>", '<é xmlns="urn:/"/>', '<a xmlns="-"/>', '<a:b xmlns:a="urn:x" a:c=""/>'])
def test_any_root_gives_a_prefix(text: str) -> None:
    record = read_record(text.encode())
    assert record is not None
    check(record)
    assert is_spec(record.format.prefix)


def test_damaged_records_never_damage_an_answer() -> None:
    chance = random.Random(7)
    texts = [one.encode() for one in GOOD]
    pieces = [
        b"<",
        b">",
        b"/",
        b'"',
        b"'",
        b"\0",
        b"\xff",
        b"<!--",
        b"]]>",
        b"<?",
        b"&",
        b"&#0;",
        b"<!DOCTYPE a>",
        b" ",
    ]
    taken = 0
    for _round in range(4_000):
        octets = bytearray(chance.choice(texts))
        for _change in range(chance.randint(1, 3)):
            at = chance.randrange(len(octets))
            octets[at : at + chance.randint(0, 3)] = chance.choice(pieces) * chance.randint(0, 1)
        record = read_record(bytes(octets))
        if record is not None:
            check(record)
            taken += 1
    assert taken > 100


def test_sets_and_identifiers() -> None:
    assert set_of("https://a.example/oai?verb=ListRecords&set=com_1:2&x") == ("com_1:2", "com_1:2")
    address = "https://a.example/server/api/core/collections/0b1c-2d"
    assert set_of(address) == ("0b1c-2d-42e4773f", address)
    specs = {
        set_of(one)[0] for one in ("https://a.example/?set=a b", "https://a.example/?set=a c", "urn:" + "ä" * 4_000)
    }
    assert len(specs) == 3
    assert all(is_spec(one) and len(one) < 80 for one in specs)
    assert is_spec(":".join("a" * 8))
    assert not is_spec(":".join("a" * 9))
    assert not is_spec("a" * 201)
    assert with_ancestors(["a:b:c", "a:d"]) == ["a", "a:b", "a:b:c", "a:d"]
    assert unescaped("oai:x~2F~C3~A4") == "oai:x/ä"
    assert unescaped("x" * 130 + "~-" + "0" * 64) is None


def test_dublin_core_of_anything_is_well_formed() -> None:
    check(dublin_core("", "http://a.example/%FF%00%3C", Metadata(type="text/plain")))
    check(dublin_core("\ud800\uffff&", "http://a.example/", Metadata()))
