"""Documents in syntaxes that are not lines, parsed by a process of their own within bounds of time and memory.

A document that takes for ever, or at which the parser dies, ends that process and nothing else. RDF/XML is made fit
for the parser before: it reads UTF-8 alone, keeps CR, and gives XML literals that are no XML: namespaces twice, for
instance. So elements with `parseType="Literal"` become ones with a datatype and, as their text, the canonical form that
expat's reading has. The parser also puts the value of an entity together while it reads its declaration, with no bound.
Ontologies declare an entity for each namespace, so DTDs cannot be refused as such; entities of entities, and long ones,
are what bombs need.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final
from xml.parsers.expat import ErrorString, ExpatError, ParserCreate

from pyoxigraph import parse

from headwater.processes.pool import JobEnded, LimitedProcess, limit_memory
from headwater.rdf import BOUNDS, BadRdf, Fault, RdfBounds, RdfTooCostly, bad_rdf, fault_of
from headwater.rdf.statements import OctetStream, canonical_block, canonical_quads, line_blocks, octets, syntax_fault
from headwater.rdf.syntaxes import N3, NAMES, RDF_XML, RdfInput

LONGEST_DECLARATION: Final = 1000
"""Octets of the declaration of an entity."""
EXPANDED_OCTETS: Final = 16 << 20
GROWTH: Final = 10
"""References may add so many octets, and so many for each octet of the document."""

_BEGIN: Final = b"<!ENTITY"
_DECLARATION: Final = re.compile(rb"<!ENTITY([^<]*)<")
"""The parser, too, ends it at the next `<`: no value of an entity has one."""
_REFERENCE: Final = re.compile(rb"&(?!#|\Z)")
"""To an entity, not to a character."""

_CUT_OFF: Final = frozenset({3, 5, 6, 20})
"""expat's: no element, an unclosed token, a partial character, an unclosed CDATA section."""

_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_PARSE_TYPE: Final = f"{_RDF}\nparseType\n"
_XML: Final = "http://www.w3.org/XML/1998/namespace"
_DECLARED: Final = re.compile(r"""(\A\s*<\?xml\s[^>]*?encoding\s*=\s*["'])([A-Za-z0-9._-]+)""")
_ENCODINGS: Final = re.compile(r"utf-8|ascii|utf-16(-[bl]e)?|iso8859-\d+|cp125\d")
_TAG: Final = re.compile(rb"""<([^\s/>]+)(?:[^"'>]|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE: Final = re.compile(rb"""([^\s=<>/]+)(\s*=\s*)("[^"]*"|'[^']*')""")
_IN_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"})
_IN_VALUE: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#x9;", "\n": "&#xA;", "\r": "&#xD;"}
)


def in_utf8(parts: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The octets of an XML document in UTF-8 with LF, whatever it is written in (XML 1.0, 2.11 and 4.3.3)."""
    left = iter(parts)
    head = next(left, b"")
    # by its first octets alone (XML 1.0, appendix F), or by its declaration
    wide = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
    name = next((name for begin, name in wide if head.startswith(begin)), None)
    is_wide = name is not None
    if name is None:
        declared = _DECLARED.match(head[:1000].decode("latin-1"))
        name = declared[2] if declared else "utf-8"
        with suppress(LookupError):
            name = codecs.lookup(name).name
    if not _ENCODINGS.fullmatch(name):
        raise BadRdf(f"the XML document is written in {name}: Headwater does not read it; use UTF-8", where=where)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(name)(), translate=True)
    try:
        text = decoder.decode(head).removeprefix("\ufeff")
        yield (_DECLARED.sub(r"\1UTF-8", text, count=1) if is_wide or name != "utf-8" else text).encode()
        for part in left:
            yield decoder.decode(part).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise BadRdf(f"the XML document is not {name.upper()}, as it should be", where=where) from error


def with_canonical_literals(parts: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The octets of an XML document in UTF-8, with each XML literal as text in exclusive canonical XML with comments.

    Raises BadRdf where the document is cut off: the RDF parser takes one that ends between elements for whole. Where it
    is no XML, the RDF parser gets the octets to tell what is wrong.
    """
    literals = _Literals(where)
    left = iter(parts)
    try:
        for part in left:
            yield literals.feed(part)
        yield literals.end()
    except ExpatError as error:
        if error.code in _CUT_OFF:
            raise BadRdf("the XML document is cut off", where=where) from error
        if not literals.is_open:
            yield literals.raw()
            yield from left
        raise BadRdf(f"this is not XML: {ErrorString(error.code)}", where=where, line=error.lineno) from error


class _Literals:
    """Passes a document on as it is, but for the elements that are XML literals."""

    def __init__(self, where: str) -> None:
        self._where = where
        xml = self._xml = ParserCreate(namespace_separator="\n")
        xml.namespace_prefixes = True
        xml.ordered_attributes = True
        xml.StartElementHandler = self._start
        self._raw, self._at, self._next = b"", 0, 0
        """Octets, where in the document they begin, and which of them is the first that is not passed on."""

        self._made: list[bytes] = []
        self._text: list[str] = []
        self._octets = 0
        self._spaces: list[dict[str, str]] = []
        """Of each open element of a literal the namespaces that are declared there, by prefix; none outside one."""
        self._closing: bytes | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._spaces)

    def feed(self, part: bytes) -> bytes:
        self._raw += part
        self._xml.Parse(part)
        self._pass_on(self._xml.CurrentByteIndex)
        self._raw, self._at, self._next = self._raw[self._next :], self._at + self._next, 0
        made, self._made = b"".join(self._made), []
        return made

    def end(self) -> bytes:
        self._xml.Parse(b"", True)  # noqa: FBT003  it takes no names
        return self.raw()

    def raw(self) -> bytes:
        return b"".join(self._made) + self._raw[self._next :]

    def _pass_on(self, place: int, *, drop: bool = False) -> None:
        before, self._next = self._next, max(self._next, place - self._at)
        if not (drop or self._spaces):
            self._made.append(self._raw[before : self._next])

    def _start(self, name: str, attributes: list[str]) -> None:
        if self._spaces:
            self._element(name, attributes)
            return
        if not attributes:
            return
        for told, value in zip(attributes[::2], attributes[1::2], strict=True):
            if told.startswith(_PARSE_TYPE) and value not in ("Resource", "Collection"):
                self._begin(told.rpartition("\n")[2].encode() + b":parseType")

    def _begin(self, attribute: bytes) -> None:
        """Begin a literal: the tag gets a datatype in the place of `attribute`."""
        self._pass_on(self._xml.CurrentByteIndex)
        tag = _TAG.match(self._raw, self._next)
        told = attribute.replace(b"parseType", b"datatype") + f'="{_RDF}XMLLiteral"'.encode()
        made, count = b"", 0
        if tag is not None:
            found = [one[1] for one in _ATTRIBUTE.finditer(tag[0])]
            count = found.count(attribute)
            made = _ATTRIBUTE.sub(lambda one: told if one[1] == attribute else one[0], tag[0])
        if tag is None or count != 1:
            raise BadRdf("the element of an XML literal comes from the DTD, which is not read", where=self._where)
        self._closing = b"</" + tag[1] + b">" if tag[0].endswith(b"/>") else None
        self._made.append(made[:-2] + b">" if self._closing else made)
        self._pass_on(self._at + tag.end(), drop=True)
        self._spaces.append({"xml": _XML, "": ""})
        self._xml.EndElementHandler = self._finish
        self._xml.CharacterDataHandler = lambda data: self._write(data.translate(_IN_TEXT))
        self._xml.CommentHandler = lambda data: self._write(f"<!--{data}-->")
        self._xml.ProcessingInstructionHandler = lambda target, data: self._write(
            f"<?{target} {data}?>" if data else f"<?{target}?>"
        )

    def _finish(self, name: str) -> None:
        self._spaces.pop()
        if self._spaces:
            self._write(f"</{_as_written(name)[0]}>")
            return
        xml = self._xml
        xml.EndElementHandler = xml.CharacterDataHandler = xml.CommentHandler = xml.ProcessingInstructionHandler = None
        self._pass_on(self._xml.CurrentByteIndex, drop=True)
        self._made.append("".join(self._text).translate(_IN_TEXT).encode() + (self._closing or b""))
        self._text, self._octets = [], 0

    def _element(self, name: str, attributes: list[str]) -> None:
        """The tag of an element within a literal: the namespaces that it uses, each once, and sorted attributes."""
        shown, prefix, space = _as_written(name)
        used, others = {prefix: space}, []
        for told, value in zip(attributes[::2], attributes[1::2], strict=True):
            text, of, uri = _as_written(told)
            if of:
                used[of] = uri
            others.append((uri if of else "", text.rpartition(":")[2], f' {text}="{value.translate(_IN_VALUE)}"'))
        held = self._spaces[-1]
        new = {of: uri for of, uri in used.items() if held.get(of) != uri}
        self._spaces.append(held | new)
        self._write(f"<{shown}")
        for of, uri in sorted(new.items()):
            self._write(f' {"xmlns:" if of else "xmlns"}{of}="{uri.translate(_IN_VALUE)}"')
        self._write("".join(text for *_, text in sorted(others)) + ">")

    def _write(self, text: str) -> None:
        self._text.append(text)
        self._octets += len(text)
        if self._octets > BOUNDS.line_octets:
            raise RdfTooCostly(f"an XML literal has more than {BOUNDS.line_octets:,} characters", where=self._where)


def _as_written(name: str) -> tuple[str, str, str]:
    """A name of expat's as it is written, its prefix and its namespace."""
    space, _, rest = name.rpartition("\n") if name.count("\n") < 2 else name.partition("\n")
    local, _, prefix = rest.partition("\n")
    return (f"{prefix}:{local}" if prefix else local), prefix, space


def bounded_entities(parts: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The octets of a document in UTF-8, which is all that the parser reads, as they come. Raises RdfTooCostly before
    the end of a declaration that is refused, or of references that add too much, is passed on."""
    rest, longest, added, seen = b"", 0, 0, 0
    for part in parts:
        text = rest + part
        for found in _DECLARATION.finditer(text):
            longest = max(longest, _checked(found[1], where))
        rest = text[text.rfind(b"<") :] if b"<" in text else b""
        if rest.startswith(_BEGIN):
            longest = max(longest, _checked(rest, where))
        elif not _BEGIN.startswith(rest):
            rest = b""
        seen += len(part)
        added += longest * part.count(b"&")
        if added > EXPANDED_OCTETS + GROWTH * seen:
            raise RdfTooCostly("the entities of the DTD make the document too large", where=where)
        yield part


def _checked(declaration: bytes, where: str) -> int:
    if _REFERENCE.search(declaration):
        raise RdfTooCostly("the DTD declares an entity that refers to another one", where=where)
    if len(declaration) > LONGEST_DECLARATION:
        raise RdfTooCostly(f"the DTD declares an entity of more than {LONGEST_DECLARATION:,} octets", where=where)
    return len(declaration)


_QUADS = 10_000
_OCTETS_A_SECOND = 100_000
"""A document that is parsed more slowly is hostile: the parser is a hundred times as fast."""


def parsed_files(inputs: Iterable[RdfInput], folder: Path, bounds: RdfBounds) -> Iterator[tuple[RdfInput, Path]]:
    """Documents, each with a file below `folder` of its statements as canonical lines, which the next one overwrites.

    Raises BadRdf, RdfTooCostly.
    """
    target = folder / "parsed"
    with closing(LimitedProcess(document_parser, bounds.parser_octets)) as process:
        for one in inputs:
            job = (str(one.path), one.syntax.name, one.base, str(target), bounds.octets)
            try:
                fault = process.do(job, bounds.parser_seconds + one.path.stat().st_size / _OCTETS_A_SECOND)
            except JobEnded as error:
                raise RdfTooCostly(f"the document cannot be parsed: {error}", where=one.where) from error
            if fault:
                raise bad_rdf(fault, one.where)
            yield one, target


def document_parser(memory: int) -> Callable[[Any], Any]:
    """What the process does: it writes the statements of a document to a file; gives what is wrong, if anything is."""
    limit_memory(memory)

    def parsed(job: tuple[str, str, str | None, str, int]) -> Fault | tuple[()]:
        path, syntax, base, target, most = job
        one = RdfInput(Path(path), NAMES[syntax], base)
        try:
            with open(target, "wb") as file, one.path.open("rb") as document:
                file.writelines(statements_of(one, document, RdfBounds(octets=most)))
        except BadRdf as error:
            return fault_of(error)
        return ()

    return parsed


def statements_of(one: RdfInput, file: BinaryIO, bounds: RdfBounds) -> Iterator[bytes]:
    """The statements of an open document, in whatever syntax, as blocks of canonical lines. Raises BadRdf. There are
    documents at which the parser dies: for a limited process."""
    if one.syntax.is_lines:
        line = 1
        for block in line_blocks(octets(file, one.where, bounds), one.where, bounds):
            yield canonical_block(block, line, one.where, one.syntax.parser_format)
            line += block.count(b"\n")
        return
    if one.syntax is N3:
        raise BadRdf("N3 is not read: write it in Turtle or TriG", where=one.where)
    try:
        parts = octets(file, one.where, bounds)
        if one.syntax is RDF_XML:
            parts = with_canonical_literals(bounded_entities(in_utf8(parts, one.where), one.where), one.where)
        stream = OctetStream(parts)
        quads = parse(stream, one.syntax.parser_format, base_iri=one.base)  # type: ignore[arg-type]
        while some := list(islice(quads, _QUADS)):
            yield canonical_quads(some, one.where)
    except SyntaxError as error:
        raise syntax_fault(error, one.where) from error
    except ValueError as error:
        raise BadRdf(str(error), where=one.where) from error
    except MemoryError as error:
        raise BadRdf("a token is too long", where=one.where) from error
