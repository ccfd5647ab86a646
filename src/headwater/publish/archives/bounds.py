"""The bounds of a set's archives: decides which documents are kept, by age, count and octets; the oldest go first."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator

import msgspec

from headwater.publish.archives.documents import all_archived
from headwater.publish.publication_state import (
    Archived,
    ArchivedChangeDump,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
    ArchiveState,
)
from headwater.publish.site import SetSettings

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
        state,
        change_lists=tuple(one for one in state.change_lists if one not in gone),
        change_dumps=tuple(one for one in state.change_dumps if one not in gone),
        resource_lists=tuple(one for one in state.resource_lists if one not in gone),
        resource_dumps=tuple(one for one in state.resource_dumps if one not in gone),
    )
