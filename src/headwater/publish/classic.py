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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headwater.catalog.interface import Change, Segment
from headwater.progress import Notice
from headwater.publish import documents
from headwater.publish.capabilities import CLASSIC_CHANGE_LIST, CLASSIC_RESOURCE_LIST
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ClassicState, LongChangeList, PageViewState
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import classic_capability_list_name, source_description_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, render_entries
from headwater.publish.whole_lists import follows_pages, form_of, list_names, write_whole_list
from headwater.spec.kinds import Kind
from headwater.spec.markup import md5_alone
from headwater.spec.records import Entry, Link
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
        job = self._job
        before = None if job.refresh is Refresh.ALL else job.publication.classic
        if before is None or before.form != _FORM:
            # The Capability List for old harvesters.
            settings, site = job.settings, job.context.site
            up = Link(rel="up", href=site.url(source_description_name(site, job.name)))
            about = () if settings.describedby is None else (Link(rel="describedby", href=settings.describedby),)
            rows = (CLASSIC_RESOURCE_LIST, CLASSIC_CHANGE_LIST)
            entries = [Entry(loc=site.url(f"{job.name}/{row.top.name}"), capability=row.name) for row in rows]
            head = documents.head_of(Kind.CAPABILITY_LIST, (*about, up))
            job.store_writer.document(classic_capability_list_name(job.name), head, entries)
            resources = self._write_resources(None, None)
            listed = None if before is None else before.changes
            return ClassicState(resources=resources, changes=self._begun_anew(listed, resources.seq), form=_FORM)
        resources = before.resources
        segments = self._newest_segments() if self._lists.rendered else job.snapshot.segments
        changes = self._extended(segments, before.changes, resources.seq)

        def catch_up() -> None:
            nonlocal changes
            if changes is not None:
                changes = self._extended(self._newest_segments(), changes, before.resources.seq)

        # The Resource List has to show more soon, so that the Change List can begin anew in time.
        is_late = changes is None or segments[-1].last - resources.seq > self._limit // 2
        if is_late or follows_pages(self._lists):
            resources = self._write_resources(before.resources, catch_up)
        if changes is None:
            changes = self._begun_anew(before.changes, resources.seq)
        return ClassicState(resources=resources, changes=changes, form=_FORM)

    def _write_resources(self, before: PageViewState | None, last: Callable[[], None] | None) -> PageViewState:
        """Write the Resource List, and tell when it has become an index."""
        job, name = self._job, self._job.name
        form = form_of(name, CLASSIC_RESOURCE_LIST, classic_capability_list_name(name), md5_alone)
        resources = write_whole_list(job, form, last or (lambda: None)).state
        if resources.is_indexed and (before is None or not before.is_indexed):
            count = job.snapshot.state.count
            text = f"the Resource List of {name!r} for old harvesters is an index: {count:,} resources"
            job.context.listener(Notice("HW-PUB-16", text, set_name=name))
        return resources

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
        start = max(shown, 1) if start is None else start
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


class _TooLong(Exception):
    """The Change List would take more octets than it may."""


def _change_list_name(set_name: str) -> str:
    return f"{set_name}/{CLASSIC_CHANGE_LIST.top.name}"
