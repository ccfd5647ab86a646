"""Writes the plain Sitemap of one set: its resources without what ResourceSync adds, for search engines (AMB-64)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec

from headwater.publish.capabilities import SITEMAP, Capability
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import PublicationState
from headwater.publish.rendering.renderer import PublicationJob
from headwater.publish.rendering.resource_lists import ResourceLists
from headwater.publish.site import Site
from headwater.publish.whole_lists import ListForm, Times, follows_pages, write_whole_list
from headwater.spec.markup import SITEMAP_HEAD, plain_entries, sitemap_index


class _SitemapForm(ListForm):
    """Plain Sitemaps."""

    def __init__(self, site: Site, set_name: str) -> None:
        super().__init__(SITEMAP, set_name)
        self._site = site

    def head(self, times: Times, *, is_part: bool) -> bytes:
        """What precedes the entries; a Sitemap states no times of its own."""
        return SITEMAP_HEAD

    def entries(self, block: bytes) -> bytes:
        """Whole entries without what ResourceSync adds."""
        return plain_entries(block)

    def index(self, parts: Sequence[Times]) -> Iterable[bytes]:
        """The index of several Sitemaps."""
        yield sitemap_index((self._site.url(self.part(number)), one[1]) for number, one in enumerate(parts))


class Sitemaps:
    """The plain Sitemap of one set during one publication: it follows the pages, when a round of them is complete."""

    capabilities: ClassVar[tuple[Capability, ...]] = (SITEMAP,)

    def __init__(self, job: PublicationJob, lists: ResourceLists) -> None:
        self._job = job
        self._lists = lists
        self._form = _SitemapForm(job.context.site, job.name)
        self._state = job.publication.sitemap

    @staticmethod
    def published(name: str, publication: PublicationState) -> Iterator[str]:
        """The Sitemap, or the index and its parts."""
        if publication.sitemap is not None:
            yield from ListForm(SITEMAP, name).names(publication.sitemap)

    def publish(self) -> None:
        """Write what is due."""
        if not self._job.settings.sitemap:
            self._state = None
            return
        before = None if self._job.refresh is Refresh.ALL else self._state
        if before is None or follows_pages(self._lists):
            self._state = write_whole_list(self._job, self._form).state

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the Sitemap's."""
        return msgspec.structs.replace(publication, sitemap=self._state)
