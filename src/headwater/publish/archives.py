"""The archives of one set: what retention takes out of the Change Lists, and snapshots of what is current.

They are written before the lists: what leaves an index is in the archive before that. Archived documents have names
of their own, so that nothing that a cache holds for good ever says something else (RS-TIME-09): a closed Change List
stays as it was under its own name until its grace is over, while its copy, without the link to an index that no longer
names it (RS-ARC-31), is in the archive already.

Resource Lists are rendered from the catalog for the archive, as a whole; names of snapshots have a digest of what they
show, so that one that is killed in the middle is followed by another, with other names.

Archives have bounds: documents go by age, count and octets, the oldest first (`within_bounds`).
"""

import datetime as dt
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain, groupby

import msgspec

from headwater.catalog.interface import Segment
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.document_content import (
    change_entries,
    change_package_entry,
    head_of,
    resource_package_entry,
    set_links,
)
from headwater.publish.document_names import (
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    Capability,
    filled_name,
)
from headwater.publish.patches import patches_between
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import (
    Archived,
    ArchivedChangeDump,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
    ArchiveState,
    PagePackages,
    ResourcePackage,
    offers,
    uri_fingerprint,
)
from headwater.publish.site import SetSettings, Site, capability_list_name, change_package_names, resource_package_names
from headwater.publish.store_writer import DocumentMark, PublicationJob, changes_between, render_document
from headwater.publish.whole_lists import ListForm, write_whole_list
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.storage.object_store import StoredObject

# Names and content: states in, records out

_ARCHIVES = {
    "change_lists": CHANGE_LIST_ARCHIVE,
    "change_dumps": CHANGE_DUMP_ARCHIVE,
    "resource_lists": RESOURCE_LIST_ARCHIVE,
    "resource_dumps": RESOURCE_DUMP_ARCHIVE,
}
"""The archives, by the field of `ArchiveState` with what they list."""
_PATTERNS: dict[type[Archived], str] = {
    ArchivedChangeList: CHANGE_LIST_ARCHIVE.others[0].name,
    ArchivedChangeDump: CHANGE_DUMP_ARCHIVE.others[0].name,
    ArchivedResourceList: RESOURCE_LIST_ARCHIVE.others[0].name,
    ArchivedResourceDump: RESOURCE_DUMP_ARCHIVE.others[0].name,
}


def archived_name(set_name: str, one: Archived) -> str:
    """The name of an archived document, or of its index."""
    key = one.key if isinstance(one, ArchivedResourceList | ArchivedResourceDump) else ""
    return f"{set_name}/{filled_name(_PATTERNS[type(one)], one.number, key)}"


def snapshot_page_name(set_name: str, one: ArchivedResourceList, page: int) -> str:
    """The name of one page of an archived Resource List that has several."""
    return f"{set_name}/{filled_name(RESOURCE_LIST_ARCHIVE.others[1].name, one.number, one.key, page)}"


def document_names(set_name: str, one: Archived) -> Iterator[str]:
    """The names of an archived document, of its pages, and of the packages that it names."""
    yield archived_name(set_name, one)
    if isinstance(one, ArchivedResourceList):
        yield from (snapshot_page_name(set_name, one, page) for page in range(one.pages))
    elif isinstance(one, ArchivedChangeDump):
        for package in one.packages:
            yield from change_package_names(set_name, package.segment, package.hash)
    elif isinstance(one, ArchivedResourceDump):
        for page, part, resources in _parts(one):
            yield from resource_package_names(set_name, page.number, part, resources.hash)


def _parts(one: ArchivedResourceDump) -> Iterator[tuple[PagePackages, int, ResourcePackage]]:
    """The packages of an archived Resource Dump, each with its page and its number there."""
    yield from ((page, part, package) for page in one.pages for part, package in enumerate(page.packages))


def listed_in(state: ArchiveState) -> dict[str, Sequence[Archived]]:
    """What each archive lists, by the field of the state."""
    return {field: getattr(state, field) for field in _ARCHIVES}


def archives_of(names: Container[str], state: ArchiveState) -> Iterator[tuple[Capability, Sequence[Archived]]]:
    """The archives whose capabilities are among the `names` of those that the set offers, with what each lists."""
    kinds = ((_ARCHIVES[field], listed) for field, listed in listed_in(state).items())
    yield from ((kind, listed) for kind, listed in kinds if kind.name in names)


def all_archived(state: ArchiveState) -> tuple[Archived, ...]:
    """Every archived document."""
    return tuple(chain.from_iterable(listed_in(state).values()))


def archive_names(set_name: str, state: ArchiveState, offered: Container[str] = ()) -> Iterator[str]:
    """The names of all archived documents and packages, and of the archives that are `offered`."""
    for one in all_archived(state):
        yield from document_names(set_name, one)
    yield from (f"{set_name}/{row.top.name}" for row, _listed in archives_of(offered, state))


def archive_document(
    site: Site, set_name: str, row: Capability, listed: Iterable[Archived]
) -> tuple[str, Document, Iterator[Entry]]:
    """An archive with its name, oldest first (RS-ARC-10…18): `archive_documents` keeps it to 20,000 entries, so that
    no index of archives is needed (RS-ARC-20)."""
    head = head_of(row.kind, set_links(site, set_name, None))
    return f"{set_name}/{row.top.name}", head, (_entry(site, set_name, one) for one in listed)


def _entry(site: Site, set_name: str, one: Archived) -> Entry:
    """What an archive says of a document: the times that the document states itself (RS-ARC-15, 16, 27)."""
    loc = site.url(archived_name(set_name, one))
    if isinstance(one, ArchivedResourceList | ArchivedResourceDump):
        return Entry(loc=loc, at=one.at, completed=one.completed)
    return Entry(loc=loc, from_=one.from_, until=one.until)


MOST_PACKAGES = 10_000  # packages that archived dumps may name: they are in the note that each publication writes


def shown_at(one: Archived) -> dt.datetime:
    """The moment up to which a document tells: its age begins there."""
    return one.completed if isinstance(one, ArchivedResourceList | ArchivedResourceDump) else one.until


def within_bounds(state: ArchiveState, settings: SetSettings, now: dt.datetime) -> ArchiveState:
    """The archives without what is too old, or too much: in whole documents, the oldest of all archives first.

    A package that several documents name counts once, and stays while one of them does.
    """
    ordered = sorted(all_archived(state), key=lambda one: (shown_at(one), one.number))
    line = now - dt.timedelta(seconds=settings.archive_kept_seconds)
    seen, octets, packages = set[str](), 0, 0
    for count, one in enumerate(reversed(ordered), 1):
        parts = list(sizes(one))
        packages += len(parts) if isinstance(one, ArchivedChangeDump | ArchivedResourceDump) else 0
        octets += sum(size for hash_, size in dict(parts).items() if hash_ not in seen)
        seen.update(hash_ for hash_, _size in parts)
        is_much = count > settings.archive_documents or octets > settings.archive_octets or packages > MOST_PACKAGES
        if is_much or shown_at(one) < line:
            return without(state, ordered[: len(ordered) + 1 - count])
    return state


def sizes(one: Archived) -> Iterator[tuple[str, int]]:
    """What a document takes: an id, and octets, of each of its parts."""
    if isinstance(one, ArchivedChangeList | ArchivedResourceList):
        yield f"{type(one).__name__} {one.number}", one.octets
    elif isinstance(one, ArchivedChangeDump):
        yield from ((package.hash, package.octets) for package in one.packages)
    else:
        yield from ((package.hash, package.octets) for _page, _part, package in _parts(one))


def without(state: ArchiveState, gone: list[Archived]) -> ArchiveState:
    """The archives without these documents."""
    return msgspec.structs.replace(
        state, **{field: tuple(one for one in listed if one not in gone) for field, listed in listed_in(state).items()}
    )


# The archives during one publication

_SHOWN_DIGITS = 10
"""So much of the key of an archived Resource List tells which state it shows, the rest when it was written: a snapshot
that is repeated after a kill has another name."""


class Archives:
    """The archives of one set during one publication."""

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._site = job.context.site
        self._store = job.context.store
        self.dropped: tuple[str, ...] = ()  # what lies in the archive's folder and is archived no longer

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
        is_other = before is None or listed_in(state) != listed_in(before)
        if is_other or job.refresh is Refresh.ALL:
            offered = offers(job.settings)
            listed = archives_of(offered, state)
            job.store_writer.documents(archive_document(self._site, job.name, *one) for one in listed)
            live = set(archive_names(job.name, state, offered))
            self.dropped = tuple(one for one in self._store.names(f"{job.name}/archive/") if one not in live)
        return state

    def _document(self, one: Archived, head: Document, entries: Iterable[Entry]) -> StoredObject:
        """Write an archived document, which never changes."""
        writer, latest = self._job.store_writer, head.completed or head.until or head.at or self._job.now
        mark = DocumentMark(generation=writer.generation, latest=latest, is_closed=True)
        name = archived_name(self._job.name, one)
        return writer.blocks(name, render_document(head, entries, writer.profile), mark.encode)

    # what leaves the Change Lists and the Change Dump

    def _with_changes(self, state: ArchiveState) -> ArchiveState:
        job, dump = self._job, self._job.publication.change_dump
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
        lists, dumps = tuple(self._change_list(one) for one in leaving), list[ArchivedChangeDump]()
        numbers = {one.number for one in leaving}
        packages = [] if dump is None else [one for one in dump.final if one.segment in numbers]
        for number, some in groupby(packages, lambda one: one.segment):
            dumps.append(ArchivedChangeDump(number=number, packages=tuple(some)))
            self._write_dump(dumps[-1])
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
        links = set_links(self._site, job.name, None)
        head = head_of(Kind.CHANGE_LIST, links, from_=one.from_, until=one.until)
        stored = self._document(one, head, entries)
        patches = patches_between(catalog, job.name, segment.first, segment.last)
        return msgspec.structs.replace(one, octets=stored.octets + sum(patch.octets for patch in patches))

    def _write_dump(self, one: ArchivedChangeDump | ArchivedResourceDump) -> None:
        """Write the document that names the packages: of one segment, closed (RS-ARC-26), or of all resources."""
        site, name = self._site, self._job.name
        links = set_links(site, name, None)
        if isinstance(one, ArchivedChangeDump):
            head = head_of(Kind.CHANGE_DUMP, links, from_=one.from_, until=one.until)
            self._document(one, head, [change_package_entry(site, name, package) for package in one.packages])
        else:
            head = head_of(Kind.RESOURCE_DUMP, links, at=one.at, completed=one.completed)
            self._document(one, head, [resource_package_entry(site, name, *part) for part in _parts(one)])

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
            top=archived_name(name, one),
            part=partial(snapshot_page_name, name, one),
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
        if len(hashes) > MOST_PACKAGES or (state.resource_dumps and state.resource_dumps[-1].key == key):
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
        for one in all_archived(state):
            if all(map(self._job.context.is_as_left, document_names(self._job.name, one))):
                continue
            if isinstance(one, ArchivedChangeList) and (segment := segments.get(one.number)) is not None:
                self._change_list(segment)
            else:
                lost.append(one)
        return without(state, lost) if lost else state


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
