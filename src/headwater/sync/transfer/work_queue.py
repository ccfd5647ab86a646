"""The resources that are to be fetched for one set: the rows of `temp.work`, and what they amount to."""

from __future__ import annotations

import msgspec

ADD_WORK = (
    "INSERT OR REPLACE INTO temp.work(uri, loc, path, held, lastmod, length, hash, type, encoding, mirrors,"
    " changed_at, known_at, etag, last_modified, tries) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class PlanCounts(msgspec.Struct):
    """What a plan, and then a run, amounts to for one set."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    waiting: int = 0
    refused: int = 0
    left_out: int = 0
    held_back: int = 0
    adopted: int = 0
    octets: int = 0


COLUMNS = (
    "n, uri, loc, path, held, lastmod, length, hash, type, encoding, mirrors, changed_at, known_at, etag,"
    " last_modified, tries, step, reason"
)
"""Those of `temp.work` that make a `Work`, in its order."""


class Work(msgspec.Struct, frozen=True, gc=False):
    """One row of `temp.work`: a resource to be fetched, and which way comes next."""

    n: int
    uri: str
    loc: str
    path: bytes
    held: int | None
    lastmod: int | None
    length: int | None
    hash: str | None
    type: str | None
    encoding: str | None
    mirrors: str | None
    changed_at: int | None
    known_at: int | None
    etag: str | None
    last_modified: str | None
    tries: int | None
    step: int
    reason: str | None
    intent: int = 0

    @property
    def name(self) -> str:
        """Its temporary file, of this way alone."""
        return f"{self.n}-{self.step}"
