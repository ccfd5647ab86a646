"""Files of N-Quads as blocks of whole lines, inflated within bounds, and their statements as canonical lines.

What is canonical already is recognised by a pattern, all else is parsed. A line is canonical when the parser would give
it back unchanged (NQUD-A7, NQUD-A16): one space between terms, escapes only where they are needed, a language tag in
small letters, no datatype xsd:string. The pattern accepts only such lines, and not all of them; what it does not accept
costs the parser's time, and nothing else.
"""

import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, Final

from pyoxigraph import Quad, RdfFormat, parse, serialize

from headwater.rdf import BOUNDS, BadRdf, BlankNodesRefused, RdfBounds, RdfTooCostly

BLOCK: int = 1 << 20
MEMBER_OCTETS = 4096
"""Where members of gzip have less on the average, their number is bounded; those of tools have more."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def octets(stream: BinaryIO, where: str, bounds: RdfBounds = BOUNDS) -> Iterator[bytes]:
    """The content of a stream in pieces of at most `BLOCK` octets, inflated where it begins as gzip does, without a
    leading byte order mark. Raises BadRdf for damaged or truncated gzip, RdfTooCostly beyond `bounds.octets`."""
    head = _exactly(stream, len(_BOM))
    pieces = _inflated(stream, head, where, bounds.gzip_members) if head.startswith(_GZIP) else _plain(stream, head)
    left = bounds.octets
    first = True
    for piece in pieces:
        content = piece
        if first and piece:
            content, first = piece.removeprefix(_BOM), False
        left -= len(content)
        if left < 0:
            raise RdfTooCostly(f"the file has more than {bounds.octets:,} octets", where=where)
        if content:
            yield content


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = b""
    while len(found) < count and (piece := stream.read(count - len(found))):
        found += piece
    return found


def _plain(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    yield head + stream.read(BLOCK - len(head))
    while piece := stream.read(BLOCK):
        yield piece


def _inflated(stream: BinaryIO, head: bytes, where: str, most: int) -> Iterator[bytes]:
    """All members of a gzip file (RFC 1952, 2.2): at most so many that have next to no content."""
    members = content = 0
    data = head + stream.read(BLOCK >> 2)
    pending = b""
    while data:
        inflater = zlib.decompressobj(wbits=31)
        members += 1
        if members > most and content < members * MEMBER_OCTETS:
            raise RdfTooCostly(f"more than {most:,} gzip members with next to no content", where=where)
        while not inflater.eof:
            if not data and not (data := stream.read(BLOCK >> 2)):
                raise BadRdf("the gzip file ends before its end: it was cut off", where=where)
            try:
                piece = inflater.decompress(data, BLOCK)
            except zlib.error as error:
                raise BadRdf(f"the gzip file is damaged: {error}", where=where) from error
            data = inflater.unconsumed_tail
            content += len(piece)
            pending += piece
            if len(pending) >= len(_BOM):  # the first piece decides on a byte order mark
                yield pending
                pending = b""
        data = inflater.unused_data or stream.read(BLOCK >> 2)
        while data and not (data := data.lstrip(b"\0")):  # what fills up the last block
            data = stream.read(BLOCK >> 2)
    if pending:
        yield pending


def line_blocks(pieces: Iterator[bytes], where: str, bounds: RdfBounds = BOUNDS) -> Iterator[bytes]:
    """The content as blocks of whole lines, each of which ends with LF (`ended`: the last one too).

    Raises RdfTooCostly for a line of more than `bounds.line_octets`.
    """
    lines = 0
    rest: list[bytes] = []
    length = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            rest.append(piece)
            length += len(piece)
        else:
            _bound(length + piece.find(b"\n"), lines, where, bounds)
            rest.append(piece[:end] if rest or end < len(piece) else piece)
            block = b"".join(rest) if len(rest) > 1 else rest[0]
            lines += block.count(b"\n")
            yield block
            rest, length = ([piece[end:]], len(piece) - end) if end < len(piece) else ([], 0)
        _bound(length, lines, where, bounds)
    if rest:
        yield ended(b"".join(rest))


def ended(lines: bytes) -> bytes:
    """Lines with an LF behind the last one too; behind a CR it stands after a space: it must not make a CRLF of it."""
    if lines.endswith(b"\n"):
        return lines
    return lines + (b" \n" if lines.endswith(b"\r") else b"\n")


def _bound(length: int, lines: int, where: str, bounds: RdfBounds) -> None:
    if length > bounds.line_octets:
        raise RdfTooCostly(f"the line has more than {bounds.line_octets:,} octets", where=where, line=lines + 1)


class OctetStream(io.RawIOBase):
    """Pieces of octets as a file to read from, for a parser that wants one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if not self._rest:
            self._rest = memoryview(next(filter(None, self._pieces), b""))
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def utf8_checked(block: bytes, line: int, raised: Callable[[str, int], BadRdf]) -> None:
    """Raise what `raised` makes of a message and a line number where a block is not UTF-8. `line` is its first."""
    if block.isascii():
        return
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise raised("the line is not UTF-8", line + block.count(b"\n", 0, error.start)) from error


_BEYOND_ASCII = rb"\xc2[\xa0-\xbf]|[\xc3-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec][\x80-\xbf]{2}"
_PLAIN = rb"[A-Za-z0-9._~!$&'()*+,;=:@/-]*+"
_PATH = _PLAIN + rb"(?:(?:%[0-9A-Fa-f]{2}|" + _BEYOND_ASCII + rb")" + _PLAIN + rb")*+"
_QUERY = _PATH.replace(b"@/-", b"@/?-")
_IRI = (
    rb"<(?:https?://[A-Za-z0-9._-]++(?::[0-9]{1,5}+)?+(?=[/?\#>])|urn:(?=[A-Za-z0-9]))"
    + _PATH
    + rb"(?:\?"
    + _QUERY
    + rb")?+(?:\#"
    + _QUERY
    + rb")?+>"
)
# datatypes that are never written
_IMPLIED = rb"(?!<http://www\.w3\.org/(?:2001/XMLSchema\#string|1999/02/22-rdf-syntax-ns\#(?:lang|dirLang)String)>)"
# neither control characters, quotes and back-slashes, nor U+FFFE and U+FFFF, which canonical N-Quads escapes
_TEXT = rb"[\x20\x21\x23-\x5b\x5d-\x7e\x80-\xee\xf0-\xff]*+"
_LITERAL = (
    rb'"' + _TEXT + rb'(?:(?:\\[btnfr"\\]|\xef(?!\xbf[\xbe\xbf]))' + _TEXT + rb')*+"'
    rb"(?:@[a-z]{2,3}+(?:-[a-z]{4})?+(?:-[a-z]{2})?+(?=\ )|\^\^" + _IMPLIED + _IRI + rb")?+"
)
_NODE = rb"|_:[A-Za-z0-9][A-Za-z0-9_]*+"


def _lines(node: bytes, graph: bytes = b"", sign: bytes = b"") -> re.Pattern[bytes]:
    """A run of canonical lines; `node` is what a node may be beside an IRI, `graph` what may name a graph."""
    return re.compile(
        rb"(?:%(s)s(?:%(i)s%(n)s)\ %(i)s\ (?:%(i)s|%(l)s%(n)s)\ %(g)s\.\n)*+"
        % {b"i": _IRI, b"l": _LITERAL, b"n": node, b"g": graph, b"s": sign},
        re.VERBOSE,
    )


_GRAPH = rb"(?:(?:" + _IRI + _NODE + rb")\ )?+"


_CANONICAL: Final = (_lines(_NODE, _GRAPH), _lines(_NODE))
"""For statements with a graph, and for those without."""
_SIGNED: Final = _lines(_NODE, _GRAPH, rb"[+-]")
_QUOTE: Final = re.compile(rb'\\.|"')
_LONE_CR: Final = re.compile(rb"\r(?!\n)")
_TRIPLE_TERM: Final = re.compile(rb"^[ \t]*+(?:(?:<[^>\n]*+>|_:[^ \t\n<]++)[ \t]*+<[^>\n]*+>[ \t]*+)?+<<", re.MULTILINE)
_DIRECTION: Final = re.compile(rb'"@[A-Za-z0-9-]+--[A-Za-z]+ (?:(?:<[^>\n]*>|_:[^ \n]+) )?\.$', re.MULTILINE)
_OBJECT_TRIPLE: Final = re.compile(rb"^[^ \n]++ [^ \n]++ <<", re.MULTILINE)
HAS_BLANK: Final = re.compile(rb'(?:^|^[^ \n]++ [^ \n]++ )_:|\ _:[^ ">\n]++\ \.$', re.MULTILINE)
"""Whether a canonical line has a blank node."""


def signed_end(block: bytes, start: int) -> int:
    """Where the lines of a patch with canonical statements end that begin at `start`. The block is UTF-8."""
    return _end(_SIGNED, block, start)


def canonical_block(block: bytes, line: int, where: str, syntax_format: RdfFormat = RdfFormat.N_QUADS) -> bytes:
    """A block of whole lines of N-Quads (or N-Triples) as canonical lines, in the order of the block.

    `line` is the number of its first line. Raises BadRdf.
    """
    return canonical_and_blanks(block, line, where, syntax_format)[0]


def canonical_and_blanks(
    block: bytes, line: int, where: str, syntax_format: RdfFormat = RdfFormat.N_QUADS
) -> tuple[bytes, bool]:
    """The same, and whether there are blank nodes."""
    utf8_checked(block, line, lambda what, at: BadRdf(what, where=where, line=at, rule="NQUD-A11"))
    end = _end(_CANONICAL[syntax_format == RdfFormat.N_TRIPLES], block, 0)
    lines = block
    if end < len(block):
        lines = block[:end] + parsed_lines(block[end:], line + block.count(b"\n", 0, end), where, syntax_format)
    return lines, has_blanks(lines)


def good_lines(
    block: bytes, line: int, where: str, syntax_format: RdfFormat, refused: Callable[[BadRdf], None]
) -> bytes:
    """The same without the bad lines, each of which is `refused`."""
    good: list[bytes] = []
    try:
        return canonical_block(block, line, where, syntax_format)
    except BadRdf:
        for number, text in enumerate(block.split(b"\n")[:-1], line):
            try:
                good.append(canonical_block(text + b"\n", number, where, syntax_format))
            except BadRdf as error:
                refused(error)
    return b"".join(good)


def _end(pattern: re.Pattern[bytes], block: bytes, start: int) -> int:
    found = pattern.match(block, start)
    assert found is not None
    return found.end()


def parsed_lines(lines: bytes, line: int, where: str, syntax_format: RdfFormat = RdfFormat.N_QUADS) -> bytes:
    """Lines of N-Quads as the parser understands them, canonical. Raises BadRdf."""
    if (lone := _LONE_CR.search(lines)) is not None:
        at = line + lines.count(b"\n", 0, lone.start())
        raise BadRdf("a carriage return without a line feed is no end of a line", where=where, line=at)
    if (term := _TRIPLE_TERM.search(lines)) is not None:
        at = line + lines.count(b"\n", 0, term.end())
        raise BadRdf("triple terms are not supported", where=where, line=at, rule="NQUD-A13")
    try:
        found = serialize(parse(lines, syntax_format), format=RdfFormat.N_QUADS)
    except SyntaxError as error:
        if 0 < lines.find(b"\n") < len(lines) - 1:  # the parser is not always right about the line
            for number, one in enumerate(lines.split(b"\n")[:-1], line):
                parsed_lines(one + b"\n", number, where, syntax_format)
        raise BadRdf(_said_of_line(error, lines, syntax_format), where=where, line=line) from error
    except MemoryError as error:
        raise BadRdf("a statement is too long", where=where, line=line) from error
    assert found is not None
    refuse_directions(found, where, line)
    return found


def canonical_quads(quads: list[Quad], where: str) -> bytes:
    """Quads of a parser as canonical lines. Raises BadRdf for what a dataset of ours cannot have."""
    found = serialize(quads, format=RdfFormat.N_QUADS)
    assert found is not None
    if _OBJECT_TRIPLE.search(found) is not None:
        raise BadRdf("triple terms are not supported", where=where, rule="NQUD-A13")
    refuse_directions(found, where, None)
    return found


def refuse_directions(lines: bytes, where: str, line: int | None) -> None:
    """Raise BadRdf where canonical lines have a language tag with a direction."""
    if b"--" in lines and (found := _DIRECTION.search(lines)) is not None:
        at = None if line is None else line + lines.count(b"\n", 0, found.start())
        raise BadRdf("language tags with a direction are not supported", where=where, line=at)


def is_iri(text: str) -> bool:
    """Whether a text is an absolute IRI as the parser has them."""
    if not re.fullmatch(r"[^<>\s\\]+", text):
        return False
    try:
        parsed_lines(f"<{text}> <{text}> <{text}> .\n".encode(errors="replace"), 1, "")
    except BadRdf:
        return False
    return True


def syntax_fault(error: SyntaxError, where: str) -> BadRdf:
    """What the parser says, with the number of the line in the file where it tells one."""
    return BadRdf(_said(error), where=where, line=error.lineno)


def _said(error: SyntaxError) -> str:
    if "No scheme found in an absolute IRI" in str(error):
        return "a relative IRI, and no base: give one in the file, by --base, or by base_iri of a set"
    if "LoadDocumentCallback" in str(error):
        return "a context of JSON-LD that would have to be fetched: put it into the document"
    return re.sub(r"^Parser error [^:]*: | \(line \d+\)$", "", str(error))


def _said_of_line(error: SyntaxError, line: bytes, syntax_format: RdfFormat) -> str:
    if "No scheme found in an absolute IRI" in str(error):
        return "a relative IRI, and N-Quads and N-Triples have absolute ones alone"
    if "end of file" in str(error) and _QUOTE.findall(line).count(b'"') % 2:
        return "the literal is not closed within its line"
    if syntax_format == RdfFormat.N_TRIPLES:
        with suppress(SyntaxError):
            if list(parse(line, RdfFormat.N_QUADS)):
                return "a graph name, which N-Triples does not have: use N-Quads (.nq)"
    return _said(error)


def has_blanks(lines: bytes) -> bool:
    """Whether canonical lines have a blank node."""
    return re.search(rb"_:", lines) is not None and HAS_BLANK.search(lines) is not None  # `in` is slower


def refuse_blanks(lines: bytes, where: str, line: int | None) -> None:
    """Raise BlankNodesRefused where canonical lines have a blank node."""
    if b"_:" in lines and (found := HAS_BLANK.search(lines)) is not None:
        at = None if line is None else line + lines.count(b"\n", 0, found.end())
        raise BlankNodesRefused("the dataset has blank nodes", where=where, line=at, rule="NQUD-A6")
