"""Writes the Source Description and robots.txt, but over none of others; which sets of the site are published."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.catalog.interface import SetState, UnknownSet
from headwater.progress import Notice
from headwater.publish import document_content, plan
from headwater.publish.document_names import SITEMAP
from headwater.publish.publication_state import decode_publication
from headwater.publish.site import (
    DESCRIPTION_PARTS,
    ROBOTS,
    SITEMAPS,
    SOURCE_DESCRIPTION,
    SetSettings,
    Site,
    capability_list_name,
    resource_list_name,
    sitemap_name,
    source_description_name,
    top_names,
)
from headwater.publish.store_writer import PublishContext, StoreWriter, is_complete, render_document
from headwater.publish.whole_lists import list_names
from headwater.retry import TimeShare
from headwater.spec.kinds import DOCUMENT_ENTRIES
from headwater.spec.markup import sitemap_index
from headwater.storage.object_store import TEXT

if TYPE_CHECKING:
    from headwater.publish.publisher import PublisherOptions

NAMED_AT_ONCE = 100
"""With more sets, those that are new are named many together, within NAMING: each time all are written down."""
NAMING: Final = TimeShare(0.05)


class SiteDocuments:
    """The documents of a site that are about all its sets. Safe for several threads."""

    def __init__(self, context: PublishContext, options: PublisherOptions) -> None:
        self._context = context
        self._catalog = context.catalog
        self._store = context.store
        self._site = context.site
        self._keep_others = options.keep_others
        self._written = options.written
        self._lock = threading.Lock()
        self._named: frozenset[str] | None = None
        self._published: set[str] = set()
        self.is_outdated = sum(one.sitemap for one in self._site.sets) > 1  # by what an earlier process has left
        self._name_at = 0.0  # before that no set is named, of many; by `time.monotonic`

    def set_published(self, name: str, *, check: bool) -> None:
        """All documents of a set are in the store: name it.

        With `check`, what names it is looked at, too.
        """
        self._published.add(name)
        if check:  # the publications of the others see to what names these
            names = {source_description_name(self._site, name), SOURCE_DESCRIPTION}
            is_named = all(self._store.noted_etag(one) is not None for one in names)
            if not is_named or self._store.stat(ROBOTS) is None:
                self._named = None
        count, began = len(self._published), time.monotonic()
        if count <= NAMED_AT_ONCE or count == len(self._site.sets) or began >= self._name_at:
            self.name_published()
            ended = time.monotonic()
            self._name_at = ended + NAMING.pause_after(ended - began)

    def set_incomplete(self, name: str) -> None:
        """The documents of a set are about to be written anew: it counts as unpublished until they are."""
        self._published.discard(name)

    def publish_site(self) -> tuple[str, ...]:
        """Write the Source Description and robots.txt for the sets that are published; the names that changed."""
        with self._lock:
            self.is_outdated = False
            published = self._published_names()
            site = self._site_of(published)
            store_writer = StoreWriter(self._context)
            descriptions = list(document_content.source_descriptions(site, published))
            store_writer.documents(descriptions)
            top = self._store.stat(SOURCE_DESCRIPTION)
            if top is not None and plan.is_over(top.modified, self._context.clock()):  # parts of what was a larger site
                for name in set(self._store.names(DESCRIPTION_PARTS)) - {name for name, _head, _some in descriptions}:
                    self._context.may_write()
                    self._store.delete(name)
            held = self._store.open(ROBOTS)
            begin = _ROBOTS_MARK.encode()
            if held is not None:
                with held:
                    begin = held.read(0, 200)
            with_sitemap = {one.name for one in site.sets if one.sitemap}.intersection(published)
            is_asked = len(with_sitemap) > 1 or self._store.stat(SITEMAPS) is not None
            has_index = is_asked and self._index_sitemaps(with_sitemap, store_writer)
            robots = _robots(site, published, with_sitemap, has_index=has_index)
            if begin.startswith(_ROBOTS_MARK.encode()):
                store_writer.blocks(ROBOTS, [robots], kind=TEXT)
            else:
                lines = robots.decode().splitlines()
                missing = "; ".join(line for line in lines if line.startswith("Sitemap:"))
                self._context.listener(
                    Notice("RS-DISC-05", f"robots.txt is not ours and stays as it is; add to it: {missing}")
                )
            self._named = frozenset(published)
        if store_writer.written:
            self._written(None, tuple(store_writer.written))
        return tuple(store_writer.written)

    def _index_sitemaps(self, with_sitemap: set[str], store_writer: StoreWriter) -> bool:
        """Write an index of the plain Sitemaps of several sets, or remove it; whether there is one.

        An index names no other: of a Sitemap that is one it has the parts.
        """
        names: list[str] = []
        for state in self._catalog.sets() if len(with_sitemap) > 1 else ():
            view = decode_publication(state.notes).sitemap if state.name in with_sitemap else None
            if view is not None:
                top, *parts = list_names(state.name, SITEMAP, view)
                names += parts or [top]
        if 0 < len(names) <= DOCUMENT_ENTRIES:
            store_writer.blocks(SITEMAPS, [sitemap_index((self._site.url(one), None) for one in names)])
            return True
        self._context.may_write()
        self._store.delete(SITEMAPS)
        return False

    def name_published(self) -> None:
        """Name the sets that are published and not named yet, though others are not published."""
        if self._named is None or self.is_outdated or not self._published <= self._named:
            self.publish_site()

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set may be shown: its documents are there, and the Source Description names it."""
        return self.has_documents(name, state) and (self._named is None or name in self._named)

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        if name is None:
            return self._named is not None
        return name in self._published and (self._named is None or name in self._named)

    def is_known_whole(self, name: str) -> bool:
        """Whether it is known, without asking the catalog, that all documents of the set are there."""
        return name in self._published

    def has_documents(self, name: str, state: SetState | None = None) -> bool:
        """Whether all documents of the set are in the store, in the shape that this site gives them.

        The catalog is asked for what it holds of the set, unless the caller knows that.
        """
        if name in self._published:
            return True
        try:
            return self._is_left(self._catalog.state(name) if state is None else state)
        except UnknownSet:
            return False

    def _is_left(self, state: SetState) -> bool:
        """Whether an earlier publication has left all documents of a set; then that is known from now on."""
        name = state.name
        if not decode_publication(state.notes).is_of(self._site, self._site.settings(name)):
            return False
        store = self._store
        names = top_names(self._site.settings(name))
        if not all(store.noted_etag(one) is not None or is_complete(store, one) for one in names):
            return False
        self._published.add(name)
        return True

    def is_site_published(self) -> bool:
        """Whether the Source Description in the store is one of this site."""
        if self._named is None and self._is_whole():
            store_writer = StoreWriter(self._context)
            names = self._published_names()
            if all(
                store_writer.says(name, render_document(head, entries, store_writer.profile))
                for name, head, entries in document_content.source_descriptions(self._site_of(names), names)
            ):
                self._named = frozenset(names)
        return self._named is not None

    def _published_names(self) -> tuple[str, ...]:
        """The sets to name, in an order that does not depend on which of them this run is about.

        Those of earlier runs stay named while they are published anew, and those that the site does not have, where
        others are kept.
        """
        mine = dict.fromkeys(one.name for one in self._site.sets)
        named = mine.keys() & self._published
        if self._keep_others or len(named) < len(mine):
            for state in self._catalog.sets():  # read once, however many of them are not published
                if state.name in mine and state.name not in named:
                    named |= {state.name} if self._is_left(state) or self._is_earlier(state) else set()
                elif state.name not in mine and self._keep_others and self._is_earlier(state):
                    named.add(state.name)
        return tuple(sorted(named)) if self._keep_others else tuple(one for one in mine if one in named)

    def _is_earlier(self, state: SetState) -> bool:
        """Whether an earlier run has published the set at the same base URL, in whatever shape."""
        publication = decode_publication(state.notes)
        if publication.is_first or self._store.stat(capability_list_name(state.name)) is None:
            return False
        is_here = publication.base_url in ("", self._site.base_url)  # an older version has not noted it
        if not is_here and self._keep_others:
            text = f"the set {state.name!r} was published for another base URL: Headwater no longer lists it"
            self._context.listener(Notice("HW-PUB-11", text))
        return is_here

    def _site_of(self, published: Iterable[str]) -> Site:
        """The site with the sets that earlier runs have published, as they have left them."""
        mine = {one.name for one in self._site.sets}
        others = []
        for name in published:
            if name not in mine:
                offers = decode_publication(self._catalog.state(name).notes).offers
                others.append(SetSettings(name=name, classic="classic" in offers, sitemap="sitemap" in offers))
        return msgspec.structs.replace(self._site, sets=(*self._site.sets, *others)) if others else self._site

    def _is_whole(self) -> bool:
        return all(self.has_documents(one.name) for one in self._site.sets)


_ROBOTS_MARK = "# Written by Headwater, and anew with each publication."
"""The first line of a robots.txt of ours: one without it is somebody else's, and is left alone."""


def _robots(site: Site, published: Iterable[str], with_sitemap: set[str], *, has_index: bool) -> bytes:
    """robots.txt: `Sitemap:` lines of Resource Lists, and plain Sitemaps or their index (RS-DISC-05, RS-DISC-07)."""
    lines = [_ROBOTS_MARK, "User-agent: *", "Disallow:", ""]
    for name in published:
        if site.robots == "all":
            lines.append(f"Sitemap: {site.url(resource_list_name(name))}")
        if name in with_sitemap and not has_index:
            lines.append(f"Sitemap: {site.url(sitemap_name(name))}")
    lines += [f"Sitemap: {site.url(SITEMAPS)}"] * has_index
    return ("\n".join(lines) + "\n").encode("ascii")
