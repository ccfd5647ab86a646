"""Carries out what is planned: fetch, verify, place, record; every failure is remembered and stops nothing else.

Rounds. The first asks every `loc`; what came differently is asked again past all caches, then at the mirrors by their
`pri` (5.3, DST-S2). Rows are recorded some hundred at a time: a killed run finds the rest on disk and adopts it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

from headwater.progress import Listener, Progress
from headwater.spec.hashes import Digest
from headwater.storage.database import Database, Row, Transaction
from headwater.sync.coding import CannotDecode, decode_file
from headwater.sync.digest import digest_of_descriptor
from headwater.sync.faults import DestinationUnusable
from headwater.sync.moments import SECOND
from headwater.sync.naming import escaped_path
from headwater.sync.place import InTheWay, Tree
from headwater.sync.plan import Counts
from headwater.sync.state import SetRow, intend
from headwater.sync.transport import FailureKind, Fetch, Fetched, Transport
from headwater.sync.verify import Form, Judgement, Listed, Verdict, digests_of, http_micros, judge, strongest_of

_CHUNK = 1_000
_BATCH = 500
_BATCH_SECONDS = 1.0
_GOOD = (200, 203)
_ROOM_FOR_GROWTH = 64 << 20
_BACKOFF_SECONDS = 60
_LONGEST_BACKOFF_SECONDS = 86_400

_COLUMNS = (
    "n, uri, loc, path, held, lastmod, length, hash, type, encoding, mirrors, changed_at, known_at, etag,"
    " last_modified, tries, step, reason"
)
_PLACED = """
INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, listed_hash, listed_length, lastmod, etag,
  last_modified, changed_at, newer, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(set_id, uri) DO UPDATE SET path = excluded.path, size = excluded.size, mtime_ns = excluded.mtime_ns,
  digest = excluded.digest, listed_hash = excluded.listed_hash, listed_length = excluded.listed_length,
  lastmod = excluded.lastmod, etag = excluded.etag, last_modified = excluded.last_modified,
  changed_at = coalesce(excluded.changed_at, changed_at), newer = excluded.newer, doomed_at = NULL,
  run = excluded.run"""
_FAILED = """
INSERT INTO failures(set_id, uri, loc, reason, status, tries, first_at, last_at, next_at, wait_until, lastmod, length,
  hash, type, encoding, mirrors, changed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(set_id, uri) DO UPDATE SET loc = excluded.loc, reason = excluded.reason, status = excluded.status,
  tries = excluded.tries, last_at = excluded.last_at, next_at = excluded.next_at, wait_until = excluded.wait_until,
  lastmod = excluded.lastmod, length = excluded.length, hash = excluded.hash, type = excluded.type,
  encoding = excluded.encoding, mirrors = excluded.mirrors, changed_at = excluded.changed_at"""
_CONFIRMED = (
    "UPDATE resources SET listed_hash = ?, listed_length = ?, lastmod = ?, doomed_at = NULL,"
    " changed_at = coalesce(?, changed_at) WHERE id = ?"
)


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


class Transfer:
    """Works `temp.work` off for one set. Raises StoreFault when the copy itself cannot be written."""

    def __init__(
        self,
        transport: Transport,
        database: Database,
        tree: Tree,
        temp: str,
        row: SetRow,
        run: int,
        counts: Counts,
        listener: Listener,
        warn: Callable[[str, str, str | None], None],
        *,
        now: Callable[[], int],
        adopt: bool,
        largest: int,
    ) -> None:
        self._transport = transport
        self._database = database
        self._tree = tree
        self._temp = temp
        self._set = row
        self._run = run
        self._counts = counts
        self._listener = listener
        self._warn = warn
        self._now = now
        self._adopt = adopt
        self._largest = largest
        self._placed: list[Row] = []
        self._failed: list[Row] = []
        self._confirmed: list[Row] = []
        self._again: list[Row] = []
        self._cleared: list[Row] = []
        self._flushed_at = time.monotonic()
        self._distrusted: set[str] = set()
        self._any_failures = False
        self._open: dict[int, int] = {}
        self._done = 0
        self._total = 0
        self._round = 0
        self._last_n = 0

    def run(self) -> None:
        """Fetch everything that is planned; returns when each row is placed or remembered as failed."""
        with self._database.write() as t:
            self._total = int(t.value("SELECT count(*) FROM temp.work"))
            query = "SELECT 1 FROM failures WHERE set_id = ? LIMIT 1"
            self._any_failures = t.one(query, (self._set.id,)) is not None
        try:
            while self._total and self._has_round():
                self._last_n = 0
                for fetched in self._transport.many(self._fetches()):
                    self._settle(fetched)
                self._flush()
                self._round += 1
        finally:
            self._flush()

    def _has_round(self) -> bool:
        with self._database.write() as t:
            return t.one("SELECT 1 FROM temp.work WHERE round = ? LIMIT 1", (self._round,)) is not None

    def _fetches(self) -> Iterator[Fetch]:
        while chunk := self._chunk():
            for work in chunk:
                if self._adopt and work.step == 0 and work.held is None and self._adopted(work):
                    continue
                yield self._fetch(work)

    def _chunk(self) -> list[Work]:
        query = f"SELECT {_COLUMNS} FROM temp.work WHERE n > ? AND round = ? ORDER BY n LIMIT {_CHUNK}"  # noqa: S608
        with self._database.write() as t:
            rows = list(t.rows(query, (self._last_n, self._round)))
            if not rows:
                return []
            intent = intend(t, self._set.id, [(row[1], row[3]) for row in rows])
        self._open[intent] = len(rows)
        self._last_n = rows[-1][0]
        return [Work(*(*row, intent)) for row in rows]

    def _fetch(self, work: Work) -> Fetch:
        wanted = strongest_of(work.hash)
        headers: list[tuple[str, str]] = []
        if work.encoding:
            headers.append(("Accept-Encoding", work.encoding))
        if work.step == 0:
            if work.etag:
                headers.append(("If-None-Match", work.etag))
            if work.last_modified:
                headers.append(("If-Modified-Since", work.last_modified))
        else:
            headers += [("Cache-Control", "no-cache"), ("Pragma", "no-cache")]
        uri = work.loc if work.step < 2 else mirrors_of(work)[work.step - 2]
        return Fetch(
            uri,
            tuple(headers),
            into=f"{self._temp}/{work.n}-{work.step}",
            algorithms=(wanted.algorithm if wanted else "sha-256",),
            max_octets=bound(work.length, self._largest),
            key=(work, wanted),
        )

    # what came

    def _settle(self, fetched: Fetched) -> None:
        work, wanted = cast("tuple[Work, Digest | None]", fetched.fetch.key)
        failure = fetched.failure
        if failure is not None and failure.kind is FailureKind.STORE:
            raise DestinationUnusable(f"cannot write: {failure.text}", where=str(self._temp))
        if failure is None and fetched.status in _GOOD:
            self._arrived(work, wanted, fetched)
        elif failure is None and fetched.status == 304 and (work.etag or work.last_modified) and work.held:
            self._counts.updated -= 1
            self._counts.unchanged += 1
            self._confirmed.append((work.hash, work.length, work.lastmod, work.changed_at, work.held))
            self._cleared.append((self._set.id, work.uri))
            self._count(work)
        else:
            if fetched.ok:
                self._tree.discard(self._name(work))
            reason = failure.text if failure is not None else f"HTTP status {fetched.status}"
            self._next(work, reason, fetched, mismatch=False)

    def _name(self, work: Work) -> str:
        return f"{work.n}-{work.step}"

    def _arrived(self, work: Work, wanted: Digest | None, fetched: Fetched) -> None:
        listed = Listed(work.hash, work.length, work.lastmod, work.type, work.encoding, work.known_at)
        algorithm = fetched.fetch.algorithms[0]
        found = fetched.digests[algorithm]
        forms = {Form.RECEIVED: (fetched.octets, found)}
        coding = fetched.headers.get("content-encoding", "").strip().lower()
        name = self._name(work)
        if coding in ("", "identity"):
            verdict = judge(listed, wanted, forms, fetched.headers.get("last-modified"))
        else:
            verdict = self._decoded(work, listed, wanted, fetched, forms, coding)
        octets, found_hex = forms[verdict.form]
        if verdict.form is Form.DECODED:
            self._tree.discard(name)
            name += "d"
        if verdict.judgement is Judgement.DIFFERENT:
            self._tree.discard(name)
            if work.step >= 2:
                self._distrusted.add(mirror_base(work.loc, fetched.fetch.uri))
            self._next(work, verdict.reason, fetched, mismatch=True)
            return
        self._advise(work, fetched)
        self._place(work, fetched, name, f"{algorithm}:{found_hex}", octets, verdict)

    def _decoded(
        self,
        work: Work,
        listed: Listed,
        wanted: Digest | None,
        fetched: Fetched,
        forms: dict[Form, tuple[int, str]],
        coding: str,
    ) -> Verdict:
        """An answer with a content coding that nobody, or the entry, asked for (AMB-16)."""
        modified = fetched.headers.get("last-modified")
        first = judge(listed, wanted, forms, modified)
        certain = wanted is not None or work.length is not None or bool(work.encoding)
        if first.judgement is Judgement.GOOD and certain:
            return first
        name = self._name(work)
        algorithm = fetched.fetch.algorithms[0]
        try:
            found = decode_file(
                f"{self._temp}/{name}", f"{self._temp}/{name}d", coding, algorithm, bound(work.length, self._largest)
            )
        except CannotDecode as cause:
            self._tree.discard(f"{name}d")
            if certain:
                return first
            return Verdict(Judgement.DIFFERENT, Form.RECEIVED, f"content coding {coding[:40]}: {cause}")
        forms[Form.DECODED] = found
        verdict = judge(listed, wanted, forms if certain else {Form.DECODED: found}, modified)
        if verdict.form is Form.RECEIVED:
            self._tree.discard(f"{name}d")
        return verdict

    def _advise(self, work: Work, fetched: Fetched) -> None:
        """Differences that are warnings only (DST-V 3, 4)."""
        sent = fetched.headers.get("content-type", "").partition(";")[0].strip().lower()
        if work.type and sent and work.type.partition(";")[0].strip().lower() != sent:
            self._warn("DST-V3", "the media type differs from the one listed", None)
        if work.lastmod is not None and (modified := http_micros(fetched.headers.get("last-modified"))) is not None:
            if modified // SECOND < work.lastmod // SECOND:
                self._warn("DST-V4", "Last-Modified is older than the lastmod listed", None)
            elif modified // SECOND > work.lastmod // SECOND:
                self._warn("DST-V4", "Last-Modified is later than the lastmod listed", None)

    def _place(self, work: Work, fetched: Fetched, name: str, digest: str, octets: int, verdict: Verdict) -> None:
        modified = fetched.headers.get("last-modified")
        path = work.path
        mtime = mtime_ns(work.lastmod if verdict.judgement is Judgement.GOOD else None, modified)
        try:
            try:
                size, kept_ns = self._tree.place(name, path, mtime)
            except InTheWay:
                if work.held is not None:
                    raise
                prefix = self._set.folder.encode() + b"/" if self._set.folder else b""
                path = prefix + escaped_path(work.uri)
                size, kept_ns = self._tree.place(name, path, mtime)
        except InTheWay as cause:
            self._tree.discard(name)
            self._fail(work, str(cause), fetched)
            return
        newer = verdict.judgement is Judgement.NEWER
        self._counts.newer += newer
        self._counts.octets += octets
        self._record(work, path, size, kept_ns, digest, fetched.headers.get("etag"), modified, newer)

    def _record(
        self,
        work: Work,
        path: bytes,
        size: int,
        kept_ns: int,
        digest: str,
        etag: str | None,
        modified: str | None,
        newer: bool,
    ) -> None:
        self._placed.append(
            (
                self._set.id,
                work.uri,
                path,
                size,
                kept_ns,
                digest,
                work.hash,
                work.length,
                work.lastmod,
                etag,
                modified,
                work.changed_at,
                int(newer),
                self._run,
            )
        )
        if self._any_failures:  # also of a resource that was planned for another reason than its failure
            self._cleared.append((self._set.id, work.uri))
        self._count(work)

    # what did not come

    def _next(self, work: Work, reason: str, fetched: Fetched, *, mismatch: bool) -> None:
        """Try the next way, or remember the failure."""
        step = next_step(work, self._distrusted, mismatch=mismatch)
        if step is None:
            self._fail(work, work.reason or reason, fetched)
        else:
            self._again.append((step, self._round + 1, work.reason or reason, work.n))
            self._count(work, done=0)

    def _fail(self, work: Work, reason: str, fetched: Fetched) -> None:
        now = self._now()
        tries = (work.tries or 0) + 1
        wait = fetched.retry_after_seconds
        self._counts.failed += 1
        if work.held is None:
            self._counts.created -= 1
        else:
            self._counts.updated -= 1
        self._failed.append(
            (
                self._set.id,
                work.uri,
                work.loc,
                reason[:500],
                fetched.status,
                tries,
                now,
                now,
                now + backoff_seconds(tries) * SECOND,
                None if wait is None else now + int(wait * SECOND),
                work.lastmod,
                work.length,
                work.hash,
                work.type,
                work.encoding,
                work.mirrors,
                work.changed_at,
            )
        )
        self._count(work)

    # what is there already

    def _adopted(self, work: Work) -> bool:
        """Take a file that lies there already, if it is what is listed (4.3): left by a killed run or another tool."""
        found = self._tree.stat(work.path)
        if found is None or (work.length is not None and work.length != found.st_size):
            return False
        digests = digests_of(work.hash)
        algorithm = digests[0].algorithm if digests else "sha-256"
        seconds = None if work.lastmod is None else work.lastmod // SECOND
        if not digests and (work.length is None or seconds != found.st_mtime_ns // 1_000_000_000):
            return False
        try:
            descriptor = self._tree.open(work.path)
        except OSError:
            return False
        try:
            hexdigest = digest_of_descriptor(descriptor, algorithm)
        finally:
            os.close(descriptor)
        if digests and hexdigest != digests[0].hex:
            return False
        kept = mtime_ns(work.lastmod, None)
        if kept is not None and kept != found.st_mtime_ns:
            self._tree.touch(work.path, kept)
            again = self._tree.stat(work.path)
            kept = again.st_mtime_ns if again else kept
        self._counts.adopted += 1
        self._record(
            work, work.path, found.st_size, kept or found.st_mtime_ns, f"{algorithm}:{hexdigest}", None, None, False
        )
        return True

    # recording

    def _count(self, work: Work, done: int = 1) -> None:
        self._open[work.intent] -= 1
        self._done += done
        waiting = len(self._placed) + len(self._failed) + len(self._again)
        if waiting >= _BATCH or time.monotonic() - self._flushed_at > _BATCH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        """Record what has happened since the last time, in one transaction."""
        self._flushed_at = time.monotonic()
        if self._placed or self._failed or self._confirmed or self._again or self._cleared:
            with self._database.write() as t:
                self._write(t)
            for rows in (self._placed, self._failed, self._confirmed, self._again, self._cleared):
                rows.clear()
        self._listener(Progress("transferring", self._done, self._total, self._counts.octets))

    def _write(self, t: Transaction) -> None:
        t.many(_PLACED, self._placed)
        t.many("DELETE FROM failures WHERE set_id = ? AND uri = ?", self._cleared)
        t.many(_FAILED, self._failed)
        t.many(_CONFIRMED, self._confirmed)
        over = [(intent,) for intent, left in self._open.items() if left == 0]
        t.many("DELETE FROM intents WHERE id = ?", over)
        for (intent,) in over:
            del self._open[intent]
        t.many("UPDATE temp.work SET step = ?, round = ?, reason = ? WHERE n = ?", self._again)


def mirrors_of(work: Work) -> list[str]:
    """The mirrors of a resource, best first."""
    return msgspec.json.decode(work.mirrors, type=list[str]) if work.mirrors else []


def next_step(work: Work, distrusted: set[str], *, mismatch: bool) -> int | None:
    """The way after `work.step`: 0 `loc`, 1 `loc` past all caches, 2… the mirrors; None when there is none left.

    A mirror is trusted only where the entry has a hash or a length to check it by (DST-S2), and no longer in this run
    once it has sent something else (DST-F11).
    """
    if work.step == 0 and mismatch:
        return 1
    if not digests_of(work.hash) and work.length is None:
        return None
    mirrors = mirrors_of(work)
    for number in range(max(work.step - 1, 0), len(mirrors)):
        if mirror_base(work.loc, mirrors[number]) not in distrusted:
            return number + 2
    return None


def mirror_base(loc: str, href: str) -> str:
    """Which mirror a link leads to: its URI without the names at the end that it has in common with `loc`.

    One host may hold several mirrors, and only the one that sent something else is distrusted (DST-F11).
    """
    own, theirs = loc.split("/"), href.split("/")
    while len(theirs) > 3 and own and theirs[-1] == own[-1]:
        own.pop()
        theirs.pop()
    return "/".join(theirs)


def backoff_seconds(tries: int) -> int:
    """How long a service that follows waits before it tries a failed resource again (DST-F6)."""
    return int(min(_BACKOFF_SECONDS * 2 ** min(tries - 1, 20), _LONGEST_BACKOFF_SECONDS))


def bound(length: int | None, largest: int) -> int:
    """How many octets of a resource are taken: a listed length leaves room for growth, not for an endless answer."""
    return largest if length is None else min(largest, max(_ROOM_FOR_GROWTH, 4 * length))


def mtime_ns(lastmod: int | None, last_modified: str | None) -> int | None:
    """The file's modification time: as listed, else as sent, else none."""
    at = lastmod if lastmod is not None else http_micros(last_modified)
    return at * 1000 if at is not None and 0 <= at < 8_000_000_000 * SECOND else None
