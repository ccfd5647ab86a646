"""Proves whether a copy is in sync: every file by its hash against what the source lists, nothing modified (DST-Q).

What is expected is the Resource List as of its `at`, with all later changes applied. Only documents are fetched, never
content. The state is read from a private copy; without one, as for a copy that another tool has made, names follow the
same rule.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headwater.errors import Exit, SourceFault, Undetermined
from headwater.progress import Listener, Notice, Progress, silent
from headwater.storage.database import Database, Row, Transaction
from headwater.sync.changes import Changes, Outcome
from headwater.sync.discover import Discovery, Found, starting_uri
from headwater.sync.documents import Documents
from headwater.sync.faults import DestinationUnusable, NothingToCompare, UnknownSetName
from headwater.sync.filters import Choice, Scope
from headwater.sync.hashing import PARALLEL_FROM, Hashed, Wanted, hash_all
from headwater.sync.intake import scope_origins
from headwater.sync.listing import Listing, Snapshot
from headwater.sync.matching import match, redirects_of
from headwater.sync.moments import SECOND, text
from headwater.sync.options import Options, gravest
from headwater.sync.plan import ADD_WORK, Planner, clear, first_base
from headwater.sync.position import Position
from headwater.sync.run import open_transport, utcnow
from headwater.sync.state import FOLDER, TEMPORARY, Home, Offer, SetRow, add_set, borrowed_state, sets
from headwater.sync.transport import Transport
from headwater.sync.verify import digests_of

_MOST_FINDINGS = 10_000
_CHUNK = 5_000

_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS expected(
  uri TEXT PRIMARY KEY, path BLOB, length INTEGER, hash TEXT, lastmod INTEGER, newer INTEGER, verdict TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS found(
  path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digests TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS spared(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS verdicts(uri TEXT, verdict TEXT);
CREATE TEMP TABLE IF NOT EXISTS walked(path BLOB PRIMARY KEY) WITHOUT ROWID;
"""

SAME, MISSING, DIFFERENT, EXTRA = "same", "missing", "different", "extra"
UNVERIFIABLE, CHANGED = "unverifiable", "changed during audit"


class Finding(msgspec.Struct, frozen=True):
    """One resource that is not the same, or one file too many."""

    verdict: str
    uri: str | None
    path: str
    reason: str = ""


class SetAudit(msgspec.Struct, kw_only=True):
    """The audit of one set: counts of resources, and what is not the same."""

    name: str
    folder: str
    at: str | None = None
    same: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    unverifiable: int = 0
    changed_during_audit: int = 0
    refused: int = 0
    left_out: int = 0
    verdict: str = "undetermined"
    reason: str | None = None
    findings: list[Finding] = []
    findings_are_cut: bool = False


class AuditReport(msgspec.Struct, kw_only=True):
    """The audit of a copy. `verdict`: `in sync`, `not in sync` or `undetermined`."""

    source: str
    destination: str
    verdict: str = "undetermined"
    sets: list[SetAudit] = []
    requests: int = 0
    seconds: float = 0.0
    exit_status: int = Exit.UNDETERMINED


def audit(
    url: str,
    destination: Path | str,
    options: Options | None = None,
    *,
    listener: Listener = silent,
    transport: Transport | None = None,
    now: Callable[[], dt.datetime] = utcnow,
) -> AuditReport:
    """Compare the copy in `destination` with what the source behind `url` lists; changes nothing anywhere.

    Raises SourceFault when the source cannot be read at all, StoreFault when the copy cannot, and Undetermined when
    there is no Resource List to compare with.
    """
    options = options or Options()
    began = time.monotonic()
    root = Path(os.path.abspath(destination))
    url = starting_uri(url)
    if not root.is_dir():
        raise DestinationUnusable("there is no such folder", where=str(root))
    home = Home(root)
    with home.at_rest(), open_transport(url, options, transport) as wire, borrowed_state(home) as database:
        documents = Documents(wire, listener, now=now)
        report = _Audit(url, root, options, listener, documents, database).go()
    report.seconds = round(time.monotonic() - began, 3)
    return report


class _Audit:
    def __init__(
        self,
        url: str,
        root: Path,
        options: Options,
        listener: Listener,
        documents: Documents,
        database: Database,
    ) -> None:
        self._url = url
        self._root = os.fsencode(root)
        self._options = options
        self._listener = listener
        self._documents = documents
        self._database = database
        self._report = AuditReport(source=url, destination=str(root))
        self._final = url

    def go(self) -> AuditReport:
        with self._database.write() as t:
            t.run(TEMPORARY)
            t.run(_TABLES)
            known = sets(t)
        early = _EarlyHashing(self._root, self._database, known)
        found = Discovery(self._documents, sitemap=self._options.sitemap).find(self._url)
        self._final = found.final
        rows = self._rows(known, found)
        hashed = False
        for row in rows:
            audit = _SetAudit(
                self._database, self._documents, self._listener, row, self._scope(row), self._root, self._options.base
            )
            self._report.sets.append(
                audit.run(lambda: early.collect(), [other.folder for other in self._all if other.id != row.id])
            )
            hashed = True
        if not hashed:
            early.collect()
        self._report.sets += [one for one in map(self._not_offered, self._gone) if one is not None]
        self._report.requests = self._documents.requests
        statuses = [_status(one.verdict) for one in self._report.sets]
        if found.faults:
            statuses.append(int(Exit.UNDETERMINED))
        self._report.exit_status = _worst(statuses)
        self._report.verdict = _VERDICTS[self._report.exit_status]
        return self._report

    def _rows(self, known: list[SetRow], found: Found) -> list[SetRow]:
        offers = found.offers
        matches = match(known, offers, redirects_of(self._documents))
        several = len(offers) > 1 or len(known) > 1
        rows = []
        with self._database.write() as t:
            for offer in offers:
                row = matches.rows.get(offer.identity)
                if row is None:
                    row = add_set(t, offer, self._folder(offer, several=several, known=bool(known)))
                rows.append(msgspec.structs.replace(row, offer=offer))
        self._gone = matches.gone
        self._unread = dict(found.faults)
        self._described = found.description is not None
        self._all = [*rows, *matches.gone]
        wanted = self._options.sets
        if not wanted:
            return rows
        chosen = [row for row in rows if row.name in wanted or row.offer.identity in wanted]
        if not chosen and not any(row.name in wanted or row.offer.identity in wanted for row in self._gone):
            names = ", ".join(row.name for row in rows)
            raise UnknownSetName(f"no set {', '.join(wanted)}; the sets are: {names}", where=self._url)
        return chosen

    def _not_offered(self, row: SetRow) -> SetAudit | None:
        """The verdict on a set that is held and not offered now; None where the user asked for another."""
        offer, wanted = row.offer, self._options.sets
        why = self._unread.get(offer.capability_list or "")
        if (why is None and not self._described) or (wanted and not {row.name, offer.identity} & set(wanted)):
            return None
        reason = "the source no longer offers this set" if why is None else f"its Capability List cannot be read: {why}"
        self._listener(Notice("DST-Q", f"{row.name}: {reason}", offer.identity))
        return SetAudit(name=row.name, folder=row.folder, reason=reason)

    def _folder(self, offer: Offer, *, several: bool, known: bool) -> str:
        return offer.name if several or known else ""

    def _scope(self, row: SetRow) -> Scope:
        hosts, any_host = self._options.allow_hosts, self._options.any_host
        if row.scope:
            _, _, hosts, any_host = msgspec.json.decode(row.scope)
        origins = scope_origins(self._url, self._final, row.offer.capability_list)
        return Scope(origins, frozenset(host.lower() for host in hosts), any_host)


class _EarlyHashing:
    """Hashes what the state says is held while the lists are still being fetched and read."""

    def __init__(self, root: bytes, database: Database, known: list[SetRow]) -> None:
        self._root = root
        self._blocks: list[list[Hashed]] = []
        self._database = database
        self._thread: threading.Thread | None = None
        if not known:
            return
        with database.write() as t:
            count = int(t.value("SELECT count(*) FROM resources WHERE path IS NOT NULL"))
        workers = min(os.cpu_count() or 1, 8) if count >= PARALLEL_FROM else 0
        if workers < 2:
            workers = 0
        wanted = self._wanted()
        if workers == 0:
            self._source: Iterator[list[Hashed]] | None = hash_all(root, wanted, workers=0)
            return
        self._source = None
        self._results = hash_all(root, wanted, workers=workers)
        self._first = next(self._results, None)  # the processes are forked here, before there are threads
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _wanted(self) -> Iterator[Wanted]:
        last = 0
        while True:
            with self._database.read() as t:
                rows = list(
                    t.rows(
                        "SELECT id, path, coalesce(listed_hash, '') FROM resources WHERE id > ? AND path IS NOT NULL"
                        " ORDER BY id LIMIT ?",
                        (last, _CHUNK),
                    )
                )
            if not rows:
                return
            last = rows[-1][0]
            for _, path, listed in rows:
                yield Wanted(path, tuple(digest.algorithm for digest in digests_of(listed)))

    def _drain(self) -> None:
        if self._first is not None:
            self._blocks.append(self._first)
        self._blocks.extend(self._results)

    def collect(self) -> Iterator[list[Hashed]]:
        """What has been hashed; waits for the rest. Once: afterwards nothing is left."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            blocks, self._blocks = self._blocks, []
            return iter(blocks)
        source = getattr(self, "_source", None)
        self._source = None
        return source if source is not None else iter(())


class _SetAudit:
    def __init__(
        self,
        database: Database,
        documents: Documents,
        listener: Listener,
        row: SetRow,
        scope: Scope,
        root: bytes,
        base: str | None,
    ) -> None:
        self._base = base if base is None or base.endswith("/") else base + "/"
        self._database = database
        self._documents = documents
        self._listener = listener
        self._row = row
        self._scope = scope
        self._root = root
        self._choice = Choice()
        if row.scope:
            include, exclude, _, _ = msgspec.json.decode(row.scope)
            self._choice = Choice(tuple(include), tuple(exclude))
        self._doubts: list[str] = []
        self._position = Position()
        self.result = SetAudit(name=row.name, folder=row.folder)

    def run(self, hashed: Callable[[], Iterator[list[Hashed]]], others: list[str]) -> SetAudit:
        """Compare, and judge."""
        try:
            self._expect()
        except (SourceFault, Undetermined) as fault:
            self._doubts.append(str(fault))
            self._listener(Notice(fault.rule or fault.code, fault.what, fault.where))
            self._judge()
            return self.result
        self._name()
        self._take_hashed(hashed())
        self._hash_the_rest()
        self._walk(others)
        self._compare()
        self._changed_meanwhile()
        self._tally()
        self._judge()
        return self.result

    # what is expected

    def _expect(self) -> None:
        offer = self._row.offer
        if offer.resource_list is None:
            raise NothingToCompare("the set has no Resource List", where=offer.identity, rule="DST-Q")
        listing = Listing(self._documents, self._database, self._scope, self._listener, sitemap=offer.is_sitemap)
        snapshot = listing.read(offer.resource_list)
        if not isinstance(snapshot, Snapshot):
            raise NothingToCompare("there is no Resource List to compare with", where=offer.resource_list, rule="DST-Q")
        self.result.at = text(snapshot.at)
        self.result.refused = snapshot.refused
        if not snapshot.complete or not snapshot.settled:
            self._doubts.append(f"the Resource List could not be read as a whole: {'; '.join(snapshot.faults[:3])}")
        with self._database.write() as t:
            t.run("DELETE FROM temp.expected")
            t.run(
                "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod) SELECT uri, length, hash, lastmod"
                " FROM temp.listed WHERE NOT refused"
            )
        if offer.change_list is not None:
            self._expect_changes(offer, snapshot.at)

    def _expect_changes(self, offer: Offer, since: int | None) -> None:
        reading = self._read_changes(offer, Position(time=since))
        if reading in (Outcome.GAP, Outcome.MISSING, Outcome.BROKEN):
            self._doubts.append("changes after the Resource List's `at` cannot all be read")
        with self._database.write() as t:
            t.run(
                "DELETE FROM temp.expected WHERE uri IN"
                " (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')"
            )
            t.run(
                "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod) SELECT uri, length, hash, lastmod"
                " FROM temp.changed WHERE pending AND change != 'deleted'"
            )

    def _read_changes(self, offer: Offer, position: Position) -> Outcome:
        with self._database.write() as t:
            t.run("DELETE FROM documents WHERE set_id = ?", (self._row.id,))
        changes = Changes(self._documents, self._database, self._scope, self._listener, self._row.id, offer, position)
        reading = changes.read()
        self._position = reading.position
        return reading.outcome

    # where it is

    def _name(self) -> None:
        """The path of everything expected: as recorded, else by the rule."""
        with self._database.write() as t:
            clear(t)
            base = self._row.base
            if base is None:
                base = self._base or first_base(t, "listed", self._row.offer.capability_list) or ""
            planner = Planner(self._row, self._choice, base)
            t.run(
                "UPDATE temp.expected SET (path, newer) = (SELECT r.path, r.newer FROM resources r"
                " WHERE r.set_id = ? AND r.uri = expected.uri)",
                (self._row.id,),
            )
            unnamed = t.rows("SELECT uri FROM temp.expected WHERE path IS NULL")
            t.many(ADD_WORK, ((uri, uri, planner.path(uri), *[None] * 12) for (uri,) in unnamed))
            planner.settle_names(t)
            t.run(
                "UPDATE temp.expected SET path = (SELECT w.path FROM temp.work w WHERE w.uri = expected.uri)"
                " WHERE path IS NULL"
            )
            if not self._choice.takes_all:
                self._leave_out(t, planner)
            t.run("CREATE INDEX IF NOT EXISTS temp.expected_path ON expected(path)")

    def _leave_out(self, t: Transaction, planner: Planner) -> None:
        """What the filters of the last run leave out is neither expected nor, where a file is held, one too many."""
        held = "SELECT uri, path FROM resources WHERE set_id = ? AND path IS NOT NULL"
        spared = {uri: path for uri, path in t.rows(held, (self._row.id,)) if not planner.takes(uri, path)}
        left = {
            uri: path for uri, path in t.rows("SELECT uri, path FROM temp.expected") if not planner.takes(uri, path)
        }
        t.run("DELETE FROM temp.spared")
        t.many("INSERT OR IGNORE INTO temp.spared(path) VALUES (?)", ((path,) for path in (spared | left).values()))
        t.many("DELETE FROM temp.expected WHERE uri = ?", ((uri,) for uri in left))
        self.result.left_out = len(spared | left)

    # what is there

    def _take_hashed(self, blocks: Iterator[list[Hashed]]) -> None:
        done = 0
        for block in blocks:
            with self._database.write() as t:
                t.many(
                    "INSERT OR REPLACE INTO temp.found(path, size, mtime_ns, digests) VALUES (?, ?, ?, ?)",
                    [(one.path, one.size, one.mtime_ns, one.digests) for one in block],
                )
            done += len(block)
            self._listener(Progress("hashing", done))

    def _hash_the_rest(self) -> None:
        """Everything expected that has not been hashed with all the algorithms that are listed."""
        with self._database.write() as t:
            count = int(
                t.value(
                    "SELECT count(*) FROM temp.expected e WHERE NOT EXISTS"
                    " (SELECT 1 FROM temp.found f WHERE f.path = e.path)"
                )
            )
        workers = min(os.cpu_count() or 1, 8) if count >= PARALLEL_FROM else 0
        self._take_hashed(hash_all(self._root, self._unhashed(), workers=workers if workers > 1 else 0))

    def _unhashed(self) -> Iterator[Wanted]:
        last = ""
        while True:
            with self._database.write() as t:
                rows = list(
                    t.rows(
                        "SELECT e.uri, e.path, e.hash, f.digests FROM temp.expected e"
                        " LEFT JOIN temp.found f ON f.path = e.path WHERE e.uri > ? ORDER BY e.uri LIMIT ?",
                        (last, _CHUNK),
                    )
                )
            if not rows:
                return
            last = rows[-1][0]
            for _, path, listed, digests in rows:
                algorithms = tuple(digest.algorithm for digest in digests_of(listed))
                if digests is None or any(f"{name}:" not in digests for name in algorithms if digests):
                    yield Wanted(path, algorithms)

    def _walk(self, others: list[str]) -> None:
        """Every file in the set's folder, so that what should not be there is seen."""
        skip = {FOLDER.encode(), *(other.encode() for other in others if other)} if not self._row.folder else set()
        with self._database.write() as t:
            t.run("DELETE FROM temp.walked")
        block: list[tuple[bytes]] = []
        for path in _files(self._root, self._row.folder.encode(), skip):
            block.append((path,))
            if len(block) >= _CHUNK:
                self._keep_walked(block)
                block = []
        self._keep_walked(block)

    def _keep_walked(self, block: list[tuple[bytes]]) -> None:
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.walked(path) VALUES (?)", block)

    # how they compare

    def _compare(self) -> None:
        query = (
            "SELECT e.uri, e.path, e.length, e.hash, e.lastmod, e.newer, f.size, f.mtime_ns, f.digests"
            " FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path"
        )
        with self._database.write() as t:
            t.many("INSERT INTO temp.verdicts(verdict, uri) VALUES (?, ?)", self._verdicts(t.rows(query)))
            t.run("UPDATE temp.expected SET verdict = v.verdict FROM temp.verdicts v WHERE v.uri = expected.uri")
            t.run("DELETE FROM temp.verdicts")

    def _verdicts(self, rows: Iterator[Row]) -> Iterator[Row]:
        for uri, _, length, listed, lastmod, newer, size, mtime_ns, digests in rows:
            verdict = judge_file(length, listed, lastmod, bool(newer), size, mtime_ns or 0, digests or "")
            if verdict == SAME:
                self.result.same += 1
            else:
                yield verdict, uri

    def _changed_meanwhile(self) -> None:
        """Look once more: what has changed since the audit began is no finding (DST-Q)."""
        offer = self._row.offer
        with self._database.write() as t:
            suspicious = t.one("SELECT 1 FROM temp.expected WHERE verdict IN (?, ?) LIMIT 1", (MISSING, DIFFERENT))
            surplus = t.one(_EXTRA + " LIMIT 1")
        if offer.change_list is None or not (suspicious or surplus):
            return
        before = self._position
        if self._read_changes(offer, before) is Outcome.READ and self._position != before:
            with self._database.write() as t:
                t.run(
                    "UPDATE temp.expected SET verdict = ? WHERE verdict IS NOT NULL AND uri IN"
                    " (SELECT uri FROM temp.changed WHERE pending)",
                    (CHANGED,),
                )
                t.run(
                    "DELETE FROM temp.walked WHERE path IN (SELECT r.path FROM resources r JOIN temp.changed c"
                    " ON c.uri = r.uri WHERE r.set_id = ? AND c.pending AND r.path IS NOT NULL)",
                    (self._row.id,),
                )

    def _tally(self) -> None:
        result = self.result
        with self._database.write() as t:
            for verdict, count in t.rows("SELECT verdict, count(*) FROM temp.expected GROUP BY verdict"):
                if verdict is not None:
                    setattr(result, verdict.replace(" ", "_"), count)
            result.extra = int(t.value(f"SELECT count(*) FROM ({_EXTRA})"))  # noqa: S608  our own constant
            query = "SELECT verdict, uri, path FROM temp.expected WHERE verdict IS NOT NULL ORDER BY path LIMIT ?"
            for verdict, uri, path in t.rows(query, (_MOST_FINDINGS,)):
                result.findings.append(Finding(verdict, uri, _shown(path)))
            for (path,) in t.rows(_EXTRA + " ORDER BY w.path LIMIT ?", (_MOST_FINDINGS,)):
                held = t.one("SELECT uri FROM resources WHERE path = ?", (path,))
                result.findings.append(
                    Finding(EXTRA, held[0] if held else None, _shown(path), "" if held else "not from the source")
                )
        total = result.missing + result.different + result.extra + result.unverifiable + result.changed_during_audit
        result.findings_are_cut = total > len(result.findings)

    def _judge(self) -> None:
        result = self.result
        if self._doubts:
            result.verdict, result.reason = "undetermined", "; ".join(self._doubts)
        elif result.missing or result.extra or result.different:
            result.verdict = "not in sync"
        elif result.changed_during_audit:
            result.verdict, result.reason = "undetermined", "the source changed during the audit"
        else:
            result.verdict = "in sync"


_EXTRA = (
    "SELECT w.path FROM temp.walked w WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = w.path)"
    " AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = w.path)"
)


def judge_file(
    length: int | None, listed: str | None, lastmod: int | None, newer: bool, size: int | None, mtime_ns: int, own: str
) -> str:
    """The verdict on one expected file: by every listed digest that can be computed, else by length and time (DST-Q).

    A copy that was newer than listed, and that no list has confirmed, is different (5.3).
    """
    if size is None:
        return MISSING
    wanted = digests_of(listed)
    if wanted:
        held = {digest.algorithm: digest.hex for digest in digests_of(own)}
        if any(held.get(digest.algorithm) != digest.hex for digest in wanted):
            return DIFFERENT
        return SAME if length is None or length == size else DIFFERENT
    if newer:
        return DIFFERENT
    if length is None and lastmod is None:
        return UNVERIFIABLE
    if length is not None and length != size:
        return DIFFERENT
    if lastmod is not None and lastmod // SECOND != mtime_ns // 1_000_000_000:
        return DIFFERENT
    return SAME


def _files(root: bytes, folder: bytes, skip: set[bytes]) -> Iterator[bytes]:
    """Every file and link below `folder`, relative to `root`; folders are not followed through links."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + here if here else root))
        except OSError:
            continue
        for entry in entries:
            if not here and entry.name in skip:
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


_VERDICTS: dict[int, str] = {Exit.DONE: "in sync", Exit.FINDINGS: "not in sync", Exit.UNDETERMINED: "undetermined"}


def _status(verdict: str) -> int:
    return next(int(status) for status, name in _VERDICTS.items() if name == verdict)


def _worst(statuses: list[int]) -> int:
    """A finding is certain whatever else is in doubt; doubt counts before agreement."""
    if Exit.FINDINGS in statuses:
        return int(Exit.FINDINGS)
    return gravest(statuses) if statuses else int(Exit.UNDETERMINED)
