"""Names for blank nodes: stable IRIs, or the labels of RDFC-1.0, in a process that may take so long and no longer.

Blank nodes that statements connect are a component. A component is named by itself, so that a change elsewhere changes
no name: the IRI of a node has the SHA-256 of the canonical form of its component (RDFC-1.0), and its number there.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from enum import Enum
from typing import Any, Final

from pyoxigraph import CanonicalizationAlgorithm, Dataset, RdfFormat, parse, serialize

from headwater.processes.pool import JobEnded, LimitedProcess, limit_memory
from headwater.rdf import RdfBounds, RdfTooCostly

_LINE: Final = re.compile(
    rb'(?:(?P<s>_:[^ ]+)|[^ ]+) [^ ]+ (?:(?P<o>_:[^ ]+)(?: <[^>]*>)?|[^\n]*?)(?: (?P<g>_:[^ ">]+))? \.\n'
)
"""The blank nodes of a canonical line."""
_HASH_DIGITS: Final = 32
_NAMING_OCTETS: Final = 256 << 20
_NAMING_GROWTH: Final = 48
"""A process that names blank nodes takes thirty octets for each of their statements."""


class BlankNodes(Enum):
    """What becomes of blank nodes (NQUD-A6)."""

    REFUSED = "refuse"  # BlankNodesRefused is raised
    REPLACED = "iris"
    """By stable IRIs below a prefix, which change only where what is said of them changes (RDF 1.1 section 3.5)."""
    CANONICAL = "canonical"  # they get the labels of RDFC-1.0: the same for the same dataset, but others after a change
    KEPT = "keep"  # their labels stay as they are: of one file in a syntax with labels


class NamedLines:
    """Takes the statements with blank nodes of a dataset, and gives them with names; `genid` is the prefix of the IRIs,
    without it labels are given."""

    def __init__(self, bounds: RdfBounds, genid: str | None) -> None:
        self._bounds = bounds
        self._genid = genid
        self._lines: list[bytes] = []

    def take(self, block: bytes, file: int, where: str) -> None:
        """Keep lines with blank nodes. Labels of another `file` are other nodes."""
        for line in block.splitlines(keepends=True):
            self._lines.append(relabelled(line, lambda label: b"_:f%dx%s" % (file, label[2:])))
        if len(self._lines) > self._bounds.blank_statements:
            raise RdfTooCostly(
                f"more than {self._bounds.blank_statements:,} statements have blank nodes", where=where, rule="NQUD-A6"
            )

    def blocks(self) -> Iterator[bytes]:
        """The statements that were taken, named. Raises RdfTooCostly."""
        lines = sorted(set(self._lines))
        self._lines = []
        if not lines:
            return
        if self._genid is None:
            yield self._canonical([b"".join(lines)])[0]
            return
        prefix = self._genid.encode()
        single: list[bytes] = []
        several: list[bytes] = []
        for nodes, component in components(lines):
            (single if nodes == 1 else several).append(b"".join(component))
        forms = [_each_line(component, lambda _label: b"_:c14n0") for component in single]
        if several:
            forms += self._canonical(several)
        seen: Counter[bytes] = Counter()
        for form in forms:
            name = hashlib.sha256(form).hexdigest()[:_HASH_DIGITS].encode()
            seen[name] += 1
            if seen[name] > 1:  # the same is said of other nodes
                name += b".%d" % seen[name]
            yield _with_iris(form, prefix + name + b"-")

    def _canonical(self, components: list[bytes]) -> list[bytes]:
        try:
            with closing(LimitedProcess(canonicaliser, self._bounds.parser_octets)) as process:
                answer: list[bytes] = process.do(components, self._bounds.blank_seconds)
        except JobEnded as error:
            raise RdfTooCostly(f"the blank nodes cannot be named: {error}", rule="NQUD-A6") from error
        return answer


def components(lines: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The lines that blank nodes connect, together, with the number of their nodes."""
    parents: dict[bytes, bytes] = {}

    def root(label: bytes) -> bytes:
        while (parent := parents[label]) != label:
            parents[label] = label = parents[parent]
        return label

    firsts = []
    for line in lines:
        found = _LINE.fullmatch(line)
        assert found is not None
        labels = [label for label in found.groups() if label is not None]
        for label in labels:
            parents.setdefault(label, label)
        for label in labels[1:]:
            parents[root(label)] = root(labels[0])
        firsts.append(labels[0])
    together: dict[bytes, list[bytes]] = {}
    for first, line in zip(firsts, lines, strict=True):
        together.setdefault(root(first), []).append(line)
    nodes = Counter(root(label) for label in parents)
    for name, component in together.items():
        yield nodes[name], component


def _with_iris(form: bytes, prefix: bytes) -> bytes:
    return _each_line(form, lambda label: b"<%s%s>" % (prefix, label.removeprefix(b"_:c14n")))


def relabelled(line: bytes, name: Callable[[bytes], bytes]) -> bytes:
    """A canonical line with `name(label)` in place of each blank node."""
    found = _LINE.fullmatch(line)
    assert found is not None
    pieces, end = [], 0
    for group in ("s", "o", "g"):
        if found[group] is not None:
            pieces += [line[end : found.start(group)], name(found[group])]
            end = found.end(group)
    return b"".join((*pieces, line[end:]))


def _each_line(lines: bytes, name: Callable[[bytes], bytes]) -> bytes:
    return b"".join(sorted(relabelled(line + b"\n", name) for line in lines.split(b"\n")[:-1]))


def canonicaliser(octets: int) -> Callable[[Any], Any]:
    """What a process does that names blank nodes: it makes the canonical form of each of the graphs."""
    return lambda graphs: bounded_forms(graphs, octets)


def bounded_forms(graphs: list[bytes], octets: int) -> list[bytes]:
    """The canonical forms of graphs within the memory that graphs of this length take, and no more than `octets`: a
    poisonous one is small."""
    limit_memory(min(octets, _NAMING_OCTETS + _NAMING_GROWTH * sum(map(len, graphs))))
    try:
        return [canonical_form(graph) for graph in graphs]
    finally:
        limit_memory(octets)


def canonical_form(graph: bytes) -> bytes:
    """Canonical lines with the labels of RDFC-1.0, sorted. Takes for ever for some graphs: for a limited process."""
    dataset = Dataset(parse(graph, RdfFormat.N_QUADS))
    dataset.canonicalize(CanonicalizationAlgorithm.RDFC_1_0)
    lines = serialize(dataset, format=RdfFormat.N_QUADS)
    assert lines is not None
    return b"".join(sorted(line + b"\n" for line in lines.split(b"\n")[:-1]))
