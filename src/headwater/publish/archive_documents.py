"""The names and the content of archives, and of the documents that they list. Pure: states in, records out.

Archives have bounds: documents go by age, count and octets, the oldest first (`within_bounds`).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, groupby

import msgspec

from headwater.publish.capabilities import (
    CHANGE_DUMP_ARCHIVE,
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    Capability,
    filled_name,
    part_name,
)
from headwater.publish.publication_state import (
    Archived,
    ArchivedChangeDump,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
    ArchiveState,
)
from headwater.publish.rendering.documents import change_package_entry, head_of, resource_package_entry, set_links
from headwater.publish.site import SetSettings, Site, change_package_names, resource_package_names
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry, Link

ARCHIVE_ENTRIES = 1_000
"""Documents whose numbers share this many stand in one archive; of several there is an index (RS-ARC-20)."""

_INDEX_OF = {
    Kind.RESOURCE_LIST_ARCHIVE: Kind.RESOURCE_LIST_ARCHIVE_INDEX,
    Kind.RESOURCE_DUMP_ARCHIVE: Kind.RESOURCE_DUMP_ARCHIVE_INDEX,
    Kind.CHANGE_LIST_ARCHIVE: Kind.CHANGE_LIST_ARCHIVE_INDEX,
    Kind.CHANGE_DUMP_ARCHIVE: Kind.CHANGE_DUMP_ARCHIVE_INDEX,
}
_ARCHIVES = {
    "change_lists": CHANGE_LIST_ARCHIVE,
    "change_dumps": CHANGE_DUMP_ARCHIVE,
    "resource_lists": RESOURCE_LIST_ARCHIVE,
    "resource_dumps": RESOURCE_DUMP_ARCHIVE,
}
"""The archives, by the field of `ArchiveState` with what they list."""
_ROWS: dict[type[Archived], Capability] = {
    ArchivedChangeList: CHANGE_LIST_ARCHIVE,
    ArchivedChangeDump: CHANGE_DUMP_ARCHIVE,
    ArchivedResourceList: RESOURCE_LIST_ARCHIVE,
    ArchivedResourceDump: RESOURCE_DUMP_ARCHIVE,
}


def archived_name(set_name: str, one: Archived) -> str:
    """The name of an archived document, or of its index."""
    key = one.key if isinstance(one, ArchivedResourceList | ArchivedResourceDump) else ""
    return f"{set_name}/{filled_name(_ROWS[type(one)].others[0].name, one.number, key)}"


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
        for page in one.pages:
            for part, resources in enumerate(page.packages):
                yield from resource_package_names(set_name, page.number, part, resources.hash)


def listed_in(state: ArchiveState) -> dict[str, Sequence[Archived]]:
    """What each archive lists, by the field of the state."""
    return {field: getattr(state, field) for field in _ARCHIVES}


def archives_of(names: Container[str], state: ArchiveState) -> Iterator[tuple[Capability, Sequence[Archived]]]:
    """The archives whose capabilities are among the `names` of those that the set offers, with what each lists."""
    yield from (
        (_ARCHIVES[field], listed) for field, listed in listed_in(state).items() if _ARCHIVES[field].name in names
    )


def all_archived(state: ArchiveState) -> tuple[Archived, ...]:
    """Every archived document."""
    return tuple(chain.from_iterable(listed_in(state).values()))


def archive_names(set_name: str, state: ArchiveState | None, offered: Container[str] = ()) -> Iterator[str]:
    """The names of all archived documents and packages, and of the archives that are `offered`."""
    if state is None:
        return
    for one in all_archived(state):
        yield from document_names(set_name, one)
    for row, listed in archives_of(offered, state):
        yield f"{set_name}/{row.top.name}"
        groups = _groups(listed)
        yield from (f"{set_name}/{part_name(row, number)}" for number, _some in groups if len(groups) > 1)


def archive_documents(
    site: Site, set_name: str, row: Capability, listed: Sequence[Archived]
) -> Iterator[tuple[str, Document, list[Entry]]]:
    """An archive with its name; of very many documents its components, then their index (RS-ARC-10…22).

    Oldest first (RS-ARC-17, RS-ARC-18). Which documents stand together depends on their numbers, so that a component
    changes only at its end, and where what is too old is taken out.
    """
    top, groups = f"{set_name}/{row.top.name}", _groups(listed)
    if len(groups) < 2:
        yield top, head_of(row.kind, set_links(site, set_name, None)), _entries(site, set_name, listed)
        return
    for number, some in groups:
        yield (
            f"{set_name}/{part_name(row, number)}",
            head_of(row.kind, set_links(site, set_name, top)),
            _entries(site, set_name, some),
        )
    parts = [Entry(loc=site.url(f"{set_name}/{part_name(row, number)}")) for number, _some in groups]
    yield top, head_of(_INDEX_OF[row.kind], set_links(site, set_name, None)), parts


def _groups(listed: Sequence[Archived]) -> list[tuple[int, list[Archived]]]:
    return [(number, list(some)) for number, some in groupby(listed, lambda one: one.number // ARCHIVE_ENTRIES)]


def _entries(site: Site, set_name: str, listed: Iterable[Archived]) -> list[Entry]:
    """What an archive says of each document: the times that the document states itself (RS-ARC-15, 16, 27)."""
    return [
        Entry(loc=site.url(archived_name(set_name, one)), at=one.at, completed=one.completed)
        if isinstance(one, ArchivedResourceList | ArchivedResourceDump)
        else Entry(loc=site.url(archived_name(set_name, one)), from_=one.from_, until=one.until)
        for one in listed
    ]


def change_dump(site: Site, set_name: str, one: ArchivedChangeDump) -> tuple[Document, list[Entry]]:
    """An archived Change Dump: closed, with the packages of one segment (RS-ARC-26)."""
    head = head_of(Kind.CHANGE_DUMP, set_links(site, set_name, None), from_=one.from_, until=one.until)
    return head, [change_package_entry(site, set_name, package) for package in one.packages]


def resource_dump(site: Site, set_name: str, one: ArchivedResourceDump) -> tuple[Document, list[Entry]]:
    """An archived Resource Dump."""
    head = head_of(Kind.RESOURCE_DUMP, set_links(site, set_name, None), at=one.at, completed=one.completed)
    packages = [(page, part, package) for page in one.pages for part, package in enumerate(page.packages)]
    return head, [resource_package_entry(site, set_name, *package) for package in packages]


def change_list(site: Site, set_name: str, one: ArchivedChangeList) -> Document:
    """The head of an archived Change List: it is in no index any more (RS-ARC-31)."""
    links: tuple[Link, ...] = set_links(site, set_name, None)
    return head_of(Kind.CHANGE_LIST, links, from_=one.from_, until=one.until)


MOST_PACKAGES = 10_000
"""Packages that archived dumps may name: they are in the note that each publication writes."""


def shown_at(one: Archived) -> dt.datetime:
    """The moment up to which a document tells: its age begins there."""
    return one.completed if isinstance(one, ArchivedResourceList | ArchivedResourceDump) else one.until


def within_bounds(state: ArchiveState, settings: SetSettings, now: dt.datetime) -> ArchiveState:
    """The archives without what is too old, or too much: in whole documents, the oldest of all archives first.

    A package that several documents name counts once, and stays while one of them does.
    """
    ordered = sorted(all_archived(state), key=lambda one: (shown_at(one), one.number))
    uses: Counter[str] = Counter()
    octets = packages = 0
    for one in ordered:
        for hash_, size in sizes(one):
            octets += size if not uses[hash_] else 0
            uses[hash_] += 1
        packages += _package_count(one)
    line = now - dt.timedelta(seconds=settings.archive_kept_seconds)
    gone = 0
    for one in ordered:
        is_much = len(ordered) - gone > settings.archive_documents or octets > settings.archive_octets
        if shown_at(one) >= line and not is_much and packages <= MOST_PACKAGES:
            break
        gone += 1
        packages -= _package_count(one)
        for hash_, size in sizes(one):
            uses[hash_] -= 1
            octets -= size if not uses[hash_] else 0
    return without(state, ordered[:gone]) if gone else state


def sizes(one: Archived) -> Iterator[tuple[str, int]]:
    """What a document takes: an id, and octets, of each of its parts."""
    if isinstance(one, ArchivedChangeList | ArchivedResourceList):
        yield f"{type(one).__name__} {one.number}", one.octets
    elif isinstance(one, ArchivedChangeDump):
        yield from ((package.hash, package.octets) for package in one.packages)
    else:
        yield from ((package.hash, package.octets) for page in one.pages for package in page.packages)


def _package_count(one: Archived) -> int:
    if isinstance(one, ArchivedChangeDump):
        return len(one.packages)
    return sum(len(page.packages) for page in one.pages) if isinstance(one, ArchivedResourceDump) else 0


def without(state: ArchiveState, gone: list[Archived]) -> ArchiveState:
    """The archives without these documents."""
    return msgspec.structs.replace(
        state, **{field: tuple(one for one in listed if one not in gone) for field, listed in listed_in(state).items()}
    )
