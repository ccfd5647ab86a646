"""Handles requests for resources: files of the sets' folders, or content that a provider makes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from headwater.catalog.content import NoContent
from headwater.catalog.interface import Resource
from headwater.errors import HeadwaterError
from headwater.http import responses
from headwater.http.request_fields import is_fresh
from headwater.http.resources.batch_lookup import BatchLookup
from headwater.http.resources.contents import SMALL_OCTETS, content_response
from headwater.http.resources.generic_resources import GenericResources
from headwater.http.resources.header_cache import LookupNeeded, LookupResult, ResourceHeaderCache, ResourceHeaders
from headwater.http.resources.vouched_files import VouchedFiles
from headwater.http.responses import Head, RequestFields, Response, leads_to, line
from headwater.http.routes import HttpRequest, Match, Route
from headwater.http.source_access import SourceAccess, not_published
from headwater.ingest.content import GONE, OpenFile, ResourceFolder
from headwater.publish.site import capability_list_name
from headwater.source.health import ContentProvider

_CHANGED = "the file is not the one that was copied; it is sent when the copy is as its source lists it"

_NOT_THERE = "the file is not there; the lists name it until a scan has recorded its deletion, which may be held back"
"""What a handler can be sure of: it may be one process of several, and knows of no scan."""

Fault = Callable[[HeadwaterError | OSError], None]


Links = Callable[[str, str], Head]
"""The Link header of a resource, by its set and its relative URI."""


def _links(access: SourceAccess) -> dict[str, Head]:
    """For each set the header by which its resources lead to its Capability List (RS-DISC-04)."""
    site = access.source.site
    return {one.name: leads_to(site.url(capability_list_name(one.name))) for one in site.sets}


class FileHandler:
    """Answers with files of the sets' folders, as the catalog knows them."""

    def __init__(self, access: SourceAccess, folders: Mapping[str, str], on_fault: Fault | None) -> None:
        self._access = access
        self._source = access.source
        self._folders = {name: ResourceFolder(folder) for name, folder in folders.items()}
        self._headers = ResourceHeaderCache(access.source.catalog, _links(access))
        self._lookup = BatchLookup(access.source.catalog, self._headers, access.askers)
        self._vouched = VouchedFiles(access.source.copied_names)
        self._on_fault = on_fault
        self._generic = GenericResources(access, access.source.takes)

    def add_links(self, links: Links) -> None:
        """Have each resource send these header lines beside those of its set, from now on."""
        self._headers.own_links = links

    def routes(self) -> Iterator[Route]:
        """The row of the resources."""
        yield Route(name="resource", pattern="/{set}/resources/{path}", handler=self.answer)

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 while the set is not published."""
        match = request.match
        if not await self._access.is_published(match.set_name):
            return not_published(match.set_name)
        response = await self._answer(request)
        if response.status == 404 and self._generic.may_be(match):
            return await self._generic.answer(request, partial(self._represented, request), response)
        if response.status < 400 and self._generic.may_be_variant(match):
            response.head += await self._generic.links_of_variant(match)
        return response

    def _represented(self, request: HttpRequest, match: Match, resource: Resource) -> Response:
        """The response with one representation of what is asked for."""
        return self._respond(match, request.fields, is_head=request.is_head, result=LookupResult(resource))

    async def _answer(self, request: HttpRequest) -> Response:
        match, fields, is_head = request.match, request.fields, request.is_head
        set_name = match.set_name
        try:
            return self._respond(match, fields, is_head=is_head)
        except LookupNeeded:
            assert set_name is not None
            result = LookupResult(await self._lookup.find(set_name, match.name))
            if set_name in self._vouched.sets and result.resource is not None:
                verdict = await self._access.read(self._verify, set_name, match.path, result.resource)
                result = LookupResult(result.resource, verdict)
            return self._respond(match, fields, is_head=is_head, result=result)

    def _verify(self, set_name: str, path: bytes, resource: Resource) -> tuple[int, int, int, int] | None:
        """The state of the file if its octets are the recorded ones."""
        try:
            file = self._folders[set_name].open(path)
        except OSError:
            return None
        try:
            return self._vouched.verify(set_name, resource, file)
        finally:
            file.close()

    def _respond(
        self, match: Match, fields: RequestFields, *, is_head: bool, result: LookupResult | None = None
    ) -> Response:
        set_name, relative = match.set_name, match.name
        assert set_name is not None
        known = self._headers.find(set_name, relative, result)
        if known is None or not self._source.takes(set_name, match.path):
            is_taken = self._source.takes(set_name, match.path)
            past = self._headers.own_links(set_name, relative) if is_taken else b""
            return responses.text(404, "no such resource", past)
        try:
            file = self._folders[set_name].open(match.path)
        except OSError as fault:
            return self._unreadable(fault, set_name, relative)
        response = None
        try:
            headers = self._headers.headers_of(set_name, relative, known, file, result)
            if headers is None:
                return responses.text(404, "no such resource")
            if not headers.is_known and set_name in self._vouched.sets:
                if result is None:
                    raise LookupNeeded
                return responses.text(503, _CHANGED, line(b"retry-after", b"10"))
            response = _file_response(headers, file, fields, is_head=is_head)
            return response
        finally:
            if response is None or response.file is None:
                file.close()

    def _unreadable(self, fault: OSError, set_name: str, relative: str) -> Response:
        if fault.errno in GONE:
            past = self._headers.own_links(set_name, relative)
            return responses.text(404, _NOT_THERE, past)
        if fault.errno in (errno.EACCES, errno.EPERM):
            return responses.text(403, "the resource cannot be read at present")
        if self._on_fault is not None:
            self._on_fault(fault)
        return responses.text(503, "the resource cannot be read at present", line(b"retry-after", b"10"))


class ContentHandler:
    """Answers with content that a provider makes."""

    def __init__(self, access: SourceAccess, provider: ContentProvider) -> None:
        self._access = access
        self._source = access.source
        self._provider = provider
        self._links = _links(access)

    def routes(self) -> Iterator[Route]:
        """The row of the resources."""
        yield Route(name="resource", pattern="/{set}/resources/{path}", handler=self.answer)

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 while the set is not published."""
        match = request.match
        if not await self._access.is_published(match.set_name):
            return not_published(match.set_name)
        if self._waits(match):
            return await self._access.ask(lambda: self._respond(match, request.fields, is_head=request.is_head))
        return self._respond(match, request.fields, is_head=request.is_head)

    def _waits(self, match: Match) -> bool:
        assert match.set_name is not None
        return self._source.catalog.is_remote and not self._provider.is_at_hand(match.set_name, match.name)

    def _respond(self, match: Match, fields: RequestFields, *, is_head: bool) -> Response:
        assert match.set_name is not None
        resource = self._provider.find(match.set_name, match.name)
        content = None if resource is None else self._provider.open(match.set_name, resource)
        if resource is None or content is None or isinstance(content, NoContent):
            return responses.text(404, "no such resource")
        return content_response(resource.metadata, content, self._links[match.set_name], fields, is_head=is_head)


def _file_response(headers: ResourceHeaders, file: OpenFile, fields: RequestFields, *, is_head: bool) -> Response:
    """The response for an open file; its `file` is None when nothing more is to be read from it."""
    refusal = responses.unmet(fields, headers.etag, headers.modified_second)
    if refusal is not None:
        return refusal
    if (fields.if_none_match or fields.if_modified_since) and is_fresh(
        fields.if_none_match, fields.if_modified_since, headers.etag, headers.modified_second, is_exact=True
    ):
        return Response(304, headers.unchanged)
    response = responses.whole_or_part(headers.head, headers.etag, file.state.st_size, fields)
    if response.is_refusal or is_head:
        return response
    response.file, response.is_promised = file, headers.is_strong
    if response.octets <= SMALL_OCTETS:
        # A file that has changed since it was opened is left to be cut off while it is sent.
        body = file.read(response.start, response.octets)
        if len(body) == response.octets and not response.has_changed():
            response.body, response.start, response.file = body, 0, None
    return response
