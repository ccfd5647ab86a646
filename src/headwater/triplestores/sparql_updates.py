"""Statements for a triplestore: its position as a graph of its own, blank nodes as IRIs, updates as text of SPARQL.

A position tells which dataset a store holds in which state. Lines are canonical N-Quads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

NAMESPACE: Final = "urn:uuid:5409b1f3-7628-44aa-9add-d44fd627bfb7#"
POSITION_GRAPH: Final = f"{NAMESPACE}positions"
"""The graph in which positions stand; no dataset may have it."""

DATASET, SHA256, QUADS, AT = (f"{NAMESPACE}{name}" for name in ("dataset", "sha-256", "quads", "at"))
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_NO_IRI = re.compile(r"[\x00-\x20<>\"{}|\\^`]")
_INTEGER: Final = "http://www.w3.org/2001/XMLSchema#integer"


class StorePosition(msgspec.Struct, frozen=True):
    """The state of a dataset in a store: the SHA-256 and the number of statements of its canonical N-Quads."""

    dataset: str  # the URI of the dataset
    sha256: str
    quads: int
    at: str | None = None  # when that state was, in the source's time


class StoreState(msgspec.Struct, frozen=True):
    """What a store says of itself: the position, and the SHA-256 of the state to which it is on its way."""

    position: StorePosition | None
    under_way: str | None = None
    batch: str | None = None  # the number of the last batch on that way, where a store takes changes in batches


def position_of(told: Mapping[str, str]) -> StorePosition | None:
    """The position that statements tell, by their predicates; None where they tell of none."""
    sha256, quads = told.get(SHA256, ""), told.get(QUADS, "")
    if not _HEX.match(sha256) or not quads.isascii() or not quads.isdigit():
        return None
    return StorePosition(told.get(DATASET, ""), sha256, int(quads), told.get(AT))


def statements_of(position: StorePosition) -> Iterator[bytes]:
    """The statements that tell a position, as lines of N-Quads."""
    subject = subject_of(position.dataset)
    objects = {
        DATASET: f"<{iri_text(position.dataset)}>",
        SHA256: f'"{position.sha256}"',
        QUADS: f'"{position.quads}"^^<{_INTEGER}>',
    }
    if position.at is not None:
        objects[AT] = f'"{position.at}"'
    for predicate, term in objects.items():
        yield f"{subject} <{predicate}> {term} <{POSITION_GRAPH}> .\n".encode()


def subject_of(dataset: str) -> str:
    """The subject of the position of a dataset, as N-Quads has it."""
    return f"<{NAMESPACE}position/{quote(dataset, safe='', errors='strict')}>"


def iri_text(uri: str) -> str:
    """A URI as it may stand between `<` and `>` in N-Quads and SPARQL, whatever characters it has."""
    return _NO_IRI.sub(lambda found: "".join(f"%{octet:02X}" for octet in found[0].encode()), uri)


# blank nodes as IRIs: a store gives them labels of its own, so that no patch could name them. Within one series of a
# dataset labels are taken as stable: in a store a blank node is an IRI that holds its label (NQUD-A6).

_PREFIX: Final = f"{NAMESPACE}blank-".encode()


def _places(term: bytes) -> tuple[re.Pattern[bytes], ...]:
    """Where a term may be that is no predicate: the subject, the object, the graph."""
    places = (rb"^()%s", rb"^([^ \n]+ [^ \n]+ )%s", rb"( )%s(?= \.$)")
    return tuple(re.compile(place % term, re.MULTILINE) for place in places)


_LABELS: Final = _places(rb'_:([^ "\n]+)')
_IRIS: Final = _places(rb'<%s([^> "\n]+)>' % re.escape(_PREFIX))


def with_iris(lines: bytes) -> bytes:
    """Whole lines, with an IRI for each blank node."""
    for place in _LABELS if b"_:" in lines else ():
        lines = place.sub(rb"\1<" + _PREFIX + rb"\2>", lines)
    return lines


def with_blank_nodes(lines: bytes) -> bytes:
    """Whole lines, with the blank nodes as they were published."""
    for place in _IRIS if _PREFIX in lines else ():
        lines = place.sub(rb"\1_:\2", lines)
    return lines


# the text of SPARQL updates

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
    lines = []
    for statement in statements:
        triple, named = parts_of(with_iris(statement.rstrip(b"\n") + b"\n"))
        graph = named or default_graph
        if b"\\\\" in triple:
            triple = _ESCAPED_U.sub(lambda it: it[1] + (b"\\u0075" if it[2] == b"u" else b"\\U00000055"), triple)
        lines.append(triple + b" .\n" if graph is None else b"GRAPH " + graph + b" { " + triple + b" }\n")
    return b"".join((operation.encode(), b" {\n", *lines, b"};\n")) if lines else b""


MOST_STATEMENTS: Final = 5_000
MOST_OCTETS: Final = 4 << 20


LARGE: Final = 16
"""A load sends so many times as much at once, where the endpoint takes it: to some a request costs a second."""


def batches(statements: Iterable[bytes], factor: int = 1) -> Iterator[list[bytes]]:
    """Statements in batches that one request takes well, or `factor` times as many, of at most four times the octets.

    A statement that is longer goes alone.
    """
    most, most_octets = MOST_STATEMENTS * factor, MOST_OCTETS * min(factor, 4)
    batch: list[bytes] = []
    octets = 0
    for statement in statements:
        if batch and (len(batch) >= most or octets + len(statement) > most_octets):
            yield batch
            batch, octets = [], 0
        batch.append(statement)
        octets += len(statement)
    if batch:
        yield batch
