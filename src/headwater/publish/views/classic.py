"""Writes the lists for old harvesters of one set: one Resource List and one open Change List, side by side.

Readers of that kind know no index, no closed lists, no `datetime`. The Resource List is made of the octets of the
pages. The Change List begins where `window` says and grows at its end: what it says already is taken over as octets
from the stored document, as long as its digest is the one that was noted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from headwater import notices
from headwater.catalog.interface import Change, Segment, SetSnapshot
from headwater.progress import Notice
from headwater.publish.capabilities import CLASSIC, CLASSIC_CHANGE_LIST, CLASSIC_RESOURCE_LIST, Capability
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ClassicState, LongChangeList, PageViewState, PublicationState
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import PublicationJob, RenderResult
from headwater.publish.rendering.resource_lists import ResourceLists
from headwater.publish.site import SetSettings, classic_capability_list_name
from headwater.publish.store_writer import DocumentMark, render_entries
from headwater.publish.views.classic_documents import (
    ClassicResourceForm,
    classic_capability_list,
    classic_change_list,
)
from headwater.publish.views.page_copies import PageCopies, PageNames
from headwater.publish.views.window import first_change, is_far_behind
from headwater.spec.markup import md5_alone
from headwater.spec.writer import Profile
from headwater.storage.objects.interface import OpenObject, octets_of

_ROWS_AT_ONCE = 5_000
_TICK = dt.timedelta(microseconds=1)
_FORM = 1
"""MD5 is the only digest; form 0 had others after it."""


class ClassicLists:
    """The lists for old harvesters during one publication."""

    capabilities: ClassVar[tuple[Capability, ...]] = CLASSIC

    def __init__(self, job: PublicationJob, lists: ResourceLists) -> None:
        self._job = job
        self._lists = lists
        self._form = ClassicResourceForm(job.context.site, job.name)
        self._state = job.publication.classic

    @staticmethod
    def published(snapshot: SetSnapshot, publication: PublicationState) -> Iterator[str]:
        """All of them."""
        if publication.classic is not None:
            yield from _names(snapshot.state.name, publication.classic)

    def publish(self) -> None:
        """Write what is due."""
        job = self._job
        before = None if job.refresh is Refresh.ALL else self._state
        if not job.settings.classic:
            self._state = None
        elif before is None or before.form != _FORM:
            self._state = self._first(before)
            name = classic_capability_list_name(job.name)
            job.store_writer.document(name, *classic_capability_list(job.context.site, job.settings))
        else:
            self._state = self._next(before)

    def result(self, publication: PublicationState) -> RenderResult:
        """What came of it; a list that waits for pages counts as one of them."""
        left = int(self._state is not None and self._state.waits_for_pages)
        names = () if self._state is None else _names(self._job.name, self._state)
        publication = msgspec.structs.replace(publication, classic=self._state)
        return RenderResult(names=names, publication=publication, left=left)

    def _first(self, before: ClassicState | None) -> ClassicState:
        """The lists where there were none, or none of this form; all pages are fresh then (`must_refresh`)."""
        resources = PageCopies(self._job, self._form, None).write(self._lists.shown(), renew=False)
        self._tell_of_index(resources, None)
        listed = None if before is None else before.changes
        changes = self._begun_anew(self._segments(), listed, resources.shown)
        assert changes is not None, "a Change List without changes is never too long"
        return ClassicState(resources=resources, changes=changes, form=_FORM)

    def _next(self, before: ClassicState) -> ClassicState:
        """The lists brought up to date: changes first, so that they say all that the Resource List shows.

        A Change List that begins anew comes after it: the Resource List is never older than its `from`.
        """
        job, resources = self._job, before.resources
        segments = self._segments()
        changes = self._extended(segments, before.changes, resources.shown)
        pages, copies = self._lists.shown(), PageCopies(job, self._form, resources)
        renew = is_far_behind(segments[-1].last, resources.shown, job.settings.classic_entries)
        if self._lists.is_complete and (renew or before.waits_for_pages or copies.is_due(pages)):
            resources = copies.write(pages, renew=renew or before.waits_for_pages)
            self._tell_of_index(resources, before.resources)
        if changes is None:
            changes = self._begun_anew(segments, before.changes, resources.shown)
        if changes is None:
            return ClassicState(resources=resources, changes=before.changes, waits_for_pages=True, form=_FORM)
        return ClassicState(resources=resources, changes=changes, form=_FORM)

    def _segments(self) -> Sequence[Segment]:
        """With the changes that pages show, and the Change List has, that came while those were rendered."""
        job = self._job
        is_late = self._lists.has_rendered
        return job.context.catalog.snapshot_of(job.name).segments if is_late else job.snapshot.segments

    def _extended(self, segments: Sequence[Segment], before: LongChangeList, shown: int) -> LongChangeList | None:
        """The Change List with what is new at its end; None when it has to begin anew."""
        last = segments[-1].last
        start = first_change(before.first, self._retained(segments).first, last, shown, self._limit)
        if start != before.first:
            return None
        return before if last == before.seq else self._written(before.first, before.from_, last, before)

    def _begun_anew(
        self, segments: Sequence[Segment], before: LongChangeList | None, shown: int
    ) -> LongChangeList | None:
        """The Change List from where it may begin; None when even the changes that `shown` lacks are too many."""
        last, retained = segments[-1].last, self._retained(segments)
        start = first_change(None if before is None else before.first, retained.first, last, shown, self._limit)
        while start is not None:
            if (written := self._written(start, self._from(segments, start), last, None)) is not None:
                return written
            newer = min(last - (last - start) // 2 + 1, max(shown, 1))
            start = newer if newer > start else None
        return None

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

    def _written(
        self, first: int, from_: dt.datetime, last: int, before: LongChangeList | None
    ) -> LongChangeList | None:
        """Write the changes `first` to `last`, those of `before` as octets; None when they take too many."""
        job, name = self._job, _change_list_name(self._job.name)
        writer = classic_change_list(job.context.site, job.name, from_)
        head, tail = writer.head(), writer.tail()
        newest = from_

        def rows(after: int) -> Iterator[Change]:
            nonlocal newest
            for row in self._rows(after, last):
                newest = row.at
                yield row

        def blocks(taken: OpenObject | None) -> Iterator[bytes]:
            yield head
            room = job.context.catalog.limits.segment_octets - len(head)
            if taken is not None and before is not None:
                room -= taken.octets
                yield from octets_of(taken, before.head_octets, taken.octets - before.tail_octets)
            after = first - 1 if taken is None or before is None else before.seq
            entries = documents.change_entries(rows(after), job.context.site.resource_prefix(job.name), Profile.BOTH)
            for block in render_entries(writer, entries):
                room -= len(block)
                if room < 0:
                    raise _TooLong
                yield md5_alone(block)
            yield tail

        def mark() -> str:
            return DocumentMark(generation=job.store_writer.generation, latest=newest).encode()

        try:
            with job.store_writer.version(name, "" if before is None else before.etag) as taken:
                stored = job.store_writer.blocks(name, blocks(taken), mark)
        except _TooLong:
            return None
        return LongChangeList(
            first=first, seq=last, from_=from_, etag=stored.etag, head_octets=len(head), tail_octets=len(tail)
        )

    def _rows(self, after: int, last: int) -> Iterator[Change]:
        while after < last:
            rows = self._job.context.catalog.changes(self._job.name, after, min(_ROWS_AT_ONCE, last - after))
            if not rows:
                return
            yield from rows
            after = rows[-1].seq

    def _tell_of_index(self, resources: PageViewState, before: PageViewState | None) -> None:
        if resources.is_indexed and (before is None or not before.is_indexed):
            count = sum(part.entries for part in resources.parts)
            text = f"the Resource List of {self._job.name!r} for old harvesters is an index: {count:,} resources"
            self._job.context.listener(Notice(notices.CLASSIC_INDEX, text, set_name=self._job.name))


class _TooLong(Exception):
    """The Change List would take more octets than it may."""


def must_refresh(snapshot: SetSnapshot, publication: PublicationState, settings: SetSettings, refresh: Refresh) -> bool:
    """Whether pages have to show all changes now: so that the Change List for old harvesters can begin anew in time.

    A publication of changes alone leaves that to the next one, but for the first of these lists.
    """
    state = publication.classic
    if not settings.classic:
        return False
    if state is None or state.form != _FORM:
        return True
    last = snapshot.segments[-1].last
    return refresh is not Refresh.CHANGES and (
        state.waits_for_pages or is_far_behind(last, state.resources.shown, settings.classic_entries)
    )


def _change_list_name(set_name: str) -> str:
    return f"{set_name}/{CLASSIC_CHANGE_LIST.top.name}"


def _names(set_name: str, state: ClassicState) -> tuple[str, ...]:
    lists = PageNames(CLASSIC_RESOURCE_LIST, set_name).names(state.resources)
    return (classic_capability_list_name(set_name), _change_list_name(set_name), *lists)
