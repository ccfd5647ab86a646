"""Whether Change Lists read on from where the copy was, and what decides otherwise (DST-C10)."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

from headwater.sync.lists.position import Position, ReadList


class Invariant(Enum):
    """The three sentences by which a copy follows its source; the manual and the tests say them in the same words."""

    FOLLOWED = (
        "Change Lists are followed only while they read on from where the copy was: the same `from`, what was read"
        " before is still there unchanged and comes first, times do not fall."
    )
    BASELINE = (
        "Whatever is otherwise means a baseline from the Resource List; without a usable one the run ends with 5 and"
        " says which sentence was broken."
    )
    WORD = (
        "The hash decides for each resource, and a deletion is done only on the word of a list of kind 1 or of a"
        " complete Resource List."
    )


class Break(Enum):
    """What of `Invariant.FOLLOWED` does not hold, as the notice and the error say it."""

    EARLIER = "the Change List begins earlier than before"
    LATER = "a Change List begins later than it did"
    REWRITTEN = "what was read of the Change List is not there any more"
    LAST = "the Change Lists do not have the changes any more that were done last"
    SHORT = "no Change List reaches as far any more as they were read"
    FALLEN = "the times of the Change List fall"


class ChangeListFingerprint:
    """A digest over the entries of a list so far; `matches` becomes true when the first n are those of a position."""

    def __init__(self, position: Position, uri: str, from_: int | None) -> None:
        known = position.list_before(uri, from_)
        self.comparable = known is not None and known.from_ == from_
        """Whether the list is one that was read before."""

        self._known: ReadList | None = known if self.comparable else None
        self._digest = blake2b(digest_size=16)
        self.count = 0
        self.matches = self._known is not None and self._known.count == 0

    def see(self, uri: str, change: str, low: int | None, lastmod: int | None, hash_text: str | None) -> None:
        """Take one entry, in document order."""
        self._digest.update(f"{uri}\0{change}\0{low}\0{lastmod}\0{hash_text}\n".encode("utf-8", "surrogatepass"))
        self.count += 1
        if self._known is not None and self.count == self._known.count:
            self.matches = self._digest.hexdigest() == self._known.fingerprint

    @property
    def done(self) -> int | None:
        """How many entries at the front are known to be done; None where nothing is known of the list."""
        return self._known.count if self._known is not None and self.matches else None

    @property
    def beyond(self) -> bool:
        """Whether the next entry is behind those of the list that were there before."""
        return self._known is not None and self.count >= self._known.count

    @property
    def rewritten(self) -> bool:
        """Whether the list is the one we know, and what was read of it is not at its beginning any more."""
        return self.comparable and not self.matches

    def hexdigest(self) -> str:
        """The digest over all entries seen."""
        return self._digest.hexdigest()
