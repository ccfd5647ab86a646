"""The hash of what an RDF document says: SHA-256 of its canonical N-Quads (RDFC-1.0), one after the other, bounded.

It is what `headwater rdf hash --base URI` prints: equal for documents that say the same, in whatever octets. Parser and
canonicaliser run in a process that is ended at a document that takes too long or too much (a poison graph, a bomb).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from headwater.processes.pool import JobEnded, LimitedProcess, limit_memory
from headwater.rdf.blank_nodes import bounded_forms
from headwater.rdf.faults import BadRdf, RdfBounds, RdfTooCostly
from headwater.rdf.parsing import statements_of
from headwater.rdf.statements import canonical_block, has_blanks, line_blocks, octets
from headwater.rdf.syntaxes import NAMES, RdfInput, Syntax

HASHED_OCTETS: Final = 16 << 20
"""Of one document, inflated: it and its statements are held in memory."""
_SECONDS: Final = 20.0
_MEMORY: Final = 1 << 30
_MOST_ENDED: Final = 5
"""After so many documents at which the process was ended no other is tried: each takes its time."""


@dataclass(frozen=True, slots=True)
class RdfDocument:
    """An RDF document: a file, or its octets where they are given; `uri` is what relative IRIs are resolved against."""

    path: Path
    syntax: Syntax
    uri: str
    octets: bytes | None = None


class CanonicalHasher:
    """Hashes documents by their canonical form. Close it."""

    def __init__(self, *, octets: int = HASHED_OCTETS, seconds: float | None = None) -> None:
        self._most = octets
        self._seconds = _SECONDS if seconds is None else seconds
        self._left = _MOST_ENDED
        self._process = LimitedProcess(document_hasher, _MEMORY)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def digest(self, document: RdfDocument) -> str:
        """The SHA-256, hexadecimal. Raises BadRdf for what is no RDF in its syntax, RdfTooCostly, OSError."""
        where = document.uri
        length = document.path.stat().st_size if document.octets is None else len(document.octets)
        if length > self._most:
            raise RdfTooCostly(f"the document has more than {self._most:,} octets", where=where)
        if not self._left:
            raise RdfTooCostly("too many documents before it took too long to be canonicalised", where=where)
        job = (str(document.path), document.octets, document.syntax.name, document.uri, self._most)
        try:
            digest, fault, is_costly = self._process.do(job, self._seconds)
        except JobEnded as error:
            self._left -= 1
            raise RdfTooCostly(f"the document cannot be canonicalised: {error}", where=where) from error
        if digest:
            return str(digest)
        raise (RdfTooCostly if is_costly else BadRdf)(fault, where=where)


def document_hasher(memory: int) -> Callable[[Any], Any]:
    """What the process does: the digest of a document, or what is wrong with it, and whether that is its cost."""
    limit_memory(memory)

    def hashed(job: tuple[str, bytes | None, str, str, int]) -> tuple[str, str, bool]:
        path, given, syntax, uri, most = job
        one = RdfInput(Path(path), NAMES[syntax], uri, uri)
        try:
            with Path(path).open("rb") if given is None else BytesIO(given) as stream:
                return _digest(one, stream, RdfBounds(octets=most), memory), "", False
        except BadRdf as error:
            return "", error.what, isinstance(error, RdfTooCostly)
        except OSError as error:
            return "", f"the document cannot be read: {error.strerror}", False

    return hashed


def _digest(one: RdfInput, stream: BinaryIO, bounds: RdfBounds, memory: int) -> str:
    plain: set[bytes] = set()
    blanks: set[bytes] = set()
    for block in _blocks(one, stream, bounds):
        for line in block.splitlines(keepends=True):
            (blanks if has_blanks(line) else plain).add(line)
    if blanks:
        (form,) = bounded_forms([b"".join(sorted(blanks))], memory)
        plain.update(form.splitlines(keepends=True))
    return hashlib.sha256(b"".join(sorted(plain))).hexdigest()


def _blocks(one: RdfInput, stream: BinaryIO, bounds: RdfBounds) -> Iterator[bytes]:
    if not one.syntax.is_lines:
        yield from statements_of(one, stream, bounds)
        return
    line = 1
    for block in line_blocks(octets(stream, one.where, bounds), one.where, bounds):
        yield canonical_block(block, line, one.where, one.syntax.parser_format)
        line += block.count(b"\n")
