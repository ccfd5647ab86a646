"""Partial downloads kept over runs: `tmp/part-…`, listed in the state, bounded in number and age.

They are not trusted: the whole is hashed when the rest has come (`transport.response`). So only what has a digest in
the list is kept, and a part is used only where the list still says what it said when the body began.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import cast

from headwater.spec.records import Digest
from headwater.storage.database import Database
from headwater.sync.source_times import SECOND
from headwater.sync.state import PARTIAL_PREFIX
from headwater.sync.transfer.work_queue import WAITING_ROUND, Work
from headwater.transport.fetch import Fetch, Fetched
from headwater.transport.response import PartialBody
from headwater.transport.scheduler import RETRIED_STATUSES

MOST_PARTS = 1_000
LONGEST_SECONDS = 14 * 86_400
"""So many are kept, and for so long after they last grew."""

_MAY_COME_LATER = RETRIED_STATUSES | {401, 403}  # a token may have run out
_KEEP = (
    "INSERT OR REPLACE INTO partials(name, set_id, uri, href, hash, validator, total, began_at, boot)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')"
)
_STILL_WANTED = (
    "SELECT uri FROM failures WHERE set_id = ? AND uri IN (SELECT uri FROM partials)"
    " UNION SELECT uri FROM temp.work WHERE round = ?"
)


class PartialDownloads:
    """The partial downloads of one set, for the transport, which reads and adds to them (a `PartStore`)."""

    def __init__(self, database: Database, temp: str, set_id: int, now: Callable[[], int]) -> None:
        self._database = database
        self._temp = temp
        self._set = set_id
        self._now = now
        self._taken: dict[str, int] = {}
        """The parts that are being gone on with, by the number of the work."""

        self._brought: dict[int, int] = {}
        """How many octets of a body an earlier run had received, by the number of the work."""

        with database.read() as t:
            rows = t.rows("SELECT href, uri, hash, validator, total FROM partials WHERE set_id = ?", (set_id,))
            self._rows: dict[str, tuple[str, str | None, str, int]] = {
                row[0]: (row[1], row[2], row[3], row[4]) for row in rows
            }
        self._earlier = set(self._rows)

    def _name(self, href: str) -> str:
        """The file of the body that is asked for at an address."""
        octets = f"{self._set}\n{href}".encode("utf-8", "surrogatepass")
        return PARTIAL_PREFIX + hashlib.sha256(octets).hexdigest()[:32]

    def kept(self, fetch: Fetch) -> PartialBody | None:
        """What there is of this body, if it may be gone on with."""
        work, wanted = cast("tuple[Work, Digest | None]", fetch.key)
        href = fetch.uri
        self._brought.pop(work.n, None)
        if href not in self._rows or href in self._taken:
            return None
        uri, hash_, validator, total = self._rows[href]
        path = f"{self._temp}/{self._name(href)}"
        octets = _size(path)
        is_same = wanted is not None and (work.uri, work.hash) == (uri, hash_)
        if not is_same or not work.attempt.keeps_parts or work.encoding or not 0 < octets <= total:
            self._forget(href)
            return None
        self._taken[href] = work.n
        octets = min(octets, total - 1)
        if href in self._earlier:
            self._brought[work.n] = octets
        return PartialBody(path, octets, validator, total)

    def begun(self, fetch: Fetch, validator: str, total: int) -> str | None:
        """Note that a body begins; None: it is not to be kept."""
        work, wanted = cast("tuple[Work, Digest | None]", fetch.key)
        href = fetch.uri
        if wanted is None or not work.attempt.keeps_parts or self._taken.get(href, work.n) != work.n:
            return None
        if href not in self._rows and len(self._rows) >= MOST_PARTS:
            return None
        name = self._name(href)
        _remove(f"{self._temp}/{name}")
        with self._database.write() as t:
            t.run(_KEEP, (name, self._set, work.uri, href, work.hash, validator, total, self._now()))
        self._rows[href] = work.uri, work.hash, validator, total
        self._taken[href] = work.n
        self._earlier.discard(href)
        self._brought.pop(work.n, None)
        return f"{self._temp}/{name}"

    def brought_along(self, work: Work) -> int:
        """How many octets of this body an earlier run had received, where it was gone on with."""
        return self._brought.pop(work.n, 0)

    def settled(self, fetched: Fetched) -> None:
        """A fetch is over: what another run may go on with stays, everything else of it is forgotten."""
        href = fetched.fetch.uri
        if href in self._rows and self._taken.get(href, -1) == cast("tuple[Work, object]", fetched.fetch.key)[0].n:
            del self._taken[href]
            failure = fetched.failure
            passing = failure.passing if failure is not None else fetched.status in _MAY_COME_LATER
            if not passing or not _size(f"{self._temp}/{self._name(href)}"):
                self._forget(href)

    def clean(self) -> None:
        """What could be fetched has been: only what is remembered as failed, or waits for its turn, is still wanted."""
        if not self._rows:
            return
        with self._database.write() as t:
            wanted = {row[0] for row in t.rows(_STILL_WANTED, (self._set, WAITING_ROUND))}
        for href, row in list(self._rows.items()):
            if row[0] not in wanted:
                self._forget(href)

    def _forget(self, href: str) -> None:
        del self._rows[href]
        name = self._name(href)
        _remove(f"{self._temp}/{name}")
        with self._database.write() as t:
            t.run("DELETE FROM partials WHERE name = ?", (name,))


def sweep(database: Database, temp: str, now: int) -> None:
    """At the beginning of a run: forget parts that are gone, too old or of no set, and remove what is not listed."""
    names = [name for name in os.listdir(temp) if name.startswith(PARTIAL_PREFIX)]
    with database.read() as t:
        if not names and t.one("SELECT 1 FROM partials LIMIT 1") is None:
            return
    with database.write() as t:
        listed = {row[0] for row in t.rows("SELECT name FROM partials WHERE set_id IN (SELECT id FROM sets)")}
        for name in names:
            if name not in listed or now // SECOND - os.lstat(f"{temp}/{name}").st_mtime > LONGEST_SECONDS:
                _remove(f"{temp}/{name}")
        lost = [(name,) for name in listed if not _size(f"{temp}/{name}")]
        t.many("DELETE FROM partials WHERE name = ?", lost)
        t.run("DELETE FROM partials WHERE set_id NOT IN (SELECT id FROM sets)")


def _size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if (found.st_mode & 0o170000) == 0o100000 else 0


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
