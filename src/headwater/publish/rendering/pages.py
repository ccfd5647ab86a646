"""Renders pages of a Resource List: the publisher does, and, of a large publication, processes do in parallel.

Such a process reads the catalog itself, each page from a snapshot of its own, and puts it into an anonymous file that
it shares with the publisher, which writes the pages into the store in the order of their numbers. Processes, not
threads: rendering holds the interpreter's lock.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, cycle, islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.catalog.interface import Catalog, Resource
from headwater.catalog.page_filling import weight
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.files.file_copies import write_all
from headwater.processes.pool import ProcessPool, WorkerProgram, processors
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.plan import completed_at
from headwater.publish.publication_state import PageRound
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import changes_between
from headwater.publish.site import Site
from headwater.publish.store_writer import read_range, render_document
from headwater.spec.records import ChangeKind
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.typed_decoding import from_json


class RenderJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of one publication have in common."""

    site: Site
    name: str
    round: PageRound
    indexed: bool


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told first: what pages have in common, and the SQLite file to read."""

    order: RenderJob
    catalog: str


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
    linked = _linked(AddedLinks(site, site.settings(name), catalog), chain(first, rows))
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
            come = _created(catalog, order, {one.uri: one.seq for one in changed if one.seq > seq})
            yield from (one for one in changed if one.uri not in come)
            return
        yield row


def _created(catalog: Catalog, order: RenderJob, newest: dict[str, int]) -> set[str]:
    """Which of these, whose last change has this number, were created since the round began."""
    changes = changes_between(catalog, order.name, order.round.seq, max(newest.values()))
    return {one.uri for one in changes if one.change is ChangeKind.CREATED and one.uri in newest}


def _linked(added: AddedLinks, rows: Iterable[Resource]) -> Iterable[Resource]:
    """The rows of a page with the links that its set's rules add: they are held to be weighed, while no others are."""
    if not added.is_on:
        return rows
    held = list(rows)
    return added.to(held, EntryPlace.RESOURCE_LIST, sum(weight(row.uri, row.metadata) for row in held))


def _write_page(blocks: Iterator[bytes], descriptor: int) -> int:
    """Make these blocks all that the file holds; returns how many octets that are."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    octets = 0
    for block in blocks:
        octets += len(block)
        write_all(descriptor, block)
    return octets


def page_renderer(request: bytes) -> Callable[[tuple[int, int]], tuple[int, int]]:
    """What a process of the pool does: render the page of a number into an open file.

    It answers with the page's size in octets, and when its snapshot had been taken, in microseconds.
    """
    told = from_json(request, RenderRequest)
    catalog = SqliteCatalog(told.catalog)

    def render(job: tuple[int, int]) -> tuple[int, int]:
        number, file = job
        completed, blocks = page(catalog, told.order, number, lambda: dt.datetime.now(dt.UTC))
        return _write_page(blocks, file), to_microseconds(completed)

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
            request = RenderRequest(order=msgspec.structs.replace(order, site=site), catalog=str(self._catalog))
            with ExitStack() as files, closing(_pages(request, numbers, count, files)) as pages:
                yield pages
        finally:
            self._turn.release()


def _pages(
    request: RenderRequest, numbers: Sequence[int], processes: int, stack: ExitStack
) -> Generator[RenderedPage | None, None, None]:
    """The pages as processes render them; None in the place of one that none has rendered."""
    try:
        # As many as there are pages in hand at a time: a file is free again when its page has been taken.
        files = [stack.enter_context(_anonymous_file()) for _number in range(processes * _AHEAD)]
    except OSError:  # no room for them
        return
    program = WorkerProgram(
        function=page_renderer,
        settings=msgspec.json.encode(request),
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
