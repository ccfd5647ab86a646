"""A SPARQL endpoint that is asked whether it keeps IRIs, and gets those that it would resolve as prefixed names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headwater.errors import StoreFault
from headwater.sparql.endpoint import Row, SparqlEndpoint
from headwater.triplestores.dot_segments import EXAMPLE, NoPrefixedName, first_dotted, with_prefixed_names
from headwater.triplestores.positions import NAMESPACE, POSITION_GRAPH

_SAMPLE: Final = f"<{NAMESPACE}sample>"


class IriKeepingEndpoint:
    """A `SparqlEndpoint`, with IRIs as they are (NQUD-A7). Raises StoreFault where that cannot be."""

    def __init__(self, endpoint: SparqlEndpoint, where: str) -> None:
        self._endpoint = endpoint
        self._where = where
        self._resolves: bool | None = None
        self._is_proved = False

    def update(self, text: str) -> None:
        """Carry out an update; it may be carried out twice."""
        dotted = None if self._is_proved else first_dotted(text)
        kept = self._kept(text)
        if dotted is not None:
            self._prove(dotted)
        self._endpoint.update(kept)

    def rows(self, query: str) -> Iterator[Row]:
        """The rows of a SELECT query."""
        return self._endpoint.rows(self._kept(query))

    def value(self, query: str) -> str | None:
        """The first term of the first row; None where there is no row."""
        return self._endpoint.value(self._kept(query))

    def check(self, statements: Iterable[bytes]) -> None:
        """Raise StoreFault where these statements could not be sent as they are."""
        for some in statements:
            self._kept(some.decode())

    def _kept(self, text: str) -> str:
        """The text, so that the endpoint reads its IRIs as they are."""
        dotted = first_dotted(text)
        if dotted is None:
            return text
        if self._resolves is None:
            self._resolves = self._endpoint.value(f"SELECT ?i {{ VALUES ?i {{ {EXAMPLE} }} }}") != EXAMPLE
        if not self._resolves:
            return text
        try:
            return with_prefixed_names(text)
        except NoPrefixedName as cause:
            what = f"the endpoint resolves IRIs, and of those with dot segments one has the character {str(cause)!r}"
            raise StoreFault(what, code="HW-TRI-03", where=self._where) from cause

    def _prove(self, iri: str) -> None:
        """Write an IRI and read it back: an update may be read in another way than a query."""
        clear = f"DELETE WHERE {{ GRAPH <{POSITION_GRAPH}> {{ {_SAMPLE} {_SAMPLE} ?o }} }}"
        sample = f"INSERT DATA {{ GRAPH <{POSITION_GRAPH}> {{ {_SAMPLE} {_SAMPLE} {iri} }} }}"
        self._endpoint.update(self._kept(f"{clear};\n{sample}"))
        found = self.value(f"SELECT ?o {{ GRAPH <{POSITION_GRAPH}> {{ {_SAMPLE} {_SAMPLE} ?o }} }}")
        self._endpoint.update(clear)
        if found != iri:
            raise StoreFault(
                f"the endpoint keeps {found or 'nothing'} in the place of {iri[:200]}",
                code="HW-TRI-03",
                where=self._where,
            )
        self._is_proved = True
