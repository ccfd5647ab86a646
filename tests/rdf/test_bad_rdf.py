"""Bad and hostile input, each named for what it does; nothing of it is used, and messages name the line."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.rdf import BadRdf, BadRdfPatch, RdfBounds, RdfTooCostly, canonical
from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, RdfOptions, write_canonical
from headwater.rdf.checking import check_dataset
from headwater.rdf.parsing import bounded_entities
from headwater.rdf.statements import canonical_and_blanks, line_blocks, octets
from headwater.rdf.syntaxes import JSON_LD, N3, N_QUADS, N_TRIPLES, RDF_XML, TRIG, TURTLE, RdfInput, Syntax
from headwater.rdf.unified_diff import merge_patches, read_patch
from tests.rdf.datasets import statement

A, B, C = statement(1), statement(2), statement(3)
S = b"<http://e.org/s> <http://e.org/p> "
RDF = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e.org/">%s</rdf:RDF>'

LINES = {
    "broken UTF-8": S + b'"caf\xe9" .\n',
    "an encoded surrogate": S + b'"\xed\xa0\x80" .\n',
    "overlong UTF-8": S + b'"\xc0\xaf" .\n',
    "an escaped surrogate": S + b'"\\uD800" .\n',
    "an escape beyond Unicode": S + b'"\\U00110000" .\n',
    "an escape that there is not": S + b'"\\q" .\n',
    "an IRI with a space": S + b"<http://e.org/a b> .\n",
    "an IRI with an escaped space": S + b"<http://e.org/a\\u0020b> .\n",
    "an IRI with braces": S + b"<http://e.org/{x}> .\n",
    "an IRI with broken percent": S + b"<http://e.org/%zz> .\n",
    "an IRI with two number signs": S + b"<http://e.org/a#b#c> .\n",
    "an IRI with a bad port": S + b"<http://e.org:b/> .\n",
    "an IRI with a control character": S + b"<http://e.org/\x01> .\n",
    "an IRI with a private character": "<http://e.org/s> <http://e.org/p> <http://e.org/\ue000> .\n".encode(),
    "a relative IRI": S + b"<rel> .\n",
    "an empty IRI": S + b"<> .\n",
    "a language tag with a digit first": S + b'"x"@1en .\n',
    "a language subtag that is too long": S + b'"x"@abcdefghij .\n',
    "a language tag that ends in a hyphen": S + b'"x"@en- .\n',
    "a language tag with a direction": S + b'"x"@en--ltr .\n',
    "a language tag with an unknown direction": S + b'"x"@en--abc .\n',
    "a language and a datatype": S + b'"x"@en^^<http://e.org/d> .\n',
    "a language string without language": S + b'"x"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString> .\n',
    "a triple term": S + b"<<( <http://e.org/s> <http://e.org/p> <http://e.org/o> )>> .\n",
    "a triple term as subject": b'<< <http://e.org/s> <http://e.org/p> <http://e.org/o> >> <http://e.org/p> "x" .\n',
    "triple terms of any depth": S + b"<<( <http://e.org/s> <http://e.org/p> " * 200_000 + b".\n",
    "a lone carriage return": A[:-1] + b"\r" + B,
    "a lone carriage return in a comment": A[:-1] + b" # x\ry\n",
    "two statements in a line": A[:-1] + b" " + B,
    "a statement without its end": A[:-3] + b"\n",
    "a literal that is not closed": S + b'"x .\n',
    "a literal as subject": b'"x" <http://e.org/p> "y" .\n',
    "a literal as graph": S + b'"x" "g" .\n',
    "a blank node as predicate": b'<http://e.org/s> _:p "x" .\n',
    "a blank node without label": S + b"_: .\n",
    "a version line": b'VERSION "1.2"\n',
    "octets": bytes(range(256)).replace(b"\n", b"") + b"\n",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_bad_line_is_told_with_its_number(line: bytes, tmp_path: Path) -> None:
    source = tmp_path / "in.nq"
    source.write_bytes(A + B + line + C)
    for treated in (BlankNodes.REFUSED, BlankNodes.KEPT):
        with pytest.raises(BadRdf, match="line 3") as error:
            write_canonical(
                [RdfInput(source, N_QUADS)], tmp_path / "out", scratch=tmp_path, options=RdfOptions(treated)
            )
        assert error.value.line == 3
        assert error.value.exit_status == 3
    assert [path.name for path in tmp_path.iterdir()] == ["in.nq"]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_bad_line_of_a_patch_is_told_with_its_number(line: bytes) -> None:
    with pytest.raises(BadRdfPatch, match="line 3") as error:
        list(read_patch(io.BytesIO(b"+" + A + b"-" + B + b"+" + line), strict=True))
    assert error.value.line == 3


@pytest.mark.parametrize("end", [b"", b" # why", b"\r"])
def test_a_carriage_return_that_ends_a_file_is_no_end_of_a_line(end: bytes, tmp_path: Path) -> None:
    """The grammar of NQUD knows LF and CRLF; the LF that a last line lacks is not made up for its CR."""
    source = tmp_path / "in.nq"
    source.write_bytes(A + B[:-1] + end + b"\r")
    with pytest.raises(BadRdf, match="line 2"):
        write_canonical([RdfInput(source, N_QUADS)], tmp_path / "out", scratch=tmp_path)
    assert [finding.line for finding in check_dataset(RdfInput(source, N_QUADS)).findings] == [2]
    with pytest.raises(BadRdfPatch, match="line 2"):
        list(read_patch(io.BytesIO(b"+" + A + b"+" + B[:-1] + end + b"\r"), strict=True))
    passed_over = list(read_patch(io.BytesIO(b"+" + A + b"\\ No newline at end of file\r"), strict=True))
    assert [line.statement for line in passed_over] == [A]


DOCUMENTS: dict[str, tuple[Syntax, bytes]] = {
    "Turtle that ends within a statement": (TURTLE, b"<http://e.org/s> <http://e.org/p> "),
    "Turtle with a relative IRI": (TURTLE, b'<s> <http://e.org/p> "x" .'),
    "Turtle with a reifier": (TURTLE, b"<< <http://e.org/s> <http://e.org/p> 1 >> <http://e.org/q> 2 ."),
    "Turtle with a direction": (TURTLE, b'<http://e.org/s> <http://e.org/p> "x"@en--rtl .'),
    "Turtle that is not UTF-8": (TURTLE, b'<http://e.org/s> <http://e.org/p> "\xff" .'),
    "TriG with a literal as graph": (TRIG, b'"g" { <http://e.org/s> <http://e.org/p> 1 }'),
    "N-Triples with a graph": (N_TRIPLES, S + b'"x" <http://e.org/g> .\n'),
    "RDF/XML that is no XML": (RDF_XML, b"<rdf:RDF"),
    "RDF/XML with a relative IRI": (RDF_XML, RDF % b'<rdf:Description rdf:about="s"><e:p>x</e:p></rdf:Description>'),
    "RDF/XML with an entity from elsewhere": (
        RDF_XML,
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        + RDF % b'<rdf:Description rdf:about="http://e.org/s"><e:p>&x;</e:p></rdf:Description>',
    ),
    "JSON-LD that is no JSON": (JSON_LD, b'{"@id": '),
    "JSON-LD with a context elsewhere": (
        JSON_LD,
        b'{"@context": "http://127.0.0.1/ctx", "@id": "http://e.org/s", "p": 1}',
    ),
    "JSON-LD with a direction": (
        JSON_LD,
        b'{"@context": {"@version": 1.1}, "@id": "http://e.org/s", "http://e.org/p":'
        b' {"@value": "x", "@language": "en", "@direction": "ltr"}}',
    ),
    "N3": (N3, b"@prefix : <http://e.org/> . :a :b :c ."),
}


@pytest.mark.parametrize(("syntax", "text"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_bad_document_is_refused(syntax: Syntax, text: bytes, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(text)
    with pytest.raises(BadRdf):
        write_canonical(
            [RdfInput(source, syntax)], tmp_path / "out", scratch=tmp_path, options=RdfOptions(BlankNodes.CANONICAL)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


class _Endless(io.RawIOBase):
    """So many octets of one line."""

    def __init__(self, head: bytes, count: int) -> None:
        self._head, self._left = head, count

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        count = min(size, self._left)
        self._left -= count
        return b"x" * count


def test_a_line_of_100_mb_is_refused_before_it_is_read() -> None:
    stream = _Endless(b"+" + S + b'"', 100_000_000)
    with pytest.raises(RdfTooCostly, match="line 1: the line has more than 16,777,216 octets"):
        list(read_patch(stream, strict=True))  # type: ignore[arg-type]
    assert stream._left > 80_000_000


def test_a_line_of_100_mb_among_others_is_told_with_its_number() -> None:
    def pieces() -> Iterator[bytes]:
        yield A + B + S + b'"'
        for _ in range(100):
            yield b"x" * 1_000_000

    with pytest.raises(RdfTooCostly, match="line 3"):
        list(line_blocks(pieces(), "in"))


@pytest.mark.parametrize("syntax", [TURTLE, TRIG])
def test_a_token_of_100_mb_is_refused(syntax: Syntax, tmp_path: Path) -> None:
    source = tmp_path / "in"
    with source.open("wb") as file:
        file.write(S + b'"')
        file.truncate(30_000_000)
    with pytest.raises(BadRdf):
        write_canonical([RdfInput(source, syntax)], tmp_path / "out", scratch=tmp_path)


def test_truncated_and_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(statement(number) for number in range(1000)))
    damaged = bytearray(whole)
    damaged[-6] ^= 1  # the checksum
    for text in (whole[:-1], whole[:50], whole[:4], bytes(damaged), whole + b"trailing", whole + b"\x1f\x8b"):
        source = tmp_path / "in"
        source.write_bytes(text)
        with pytest.raises(BadRdf, match="gzip"):
            write_canonical([RdfInput(source, N_QUADS)], tmp_path / "out", scratch=tmp_path)
    assert not (tmp_path / "out").exists()


def test_zeros_after_the_end_of_gzip_are_passed_over() -> None:
    """As gzip does it: tapes, and writers of whole blocks, fill up with them."""
    member = gzip.compress(statement(1))
    for filled in (member + bytes(10), member + bytes(3) + member, member + bytes(1 << 20)):
        assert b"".join(octets(io.BytesIO(filled), "x")) == statement(1) * (1 + filled.endswith(member))
    with pytest.raises(BadRdf, match="damaged"):
        list(octets(io.BytesIO(member + bytes(3) + b"x" * 20), "x"))


def test_gzip_that_grows_beyond_the_bound_is_given_up() -> None:
    bomb = io.BytesIO(gzip.compress(b"#" * 50_000_000))
    with pytest.raises(RdfTooCostly, match="more than 1,000,000 octets"):
        for _piece in octets(bomb, "in", RdfBounds(octets=1_000_000)):
            pass


@pytest.mark.parametrize("content", [b"", b"#"])
def test_gzip_of_members_with_next_to_no_content_is_given_up(content: bytes) -> None:
    """No octet of them comes out that another bound would count; members of tools have more."""
    member = gzip.compress(content, mtime=0)
    with pytest.raises(RdfTooCostly, match="more than 10 gzip members"):
        for _piece in octets(io.BytesIO(member * 11), "in", RdfBounds(gzip_members=10)):
            pass
    block = gzip.compress(b"#" * 9_999 + b"\n", mtime=0)
    assert sum(map(len, octets(io.BytesIO(block * 50), "in", RdfBounds(gzip_members=10)))) == 500_000


def test_a_patch_of_gzip_members_without_content_is_given_up() -> None:
    with pytest.raises(RdfTooCostly, match="more than 200,000 gzip members"):
        list(read_patch(io.BytesIO(gzip.compress(b"", mtime=0) * 200_001), strict=True))


def test_wrong_headers_mean_nothing() -> None:
    text = b"+++ /etc/passwd\n--- x\n@@ -1,900 +1,0 @@ +<\n@@\n+" + A
    assert [one.statement for one in read_patch(io.BytesIO(text), strict=True)] == [A]


@pytest.mark.parametrize(
    ("order", "expected", "without_effect"),
    [
        ((0, 1, 2), A + C, 1),
        ((0, 0, 1, 1, 2), A + C, 5),
        ((2, 1, 0), A + B + C, 2),
        ((0, 2), A, 0),
    ],
    ids=["in order", "twice", "in the wrong order", "one is missing"],
)
def test_patches_in_another_order(order: tuple[int, ...], expected: bytes, without_effect: int, tmp_path: Path) -> None:
    """What they come to is what their lines say one after the other; what had no effect is counted (NQUD-A5)."""
    series = [b"+" + A + b"+" + B, b"-" + B + b"+" + C, b"-" + B]
    paths = []
    for number, patch in enumerate(series):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(patch)
    found = merge_patches(None, [paths[one] for one in order], tmp_path / "out", scratch=tmp_path, strict=True)
    assert (tmp_path / "out").read_bytes() == expected
    assert found.already_there + found.not_there == without_effect


def test_labels_of_blank_nodes_that_clash_between_patches_are_one_node(tmp_path: Path) -> None:
    """NQUD-A6: within a dataset's series labels are taken as stable; who wants none has them refused."""
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b'+_:b <http://e.org/p> "1" .\n')
    second.write_bytes(b'+_:b <http://e.org/p> "2" .\n')
    merge_patches(None, [first, second], tmp_path / "out", scratch=tmp_path, strict=True)
    assert (tmp_path / "out").read_bytes().count(b"_:b ") == 2
    with pytest.raises(BadRdf, match="line 1: the dataset has blank nodes"):
        merge_patches(None, [first, second], tmp_path / "out", scratch=tmp_path, strict=True, options=NO_BLANK_NODES)


def test_rdf_xml_that_is_cut_off_between_elements_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Its statements are whole, and the rest of them is missing: no dataset is made of it."""
    whole = RDF % b'<rdf:Description rdf:about="http://e.org/s"><e:p>x</e:p></rdf:Description>'
    for number, cut in enumerate((whole.removesuffix(b"</rdf:RDF>"), b"")):
        path = tmp_path / f"{number}.rdf"
        path.write_bytes(cut)
        with pytest.raises(BadRdf, match="cut off"):
            write_canonical([RdfInput(path, RDF_XML, "http://e.org/", path.name)], tmp_path / "made", scratch=tmp_path)


BOMBS = {
    "entities of entities": b'<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">',
    "a parameter entity of an entity": b'<!ENTITY a "aaaaaaaaaa"><!ENTITY % b "&a;">',
    "an entity of an entity without a blank": b'<!ENTITY a "aaaaaaaaaa"><!ENTITYb"&a;">',
    "an entity that is declared last": b'<!ENTITY b "&a;">',
    "an entity that is long": b'<!ENTITY b "' + b"a" * 1000 + b'">',
}


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize("declared", BOMBS.values(), ids=BOMBS)
def test_a_bomb_of_entities_is_refused_before_its_declaration_is_passed_on(declared: bytes, size: int) -> None:
    document = b"<!DOCTYPE a [" + declared + b"]>"
    passed_on: list[bytes] = []
    with pytest.raises(RdfTooCostly, match="the DTD declares an entity"):
        passed_on.extend(bounded_entities((document[at : at + size] for at in range(0, len(document), size)), "in"))
    assert b";" not in b"".join(passed_on)
    assert not b"".join(passed_on).endswith(b"]>")


def test_references_that_make_a_document_too_large_are_refused() -> None:
    head = b'<!DOCTYPE a [<!ENTITY b "' + b"a" * 900 + b'">]><a>'
    with pytest.raises(RdfTooCostly, match="too large"):
        list(bounded_entities([head, *[b"&b;" * 1000] * 20], "in"))


def test_a_bomb_of_entities_costs_no_memory_where_documents_are_parsed(tmp_path: Path) -> None:
    declared = b"".join(b'<!ENTITY a%d "%s">' % (one, b"&a%d;" % (one - 1) * 10) for one in range(1, 10))
    bomb = tmp_path / "bomb.rdf"
    bomb.write_bytes(
        b'<!DOCTYPE a [<!ENTITY a0 "aaaaaaaaaa">'
        + declared
        + b"]>"
        + RDF % b'<rdf:Description rdf:about="http://e.org/s"><e:p>&a9;</e:p></rdf:Description>'
    )
    with pytest.raises(RdfTooCostly, match="refers to another one"):
        write_canonical([RdfInput(bomb, RDF_XML)], tmp_path / "out", scratch=tmp_path)


def test_entities_that_name_namespaces_and_characters_are_read(tmp_path: Path) -> None:
    """As ontology editors write them."""
    source = tmp_path / "in.rdf"
    source.write_bytes(
        b'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [\n <!ENTITY e "http://e.org/" >\n <!ENTITY nbsp "&#160;" >\n]>\n'
        + RDF % b'<rdf:Description rdf:about="&e;s"><e:p>x&nbsp;y &amp; z</e:p></rdf:Description>'
    )
    write_canonical([RdfInput(source, RDF_XML)], tmp_path / "out", scratch=tmp_path)
    assert (tmp_path / "out").read_text() == '<http://e.org/s> <http://e.org/p> "x\u00a0y & z" .\n'


def test_what_is_wrong_with_parsed_statements_is_told_of_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the document, whose syntax is another: as N-Quads its first line would be the fault."""
    document, lines = tmp_path / "a.ttl", tmp_path / "lines"
    document.write_bytes(b"@prefix e: <http://e.org/> .\n")
    lines.write_bytes(A + LINES["an escape that there is not"])
    monkeypatch.setattr(canonical, "parsed_files", lambda inputs, *_: ((one, lines) for one in inputs))
    with pytest.raises(BadRdf, match="escape") as caught:
        write_canonical([RdfInput(document, TURTLE)], tmp_path / "out", scratch=tmp_path)
    assert (caught.value.where, caught.value.line) == (str(document), None)


def test_what_is_wrong_with_a_document_is_told_when_the_next_one_is_parsed_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are parsed while others are looked through: what is told of one is read in none of these."""
    inputs = []
    for name in ("first", "second"):
        inputs.append(RdfInput(tmp_path / name, TURTLE))
        inputs[-1].path.write_text(f"<urn:{name}> <urn:p> <urn:o> .\n")
    real = canonical_and_blanks

    def judged(piece: bytes, *given: Any) -> tuple[bytes, bool]:
        if b"first" in piece:
            raise BadRdf("the first is bad")
        return real(piece, *given)

    def ahead(function: Any, settings: Any, jobs: Any) -> Iterator[Any]:
        done = function(settings)
        for item, job in list(jobs):
            yield item, done(job)

    monkeypatch.setattr(canonical, "canonical_and_blanks", judged)
    monkeypatch.setattr(canonical, "in_processes", ahead)
    with pytest.raises(BadRdf, match="the first is bad") as caught:
        write_canonical(inputs, tmp_path / "out", scratch=tmp_path)
    assert caught.value.where == str(inputs[0].path)
