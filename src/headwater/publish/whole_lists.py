"""Writes lists of all resources of a set in another form than its Resource List has, each time from the catalog.

As long as all entries fit into one document there is one; else there are several, and an index.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Resource
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.capabilities import Capability, part_name
from headwater.publish.plan import completed_at
from headwater.publish.publication_state import PageViewState, ViewPart
from headwater.publish.rendering.documents import resource_entries, resource_list
from headwater.publish.rendering.renderer import PublicationJob
from headwater.publish.rendering.resource_lists import ResourceLists
from headwater.publish.store_writer import DocumentMark, render_entries
from headwater.spec.kinds import DOCUMENT_ENTRIES
from headwater.spec.markup import SITEMAP_TAIL

_ROWS = 5_000

Times = tuple[dt.datetime, dt.datetime]
"""The `at` and `completed` of a document."""


class WholeList(NamedTuple):
    """A list that was written: its state, when it was completed, the octets of its documents."""

    state: PageViewState
    completed: dt.datetime
    octets: int


class ListForm:
    """The form of such a list: names, heads, and what becomes of blocks of whole entries."""

    is_final = False
    """Whether the documents never change, so that caches keep them for good."""

    def __init__(self, capability: Capability, set_name: str) -> None:
        self._capability = capability
        self._folder = set_name
        self.top = f"{set_name}/{capability.top.name}"

    def part(self, number: int) -> str:
        """The name of one document of several."""
        return f"{self._folder}/{part_name(self._capability, number)}"

    def names(self, state: PageViewState) -> tuple[str, ...]:
        """The names of the documents that there are."""
        return (self.top, *(self.part(one.number) for one in state.parts if state.is_indexed))

    def head(self, times: Times, *, is_part: bool) -> bytes:
        """What precedes the entries."""
        raise NotImplementedError

    def tail(self) -> bytes:
        """What follows them."""
        return SITEMAP_TAIL

    def entries(self, block: bytes) -> bytes:
        """Whole entries of a Resource List in this form; none of them grows."""
        return block

    def index(self, parts: Sequence[Times]) -> Iterable[bytes]:
        """The index of several documents."""
        raise NotImplementedError


def follows_pages(lists: ResourceLists) -> bool:
    """Whether such a list is due: pages of the Resource List were rendered, and no round of them is left half done."""
    return bool(lists.rendered) and not lists.left


def write_whole_list(job: PublicationJob, form: ListForm, last: Callable[[], None] = lambda: None) -> WholeList:
    """Write such a list from the catalog as it is; `last` is called before each of its documents becomes visible.

    Resources are read in the order of their URIs, so that none is listed twice (RS-RL-08). What changes meanwhile is
    told by changes that are later than its `at`, the time of the publication's snapshot (RS-TIME-05).
    """
    state, at, octets = job.snapshot.state, job.newest_at, 0

    def write(name: str, rows: list[Resource], *, is_part: bool) -> Times:
        nonlocal octets
        times = at, completed_at(at, job.context.clock(), job.context.catalog.state(job.name))

        def blocks() -> Iterator[bytes]:
            yield form.head(times, is_part=is_part)
            writer = job.store_writer.writer(resource_list(job.context.site, job.name, *times, indexed=False))
            for block in render_entries(writer, resource_entries(rows, job.context.site.resource_prefix(job.name))):
                yield form.entries(block)
            yield form.tail()
            last()

        octets += job.store_writer.blocks(name, blocks(), _mark(job, form, times)).octets
        return times

    documents = _documents(job)
    first, second = next(documents, []), next(documents, None)
    if second is None:
        times = write(form.top, first, is_part=False)
        return WholeList(PageViewState(parts=(), is_indexed=False, seq=state.last_seq, at=at), times[1], octets)
    parts = [
        write(form.part(number), rows, is_part=True) for number, rows in enumerate(chain((first, second), documents))
    ]
    job.store_writer.blocks(form.top, form.index(parts), _mark(job, form, max(parts)))
    numbers = tuple(ViewPart(number=number) for number in range(len(parts)))
    view = PageViewState(parts=numbers, is_indexed=True, seq=state.last_seq, at=at)
    return WholeList(view, max(parts)[1], octets)


def _mark(job: PublicationJob, form: ListForm, times: Times) -> Callable[[], str]:
    generation = job.store_writer.generation
    return DocumentMark(generation=generation, latest=times[1], is_closed=form.is_final).encode


def _documents(job: PublicationJob) -> Iterator[list[Resource]]:
    """The resources of each document, with the links that the set's rules add (RS-LIM-01)."""
    site, settings, catalog = job.context.site, job.settings, job.context.catalog
    added = AddedLinks(site, settings, catalog)
    most_octets = settings.links.document_octets
    held: list[Resource] = []
    octets = 0

    def linked() -> list[Resource]:
        return list(added.to(held, EntryPlace.RESOURCE_LIST, added.room(octets, len(held))))

    for row in _rows(job):
        row_octets = weight(row.uri, row.metadata)
        if held and (len(held) >= DOCUMENT_ENTRIES or octets + row_octets > most_octets):
            yield linked()
            held, octets = [], 0
        held.append(row)
        octets += row_octets
    if held:
        yield linked()


def _rows(job: PublicationJob) -> Iterator[Resource]:
    after = ""
    while rows := job.context.catalog.resources(job.name, after, _ROWS):
        yield from rows
        after = rows[-1].uri
