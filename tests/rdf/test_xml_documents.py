"""RDF/XML as XML 1.0 has it: XML literals are exclusive canonical XML, and UTF-8 is not the only encoding."""

from __future__ import annotations

import gzip
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import pyoxigraph
import pytest

from headwater.rdf import BadRdf
from headwater.rdf.canonical import write_canonical
from headwater.rdf.parsing import bounded_entities, in_utf8, with_canonical_literals
from headwater.rdf.syntaxes import RDF_XML, RdfInput

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DTD = '<!DOCTYPE r [<!ENTITY d "urn:d#"><!ENTITY t "te&#38;#38;xt">]>'
SPACES = f'xmlns:rdf="{RDF}" xmlns:d="urn:d#" xmlns:u="urn:unused"'
DOCUMENT = (
    f'<?xml version="1.0"?>{DTD}<rdf:RDF {SPACES}><rdf:Description rdf:about="urn:a">%s</rdf:Description></rdf:RDF>'
)

LITERALS = [
    '<b xmlns="http://w3.org/x">bold</b>',
    '<d:b c="2" a="1" d:z=\'"q"\' u:a="x"><u:c/><e xmlns="urn:e"><f xmlns=""/><d:g xmlns:d="urn:other"/></e></d:b>',
    "<b>a &amp; &lt; \"q\" 's' ><!-- com --><?pi  data?><?x?><![CDATA[<&>]]>&t;&#13;é</b>",
    '<a b="&#10;&#9; &lt; &gt; \'"/>',
    '<a xml:lang="de" xml:space="preserve">\n x\r\n y</a>',
    '<a xmlns:q="urn:q"><q:b xmlns:q="urn:q"/><q:c/></a>',
    '<p title=\'rdf:parseType="Literal"\' rdf:parseType="Literal"><rdf:x/></p>',
]


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("octets", [1, 7, 1 << 20])
def test_an_xml_literal_is_exclusive_canonical_xml(literal: str, octets: int) -> None:
    """What it is equals what the standard library makes of it, however the document comes; the rest is as it was."""
    others = '<d:q>é&d;</d:q><d:e rdf:parseType="Literal"/><d:f rdf:parseType="Literal"></d:f>'
    others += "<d:g rdf:parseType = 'other'>a \"b\" > c</d:g>"
    data = (DOCUMENT % f'<d:p rdf:parseType="Literal">{literal}</d:p>{others}').encode()
    parts = [data[n : n + octets] for n in range(0, len(data), octets)]
    read = b"".join(with_canonical_literals(bounded_entities(in_utf8(parts, "x"), "x"), "x"))
    found = {q.predicate.value[-1]: q.object.value for q in pyoxigraph.parse(read, RDF_XML.parser_format)}
    name, rest = literal[1:].split(" " if " " in literal.split(">")[0] else ">", 1)
    whole = f"{DTD}<{name} {SPACES}{' ' if ' ' in literal.split('>')[0] else '>'}{rest}"
    assert found == {
        "p": canonicalize(whole, with_comments=True),
        "q": "éurn:d#",
        "e": "",
        "f": "",
        "g": 'a "b" &gt; c',
    }


def test_prefixes_that_a_literal_does_not_use_make_no_other_dataset(tmp_path: Path) -> None:
    sums = set()
    for more in ("", ' xmlns:more="urn:more"'):
        path = tmp_path / "in.rdf"
        literal = f'<d:p rdf:parseType="Literal"{more}><d:b/></d:p>'
        path.write_text(DOCUMENT % literal)
        sums.add(write_canonical([RdfInput(path, RDF_XML)], tmp_path / "out", scratch=tmp_path).sha256)
    assert (tmp_path / "out").read_text().count("xmlns:d=") == 1
    assert len(sums) == 1


NO_LITERALS = [
    ('<d:p rdf:parseType="Literal"><b></d:p>', "line 1: this is not XML"),
    ('<d:p rdf:parseType="Literal"><x:b/></d:p>', "prefix"),
    ('<d:p rdf:parseType="Literal" rdf:resource="urn:x"><b/></d:p>', "[Uu]nexpected"),
    ('<rdf:Description rdf:parseType="Literal"/>', "Invalid"),
]


@pytest.mark.parametrize(("body", "told"), NO_LITERALS)
def test_what_is_no_xml_literal_is_refused(body: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "in.rdf").write_text(DOCUMENT % body)
    with pytest.raises(BadRdf, match=told):
        write_canonical([RdfInput(tmp_path / "in.rdf", RDF_XML)], tmp_path / "out", scratch=tmp_path)


ENCODED = [
    ("ISO-8859-1", "iso-8859-1", "latin-1", b""),
    ("UTF-16", "utf-16", "utf-16", b""),
    ("utf-16le", "UTF-16LE", "utf-16-le", b"\xff\xfe"),
    ("UTF-16BE without a mark", "UTF-16", "utf-16-be", b""),
    ("UTF-16 that says UTF-8", "utf-8", "utf-16", b""),
    ("windows-1252", "windows-1252", "cp1252", b""),
    ("UTF-8 with a mark", "utf-8", "utf-8", b"\xef\xbb\xbf"),
]


@pytest.mark.parametrize(("declared", "codec", "mark"), [e[1:] for e in ENCODED], ids=[e[0] for e in ENCODED])
@pytest.mark.parametrize("packed", [False, True])
def test_rdf_xml_in_other_encodings_is_read(
    declared: str, codec: str, mark: bytes, tmp_path: Path, *, packed: bool
) -> None:
    """XML 1.0, 4.3.3: every processor reads UTF-16; what is declared is another one."""
    text = (DOCUMENT % "<d:p>é\r\nü</d:p>").replace('"1.0"?', f'"1.0" encoding="{declared}"?')
    data = mark + text.encode(codec)
    (tmp_path / "in.rdf").write_bytes(gzip.compress(data) if packed else data)
    write_canonical([RdfInput(tmp_path / "in.rdf", RDF_XML)], tmp_path / "out", scratch=tmp_path)
    assert (tmp_path / "out").read_text() == '<urn:a> <urn:d#p> "é\\nü" .\n'


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', "utf-7"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "nonsense"),
        (b'<?xml version="1.0" encoding="ascii"?><a>\xe9</a>', "not ASCII"),
        (b"\xff\xfe<\0a\0>\0\0\xdc<\0/\0a\0>\0", "not UTF-16"),
    ],
)
def test_what_is_written_in_another_way_than_told_is_refused(data: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "in.rdf").write_bytes(data)
    with pytest.raises(BadRdf, match=told):
        write_canonical([RdfInput(tmp_path / "in.rdf", RDF_XML)], tmp_path / "out", scratch=tmp_path)
