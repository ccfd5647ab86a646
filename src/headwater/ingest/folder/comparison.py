"""Compares a folder with the catalog: a merge of two sorted streams, so that nothing is held in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import msgspec

from headwater.files.hashing import FileState, state_of
from headwater.ingest.folder.signature import note
from headwater.ingest.folder.walking.walk import FileEntry, UnreadableEntry, WalkEntry


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A file that is new or may have changed: it has to be read. `known`: the set holds a resource of this URI.

    `state` is the one in which the walk found it, where that was kept.
    """

    uri: str
    path: bytes
    octets: int
    known: bool = False
    state: FileState | None = None


class MissingResource(msgspec.Struct, frozen=True, gc=False):
    """The set holds this resource, and the walk did not come upon it."""

    uri: str


class ComparisonCounts:
    """Counts of one comparison, and what in it could not be looked at."""

    def __init__(self) -> None:
        self.found = 0
        self.unchanged = 0
        self.kept = 0


_REMEMBERED = 1_000
_END: tuple[None, bytes] = (None, b"")


def compare(
    seen: Iterable[WalkEntry],
    held: Iterable[tuple[str, bytes]],
    mark: int,
    tally: ComparisonCounts,
    unreadable: Callable[[UnreadableEntry], None] = lambda _one: None,
) -> Iterator[Candidate | MissingResource]:
    """Merge both streams, each sorted by URI; yield what differs, in order. `held` are URIs with their memos.

    A file with the note that the catalog holds for it is unchanged. What lies at or below something unreadable is kept:
    not being able to look is never a deletion.
    """
    closed = _Closed()
    rows: Iterator[tuple[str | None, bytes]] = iter(held)
    uri, memo = next(rows, _END)
    for one in seen:
        here = one.uri
        while uri is not None and uri < here:
            if closed.covers(uri):
                tally.kept += 1
            else:
                yield MissingResource(uri)
            uri, memo = next(rows, _END)
        if isinstance(one, UnreadableEntry):
            closed.add(here)
            unreadable(one)
            continue
        tally.found += 1
        known = uri == here
        if known:
            unchanged = memo == _note(mark, one)
            uri, memo = next(rows, _END)
            if unchanged:
                tally.unchanged += 1
                continue
        state = None if one.stat is None else state_of(one.stat)
        yield Candidate(here, one.path, 0 if state is None else state[0], known, state)
    while uri is not None:
        if closed.covers(uri):
            tally.kept += 1
        else:
            yield MissingResource(uri)
        uri, memo = next(rows, _END)


def _note(mark: int, one: FileEntry) -> bytes | None:
    """The note of a file as it is; None when it cannot be told: whoever reads the file finds out why."""
    try:
        return note(mark, one.stat or os.lstat(one.path))
    except OSError:
        return None


class _Closed:
    """The unreadable places that may still cover a URI to come; both streams move on in order, so few are held."""

    def __init__(self) -> None:
        self._places: set[str] = set()

    def add(self, uri: str) -> None:
        place = uri.rstrip("/")
        if len(self._places) >= _REMEMBERED:
            self._places = {one for one in self._places if one + "0" > place}  # "0" follows "/": all below is past
        self._places.add(place)

    def covers(self, uri: str) -> bool:
        if not self._places:
            return False
        place = uri
        while place:
            if place in self._places:
                return True
            place = place.rpartition("/")[0]
        return False
