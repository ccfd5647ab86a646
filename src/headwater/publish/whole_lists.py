"""The plain Sitemap and the lists for old harvesters: when they are due, and how they are written from the catalog.

As long as all entries fit into one document there is one; else there are several, and an index. One such list is the
plain Sitemap: the resources without what ResourceSync adds, for search engines (AMB-64).
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import Change, Resource, Segment
from headwater.catalog.page_filling import weight
from headwater.progress import Notice
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.document_content import change_entries, head_of, resource_entries, resource_list
from headwater.publish.document_names import CLASSIC_CHANGE_LIST, CLASSIC_RESOURCE_LIST, SITEMAP, Capability, part_name
from headwater.publish.plan import Refresh, completed_at
from headwater.publish.publication_state import ClassicState, LongChangeList, PageViewState, ViewPart
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import classic_capability_list_name, source_description_name
from headwater.publish.store_writer import (
    DocumentMark,
    PublicationJob,
    changes_between,
    render_document,
    render_entries,
)
from headwater.spec.kinds import DOCUMENT_ENTRIES, Kind
from headwater.spec.markup import SITEMAP_HEAD, SITEMAP_TAIL, md5_alone, plain_entries, sitemap_index
from headwater.spec.records import Entry, Link
from headwater.spec.times import MICROSECOND
from headwater.spec.writer import DocumentWriter, Profile

_ROWS = 5_000

Times = tuple[dt.datetime, dt.datetime]  # the `at` and `completed` of a document


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

    groups = _documents(job)
    first, second = next(groups, []), next(groups, None)
    if second is None:
        times = write(form.top, first, is_part=False)
        return WholeList(PageViewState(parts=(), is_indexed=False, seq=state.last_seq, at=at), times[1], octets)
    parts = [write(form.part(number), rows, is_part=True) for number, rows in enumerate(chain((first, second), groups))]
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
    """Write the plain Sitemap, which follows the pages. The new state."""
    before = None if job.refresh is Refresh.ALL else job.publication.sitemap
    if before is not None and not lists.rendered:
        return before
    return write_whole_list(job, form_of(job.name, SITEMAP, None, plain_entries)).state


# The lists for old harvesters: one Resource List and one open Change List, side by side
#
# Readers of that kind know no index, no closed lists, no `datetime`. A Capability List of their own names the two. With
# each change the whole Change List is rendered again.
#
# It begins with the first change that retention leaves. When it would become longer than it may, or retention moves on,
# it begins anew, with the newer half at most: so whoever comes back within that many changes finds all of them, and
# whoever comes later finds a `from` after the own position, which is a gap (AMB-23, DST-C2). The Resource List is
# written before that, and the Change List begins with the last change that it shows, or an earlier one, so that its
# `from` is not later than the list's `at`: who makes a baseline now misses nothing, and sees no gap (RS-TIME-08).


def classic_names(name: str, state: ClassicState) -> Iterator[str]:
    """The documents for old harvesters."""
    yield from (classic_capability_list_name(name), _change_list_name(name))
    yield from list_names(name, CLASSIC_RESOURCE_LIST, state.resources)


@dataclass
class ClassicLists:
    """The lists for old harvesters during one publication."""

    _job: PublicationJob
    _lists: ResourceLists

    def publish(self) -> ClassicState:
        """Write what is due; the new state.

        Changes come first, so that they say all that the Resource List shows. A Change List that begins anew comes
        after it: the Resource List is never older than its `from`.
        """
        job, changes = self._job, None
        before = None if job.refresh is Refresh.ALL else job.publication.classic
        if before is not None:
            changes = self._extended(before.changes)
            if changes is not None and not self._lists.rendered:
                return msgspec.structs.replace(before, changes=changes)
        else:
            self._write_capability_list()

        def catch_up() -> None:
            nonlocal changes
            changes = None if changes is None else self._extended(changes)

        name = job.name
        form = form_of(name, CLASSIC_RESOURCE_LIST, classic_capability_list_name(name), md5_alone)
        resources = write_whole_list(job, form, catch_up).state
        if resources.is_indexed and (before is None or not before.resources.is_indexed):
            count = job.snapshot.state.count
            text = f"the Resource List of {name!r} for old harvesters is an index: {count:,} resources"
            job.context.listener(Notice("HW-PUB-16", text, set_name=name))
        if changes is None:
            changes = self._begun_anew(0 if before is None else before.changes.first, resources.seq)
        return ClassicState(resources=resources, changes=changes)

    def _write_capability_list(self) -> None:
        settings, site, name = self._job.settings, self._job.context.site, self._job.name
        up = Link(rel="up", href=site.url(source_description_name(site, name)))
        about = () if settings.describedby is None else (Link(rel="describedby", href=settings.describedby),)
        rows = (CLASSIC_RESOURCE_LIST, CLASSIC_CHANGE_LIST)
        entries = [Entry(loc=site.url(f"{name}/{row.top.name}"), capability=row.name) for row in rows]
        head = head_of(Kind.CAPABILITY_LIST, (*about, up))
        self._job.store_writer.document(classic_capability_list_name(name), head, entries)

    def _segments(self) -> Sequence[Segment]:
        """With the changes that came since the publication began: resources that are read now show them."""
        return self._job.context.catalog.snapshot_of(self._job.name).segments

    def _extended(self, before: LongChangeList) -> LongChangeList | None:
        """The Change List with what is new at its end; None when it has to begin anew."""
        segments = self._segments()
        last = segments[-1].last
        if before.first < self._retained(segments).first or last - before.first >= self._limit:
            return None
        return before if last == before.seq else self._written(before.first, before.from_, last)

    def _begun_anew(self, before: int, shown: int) -> LongChangeList:
        """The Change List from where it may begin, not before change `before`, where all up to `shown` are shown."""
        segments = self._segments()
        last, retained = segments[-1].last, self._retained(segments)
        start = max(before, retained.first)
        if last - start >= self._limit:
            start = min(last - self._limit // 2 + 1, max(shown, 1))
        while (written := self._written(start, self._from(segments, retained, start), last)) is None:
            newer = min(last - (last - start) // 2 + 1, max(shown, 1))
            assert newer > start, "a Change List with the changes of one publication is never too long"
            start = newer
        return written

    @property
    def _limit(self) -> int:
        return self._job.settings.classic_entries

    def _retained(self, segments: Sequence[Segment]) -> Segment:
        return next(one for one in segments if one.number >= self._job.first)

    def _from(self, segments: Sequence[Segment], retained: Segment, start: int) -> dt.datetime:
        """Since when a list that begins with change `start` has all changes."""
        if start == retained.first:
            return retained.from_
        if start == 1:
            return segments[0].from_
        return self._job.context.catalog.changes(self._job.name, start - 2, 1)[0].at + MICROSECOND

    def _written(self, first: int, from_: dt.datetime, last: int) -> LongChangeList | None:
        """Write the changes `first` to `last`; None when they take too many octets."""
        job, site = self._job, self._job.context.site
        up = Link(rel="up", href=site.url(classic_capability_list_name(job.name)))
        # Always open, each `lastmod` the time of the change (AMB-19).
        writer = DocumentWriter(head_of(Kind.CHANGE_LIST, (up,), from_=from_), Profile.BOTH)
        newest = from_

        def rows() -> Iterator[Change]:
            nonlocal newest
            for row in changes_between(job.context.catalog, job.name, first - 1, last):
                newest = row.at
                yield row

        def blocks() -> Iterator[bytes]:
            head = writer.head()
            yield head
            room = job.context.catalog.limits.segment_octets - len(head)
            entries = change_entries(rows(), site.resource_prefix(job.name), Profile.BOTH)
            for block in map(md5_alone, render_entries(writer, entries)):
                room -= len(block)
                if room < 0:
                    raise _TooLong
                yield block
            yield writer.tail()

        def mark() -> str:
            return DocumentMark(generation=job.store_writer.generation, latest=newest).encode()

        with suppress(_TooLong):
            job.store_writer.blocks(_change_list_name(job.name), blocks(), mark)
            return LongChangeList(first=first, seq=last, from_=from_)
        return None


class _TooLong(Exception):
    """The Change List would take more octets than it may."""


def _change_list_name(set_name: str) -> str:
    return f"{set_name}/{CLASSIC_CHANGE_LIST.top.name}"
