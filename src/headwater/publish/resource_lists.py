"""The Resource List of one set: renders the pages that are due, and writes them and their index.

`at` is a moment up to which the world was recorded when the round of pages began; a page is read from a snapshot of the
catalog taken after it, and `completed` is when that was (RS-TIME-05, RS-TIME-06). Documents of other pages keep their
octets and their times.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import Catalog, Page, Rendered, Resource
from headwater.catalog.page_filling import weight
from headwater.progress import Progress
from headwater.publish import document_content
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import LinkRules
from headwater.publish.plan import PagePlan, Refresh, completed_at, is_stale, plan_pages
from headwater.publish.publication_state import PublicationState
from headwater.publish.site import resource_list_name, resource_page_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, render_document
from headwater.spec.records import ChangeKind


class PageRound(NamedTuple):
    """A round of pages as it began: all its pages state `at`, and none has what came onto it later.

    `seq` is the newest change then. What came later lies at the end of the page `last` or on pages after that, which
    are not in the round; `touched` is how often that page had been touched.
    """

    at: dt.datetime
    seq: int
    last: int
    touched: int


RenderedPage = tuple[dt.datetime, Iterator[bytes]]
"""When the snapshot of a page had been taken (RS-TIME-06), and the page in blocks."""


def page(job: PublicationJob, round_: PageRound, number: int, *, indexed: bool) -> RenderedPage:
    """Render one page of a round."""
    catalog, site, name = job.context.catalog, job.context.site, job.name
    rows = catalog.page(name, number)
    if number == round_.last:
        rows = _there_before(catalog, name, round_.seq, rows)
    first = list(islice(rows, 1))  # the snapshot is taken by the first read; its time is known from here on
    completed = completed_at(round_.at, job.context.clock(), catalog.state(name))
    head = document_content.resource_list(site, name, round_.at, completed, indexed=indexed)
    added = AddedLinks(site, job.settings, catalog)
    linked: Iterator[Resource] = chain(first, rows)
    if added.is_on:  # they are held to be weighed
        held = list(linked)
        linked = added.to(held, EntryPlace.RESOURCE_LIST, sum(weight(row.uri, row.metadata) for row in held))
    entries = document_content.resource_entries(linked, site.resource_prefix(name))
    return completed, render_document(head, entries, site.profile)


def _there_before(catalog: Catalog, name: str, seq: int, rows: Iterator[Resource]) -> Iterator[Resource]:
    """The rows of the last page without what has come to it since change `seq`, with which the round began.

    Each page is read from a snapshot of its own, and others stay as they are: what was deleted on one of them since and
    created again on this one would be listed twice (RS-RL-08, AMB-89). Only the last page of all gets resources.
    """
    for row in rows:
        if row.seq > seq:
            changed = [row, *rows]  # the rest of a page
            newest = {one.uri: one.seq for one in changed if one.seq > seq}
            since = changes_between(catalog, name, seq, max(newest.values()))
            come = {one.uri for one in since if one.change is ChangeKind.CREATED and one.uri in newest}
            yield from (one for one in changed if one.uri not in come)
            return
        yield row


class ResourceLists:
    """The Resource List of one set during one publication.

    `catch_up` publishes changes, before a page becomes visible: who reads the Resource List first and the Change List
    after it always ends in one state of the catalog.
    """

    def __init__(self, job: PublicationJob, catch_up: Callable[[], None]) -> None:
        self._job = job
        self._catch_up = catch_up
        self._context = job.context
        self._name = job.name
        self._site = job.context.site
        self._pages = job.snapshot.pages
        self._plan = PagePlan(listed=job.publication.listed, indexed=job.publication.indexed)
        self.rendered: tuple[Rendered, ...] = ()
        """The bookkeeping of the pages that were rendered or dropped: they show more than the snapshot, perhaps."""
        self.left = 0  # how many pages are due and wait for the next publication
        self._refreshed_at: dt.datetime | None = None  # None while nothing was rendered
        self._page_seconds = job.publication.page_seconds
        last = max(self._pages, key=lambda page: page.number, default=None)
        self._round = PageRound(
            at=job.at,
            seq=job.snapshot.segments[-1].last,
            last=-1 if last is None else last.number,
            touched=0 if last is None else last.touched,
        )

    def publish(self) -> None:
        """Render what is due, or let it wait."""
        job, began = self._job, self._context.clock()
        plan = plan_pages(as_stale(self._pages, job.settings.links), job.publication, job.settings, began, job.refresh)
        if job.refresh is Refresh.CHANGES or not plan.rewrite:
            self.left = len(plan.render) + len(plan.drop)
        else:
            self._plan = plan
            self._render(plan, began)

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the pages that are listed."""
        plan = self._plan
        if self._refreshed_at is None:
            return publication
        return msgspec.structs.replace(
            publication,
            at=self._round.at,
            listed=plan.listed,
            indexed=plan.indexed,
            pending=(),
            refreshed_at=self._refreshed_at,
            page_seconds=self._page_seconds,
        )

    @property
    def stale(self) -> int:
        """How many pages show less than is recorded."""
        fresh, shown = {row.number for row in self.rendered}, set(self._plan.listed)
        pages = as_stale(self._pages, self._job.settings.links)
        return sum(
            is_stale(page) and page.number not in fresh and (page.count > 0 or page.number in shown) for page in pages
        )

    def _render(self, plan: PagePlan, began: dt.datetime) -> None:
        publication = self._job.publication
        # Which documents may be newer than their rows, and their `at`, is said before they are, for the next run.
        pending = tuple(sorted({*publication.pending, *plan.render, *plan.drop}))
        listed = {resource_page_name(self._name, number) for number in plan.listed}
        self._context.may_write()
        self._job.note(
            msgspec.structs.replace(
                publication,
                pending=pending,
                at=self._round.at,
                retired=tuple(one for one in publication.retired if one[0] not in listed),
            )
        )
        done: list[Rendered] = []
        store_writer = self._job.store_writer
        known, begun = {one.number: one for one in self._pages}, self._round
        for number in plan.render:  # each is put into its place, in the order of their numbers
            completed, blocks = page(self._job, begun, number, indexed=plan.indexed)
            name = resource_page_name(self._name, number) if plan.indexed else resource_list_name(self._name)
            mark = DocumentMark(generation=store_writer.generation, latest=completed)
            store_writer.blocks(name, self._caught_up(blocks), mark.encode)
            touched = begun.touched if number == begun.last else known[number].touched
            done.append(Rendered(number, touched, begun.at, completed))
            self._context.listener(Progress("pages", len(done), len(plan.render)))
        self._top(done, plan)
        ended = self._context.clock()
        dropped = [
            Rendered(number, known[number].touched, begun.at, max(begun.at, ended))
            for number in plan.drop
            if number in known
        ]
        self.rendered = (*done, *dropped)
        self._refreshed_at = ended
        if done:
            self._page_seconds = max((ended - began).total_seconds() / len(done), 0.0)

    def _caught_up(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        yield from blocks
        self._catch_up()  # before they are seen

    def _top(self, done: list[Rendered], plan: PagePlan) -> None:
        """The index, once its parts are there; or the empty list of a set without resources (AMB-03)."""
        name, at = resource_list_name(self._name), self._round.at
        if plan.indexed:
            times = {page.number: (page.at, page.completed) for page in self._pages}
            times |= {row.number: (row.at, row.completed) for row in done}
            parts = [
                (number, moment or at, completed or at)
                for number in plan.listed
                for moment, completed in [times[number]]
            ]
            self._job.store_writer.document(name, *document_content.resource_list_index(self._site, self._name, parts))
        elif not plan.listed:
            completed = completed_at(at, self._context.clock(), self._job.snapshot.state)
            head = document_content.resource_list(self._site, self._name, at, completed, indexed=False)
            self._job.store_writer.document(name, head, ())


def as_stale(pages: Sequence[Page], rules: LinkRules) -> Sequence[Page]:
    """The pages for planning: where resources are linked with others by their names, a change is about any page."""
    since = [page.stale_at for page in pages if is_stale(page)]
    if not since or not (rules.described or rules.variants):
        return pages
    first = min((at for at in since if at is not None), default=None)
    return [
        page if is_stale(page) else msgspec.structs.replace(page, touched=page.rendered + 1, stale_at=first)
        for page in pages
    ]
