"""Handles requests for resources whose content comes from a provider instead of a folder.

The provider is asked for the state that the catalog holds at this moment, so that what is answered is what was
recorded: its tag is the listed digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate

from headwater.catalog.content import NoContent, OpenContent
from headwater.catalog.interface import Metadata
from headwater.http import responses
from headwater.http.request_fields import is_fresh
from headwater.http.responses import SMALL_OCTETS, Head, RequestFields, Response, leads_to, line, unmet, whole_or_part
from headwater.http.routes import HttpRequest, Match, Route
from headwater.http.source_access import SourceAccess, not_published
from headwater.publish.site import capability_list_name
from headwater.source.health import ContentProvider


class ContentHandler:
    """Answers with content that a provider makes."""

    def __init__(self, access: SourceAccess, provider: ContentProvider) -> None:
        self._access = access
        self._source = access.source
        self._provider = provider
        site = access.source.site
        self._links = {one.name: leads_to(site.url(capability_list_name(one.name))) for one in site.sets}

    def routes(self) -> Iterator[Route]:
        """The row of the resources."""
        yield Route(name="resource", pattern="/{set}/resources/{path}", handler=self.answer)

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 while the set is not published."""
        match = request.match
        if not await self._access.is_published(match.set_name):
            return not_published(match.set_name)
        if self._source.catalog.is_remote:
            return await self._access.ask(lambda: self._respond(match, request.fields, is_head=request.is_head))
        return self._respond(match, request.fields, is_head=request.is_head)

    def _respond(self, match: Match, fields: RequestFields, *, is_head: bool) -> Response:
        assert match.set_name is not None
        resource = self._provider.find(match.set_name, match.name)
        content = None if resource is None else self._provider.open(match.set_name, resource)
        if resource is None or content is None or isinstance(content, NoContent):
            return responses.text(404, "no such resource")
        return _content_response(resource.metadata, content, self._links[match.set_name], fields, is_head=is_head)


def _content_response(
    stated: Metadata, content: OpenContent, link: Head, conditions: RequestFields, *, is_head: bool
) -> Response:
    """The response for a resource of which this is `stated`; `link` is a line of its head."""
    octets = content.octets
    lastmod = stated.lastmod.timestamp() if stated.lastmod else 0.0
    etag = (
        b'"%s"' % stated.hash.rpartition(":")[2].encode("ascii")
        if stated.hash
        else b'W/"%x-%x"' % (octets, int(lastmod))
    )
    # No date in the future (RFC 9110 8.8.2.1), where simulated time may well be.
    second = int(min(lastmod, time.time()))
    unchanged = (
        line(b"etag", etag)
        + line(b"last-modified", formatdate(second, usegmt=True).encode("ascii"))
        + line(b"cache-control", b"public, max-age=60, must-revalidate")
        + link
    )
    refusal = unmet(conditions, etag, second)
    if refusal is not None:
        return refusal
    if is_fresh(conditions.if_none_match, conditions.if_modified_since, etag, second):
        return Response(304, unchanged)
    head = (
        line(b"content-type", (stated.type or "application/octet-stream").encode("latin-1", "replace"))
        + line(b"content-length", b"%d" % octets)
        + unchanged
        + line(b"accept-ranges", b"bytes")
        + line(b"x-content-type-options", b"nosniff")
    )
    response = whole_or_part(head, etag, octets, conditions)
    if response.is_refusal or is_head:
        return response
    if response.octets > SMALL_OCTETS:
        response.file = content
        return response
    response.body, response.start = content.read(response.start, response.octets), 0
    return response
