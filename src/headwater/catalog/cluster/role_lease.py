"""Leases of roles on a search cluster: one document for each role, beside the heads of the sets.

The first who waits is written down: who gives the role back and wants it again at once, batch after batch, lets him
have it first.
"""

from __future__ import annotations

import time
from uuid import uuid4

import msgspec

from headwater.catalog.cluster.documents import short
from headwater.catalog.cluster.indices import Indices, VersionedDocument, VersionedDocuments
from headwater.catalog.lease import HeldBy, LeaseTerm, LeaseWatch

_GRACE_SECONDS = 1.0
"""So long a role that was given back is kept for the one who waits."""


class _RoleDocument(msgspec.Struct, frozen=True):
    """`token` is empty when nobody holds the role; `beat` makes each renewal another version; `next` is who waits."""

    role: str = msgspec.field(name="claim")
    token: str
    who: str
    seconds: float
    beat: int
    next: str = ""

    @property
    def held_by(self) -> HeldBy | None:
        """Who has the role, or is to have it next."""
        if self.token:
            return HeldBy(self.token, self.seconds)
        return HeldBy(self.next, _GRACE_SECONDS) if self.next else None


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
            if found is not None and self._watch.judge(found.source.held_by, found.version, now) is not None:
                self._term.end()
                self._wait_for(found)
                return False
            is_renewed = there is not None and there.token == self._token
            waiting = there.next if there is not None and is_renewed else ""
            self.turn += not is_renewed
            asked = now
            wanted = _RoleDocument(self._role, self._token, self._who, self.seconds, self._beat, waiting)
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

    def _wait_for(self, found: VersionedDocument[_RoleDocument]) -> None:
        """Be the first who waits. It is no sign of life of the holder: his silence goes on."""
        if found.source.token and not found.source.next:
            waiting = msgspec.structs.replace(found.source, next=self._token)
            version = self._documents.put(self._id, waiting, found.version)
            if version is not None:
                self._watch.wrote(version)
