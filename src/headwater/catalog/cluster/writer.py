"""Leases on a search cluster, and who may take one over: the writer of a set, which commits by compare-and-set; roles.

Every write of the head is a compare-and-set with a stamp of its own, so that a lost answer is found out about by
looking. What was committed but not applied (the tail) is done again by whoever comes next.

The lease of a role is a document of its own, beside the heads of the sets.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from headwater.catalog.cluster.documents import StoredResource, after_change, change_operations, redone_operation, short
from headwater.catalog.cluster.head import SetHead, Tail, is_free_head, overtaken, stamped, valid
from headwater.catalog.cluster.indices import Indices, VersionedDocument, VersionedDocuments
from headwater.catalog.lease import HeldBy, LeaseTerm, LeaseWatch, Version
from headwater.errors import StoreFault
from headwater.progress import Listener, Notice
from headwater.storage.cluster import ClusterDamaged, ClusterFault, ClusterUnreachable

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.004, 0.25

R = TypeVar("R")


class Overtaken(Exception):
    """The head is no longer as we left it; `landed`: what we wrote last had been there before."""

    def __init__(self, *, landed: bool) -> None:
        super().__init__(landed)
        self.landed = landed


class Writer:
    """What all turns of one handle share. `lease_seconds` is how long its silence is borne by others."""

    def __init__(self, indices: Indices, *, lease_seconds: float, busy_seconds: float, listener: Listener) -> None:
        self.indices = indices
        self.lease_seconds = lease_seconds
        self.busy_seconds = busy_seconds
        self.listener = listener
        self.token = uuid4().hex
        self._numbers = itertools.count()
        self._watches: dict[str, LeaseWatch] = {}

    def stamp(self) -> str:
        """A name for one write of a head, never used again."""
        return f"{self.token}.{next(self._numbers)}"

    def silence(self, name: str, head: SetHead, version: Version, now: float) -> float | None:
        """For how long whoever else holds a set was not heard of, also before: nobody is waited for anew.

        None: a lease of this very handle, left behind by a call that failed, is taken over like one that has expired.
        """
        silence = self._watches.setdefault(name, LeaseWatch(self.token)).silence(head.lease, version, now)
        if is_free_head(head):
            self._watches.pop(name, None)
        return silence


class SetWriter:
    """`head` is the set's head as it was last read or written here. Not for two threads at once."""

    _now: VersionedDocument[SetHead]
    _wrote: bool

    def __init__(self, writer: Writer, name: str) -> None:
        self.writer = writer
        self.indices = writer.indices
        self.name = name
        self._term = LeaseTerm(writer.lease_seconds)
        """How long the lease is surely ours: each write of the head renews it."""

    @property
    def head(self) -> SetHead:
        return self._now.source

    def edit(self, change: Callable[[SetHead], SetHead]) -> SetHead:
        """Replace the head by what `change` makes of it, while nobody holds the lease; the new head."""
        started = time.monotonic()
        while True:
            self._free(started)
            new = change(self.head)
            try:
                self.put(new)
            except Overtaken as lost:
                if not lost.landed:
                    continue
            return new

    def run(self, work: Callable[[], R]) -> R:
        """Do the work while holding the lease; anew when it was lost before anything was committed."""
        while True:
            self._take(time.monotonic())
            try:
                return work()
            except Overtaken:
                continue
            except ClusterUnreachable:
                raise  # nobody is there to give the lease back to
            except BaseException:
                with suppress(Overtaken, ClusterFault):  # the first fault is the one to tell
                    self.put(overtaken(self.head) if self._wrote else replace(self.head, lease=None))
                raise

    def write(self, index: str, operations: Iterator[bytes]) -> bool:
        """Send documents, keeping the lease; whether none met a newer one. Raises Overtaken."""
        self._wrote = True
        return self.indices.cluster.stream(index, operations, self.keep)

    def write_ahead(self, index: str, operations: Iterator[bytes]) -> None:
        """Send what the next commit makes valid. Raises Overtaken: only an overtaker has written newer ones."""
        if not self.write(index, operations):
            raise self._damage("documents are newer than the head of their set")

    def commit(self, head: SetHead) -> bool:
        """Replace the head; False: it was, but we have been overtaken since. Raises Overtaken: it was not."""
        before = self.head.rev
        try:
            self.put(head)
        except Overtaken as lost:
            if lost.landed or (head.rev > before and valid(self.head, head.rev)):
                return False
            raise
        return True

    def finish(self, documents: Iterable[StoredResource] = ()) -> None:
        """Put what is committed, these and the rows, into its place, and give the lease back.

        What fails here is left to whoever comes next.
        """
        operations = map(redone_operation, documents)
        try:
            self.write(self.indices.resource, chain(operations, self.indices.row_operations(self.name, self.head.tail)))
            self.release()
        except Overtaken:
            return  # who overtook us has done it
        except ClusterFault as fault:
            self.writer.listener(Notice(fault.code, f"{fault.what}; recorded, to be applied later", self.name))

    def release(self) -> None:
        """Give the lease back with nothing left to do. Raises Overtaken: what was read meanwhile may be of no state.

        What others have written since they took over is beyond our head, and looks as if it were not there.
        """
        try:
            self.put(replace(self.head, lease=None, tail=None))
        except Overtaken as lost:
            if not lost.landed:
                raise

    def put(self, head: SetHead) -> None:
        """Write the head over the one that was last read or written. Raises Overtaken, with `head` the one found."""
        version, before = self._now.version, self.head.stamps[-1]
        new = stamped(head, self.writer.stamp())
        tried = {new.stamps[-1]}
        while True:
            asked_at = time.monotonic()
            written = self.indices.put_head(new, version)
            if written is not None:
                self._now = written
                self._term.renewed(asked_at)
                return
            found = self.indices.head(self.name)
            version, stamp = found.version, found.source.stamps[-1]
            if stamp in tried:  # the answer was lost, and a primary shows what not every copy has: once more
                new = stamped(head, self.writer.stamp())
                tried.add(new.stamps[-1])
            elif stamp != before:
                self._now = found
                raise Overtaken(landed=not tried.isdisjoint(found.source.stamps))
            # Else the same head under another primary: try again.

    def keep(self) -> None:
        """Renew the lease when it is time. Raises Overtaken."""
        if self._term.is_due(time.monotonic()):
            self.put(self.head)

    def _take(self, started: float) -> None:
        while True:
            self._free(started)
            self._wrote = False
            try:
                self.put(replace(self.head, lease=self._lease()))
            except Overtaken:
                continue
            return

    def _lease(self) -> HeldBy:
        return HeldBy(self.writer.token, self.writer.lease_seconds)

    def _free(self, started: float) -> None:
        """Wait until nobody holds the lease and nothing is left to do. Raises UnknownSet, StoreFault."""
        while True:
            self._now = self.indices.head(self.name)
            now, lease = time.monotonic(), self.head.lease
            silence = self.writer.silence(self.name, self.head, self._now.version, now)
            if is_free_head(self.head):
                return
            if lease is None or silence is None:
                self._take_over()
                continue
            if now - started > self.writer.busy_seconds:
                what = f"writer {lease.token} has held the lease for the {now - started:.0f} s that we waited"
                raise StoreFault(what, code="HW-CAT-08", where=self.name)
            # Whoever writes batch after batch leaves only moments in between: while the head moves, look often.
            time.sleep(min(max(silence / 4, _SHORTEST_PAUSE), _LONGEST_PAUSE, lease.seconds - silence))

    def _take_over(self) -> None:
        """End the turn of a writer that is gone: what it committed is applied, what it did not is void."""
        with suppress(Overtaken):  # by somebody who does the same
            self.put(replace(overtaken(self.head), lease=self._lease()))
            if self.head.tail is not None:
                self.write(self.indices.resource, self._left(self.head.tail))
            self.put(replace(self.head, lease=None, tail=None))

    def _left(self, tail: Tail) -> Iterator[bytes]:
        """The operations that a tail says are to be done, which nobody may do without a lease."""
        yield from self.indices.row_operations(self.name, tail)
        yield from change_operations(tail.changes, self.indices.change)
        if tail.journal:
            for number, entry in enumerate(self.indices.journal_of(self.name, tail)):
                if entry is None or entry.rev != tail.rev + number:
                    raise self._damage(f"entry {number} of the journal is missing")
                yield redone_operation(entry.redo)
            return
        changes = tail.changes or self.indices.changes_of(self.name, tail.first, tail.first + tail.count - 1)
        for number, change in enumerate(changes):
            if change is None or change.rev != tail.rev + number:
                raise self._damage(f"change {tail.first + number} is missing")
            document = after_change(change)
            if document is not None:
                yield redone_operation(document)

    def _damage(self, what: str) -> Overtaken | ClusterDamaged:
        """What cannot be while we hold the lease: have we lost it?"""
        before = self.head.stamps[-1]
        self._now = self.indices.head(self.name)
        return ClusterDamaged(what, where=self.name) if self.head.stamps[-1] == before else Overtaken(landed=False)


class _RoleDocument(msgspec.Struct, frozen=True):
    """`token` is empty when nobody holds the role; `beat` makes each renewal another version."""

    role: str = msgspec.field(name="claim")
    token: str
    who: str
    seconds: float
    beat: int

    @property
    def held_by(self) -> HeldBy | None:
        """Who has the role."""
        return HeldBy(self.token, self.seconds) if self.token else None


class RoleLease:
    """One process's lease of one role; see `lease.Lease`."""

    def __init__(self, indices: Indices, role: str, who: str, seconds: float) -> None:
        self.seconds = seconds
        self._documents = VersionedDocuments(indices.cluster, indices.set, _RoleDocument)
        self._id = f"claim-{short(role)}"
        self._role = role
        self._who = who
        self._token = uuid4().hex
        self._watch = LeaseWatch(self._token)
        self._term = LeaseTerm(seconds)
        self._beat = 0
        self.holder = ""
        self.turn = 0

    def holds(self) -> bool:
        """Whether it is surely ours now: others wait for as long from a later moment on."""
        return self._term.is_held(time.monotonic())

    def take(self) -> bool:
        """Ask once: take or renew it; whether it is ours. Raises ClusterFault."""
        self._beat += 1
        asked = 0.0
        while True:
            now = time.monotonic()
            found = self._documents.get(self._id)
            there = None if found is None else found.source
            self.holder = there.who if there is not None and there.token else ""
            if there is not None and (there.token, there.beat) == (self._token, self._beat):
                break  # the answer was lost
            if found is not None and self._watch.silence(found.source.held_by, found.version, now) is not None:
                self._term.end()
                return False
            self.turn += there is None or there.token != self._token
            asked = now
            wanted = _RoleDocument(self._role, self._token, self._who, self.seconds, self._beat)
            if self._documents.put(self._id, wanted, None if found is None else found.version) is not None:
                break
        self.holder = self._who
        self._term.renewed(asked)
        return True

    def release(self) -> None:
        """Let others have it at once. No effect when it is not ours."""
        self._term.end()
        while (found := self._documents.get(self._id)) is not None and found.source.token == self._token:
            given_back = msgspec.structs.replace(found.source, token="")
            if self._documents.put(self._id, given_back, found.version) is not None:
                return
