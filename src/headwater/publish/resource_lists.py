"""The Resource List of one set: renders its pages, also in processes, and writes those that are due and their index.

`at` is a moment up to which the world was recorded when the round of pages began; a page is read from a snapshot of the
catalog taken after it, and `completed` is when that was (RS-TIME-05, RS-TIME-06). Documents of other pages keep their
octets and their times.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, cycle, islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.catalog.interface import Catalog, Page, Rendered, Resource, SetSnapshot
from headwater.catalog.page_filling import weight
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.files.file_copies import write_all
from headwater.processes.pool import ProcessPool, WorkerProgram, processors
from headwater.progress import Progress
from headwater.publish import documents
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.link_rules import LinkRules, partners, variants_of
from headwater.publish.plan import PagePlan, Refresh, completed_at, is_stale, must_rotate, plan_pages
from headwater.publish.publication_state import PageRound, PublicationState
from headwater.publish.site import Site, resource_list_name, resource_page_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, read_range, render_document
from headwater.spec.records import ChangeKind
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.typed_decoding import from_json

# Pages
#
# A process that renders some of a large publication reads the catalog itself, each page from a snapshot of its own, and
# puts it into an anonymous file that it shares with the publisher, which writes the pages into the store in the order
# of their numbers. Processes, not threads: rendering holds the interpreter's lock.


class RenderJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of one publication have in common; processes are told which SQLite file is their `catalog`."""

    site: Site
    name: str
    round: PageRound
    indexed: bool
    catalog: str = ""


RenderedPage = tuple[dt.datetime, Iterator[bytes]]
"""When the snapshot of a page had been taken (RS-TIME-06), and the page in blocks."""


def page(catalog: Catalog, order: RenderJob, number: int, clock: Callable[[], dt.datetime]) -> RenderedPage:
    """Render one page."""
    site, name = order.site, order.name
    at, rows = order.round.at, catalog.page(name, number)
    if number == order.round.last:
        rows = _there_before(catalog, order, rows)
    first = list(islice(rows, 1))  # the snapshot is taken by the first read; its time is known from here on
    completed = completed_at(at, clock(), catalog.state(name))
    head = documents.resource_list(site, name, at, completed, indexed=order.indexed)
    added = AddedLinks(site, site.settings(name), catalog)
    linked: Iterator[Resource] = chain(first, rows)
    if added.is_on:  # they are held to be weighed
        held = list(linked)
        linked = added.to(held, EntryPlace.RESOURCE_LIST, sum(weight(row.uri, row.metadata) for row in held))
    entries = documents.resource_entries(linked, site.resource_prefix(name))
    return completed, render_document(head, entries, site.profile)


def _there_before(catalog: Catalog, order: RenderJob, rows: Iterator[Resource]) -> Iterator[Resource]:
    """The rows of the last page without what has come to it since the round began.

    Each page is read from a snapshot of its own, and others stay as they are: what was deleted on one of them since and
    created again on this one would be listed twice (RS-RL-08, AMB-89). Only the last page of all gets resources.
    """
    seq = order.round.seq
    for row in rows:
        if row.seq > seq:
            changed = [row, *rows]  # the rest of a page
            newest = {one.uri: one.seq for one in changed if one.seq > seq}
            since = changes_between(catalog, order.name, seq, max(newest.values()))
            come = {one.uri for one in since if one.change is ChangeKind.CREATED and one.uri in newest}
            yield from (one for one in changed if one.uri not in come)
            return
        yield row


def page_renderer(request: bytes) -> Callable[[tuple[int, int]], tuple[int, int]]:
    """What a process of the pool does: render the page of a number into an open file.

    It answers with the page's size in octets, and when its snapshot had been taken, in microseconds.
    """
    told = from_json(request, RenderJob)
    catalog = SqliteCatalog(told.catalog)

    def render(job: tuple[int, int]) -> tuple[int, int]:
        number, file = job
        completed, blocks = page(catalog, told, number, lambda: dt.datetime.now(dt.UTC))
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        octets = 0
        for block in blocks:
            octets += len(block)
            write_all(file, block)
        return octets, to_microseconds(completed)

    return render


POOL_ENTRIES = 60_000
"""With fewer entries to render, starting processes takes as long as it saves."""

_AHEAD = 2
"""Pages that a process has in hand: one that it renders, and one that waits or is being put into its place."""

_NOT_RENDERED = (0, 0)


class RenderPool:
    """Starts the processes: they read the SQLite file `catalog`; without one there are none.

    Safe for several threads: one publication at a time has processes, the others do without.
    """

    def __init__(self, catalog: Path | None, processes: int | None = None) -> None:
        self._catalog = catalog
        self._processes = processors() if processes is None else processes
        self._turn = threading.Lock()

    @contextmanager
    def rendering(
        self, order: RenderJob, numbers: Sequence[int], entries: int
    ) -> Iterator[Iterator[RenderedPage | None]]:
        """Have these pages rendered, which have so many entries together, as far as that saves time.

        Gives pages in the order of their numbers, each good until the next one is asked for; None in the place of one,
        or no more of them: the caller renders them.
        """
        count = min(self._processes, len(numbers))
        if self._catalog is None or count < 2 or entries < POOL_ENTRIES or not self._turn.acquire(blocking=False):
            yield iter(())
            return
        try:
            site = msgspec.structs.replace(order.site, sets=(order.site.settings(order.name),))
            job = msgspec.structs.replace(order, site=site, catalog=str(self._catalog))
            with ExitStack() as files, closing(_pages(job, numbers, count, files)) as pages:
                yield pages
        finally:
            self._turn.release()


def _pages(
    job: RenderJob, numbers: Sequence[int], processes: int, stack: ExitStack
) -> Generator[RenderedPage | None, None, None]:
    """The pages as processes render them; None in the place of one that none has rendered."""
    try:
        # As many as there are pages in hand at a time: a file is free again when its page has been taken.
        files = [stack.enter_context(_anonymous_file()) for _number in range(processes * _AHEAD)]
    except OSError:  # no room for them
        return
    program = WorkerProgram(
        function=page_renderer,
        settings=msgspec.json.encode(job),
        libraries=True,
        descriptors=tuple(file.fileno() for file in files),
    )
    pool: ProcessPool[BinaryIO] = ProcessPool(program, lambda _job: _NOT_RENDERED, processes=processes, ahead=_AHEAD)
    jobs = ((file, (number, file.fileno())) for number, file in zip(numbers, cycle(files), strict=False))
    for file, (octets, completed) in pool.answers(jobs):
        is_whole = octets > 0 and os.fstat(file.fileno()).st_size == octets
        yield (from_microseconds(completed), read_range(file, 0, octets)) if is_whole else None


def _anonymous_file() -> BinaryIO:
    # Unbuffered: a buffer would go on giving what the file held before.
    return tempfile.TemporaryFile(buffering=0)


# The list


def resource_list_names(name: str, publication: PublicationState) -> Iterator[str]:
    """The list, or its index and the pages."""
    yield resource_list_name(name)
    if publication.indexed:
        yield from (resource_page_name(name, number) for number in publication.listed)


class ResourceLists:
    """The Resource List of one set during one publication.

    `catch_up` publishes changes, before a page becomes visible: who reads the Resource List first and the Change List
    after it always ends in one state of the catalog.
    """

    def __init__(self, job: PublicationJob, catch_up: Callable[[], None], render_pool: RenderPool) -> None:
        self._job = job
        self._catch_up = catch_up
        self._render_pool = render_pool
        self._context = job.context
        self._name = job.name
        self._site = job.context.site
        self._pages = job.snapshot.pages
        self._plan = PagePlan(listed=job.publication.listed, indexed=job.publication.indexed)
        self.rendered: tuple[Rendered, ...] = ()
        """The bookkeeping of the pages that were rendered or dropped: they show more than the snapshot, perhaps."""
        self.left = 0
        """How many pages are due and wait for the next publication: a resource may be on two of them (RS-RL-08)."""
        self._refreshed_at: dt.datetime | None = None
        """None while nothing was rendered."""
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
        plan = plan_pages(as_stale(self._pages, job.publication), job.publication, job.settings, began, job.refresh)
        waits = job.refresh is Refresh.CHANGES
        if waits or not plan.rewrite:
            self.left = len(plan.render) + len(plan.drop) + len(plan.left)
            self.left += waits and must_rotate(job.snapshot.segments[-1], job.publication, job.settings, job.now)
        else:
            self._plan, self.left = plan, len(plan.left)
            if plan.goes_on and job.publication.round is not None:
                self._round = job.publication.round
            self._render(plan, began)

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the pages that are listed and what is left of their round."""
        plan = self._plan
        if self._refreshed_at is None:
            return publication
        rendered = {row.number for row in self.rendered}
        return msgspec.structs.replace(
            publication,
            stale_links=tuple(one for one in publication.stale_links if one[0] not in rendered),
            at=self._round.at,
            listed=plan.listed,
            indexed=plan.indexed,
            pending=plan.left,
            writing=(),
            round=self._round if plan.left else None,
            refreshed_at=self._refreshed_at,
            page_seconds=self._page_seconds,
        )

    @property
    def stale(self) -> int:
        """How many pages show less than is recorded."""
        fresh, shown = {row.number for row in self.rendered}, set(self._plan.listed)
        pages = as_stale(self._pages, self._job.publication)
        return sum(
            is_stale(page) and page.number not in fresh and (page.count > 0 or page.number in shown) for page in pages
        )

    def _render(self, plan: PagePlan, began: dt.datetime) -> None:
        publication = self._job.publication
        # Which documents may be newer than their rows, and their `at`, is said before they are: the next run goes on.
        writing = tuple(sorted({*publication.writing, *plan.render}))
        pending = tuple(sorted({*publication.pending, *writing, *plan.drop, *plan.left}))
        self._context.may_write()
        self._job.note(
            msgspec.structs.replace(publication, pending=pending, writing=writing, at=self._round.at, round=self._round)
        )
        done: list[Rendered] = []
        store_writer, clock = self._job.store_writer, self._context.clock
        known, begun = {one.number: one for one in self._pages}, self._round
        entries = sum(known[number].count for number in plan.render)
        order = RenderJob(site=self._site, name=self._name, round=begun, indexed=plan.indexed)
        with self._render_pool.rendering(order, plan.render, entries) as rendering:
            for number in plan.render:  # each is put into its place, in the order of their numbers
                completed, blocks = next(rendering, None) or page(self._context.catalog, order, number, clock)
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
            self._job.store_writer.document(name, *documents.resource_list_index(self._site, self._name, parts))
        elif not plan.listed:
            completed = completed_at(at, self._context.clock(), self._job.snapshot.state)
            head = documents.resource_list(self._site, self._name, at, completed, indexed=False)
            self._job.store_writer.document(name, head, ())


_CHANGES = 5_000
_URIS = 1_000


def with_stale_pages(
    catalog: Catalog, rules: LinkRules, snapshot: SetSnapshot, publication: PublicationState, now: dt.datetime
) -> PublicationState:
    """The publication state with the pages that changes since the last look have made stale.

    Raises the catalog's faults.
    """
    name, last = snapshot.state.name, snapshot.state.last_seq
    if not (rules.described or rules.variants) or publication.linked_seq >= last:
        return publication
    variants = variants_of(rules.variants)
    since, after = dict(publication.stale_links), publication.linked_seq
    while after < last and (changes := catalog.changes(name, after, _CHANGES)):
        uris = list(dict.fromkeys(other for one in changes for other in partners(rules.described, variants, one.uri)))
        for start in range(0, len(uris), _URIS):
            for other in catalog.get(name, uris[start : start + _URIS]).values():
                since.setdefault(other.page, now)
        after = changes[-1].seq
    return msgspec.structs.replace(publication, linked_seq=last, stale_links=tuple(sorted(since.items())))


def as_stale(pages: Sequence[Page], publication: PublicationState) -> Sequence[Page]:
    """The pages for planning: one with links that are not right any more is stale like one that an event touched."""
    since = dict(publication.stale_links)
    if not since:
        return pages
    return [
        msgspec.structs.replace(page, touched=page.rendered + 1, stale_at=since[page.number])
        if page.number in since and page.touched <= page.rendered
        else page
        for page in pages
    ]
