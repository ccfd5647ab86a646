"""Writes the Resource List of one set: the pages that are due, and the index when there are several.

`at` is a moment up to which the world is recorded; a page is read from a snapshot of the catalog taken after it, and
`completed` is when that was (RS-TIME-05, RS-TIME-06). Documents of other pages keep their octets and their times.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence

import msgspec

from headwater.catalog.interface import Catalog, Page, Rendered
from headwater.progress import Listener, Progress
from headwater.publish.plan import PagePlan, is_stale, plan_pages
from headwater.publish.publication_state import PublicationState, encode_publication
from headwater.publish.rendering import documents
from headwater.publish.rendering.documents import PageTimes
from headwater.publish.rendering.pool import RenderPool
from headwater.publish.rendering.worker import RenderJob, page
from headwater.publish.site import SetSettings, Site, resource_list_name, resource_page_name
from headwater.publish.store_writer import DocumentMark, StoreWriter


class ResourceListResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the pages: the bookkeeping of those that were rendered or dropped, and the new note."""

    publication: PublicationState
    rendered: tuple[Rendered, ...]
    names: tuple[str, ...]
    stale_count: int
    left: int
    """How many pages are due and not rendered."""


class ResourceLists:
    """The Resource List of one set during one publication."""

    def __init__(
        self,
        catalog: Catalog,
        store_writer: StoreWriter,
        site: Site,
        settings: SetSettings,
        clock: Callable[[], dt.datetime],
        listener: Listener,
        render_pool: RenderPool,
    ) -> None:
        self._render_pool = render_pool
        self._catalog = catalog
        self._store_writer = store_writer
        self._site = site
        self._settings = settings
        self._name = settings.name
        self._clock = clock
        self._listener = listener

    def publish(
        self,
        pages: Sequence[Page],
        publication: PublicationState,
        at: dt.datetime,
        catch_up: Callable[[], None],
        *,
        everything: bool,
        force: bool,
        wait: bool = False,
    ) -> ResourceListResult:
        """Render what is due, or let it `wait`. `catch_up` publishes changes, before a page becomes visible.

        `pages` are those of a state in which everything is recorded that happened until `at`.
        """
        began = self._clock()
        plan = plan_pages(pages, publication, self._settings, began, everything=everything, force=force)
        if wait or not plan.rewrite:
            left = len(plan.render) + len(plan.drop) + len(plan.left)
            plan = PagePlan(listed=publication.listed, indexed=publication.indexed)
            stale = _stale(pages, plan, ())
            return ResourceListResult(
                publication=publication, rendered=(), names=self._names(plan), stale_count=stale, left=left
            )
        self._intend(publication, plan, at)
        touched = {page.number: page.touched for page in pages}
        done = []
        for one in self._pages(plan, pages, at, catch_up):
            done.append(one)
            self._listener(Progress("pages", len(done), len(plan.render)))
        self._top(pages, done, plan, at)
        ended = self._clock()
        dropped = [Rendered(number, touched[number], at, max(at, ended)) for number in plan.drop if number in touched]
        seconds = (ended - began).total_seconds() / len(done) if done else publication.page_seconds
        recorded = msgspec.structs.replace(
            publication,
            at=at,
            listed=plan.listed,
            indexed=plan.indexed,
            pending=plan.left,
            writing=(),
            refreshed_at=ended,
            page_seconds=max(seconds, 0.0),
        )
        rows = (*done, *dropped)
        return ResourceListResult(
            publication=recorded,
            rendered=rows,
            names=self._names(plan),
            stale_count=_stale(pages, plan, rows),
            left=len(plan.left),
        )

    def _intend(self, publication: PublicationState, plan: PagePlan, at: dt.datetime) -> None:
        """Say which documents may be newer than their rows, and their `at`, before they are: the next run goes on."""
        writing = tuple(sorted({*publication.writing, *plan.render}))
        pending = tuple(sorted({*publication.pending, *writing, *plan.drop, *plan.left}))
        intended = msgspec.structs.replace(publication, pending=pending, writing=writing, at=at)
        self._catalog.note(self._name, encode_publication(intended))

    def _pages(
        self, plan: PagePlan, pages: Sequence[Page], at: dt.datetime, catch_up: Callable[[], None]
    ) -> Iterator[Rendered]:
        """Print the pages and put each into its place, in the order of their numbers."""
        known = {one.number: one for one in pages}
        entries = sum(known[number].count for number in plan.render)
        order = RenderJob(site=self._site, name=self._name, at=at, indexed=plan.indexed)
        with self._render_pool.rendering(order, plan.render, entries) as rendering:
            for number in plan.render:
                completed, blocks = rendering.take() or page(self._catalog, order, number, self._clock)
                name = resource_page_name(self._name, number) if plan.indexed else resource_list_name(self._name)
                mark = DocumentMark(generation=self._store_writer.generation, latest=completed)
                self._store_writer.blocks(name, _then(blocks, catch_up), mark.encode)
                yield Rendered(number, known[number].touched, at, completed)

    def _top(self, pages: Sequence[Page], done: list[Rendered], plan: PagePlan, at: dt.datetime) -> None:
        """The index, once its parts are there; or the empty list of a set without resources (AMB-03)."""
        name = resource_list_name(self._name)
        if plan.indexed:
            times = {page.number: (page.at, page.completed) for page in pages}
            times |= {row.number: (row.at, row.completed) for row in done}
            parts = [
                PageTimes(number, moment or at, completed or at)
                for number in plan.listed
                for moment, completed in [times[number]]
            ]
            self._store_writer.document(name, *documents.resource_list_index(self._site, self._name, parts))
        elif not plan.listed:
            completed = max(at, self._clock())
            head = documents.resource_list(self._site, self._name, at, completed, indexed=False)
            self._store_writer.document(name, head, ())

    def _names(self, plan: PagePlan) -> tuple[str, ...]:
        numbered = [resource_page_name(self._name, number) for number in plan.listed] if plan.indexed else []
        return (resource_list_name(self._name), *numbered)


def _then(blocks: Iterator[bytes], last: Callable[[], None]) -> Iterator[bytes]:
    """The blocks; what has to be done before they are seen is done after the last of them."""
    yield from blocks
    last()


def _stale(pages: Sequence[Page], plan: PagePlan, rows: tuple[Rendered, ...]) -> int:
    fresh = {row.number for row in rows}
    shown = set(plan.listed)
    return sum(
        1 for page in pages if is_stale(page) and page.number not in fresh and (page.count or page.number in shown)
    )
