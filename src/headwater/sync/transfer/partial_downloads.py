"""Partial downloads kept over runs: `tmp/part-…`, listed in the state, bounded in number, size and age.

They are not trusted: the whole is hashed when the rest has come (`transport.response`). One is used only where the
list still says what it said when the body began; where it gives no hash, only by a strong entity tag, and only as long
as the machine has not gone down since, because these files are not flushed to disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import cast

import msgspec

from headwater.storage.database import Database
from headwater.sync.copy.file_tree import boot_id
from headwater.sync.source_times import SECOND
from headwater.sync.state import PARTIAL_PREFIX
from headwater.sync.transfer.work_queue import WAITING_ROUND, Work
from headwater.transport.fetch import Fetch, Fetched
from headwater.transport.response import PartialBody
from headwater.transport.scheduler import RETRIED_STATUSES, site_of

MOST_PARTS = 1_000
MOST_OCTETS = 64 << 30
LONGEST_SECONDS = 14 * 86_400
"""So many are kept, of so many octets together, and for so long after they last grew."""

_MAY_COME_LATER = RETRIED_STATUSES | {401, 403}  # a token may have run out


class _Row(msgspec.Struct, frozen=True):
    """A row of `partials`; the fields are its columns."""

    name: str
    set_id: int
    uri: str
    href: str
    hash: str | None
    validator: str
    total: int
    began_at: int
    boot: str


_COLUMNS = ", ".join(_Row.__struct_fields__)
_KEEP = f"INSERT OR REPLACE INTO partials({_COLUMNS}) VALUES ({', '.join('?' * len(_Row.__struct_fields__))})"  # noqa: S608
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
        self._boot = boot_id()
        self._taken: dict[str, int] = {}
        self._brought: dict[int, int] = {}
        with database.read() as t:
            rows = t.rows(f"SELECT {_COLUMNS} FROM partials WHERE set_id = ?", (set_id,))  # noqa: S608
            self._rows = {row.href: row for row in (_Row(*row) for row in rows)}
        self._earlier = {row.name for row in self._rows.values()}

    def kept(self, fetch: Fetch) -> PartialBody | None:
        """What there is of this body, if it may be gone on with."""
        work = _work(fetch)
        self._brought.pop(work.n, None)
        row = self._rows.get(fetch.uri)
        if row is None or row.name in self._taken:
            return None
        path = f"{self._temp}/{row.name}"
        octets = _size(path)
        if work.uri != row.uri or not work.attempt.keeps_parts or not octets or not self._may_go_on(row, fetch, octets):
            self._forget(row)
            return None
        self._taken[row.name] = work.n
        if row.name in self._earlier:
            self._brought[work.n] = min(octets, row.total - 1)
        site = "" if _is_verified(fetch) else site_of(row.href) or ""
        return PartialBody(path, min(octets, row.total - 1), row.validator, row.total, site)

    def _may_go_on(self, row: _Row, fetch: Fetch, octets: int) -> bool:
        work = _work(fetch)
        if octets > row.total or row.hash != work.hash or work.encoding:
            return False
        return _is_verified(fetch) or (row.validator.startswith('"') and bool(row.boot) and row.boot == self._boot)

    def begun(self, fetch: Fetch, validator: str, total: int, site: str) -> str | None:
        """Note that a body begins; None: it is not to be kept."""
        work = _work(fetch)
        name = (
            PARTIAL_PREFIX
            + hashlib.sha256(f"{self._set}\n{fetch.uri}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        )
        if not work.attempt.keeps_parts or self._taken.get(name, work.n) != work.n:
            return None
        if not _is_verified(fetch) and site != site_of(fetch.uri):
            return None
        if fetch.uri not in self._rows and len(self._rows) >= MOST_PARTS:
            return None
        row = _Row(name, self._set, work.uri, fetch.uri, work.hash, validator, total, self._now(), self._boot)
        path = f"{self._temp}/{name}"
        _remove(path)
        with self._database.write() as t:
            t.run(_KEEP, msgspec.structs.astuple(row))
        self._rows[fetch.uri] = row
        self._taken[name] = work.n
        self._earlier.discard(name)
        self._brought.pop(work.n, None)
        return path

    def brought_along(self, work: Work) -> int:
        """How many octets of this body an earlier run had received, where it was gone on with."""
        return self._brought.pop(work.n, 0)

    def settled(self, fetched: Fetched) -> None:
        """A fetch is over: what another run may go on with stays, everything else of it is forgotten."""
        if not self._rows:
            return
        row = self._rows.get(fetched.fetch.uri)
        if row is None or self._taken.get(row.name, -1) != _work(fetched.fetch).n:
            return
        del self._taken[row.name]
        failure = fetched.failure
        passing = failure.passing if failure is not None else fetched.status in _MAY_COME_LATER
        if not passing or not _size(f"{self._temp}/{row.name}"):
            self._forget(row)
            return
        self._keep_within_bounds()

    def _keep_within_bounds(self) -> None:
        """Forget the oldest while there are more octets than are kept; what is being fetched is no concern of this."""
        waiting = [row for row in self._rows.values() if row.name not in self._taken]
        sizes = {row.name: _size(f"{self._temp}/{row.name}") for row in waiting}
        for row in sorted(waiting, key=lambda row: row.began_at):
            if sum(sizes.values()) <= MOST_OCTETS:
                return
            del sizes[row.name]
            self._forget(row)

    def clean(self) -> None:
        """What could be fetched has been: only what is remembered as failed, or waits for its turn, is still wanted."""
        if not self._rows:
            return
        with self._database.write() as t:
            wanted = {row[0] for row in t.rows(_STILL_WANTED, (self._set, WAITING_ROUND))}
        for row in list(self._rows.values()):
            if row.uri not in wanted:
                self._forget(row)

    def _forget(self, row: _Row) -> None:
        self._rows.pop(row.href, None)
        _remove(f"{self._temp}/{row.name}")
        with self._database.write() as t:
            t.run("DELETE FROM partials WHERE name = ?", (row.name,))


def sweep(database: Database, temp: str, now: int) -> None:
    """At the beginning of a run: forget parts that are gone, too old or of no set, and remove what is not listed."""
    names = [name for name in os.listdir(temp) if name.startswith(PARTIAL_PREFIX)]
    with database.read() as t:
        if not names and t.one("SELECT 1 FROM partials LIMIT 1") is None:
            return
    with database.write() as t:
        listed = {row[0] for row in t.rows("SELECT name FROM partials WHERE set_id IN (SELECT id FROM sets)")}
        for name in names:
            if name not in listed or now // SECOND - _grown_at(f"{temp}/{name}") > LONGEST_SECONDS:
                _remove(f"{temp}/{name}")
        lost = [(name,) for name in listed if not _size(f"{temp}/{name}")]
        t.many("DELETE FROM partials WHERE name = ?", lost)
        t.run("DELETE FROM partials WHERE set_id NOT IN (SELECT id FROM sets)")


def _work(fetch: Fetch) -> Work:
    return cast("tuple[Work, object]", fetch.key)[0]


def _is_verified(fetch: Fetch) -> bool:
    """Whether the list gives a digest that can be computed."""
    return cast("tuple[Work, object]", fetch.key)[1] is not None


def _size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if (found.st_mode & 0o170000) == 0o100000 else 0


def _grown_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
