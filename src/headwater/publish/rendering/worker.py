"""Renders pages of a Resource List: the publisher does, and processes of its pool (`pool.py`) do.

Such a process reads the catalog itself, each page from a snapshot of its own, and puts it into an anonymous file that
it shares with the publisher. It never touches a document: writing pages into the store, in their order, stays with the
publisher.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import msgspec

from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Catalog, Resource
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.files.whole_writes import write_all
from headwater.publish.links.added_links import AddedLinks
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.plan import completed_at
from headwater.publish.publication_state import PageRound
from headwater.publish.rendering import documents
from headwater.publish.site import Site
from headwater.publish.store_writer import render_document
from headwater.spec.records import ChangeKind
from headwater.spec.times import to_microseconds
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
    seq, until, found = order.round.seq, max(newest.values()), set[str]()
    while seq < until and (changes := catalog.changes(order.name, seq)):
        found.update(one.uri for one in changes if one.change is ChangeKind.CREATED and one.uri in newest)
        seq = changes[-1].seq
    return found


def _linked(added: AddedLinks, rows: Iterable[Resource]) -> Iterable[Resource]:
    """The rows of a page with the links that its set's rules add: they are held to be weighed, while no others are."""
    if not added.is_on:
        return rows
    held = list(rows)
    return added.to(
        held, EntryPlace.RESOURCE_LIST, added.room(sum(weight(row.uri, row.metadata) for row in held), len(held))
    )


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
