"""Distributed locks on a search cluster: one document for each role, beside the heads of the sets.

As with the lease of a set, whoever waits takes over when the document has not changed for as long as its holder said,
by the clock of the one who waits (`lease`). The first who waits is written down: who gives the role back and
wants it again at once, batch after batch, lets him have it first.
"""

from __future__ import annotations

import time
from uuid import uuid4

import msgspec

from headwater.catalog.cluster.document_names import short
from headwater.catalog.cluster.indices import Indices
from headwater.catalog.cluster.read.head_cache import Version

_NOT_FOUND, _CONFLICT = 404, 409
_GRACE_SECONDS = 1.0
"""So long a role that was given back is kept for the one who waits."""


class ClaimDocument(msgspec.Struct, frozen=True):
    """`token` is empty when nobody holds the role; `beat` makes each renewal another version; `next` is who waits."""

    claim: str
    token: str
    who: str
    seconds: float
    beat: int
    next: str = ""


class _Written(msgspec.Struct, frozen=True):
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")


class _Found(msgspec.Struct, frozen=True):
    source: ClaimDocument | None = msgspec.field(name="_source", default=None)
    seq_no: int = msgspec.field(name="_seq_no", default=-1)
    primary_term: int = msgspec.field(name="_primary_term", default=-1)


_found = msgspec.json.Decoder(_Found).decode
_written = msgspec.json.Decoder(_Written).decode


class ClusterClaim:
    """One process's claim to one role; see `claims.Claim`."""

    def __init__(self, indices: Indices, role: str, who: str, seconds: float) -> None:
        self.seconds = seconds
        self._indices = indices
        self._role = role
        self._who = who
        self._token = uuid4().hex
        self._path = f"/{indices.set}/{{}}/claim-{short(role)}"
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
        self._beat += 1
        asked = 0.0
        while True:
            now = time.monotonic()
            found = self._look()
            document = found.source
            self._holder = document.who if document is not None and document.token else ""
            if document is not None and (document.token, document.beat) == (self._token, self._beat):
                break  # the answer was lost
            if document is not None and not self._may_take(document, self._silence(found, now)):
                self._until = 0.0
                self._wait_for(document, found)
                return False
            waiting = document.next if document is not None and document.token == self._token else ""
            asked = now
            if self._write(ClaimDocument(self._role, self._token, self._who, self.seconds, self._beat, waiting), found):
                break
        self._holder, self._until = self._who, asked + self.seconds
        return True

    def release(self) -> None:
        """Let others have it at once. No effect when it is not ours."""
        self._until = 0.0
        while True:
            found = self._look()
            if found.source is None or found.source.token != self._token:
                return
            if self._write(msgspec.structs.replace(found.source, token=""), found):
                return

    def _may_take(self, document: ClaimDocument, silence: float) -> bool:
        if document.token:
            return document.token == self._token or silence > document.seconds
        return document.next in ("", self._token) or silence > _GRACE_SECONDS

    def _wait_for(self, document: ClaimDocument, found: _Found) -> None:
        """Be the first who waits. It is no sign of life of the holder: his silence goes on."""
        if document.token and not document.next and self._seen is not None:
            version = self._write(msgspec.structs.replace(document, next=self._token), found)
            if version is not None:
                self._seen = (version, self._seen[1])

    def _silence(self, found: _Found, now: float) -> float:
        version = (found.seq_no, found.primary_term)
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1]

    def _look(self) -> _Found:
        answer = self._indices.cluster.ask("GET", self._path.format("_doc"), accept=(_NOT_FOUND,))
        return _found(answer.body) if answer.status != _NOT_FOUND else _Found()

    def _write(self, document: ClaimDocument, over: _Found) -> Version | None:
        body = msgspec.json.encode(document)
        if over.source is None:
            path = f"{self._path.format('_create')}?require_alias=true"
        else:
            condition = f"if_seq_no={over.seq_no}&if_primary_term={over.primary_term}&require_alias=true"
            path = f"{self._path.format('_doc')}?{condition}"
        answer = self._indices.cluster.ask("PUT", path, body, accept=(_CONFLICT,))
        if answer.status == _CONFLICT:
            return None
        written = _written(answer.body)
        return written.seq_no, written.primary_term
