"""Writes the archives of one set: what retention takes out of the Change Lists, and snapshots of what is current.

They come before the lists: what leaves an index is in the archive before that. Archived documents have names
of their own, so that nothing that a cache holds for good ever says something else (RS-TIME-09): a closed Change List
stays as it was under its own name until its grace is over, while its copy, without the link to an index that no longer
names it (RS-ARC-31), is in the archive already.

Resource Lists are rendered from the catalog for the archive, as a whole; names of snapshots have a digest of what they
show, so that one that is killed in the middle is followed by another, with other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import groupby

import msgspec

from headwater.catalog.interface import Segment
from headwater.publish import archive_documents as documents
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.archive_documents import within_bounds, without
from headwater.publish.patches import patches_between
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import (
    Archived,
    ArchivedChangeDump,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
    ArchiveState,
    offers,
    uri_fingerprint,
)
from headwater.publish.rendering.documents import change_entries
from headwater.publish.rendering.renderer import PublicationJob, changes_between
from headwater.publish.site import capability_list_name
from headwater.publish.store_writer import DocumentMark, render_document
from headwater.publish.whole_lists import ListForm, write_whole_list
from headwater.spec.records import Document, Entry
from headwater.storage.object_store import StoredObject

_SHOWN_DIGITS = 10
"""So much of the key of an archived Resource List tells which state it shows, the rest when it was written: a snapshot
that is repeated after a kill has another name."""
_DUMP_PACKAGES = 5_000
"""A Resource Dump of more packages than this is not archived: its state would take too much of the note."""


class Archives:
    """The archives of one set during one publication."""

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._site = job.context.site
        self._store = job.context.store
        self.dropped: tuple[str, ...] = ()
        """What lies in the archive's folder and is archived no longer."""

    def publish(self) -> ArchiveState | None:
        """Archive what leaves, and what is to be shown as it is; then take out what is too much. The new state."""
        job, before = self._job, self._job.publication.archive
        if not job.settings.archive:
            self.dropped = tuple(self._store.names(f"{job.name}/archive/")) if before is not None else ()
            return None
        state = before or ArchiveState()
        if job.refresh is Refresh.ALL:
            state = self._sound(state)
        state = self._with_changes(state)
        if job.refresh is not Refresh.CHANGES:
            state = self._with_snapshots(state)
        state = within_bounds(state, job.settings, job.now)
        is_other = before is None or documents.listed_in(state) != documents.listed_in(before)
        if is_other or job.refresh is Refresh.ALL:
            self._write(state)
            live = set(documents.archive_names(job.name, state, offers(job.settings)))
            self.dropped = tuple(one for one in self._store.names(f"{job.name}/archive/") if one not in live)
        return state

    def _write(self, state: ArchiveState) -> None:
        """Write the archives: what they name is there, components come before their index (AMB-63)."""
        for row, listed in documents.archives_of(offers(self._job.settings), state):
            for name, head, entries in documents.archive_documents(self._site, self._job.name, row, listed):
                self._job.store_writer.document(name, head, entries)

    def _document(self, name: str, head: Document, entries: Iterable[Entry]) -> StoredObject:
        """Write an archived document, which never changes."""
        writer = self._job.store_writer
        return writer.blocks(name, render_document(head, entries, writer.profile), self._mark(head).encode)

    def _mark(self, head: Document) -> DocumentMark:
        latest = head.completed or head.until or head.at or self._job.now
        return DocumentMark(generation=self._job.store_writer.generation, latest=latest, is_closed=True)

    # what leaves the Change Lists and the Change Dump

    def _with_changes(self, state: ArchiveState) -> ArchiveState:
        job = self._job
        known = {one.number for one in state.change_lists}
        leaving = [
            one
            for one in job.snapshot.segments
            if job.publication.open.first <= one.number < job.first
            and one.until is not None
            and one.number not in known
        ]
        if not leaving or job.publication.is_first:
            return state
        lists = tuple(self._change_list(one) for one in leaving)
        dumps = tuple(self._change_dumps({one.number for one in leaving}))
        return msgspec.structs.replace(
            state, change_lists=(*state.change_lists, *lists), change_dumps=(*state.change_dumps, *dumps)
        )

    def _change_list(self, segment: Segment) -> ArchivedChangeList:
        """The document of a closed segment, rendered again: it is in no index any more."""
        job, catalog = self._job, self._job.context.catalog
        assert segment.until is not None
        one = ArchivedChangeList(number=segment.number, from_=segment.from_, until=segment.until, octets=0)
        added = AddedLinks(self._site, job.settings, catalog, has_patches=job.publication.has_patches)
        rows = changes_between(catalog, job.name, segment.first - 1, segment.last)
        linked = added.to(rows, EntryPlace.CHANGE_LIST, segment.weight)
        entries = change_entries(linked, self._site.resource_prefix(job.name), self._site.profile)
        head = documents.change_list(self._site, job.name, one)
        stored = self._document(documents.archived_name(job.name, one), head, entries)
        patches = patches_between(catalog, job.name, segment.first, segment.last)
        return msgspec.structs.replace(one, octets=stored.octets + sum(patch.octets for patch in patches))

    def _change_dumps(self, numbers: set[int]) -> Iterator[ArchivedChangeDump]:
        dump = self._job.publication.change_dump
        packages = [] if dump is None else [one for one in dump.final if one.segment in numbers]
        for number, some in groupby(packages, lambda one: one.segment):
            one = ArchivedChangeDump(number=number, packages=tuple(some))
            self._write_dump(one)
            yield one

    def _write_dump(self, one: ArchivedChangeDump | ArchivedResourceDump) -> None:
        render = documents.change_dump if isinstance(one, ArchivedChangeDump) else documents.resource_dump
        head, entries = render(self._site, self._job.name, one)  # type: ignore[arg-type]
        self._document(documents.archived_name(self._job.name, one), head, entries)

    # what is archived as it is

    def _with_snapshots(self, state: ArchiveState) -> ArchiveState:
        """With a snapshot, when it is time and something has changed."""
        job = self._job
        if state.looked_at is not None:
            elapsed = (job.now - state.looked_at).total_seconds()
            if 0 <= elapsed < job.settings.archive_seconds:
                return state
        if (found := self._resource_list(state)) is not None:
            state = msgspec.structs.replace(state, resource_lists=(*state.resource_lists, found), next=state.next + 1)
        if (dump := self._resource_dump(state)) is not None:
            self._write_dump(dump)
            state = msgspec.structs.replace(state, resource_dumps=(*state.resource_dumps, dump), next=state.next + 1)
        return msgspec.structs.replace(state, looked_at=job.now)

    def _resource_list(self, state: ArchiveState) -> ArchivedResourceList | None:
        """The Resource List as the catalog has it; None when it is as it was archived last."""
        job, name = self._job, self._job.name
        uris = uri_fingerprint(self._site.base_url, self._site.resource_prefix(name))
        shown = _digest(f"{job.publication.generation} {uris} {job.snapshot.state.last_seq}")[:_SHOWN_DIGITS]
        if state.resource_lists and state.resource_lists[-1].key.startswith(shown):
            return None
        key = shown + _digest(job.now.isoformat())[: 16 - _SHOWN_DIGITS]
        one = ArchivedResourceList(
            number=state.next, key=key, at=job.newest_at, completed=job.newest_at, pages=0, octets=0
        )
        form = ListForm(
            top=documents.archived_name(name, one),
            part=partial(documents.snapshot_page_name, name, one),
            up=capability_list_name(name),
            is_final=True,
        )
        written, completed, octets = write_whole_list(job, form)
        return msgspec.structs.replace(one, completed=completed, pages=len(written.parts), octets=octets)

    def _resource_dump(self, state: ArchiveState) -> ArchivedResourceDump | None:
        """The Resource Dump as it is; None when there is none, or it is as it was archived last."""
        dump = self._job.publication.resource_dump
        if not self._job.settings.dump or dump is None or not dump.is_offered or not dump.pages:
            return None
        hashes = [package.hash for page in dump.pages for package in page.packages]
        key = _digest(" ".join(hashes))
        if len(hashes) > _DUMP_PACKAGES or (state.resource_dumps and state.resource_dumps[-1].key == key):
            return None
        return ArchivedResourceDump(
            number=state.next,
            key=key,
            at=min(page.at for page in dump.pages),
            completed=max(page.completed for page in dump.pages),
            pages=dump.pages,
        )

    # what was lost

    def _sound(self, state: ArchiveState) -> ArchiveState:
        """The archives without what is lost or damaged; a Change List is written again, for the catalog has it."""
        segments = {one.number: one for one in self._job.snapshot.segments}
        lost: list[Archived] = []
        for one in documents.all_archived(state):
            if all(map(self._job.integrity.is_as_left, documents.document_names(self._job.name, one))):
                continue
            if isinstance(one, ArchivedChangeList) and (segment := segments.get(one.number)) is not None:
                self._change_list(segment)
            else:
                lost.append(one)
        return without(state, lost) if lost else state


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
