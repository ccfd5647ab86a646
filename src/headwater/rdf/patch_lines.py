"""The lines of N-Quads Unified Diff (NQUD-01, NQUD-02): what is effective is read, all else is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple

from headwater.rdf.faults import BOUNDS, BadRdf, BadRdfPatch, RdfBounds
from headwater.rdf.lines.reading import line_blocks, octets, utf8_checked
from headwater.rdf.lines.statements import is_canonical_line, parsed_lines

_EFFECTIVE: Final = re.compile(rb"^([+-])([^\n]*+)\n", re.MULTILINE)
_DOUBLE: Final = (b"+", b"-")


class PatchLine(NamedTuple):
    """An effective line: `+` or `-`, the statement as a canonical N-Quads line with its LF, its number in the file."""

    sign: str
    statement: bytes
    number: int


class PatchReader(Iterator[PatchLine]):
    """The effective lines of a patch, in its order. `skipped` counts the malformed ones that were passed over."""

    def __init__(
        self, stream: BinaryIO, where: str, bounds: RdfBounds, skip: Callable[[BadRdfPatch], None] | None
    ) -> None:
        self.skipped = 0
        self._where = where
        self._skip = skip
        self._lines = self._read(line_blocks(octets(stream, where, bounds), where, bounds))

    def __next__(self) -> PatchLine:
        return next(self._lines)

    def _read(self, blocks: Iterator[bytes]) -> Iterator[PatchLine]:
        number = 1
        for block in blocks:
            utf8_checked(block, number, lambda what, at: self._bad(what, at, "NQUD-A11"))
            end = number
            start = 0
            for found in _EFFECTIVE.finditer(block):
                end += block.count(b"\n", start, found.start())
                start = found.start()
                sign, rest = found[1], found[2]
                if rest[:1] != sign and (statement := self._statement(rest + b"\n", end)):
                    yield PatchLine("+" if sign == b"+" else "-", statement, end)
            number += block.count(b"\n")

    def _statement(self, text: bytes, number: int) -> bytes | None:
        """The canonical statement of a line after its sign; None where there is none."""
        if is_canonical_line(text):
            return text
        body = text.lstrip(b" \t")
        if body in (b"\n", b"\r\n") or body.startswith(b"#"):
            return None
        try:
            if text.startswith(_DOUBLE):
                raise self._bad("two different signs", number, "NQUD-A1")
            if not body.startswith((b"<", b"_:")):
                raise self._bad("a statement begins with an IRI or a blank node", number, "NQUD-A3")
            statement = parsed_lines(body, number, self._where)
            if not statement:
                raise self._bad("there is no statement after the sign", number, "NQUD-A3")
            return statement
        except BadRdfPatch as error:
            fault = error
        except BadRdf as error:
            what = error.what.partition(": ")[2] if error.line is not None else error.what
            fault = self._bad(what, number, error.rule or "NQUD-A3")
        if self._skip is None:
            raise fault
        self._skip(fault)
        self.skipped += 1
        return None

    def _bad(self, what: str, line: int, rule: str) -> BadRdfPatch:
        return BadRdfPatch(what, where=self._where, line=line, rule=rule)


def read_patch(
    stream: BinaryIO,
    *,
    strict: bool,
    where: str = "the patch",
    bounds: RdfBounds = BOUNDS,
    skipped: Callable[[BadRdfPatch], None] = lambda fault: None,
) -> PatchReader:
    """The effective lines of a patch, inflated where it is gzip. While they are read BadRdfPatch is raised for a
    malformed one if `strict`, else it is skipped, counted, and `skipped` is told; for what is not UTF-8 always
    (NQUD-A3, NQUD-A11)."""
    return PatchReader(stream, where, bounds, None if strict else skipped)
