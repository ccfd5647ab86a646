"""Compares a folder with the catalog: a merge of two sorted streams, so that nothing is held in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator

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


class UnreadableFiles(msgspec.Struct):
    """Places of a folder that could not be read, each with how many files are published of it, as URIs without a slash.

    Beyond MOST_PLACES of them files are only counted (`more`).
    """

    places: dict[str, int] = msgspec.field(default_factory=dict)
    more: int = 0

    def add(self, place: str, files: int) -> None:
        """So many more files at a place."""
        if place in self.places or len(self.places) < MOST_PLACES:
            self.places[place] = self.places.get(place, 0) + files
        else:
            self.more += max(1, files)

    @property
    def count(self) -> int:
        """How many files: what is behind a closed door and was never published counts as one."""
        return sum(max(1, files) for files in self.places.values()) + self.more

    def looked_again(self, uris: Iterable[str], found: UnreadableFiles) -> bool:
        """A look at these URIs, and all below them, has found this; whether that is or was anything."""
        if not self.places and not found.places:
            return False
        looked = frozenset(uris)
        self.places = {one: files for one, files in self.places.items() if not _is_below(one, looked)}
        for place, files in found.places.items():
            self.places[place] = max(files, self.places.get(place, 0))
        self.more += found.more
        return True


def _is_below(place: str, places: Container[str]) -> bool:
    while place and place not in places:
        place = place.rpartition("/")[0]
    return bool(place)


class ComparisonCounts:
    """Counts of one comparison, and what in it could not be looked at."""

    def __init__(self, unreadable: UnreadableFiles | None = None) -> None:
        self.found = 0
        self.unchanged = 0
        self.kept = 0
        self.unreadable = UnreadableFiles() if unreadable is None else unreadable


MOST_PLACES = 1_000
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
    closed = _Closed(tally)
    rows: Iterator[tuple[str | None, bytes]] = iter(held)
    uri, memo = next(rows, _END)
    for one in seen:
        here = one.uri
        while uri is not None and uri < here:
            if not closed.keeps(uri):
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
        if not closed.keeps(uri):
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

    def __init__(self, tally: ComparisonCounts) -> None:
        self._places: set[str] = set()
        self._tally = tally

    def add(self, uri: str) -> None:
        place = uri.rstrip("/")
        if len(self._places) >= _REMEMBERED:
            self._places = {one for one in self._places if one + "0" > place}  # "0" follows "/": all below is past
        self._places.add(place)
        self._tally.unreadable.add(place, 0)

    def keeps(self, uri: str) -> bool:
        """Whether it stays because nobody can tell whether it is there; then it is counted."""
        place = uri if self._places else ""
        while place:
            if place in self._places:
                self._tally.kept += 1
                self._tally.unreadable.add(place, 1)
                return True
            place = place.rpartition("/")[0]
        return False
