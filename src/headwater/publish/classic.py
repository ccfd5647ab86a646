"""Writes the lists for old harvesters of one set: one Resource List and one open Change List, side by side.

Readers of that kind know no index, no closed lists, no `datetime`. A Capability List of their own names the two. With
each change the whole Change List is rendered again.

It begins with the first change that retention leaves. When it would become longer than it may, it begins anew with the
newer half: so whoever comes back within that many changes finds all of them, and whoever comes later finds a `from`
after the own position, which is a gap (AMB-23, DST-C2). It never begins after what the Resource List beside it shows,
and anew with the last change that that list shows, so that its `from` is not later than the list's `at`: who makes a
baseline now misses nothing, and sees no gap (RS-TIME-08).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import suppress

from headwater.catalog.interface import Change, Segment
from headwater.progress import Notice
from headwater.publish import documents
from headwater.publish.capabilities import CLASSIC_CHANGE_LIST, CLASSIC_RESOURCE_LIST
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ClassicState, LongChangeList, PageViewState, PublicationState
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import SetSettings, Site, classic_capability_list_name, source_description_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, render_entries
from headwater.publish.whole_lists import follows_pages, form_of, list_names, write_whole_list
from headwater.spec.kinds import Kind
from headwater.spec.markup import md5_alone
from headwater.spec.records import Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile

_TICK = dt.timedelta(microseconds=1)
_FORM = 2
"""The Resource List is rendered as a whole; in form 1 it was made of pages, each as old as it was, in form 0 with other
digests after MD5."""


def first_change(before: int | None, retained: int, last: int, shown: int, limit: int) -> int | None:
    """The number of the first change to list; None: there are too many that the Resource List does not show.

    `before` is the first one that is listed so far, `retained` the first that retention leaves, `last` the newest.
    All up to `shown` are in the Resource List.
    """
    newest_shown = max(shown, 1)
    start = max(before or 0, retained)
    if start > shown + 1:
        start = newest_shown
    if last - start < limit:
        return start
    start = max(start, min(last - limit // 2 + 1, newest_shown))
    return start if last - start < limit else None


def is_far_behind(last: int, shown: int, limit: int) -> bool:
    """Whether the Resource List has to show more soon, so that the Change List can begin anew in time."""
    return last - shown > limit // 2


def classic_names(name: str, publication: PublicationState) -> Iterator[str]:
    """The documents for old harvesters."""
    if publication.classic is not None:
        lists = list_names(name, CLASSIC_RESOURCE_LIST, publication.classic.resources)
        yield from (classic_capability_list_name(name), _change_list_name(name), *lists)


class ClassicLists:
    """The lists for old harvesters during one publication."""

    def __init__(self, job: PublicationJob, lists: ResourceLists) -> None:
        self._job = job
        self._lists = lists
        up = classic_capability_list_name(job.name)
        self._form = form_of(job.name, CLASSIC_RESOURCE_LIST, up, md5_alone)

    def publish(self) -> ClassicState | None:
        """Write what is due; the new state."""
        job = self._job
        before = None if job.refresh is Refresh.ALL else job.publication.classic
        if not job.settings.classic:
            return None
        if before is not None and before.form == _FORM:
            return self._next(before)
        name = classic_capability_list_name(job.name)
        job.store_writer.document(name, *_capability_list(job.context.site, job.settings))
        return self._first(before)

    def _first(self, before: ClassicState | None) -> ClassicState:
        """The lists where there were none, or none of this form."""
        resources = write_whole_list(self._job, self._form).state
        self._tell_of_index(resources, None)
        listed = None if before is None else before.changes
        return ClassicState(resources=resources, changes=self._begun_anew(listed, resources.seq), form=_FORM)

    def _next(self, before: ClassicState) -> ClassicState:
        """The lists brought up to date: changes first, so that they say all that the Resource List shows.

        A Change List that begins anew comes after it: the Resource List is never older than its `from`.
        """
        job, resources = self._job, before.resources
        segments = self._newest_segments() if self._lists.rendered else job.snapshot.segments
        changes = self._extended(segments, before.changes, resources.seq)

        def catch_up() -> None:
            nonlocal changes
            if changes is not None:
                changes = self._extended(self._newest_segments(), changes, before.resources.seq)

        is_late = changes is None or is_far_behind(segments[-1].last, resources.seq, self._limit)
        if is_late or follows_pages(self._lists):
            resources = write_whole_list(job, self._form, catch_up).state
            self._tell_of_index(resources, before.resources)
        if changes is None:
            changes = self._begun_anew(before.changes, resources.seq)
        return ClassicState(resources=resources, changes=changes, form=_FORM)

    def _newest_segments(self) -> Sequence[Segment]:
        """With the changes that came since the publication began: resources that are read now show them."""
        return self._job.context.catalog.snapshot_of(self._job.name).segments

    def _extended(self, segments: Sequence[Segment], before: LongChangeList, shown: int) -> LongChangeList | None:
        """The Change List with what is new at its end; None when it has to begin anew."""
        last = segments[-1].last
        start = first_change(before.first, self._retained(segments).first, last, shown, self._limit)
        if start != before.first:
            return None
        return before if last == before.seq else self._written(before.first, before.from_, last)

    def _begun_anew(self, before: LongChangeList | None, shown: int) -> LongChangeList:
        """The Change List from where it may begin: with fewer changes, where they take too many octets."""
        segments = self._newest_segments()
        last, retained = segments[-1].last, self._retained(segments)
        start = first_change(None if before is None else before.first, retained.first, last, shown, self._limit)
        if start is None:
            start = max(shown, 1)
        while (written := self._written(start, self._from(segments, start), last)) is None:
            newer = min(last - (last - start) // 2 + 1, max(shown, 1))
            assert newer > start, "a Change List with the changes of one publication is never too long"
            start = newer
        return written

    @property
    def _limit(self) -> int:
        return self._job.settings.classic_entries

    def _retained(self, segments: Sequence[Segment]) -> Segment:
        return next(one for one in segments if one.number >= self._job.first)

    def _from(self, segments: Sequence[Segment], start: int) -> dt.datetime:
        """Since when a list that begins with change `start` has all changes."""
        retained = self._retained(segments)
        if start == retained.first:
            return retained.from_
        if start == 1:
            return segments[0].from_
        return self._job.context.catalog.changes(self._job.name, start - 2, 1)[0].at + _TICK

    def _written(self, first: int, from_: dt.datetime, last: int) -> LongChangeList | None:
        """Write the changes `first` to `last`; None when they take too many octets."""
        job, site = self._job, self._job.context.site
        up = Link(rel="up", href=site.url(classic_capability_list_name(job.name)))
        # Always open, each `lastmod` the time of the change (AMB-19).
        writer = DocumentWriter(documents.head_of(Kind.CHANGE_LIST, (up,), from_=from_), Profile.BOTH)
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
            entries = documents.change_entries(rows(), site.resource_prefix(job.name), Profile.BOTH)
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

    def _tell_of_index(self, resources: PageViewState, before: PageViewState | None) -> None:
        if resources.is_indexed and (before is None or not before.is_indexed):
            count = self._job.snapshot.state.count
            text = f"the Resource List of {self._job.name!r} for old harvesters is an index: {count:,} resources"
            self._job.context.listener(Notice("HW-PUB-16", text, set_name=self._job.name))


class _TooLong(Exception):
    """The Change List would take more octets than it may."""


def _change_list_name(set_name: str) -> str:
    return f"{set_name}/{CLASSIC_CHANGE_LIST.top.name}"


def _capability_list(site: Site, settings: SetSettings) -> tuple[Document, list[Entry]]:
    """The Capability List for old harvesters."""
    up = Link(rel="up", href=site.url(source_description_name(site, settings.name)))
    about = () if settings.describedby is None else (Link(rel="describedby", href=settings.describedby),)
    rows = (CLASSIC_RESOURCE_LIST, CLASSIC_CHANGE_LIST)
    entries = [Entry(loc=site.url(f"{settings.name}/{row.top.name}"), capability=row.name) for row in rows]
    return documents.head_of(Kind.CAPABILITY_LIST, (*about, up)), entries
