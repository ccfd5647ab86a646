"""The route table: which method and path pattern lead to which handler.

Pure and total: any octets have an answer. Only names that a source can have reach the store, and only the canonical
form of a relative URI reaches the catalog, so that no spelling of a path leads anywhere else. A room adds its routes as
rows; which methods a target knows (405, `Allow`) follows from them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.http.requests import Receive, Scope
from headwater.http.responses import RequestFields, Response, data, line
from headwater.http.source_access import SourceAccess
from headwater.spec.uris import quote_path

LONGEST_TARGET = 16_384
"""A path of 4,096 octets (the kernel's limit) takes three times as many characters when all are percent-encoded."""
_RECENT, _SHORT_TARGET = 4_096, 256
"""The meanings of so many targets are kept, of so many characters each: to find one takes a tenth of a small answer."""
NO_STORE, REVALIDATE = b"no-store", b"no-cache"
BRIEF = b"public, max-age=60, must-revalidate"
IMMUTABLE = b"public, max-age=31536000, immutable"
"""Cache rules: values of Cache-Control."""

_BAD_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NO_FILE = re.compile(rb"(?:\A|/)\.{0,2}(?:/|\Z)|\0")
"""Empty segments and dot segments, which no folder gives to a file, and the octet that no name has."""
_ENCODED_SLASH = re.compile(rb"%2[fF]")
_SET, _PATH = "/{set}/", "{path}"
_PARAMETERS = {"{number}": "[0-9]{5,9}", "{part}": "[0-9]{3,9}", "{digest}": "[0-9a-f]{16}", "{name}": "[^/]+"}
_NOTHING = "there is nothing here; start at /.well-known/resourcesync"


class Route(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the table; GET answers HEAD as well.

    In `pattern`, `{set}` as first segment stands for a set of the source, `{name}` for any segment, `{number}` for five
    to nine digits, `{part}` for three to nine, `{digest}` for 16 hex digits, and `{path}` at the end for the relative
    URI of a resource. With `when_published` it is answered 503 while the set, or without one the source, is not.
    """

    name: str
    pattern: str
    handler: Callable[[HttpRequest], Awaitable[Response]]
    method: str = "GET"
    media_type: bytes = b""
    cache: bytes = b""
    when_published: bool = False


Methods = Mapping[str, Route]  # the rows of one pattern by method


class Match(msgspec.Struct, frozen=True, gc=False):
    """What a target stands for: `name` is the decoded path, or a resource's relative URI and `path` its octets."""

    methods: Methods
    name: str
    set_name: str | None = None
    path: bytes = b""

    def route(self, method: str) -> Route | None:
        """The row for a method."""
        return self.methods.get("GET" if method == "HEAD" else method)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The methods that the target knows, for `Allow`."""
        return tuple(known for method in self.methods for known in (("GET", "HEAD") if method == "GET" else (method,)))


class NoMatch(msgspec.Struct, frozen=True):
    """Nothing that we have: the status and one line that helps. `is_of_set`: it would be below a set of ours."""

    status: int
    text: str
    is_of_set: bool = False


class HttpRequest(msgspec.Struct, gc=False):
    """A request for a handler: its row, what the target stands for, what ASGI gives for it, and whom to ask."""

    method: str
    route: Route
    match: Match
    fields: RequestFields
    scope: Scope
    receive: Receive
    access: SourceAccess

    @property
    def is_head(self) -> bool:
        """Whether only the head of the response is wanted."""
        return self.method == "HEAD"

    def respond(self, status: int, body: bytes) -> Response:
        """A response made for this request alone, with the media type and the cache rule of its row."""
        return data(status, body, self.route.media_type, line(b"cache-control", self.route.cache))


Answer = tuple[int, bytes]  # a status and the octets of a body


def page_of(name: str, media_type: bytes, make: Callable[[], Answer]) -> Route:
    """The row of a page that is made anew for each request, by a thread that may wait."""

    async def answer(request: HttpRequest) -> Response:
        return request.respond(*await asyncio.to_thread(make))

    return Route(name=name, pattern=f"/{name}", handler=answer, media_type=media_type, cache=NO_STORE)


class RouteTable:
    """The rows of one site. A later row takes the place of an earlier one with the same method and pattern."""

    def __init__(self, routes: Iterable[Route], base_path: bytes, sets: Collection[str]) -> None:
        self._base_path = base_path
        self._sets = sets
        self._exact: dict[tuple[bool, str], dict[str, Route]] = {}
        """By whether it is below a set, and the path below that, or the whole one."""
        self._patterns: list[tuple[bool, re.Pattern[str], dict[str, Route]]] = []
        self._paths: list[tuple[bytes, dict[str, Route]]] = []  # of resources: what the path below the set begins with
        self._recent = lru_cache(_RECENT)(self._find)
        rows: dict[str, dict[str, Route]] = {}
        for route in routes:
            rows.setdefault(route.pattern, {})[route.method] = route
        for pattern, methods in rows.items():
            rest = pattern.removeprefix(_SET)
            is_of_set = rest != pattern
            prefix = rest.removesuffix(_PATH)
            if is_of_set and prefix != rest:
                self._paths.append((prefix.encode("ascii"), methods))
            elif "{" in rest:
                text = re.escape(rest.removeprefix("/")).replace(r"\{", "{").replace(r"\}", "}")
                for parameter, expression in _PARAMETERS.items():
                    text = text.replace(parameter, expression)
                self._patterns.append((is_of_set, re.compile(text), methods))
            else:
                self._exact[is_of_set, rest.removeprefix("/")] = methods

    def find(self, target: bytes) -> Match | NoMatch:
        """What the path `target` (undecoded, without query) means.

        The base URL's path may be there, or a proxy may have taken it away. Well-known and robots.txt are found at the
        origin's root as well, where RFC 8615 and RFC 9309 look for them.
        """
        if len(target) > LONGEST_TARGET:
            return NoMatch(414, f"the target has more than {LONGEST_TARGET} characters")
        return self._recent(target) if len(target) <= _SHORT_TARGET else self._find(target)

    def _find(self, target: bytes) -> Match | NoMatch:
        base = self._base_path
        if base and target.startswith(base) and target[len(base) : len(base) + 1] in (b"/", b""):
            target = target[len(base) :] or b"/"
        if not target.startswith(b"/") or _BAD_PERCENT.search(target):
            return NoMatch(400, "not a path that can be decoded")
        first, _, rest = target[1:].partition(b"/")
        set_name = first.decode("latin-1")
        is_of_set = set_name in self._sets
        for prefix, methods in self._paths if is_of_set else ():
            if rest.startswith(prefix):
                relative = rest[len(prefix) :]
                path = unquote_to_bytes(relative)
                if _ENCODED_SLASH.search(relative) or _NO_FILE.search(path):
                    return NoMatch(404, "no such resource", is_of_set=True)
                return Match(methods, quote_path(path), set_name, path)
        if _ENCODED_SLASH.search(target):  # part of a name, and no name that we have contains one (RFC 3986 2.2)
            return NoMatch(404, _NOTHING)
        text = unquote_to_bytes(target[1:]).decode("utf-8", "replace")
        if is_of_set and (found := self._named(text[len(set_name) + 1 :], is_of_set=True)) is not None:
            return Match(found, text, set_name)
        if (found := self._named(text, is_of_set=False)) is not None:
            return Match(found, text)
        if is_of_set:
            said = f"the set has no such document; start at /{set_name}/capabilitylist.xml"
            return NoMatch(404, said, is_of_set=True)
        return NoMatch(404, _NOTHING)

    def _named(self, text: str, *, is_of_set: bool) -> dict[str, Route] | None:
        found = self._exact.get((is_of_set, text))
        if found is not None:
            return found
        matching = (rows for of_set, pattern, rows in self._patterns if of_set is is_of_set and pattern.fullmatch(text))
        return next(matching, None)
