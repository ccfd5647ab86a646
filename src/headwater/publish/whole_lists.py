"""The plain Sitemap and the list for old harvesters: when they are due, and how they are written from the catalog.

As long as all entries fit into one document there is one; else there are several, and an index. One such list is the
plain Sitemap: the resources without what ResourceSync adds, for search engines (AMB-64).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
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


def follows_pages(lists: ResourceLists) -> bool:
    """Whether such a list is due: pages of the Resource List were rendered, and no round of them is left half done."""
    return bool(lists.rendered) and not lists.left


def write_whole_list(job: PublicationJob, form: ListForm, last: Callable[[], None] = lambda: None) -> WholeList:
    """Write such a list from the catalog as it is; `last` is called before each of its documents becomes visible.

    Resources are read in the order of their URIs, so that none is listed twice (RS-RL-08). What changes meanwhile is
    told by changes that are later than its `at`, the time of the publication's snapshot (RS-TIME-05).
    """
    state, at, octets, site = job.snapshot.state, job.newest_at, 0, job.context.site

    def mark(completed: dt.datetime) -> Callable[[], str]:
        generation = job.store_writer.generation
        return DocumentMark(generation=generation, latest=completed, is_closed=form.is_final).encode

    def write(name: str, rows: list[Resource], *, is_part: bool) -> Times:
        nonlocal octets
        times = at, completed_at(at, job.context.clock(), job.context.catalog.state(job.name))

        def blocks() -> Iterator[bytes]:
            if form.up is None:
                yield SITEMAP_HEAD  # a Sitemap states no times of its own
            else:
                index = (Link(rel="index", href=site.url(form.top)),) if is_part else ()
                links = (Link(rel="up", href=site.url(form.up)), *index)
                yield DocumentWriter(head_of(Kind.RESOURCE_LIST, links, at=at, completed=times[1])).head()
            writer = DocumentWriter(resource_list(site, job.name, *times, indexed=False), site.profile)
            entries = resource_entries(rows, site.resource_prefix(job.name))
            yield from map(form.entries, render_entries(writer, entries))
            yield SITEMAP_TAIL
            last()

        octets += job.store_writer.blocks(name, blocks(), mark(times[1])).octets
        return times

    documents = _documents(job)
    first, second = next(documents, []), next(documents, None)
    if second is None:
        times = write(form.top, first, is_part=False)
        return WholeList(PageViewState(parts=(), is_indexed=False, seq=state.last_seq, at=at), times[1], octets)
    parts = [
        write(form.part(number), rows, is_part=True) for number, rows in enumerate(chain((first, second), documents))
    ]
    addresses, completed = [site.url(form.part(number)) for number in range(len(parts))], max(parts)[1]
    if form.up is None:
        blocks: Iterable[bytes] = [sitemap_index(zip(addresses, (one[1] for one in parts), strict=True))]
    else:
        head = head_of(Kind.RESOURCE_LIST_INDEX, (Link(rel="up", href=site.url(form.up)),), at=at, completed=completed)
        entries = (Entry(loc=loc, at=one[0], completed=one[1]) for loc, one in zip(addresses, parts, strict=True))
        blocks = render_document(head, entries, site.profile)
    job.store_writer.blocks(form.top, blocks, mark(completed))
    numbers = tuple(ViewPart(number=number) for number in range(len(parts)))
    view = PageViewState(parts=numbers, is_indexed=True, seq=state.last_seq, at=at)
    return WholeList(view, completed, octets)


def _documents(job: PublicationJob) -> Iterator[list[Resource]]:
    """The resources of each document, with the links that the set's rules add (RS-LIM-01)."""
    site, settings, catalog = job.context.site, job.settings, job.context.catalog
    added = AddedLinks(site, settings, catalog)
    held: list[Resource] = []
    octets, after = 0, ""
    while rows := catalog.resources(job.name, after, _ROWS):
        for row in rows:
            row_octets = weight(row.uri, row.metadata)
            is_full = len(held) >= DOCUMENT_ENTRIES or octets + row_octets > settings.links.document_octets
            if held and is_full:
                yield list(added.to(held, EntryPlace.RESOURCE_LIST, octets))
                held, octets = [], 0
            held.append(row)
            octets += row_octets
        after = rows[-1].uri
    if held:
        yield list(added.to(held, EntryPlace.RESOURCE_LIST, octets))


def publish_sitemap(job: PublicationJob, lists: ResourceLists) -> PageViewState:
    """Write the plain Sitemap: it follows the pages, when a round of them is complete. The new state."""
    before = None if job.refresh is Refresh.ALL else job.publication.sitemap
    if before is not None and not follows_pages(lists):
        return before
    return write_whole_list(job, form_of(job.name, SITEMAP, None, plain_entries)).state
