"""Answers requests for lists, robots.txt and newest notifications: `ETag` and `Last-Modified` of each document.

A version of a document is known by its digest. Its heads are made once, its octets kept while there is room: all that
are held, also by answers whose readers are slow, are bounded, and what has no room is sent from its file. What is sent
always belongs together, whatever is published meanwhile: the octets of one version, or a file that goes on giving them.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from weakref import ref

import msgspec

from headwater.datasets.rows import DATASET_TYPE
from headwater.http import responses
from headwater.http.requests import accepts_gzip
from headwater.http.resources import VARY, choose, header_link, not_acceptable
from headwater.http.responses import INERT, Head, Representation, Response, line, not_published, validators
from headwater.http.routes import BRIEF, IMMUTABLE, REVALIDATE, HttpRequest, Route, page_of
from headwater.http.source_access import SourceAccess
from headwater.publish.document_content import group_description
from headwater.publish.document_names import CAPABILITIES, CHANNELS, DATASET_FORMS, CacheRule, Channel
from headwater.publish.site import (
    DESCRIPTION_PARTS,
    ROBOTS,
    SITEMAPS,
    SOURCE_DESCRIPTION,
    capability_list_name,
    dataset_name,
    top_names,
    topic_url,
)
from headwater.publish.store_writer import decode_mark, is_complete
from headwater.source.health import ServableSource
from headwater.spec.writer import write_document
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import ZIP, Coding, OpenObject, StoredObject

_MOST_DOCUMENTS = 4_096
_ROOM_OCTETS = 32 << 20
_LARGEST_OCTETS = 4 << 20  # a document of more is sent from its file, as packages are


class CachedDocument(msgspec.Struct, frozen=True, gc=False):
    """One version of a document in its representations."""

    stored: StoredObject
    plain: Representation
    gzip: Representation | None


class DocumentCache:
    """The documents of a store. `look` and `open` may wait for the disk, and may be called from any thread.

    The other methods do not wait, and belong to one thread. `links` gives further header lines of a document. `rule` is
    the cache rule of a document: IMMUTABLE counts for closed ones, and open ones are revalidated.
    """

    def __init__(
        self,
        store: FolderStore,
        links: Callable[[StoredObject], Head] = lambda _stored: b"",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._links = links
        self._clock = clock
        self._documents: dict[str, CachedDocument] = {}
        self._bodies: dict[bytes, ref[memoryview] | None] = {}  # kept, or still being sent; None: being read
        self._kept: OrderedDict[bytes, memoryview] = OrderedDict()
        self._held = 0  # octets of all `_bodies`

    def known(self, name: str) -> CachedDocument | None:
        """The present version, when it has been looked at before; None says nothing."""
        document = self._documents.get(name)
        if document is None or self._store.version(name) != document.stored.version:
            return None
        return document

    def look(self, name: str, rule: bytes) -> CachedDocument | None:
        """The present version, or None when there is no such document, or only what somebody has cut off.

        Where nothing vouches for it, the document itself has to end as one does.
        """
        stored = self._store.stat(name)
        if stored is None or not (stored.is_vouched or name == ROBOTS or is_complete(self._store, name)):
            return None
        return self._describe(stored, rule)

    def body(self, form: Representation) -> memoryview | None:
        """The octets of a form, when they are held."""
        alive = self._bodies.get(form.etag)
        body = alive() if alive else None
        if body is not None:
            self._kept[form.etag] = body
            self._kept.move_to_end(form.etag)
        return body

    def open(self, name: str, rule: bytes, coding: Coding) -> tuple[Representation, OpenObject] | None:
        """The present version's form, opened."""
        opened = self._store.open(name, coding)
        if opened is None:
            return None
        document = self._describe(opened.stored, rule)
        return (document.gzip if opened.coding is Coding.GZIP and document.gzip else document.plain), opened

    def has_room(self, form: Representation, stored: StoredObject) -> bool:
        """Whether the octets of a form are to be read and kept; then `keep` is to follow, whatever happens."""
        if form.octets > _LARGEST_OCTETS or stored.media_type == ZIP.media_type or form.etag in self._bodies:
            return False
        while self._held + form.octets > _ROOM_OCTETS and self._kept:
            self._kept.popitem(last=False)  # which gives room unless it is being sent
        if self._held + form.octets > _ROOM_OCTETS:
            return False
        self._bodies[form.etag] = None
        self._held += form.octets
        return True

    def keep(self, form: Representation, body: memoryview | None) -> None:
        """Keep the octets of a form; None when they could not be read."""
        if body is None or len(body) != form.octets:
            self._forget(form)
            return
        self._bodies[form.etag] = ref(body, partial(self._forget, form))
        self._kept[form.etag] = body

    def _forget(self, form: Representation, _body: object = None) -> None:
        del self._bodies[form.etag]
        self._held -= form.octets

    def _describe(self, stored: StoredObject, rule: bytes) -> CachedDocument:
        modified = int(stored.modified.timestamp())
        settled = int(self._clock()) > modified
        # It may still be replaced within its second: a date that names the second before never hides that.
        stated = modified
        second: int | None = modified if settled else modified - 1
        mark = decode_mark(stored.mark)
        if mark is not None and mark.lastmod is not None:
            stated = int(mark.lastmod.timestamp())  # as the lists say of the resource
            second = stated if settled else None
        if rule == IMMUTABLE and (mark is None or not mark.is_closed):
            # a cache would keep an open one for a year (AMB-62), whatever the catalog has closed since
            rule = REVALIDATE
        more = line(b"cache-control", rule) + self._links(stored)
        document = CachedDocument(
            stored,
            _form(stored, Coding.IDENTITY, stated, second, more),
            None if stored.gzip_octets is None else _form(stored, Coding.GZIP, stated, second, more),
        )
        if settled:
            if len(self._documents) >= _MOST_DOCUMENTS:
                self._documents.clear()
            self._documents[stored.name] = document
        return document


def _read(opened: OpenObject) -> memoryview:
    with opened:
        return memoryview(opened.read(0, opened.octets))


def _form(stored: StoredObject, coding: Coding, stated: int, second: int | None, more: Head) -> Representation:
    tag, octets = stored.etag, stored.octets
    if coding is Coding.GZIP and stored.gzip_octets is not None:
        tag, octets = f"{tag}-gzip", stored.gzip_octets
    etag = f'"{tag}"'.encode("ascii")
    content = line(b"content-type", stored.media_type.encode("ascii")) + INERT
    if coding is Coding.GZIP:
        content += line(b"content-encoding", b"gzip")
    return Representation(
        etag=etag,
        modified_second=int(stored.modified.timestamp()),
        stated_second=stated,
        octets=octets,
        content=content,
        unchanged=validators(etag, second) + more + line(b"vary", b"Accept-Encoding"),
    )


_CACHE = {CacheRule.BRIEF: BRIEF, CacheRule.REVALIDATE: REVALIDATE, CacheRule.IMMUTABLE_WHEN_CLOSED: IMMUTABLE}
_DOCUMENTS = (
    (f"/{SOURCE_DESCRIPTION}", BRIEF),
    (f"/{DESCRIPTION_PARTS}{{number}}.xml", BRIEF),
    (f"/{ROBOTS}", BRIEF),
    (f"/{SITEMAPS}", REVALIDATE),
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
        self._cache = DocumentCache(access.source.store, self._dataset_links)

    def routes(self) -> Iterator[Route]:
        """The rows of the documents."""
        for pattern, cache in _DOCUMENTS:
            yield Route(name="document", pattern=pattern, handler=self.answer, cache=cache, when_published=True)
        for stem in DATASET_FORMS:
            yield Route(
                name="document",
                pattern=f"/{{set}}/{stem}",
                handler=partial(self._preferred, stem),
                cache=REVALIDATE,
                when_published=True,
            )

    async def _preferred(self, stem: str, request: HttpRequest) -> Response:
        """The syntax of a dataset, or of its description, that the client prefers."""
        name = request.match.set_name
        assert name is not None
        there = await self._access.read(self._forms, name, stem) if self._source.site.settings(name).dataset else []
        if not there:
            return self._missing(f"{name}/{stem}", name)
        chosen = choose(request.fields.accept, [kind for _file, kind in there])
        if chosen is None:
            return not_acceptable(f"{self._source.site.url(file)} {kind}" for file, kind in there)
        file = there[chosen][0]
        match = msgspec.structs.replace(request.match, name=file)
        response = await self.answer(msgspec.structs.replace(request, match=match))
        response.head += VARY + line(b"content-location", self._source.site.url(file).encode("ascii"))
        return response

    def _forms(self, name: str, stem: str) -> list[tuple[str, str]]:
        """The documents of a dataset by a generic name, with their media types: those of its present state."""
        forms = [(f"{name}/{file}", kind) for file, kind in DATASET_FORMS[stem]]
        marks = [decode_mark(self._source.store.mark(file)) for file, _kind in forms]
        least = 0 if marks[0] is None else marks[0].seq
        return [one for one, mark in zip(forms, marks, strict=True) if mark is not None and mark.seq >= least]

    def _dataset_links(self, stored: StoredObject) -> Head:
        """What a resource, or what is one in another syntax, leads to: the lists, what describes it, the other ones."""
        site, (name, _, file) = self._source.site, stored.name.partition("/")
        stem = next((stem for stem, forms in DATASET_FORMS.items() if file in dict(forms)), None)
        if stem is None or not (settings := site.settings(name)).dataset:
            return b""
        links: list[tuple[str | None, str, str | None]] = [(site.url(f"{name}/{stem}"), "canonical", None)]
        links += [(site.url(one), "alternate", kind) for one, kind in self._forms(name, stem) if one != stored.name]
        if stem == "description":
            links.append((site.url(dataset_name(name)), "describes", DATASET_TYPE))
        else:
            links.insert(0, (site.url(capability_list_name(name)), "resourcesync", None))
            about = {site.url(f"{name}/{one}"): kind for one, kind in DATASET_FORMS["description"]}
            links += [(href, "describedby", kind) for href, kind in about.items()]
            links += [] if settings.describedby in about else [(settings.describedby, "describedby", None)]
            links += [(settings.licence, "license", None)]
        said = ", ".join(header_link(href, rel, kind) for href, rel, kind in links if href is not None)
        return line(b"link", said.encode("ascii"))

    async def answer(self, request: HttpRequest) -> Response:
        """The response to a request for a document."""
        name, set_name, fields = request.match.name, request.match.set_name, request.fields
        rule = request.route.cache
        document = self._cache.known(name) or await self._access.read(self._cache.look, name, rule)
        if document is None:
            return self._missing(name, set_name)
        form, coding = document.plain, Coding.IDENTITY
        if document.gzip is not None and accepts_gzip(fields.accept_encoding):
            form, coding = document.gzip, Coding.GZIP
        response = form.answer(fields)
        if request.is_head or not response.wants_octets:
            return response
        body = self._cache.body(form)
        if body is None:
            found = await self._access.read(self._cache.open, name, rule, coding)
            if found is None:
                return self._missing(name, set_name)
            form, opened = found
            response = form.answer(fields)  # it may be a later one than that looked at before
            if response.status != 200 or not self._cache.has_room(form, opened.stored):
                response.give(opened) if response.wants_octets else opened.close()
                return response
            try:
                body = await self._access.read(_read, opened)
            finally:
                self._cache.keep(form, body)
        response.body = body
        return response

    def _missing(self, name: str, set_name: str | None) -> Response:
        """404; 503 for what a published set always has: it is lost, and about to be restored."""
        if name != SITEMAPS and (set_name is None or name in top_names(self._source.site.settings(set_name))):
            return not_published(set_name)
        return responses.text(404, f"no document {name}")


def group_routes(source: ServableSource, groups: Mapping[str, Sequence[str]]) -> Iterator[Route]:
    """The rows of the Source Descriptions of groups of sets: each names those of its sets that are published."""
    for group, names in groups.items():
        make = partial(_group, source, names)
        yield page_of(f"{DESCRIPTION_PARTS}groups/{group}.xml", b"application/xml", make)


def _group(source: ServableSource, names: Sequence[str]) -> tuple[int, bytes]:
    published = [one for one in names if source.is_published(one)]
    return 200, b"".join(write_document(*group_description(source.site, published)))


def topic_routes(hubs: tuple[str, ...]) -> Iterator[Route]:
    """The rows of the topics of a source that has `hubs`: one for each channel."""
    for channel in CHANNELS:
        yield Route(
            name="topic",
            pattern=f"/{{set}}/{channel.name}",
            handler=partial(_topic, channel, hubs),
            media_type=b"application/xml",
            cache=REVALIDATE,
        )


async def _topic(channel: Channel, hubs: tuple[str, ...], request: HttpRequest) -> Response:
    """The newest payload, or nothing (RS-NT-02), with `self` and every hub in one `Link` header (WS-P-02)."""
    from headwater.source.notifier import latest_payload  # with it comes an HTTP client: sources without hubs need none

    name, source = request.match.set_name, request.access.source
    assert name is not None
    body = await request.access.ask(latest_payload, source.catalog, name, channel, hubs)
    links = [f'<{topic_url(source.site, name, channel)}>; rel="self"', *(f'<{hub}>; rel="hub"' for hub in hubs)]
    response = request.respond(200, body)
    response.head += line(b"link", ", ".join(links).encode("ascii"))
    return response
