"""Writes the Change Lists of one set: every change once, in order, closed lists never again.

The open list grows at its end. What it says already is taken over as octets from the stored document, so that a change
costs the writing of the document and not the rendering of its 50,000 entries; the stored document is trusted only
while its digest is the one that was noted.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import msgspec

from headwater.catalog.interface import Change, Segment, StateUpdate
from headwater.datasets.rows import read_dataset
from headwater.publish import document_content
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.patches import PatchMaker, patches_between
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ArchiveState, OpenList, PublicationState
from headwater.publish.site import change_list_name, change_segment_name, open_change_list_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, render_entries
from headwater.spec.writer import DocumentWriter
from headwater.storage.object_store import OpenObject, octets_of


class ChangeLists:
    """The Change Lists of one set during one publication.

    Segments that have left the index (retention) are not written any more. Refresh.ALL does not write the closed ones
    again that are as they were left: they say for good what they said (RS-TIME-09).
    """

    def __init__(self, job: PublicationJob, patch_maker: PatchMaker | None = None) -> None:
        self._job = job
        self._name = job.name
        self._site = job.context.site
        self._prefix = self._site.resource_prefix(self._name)
        self._store_writer = job.store_writer
        self._rows = partial(changes_between, job.context.catalog, job.name)
        self._open = OpenList() if job.refresh is Refresh.ALL else job.publication.open
        self._patch_maker = patch_maker
        self._patched_seq = job.publication.open.seq
        self._has_patches = job.publication.has_patches or bool(job.settings.patch)
        self.dropped: tuple[str, ...] = ()  # the patches that no list names any more
        self._segments: Sequence[Segment] = ()
        self._added = AddedLinks(self._site, job.settings, job.context.catalog, has_patches=self._has_patches)

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the open list; patches go that neither a Change List nor an archived one names any more."""
        if self._has_patches:
            self._drop_patches(publication.archive)
        kinds, has_patches = self._job.settings.patch, self._has_patches
        return msgspec.structs.replace(publication, open=self._open, patch=kinds, has_patches=has_patches)

    def publish(self, segments: Sequence[Segment] = ()) -> None:
        """Write closed segments, the open one, their index, and the copy of the open one (AMB-63).

        Without `segments`, by those of now: before a page becomes visible, all that it shows is said.
        """
        segments = segments or self._job.context.catalog.snapshot_of(self._name).segments
        first, top, open_, written = self._job.first, change_list_name(self._name), segments[-1], self._open
        maker, settings, last = self._patch_maker, self._job.settings, open_.last
        # While there is one segment there is a Change List and no index: of an RDF dataset that is the first since its
        # history began anew, too (TIM-04).
        indexed = open_.number > (self._job.publication.history if settings.dataset else 0)
        rotated = open_.number != written.number or indexed != written.indexed
        is_new = last > self._patched_seq and not self._job.publication.is_first
        if maker is not None and settings.patch and is_new:  # those that no list has named yet (RS-REL-04)
            maker.make(settings, self._store_writer, self._rows(self._patched_seq, last))
        self._patched_seq = max(last, self._patched_seq)
        for segment in [one for one in segments[:-1] if one.number >= max(written.number, first)]:
            name = change_segment_name(self._name, segment.number)
            if segment.number >= self._job.publication.open.number or not self._job.context.is_as_left(name):
                self._write(segment, name, indexed=indexed)
        is_longer = rotated or last > written.seq
        if is_longer:
            open_name = change_segment_name(self._name, open_.number) if indexed else top
            self._write(open_, open_name, indexed=indexed)
        if indexed and (rotated or first != written.first):
            named = [self._stated(one) for one in segments if one.number >= first]
            self._store_writer.document(top, *document_content.change_list_index(self._site, self._name, named))
        if is_longer:
            self._store_writer.copy(self._open.name, open_change_list_name(self._name))
        self._open = msgspec.structs.replace(self._open, first=first)
        self._segments = segments

    def patches(self) -> list[str]:
        """Where strays are looked for, the names of the patches that are none."""
        if not self._has_patches or self._job.refresh is not Refresh.ALL:
            return []
        return [one.name(self._name) for one in patches_between(self._job.context.catalog, self._name)]

    def _drop_patches(self, archive: ArchiveState | None) -> None:
        """Forget the patches of changes before the first one that a list still says, present or archived."""
        segments = self._segments
        kept = [one.number for one in archive.change_lists] if archive is not None else []
        number = min([self._job.first, *kept])
        first = next((one.first for one in segments if one.number >= number), segments[-1].first)
        context = self._job.context
        gone = list(patches_between(context.catalog, self._name, last=first - 1))
        if gone:
            context.may_write()
            update = StateUpdate(delete=[one.key for one in gone])
            context.catalog.record(self._name, [], self._job.now, state=update)
            self.dropped = tuple(one.name(self._name) for one in gone)

    def _write(self, segment: Segment, name: str, *, indexed: bool) -> None:
        """Write one segment's document, taking over what the stored open list says of it already."""
        stated = document_content.change_list(self._site, self._name, self._stated(segment), indexed=indexed)
        writer = DocumentWriter(stated, self._store_writer.profile)
        head, tail = writer.head(), writer.tail()
        before = self._open if self._open.number == segment.number else OpenList()
        changed: dt.datetime | None = None

        def rows(after: int) -> Iterator[Change]:
            nonlocal changed
            for row in self._rows(after, segment.last):
                changed = row.at
                yield row

        def blocks(taken: OpenObject | None) -> Iterator[bytes]:
            nonlocal changed
            yield head
            if taken is not None:
                changed = before.changed
                yield from octets_of(taken, before.head_octets, taken.octets - before.tail_octets)
            new = rows(segment.first - 1 if taken is None else before.seq)
            linked = self._added.to(new, EntryPlace.CHANGE_LIST, segment.weight)
            yield from render_entries(writer, document_content.change_entries(linked, self._prefix, self._site.profile))
            yield tail

        def mark() -> str:
            return DocumentMark(
                generation=self._store_writer.generation,
                latest=segment.until or changed or segment.from_,
                number=segment.number,
                from_=segment.from_,
                seq=segment.last,
                changed=changed,
                is_closed=segment.until is not None,
            ).encode()

        held = self._job.context.store.open(before.name) if before.etag else None
        with held or nullcontext():
            is_same = held is not None and held.stored.etag == before.etag
            stored = self._store_writer.blocks(name, blocks(held if is_same else None), mark)
        if segment.until is None:
            self._open = OpenList(
                number=segment.number,
                indexed=indexed,
                name=name,
                etag=stored.etag,
                head_octets=len(head),
                tail_octets=len(tail),
                seq=segment.last,
                changed=changed,
            )

    def _stated(self, segment: Segment) -> Segment:
        """The segment as documents state it: those of an RDF dataset begin with its first change (TIM-A4)."""
        dataset = read_dataset(self._job.context.catalog, self._name) if self._job.settings.dataset else None
        if dataset is None or not segment.first <= dataset.first <= segment.last:
            return segment
        return msgspec.structs.replace(segment, from_=next(self._rows(dataset.first - 1, dataset.first)).at)
