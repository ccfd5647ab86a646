"""The copy of one dataset behind a SPARQL endpoint: loaded and patched by batches that may be repeated, position last.

What is in the default graph of the dataset goes into a named graph; its named graphs keep their names (TIM-A16). Which
graphs belong to which dataset is noted in the graph of the positions, before anything is put into them, so that two
datasets never share one. After each batch its number is read back: an endpoint that says 200 and does nothing is found
out.

To RDF `http://x/a/../b` and `http://x/b` are two IRIs (NQUD-A7); some endpoints read both as the second. So IRIs that
might be resolved are sent as prefixed names: such a name is what its two halves are when put together (SPARQL 1.1,
4.1.1), and nothing resolves it.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final

from headwater.errors import StoreFault
from headwater.triplestores.sparql_endpoint import Row, SparqlEndpoint, UpdateTooLarge
from headwater.triplestores.sparql_updates import (
    LARGE,
    NAMESPACE,
    POSITION_GRAPH,
    StorePosition,
    StoreState,
    as_data,
    batches,
    iri_text,
    parts_of,
    position_of,
    statements_of,
    subject_of,
    with_blank_nodes,
    with_iris,
)

_DOTS = re.compile(r"[:/]\.\.?[/?#>]")
_TERM = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|<([^<>"\s]*?[:/])(\.\.?(?=[/?#>])[^<>"\s]*)>')
_AS_IT_IS = re.compile(
    "[A-Za-z0-9_:\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff"
    "\uf900-\ufdcf\ufdf0-\ufffd]"
)
_ESCAPED: Final = frozenset("_~.-!$&'()*+,;=/?#@%")


def with_prefixed_names(text: str) -> str:
    """A text of SPARQL whose literals stand in double quotes, in which IRIs with dot segments are prefixed names.

    Raises ValueError where one has characters that such a name cannot have.
    """
    if _DOTS.search(text) is None:
        return text
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if not all(one in _ESCAPED or _AS_IT_IS.match(one) for one in found[2]):
            raise ValueError(found[0][:200])
        local = "".join("\\" + one if one in _ESCAPED else one for one in found[2])
        return f"{names.setdefault(found[1], f'dots{len(names)}')}:{local}"

    body = _TERM.sub(named, text)
    return "".join(f"PREFIX {name}: <{iri}>\n" for iri, name in names.items()) + body


_GRAPH: Final = f"{NAMESPACE}graph"
_UNDER_WAY: Final = f"{NAMESPACE}under-way"
_BATCH: Final = f"{NAMESPACE}batch"
_AT_A_TIME: Final = 500
"""Graphs in one request."""
MOST_GRAPHS: Final = 1_000_000
_MAY_BE_TOO_MUCH: Final = ("HW-SPQ-02", "HW-SPQ-03", "HW-SPQ-06")
"""By any of these an endpoint, or a proxy before it, may tell that a request is too large."""


class SparqlStore:
    """A dataset behind an endpoint. Raises StoreFault where the endpoint does not do what it is asked."""

    most_changes = 1 << 62  # more changes than these are loaded as a whole

    def __init__(self, endpoint: SparqlEndpoint, dataset: str, where: str) -> None:
        """The graph of its default graph is called as the dataset."""
        self._endpoint = endpoint
        self._subject = subject_of(dataset)
        self._default = f"<{iri_text(dataset)}>"
        self._where = where
        self._takes_large = True

    def state(self) -> StoreState:
        """The position and what is under way, as the endpoint has them now."""
        query = (
            f"SELECT ?p ?o WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {self._subject} ?p ?o }} FILTER(?p != <{_GRAPH}>) }}"
        )
        found = {(p or "").strip("<>"): _plain(o or "") for p, o in self._rows(query)}
        under_way = found.get(_UNDER_WAY)
        return StoreState(None if under_way == "load" else position_of(found), under_way, found.get(_BATCH))

    def load(self, dataset: Path, position: StorePosition) -> None:
        """Make the graphs of the dataset hold what is in a file of canonical N-Quads, and nothing else.

        Broken off, it goes on where it was if it is called with the same state.
        """
        mark = f"load {position.sha256}"
        state = self.state()
        kind, _, number = (state.batch or "").rpartition(" ")  # how many statements of this load are there
        done = int(number) if kind == mark and number.isdigit() else None
        if state.under_way != "load" or done is None:
            mine = self._graphs()
            wanted = self._graphs_of(dataset)
            self._check(wanted - mine)
            self._note(under_way="load", more=self._ownership(wanted))
            self._check_noted(wanted)
            self._drop(mine)
            if gone := mine - wanted:
                self._update(self._ownership(gone, "DELETE DATA"))
            done = 0
        self._takes_large = True
        with dataset.open("rb") as lines:
            for batch in batches(islice(lines, done, None), LARGE):
                done = self._send_batch("INSERT DATA", batch, mark, done)
        self._conclude(position)

    def apply(self, removals: Iterable[bytes], additions: Iterable[bytes], position: StorePosition) -> None:
        """Remove and add statements, then move the position; broken off, it is to be done again from its beginning."""
        self._note(under_way=position.sha256)
        mark, done = f"patch {position.sha256}", 0
        for batch in batches(removals):
            done = self._send_batch("DELETE DATA", batch, mark, done)
        known: set[str] = set()
        for batch in batches(additions):
            wanted = {self._graph_of(statement) for statement in batch} - known
            if new := wanted and wanted - self._graphs():
                self._check(new)
                self._update(self._ownership(new))
                self._check_noted(new)
            known |= wanted
            done = self._send_batch("INSERT DATA", batch, mark, done)
        self._conclude(position)

    def close(self) -> None:
        """Give up the connections."""
        self._endpoint.close()

    def leave(self, former: str) -> None:
        """Drop the graphs of the dataset by the URI that it had before, and what is noted of it: they would belong to
        another one. Broken off, it is to be done again."""
        before = SparqlStore(self._endpoint, former, self._where)
        if mine := before._graphs():
            before._note(under_way="load")
            before._drop(mine)
            self._update(f"DELETE WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {before._subject} ?p ?o }} }}")

    def write_statements(self, target: IO[bytes]) -> None:
        """Write all statements as N-Quads into a binary stream, as they are published."""
        for graph in sorted(self._graphs()):
            name = b"" if graph == self._default else b" " + graph.encode()
            for row in self._rows(f"SELECT ?s ?p ?o WHERE {{ GRAPH {graph} {{ ?s ?p ?o }} }}"):
                line = " ".join(term or "" for term in row).encode() + name + b" .\n"
                target.write(with_blank_nodes(line))

    def count(self) -> int:
        """How many statements are in the graphs of the dataset."""
        mine = f"GRAPH <{POSITION_GRAPH}> {{ {self._subject} <{_GRAPH}> ?g }}"
        found = self._value(f"SELECT (COUNT(*) AS ?n) WHERE {{ {mine} GRAPH ?g {{ ?s ?p ?o }} }}")
        return int(_plain(found or '"0"'))

    # which graphs

    def _graph_of(self, statement: bytes) -> str:
        graph = parts_of(with_iris(statement.rstrip(b"\n") + b"\n"))[1]
        return self._default if graph is None else graph.decode()

    def _graphs_of(self, dataset: Path) -> set[str]:
        """The graphs of the dataset, with that of its default graph. Raises StoreFault where there are too many, and
        where an IRI cannot be sent: while the state before is still there."""
        found = {self._default}
        with dataset.open("rb") as lines:
            for line in lines:
                self._with_names(line.decode())
                if line.endswith(b'" .\n'):
                    continue
                found.add(self._graph_of(line))
                if len(found) > MOST_GRAPHS:
                    raise self._graph_fault(f"the dataset has more than {MOST_GRAPHS:,} graphs")
        return found

    def _graphs(self) -> set[str]:
        query = f"SELECT ?g WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {self._subject} <{_GRAPH}> ?g }} }}"
        return {graph for (graph,) in self._rows(query) if graph}

    def _check_noted(self, graphs: set[str]) -> None:
        """Raises StoreFault where graphs are not noted as this dataset's: they would be taken for another's."""
        if not graphs <= self._graphs():
            raise self._undone("the endpoint lacks the note of graphs after an update")

    def _check(self, graphs: set[str]) -> None:
        """Raises StoreFault where a graph belongs to another dataset, or holds something that nobody has noted."""
        if f"<{POSITION_GRAPH}>" in graphs:
            raise self._graph_fault("the dataset has a graph of the name that is reserved for positions")
        for some in _some_of(graphs):
            owned = f"GRAPH <{POSITION_GRAPH}> {{ ?owner <{_GRAPH}> ?g }} FILTER(?owner != {self._subject})"
            if (taken := self._value(f"SELECT ?g WHERE {{ {_values(some)} {owned} }} LIMIT 1")) is not None:
                raise self._graph_fault(f"the graph {taken[:200]} belongs to another dataset")
            if (full := self._full(some)) is not None:
                raise self._graph_fault(f"the graph {full[:200]} holds something else")

    def _graph_fault(self, what: str) -> StoreFault:
        return StoreFault(what, code="HW-TRI-01", where=self._where)

    def _undone(self, what: str) -> StoreFault:
        """An update was answered as done, and is not."""
        return StoreFault(what, code="HW-SPQ-05", where=self._where)

    def _full(self, graphs: list[str]) -> str | None:
        return self._value(
            f"SELECT ?g WHERE {{ {_values(graphs)} FILTER EXISTS {{ GRAPH ?g {{ ?s ?p ?o }} }} }} LIMIT 1"
        )

    def _ownership(self, graphs: set[str], operation: str = "INSERT DATA") -> str:
        told = "".join(f"{self._subject} <{_GRAPH}> {graph} .\n" for graph in sorted(graphs))
        return f"{operation} {{ GRAPH <{POSITION_GRAPH}> {{\n{told}}} }}"

    def _drop(self, graphs: set[str]) -> None:
        """Drop graphs. An endpoint says 200 to DROP SILENT also where it may not be done (SPARQL 1.1 Update, 3.2.2)."""
        for some in _some_of(graphs):
            self._update(";\n".join(f"DROP SILENT GRAPH {graph}" for graph in some))
            if (full := self._full(some)) is not None:
                raise self._undone(f"the graph {full[:200]} was dropped, and is still there")

    # updates and queries, with IRIs as they are (NQUD-A7)

    def _with_names(self, text: str) -> str:
        try:
            return with_prefixed_names(text)
        except ValueError as cause:
            what = f"an endpoint may keep another IRI in the place of {cause}"
            raise StoreFault(what, code="HW-TRI-03", where=self._where) from None

    def _update(self, text: str) -> None:
        """Carry out an update; it may be carried out twice."""
        self._endpoint.update(self._with_names(text))

    def _rows(self, query: str) -> Iterator[Row]:
        return self._endpoint.rows(self._with_names(query))

    def _value(self, query: str) -> str | None:
        return self._endpoint.value(self._with_names(query))

    def _note(self, *, under_way: str, more: str = "") -> None:
        """Note what is begun; the number of a batch that was sent before is none of it."""
        old = f"{self._without(_UNDER_WAY)};\n{self._without(_BATCH)}"
        self._update(f"{old};\n{self._with(_UNDER_WAY, under_way)};\n{more}")
        if self.state().under_way != under_way:
            raise self._undone("the endpoint lacks the note of progress after an update")

    def _send(self, operation: str, batch: list[bytes], mark: str) -> None:
        data = as_data(operation, batch, self._default.encode()).decode()
        self._update(f"{data}{self._without(_BATCH)};\n{self._with(_BATCH, mark)}")
        if self.state().batch != mark:
            raise self._undone("the endpoint confirmed an update that it did not make")

    def _send_batch(self, operation: str, batch: list[bytes], mark: str, done: int) -> int:
        """Send statements that follow on `done` others of this mark; how many there are by then.

        In parts where the endpoint, or a proxy before it, takes no request so large: after one refusal all batches go
        in parts, and a part that is too large in halves.
        """
        parts = list(batches(batch))
        if len(parts) == 1 or self._takes_large:
            try:
                self._send(operation, batch, f"{mark} {done + len(batch)}")
                return done + len(batch)
            except StoreFault as fault:
                if len(parts) > 1 and fault.code in _MAY_BE_TOO_MUCH:
                    self._takes_large = False
                elif isinstance(fault, UpdateTooLarge) and len(batch) > 1:
                    parts = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                else:
                    raise
        for part in parts:
            done = self._send_batch(operation, part, mark, done)
        return done

    def _conclude(self, position: StorePosition) -> None:
        data = as_data("INSERT DATA", statements_of(position)).decode()
        old = f"{self._subject} ?p ?o FILTER(?p != <{_GRAPH}>)"
        self._update(
            f"DELETE {{ GRAPH <{POSITION_GRAPH}> {{ {self._subject} ?p ?o }} }}"
            f" WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {old} }} }};\n{data}"
        )
        if self.state() != StoreState(position):
            raise self._undone("the position is not there after an update")

    def _without(self, predicate: str) -> str:
        return f"DELETE WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {self._subject} <{predicate}> ?o }} }}"

    def _with(self, predicate: str, text: str) -> str:
        return f'INSERT DATA {{ GRAPH <{POSITION_GRAPH}> {{ {self._subject} <{predicate}> "{text}" }} }}'


def _some_of(graphs: set[str]) -> Iterator[list[str]]:
    left = iter(sorted(graphs))
    while some := list(islice(left, _AT_A_TIME)):
        yield some


def _values(graphs: list[str]) -> str:
    return f"VALUES ?g {{ {' '.join(graphs)} }}"


def _plain(term: str) -> str:
    if term.startswith("<"):
        return term[1:-1]
    return term[1 : term.rindex('"')] if term.startswith('"') else term
