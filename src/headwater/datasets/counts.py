"""Counts of a dataset by property, class and graph: made of its lines once, kept up by the lines of each patch.

Lines are canonical N-Quads, so that terms are found by the blanks between them. What is counted is bounded: a dataset
with more properties than fit has no number of them, and none is told beside those that came first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

MOST_KEYS: Final = 2_000
"""Of each kind."""
LONGEST_KEY: Final = 500
_OBJECT_AND_GRAPH: Final = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"\S*|\S+)(?: (\S+))? \.\n?\Z')
_TYPE: Final = b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"


class DatasetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many quads have each property, each class (as objects of rdf:type) and each graph that has a name.

    In `incomplete` are the kinds of which there are more than are counted.
    """

    properties: dict[str, int] = {}
    classes: dict[str, int] = {}
    graphs: dict[str, int] = {}
    incomplete: frozenset[str] = frozenset()


class CountingLines:
    """Counts lines over what was counted before."""

    def __init__(self, before: DatasetCounts | None = None) -> None:
        before = before or DatasetCounts()
        self._counts = {
            "properties": _encoded(before.properties),
            "classes": _encoded(before.classes),
            "graphs": _encoded(before.graphs),
        }
        self._incomplete = set(before.incomplete)

    def add(self, lines: Iterable[bytes], weight: int = 1) -> None:
        """Count statements that were added, or with a `weight` of -1 removed."""
        properties, classes = self._counts["properties"], self._counts["classes"]
        for line in lines:
            _subject, predicate, rest = line.split(b" ", 2)
            if predicate in properties:
                properties[predicate] += weight
            else:
                self._count("properties", predicate, weight)
            if predicate == _TYPE:
                found, graph = object_and_graph(rest)
                if found in classes:
                    classes[found] += weight
                else:
                    self._count("classes", found, weight)
            else:
                graph = graph_of(rest)
            if graph:
                self._count("graphs", graph, weight)

    def counts(self) -> DatasetCounts:
        """What has been counted."""
        made = {
            kind: {key[1:-1].decode("utf-8", "replace"): count for key, count in sorted(found.items()) if count > 0}
            for kind, found in self._counts.items()
        }
        return DatasetCounts(**made, incomplete=frozenset(self._incomplete))

    def _count(self, kind: str, key: bytes, weight: int) -> None:
        counted = self._counts[kind]
        if key in counted:
            counted[key] += weight
        elif not key.startswith(b"<") or len(key) > LONGEST_KEY or len(counted) >= MOST_KEYS:
            if key.startswith(b"<"):
                self._incomplete.add(kind)
        elif kind not in self._incomplete and weight > 0:
            counted[key] = weight


def graph_of(rest: bytes) -> bytes:
    """The graph of a statement, given what follows its predicate; empty in the default graph."""
    if not rest.endswith(b"> .\n"):
        return b""
    return object_and_graph(rest)[1]


def object_and_graph(rest: bytes) -> tuple[bytes, bytes]:
    """The object and the graph (or nothing) of a statement, given what follows its predicate."""
    match = _OBJECT_AND_GRAPH.match(rest)
    return (rest, b"") if match is None else (match[1], match[2] or b"")


def _encoded(counts: dict[str, int]) -> dict[bytes, int]:
    return {b"<" + key.encode() + b">": count for key, count in counts.items()}
