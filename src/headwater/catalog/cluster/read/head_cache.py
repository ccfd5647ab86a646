"""Cache of set heads: as this handle read or wrote them last, so that it need not ask for what it has just written.

A head that is known is one that was committed, and perhaps no longer the newest. So it may be written over (the
compare-and-set tells when there is a newer one), and read by whoever is content with a committed state.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import msgspec

from headwater.catalog.cluster.head import SetHead, Tail
from headwater.catalog.lease import Version

ROOM: Final = 150_000
"""Pages, segments and the like that are kept in mind: about 200 octets each."""
_OWN: Final = 16
"""What a head takes without any."""


class CachedHead(msgspec.Struct, frozen=True):
    """A head and its version; `is_applied`: what its tail says has been put into its places.

    `is_written`: by this handle, and acknowledged; one that was only read may be lost with the node that showed it.
    `is_doubted`: there is a newer one, of which nothing else is known.
    """

    head: SetHead
    version: Version
    is_applied: bool = False
    is_written: bool = False
    is_doubted: bool = False

    @property
    def weight(self) -> int:
        """How much of the room it takes."""
        head = self.head
        weight = _OWN + len(head.pages) + len(head.runs)
        if head.tail is not None:
            rows = sum(len(row.key) + len(row.value or b"") for row in head.tail.rows)
            weight += 8 * len(head.tail.changes) + len(head.tail.rows) + rows // 200
        return weight


class KnownHeads:
    """The newest heads that were seen, as many as there is room for. Use from any thread."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._known: OrderedDict[str, CachedHead] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, name: str) -> CachedHead | None:
        """The newest head of this set that was seen; None when none is known."""
        with self._lock:
            known = self._known.get(name)
        return known if known is not None and not known.is_doubted else None

    def heads(self) -> dict[str, SetHead]:
        """All heads that are known, by the names of their sets."""
        with self._lock:
            return {name: known.head for name, known in self._known.items()}

    def keep(self, head: SetHead, version: Version, *, is_written: bool = False) -> None:
        """This was read or written; what was seen already and is newer stays. Nobody is shown a hidden one."""
        if head.hidden:
            return
        with self._lock:
            before = self._known.get(head.resource_set)
            if before is None or _age(before.version) < _age(version):
                is_applied = before is not None and before.is_applied and _is_same(before.head.tail, head.tail)
                self._put(head.resource_set, CachedHead(head, version, is_applied, is_written))

    def applied(self, name: str, version: Version) -> None:
        """What the tail of this head says has been put into its places."""
        with self._lock:
            before = self._known.get(name)
            if before is not None and before.version == version:
                self._put(name, msgspec.structs.replace(before, is_applied=True))

    def doubt(self, name: str, version: Version) -> None:
        """There is a newer one than this by now. It stays as a bound: what was read before it comes too late."""
        with self._lock:
            before = self._known.get(name)
            if before is not None and before.version == version:
                self._put(name, msgspec.structs.replace(before, is_doubted=True))

    def _put(self, name: str, known: CachedHead) -> None:
        self._drop(name)
        self._known[name] = known
        self._weight += known.weight
        while self._weight > self._room:
            self._drop(next(iter(self._known)))

    def _drop(self, name: str) -> None:
        gone = self._known.pop(name, None)
        if gone is not None:
            self._weight -= gone.weight


def _is_same(one: Tail | None, other: Tail | None) -> bool:
    """Whether both say the same changes: no two that were committed have one revision."""
    return one is not None and other is not None and one.rev == other.rev


def _age(version: Version) -> tuple[int, int]:
    """Versions in the order in which they were given: the number goes on from one primary to the next."""
    return version[1], version[0]
