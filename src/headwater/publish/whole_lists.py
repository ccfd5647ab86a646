"""Writes lists of all resources of a set in another form than its Resource List has, each time from the catalog.

As long as all entries fit into one document there is one; else there are several, and an index. One such list is the
plain Sitemap: the resources without what ResourceSync adds, for search engines (AMB-64).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import Resource
from headwater.catalog.page_filling import weight
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.capabilities import SITEMAP, Capability, part_name
from headwater.publish.documents import head_of, resource_entries, resource_list
from headwater.publish.plan import Refresh, completed_at
from headwater.publish.publication_state import PageViewState, ViewPart
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import Site
from headwater.publish.store_writer import DocumentMark, PublicationJob, render_document, render_entries
from headwater.spec.kinds import DOCUMENT_ENTRIES, Kind
from headwater.spec.markup import SITEMAP_HEAD, SITEMAP_TAIL, plain_entries, sitemap_index
from headwater.spec.records import Entry, Link
from headwater.spec.writer import DocumentWriter

_ROWS = 5_000

Times = tuple[dt.datetime, dt.datetime]
"""The `at` and `completed` of a document."""


class WholeList(NamedTuple):
    """A list that was written: its state, when it was completed, the octets of its documents."""

    state: PageViewState
    completed: dt.datetime
    octets: int


class ListForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of such a list: the names of its `top` document and of each `part` of several.

    `up` is the name of the document above it; None: it is a plain Sitemap. `entries` makes whole entries of a Resource
    List into those of this one; none of them grows. `is_final`: the documents never change.
    """

    top: str
    part: Callable[[int], str]
    up: str | None
    entries: Callable[[bytes], bytes] = bytes
    is_final: bool = False


def form_of(set_name: str, row: Capability, up: str | None, entries: Callable[[bytes], bytes]) -> ListForm:
    """The form of the list that a row of the table of capabilities is about."""
    return ListForm(
        top=f"{set_name}/{row.top.name}",
        part=lambda number: f"{set_name}/{part_name(row, number)}",
        up=up,
        entries=entries,
    )


def list_names(set_name: str, row: Capability, state: PageViewState) -> Iterator[str]:
    """The names of the documents of such a list."""
    yield f"{set_name}/{row.top.name}"
    yield from (f"{set_name}/{part_name(row, one.number)}" for one in state.parts if state.is_indexed)


def _head(site: Site, form: ListForm, times: Times, *, is_part: bool) -> bytes:
    """What precedes the entries; a Sitemap states no times of its own."""
    if form.up is None:
        return SITEMAP_HEAD
    index = (Link(rel="index", href=site.url(form.top)),) if is_part else ()
    links = (Link(rel="up", href=site.url(form.up)), *index)
    return DocumentWriter(head_of(Kind.RESOURCE_LIST, links, at=times[0], completed=times[1])).head()


def _index(site: Site, form: ListForm, parts: Sequence[Times]) -> Iterable[bytes]:
    """The index of several documents: as old as its oldest part (AMB-24)."""
    addresses = [site.url(form.part(number)) for number in range(len(parts))]
    if form.up is None:
        return [sitemap_index(zip(addresses, (completed for _at, completed in parts), strict=True))]
    at, completed = min(one[0] for one in parts), max(one[1] for one in parts)
    links = (Link(rel="up", href=site.url(form.up)),)
    head = head_of(Kind.RESOURCE_LIST_INDEX, links, at=at, completed=completed)
    entries = (Entry(loc=loc, at=times[0], completed=times[1]) for loc, times in zip(addresses, parts, strict=True))
    return render_document(head, entries, site.profile)


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
            yield _head(job.context.site, form, times, is_part=is_part)
            writer = job.store_writer.writer(resource_list(job.context.site, job.name, *times, indexed=False))
            entries = resource_entries(rows, job.context.site.resource_prefix(job.name))
            yield from map(form.entries, render_entries(writer, entries))
            yield SITEMAP_TAIL
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
    job.store_writer.blocks(form.top, _index(job.context.site, form, parts), _mark(job, form, max(parts)))
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
        return list(added.to(held, EntryPlace.RESOURCE_LIST, octets))

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


def publish_sitemap(job: PublicationJob, lists: ResourceLists) -> PageViewState | None:
    """Write the plain Sitemap: it follows the pages, when a round of them is complete. The new state."""
    if not job.settings.sitemap:
        return None
    before = None if job.refresh is Refresh.ALL else job.publication.sitemap
    if before is not None and not follows_pages(lists):
        return before
    return write_whole_list(job, form_of(job.name, SITEMAP, None, plain_entries)).state
