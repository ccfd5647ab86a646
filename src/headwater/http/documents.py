"""Handles requests for documents: lists, descriptions and robots.txt, whole or in part, as they are or as gzip."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.http import responses
from headwater.http.document_cache import CachedDocument, DocumentCache, Representation
from headwater.http.request_fields import accepts_gzip, is_fresh
from headwater.http.responses import RequestFields, Response
from headwater.http.routes import BRIEF, IMMUTABLE, REVALIDATE, HttpRequest, Route
from headwater.http.source_access import SourceAccess, not_published
from headwater.publish.capabilities import CAPABILITIES, CacheRule
from headwater.publish.site import (
    DESCRIPTION_PARTS,
    ROBOTS,
    SOURCE_DESCRIPTION,
    capability_list_name,
    dataset_name,
    top_names,
)
from headwater.storage.objects.interface import Coding, OpenObject

_CACHE = {CacheRule.BRIEF: BRIEF, CacheRule.REVALIDATE: REVALIDATE, CacheRule.IMMUTABLE_WHEN_CLOSED: IMMUTABLE}
_DOCUMENTS = (
    (f"/{SOURCE_DESCRIPTION}", BRIEF),
    (f"/{DESCRIPTION_PARTS}{{number}}.xml", BRIEF),
    (f"/{ROBOTS}", BRIEF),
    *(
        (f"/{{set}}/{document.name}", _CACHE[document.cache])
        for capability in CAPABILITIES
        for document in capability.documents
    ),
)
"""Pattern and cache rule; a segment is immutable once it is closed."""


class DocumentHandler:
    """Answers with the documents of a source's store."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._source = access.source
        site = access.source.site
        links = {  # these documents are resources
            dataset_name(one.name): responses.leads_to(site.url(capability_list_name(one.name)))
            for one in site.sets
            if one.dataset
        }
        self._cache = DocumentCache(access.source.store, links)

    def routes(self) -> Iterator[Route]:
        """The rows of the documents."""
        for pattern, cache in _DOCUMENTS:
            yield Route(
                name="document",
                pattern=pattern,
                handler=self.answer,
                cache=cache,
            )

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 while the set is not published."""
        name, set_name, fields = request.match.name, request.match.set_name, request.fields
        rule = request.route.cache
        document = self._cache.known(name) or await self._access.read(self._cache.look, name, rule)
        if not await self._access.is_published(set_name):
            return not_published(set_name)
        if document is None:
            return self._missing(name, set_name)
        response = self._from_cache(document, fields)
        if response is not None:
            return response
        form, coding = _representation(document, fields)
        body: bytes | OpenObject | None = None
        if not request.is_head:
            opened = await self._access.read(self._cache.open, name, rule, coding)
            if opened is None:
                return self._missing(name, set_name)
            form, body = opened
            if isinstance(body, bytes):
                self._cache.keep(form, body)
        return _response(form, body, fields)

    def _from_cache(self, document: CachedDocument, fields: RequestFields) -> Response | None:
        """The response without waiting; None when its octets have to be read first."""
        form, _ = _representation(document, fields)
        if (refusal := responses.unmet(fields, form.etag, form.stated_second)) is not None:
            return refusal
        if is_fresh(fields.if_none_match, fields.if_modified_since, form.etag, document.modified_second):
            return Response(304, form.unchanged)
        body = self._cache.body(form)
        return None if body is None else _response(form, body, fields)

    def _missing(self, name: str, set_name: str | None) -> Response:
        """404; 503 for what a published set always has: it is lost, and about to be restored."""
        if set_name is None or name in top_names(self._source.site.settings(set_name)):
            return not_published(set_name)
        return responses.text(404, f"no document {name}")


def _representation(document: CachedDocument, fields: RequestFields) -> tuple[Representation, Coding]:
    """The representation that is asked for, and its coding."""
    if document.gzip is not None and accepts_gzip(fields.accept_encoding):
        return document.gzip, Coding.GZIP
    return document.plain, Coding.IDENTITY


def _response(form: Representation, body: bytes | OpenObject | None, fields: RequestFields) -> Response:
    """The response with the octets of this very form, which may be a later one than that looked at before."""
    response = responses.unmet(fields, form.etag, form.stated_second)
    if response is None:
        response = responses.whole_or_part(form.head, form.etag, form.octets, fields)
    if response.is_refusal:
        if body is not None and not isinstance(body, bytes):
            body.close()
    elif isinstance(body, bytes):
        response.body = body
    else:
        response.file = body
    return response
