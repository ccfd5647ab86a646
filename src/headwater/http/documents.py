"""Handles requests for documents: lists, descriptions and robots.txt, whole or in part, as they are or as gzip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from headwater.http import responses
from headwater.http.conditions import accepts_gzip, is_fresh
from headwater.http.document_cache import CachedDocument, DocumentCache, DocumentRule, Representation
from headwater.http.responses import RequestFields, Response
from headwater.http.routes import BRIEF, IMMUTABLE, REVALIDATE, HttpRequest, Match, Route
from headwater.http.source_access import SourceAccess, not_published
from headwater.publish.capabilities import CAPABILITIES, XML, CacheRule
from headwater.publish.site import DESCRIPTION_PARTS, ROBOTS, SOURCE_DESCRIPTION, top_names

_XML = XML.encode("ascii")
_TEXT = b"text/plain; charset=utf-8"
_CACHE = {CacheRule.BRIEF: BRIEF, CacheRule.REVALIDATE: REVALIDATE, CacheRule.IMMUTABLE_WHEN_CLOSED: IMMUTABLE}
_DOCUMENTS = (
    (f"/{SOURCE_DESCRIPTION}", _XML, BRIEF),
    (f"/{DESCRIPTION_PARTS}{{number}}.xml", _XML, BRIEF),
    (f"/{ROBOTS}", _TEXT, BRIEF),
    *(
        (f"/{{set}}/{document.name}", document.media_type.encode("ascii"), _CACHE[document.cache])
        for capability in CAPABILITIES
        for document in capability.documents
    ),
)
"""Pattern, media type and cache rule; a segment is immutable once it is closed."""


class DocumentHandler:
    """Answers with the documents of a source's store."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._source = access.source
        self._cache = DocumentCache(access.source.store)

    def routes(self) -> Iterator[Route]:
        """The rows of the documents."""
        for pattern, media_type, cache in _DOCUMENTS:
            yield Route(
                name="document",
                pattern=pattern,
                handler=self.answer,
                media_type=media_type,
                cache=cache,
                at_hand=self.at_hand,
            )

    def at_hand(self, match: Match, fields: RequestFields) -> Response | None:
        """The response without waiting, when all is known for it."""
        document = self._cache.known(match.name)
        if document is None or not self._source.is_known_published(match.set_name):
            return None
        return self._from_cache(document, fields)

    async def answer(self, request: HttpRequest) -> Response:
        """The response; 503 while the set is not published."""
        name, set_name, fields = request.match.name, request.match.set_name, request.fields
        rule = DocumentRule(request.route.media_type, request.route.cache)
        document = self._cache.known(name) or await self._access.read(self._cache.look, name, rule)
        if not await self._access.is_published(set_name):
            return not_published(set_name)
        if document is None:
            return _missing(name, set_name)
        response = self._from_cache(document, fields)
        if response is not None:
            return response
        form, is_coded = _representation(document, fields)
        body: bytes | BinaryIO | None = None
        if not request.is_head:
            opened = await self._access.read(lambda: self._cache.open(name, rule, coded=is_coded))
            if opened is None:
                return _missing(name, set_name)
            form, body = opened
            if isinstance(body, bytes):
                self._cache.keep(form, body)
        return _response(form, body, fields)

    def _from_cache(self, document: CachedDocument, fields: RequestFields) -> Response | None:
        """The response without waiting; None when its octets have to be read first."""
        form, _ = _representation(document, fields)
        if is_fresh(fields.if_none_match, fields.if_modified_since, form.etag, document.modified_second):
            return Response(304, form.unchanged)
        body = self._cache.body(form)
        return None if body is None else _response(form, body, fields)


def _missing(name: str, set_name: str | None) -> Response:
    """404; 503 for what every published set has: it is lost, and about to be restored."""
    if set_name is None or name in top_names(set_name):
        return not_published(set_name)
    return responses.text(404, f"no document {name}")


def _representation(document: CachedDocument, fields: RequestFields) -> tuple[Representation, bool]:
    """The representation that is asked for, and whether it is the one with a content coding."""
    if document.gzip is not None and accepts_gzip(fields.accept_encoding):
        return document.gzip, True
    return document.plain, False


def _response(form: Representation, body: bytes | BinaryIO | None, fields: RequestFields) -> Response:
    response = responses.whole_or_part(form.head, form.etag, form.octets, fields)
    if response.status == 416:
        if body is not None and not isinstance(body, bytes):
            body.close()
    elif isinstance(body, bytes):
        response.body = body
    else:
        response.file = body
    return response
