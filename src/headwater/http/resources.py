"""Handles requests for resources: files of folders, what a provider makes, and representations of generic URIs.

The headers of a file are made for it in one state (size, times, inode), and good as long as it stays in that state,
whatever else the catalog has learnt since, and while the catalog is away; for a file in another state it is asked.
A provider is asked for the state that the catalog holds at this moment, so that the tag is the listed digest. Of a
generic URI `report`, `report.html` and `report.pdf` are representations (RS-REL-02).
"""

import errno
import re
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from urllib.parse import quote

import msgspec

from headwater.catalog.content import ContentChanged, NoContent, recorded_blocks
from headwater.catalog.interface import Metadata, Resource
from headwater.errors import HeadwaterError, StoreFault
from headwater.http import responses
from headwater.http.requests import weights
from headwater.http.responses import Head, Representation, Response, content_lines, leads_to, line, validators
from headwater.http.routes import BRIEF, HttpRequest, Match, Route
from headwater.http.source_access import SourceAccess
from headwater.ingest.content import GONE, OpenFile, ResourceFolder
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import Variant, generic_of, is_variant, variants_of
from headwater.publish.site import capability_list_name
from headwater.source.health import ContentProvider
from headwater.spec.records import Link

# generic URIs: only what the set holds and what its settings take is a representation, so that a generic URI leads
# nowhere else than the URIs of the set do. A resource of its own at the generic URI is never looked for here: it wins.
# Which representation is sent is decided by the header Accept (RFC 9110 12.5.1); where that says nothing, everything is
# acceptable.


def choose(header: bytes | None, types: Sequence[str]) -> int | None:
    """Which of the representations of these media types is sent; of equals the first. None: none is acceptable."""
    ranges = {name: weight for name, weight in weights(header).items() if "/" in name}
    if not ranges:
        return 0 if types else None
    by_type = [_weight(ranges, one.partition(";")[0].strip().lower()) for one in types]
    best = max(by_type, default=0.0)
    return by_type.index(best) if best > 0 else None


def _weight(ranges: Mapping[str, float], essence: str) -> float:
    """By the range that means the type most exactly, whatever less exact ones say."""
    fitting = (essence, f"{essence.partition('/')[0]}/*", "*/*")
    return next((ranges[one] for one in fitting if one in ranges), 0.0)


UNKNOWN_TYPE = "application/octet-stream"
VARY = line(b"vary", b"Accept")


def not_acceptable(there: Iterable[str], links: Head = b"") -> Response:
    """The answer where none of the representations that are `there` is acceptable."""
    return responses.text(406, "no representation is acceptable; there are:\n" + "\n".join(there), VARY + links)


_Variants = Sequence[tuple[Resource, bytes]]
"""The representations of a generic URI: each as a resource, with the octets of its path."""


class _GenericResources:
    """The generic URIs of all sets that have variants."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        sets = access.source.site.sets
        self.variants = {one.name: variants_of(one.links.variants) for one in sets if one.links.variants}
        """Of each set that has any."""

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
        chosen = choose(request.fields.accept, [one.metadata.type or UNKNOWN_TYPE for one, _ in there])
        if chosen is None:
            lines = (f"{self._url(match.set_name, one.uri)} {one.metadata.type or UNKNOWN_TYPE}" for one, _ in there)
            return not_acceptable(lines, links)
        resource, path = there[chosen]
        response = await respond(msgspec.structs.replace(match, name=resource.uri, path=path), request)
        location = self._url(match.set_name, resource.uri).encode("ascii")
        response.head += VARY + line(b"content-location", location) + links
        return response

    async def links_of_variant(self, match: Match) -> Head:
        """The header of a representation under its own URI: `canonical` and `alternate`, as in lists (RS-REL-03).

        Nothing for a resource that is none. Raises the catalog's faults.
        """
        name = match.set_name
        found = generic_of(match.name, self.variants.get(name or "", ()))
        if name is None or found is None:
            return b""
        generic, own = found
        path = match.path[: -len(own.suffix) - 1]
        there = await self._representations(name, msgspec.structs.replace(match, name=generic, path=path))
        others = [one for one in there if one[0].uri != match.name]
        if len(others) == len(there) or await look_up(self._access, name, generic) is not None:
            return b""
        return self._links(match, generic, others)

    async def _representations(self, name: str, match: Match) -> _Variants:
        asked: dict[str, Variant] = {f"{match.name}.{one.suffix}": one for one in self.variants[name]}
        catalog = self._access.source.catalog
        found = await self._access.ask(lambda: catalog.get(name, list(asked)))
        return [
            (resource, path)
            for uri, variant in asked.items()
            for resource in [found.get(uri)]
            for path in [match.path + b"." + variant.suffix.encode("ascii")]
            if resource is not None and is_variant(resource, variant) and self._access.source.takes(name, path)
        ]

    def _links(self, match: Match, generic: str, there: _Variants) -> Head:
        assert match.set_name is not None
        links = [f'<{self._url(match.set_name, generic)}>; rel="canonical"']
        for one, _ in there:
            kind = "" if one.metadata.type is None else f'; type="{one.metadata.type}"'
            links.append(f'<{self._url(match.set_name, one.uri)}>; rel="alternate"{kind}')
        return line(b"link", ", ".join(links).encode("latin-1", "replace"))

    def _url(self, name: str, uri: str) -> str:
        return self._access.source.site.resource_prefix(name) + uri


# what describes a resource: the links of its entry in the lists, as `Link` header (RFC 8288) and linkset (RFC 9264)

SIGNPOSTS = frozenset(
    {"author", "cite-as", "collection", "describedby", "describes", "item", "license", "profile", "type"}
)
"""Relations whose links stand in the header of a resource, too (FAIR Signposting)."""
LINK_OCTETS = 4_096  # so much all `Link` headers of a resource take, of which the lists say what describes it
LINKS_SECONDS = 60.0
"""After this time the catalog is asked again for links that depend on other resources, or on what was announced."""
_LINKSET = "application/linkset+json"
_UNRESERVED = "%/:?#[]@!$&'()*+,;=~"
_media_type = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}").fullmatch


def header_link(href: str, rel: str, kind: str | None = None) -> str:
    """A link as the header `Link` has it."""
    told = f'; type="{kind}"' if kind is not None and _media_type(kind) else ""
    return f'<{quote(href, safe=_UNRESERVED)}>; rel="{rel}"{told}'


class Signposts:
    """The links of resources as the lists have them."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._added: dict[str, AddedLinks] = {}

    def route(self) -> Route:
        """The row of the linksets."""
        return Route(
            name="linkset",
            pattern="/{set}/linkset/{path}",
            handler=self._linkset,
            media_type=_LINKSET.encode("ascii"),
            cache=BRIEF,
            when_published=True,
        )

    async def head(self, name: str, resource: Resource, others: Head) -> Head:
        """The header of a resource, beside `others`: what has no room leads to the linkset. Raises StoreFault."""
        links = await self._links(name, resource)
        texts = [header_link(one.href, one.rel, one.type) for one in links if one.rel in SIGNPOSTS]
        room, whole = LINK_OCTETS - len(others), line(b"link", ", ".join(texts).encode("ascii"))
        if not texts or len(whole) <= room:
            return whole if texts else b""
        href = self._access.source.site.url(f"{name}/linkset/{resource.uri}")
        rest = header_link(href, "linkset", _LINKSET)
        room -= len(line(b"link", rest.encode("ascii")))
        sums = accumulate(len(one) + 2 for one in texts)
        fitting = [one for one, octets in zip(texts, sums, strict=True) if octets <= room]
        return line(b"link", ", ".join([*fitting, rest]).encode("ascii")) if room >= 0 else b""

    async def _links(self, name: str, resource: Resource) -> Sequence[Link]:
        source = self._access.source
        if name not in self._added:
            self._added[name] = AddedLinks(source.site, source.site.settings(name), source.catalog)

        def read() -> Sequence[Link]:
            (row,) = self._added[name].to([resource], EntryPlace.RESOURCE_LIST)
            return row.metadata.links

        return await self._access.ask(read) if source.catalog.is_remote else read()

    async def _linkset(self, request: HttpRequest) -> Response:
        match = request.match
        assert match.set_name is not None
        source = self._access.source
        is_taken = source.takes(match.set_name, match.path)
        found = await look_up(self._access, match.set_name, match.name) if is_taken else None
        if found is None:
            return responses.text(404, "no such resource")
        anchor = source.site.resource_prefix(match.set_name) + found.uri
        targets: dict[str, list[dict[str, str]]] = {}
        for one in await self._links(match.set_name, found):
            kind = {} if one.type is None else {"type": one.type}
            targets.setdefault(one.rel, []).append({"href": one.href, **kind})
        context = [{"anchor": anchor, **targets}] if targets else []
        return request.respond(200, msgspec.json.encode({"linkset": context}))


async def look_up(access: SourceAccess, set_name: str, relative: str) -> Resource | None:
    """The resource as the catalog holds it. Only a catalog beyond a network is waited for in a thread."""
    catalog, asked = access.source.catalog, (set_name, [relative])
    found = await access.ask(catalog.get, *asked) if catalog.is_remote else catalog.get(*asked)
    return found.get(relative)


# files, and what a provider makes

KEPT = 50_000  # headers of so many files are kept; an entry takes about 1,000 octets

_CHANGED = "the file differs from the copied one; the server sends it when the copy matches its source again"
_NOT_THERE = "the file is gone; the lists name it until a scan has recorded its deletion, which may wait for consent"
"""What a handler can be sure of: it may be one process of several, and knows of no scan."""

_CACHE = line(b"cache-control", BRIEF)
_DIGEST = re.compile(r"sha-256:([0-9A-Za-z]{64})")

Fault = Callable[[HeadwaterError | OSError], None]
State = tuple[int, int, int, int]

Links = Callable[[str, str], Head]
"""The Link header of a resource besides that of its set, by its set and its relative URI."""


class FileHandler:
    """Answers with files of the sets' folders. Its methods belong to the thread of the event loop."""

    def __init__(self, access: SourceAccess, folders: Mapping[str, str], own_links: Links, on_fault: Fault) -> None:
        self._access = access
        self._source = access.source
        self._folders = {name: ResourceFolder(folder) for name, folder in folders.items()}
        self._links, self._own_links = _links_to_lists(access), own_links
        self._signposts = Signposts(access)
        self._linked = {one.name for one in access.source.site.sets if one.links.described}
        self._linked |= access.source.push_names | access.source.copied_names
        self._known: OrderedDict[tuple[str, str], tuple[State, Representation, float]] = OrderedDict()
        self._on_fault = on_fault
        self._generic = _GenericResources(access)

    def routes(self) -> tuple[Route, ...]:
        """The rows of the resources, and of what describes them."""
        return _resource_route(self.answer), self._signposts.route()

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 when a catalog that has to be asked does not answer."""
        match = request.match
        response = await self._respond(match, request)
        if match.set_name not in self._generic.variants:
            return response
        if response.status == 404:
            return await self._generic.answer(request, self._respond, response)
        if response.status < 400:
            response.head += await self._generic.links_of_variant(match)
        return response

    async def _respond(self, match: Match, request: HttpRequest) -> Response:
        set_name, relative = match.set_name, match.name
        assert set_name is not None
        key = set_name, relative
        known, resource = self._known.get(key), None
        if known is not None and set_name in self._linked and known[2] < time.monotonic() - LINKS_SECONDS:
            with suppress(StoreFault):
                resource = await look_up(self._access, set_name, relative)
        is_taken = known is not None and set_name not in self._source.changing_names
        if not is_taken and not self._source.takes(set_name, match.path):
            return responses.text(404, "no such resource")
        if known is None:
            resource = await look_up(self._access, set_name, relative)
            if resource is None:
                return responses.text(404, "no such resource", self._own_links(set_name, relative))
        try:
            file = self._folders[set_name].open(match.path)
        except OSError as fault:
            return self._unreadable(fault, set_name, relative)
        is_given = False
        try:
            if known is not None and known[0] == file.key and resource is None:
                self._known.move_to_end(key)
                form = known[1]
            else:
                resource = resource or await look_up(self._access, set_name, relative)
                if resource is None:
                    self._known.pop(key, None)
                    return responses.text(404, "no such resource")
                is_recorded = await self._is_recorded(set_name, resource, file)
                if not is_recorded and set_name in self._source.copied_names:
                    return responses.text(503, _CHANGED, line(b"retry-after", b"10"))
                links = self._links[set_name] + self._own_links(set_name, relative)
                links += await self._signposts.head(set_name, resource, links)
                at, stated = file.state, resource.metadata
                digest = _DIGEST.search(stated.hash) if is_recorded and stated.hash else None
                # With the change time: the same size under a restored modification time is another state.
                weak = b'W/"%x-%x-%x-%x"' % (at.st_mtime_ns, at.st_ctime_ns, at.st_size, at.st_ino)
                etag = b'"%s"' % digest[1].encode("ascii") if digest else weak
                second = at.st_mtime_ns // 1_000_000_000
                form = _representation(stated, etag, second, at.st_size, links, is_exact=True)
                if is_recorded:
                    self._known[key] = file.key, form, time.monotonic()
                    self._known.move_to_end(key)
                    if len(self._known) > KEPT:
                        self._known.popitem(last=False)
            response = form.answer(request.fields)
            is_given = response.wants_octets and not request.is_head
            if is_given:
                response.give(file, is_promised=not form.etag.startswith(b"W/"))
            return response
        finally:
            if not is_given:
                file.close()

    async def _is_recorded(self, set_name: str, resource: Resource, file: OpenFile) -> bool:
        """Whether the file has the recorded octets: by its signature, or by its digest in sets that publish copies.

        No scan looks at copies: the signature may be another one (a link was made, a mode was changed).
        """
        if file.matches(resource.memo):
            return True
        stated = resource.metadata
        if set_name not in self._source.copied_names or stated.hash is None or stated.length != file.octets:
            return False
        with suppress(ContentChanged, OSError):
            await self._access.read(deque, recorded_blocks(file, stated), 0)
            return True
        return False

    def _unreadable(self, fault: OSError, set_name: str, relative: str) -> Response:
        if fault.errno in GONE:
            return responses.text(404, _NOT_THERE, self._own_links(set_name, relative))
        if fault.errno in (errno.EACCES, errno.EPERM):
            return responses.text(403, "the resource cannot be read now")
        self._on_fault(fault)
        return responses.text(503, "the resource cannot be read now", line(b"retry-after", b"10"))


def _representation(
    stated: Metadata, etag: bytes, second: int, octets: int, links: Head, *, is_exact: bool
) -> Representation:
    # No date in the future (RFC 9110 8.8.2.1), which a file's time and simulated time may well be.
    second = min(second, int(time.time()))
    return Representation(
        etag=etag,
        modified_second=second,
        stated_second=second,
        octets=octets,
        content=content_lines(stated.type, stated.encoding) + line(b"x-content-type-options", b"nosniff"),
        unchanged=validators(etag, second) + _CACHE + links,
        is_exact=is_exact,
    )


def content_route(access: SourceAccess, provider: ContentProvider) -> Route:
    """The row of resources whose content a provider makes."""
    links = _links_to_lists(access)

    def respond(request: HttpRequest) -> Response:
        name = request.match.set_name
        assert name is not None
        resource = provider.find(name, request.match.name)
        content = None if resource is None else provider.open(name, resource)
        if resource is None or content is None or isinstance(content, NoContent):
            return responses.text(404, "no such resource")
        stated = resource.metadata
        second = int(stated.lastmod.timestamp()) if stated.lastmod else 0
        weak = b'W/"%x-%x"' % (content.octets, second)
        etag = b'"%s"' % stated.hash.rpartition(":")[2].encode("ascii") if stated.hash else weak
        form = _representation(stated, etag, second, content.octets, links[name], is_exact=False)
        response = form.answer(request.fields)
        if response.wants_octets and not request.is_head:
            response.give(content)
        else:
            content.close()
        return response

    async def answer(request: HttpRequest) -> Response:
        return await access.ask(respond, request) if access.source.catalog.is_remote else respond(request)

    return _resource_route(answer)


def _links_to_lists(access: SourceAccess) -> dict[str, Head]:
    site = access.source.site
    return {one.name: leads_to(site.url(capability_list_name(one.name))) for one in site.sets}


def _resource_route(answer: Callable[[HttpRequest], Awaitable[Response]]) -> Route:
    return Route(name="resource", pattern="/{set}/resources/{path}", handler=answer, when_published=True)
