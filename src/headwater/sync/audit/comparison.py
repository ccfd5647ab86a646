"""The comparison of one set: what its lists let expect, and the files of the copy, hashed and judged (DST-Q).

What is expected is the Resource List as of its `at` with all later changes, or what the lists tell of a moment. Only
documents are fetched. What has changed meanwhile is no finding. RDF documents of which only the hash of what they say
is listed are read and hashed for it (docs/reference/addresses-and-additions.md).
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path

import msgspec

from headwater.errors import SourceFault, Undetermined
from headwater.files import hashing
from headwater.files.file_copies import GONE
from headwater.files.folder_marks import folded, is_reserved, leads_inside
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HashRequest, HashResult
from headwater.processes.pool import processors
from headwater.progress import Notice, Progress
from headwater.storage.transaction import Row, Transaction
from headwater.sync.audit.verdicts import (
    ExpectedFile,
    FoundFile,
    difference,
    judge_file,
    judge_set,
    proof_of,
)
from headwater.sync.copy.file_names import base_folder
from headwater.sync.copy.file_tree import FileTree, printable_path
from headwater.sync.linked_resources import keep_listing, put_listed
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.entries import ListContext, canonical_hash_of
from headwater.sync.lists.position import Position, position_of_list
from headwater.sync.lists.resource_lists import ResourceListRead, ResourceListReader
from headwater.sync.options import Choice, Stated, SyncOptions
from headwater.sync.past.evidence import EXISTED, UNKNOWN, Evidence
from headwater.sync.reports import (
    BEHIND,
    BY_HASH,
    BY_TIME,
    CHANGED,
    DIFFERENT,
    MISSING,
    SAME,
    UNREADABLE,
    UNVERIFIABLE,
    Finding,
    SetAudit,
)
from headwater.sync.sets.moved_sets import LISTED, take_along
from headwater.sync.source_times import format_micros
from headwater.sync.state import (
    AS_OF,
    HELD_UPDATE,
    RefusedEntries,
    SetRow,
    consent_commands,
    fact,
    keep_changed,
    keep_listed,
    left_out_before,
    one_set,
    refused_entries,
)
from headwater.sync.transfer.adoption import fitting_base
from headwater.sync.transfer.verification import CanonicalFixity, Judgement, digests_of, strongest_text
from headwater.sync.transfer.work_queue import clear_plan
from headwater.sync.update.difference import contradicted
from headwater.sync.update.path_conflicts import PathConflicts, first_base

_CHUNK = 5_000
_MOST_FINDINGS = 10_000
_NO_SUCH_FILE = frozenset({errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""A socket, or a name that no file can have here: there is nothing that could be read."""

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS expected(
  uri TEXT PRIMARY KEY, path BLOB, length INTEGER, hash TEXT, lastmod INTEGER, type TEXT, extra TEXT, links TEXT,
  undone INTEGER NOT NULL DEFAULT 0,
  newer INTEGER, mtime_ns INTEGER, placed_lastmod INTEGER, known_at INTEGER, digest TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS spared(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS finding(
  verdict TEXT, uri TEXT, path BLOB, reason TEXT, expected TEXT, found TEXT
);
CREATE INDEX IF NOT EXISTS temp.finding_uri ON finding(uri);
"""
"""`expected`: what is listed of each file, then the copy's own record of what was placed. `spared`: files that are
neither expected nor one too many. `finding`: what is not the same."""

_EXPECT = (
    "INSERT OR REPLACE INTO temp.expected(uri, length, hash, lastmod, extra, type, links)"
    " SELECT uri, length, hash, lastmod, extra, type, links FROM"
)
_EXPECT_LISTED = (
    "DELETE FROM temp.expected",
    "DELETE FROM temp.spared",
    "DELETE FROM temp.finding",
    f"{_EXPECT} temp.listed WHERE NOT refused",
)
_EXPECT_RECORDED = (
    *_EXPECT_LISTED[:3],
    "INSERT INTO temp.expected(uri, path, length, lastmod, mtime_ns, digest)"
    " SELECT uri, path, nullif(size, -1), iif(digest IS NULL, mtime_ns / 1000, NULL), mtime_ns, digest FROM resources"
    " WHERE set_id = ? AND path IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS temp.expected_path ON expected(path)",
)
"""What the copy has recorded of each file that it holds; where it knows no digest, length and time."""

_EXPECT_CHANGED = (
    "DELETE FROM temp.expected WHERE uri IN (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')",
    f"{_EXPECT} temp.changed WHERE pending AND change != 'deleted'",
)
_UNDONE_YET = """
UPDATE temp.expected SET undone = 1 WHERE uri IN (
  SELECT c.uri FROM temp.changed c JOIN resources r ON r.set_id = ?1 AND r.uri = c.uri JOIN sets s ON s.id = r.set_id
  WHERE c.pending AND c.exact AND c.change <> 'deleted' AND r.path IS NOT NULL
  AND c.at > coalesce(r.changed_at, s.baseline_at))"""
"""What the copy holds as it was before the last change that is told of it."""

_RECORD = """
UPDATE temp.expected SET (path, newer, mtime_ns, placed_lastmod, known_at, digest) = (
  SELECT r.path, r.newer, r.mtime_ns, r.lastmod, coalesce(r.changed_at, s.baseline_at), iif(?2, r.digest, NULL)
  FROM resources r JOIN sets s ON s.id = r.set_id WHERE r.set_id = ?1 AND r.uri = expected.uri)"""
_NAME = "UPDATE temp.expected SET path = (SELECT w.path FROM temp.work w WHERE w.uri = expected.uri) WHERE path IS NULL"
_SPARE = "INSERT OR IGNORE INTO temp.spared(path)"
_SPARE_HELD = f"{_SPARE} SELECT path FROM resources WHERE set_id = ? AND uri = ? AND path IS NOT NULL"  # noqa: S608
_SPARE_REFUSED = (
    f"{_SPARE} SELECT r.path FROM resources r JOIN refusals f ON f.set_id = r.set_id AND f.uri = r.uri"  # noqa: S608
    " WHERE r.set_id = ? AND r.path IS NOT NULL"
)
_KNOWN = """
SELECT uri, path, 1, type, length, lastmod, links FROM temp.expected UNION ALL
SELECT r.uri, r.path, 0, NULL, NULL, NULL, NULL FROM resources r WHERE r.set_id = ? AND r.path IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.uri = r.uri)"""
_DOUBTFUL = f"uri IN (SELECT uri FROM temp.past WHERE state IN ({UNKNOWN}, {EXISTED}))"  # noqa: S608  our own numbers
_LEAVE_OPEN = (
    f"{_SPARE} SELECT path FROM temp.expected WHERE {_DOUBTFUL}",  # noqa: S608
    f"DELETE FROM temp.expected WHERE {_DOUBTFUL}",  # noqa: S608
)

_EXPECTED = (
    "SELECT uri, path, length, hash, lastmod, type, extra, undone, newer, mtime_ns, placed_lastmod, known_at, digest"  # noqa: S608
    f" FROM temp.expected WHERE uri > ? ORDER BY uri LIMIT {_CHUNK}"
)
_KEEP = "INSERT INTO temp.finding VALUES (?, ?, ?, ?, ?, ?)"
_TOLD_NO_MORE = """
SELECT count(*) FROM resources r JOIN sets s ON s.id = r.set_id
LEFT JOIN temp.expected e ON e.uri = r.uri LEFT JOIN temp.finding f ON f.uri = e.uri
WHERE r.set_id = ?1 AND iif(r.changed_at = 0, s.baseline_at >= ?2, r.changed_at > ?2)
  AND NOT r.newer AND r.doomed_at IS NULL
  AND iif(r.path IS NULL, f.verdict = ?3, e.uri IS NULL OR f.verdict = ?4)
  AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = r.path)
  AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = r.uri)
  AND r.uri NOT IN (SELECT uri FROM temp.refused WHERE uri IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM temp.changed c
    WHERE c.uri = r.uri AND iif(c.exact, c.at, coalesce(c.latest, c.at, ?2)) >= r.changed_at)"""
"""What the copy has otherwise than is expected by a change after the Resource List's `at` that no list tells now.

A deletion that was told without a time (0) is later than the last baseline."""

_KEEP_EXTRA = """
INSERT INTO temp.finding SELECT iif(r.doomed_at, 'held back', 'extra'), r.uri, ?1,
  iif(r.uri IS NULL, 'not from the source', iif(r.doomed_at, 'deleted at the source; waits for consent', '')),
  NULL, NULL
FROM (SELECT 1) LEFT JOIN (SELECT uri, doomed_at IS NOT NULL AS doomed_at FROM resources WHERE path = ?1) AS r
WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = ?1)
AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path IN (?1, ?2))"""
_HELD_UPDATES = """
UPDATE temp.finding SET verdict = 'held back', reason = 'overwritten at the source; waits for consent'
WHERE verdict = 'different' AND uri IN (SELECT uri FROM failures WHERE set_id = ? AND reason = ?)"""
_NO_FINDING_YET = """
UPDATE temp.finding SET verdict = ?1, reason = '', expected = NULL, found = NULL
WHERE iif(?2, verdict IN ('missing', 'different'), verdict NOT IN ('extra', 'held back'))
  AND uri IN (SELECT uri FROM temp.changed WHERE pending)
OR ?2 AND verdict = 'extra' AND uri IN (SELECT uri FROM temp.changed WHERE pending AND change = 'deleted')"""
"""What the source states after the position of the last run, or has changed meanwhile (DST-Q)."""

_FINDINGS = "SELECT * FROM temp.finding ORDER BY verdict = 'extra', path"


@dataclass
class SetComparison:
    """Compares one set with what its source lists, or what it had at `moment`. Call `run` once.

    `is_by_record`: it is compared with the copy's own record. `root` is the real path of the copy. `each` hears of
    every file.
    """

    context: ListContext
    row: SetRow
    choice: Choice
    root: Path
    options: SyncOptions
    moment: int | None
    each: Callable[[Finding], object] | None = None
    _: KW_ONLY
    is_by_record: bool = False

    def __post_init__(self) -> None:
        self._database = self.context.database
        self._base = self.row.base
        self._position = Position()
        self._as_of: int | None = None
        """The `at` that the Resource List states: later changes that were done lists may tell no more (AMB-22)."""

        self._refused = RefusedEntries()
        """What the scope refuses of what should be held."""

        self._doubts: list[str] = []
        self._fixity = CanonicalFixity()
        self._result = SetAudit(name=self.row.name, folder=self.row.folder)

    def run(self, others: list[str]) -> SetAudit:
        """Compare, and judge. `others` are the folders of the other sets."""
        try:
            if self.is_by_record:
                with self._database.write() as t:
                    for statement in _EXPECT_RECORDED:
                        t.run(statement, (self.row.id,) if "?" in statement else ())
            elif self.moment is None:
                self._expect()
            else:
                self._expect_past(self.moment)
        except (SourceFault, Undetermined) as fault:
            self._doubts.append(str(fault))
            self.context.listener(Notice(fault.rule or fault.code, fault.what, fault.where))
        else:
            self._result.refused, self._result.skipped = self._refused.refused, self._refused.skipped
            if not self.is_by_record:
                self._name()
            with closing(self._fixity):
                proved = self._compare()
            self._count_told_no_more()
            self._walk(others)
            self._look_once_more()
            self._tally(proved)
            for rule, told, where in self._refused.sentences:
                self.context.listener(Notice(rule, told, where))
        judge_set(self._result, self._doubts)
        return self._result

    # what is expected

    def _take_along(self) -> None:
        """In our private copy of the state what is held is taken along, as the next run will do it (DST-F10)."""
        with self._database.write() as t:
            found, taken = take_along(t, self.row, self.row.offer, LISTED)
            if taken:
                self.row = msgspec.structs.replace(one_set(t, self.row.id), offer=self.row.offer)
                self._base = self.row.base
        if self.row.move is not None and found is not None and not taken:
            self._doubts.append(f"the list at {self.row.offer.identity} does not match the copy")

    def _expect(self) -> None:
        """Read the Resource List and the changes since its `at`. Raises SourceFault and Undetermined."""
        offer, snapshot = self.row.offer, None
        if offer.baseline_document is not None:
            reached = self.row.position.time if self.row.position else None
            listing = ResourceListReader(self.context, sitemap=offer.is_sitemap, reached=reached)
            snapshot = listing.read(offer.baseline_document)
        if not isinstance(snapshot, ResourceListRead):
            where = offer.baseline_document or offer.identity
            what = "there is no Resource List to compare with"
            raise Undetermined(what, code="HW-SYN-12", where=where, rule="DST-Q")
        if self.choice.by_links:
            with self._database.write() as t:
                put_listed(t, self.row.id, None, self.choice.prefer_types, self.context.scope, complete=True)
                keep_listing(t, self.row.id)  # in our private copy of the state
        self._take_along()
        self._result.at = format_micros(snapshot.at)
        if not snapshot.complete or not snapshot.settled:
            self._doubts.append(f"the Resource List could not be read as a whole: {'; '.join(snapshot.faults[:3])}")
        self._as_of = snapshot.claimed_at
        with self._database.write() as t:
            self._expect_listed(t, snapshot.at, tuple(snapshot.skipped), complete=True)
            t.run("DELETE FROM temp.changed")
            t.run("DELETE FROM temp.refused")
        if offer.changes_document is not None:
            self._expect_changes(position_of_list(snapshot.at, snapshot.claimed_at))
        with self._database.read() as t:
            self._refused = refused_entries(t, self.row.id)

    def _expect_listed(
        self, t: Transaction, at: int | None, skipped: tuple[tuple[str, int], ...], *, complete: bool
    ) -> None:
        for statement in _EXPECT_LISTED:
            t.run(statement)
        takes = self._paths(t).takes_refused
        _, self._result.left_out = keep_listed(t, self.row.id, at, takes, complete=complete, skipped=skipped)

    def _expect_changes(self, start: Position) -> None:
        outcome, skipped = self._read_changes(start)
        if outcome not in (ReadingOutcome.READ, ReadingOutcome.UNCHANGED):
            self._doubts.append("changes after the Resource List's `at` cannot all be read")
        since = start.done_until
        with self._database.write() as t:
            paths = self._paths(t)
            for statement in _EXPECT_CHANGED:
                t.run(statement)
            t.run(_UNDONE_YET, (self.row.id,))
            if since is not None and not self.choice.prefer_types:
                # what the list has otherwise than changes of before its `at` is neither expected nor one too many
                told = {uri for n, uri in contradicted(t, since) if paths.takes_refused(uri, _stated(t, n))}
                t.many("DELETE FROM temp.expected WHERE uri = ?", ((uri,) for uri in told))
                t.many(_SPARE_HELD, ((self.row.id, uri) for uri in told))
                self._result.contradicted = len(told)
            if self._result.left_out:
                self._result.left_out -= left_out_before(t, paths.takes_refused, refused_alone=True)
            self._result.left_out += keep_changed(t, self.row.id, since, paths.takes_refused, skipped)

    def _read_changes(
        self, position: Position, before: Position | None = None
    ) -> tuple[ReadingOutcome, tuple[tuple[str, int], ...]]:
        """Have the changes after a position in `changed`; the outcome, and what was skipped. `before`: as for a run."""
        with self._database.write() as t:
            t.run("DELETE FROM documents WHERE set_id = ?", (self.row.id,))
        reading = ChangeListReader(self.context, self.row.id, self.row.offer, position, before=before).read()
        self._position = reading.position
        return reading.outcome, tuple(reading.skipped)

    def _expect_past(self, moment: int) -> None:
        """Read what tells of the moment. Raises SourceFault and Undetermined."""
        self._take_along()
        self._result.at = format_micros(moment)
        evidence = Evidence(self.context, self.row.offer, moment)
        evidence.read()
        with self._database.write() as t:
            filled = evidence.fill_listed(t)
            self._expect_listed(t, None, tuple(evidence.skipped), complete=evidence.proof is not None)
            self._refused = refused_entries(t, self.row.id)
        if evidence.proof is None:
            self._doubts.append(evidence.lack())
        if filled.doubtful:
            which = "1 resource was" if filled.doubtful == 1 else f"{filled.doubtful:,} resources were"
            self._doubts.append(f"no list says whether {which} there at {self._result.at}, and in which state")

    def _paths(self, t: Transaction) -> PathConflicts:
        """The names of the set: with the base that it has, was asked for, that fits the files, or of a first run."""
        if self._base is None and self.options.base is not None:
            self._base = base_folder(self.options.base)
        if self._base is None:
            default = first_base(t, "listed", self.row.offer.capability_list) or ""
            prefix = self.row.folder.encode() + b"/" if self.row.folder else b""
            with FileTree(self.root, None) as tree:
                found = fitting_base(t, "listed", tree, prefix, default)
            self._base = default if found is None else found[0]
        return PathConflicts(self.row, self.choice, self._base, t)

    def _name(self) -> None:
        """The path of everything expected: as recorded, else by the rule; what is in doubt is left out."""
        with self._database.write() as t:
            clear_plan(t)
            paths = self._paths(t)
            is_as_recorded = self.moment is None or fact(t, AS_OF) == str(self.moment)
            t.run(_RECORD, (self.row.id, is_as_recorded))
            unnamed = t.rows("SELECT uri FROM temp.expected WHERE path IS NULL")
            named = ((uri, uri, paths.path(uri)) for (uri,) in unnamed)
            t.many("INSERT INTO temp.work(uri, loc, path) VALUES (?, ?, ?)", named)
            paths.settle(t)
            t.run(_NAME)
            if not self.choice.takes_all:
                self._leave_out(t, paths)
            t.run(_SPARE_REFUSED, (self.row.id,))
            for statement in _LEAVE_OPEN if self.moment is not None else ():
                t.run(statement)
            t.run("CREATE INDEX IF NOT EXISTS temp.expected_path ON expected(path)")

    def _leave_out(self, t: Transaction, paths: PathConflicts) -> None:
        """What the filters of the last run leave out is neither expected nor, where a file is held, one too many.

        What the source has deleted is to go, described by a record or not.
        """
        for uri, path, is_expected, *stated in t.rows(_KNOWN, (self.row.id,)):
            goes = self.choice.is_by_metadata and not is_expected and paths.takes_deletion(uri, path)
            if not (goes or paths.takes(uri, path, Stated(*stated) if is_expected else None)):
                t.run(f"{_SPARE} VALUES (?)", (path,))
                self._result.left_out += is_expected
        t.run("DELETE FROM temp.expected WHERE path IN (SELECT path FROM temp.spared)")

    # the files

    def _compare(self) -> Counter[str]:
        """Hash what is expected and note the verdicts on what is not the same; counts what proves the rest."""
        proved, done, processes = Counter[str](), 0, min(processors(), 8)
        pool = HashPool(processes=processes if processes > 1 else 0)

        def request(wanted: ExpectedFile) -> HashRequest:
            """With every digest that is listed, else with that of what was placed; else the state alone is read."""
            digests = digests_of(wanted.hash) or digests_of(wanted.digest)
            return self._file(wanted.path), tuple(digest.algorithm for digest in digests), None

        for block, results in pool.read(self._wanted(), request):
            findings = []
            for wanted, result in zip(block, results, strict=True):
                found = found_file(result)
                verdict, proof = self._judge(wanted, found)
                if verdict == SAME:
                    proved[proof] += 1
                    self._tell_same(wanted, found, proof)
                else:
                    findings.append((verdict, wanted.uri, wanted.path, *difference(verdict, wanted, found)))
            if findings:
                with self._database.write() as t:
                    t.many(_KEEP, findings)
            done += len(block)
            self.context.listener(Progress("hashing", done))
        return proved

    def _tell_same(self, wanted: ExpectedFile, found: FoundFile | None, proof: str) -> None:
        digests = "" if found is None or proof == BY_TIME else found.digests
        for one in digests.split():
            name = one.partition(":")[0]
            self._result.algorithms[name] = self._result.algorithms.get(name, 0) + 1
        if self.each is not None:
            expected = strongest_text(wanted.hash) or wanted.digest
            of = wanted.uri, printable_path(wanted.path)
            self.each(Finding(SAME, *of, "", expected, digests or None, self.row.name, proof))

    def _wanted(self) -> Iterator[ExpectedFile]:
        """What is expected, some thousand to a transaction: none stays open while files are read."""
        last = ""
        while True:
            with self._database.write() as t:
                rows = t.fetch(_EXPECTED, (last,))
            if not rows:
                return
            last = rows[-1][0]
            yield from (ExpectedFile(*row) for row in rows)

    def _file(self, path: bytes) -> bytes:
        """Where a file of the copy lies: nowhere, where a state has a path that leads out of it."""
        return os.fsencode(self.root) + b"/" + path if leads_inside(path) else b""

    def _judge(self, wanted: ExpectedFile, found: FoundFile | None) -> tuple[str, str]:
        """The verdict on a file, and what proves that it is the same, where it is.

        A document of which only the hash of what it says is listed is read for it. The hash of the empty dataset
        verifies nothing, and where it costs too much to find out nothing is known: what is not as it was placed is
        different all the same.
        """
        verdict = judge_file(wanted, found)
        if found is None:
            return verdict, BY_HASH
        proof, listed = proof_of(wanted, found), canonical_hash_of(wanted.extra)
        is_decided = verdict == UNREADABLE or wanted.newer or digests_of(wanted.hash)
        if listed is None or is_decided or wanted.length not in (None, found.size):
            return verdict, proof
        path = Path(os.fsdecode(self._file(wanted.path)))
        try:
            fixity = self._fixity.judge(listed, wanted.uri, (wanted.type,), path)
        except OSError:
            return UNREADABLE, proof
        if fixity.judgement is Judgement.GOOD and fixity.verified:
            return SAME, BY_HASH
        if fixity.judgement is Judgement.DIFFERENT or (verdict == DIFFERENT and wanted.digest is not None):
            return DIFFERENT, proof
        is_same = fixity.judgement is Judgement.GOOD and verdict == SAME
        return SAME if is_same else UNVERIFIABLE, proof

    def _count_told_no_more(self) -> None:
        """Count what a list has told and none tells by now: nobody can say whether it holds.

        A Change List may drop what is old (AMB-22).
        """
        with self._database.write() as t:
            t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
            count = t.value(_TOLD_NO_MORE, (self.row.id, self._as_of, MISSING, DIFFERENT))
        self._result.told_no_more = int(count)

    def _walk(self, others: list[str]) -> None:
        """Find every file below the folder of the set that is neither in `expected` nor in `spared`.

        `others` are the folders of the other sets, which may lie in it.
        """
        with FileTree(self.root, None) as tree, self._database.write() as t:
            folds = tree.folds
            if folds:  # what is expected under another spelling of its name is that file to the file system
                named = t.fetch("SELECT path FROM temp.expected UNION ALL SELECT path FROM temp.spared")
                t.many(f"{_SPARE} VALUES (?)", ((folded(path),) for (path,) in named))
        skip = {other.encode() for other in others if other} if not self.row.folder else set()
        unread: list[Row] = []
        files = _files(os.fsencode(self.root), self.row.folder.encode(), skip, unread)
        while block := [(path, folded(path) if folds else path) for path in islice(files, _CHUNK)]:
            with self._database.write() as t:
                t.many(_KEEP_EXTRA, block)
        with self._database.write() as t:
            t.many(_KEEP, unread)
            t.run(_HELD_UPDATES, (self.row.id, HELD_UPDATE))

    def _look_once_more(self) -> None:
        """What changes tell that come after the position of the last run is no finding, but behind (DST-Q).

        Of a copy without a position it is what has changed since the audit began. The past does not change.
        """
        known = self.row.position if self.row.position is not None and self.row.position.time is not None else None
        with self._database.write() as t:
            wrong = (MISSING, DIFFERENT, MISSING if known is None else "extra")
            suspicious = t.one("SELECT 1 FROM temp.finding WHERE verdict IN (?, ?, ?) LIMIT 1", wrong)
        is_present = self.moment is None and not self.is_by_record
        if suspicious is None or not is_present or self.row.offer.changes_document is None:
            return
        before = self._position if known is None else known
        outcome, _ = self._read_changes(before, known)
        if outcome is ReadingOutcome.READ and self._position != before:
            with self._database.write() as t:
                t.run(_NO_FINDING_YET, (CHANGED if known is None else BEHIND, known is not None))

    def _tally(self, proved: Counter[str]) -> None:
        result, total = self._result, 0
        for proof, count in proved.items():
            setattr(result, proof, count)
        result.same = proved.total()
        with self._database.write() as t:
            for verdict, count in t.rows("SELECT verdict, count(*) FROM temp.finding GROUP BY verdict"):
                setattr(result, verdict.replace(" ", "_"), count)
                total += count
            if result.held_back:
                result.consent = consent_commands(t, self.row, fact(t, "url") or "URL", str(self.root))
            for verdict, uri, path, reason, expected, found in t.rows(_FINDINGS):
                finding = Finding(verdict, uri, printable_path(path), reason, expected, found, result.name)
                if len(result.findings) < _MOST_FINDINGS:
                    result.findings.append(finding)
                elif self.each is None:
                    break
                if self.each is not None:
                    self.each(finding)
        result.findings_are_cut = total > len(result.findings)


def _stated(t: Transaction, n: int) -> Stated:
    """What a change states of its resource."""
    return Stated(*(t.one("SELECT type, length, lastmod, links FROM temp.changed WHERE n = ?", (n,)) or ()))


def found_file(result: HashResult) -> FoundFile | None:
    """The file that was hashed. None: there is no plain file; with an errno there is one that cannot be read."""
    outcome, error, (size, mtime_ns, _, _), _, _, digests, _ = result
    if outcome == hashing.READ:
        return FoundFile(size, mtime_ns, digests)
    if outcome == hashing.UNREADABLE and error not in _NO_SUCH_FILE:
        return FoundFile(-1, 0, "", error or errno.EIO)
    is_changing = outcome == hashing.CHANGED and error != errno.ELOOP
    return FoundFile(-1, 0, "") if is_changing else None  # a file, but no content that could be the right one


def _files(root: bytes, folder: bytes, skip: set[bytes], unread: list[Row]) -> Iterator[bytes]:
    """Every file and link below `folder`, relative to `root`; folders are not followed through links.

    Findings on folders that cannot be read are added to `unread`.
    """
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + here if here else root))
        except GONE:
            continue
        except OSError as cause:
            unread.append((UNREADABLE, None, here + b"/", os.strerror(cause.errno or errno.EIO), None, None))
            continue
        for entry in entries:
            if not here and (entry.name in skip or is_reserved(entry.name)):
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path
