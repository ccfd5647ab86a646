"""Answers for generic URIs: `report`, of which `report.html` and `report.pdf` are representations (RS-REL-02).

Only what the set holds and what its settings take is a representation, so a generic URI leads nowhere else than the
URIs of the set do. A resource of its own at the generic URI is never looked for here: it wins. Which representation is
sent is decided by values of the header Accept (RFC 9110 12.5.1): what is malformed counts as absent, and so does a
header that is too long to be meant; then everything is acceptable.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import Resource
from headwater.http import responses
from headwater.http.responses import Head, Response, line
from headwater.http.routes import HttpRequest, Match
from headwater.http.source_access import SourceAccess
from headwater.publish.link_rules import Variant, generic_of, is_variant, variants_of

_LONGEST = 4_096
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_RANGE = re.compile(rf"\s*({_NAME})/({_NAME})\s*((?:;[^,]*)?)\Z", re.ASCII)
_WEIGHT = re.compile(r"\s*[qQ]\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*\Z", re.ASCII)


def accepted(header: bytes | None) -> dict[str, float]:
    """The weights of the ranges of a header, `*` for any; none where it says nothing that can be read.

    A range with parameters means one kind of its type only, and of a representation only the type is known: it ends in
    `;` here, which means none.
    """
    ranges: dict[str, float] = {}
    for text in header.decode("latin-1").split(",") if header and len(header) <= _LONGEST else ():
        match = _RANGE.match(text)
        if match is None or (match[1] == "*" and match[2] != "*"):
            continue
        name, weight = f"{match[1]}/{match[2]}".lower(), 1.0
        for parameter in match[3].split(";")[1:]:
            if (said := _WEIGHT.match(parameter)) is not None:
                weight = float(said[1])
                break  # what follows is about the weight
            if re.match(r"\s*[qQ]\s*=", parameter):
                weight = -1.0
                break
            name += ";" if parameter.strip() else ""
        if weight >= 0:
            ranges[name] = max(weight, ranges.get(name, 0.0))
    return ranges


def choose(header: bytes | None, types: Sequence[str]) -> int | None:
    """Which of the representations of these media types is sent; of equals the first. None: none is acceptable."""
    ranges = accepted(header)
    if not ranges:
        return 0 if types else None
    weights = [_weight(ranges, one.partition(";")[0].strip().lower()) for one in types]
    best = max(weights, default=0.0)
    return weights.index(best) if best > 0 else None


def _weight(ranges: Mapping[str, float], essence: str) -> float:
    """By the range that means the type most exactly, whatever less exact ones say."""
    fitting = (essence, f"{essence.partition('/')[0]}/*", "*/*")
    return next((ranges[one] for one in fitting if one in ranges), 0.0)


UNKNOWN_TYPE = "application/octet-stream"
_VARY = line(b"vary", b"Accept")


class _FileRepresentation(NamedTuple):
    """One representation: the resource, and the octets of its path."""

    resource: Resource
    path: bytes

    @property
    def type(self) -> str:
        """Its media type."""
        return self.resource.metadata.type or UNKNOWN_TYPE


class GenericResources:
    """The generic URIs of all sets that have variants. `takes` tells whether a set's settings take a path."""

    def __init__(self, access: SourceAccess, takes: Callable[[str, bytes], bool]) -> None:
        self._access = access
        self._takes = takes
        sets = access.source.site.sets
        self._variants = {one.name: variants_of(one.links.variants) for one in sets if one.links.variants}

    def are_in(self, set_name: str | None) -> bool:
        """Whether a set has any."""
        return set_name in self._variants

    async def answer(
        self, request: HttpRequest, respond: Callable[[Match, HttpRequest], Awaitable[Response]], otherwise: Response
    ) -> Response:
        """The representation that the client prefers, by `respond`; 406 with what there is; or `otherwise`.

        Raises the catalog's faults.
        """
        match = request.match
        assert match.set_name is not None
        there = await self._representations(match.set_name, match)
        if not there:
            return otherwise
        links = self._links(match, match.name, there)
        chosen = choose(request.fields.accept, [one.type for one in there])
        if chosen is None:
            lines = [f"{self._url(match.set_name, one.resource.uri)} {one.type}" for one in there]
            return responses.text(
                406, "no representation is acceptable; there are:\n" + "\n".join(lines), _VARY + links
            )
        uri = there[chosen].resource.uri
        variant = msgspec.structs.replace(match, name=uri, path=there[chosen].path)
        response = await respond(variant, request)
        response.head += _VARY + line(b"content-location", self._url(match.set_name, uri).encode("ascii")) + links
        return response

    async def links_of_variant(self, match: Match) -> Head:
        """The header of a representation under its own URI: `canonical` and `alternate`, as in lists (RS-REL-03).

        Nothing for a resource that is none. Raises the catalog's faults.
        """
        name = match.set_name
        found = generic_of(match.name, self._variants.get(name or "", ()))
        if name is None or found is None:
            return b""
        generic, own = found
        path = match.path[: -len(own.suffix) - 1]
        there = await self._representations(name, msgspec.structs.replace(match, name=generic, path=path))
        others = [one for one in there if one.resource.uri != match.name]
        catalog = self._access.source.catalog
        at_generic = await self._access.ask(lambda: catalog.get(name, [generic]))
        if at_generic or len(others) == len(there):
            return b""
        return self._links(match, generic, others)

    async def _representations(self, name: str, match: Match) -> Sequence[_FileRepresentation]:
        asked: dict[str, Variant] = {f"{match.name}.{one.suffix}": one for one in self._variants[name]}
        catalog = self._access.source.catalog
        found = await self._access.ask(lambda: catalog.get(name, list(asked)))
        return [
            _FileRepresentation(resource, path)
            for uri, variant in asked.items()
            for resource in [found.get(uri)]
            for path in [match.path + b"." + variant.suffix.encode("ascii")]
            if resource is not None and is_variant(resource, variant) and self._takes(name, path)
        ]

    def _links(self, match: Match, generic: str, there: Sequence[_FileRepresentation]) -> Head:
        assert match.set_name is not None
        links = [f'<{self._url(match.set_name, generic)}>; rel="canonical"']
        for one in there:
            kind = "" if one.resource.metadata.type is None else f'; type="{one.type}"'
            links.append(f'<{self._url(match.set_name, one.resource.uri)}>; rel="alternate"{kind}')
        return line(b"link", ", ".join(links).encode("latin-1", "replace"))

    def _url(self, name: str, uri: str) -> str:
        return self._access.source.site.resource_prefix(name) + uri
