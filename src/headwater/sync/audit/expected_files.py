"""The expected files of one set: its Resource List as of `at` with all later changes, and the path of each (DST-Q).

Only documents are fetched, never content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from headwater.errors import Undetermined
from headwater.storage.transaction import Transaction
from headwater.sync.alternates import keep_representations
from headwater.sync.audit.findings import SetAudit
from headwater.sync.lists.change_lists import ChangeListReader, ChangeListReading, ReadingOutcome
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import Position, position_of_list
from headwater.sync.lists.resource_lists import ResourceListRead, ResourceListReader
from headwater.sync.metadata import restate_by_changes, restate_by_list
from headwater.sync.options import Choice
from headwater.sync.past.evidence import EXISTED, UNKNOWN, Evidence, EvidenceReader, ListingResult, fill_listed
from headwater.sync.sets.moved_sets import LISTED, take_along
from headwater.sync.source_times import format_micros
from headwater.sync.state import NOTHING_REFUSED, Offer, SetRow, keep_changed, keep_listed, one_set, refused_entries
from headwater.sync.transfer.work_queue import ADD_WORK, PlannedFetch, clear_plan
from headwater.sync.update.difference import contradicted
from headwater.sync.update.path_conflicts import PathConflicts

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS expected(
  uri TEXT PRIMARY KEY, path BLOB, length INTEGER, hash TEXT, lastmod INTEGER, type TEXT, extra TEXT,
  undone INTEGER NOT NULL DEFAULT 0,
  newer INTEGER, mtime_ns INTEGER, placed_lastmod INTEGER, known_at INTEGER, digest TEXT,
  verdict TEXT, errno INTEGER, digests TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS spared(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS contradicted(uri TEXT PRIMARY KEY) WITHOUT ROWID;
"""
"""`expected`: what is listed of each file, then the copy's own record of what was placed, then the verdict, where it is
not that it is the same, and the file that was found."""

_RECORD = """
UPDATE temp.expected SET (path, newer, mtime_ns, placed_lastmod, known_at, digest) = (
  SELECT r.path, r.newer, r.mtime_ns, r.lastmod, coalesce(r.changed_at, s.baseline_at), iif(?2, r.digest, NULL)
  FROM resources r JOIN sets s ON s.id = r.set_id WHERE r.set_id = ?1 AND r.uri = expected.uri)"""
_UNDONE_YET = """
UPDATE temp.expected SET undone = 1 WHERE uri IN (
  SELECT c.uri FROM temp.changed c JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri JOIN sets s ON s.id = r.set_id
  WHERE c.pending AND c.exact AND c.change <> 'deleted' AND r.path IS NOT NULL
  AND c.at > coalesce(r.changed_at, s.baseline_at))"""
"""What the copy holds as it was before the last change that is told of it."""


class ExpectedFiles:
    """Fills `expected` for one set, and `spared` with what is left out; `doubts` says what could not be read.

    `base` says with what the names of a set are made that has none yet.
    """

    def __init__(
        self,
        context: ListContext,
        row: SetRow,
        choice: Choice,
        base: Callable[[Transaction, SetRow], str],
        result: SetAudit,
    ) -> None:
        self._context = context
        self._database = context.database
        self._row = row
        self._base = base
        self._result = result
        self._choice = choice
        self._position = Position()
        self._used_base: str | None = None
        self.refused = NOTHING_REFUSED
        """What the scope refuses of what should be held."""

        self.doubts: list[str] = []
        self.as_of: int | None = None
        """The `at` that the Resource List states: later changes that were done lists may tell no more (AMB-22)."""

        self.is_as_recorded = True
        """Whether the copy is meant to be what is expected: then its own record says what was placed for it."""

        self.is_unannounced = False
        """Whether the Resource List is newer than that of the last baseline, and no change is told that is not done."""

    def read(self) -> None:
        """Read the Resource List and the changes since its `at`. Raises SourceFault and Undetermined."""
        offer = self._row.offer
        if offer.baseline_document is None:
            raise Undetermined("the set has no Resource List", code="HW-SYN-12", where=offer.identity, rule="DST-Q")
        reached = self._row.position.time if self._row.position else None
        listing = ResourceListReader(self._context, sitemap=offer.is_sitemap, reached=reached)
        snapshot = listing.read(offer.baseline_document)
        if not isinstance(snapshot, ResourceListRead):
            raise Undetermined(
                "there is no Resource List to compare with",
                code="HW-SYN-12",
                where=offer.baseline_document,
                rule="DST-Q",
            )
        self._take_along()
        self._result.at = format_micros(snapshot.at)
        if not snapshot.complete or not snapshot.settled:
            self.doubts.append(f"the Resource List could not be read as a whole: {'; '.join(snapshot.faults[:3])}")
        with self._database.write() as t:
            t.run("DELETE FROM temp.expected")
            t.run("DELETE FROM temp.contradicted")
            t.run(
                "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod, extra, type)"
                " SELECT uri, length, hash, lastmod, extra, type FROM temp.listed WHERE NOT refused"
            )
            keep_representations(t, self._row.id, whole=True)  # of our private copy of the state
            paths = self._claims_of(t)
            if self._choice.is_by_metadata:
                restate_by_list(t, self._row.id, paths.takes, snapshot.at, complete=True)
            _, left_out = keep_listed(
                t, self._row.id, snapshot.at, paths.takes_refused, complete=True, skipped=snapshot.skipped
            )
        self._result.left_out = left_out
        self.as_of = snapshot.claimed_at
        with self._database.write() as t:
            t.run("DELETE FROM temp.changed")
            t.run("DELETE FROM temp.refused")
        if offer.changes_document is not None:
            self._expect_changes(offer, position_of_list(snapshot.at, snapshot.claimed_at))
            self.is_unannounced = self._is_newer(snapshot.stated_at) and self._is_done()
        with self._database.read() as t:
            self.refused = refused_entries(t, self._row.id)
        self._result.refused, self._result.skipped = self.refused.refused, self.refused.skipped

    def _take_along(self) -> None:
        """In our private copy of the state what is held is taken along, as the next run will do it (DST-F10)."""
        with self._database.write() as t:
            found, taken = take_along(t, self._row, self._row.offer, LISTED)
            if taken:
                self._row = msgspec.structs.replace(one_set(t, self._row.id), offer=self._row.offer)
        if self._row.move is not None and found is not None and not taken:
            self.doubts.append(f"the list at {self._row.offer.identity} does not match the copy")

    def _expect_changes(self, offer: Offer, start: Position) -> None:
        since = start.done_until
        compare = since is not None and not self._context.types
        reading = self._changes(offer, start)
        if reading.outcome not in (ReadingOutcome.READ, ReadingOutcome.UNCHANGED):
            self.doubts.append("changes after the Resource List's `at` cannot all be read")
        with self._database.write() as t:
            paths = self._claims_of(t)
            if self._choice.is_by_metadata:
                restate_by_changes(t, self._row.id, paths.takes, paths.path)
            t.run(
                "DELETE FROM temp.expected WHERE uri IN"
                " (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')"
            )
            t.run(
                "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod, extra, type)"
                " SELECT uri, length, hash, lastmod, extra, type FROM temp.changed"
                " WHERE pending AND change != 'deleted'"
            )
            t.run(_UNDONE_YET, (self._row.id,))
            takes = paths.takes_refused
            if compare and since is not None:
                self._set_aside(t, (uri for _, uri in contradicted(t, since) if takes(uri)))
            self._result.left_out += keep_changed(t, self._row.id, since, takes, tuple(reading.skipped))

    def _is_newer(self, stated_at: int | None) -> bool:
        known = self._row.baseline_at
        return known is not None and stated_at is not None and stated_at > known

    def _is_done(self) -> bool:
        """Whether a run would find no change, by the position of the copy."""
        reached = self._row.position.time if self._row.position else None
        with self._database.write() as t:
            latest = t.value("SELECT max(iif(exact, at, latest)) FROM temp.changed")
        return reached is not None and (latest is None or latest <= reached)

    def _set_aside(self, t: Transaction, uris: Iterable[str]) -> None:
        """What the Resource List has otherwise than changes of before its `at` is neither expected nor one too many."""
        t.many("INSERT OR IGNORE INTO temp.contradicted(uri) VALUES (?)", ((uri,) for uri in uris))
        t.run("DELETE FROM temp.expected WHERE uri IN (SELECT uri FROM temp.contradicted)")
        self._result.contradicted = int(t.value("SELECT count(*) FROM temp.contradicted"))

    def _changes(self, offer: Offer, position: Position) -> ChangeListReading:
        with self._database.write() as t:
            t.run("DELETE FROM documents WHERE set_id = ?", (self._row.id,))
        reading = ChangeListReader(self._context, self._row.id, offer, position).read()
        self._position = reading.position
        return reading

    def read_later(self) -> bool:
        """Whether there are changes by now that have come after all that was read; they are pending in `changed`."""
        offer, before = self._row.offer, self._position
        if offer.changes_document is None:
            return False
        return self._changes(offer, before).outcome is ReadingOutcome.READ and self._position != before

    def _claims_of(self, t: Transaction) -> PathConflicts:
        if self._used_base is None:
            self._used_base = self._row.base if self._row.base is not None else self._base(t, self._row)
        return PathConflicts(self._row, self._choice, self._used_base, t)

    def name(self) -> None:
        """The path of everything expected: as recorded, else by the rule."""
        with self._database.write() as t:
            clear_plan(t)
            paths = self._claims_of(t)
            t.run(_RECORD, (self._row.id, self.is_as_recorded))
            unnamed = t.rows("SELECT uri FROM temp.expected WHERE path IS NULL")
            t.many(ADD_WORK, (PlannedFetch(uri, uri, paths.path(uri)) for (uri,) in unnamed))
            paths.settle(t)
            t.run(
                "UPDATE temp.expected SET path = (SELECT w.path FROM temp.work w WHERE w.uri = expected.uri)"
                " WHERE path IS NULL"
            )
            t.run("DELETE FROM temp.spared")
            if not self._choice.takes_all:
                self._leave_out(t, paths)
            t.run(
                "INSERT OR IGNORE INTO temp.spared(path) SELECT r.path FROM resources r"
                " JOIN temp.contradicted c ON c.uri = r.uri WHERE r.set_id = ? AND r.path IS NOT NULL",
                (self._row.id,),
            )
            t.run(
                "INSERT OR IGNORE INTO temp.spared(path) SELECT r.path FROM resources r JOIN refusals f"
                " ON f.set_id = r.set_id AND f.uri = r.uri WHERE r.set_id = ? AND r.path IS NOT NULL",
                (self._row.id,),
            )
            t.run("CREATE INDEX IF NOT EXISTS temp.expected_path ON expected(path)")

    def _leave_out(self, t: Transaction, paths: PathConflicts) -> None:
        """What the filters of the last run leave out is neither expected nor, where a file is held, one too many."""
        held = "SELECT uri, path FROM resources WHERE set_id = ? AND path IS NOT NULL"
        gone = " AND uri NOT IN (SELECT uri FROM temp.expected)"
        spared = {uri: path for uri, path in t.rows(held, (self._row.id,)) if not paths.takes(uri, path)}
        if spared and self._choice.is_by_metadata:  # what the choice has brought is to go with its resource
            for uri, path in t.fetch(held + gone, (self._row.id,)):
                if paths.takes_deletion(uri, path):
                    spared.pop(uri, None)
        left = {uri: path for uri, path in t.rows("SELECT uri, path FROM temp.expected") if not paths.takes(uri, path)}
        t.many("INSERT OR IGNORE INTO temp.spared(path) VALUES (?)", ((path,) for path in (spared | left).values()))
        t.many("DELETE FROM temp.expected WHERE uri = ?", ((uri,) for uri in left))
        self._result.left_out += len(spared | left)


_DOUBTFUL = f"SELECT uri FROM temp.past WHERE state IN ({UNKNOWN}, {EXISTED})"  # noqa: S608  our own numbers
_EXPECT = (
    "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod, extra, type)"
    " SELECT uri, length, hash, lastmod, extra, type FROM temp.listed WHERE NOT refused"
)


class PastFiles(ExpectedFiles):
    """Fills `expected` with what the set had at `moment`. Set that before anything else."""

    moment = 0

    def read(self) -> None:
        """Read what tells of the moment. Raises SourceFault and Undetermined."""
        offer = self._row.offer
        if offer.baseline_document is None and offer.changes_document is None:
            raise Undetermined(
                "the set has no Resource List and no Change List", code="HW-SYN-12", where=offer.identity, rule="DST-Q"
            )
        self._take_along()
        self._result.at = format_micros(self.moment)
        evidence = EvidenceReader(self._context, offer, self.moment).read()
        with self._database.write() as t:
            filled = fill_listed(t, evidence)
            t.run("DELETE FROM temp.expected")
            t.run(_EXPECT)
            whole, skipped = evidence.proof is not None, tuple(evidence.skipped)
            takes = self._claims_of(t).takes_refused
            _, self._result.left_out = keep_listed(t, self._row.id, None, takes, complete=whole, skipped=skipped)
            self.refused = refused_entries(t, self._row.id)
        self._result.refused, self._result.skipped = self.refused.refused, self.refused.skipped
        self.doubts += _doubts(evidence, filled)

    def read_later(self) -> bool:
        """Nothing: what has been does not change."""
        return False

    def name(self) -> None:
        """The path of everything expected; what is in doubt is left out."""
        super().name()
        with self._database.write() as t:
            t.run(
                f"INSERT OR IGNORE INTO temp.spared(path) SELECT path FROM temp.expected WHERE uri IN ({_DOUBTFUL})"  # noqa: S608
            )
            t.run(f"DELETE FROM temp.expected WHERE uri IN ({_DOUBTFUL})")  # noqa: S608


def _doubts(evidence: Evidence, filled: ListingResult) -> list[str]:
    """What the lists leave open."""
    found = []
    when = format_micros(evidence.moment)
    if evidence.proof is None:
        found.append(evidence.lack())
    if filled.doubtful:
        which = "1 resource was" if filled.doubtful == 1 else f"{filled.doubtful:,} resources were"
        found.append(f"no list tells whether {which} there at {when}, and in which state")
    return found
