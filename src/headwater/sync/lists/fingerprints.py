"""Fingerprints of a Resource List, its index and components, and of a Change List: what changed (DST-B1, DST-5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from zlib import crc32

import msgspec

from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from headwater.storage.sqlite.transaction import Row
from headwater.sync.lists.entries import EntryFilter
from headwater.sync.lists.position import Position

_INDEXES = (Kind.RESOURCE_LIST_INDEX, Kind.SITEMAP_INDEX)
_LINES = msgspec.json.Encoder()


class Component(msgspec.Struct, frozen=True, array_like=True):
    """The index itself, or one component as it was read: what asks for it again, and the digest of its octets."""

    uri: str
    etag: str | None
    last_modified: str | None
    digest: str
    is_timed: bool = False
    """Whether the index states the time that the component has: while the index is what it was, so is that."""


class CompletedBaseline(msgspec.Struct, frozen=True):
    """The list of the last completed baseline: its `at`, the digest of its octets, and its components."""

    at: int | None
    print: str | None
    components: tuple[Component, ...] = ()


def is_completed(at: int | None, print_: str, done: CompletedBaseline) -> bool:
    """Whether it is the list of that `at` with the same octets: with others it was mended, or `at` means nothing."""
    return at is not None and (at, print_) == (done.at, done.print)


def digest_of(*digests: str) -> str:
    return blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()


class ListFingerprint:
    """A running digest over the entries of a list or an index: another one means that it has changed."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def take_parts(self, document: Document, entries: list[Entry]) -> None:
        """Take the next entries of an index, whose own `at` counts too: it stands for all of its components."""
        for entry in entries:
            line = f"{document.at} {document.completed} {entry.loc} {entry.at} {entry.lastmod}\n"
            self._digest.update(line.encode("utf-8", "surrogatepass"))

    def take_rows(self, rows: Sequence[Row]) -> None:
        """Take the next resources of a list; not its `at`, which a source may make anew for each answer."""
        self._digest.update(_LINES.encode_lines(rows))

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class FingerprintReader:
    """Reads a document only for its fingerprint, to see whether it has changed."""

    def __init__(self, intake: EntryFilter) -> None:
        self._intake = intake
        self._print = ListFingerprint()

    def begin(self) -> None:
        self._print = ListFingerprint()

    def take(self, document: Document, entries: list[Entry]) -> None:
        if document.kind in _INDEXES:
            self._print.take_parts(document, entries)
        else:
            self._print.take_rows(self._intake.rows(entries))

    def fingerprint(self) -> str:
        return self._print.hexdigest()


_TAIL = 16


class ChangeListFingerprint:
    """A digest over the entries of a list so far; `matches` becomes true when the first n are those of a position.

    A list that drops old entries is known again by the last ones that it had: `tail_end` is the place behind them. One
    that has something new in front of them, as one that stands newest first has, does more than that: `grows_in_front`.
    """

    def __init__(self, position: Position, uri: str, from_: int | None) -> None:
        known = position.list_before(uri, from_)
        same = known is not None and known.from_ == from_
        self._wanted = known.count if known is not None and same else 0
        self._expected = known.fingerprint if known is not None else ""
        self._known = known.tail if known is not None and same else []
        self._done_until = position.done_until
        self._recent: deque[int] = deque(maxlen=_TAIL)
        self._digest = blake2b(digest_size=16)
        self._in_front = 0
        self._behind = blake2b(digest_size=16)
        self._drops = same and from_ is None
        self.count = 0
        self.comparable = same
        self.matches = same and self._wanted == 0
        self.tail_end: int | None = None
        self._doubtful: int | None = None
        """The place of the first entry of which its time does not tell whether it was done."""

    def see(self, uri: str, change: str, low: int | None, lastmod: int | None, hash_text: str | None) -> None:
        """Take one entry, in document order."""
        line = f"{uri}\0{change}\0{low}\0{lastmod}\0{hash_text}\n".encode("utf-8", "surrogatepass")
        self._digest.update(line)
        self._recent.append(crc32(line))
        time = lastmod if low is None else low
        is_later = time is not None and self._done_until is not None and time > self._done_until
        if is_later and self._in_front == self.count:
            self._in_front += 1
        elif self._in_front:
            self._behind.update(line)
        self.count += 1
        if self.tail_end is None and is_later:
            self._drops = False
        if self.count == self._wanted:
            self.matches = self._digest.hexdigest() == self._expected
        if self._known and self.tail_end is None and self._recent[-1] == self._known[-1]:
            several = min(len(self._recent), len(self._known))
            if list(self._recent)[-several:] == self._known[-several:]:
                self.tail_end = self.count
                if self._doubtful is not None and self._doubtful <= self.count - several:
                    self._drops = False

    def see_news(self) -> None:
        """The entry that was seen last is none of those that were done at its time."""
        if self.tail_end is None:
            self._drops = False

    def see_doubtful(self) -> None:
        """The entry that was seen last may be none of those that were done, unless it is among the last of them."""
        if self._doubtful is None:
            self._doubtful = self.count

    @property
    def has_dropped(self) -> bool:
        """Whether old entries have left a list that does not say since when it tells changes, and nothing else."""
        return self._drops and not self.matches and self.tail_end is not None and self.tail_end < self._wanted

    @property
    def done(self) -> int | None:
        """How many entries at the front are known to be done; None where nothing is known of the list."""
        if self.has_dropped and self.tail_end is not None:
            return self.tail_end
        return self._wanted if self.matches else None

    @property
    def beyond(self) -> bool:
        """Whether the next entry is behind those of the list that were there before."""
        return self.comparable and (self.count >= self._wanted or self.has_dropped)

    @property
    def grows_in_front(self) -> bool:
        """Whether behind entries that are all later than what was done there are those of before, and no others."""
        return self.count == self._in_front + self._wanted and self._behind.hexdigest() == self._expected

    @property
    def rewritten(self) -> bool:
        """Whether the list is the one we know, and what was read of it is neither at its beginning nor its end."""
        return self.comparable and not self.matches and not self.has_dropped and not self.grows_in_front

    @property
    def tail(self) -> list[int]:
        """The checksums of the last entries seen."""
        return list(self._recent)

    def hexdigest(self) -> str:
        """The digest over all entries seen."""
        return self._digest.hexdigest()
