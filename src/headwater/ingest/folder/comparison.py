"""Compares a folder with the catalog: a merge of two sorted streams, so that nothing is held in memory.

An untouched file is told by the stat signature that was kept in the catalog when it was hashed: size, mtime, ctime and
inode. It is trusted only when the file had been at rest for a moment before it was read: a file system's clock moves in
ticks, and a write in the tick of the read would leave the same signature (the race that git's index knows as "racily
clean"). A file read too soon gets a note that matches nothing: it is read again.
"""

from __future__ import annotations

import datetime as dt
import marshal
import os
import struct
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import msgspec

from headwater.catalog.interface import Catalog
from headwater.ingest.deletion_guard import DeletionHold
from headwater.ingest.folder.walk import UnreadableEntry, WalkEntry

TICK_NS = 100_000_000
"""Longer than any kernel's timer tick (at most 10 ms), with a margin for the delay between clock and stamp."""

COARSE_TICK_NS = 2_100_000_000  # for file systems that keep whole or even seconds (FAT, ext3, some network servers)

_LAYOUT = struct.Struct("<BIQQQQ")
_STATE = struct.Struct("<QQQQ")
_STATE_AT = _LAYOUT.size - _STATE.size
_VERSION = 1
_BITS = (1 << 64) - 1
_SECOND_NS = 1_000_000_000

COPIED = 1
"""What the mark of a file's note is changed by (exclusive or) that was written in place, and has a copy in a tree."""

RACY = b"\0"  # the note of a file that was read too soon after it changed


def rules_mark(*parts: str) -> int:
    """A short mark of the settings that metadata depend on: files are read again when the settings change."""
    mark = 0
    for octet in "\0".join(parts).encode():
        mark = (mark * 0x01000193 ^ octet) & 0xFFFFFFFF  # FNV-1: small, stable across processes and versions
    return mark


def note(mark: int, stat: os.stat_result) -> bytes:
    """The note of a file in this state."""
    return pack(mark, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def pack(mark: int, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> bytes:
    """The same from the stat's parts."""
    # Times before 1970 are negative, and times beyond 2262 need more than 64 bits: their low bits tell them apart.
    return _LAYOUT.pack(_VERSION, mark, size, mtime_ns & _BITS, ctime_ns & _BITS, inode)


def is_noted(memo: bytes, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> bool:
    """Whether a note is of a file in this state, whatever its mark."""
    return memo[_STATE_AT:] == _STATE.pack(size, mtime_ns & _BITS, ctime_ns & _BITS, inode) and memo[0] == _VERSION


def matches(memo: bytes, stat: os.stat_result) -> bool:
    """The same of what `stat` says."""
    return is_noted(memo, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def settled_note(mark: int, state: Sequence[int], read_at_ns: int, changed_ns: int) -> bytes:
    """The note of a file that was read from `read_at_ns` on: RACY when it had changed within a tick before that.

    `state` is (size, mtime_ns, ctime_ns, inode); `changed_ns` is the ctime that counts: it moves with every write, and
    nobody can set it.
    """
    size, mtime_ns, ctime_ns, inode = state
    coarse = ctime_ns % _SECOND_NS == 0 and mtime_ns % _SECOND_NS == 0
    if changed_ns + (COARSE_TICK_NS if coarse else TICK_NS) > read_at_ns:
        return RACY
    return pack(mark, size, mtime_ns, ctime_ns, inode)


def likeness(memo: bytes, stat: os.stat_result) -> tuple[bool, bool]:
    """Whether a file has the inode, and whether it has the size and the time, of a note."""
    if len(memo) != _LAYOUT.size or memo[0] != _VERSION:
        return False, False
    size, mtime_ns, _ctime_ns, inode = _STATE.unpack_from(memo, _STATE_AT)
    return inode == stat.st_ino, (size, mtime_ns) == (stat.st_size, stat.st_mtime_ns & _BITS)


def _changes(memo: bytes, mark: int, stat: os.stat_result) -> tuple[bool, bool]:
    """Whether a file that is not as noted, or has a copy in a tree of links, has changed; whether it needs a copy."""
    is_same, is_alike = likeness(memo, stat)
    is_copied = memo[1:5] == (mark ^ COPIED).to_bytes(4, "little")
    return memo != note(mark ^ COPIED, stat), is_same and (is_copied or not is_alike)


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A file that is new or may have changed: it has to be read. `known`: the set holds a resource of this URI, and
    `rewritten` that it is of this very file, which was written to since.

    One without a path is missing: the set holds the resource, and the walk did not come upon it.
    """

    uri: str
    path: bytes = b""
    octets: int = 0
    known: bool = True
    rewritten: bool = False


class UnreadableFiles(msgspec.Struct):
    """Places of a folder that could not be read, each with how many files are published of it, as URIs without a slash.

    Beyond MOST_PLACES of them, all others are the empty place, which covers everything.
    """

    places: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, place: str, files: int) -> None:
        """So many more files at a place."""
        place = place if place in self.places or len(self.places) < MOST_PLACES else ""
        self.places[place] = self.places.get(place, 0) + files

    def keeps(self, uri: str) -> bool:
        """Whether a resource stays because nobody can tell whether it is there; then it is counted."""
        if (place := _place_of(uri, self.places)) is None:
            return False
        self.places[place] += 1
        return True

    @property
    def count(self) -> int:
        """How many files: what is behind a closed door and was never published counts as one."""
        return sum(max(1, files) for files in self.places.values())

    def looked_again(self, uris: Iterable[str], found: UnreadableFiles) -> bool:
        """A look at these URIs, and all below them, has found this; whether that is or was anything."""
        if not self.places and not found.places:
            return False
        looked = frozenset(uris)
        self.places = {one: files for one, files in self.places.items() if _place_of(one, looked) is None}
        for place, files in found.places.items():
            self.places[place] = max(files, self.places.get(place, 0))
        return True


def _place_of(uri: str, places: Container[str]) -> str | None:
    """The nearest of these places at or above a URI."""
    while uri and uri not in places:
        uri = uri.rpartition("/")[0]
    return uri if uri in places else None


RACY_MOST = 5_000  # beyond so many the next full scan sees to the rest


class ScanResult(msgspec.Struct, kw_only=True):
    """What one scan did. `at`: all that had happened until then is recorded (None: not known to be so)."""

    at: dt.datetime | None = None
    opened: bool = False
    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    kept: int = 0  # resources that could not be looked at, or were being written to, and stay as they are published
    read: int = 0
    octets: int = 0
    unreadable: UnreadableFiles = msgspec.field(default_factory=UnreadableFiles)
    held_back: DeletionHold | None = None
    unsettled: list[bytes] = msgspec.field(default_factory=list)
    """Paths that changed while they were read: they are to be looked at again soon."""
    racy: list[bytes] = msgspec.field(default_factory=list)
    """Paths, up to RACY_MOST, read so soon after a change that their notes prove nothing: later another look does."""
    warnings: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def changes(self) -> int:
        """How many changes were recorded; resources, when the set was loaded."""
        return self.created + self.updated + self.deleted


_ROWS = 5_000


def memos_of(catalog: Catalog, name: str) -> Iterator[tuple[str, bytes]]:
    """The URIs of a set's resources with their memos, in order."""
    after = ""
    while rows := catalog.memos(name, after, _ROWS):
        yield from rows
        after = rows[-1][0]


MOST_PLACES = 1_000
_END: tuple[None, bytes] = (None, b"")


def compare(
    seen: Iterable[WalkEntry],
    held: Iterable[tuple[str, bytes]],
    mark: int | Callable[[str], int],
    result: ScanResult,
    unreadable: Callable[[UnreadableEntry], None] = lambda _one: None,
) -> Iterator[Candidate]:
    """Merge both streams, each sorted by URI; yield what differs, in order, and count the rest in `result`.

    `held` are URIs with their memos; `mark` is that of all files, or gives that of each.
    A file with the note that the catalog holds for it is unchanged. What lies at or below something unreadable is kept:
    not being able to look is never a deletion.
    """

    def missing(uri: str) -> Iterator[Candidate]:
        if result.unreadable.keeps(uri):
            result.kept += 1
        else:
            yield Candidate(uri)

    rows: Iterator[tuple[str | None, bytes]] = iter(held)
    uri, memo = next(rows, _END)
    for one in seen:
        here = one.uri
        while uri is not None and uri < here:
            yield from missing(uri)
            uri, memo = next(rows, _END)
        if isinstance(one, UnreadableEntry):
            result.unreadable.add(here.rstrip("/"), 0)
            unreadable(one)
            continue
        known, rewritten = uri == here, False
        if known:
            own = mark if isinstance(mark, int) else mark(here)
            changed = memo != note(own, one.stat)
            if changed:
                changed, rewritten = _changes(memo, own, one.stat)
            uri, memo = next(rows, _END)
            if not changed:
                result.unchanged += 1
                continue
        yield Candidate(here, one.path, one.stat.st_size, known, rewritten)
    while uri is not None:
        yield from missing(uri)
        uri, memo = next(rows, _END)


_IN_MEMORY = 4 << 20
_BLOCK = 500


class DifferenceQueue:
    """First all is put, then all is taken, in the same order. A context manager: its file ends with it."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by __exit__
        self._octets: list[int] = []
        self._block: list[tuple[str, bytes, int, bool, bool]] = []
        """What is not in the file yet: it takes blocks, since each reading of it costs more than a difference."""
        self.candidates = 0
        self.largest = 0
        self.vanished = 0
        self.left_out = 0  # how many of the vanished the set's settings no longer take; whoever puts them knows

    def __enter__(self) -> DifferenceQueue:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def put(self, one: Candidate) -> None:
        """Add one difference."""
        self.vanished += not one.path
        self.candidates += bool(one.path)
        self.largest = max(self.largest, one.octets)
        self._block.append((one.uri, one.path, one.octets, one.known, one.rewritten))
        if len(self._block) == _BLOCK:
            self._octets.append(self._file.write(marshal.dumps(self._block, 2)))
            self._block = []

    def take(self) -> Iterator[Candidate]:
        """Everything that was put; may be asked for again."""
        self._file.seek(0)
        for octets in self._octets:
            for one in marshal.loads(self._file.read(octets)):  # noqa: S302 - our own file, which has no name
                yield Candidate(*one)
        for one in self._block:
            yield Candidate(*one)
