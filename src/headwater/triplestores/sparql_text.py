"""Statements of canonical N-Quads as the text of SPARQL updates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from headwater.triplestores.skolem import with_iris

_STATEMENT = re.compile(
    rb'([^ ]+ [^ ]+ (?:"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:@[^ ]+|\^\^<[^>]*>)?|[^" ][^ ]*))(?: (<[^>]*>|_:[^ ]+))? \.\n?\Z'
)
_ESCAPED_U = re.compile(rb"(?<!\\)((?:\\\\)+)([uU])")
"""SPARQL resolves \\u escapes before it reads strings (19.2), so that an escaped backslash before a u is in doubt."""


def parts_of(statement: bytes) -> tuple[bytes, bytes | None]:
    """Subject, predicate and object of a canonical statement as one text, and its graph. Raises ValueError."""
    found = _STATEMENT.match(statement)
    if found is None:
        raise ValueError(f"no statement: {statement[:100]!r}")
    return found[1], found[2]


def as_data(operation: str, statements: Iterable[bytes], default_graph: bytes | None = None) -> bytes:
    """The operation `INSERT DATA` or `DELETE DATA` on statements, blank nodes as IRIs; nothing where there are none.

    What is in the default graph goes to `default_graph`, if one is given. Ends with a semicolon.
    """
    lines = [_block(statement, default_graph) for statement in statements]
    return b"".join((operation.encode(), b" {\n", *lines, b"};\n")) if lines else b""


def _block(statement: bytes, default_graph: bytes | None) -> bytes:
    triple, graph = parts_of(with_iris(statement.rstrip(b"\n") + b"\n"))
    graph = graph or default_graph
    if b"\\\\" in triple:
        triple = _ESCAPED_U.sub(_spelled, triple)
    return triple + b" .\n" if graph is None else b"GRAPH " + graph + b" { " + triple + b" }\n"


def _spelled(found: re.Match[bytes]) -> bytes:
    return found[1] + (b"\\u0075" if found[2] == b"u" else b"\\U00000055")


MOST_STATEMENTS: Final = 5_000
MOST_OCTETS: Final = 4 << 20
LARGEST_FACTOR: Final = 16
"""A load sends so many times as much at once, where the endpoint takes it: to some a request costs a second."""


class StatementBatches:
    """Statements cut into batches; what does not fit into one is the first of the next."""

    def __init__(self, statements: Iterable[bytes]) -> None:
        self._left = iter(statements)
        self._next = next(self._left, None)

    def take(self, factor: int = 1) -> list[bytes]:
        """The next batch, empty at the end: what one request takes well, or `factor` times as many statements.

        Its octets are bounded too, to at most four times as many; a statement that is longer goes alone.
        """
        batch: list[bytes] = []
        octets, most_octets = 0, MOST_OCTETS * min(factor, 4)
        while self._next is not None and len(batch) < MOST_STATEMENTS * factor:
            octets += len(self._next)
            if batch and octets > most_octets:
                break
            batch.append(self._next)
            self._next = next(self._left, None)
        return batch


def batches(statements: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Statements in batches that one request takes well."""
    left = StatementBatches(statements)
    while batch := left.take():
        yield batch
