"""The lines of N-Quads Unified Diff (NQUD-01, NQUD-02): what is effective is read, all else is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import BinaryIO, Final, NamedTuple, cast

from headwater.rdf.faults import BOUNDS, BadRdf, BadRdfPatch, RdfBounds
from headwater.rdf.statements import line_blocks, octets, parsed_lines, signed_end, utf8_checked

_SIGNS: Final = {b"+": "+", b"-": "-"}
_PLUS: Final = 43
_NOT_EFFECTIVE: Final = re.compile(
    rb"(?:[^+\-\n][^\n]*+\n|\n|\+\+[^\n]*+\n|--[^\n]*+\n|[+\-][ \t]*+(?:\r?\n|#[^\n]*+\n))++"
)
"""Lines that say nothing, as `_other` knows them too: there may be one for each octet of a patch."""


class PatchLine(NamedTuple):
    """An effective line: `+` or `-`, the statement as a canonical N-Quads line with its LF, its number in the file."""

    sign: str
    statement: bytes
    number: int


_PATCH_LINE: Final = cast("Callable[[tuple[str, bytes, int]], PatchLine]", partial(tuple.__new__, PatchLine))
"""A record of its fields, without a call of Python for each."""


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

    def __iter__(self) -> Iterator[PatchLine]:
        return self._lines

    def _read(self, blocks: Iterator[bytes]) -> Iterator[PatchLine]:
        number = 1
        for block in blocks:
            utf8_checked(block, number, lambda what, at: self._bad(what, at, "NQUD-A11"))
            start = 0
            while start < len(block):
                end = signed_end(block, start)
                lines = block[start:end].splitlines(keepends=True)
                signs = ["+" if line[0] == _PLUS else "-" for line in lines]
                yield from map(_PATCH_LINE, zip(signs, [line[1:] for line in lines], count(number), strict=False))
                number += len(lines)
                if end < len(block) and (passed := _NOT_EFFECTIVE.match(block, end)):
                    start = passed.end()
                    number += block.count(b"\n", end, start)
                elif end < len(block):
                    start = block.index(b"\n", end) + 1
                    yield from self._other(block[end:start], number)
                    number += 1
                else:
                    start = end

    def _other(self, line: bytes, number: int) -> Iterator[PatchLine]:
        """A line that the pattern does not recognise: most often one that is not effective."""
        sign = line[:1]
        if sign in _SIGNS and line[1:2] != sign and (statement := self._statement(line[1:], number)):
            yield PatchLine(_SIGNS[sign], statement, number)

    def _statement(self, text: bytes, number: int) -> bytes | None:
        """The canonical statement of a line after its sign; None where there is none."""
        body = text.lstrip(b" \t")
        if body in (b"\n", b"\r\n") or body.startswith(b"#"):
            return None
        try:
            if text.startswith(tuple(_SIGNS)):
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
