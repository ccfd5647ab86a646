"""Claims on a search cluster: one document for each role, beside the heads of the sets.

As with the lease of a set, whoever waits takes over when the document has not changed for as long as its holder said,
by the clock of the one who waits (`cluster_lease`).
"""

from __future__ import annotations

import time
from uuid import uuid4

import msgspec

from headwater.catalog.cluster_head import short
from headwater.catalog.cluster_indices import Indices, Version

_NOT_FOUND, _CONFLICT = 404, 409


class ClaimDocument(msgspec.Struct, frozen=True):
    """`token` is empty when nobody holds the role; `beat` makes each renewal another version."""

    claim: str
    token: str
    who: str
    seconds: float
    beat: int


class _Found(msgspec.Struct, frozen=True):
    source: ClaimDocument | None = msgspec.field(name="_source", default=None)
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)


_found = msgspec.json.Decoder(_Found).decode


class ClusterClaim:
    """One process's claim to one role; see `claims.Claim`."""

    def __init__(self, indices: Indices, role: str, who: str, seconds: float) -> None:
        self.seconds = seconds
        self._indices = indices
        self._role = role
        self._who = who
        self._token = uuid4().hex
        self._path = f"/{indices.set}/{{}}/{short('claim', role)}"
        self._seen: tuple[Version, float] | None = None
        self._until = 0.0
        self._beat = 0
        self._holder = ""

    @property
    def holder(self) -> str:
        """Who had it when it was last asked for; empty when nobody did."""
        return self._holder

    def holds(self) -> bool:
        """Whether it is surely ours now: others wait for as long from a later moment on."""
        return time.monotonic() < self._until

    def take(self) -> bool:
        """Ask once: take or renew it; whether it is ours. Raises ClusterFault."""
        now = time.monotonic()
        found = self._look()
        document = found.source
        self._holder = document.who if document is not None and document.token else ""
        if document is not None and document.token not in ("", self._token) and not self._is_overdue(found, now):
            self._until = 0.0
            return False
        self._beat += 1
        if not self._write(ClaimDocument(self._role, self._token, self._who, self.seconds, self._beat), found):
            mine = self._look().source  # somebody was quicker, or the answer was lost
            if mine is None or (mine.token, mine.beat) != (self._token, self._beat):
                self._until = 0.0
                return False
        self._holder, self._until = self._who, now + self.seconds
        return True

    def release(self) -> None:
        """Let others have it at once. No effect when it is not ours."""
        self._until = 0.0
        found = self._look()
        if found.source is not None and found.source.token == self._token:
            self._write(msgspec.structs.replace(found.source, token=""), found)

    def _is_overdue(self, found: _Found, now: float) -> bool:
        version = (found.seq_no, found.primary_term)
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return found.source is not None and now - self._seen[1] > found.source.seconds

    def _look(self) -> _Found:
        answer = self._indices.cluster.ask("GET", self._path.format("_doc"), accept=(_NOT_FOUND,))
        return _found(answer.body) if answer.status != _NOT_FOUND else _Found()

    def _write(self, document: ClaimDocument, over: _Found) -> bool:
        body = msgspec.json.encode(document)
        if over.source is None:
            path = f"{self._path.format('_create')}?require_alias=true"
        else:
            condition = f"if_seq_no={over.seq_no}&if_primary_term={over.primary_term}&require_alias=true"
            path = f"{self._path.format('_doc')}?{condition}"
        return self._indices.cluster.ask("PUT", path, body, accept=(_CONFLICT,)).status != _CONFLICT
