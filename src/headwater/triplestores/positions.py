"""The position of a store: which dataset it holds in which state, as statements of a named graph of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

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

    dataset: str
    """The URI of the dataset."""

    sha256: str
    quads: int
    at: str | None = None
    """When that state was, in the source's time."""


class StoreState(msgspec.Struct, frozen=True):
    """What a store says of itself: the position, and the SHA-256 of the state to which it is on its way."""

    position: StorePosition | None
    under_way: str | None = None
    batch: str | None = None
    """The number of the last batch on that way, where a store takes changes in batches."""


class WithoutPosition:
    """A binary stream that passes on lines of N-Quads, some at a time, but for those of the graph of positions."""

    _MARK: Final = f" <{POSITION_GRAPH}> .\n".encode()

    def __init__(self, pass_on: Callable[[bytes], object]) -> None:
        self._pass_on = pass_on
        self._rest = b""

    def write(self, octets: bytes) -> int:
        """Take the next octets."""
        text = self._rest + octets
        end = text.rfind(b"\n") + 1
        lines, self._rest = text[:end], text[end:]
        if self._MARK in lines:
            lines = b"".join(line for line in lines.splitlines(keepends=True) if not self._is_position(line))
        self._pass_on(lines)
        return len(octets)

    def _is_position(self, line: bytes) -> bool:
        """Whether the graph is that of positions; a statement without a graph may have its name as the object."""
        return line.endswith(self._MARK) and line.split(b" ", 2)[2] != self._MARK[1:]

    def flush(self) -> None:
        """Nothing is held back but the rest of a line."""


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
    return f"<{NAMESPACE}position/{_escaped(dataset)}>"


def iri_text(uri: str) -> str:
    """A URI as it may stand between `<` and `>` in N-Quads and SPARQL, whatever characters it has."""
    return _NO_IRI.sub(lambda found: "".join(f"%{octet:02X}" for octet in found[0].encode()), uri)


def _escaped(uri: str) -> str:
    return "".join(
        c if c.isascii() and (c.isalnum() or c in "-._~") else "".join(f"%{b:02X}" for b in c.encode()) for c in uri
    )
