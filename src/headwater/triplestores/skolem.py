"""Blank nodes of a dataset as IRIs, for stores that keep no labels of blank nodes, and back (NQUD-A6).

A store gives blank nodes labels of its own, so that no patch could name them. Within one series of a dataset labels are
taken as stable: in a store a blank node is an IRI that holds its label. Lines are canonical N-Quads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final

PREFIX: Final = "urn:uuid:5409b1f3-7628-44aa-9add-d44fd627bfb7#blank-"
_PREFIX: Final = PREFIX.encode()
_SUBJECT = re.compile(rb"(?m)^_:([^ \n]+)")
_OBJECT = re.compile(rb"(?m)^([^ \n]+ [^ \n]+ )_:([^ \n]+)")
_GRAPH = re.compile(rb'(?m) _:([^ "\n]+) \.$')
_BACK_SUBJECT = re.compile(rb"(?m)^<" + re.escape(_PREFIX) + rb"([^> \n]+)>")
_BACK_OBJECT = re.compile(rb"(?m)^([^ \n]+ [^ \n]+ )<" + re.escape(_PREFIX) + rb"([^> \n]+)>")
_BACK_GRAPH = re.compile(rb"(?m) <" + re.escape(_PREFIX) + rb'([^> "\n]+)> \.$')
_CHUNK: Final = 1 << 20


def with_iris(lines: bytes) -> bytes:
    """Whole lines, with an IRI for each blank node."""
    if b"_:" not in lines:
        return lines
    named = _SUBJECT.sub(rb"<" + _PREFIX + rb"\1>", lines)
    named = _OBJECT.sub(rb"\1<" + _PREFIX + rb"\2>", named)
    return _GRAPH.sub(rb" <" + _PREFIX + rb"\1> .", named)


def with_blank_nodes(lines: bytes) -> bytes:
    """Whole lines, with the blank nodes as they were published."""
    if _PREFIX not in lines:
        return lines
    blank = _BACK_SUBJECT.sub(rb"_:\1", lines)
    blank = _BACK_OBJECT.sub(rb"\1_:\2", blank)
    return _BACK_GRAPH.sub(rb" _:\1 .", blank)


class SkolemReader:
    """A binary stream of N-Quads with IRIs in the place of blank nodes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._chunks = self._converted(stream)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """The next octets, no more than `size` of them; empty at the end."""
        if not self._rest:
            self._rest = next(self._chunks, b"")
        if size < 0 or size >= len(self._rest):
            taken, self._rest = self._rest, b""
            return taken
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _converted(self, stream: IO[bytes]) -> Iterator[bytes]:
        while chunk := stream.read(_CHUNK):
            yield with_iris(chunk + stream.readline())
