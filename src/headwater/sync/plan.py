"""What has to be done to make the copy what was listed: the difference as queries, names for what is new, the guard.

Nothing here touches the network; the staging tables hold what was listed or changed, `work` and `doomed` what is to be
done. The rules for single resources are in `verify`, those for names in `naming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headwater.storage.database import Row, Transaction
from headwater.sync.filters import Choice
from headwater.sync.naming import common_folder, escaped_path, natural_path, resources_folder
from headwater.sync.state import SetRow
from headwater.sync.verify import Held, Listed, Same, compare, digests_of

GUARD_SHARE = 0.2
GUARD_COUNT = 10
"""More deletions than this, and more than the share of what is held, need consent (DST-B4, DST-F9)."""

_CHUNK = 5_000

ADD_WORK = (
    "INSERT OR REPLACE INTO temp.work(uri, loc, path, held, lastmod, length, hash, type, encoding, mirrors,"
    " changed_at, known_at, etag, last_modified, tries) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


_TAKEN = """
SELECT w.n, w.uri FROM temp.work w JOIN resources r ON r.path = w.path
WHERE w.held IS NULL AND NOT (r.set_id = ? AND r.uri = w.uri)"""

_FOLDER_IN_USE = """
SELECT w.n, w.uri FROM temp.work w WHERE w.held IS NULL AND EXISTS (
  SELECT 1 FROM resources r
  WHERE r.path > CAST(w.path || x'2f' AS BLOB) AND r.path < CAST(w.path || x'30' AS BLOB))"""

_DOOMED_IN_THE_WAY = (
    "SELECT 1 FROM temp.work w JOIN resources r ON r.path = w.path JOIN temp.doomed d ON d.id = r.id"
    " WHERE w.held IS NULL LIMIT 1",
    "SELECT 1 FROM temp.work w JOIN resources r ON r.path > CAST(w.path || x'2f' AS BLOB)"
    " AND r.path < CAST(w.path || x'30' AS BLOB) JOIN temp.doomed d ON d.id = r.id WHERE w.held IS NULL LIMIT 1",
    "SELECT 1 FROM temp.folders f JOIN resources r ON r.path = f.path JOIN temp.doomed d ON d.id = r.id LIMIT 1",
)


class Counts(msgspec.Struct):
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
    newer: int = 0
    adopted: int = 0
    octets: int = 0


def clear(t: Transaction) -> None:
    """Empty what an earlier plan of this run has left."""
    for table in ("work", "doomed", "folders"):
        t.run(f"DELETE FROM temp.{table}")  # noqa: S608


def first_base(t: Transaction, table: str, capability_list: str | None) -> str | None:
    """The base of a set's names, from the first plan; None while nothing is listed that could show it.

    Everything below the folder `resources` beside the Capability List: that folder, as a Headwater source serves it;
    otherwise the longest folder that all have in common.
    """
    served = resources_folder(capability_list) if capability_list else None
    folder: str | None = None
    below = True
    seen = False
    where = "NOT refused" if table == "listed" else "pending AND change != 'deleted'"
    for (uri,) in t.rows(f"SELECT uri FROM temp.{table} WHERE {where}"):  # noqa: S608
        if below and not (served and uri.startswith(served)):
            below = False
        if not seen or folder is not None:
            folder = common_folder(uri, folder)
        seen = True
        if not below and folder is None:
            break
    if not seen:
        return None
    return served if below and served else folder or ""


_CONFIRM = (
    "UPDATE resources SET listed_hash = ?, listed_length = ?, lastmod = ?, newer = 0, doomed_at = NULL,"
    " changed_at = nullif(max(coalesce(changed_at, 0), coalesce(?, 0)), 0) WHERE id = ?"
)


class _Updates:
    """Rows for one statement, executed some thousand at a time: a list of a million is never held."""

    def __init__(self, t: Transaction, sql: str) -> None:
        self._t = t
        self._sql = sql
        self._rows: list[tuple[str | int | None, ...]] = []

    def add(self, row: tuple[str | int | None, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        self._t.many(self._sql, rows)


class Planner:
    """Fills `work` and `doomed` for one set."""

    def __init__(self, row: SetRow, choice: Choice, base: str) -> None:
        self._set = row
        self._base = base
        self._choice = choice
        self._prefix = row.folder.encode() + b"/" if row.folder else b""
        self.counts = Counts()

    # names

    def path(self, uri: str) -> bytes:
        """The path, relative to the destination, that the rule gives a URI when nothing else claims it."""
        return self._prefix + (natural_path(uri, self._base) or escaped_path(uri))

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether the user's choice lets the resource in."""
        return self._choice.takes_all or self._choice.takes(uri, path[len(self._prefix) :])

    def doomed_in_the_way(self, t: Transaction) -> bool:
        """Whether something to be deleted has the place of something new, as file or as folder."""
        if t.one("SELECT 1 FROM temp.doomed LIMIT 1") is None:
            return False
        t.run("DELETE FROM temp.folders")
        _fill_folders(t, (path for (path,) in t.rows("SELECT path FROM temp.work WHERE held IS NULL")))
        return any(t.one(query) is not None for query in _DOOMED_IN_THE_WAY)

    def settle_names(self, t: Transaction) -> None:
        """Give the escaped name to whatever cannot have its natural one beside the others.

        One name, two URIs: the held one keeps it, else the first listed. A file where a folder must be: the held one
        stays, else the file gives way.
        """
        if t.one("SELECT 1 FROM temp.work WHERE held IS NULL LIMIT 1") is None:
            return
        self._escape(
            t,
            t.rows(
                "SELECT w.n, w.uri FROM temp.work w WHERE w.held IS NULL AND EXISTS"
                " (SELECT 1 FROM temp.work o WHERE o.path = w.path AND o.n < w.n)"
            ),
        )
        if t.one("SELECT 1 FROM resources WHERE path IS NOT NULL LIMIT 1") is not None:
            self._escape(t, t.rows(_TAKEN, (self._set.id,)))
            self._escape(t, t.rows(_FOLDER_IN_USE))
        t.run("DELETE FROM temp.folders")
        _fill_folders(t, (path for (path,) in t.rows("SELECT path FROM temp.work WHERE held IS NULL")))
        self._escape_below_files(t)
        self._escape(
            t,
            t.rows("SELECT w.n, w.uri FROM temp.work w JOIN temp.folders f ON f.path = w.path WHERE w.held IS NULL"),
        )

    def _escape_below_files(self, t: Transaction) -> None:
        """New resources whose folder is a held file."""
        while files := list(t.rows("SELECT f.path FROM temp.folders f JOIN resources r ON r.path = f.path LIMIT 1000")):
            for (path,) in files:
                low, high = path + b"/", path + b"0"
                query = "SELECT n, uri FROM temp.work WHERE held IS NULL AND path >= ? AND path < ?"
                self._escape(t, t.rows(query, (low, high)))
                t.run("DELETE FROM temp.folders WHERE path = ? OR (path >= ? AND path < ?)", (path, low, high))

    def _escape(self, t: Transaction, rows: Iterator[Row]) -> None:
        changed = [(self._prefix + escaped_path(uri), n) for n, uri in rows]
        t.many("UPDATE temp.work SET path = ? WHERE n = ?", changed)

    # a baseline

    def baseline(
        self,
        t: Transaction,
        at: int | None,
        intact: Callable[[bytes, int, int], bool],
        digest_of: Callable[[bytes, str], str | None],
    ) -> None:
        """Plan from `temp.listed`: what is new, what differs, what is the same.

        `intact` tells whether a held file still has the size and time it was given; `digest_of` computes a digest of a
        held file.
        """
        t.many(ADD_WORK, self._new(t, at))
        confirmed = _Updates(t, _CONFIRM)
        t.many(ADD_WORK, self._different(t, at, intact, digest_of, confirmed))
        confirmed.flush()

    def _new(self, t: Transaction, at: int | None) -> Iterator[Row]:
        query = """
            SELECT l.uri, coalesce(l.loc, l.uri), l.lastmod, l.length, l.hash, l.type, l.encoding, l.mirrors,
                   r.changed_at, f.changed_at, f.tries
            FROM temp.listed l
            LEFT JOIN resources r ON r.set_id = :set AND r.uri = l.uri
            LEFT JOIN failures f ON f.set_id = :set AND f.uri = l.uri
            WHERE NOT l.refused AND (r.id IS NULL OR r.path IS NULL) ORDER BY l.n"""
        for uri, loc, lastmod, length, hash_, type_, coding, mirrors, deleted_at, failed_at, tries in t.rows(
            query, {"set": self._set.id}
        ):
            if at is not None and max(deleted_at or at, failed_at or at) > at:
                continue  # DST-B2: deleted, or remembered as failed, after this list was made
            path = self.path(uri)
            if not self.takes(uri, path):
                self.counts.left_out += 1
                continue
            self.counts.created += 1
            yield (uri, loc, path, None, lastmod, length, hash_, type_, coding, mirrors, None, at, None, None, tries)

    def _different(
        self,
        t: Transaction,
        at: int | None,
        intact: Callable[[bytes, int, int], bool],
        digest_of: Callable[[bytes, str], str | None],
        confirmed: _Updates,
    ) -> Iterator[Row]:
        query = """
            SELECT l.uri, coalesce(l.loc, l.uri), l.lastmod, l.length, l.hash, l.type, l.encoding, l.mirrors,
                   r.id, r.path, r.size, r.mtime_ns, r.digest, r.listed_hash, r.lastmod, r.changed_at, r.newer,
                   r.doomed_at, r.etag, r.last_modified, r.listed_length, f.changed_at
            FROM temp.listed l JOIN resources r ON r.set_id = :set AND r.uri = l.uri
            LEFT JOIN failures f ON f.set_id = :set AND f.uri = l.uri
            WHERE NOT l.refused AND r.path IS NOT NULL ORDER BY r.path"""
        for (
            uri, loc, lastmod, length, hash_, type_, coding, mirrors,
            key, path, size, mtime_ns, digest, listed_hash, held_lastmod, changed_at, newer,
            doomed_at, etag, last_modified, listed_length, failed_at,
        ) in t.rows(query, {"set": self._set.id}):  # fmt: skip
            if not self.takes(uri, path):
                self.counts.left_out += 1
                continue
            if at is not None and (failed_at or at) > at:
                continue  # DST-B2: a later state of it has failed, and is tried again from what is remembered
            if at is not None and (changed_at or at) > at:
                self.counts.unchanged += 1  # DST-B2: what is held is newer than this list
                continue
            present = intact(path, size, mtime_ns)
            if hash_ is not None and hash_ == listed_hash and length == listed_length and not newer:
                same = Same.YES
            else:
                listed = Listed(hash_, length, lastmod, type_, coding, at)
                held = Held(digest, size, held_lastmod, listed_hash, bool(newer))
                same = compare_with_file(listed, held, path, digest_of) if present else Same.NO
            if present and same is Same.YES:
                self.counts.unchanged += 1
                if lastmod != held_lastmod or hash_ != listed_hash or newer or doomed_at is not None:
                    confirmed.add((hash_, length, lastmod, None, key))
                continue
            self.counts.updated += 1
            ask = present and same is Same.ASK
            yield (
                uri, loc, path, key, lastmod, length, hash_, type_, coding, mirrors, None, at,
                etag if ask else None, last_modified if ask else None, None,
            )  # fmt: skip

    def gone(self, t: Transaction, at: int | None, *, again: bool = False) -> None:
        """Mark for deletion what a complete snapshot no longer lists (4.4), and forget such failures (DST-B2).

        What a change later than `at` brought, or failed to bring, is not the snapshot's to judge. A change without a
        time may be as late as the position. `again`: the list is that of the last baseline, which has removed what
        it does not list; what is held by now and has no time came later.
        """
        position = self._set.position.time if self._set.position else None
        beyond = at is not None and position is not None and position > at
        query = """
            SELECT r.id, r.uri, r.path FROM resources r
            WHERE r.set_id = ? AND r.path IS NOT NULL
              AND (?2 IS NULL OR (r.changed_at IS NULL AND NOT ?3) OR r.changed_at <= ?2)
              AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = r.uri)"""
        t.many(
            "INSERT OR IGNORE INTO temp.doomed(id, at) VALUES (?, ?)",
            (
                (key, at)
                for key, uri, path in t.rows(query, (self._set.id, at, int(again and beyond)))
                if self.takes(uri, path)
            ),
        )
        t.run(
            "DELETE FROM failures WHERE set_id = ?1"
            " AND (?2 IS NULL OR (changed_at IS NULL AND NOT ?3) OR changed_at <= ?2)"
            " AND NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = failures.uri)",
            (self._set.id, at, int(beyond)),
        )

    # an increment

    def increment(
        self,
        t: Transaction,
        intact: Callable[[bytes, int, int], bool],
        digest_of: Callable[[bytes, str], str | None],
    ) -> None:
        """Plan from the pending rows of `temp.changed`, folded to the last change of each URI (5.3)."""
        confirmed = _Updates(t, _CONFIRM)
        t.many(ADD_WORK, self._changed(t, intact, digest_of, confirmed))
        confirmed.flush()
        t.many(
            "INSERT OR REPLACE INTO temp.doomed(id, at) VALUES (?, ?)",
            (
                (key, at)
                for key, uri, path, at in t.rows(
                    "SELECT r.id, r.uri, r.path, c.at FROM temp.changed c"
                    " JOIN resources r ON r.set_id = ? AND r.uri = c.uri AND r.path IS NOT NULL"
                    " WHERE c.pending AND c.change = 'deleted' AND NOT (c.exact AND coalesce(r.changed_at > c.at, 0))",
                    (self._set.id,),
                )
                if self.takes(uri, path)
            ),
        )
        t.run(
            "DELETE FROM failures WHERE set_id = ? AND uri IN"
            " (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')",
            (self._set.id,),
        )

    def _changed(
        self,
        t: Transaction,
        intact: Callable[[bytes, int, int], bool],
        digest_of: Callable[[bytes, str], str | None],
        confirmed: _Updates,
    ) -> Iterator[Row]:
        query = """
            SELECT c.uri, coalesce(c.loc, c.uri), c.lastmod, c.length, c.hash, c.type, c.encoding, c.mirrors, c.at,
                   c.exact, r.id, r.path, r.size, r.mtime_ns, r.digest, r.listed_hash, r.lastmod, r.changed_at, r.newer,
                   r.etag, r.last_modified, f.tries
            FROM temp.changed c LEFT JOIN resources r ON r.set_id = :set AND r.uri = c.uri
            LEFT JOIN failures f ON f.set_id = :set AND f.uri = c.uri
            WHERE c.pending AND c.change != 'deleted' ORDER BY c.n"""
        for (
            uri, loc, lastmod, length, hash_, type_, coding, mirrors, at,
            exact, key, path, size, mtime_ns, digest, listed_hash, held_lastmod, changed_at, newer, etag,
            last_modified, tries,
        ) in t.rows(query, {"set": self._set.id}):  # fmt: skip
            if exact and changed_at is not None and at is not None and changed_at > at:
                continue  # a later change of this resource has been applied already
            name = path if path is not None else self.path(uri)
            if not self.takes(uri, name):
                self.counts.left_out += 1
                continue
            known = at if exact else None
            if path is None:
                self.counts.created += 1
                yield (
                    uri, loc, name, None, lastmod, length, hash_, type_, coding, mirrors, known, at, None, None, tries
                )  # fmt: skip
                continue
            listed = Listed(hash_, length, lastmod, type_, coding, at)
            held = Held(digest, size, held_lastmod, listed_hash, bool(newer))
            same = compare_with_file(listed, held, path, digest_of)
            if same is Same.YES and hash_ is not None and intact(path, size, mtime_ns):
                self.counts.unchanged += 1
                confirmed.add((hash_, length, lastmod, known, key))
                continue
            self.counts.updated += 1
            ask = hash_ is None and not newer
            yield (
                uri, loc, name, key, lastmod, length, hash_, type_, coding, mirrors, known, at,
                etag if ask else None, last_modified if ask else None, tries,
            )  # fmt: skip

    def remembered(self, t: Transaction, now: int, *, patient: bool) -> None:
        """Add the remembered failures that are not planned already: all of them, save where `Retry-After` waits.

        `patient`: a service that follows also keeps its own retry clock (DST-F6).
        """
        query = """
            SELECT f.uri, f.loc, r.path, r.id, f.lastmod, f.length, f.hash, f.type, f.encoding, f.mirrors, f.changed_at,
                   f.tries
            FROM failures f LEFT JOIN resources r ON r.set_id = f.set_id AND r.uri = f.uri AND r.path IS NOT NULL
            WHERE f.set_id = ?1 AND f.uri NOT IN (SELECT uri FROM temp.work)
              AND max(coalesce(f.wait_until, 0), CASE WHEN ?3 THEN f.next_at ELSE 0 END) <= ?2"""
        rows = list(t.rows(query, (self._set.id, now, int(patient))))
        for uri, loc, path, key, lastmod, length, hash_, type_, coding, mirrors, changed_at, tries in rows:
            name = path if path is not None else self.path(uri)
            if self.takes(uri, name):
                t.run(
                    ADD_WORK,
                    (
                        uri,
                        loc,
                        name,
                        key,
                        lastmod,
                        length,
                        hash_,
                        type_,
                        coding,
                        mirrors,
                        changed_at,
                        changed_at,
                        None,
                        None,
                        tries,
                    ),
                )
                self.counts.created += path is None
                self.counts.updated += path is not None

    def skip_waiting(self, t: Transaction, now: int) -> None:
        """Take out of the plan what a server asked us not to try before a moment that has not come."""
        waiting = (
            "SELECT w.n, w.held FROM temp.work w JOIN failures f ON f.set_id = ? AND f.uri = w.uri"
            " WHERE f.wait_until > ? AND f.hash IS w.hash AND f.lastmod IS w.lastmod"
        )
        rows = list(t.rows(waiting, (self._set.id, now)))
        t.many("DELETE FROM temp.work WHERE n = ?", [(n,) for n, _ in rows])
        self.counts.created -= sum(held is None for _, held in rows)
        self.counts.updated -= sum(held is not None for _, held in rows)

    def held_back_again(self, t: Transaction) -> None:
        """Bring back the deletions that earlier runs were not allowed (DST-B4)."""
        t.run(
            "INSERT OR IGNORE INTO temp.doomed(id, at) SELECT id, doomed_at FROM resources"
            " WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"
            " AND uri NOT IN (SELECT uri FROM temp.work)",
            (self._set.id,),
        )


def compare_with_file(listed: Listed, held: Held, path: bytes, digest_of: Callable[[bytes, str], str | None]) -> Same:
    """`compare`, but where no digest is shared the held file itself is hashed rather than transferred again."""
    same = compare(listed, held)
    wanted = digests_of(listed.hash)
    if same is not Same.ASK or not wanted or any(d.algorithm in (held.digest or "") for d in wanted):
        return same
    return Same.YES if digest_of(path, wanted[0].algorithm) == wanted[0].hex else Same.NO


def guard(doomed: int, held: int, consent: float | None) -> bool:
    """Whether so many deletions may be made (DST-B4, DST-F9): without consent neither all nor more than a fifth.

    A fifth that is not more than ten files needs none. `consent` is the share that the user allows.
    """
    if doomed == 0:
        return True
    if consent is not None:
        return doomed <= consent * held
    if doomed >= held:
        return False
    return doomed <= GUARD_COUNT or doomed <= GUARD_SHARE * held


def _fill_folders(t: Transaction, paths: Iterator[bytes]) -> None:
    """Add every folder that leads to one of `paths` to `temp.folders`."""
    seen: set[bytes] = set()
    for path in paths:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in seen:
            seen.add(folder)
            folder = folder.rpartition(b"/")[0]
        if len(seen) > 20_000:
            t.many("INSERT OR IGNORE INTO temp.folders(path) VALUES (?)", [(folder,) for folder in seen])
            seen.clear()
    t.many("INSERT OR IGNORE INTO temp.folders(path) VALUES (?)", [(folder,) for folder in seen])
