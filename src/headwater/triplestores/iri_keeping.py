"""A SPARQL endpoint that is asked whether it keeps IRIs, and gets those that it would resolve as prefixed names.

To RDF `http://x/a/../b` and `http://x/b` are two IRIs (NQUD-A7); some endpoints read both as the second. A prefixed
name is what its two halves are when put together (SPARQL 1.1, 4.1.1), and nothing resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from headwater.errors import StoreFault
from headwater.sparql.endpoint import Row, SparqlEndpoint
from headwater.triplestores.positions import NAMESPACE, POSITION_GRAPH

EXAMPLE: Final = "<http://example.org/a/../b>"
"""An IRI that shows whether an endpoint resolves any."""

_DOTS = re.compile(r"[:/]\.\.?[/?#>]")
_TERM = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|<([^<>"\s]*?[:/])(\.\.?(?=[/?#>])[^<>"\s]*)>')
_AS_IT_IS = re.compile(
    "[A-Za-z0-9_:\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff"
    "\uf900-\ufdcf\ufdf0-\ufffd]"
)
_ESCAPED: Final = frozenset("_~.-!$&'()*+,;=/?#@%")


class NoPrefixedName(ValueError):
    """An IRI has a character that no prefixed name can have."""


def first_dotted(text: str) -> str | None:
    """The first IRI with dot segments in a text of SPARQL whose literals stand in double quotes, with its brackets."""
    if _DOTS.search(text) is None:
        return None
    return next((found[0] for found in _TERM.finditer(text) if found[1] is not None), None)


def with_prefixed_names(text: str) -> str:
    """The same text, in which such IRIs are prefixed names; their prefixes stand before it. Raises NoPrefixedName."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name = names.setdefault(found[1], f"dots{len(names)}")
        return f"{name}:{''.join(map(_in_local_name, found[2]))}"

    body = _TERM.sub(named, text)
    return "".join(f"PREFIX {name}: <{iri}>\n" for iri, name in names.items()) + body


def _in_local_name(character: str) -> str:
    if character in _ESCAPED:
        return f"\\{character}"
    if _AS_IT_IS.match(character) is None:
        raise NoPrefixedName(character)
    return character


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
