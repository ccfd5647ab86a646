"""The comparison of one set: expected files with files on disk, apart from what has changed meanwhile (DST-Q).

RDF documents of which only the hash of what they say is listed are read and hashed for it (docs/extensions.md).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from headwater.errors import SourceFault, Undetermined
from headwater.progress import Notice
from headwater.spec.extensions import CANONICAL
from headwater.spec.hashes import STRONGEST
from headwater.storage.database import Database
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.audit.expected_files import ExpectedFiles
from headwater.sync.audit.findings import (
    BY_HASH,
    BY_RECORD,
    BY_TIME,
    CHANGED,
    DIFFERENT,
    EXTRA,
    MISSING,
    SAME,
    TOLD_NO_MORE,
    UNREADABLE,
    UNVERIFIABLE,
    ContentVerdict,
    ExpectedFile,
    Finding,
    FoundFile,
    PlacementRecord,
    SetAudit,
    difference,
    judge_file,
    judge_set,
    lacks_digests,
    proof_of,
)
from headwater.sync.audit.inventory import Inventory
from headwater.sync.copy.canonical_fixity import CanonicalFixity, DocumentFixity
from headwater.sync.lists.entries import ListContext, canonical_hash_of
from headwater.sync.lists.staging import any_patches_alone
from headwater.sync.state.set_rows import SetRow
from headwater.sync.transfer.verification import digests_of, strongest_text
from headwater.transport.transport import Transport

_MOST_FINDINGS = 10_000

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS verdicts(uri TEXT, verdict TEXT);
CREATE TEMP TABLE IF NOT EXISTS unhashed(uri TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS told_no_more(uri TEXT PRIMARY KEY, path BLOB, length INTEGER, hash TEXT) WITHOUT ROWID;
"""

_DIGESTS = " OR ".join(f"instr(e.hash, '{name}:')" for name in STRONGEST)
"""Where one is listed the state need not be asked: that takes a tenth of the time of an audit."""

_COMPARED = (
    "SELECT e.uri, e.length, e.hash, e.lastmod, e.newer, e.undone, f.size, f.mtime_ns, f.digests, f.errno,"  # noqa: S608
    " r.mtime_ns, r.lastmod, coalesce(r.changed_at, s.baseline_at), iif(?2, r.digest, NULL)"
    " FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path"
    " LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = e.uri AND coalesce(NOT (" + _DIGESTS + "), 1)"
    " LEFT JOIN sets s ON s.id = r.set_id"
)
_COMPARED_LATER = _COMPARED + " WHERE e.uri IN (SELECT uri FROM temp.unhashed)"  # noqa: S608  our own names
_UNHASHED = "unhashed"
"""In place of a verdict: more has to be known of the file."""

_FINDINGS = (
    "SELECT e.verdict, e.uri, e.path, f.errno, e.undone, e.hash, iif(?2, r.digest, NULL), coalesce(f.digests, '')"
    " FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path"
    " LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = e.uri"
    " WHERE e.verdict IS NOT NULL ORDER BY e.path LIMIT ?3"
)
_NOT_DONE = "its last change was not done, and no hash that can be computed is listed"
_LISTED_ANEW = (
    "SELECT 1 FROM temp.expected e LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = e.uri"
    " WHERE e.verdict IN (?2, ?3) AND (r.path IS NULL OR r.listed_hash IS NOT e.hash)"
    " UNION ALL SELECT 1 FROM temp.surplus x JOIN resources r ON r.path = x.path WHERE r.set_id = ?1 LIMIT 1"
)
_TOLD_NO_MORE = """
INSERT INTO temp.told_no_more SELECT r.uri, r.path, r.size, r.digest
FROM resources r JOIN sets s ON s.id = r.set_id LEFT JOIN temp.expected e ON e.uri = r.uri
WHERE r.set_id = ?1 AND iif(r.changed_at = 0, s.baseline_at >= ?2, r.changed_at > ?2)
  AND NOT r.newer AND r.doomed_at IS NULL
  AND iif(r.path IS NULL, e.verdict = ?3, e.uri IS NULL OR e.verdict = ?4)
  AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = r.path)
  AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = r.uri)
  AND r.uri NOT IN (SELECT uri FROM temp.refused WHERE uri IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM temp.changed c WHERE c.uri = r.uri AND coalesce(c.latest, c.at, ?2) >= r.changed_at)"""
"""What the copy has otherwise than is expected by a change after the Resource List's `at` that no list tells now.

A deletion that was told without a time (0) is later than the last baseline."""

_EXPECT_AS_GONE = (
    "UPDATE temp.expected SET verdict = ? WHERE uri IN (SELECT uri FROM temp.told_no_more WHERE path IS NULL)"
)
_EXPECT_AS_RECEIVED = """
INSERT INTO temp.expected(uri, path, length, hash, verdict)
  SELECT uri, path, length, hash, ?1 FROM temp.told_no_more WHERE path IS NOT NULL
ON CONFLICT(uri) DO UPDATE SET
  length = excluded.length, hash = excluded.hash, lastmod = NULL, newer = 0, undone = 0, verdict = ?1"""
_UNREAD_FOLDERS = "SELECT path, errno FROM temp.unread_folders ORDER BY path LIMIT ?"


class SetComparison:
    """Compares one set. Call `run` once; the verdict is in `result`."""

    def __init__(
        self,
        context: ListContext,
        row: SetRow,
        expectation: ExpectedFiles,
        content: SetContent,
        inventory: Inventory,
        result: SetAudit,
    ) -> None:
        self._context = context
        self._database = context.database
        self._listener = context.listener
        self._row = row
        self._content = content
        self._verdict: ContentVerdict | None = None
        self._proved: Counter[str] = Counter()
        self._expectation = expectation
        self._inventory = inventory
        self.result = result

    def run(self, others: list[str]) -> None:
        """Compare, and judge. `others` are the folders of the other sets."""
        try:
            self._expectation.read()
        except (SourceFault, Undetermined) as fault:
            self._expectation.doubts.append(str(fault))
            self._listener(Notice(fault.rule or fault.code, fault.what, fault.where))
        else:
            self._expectation.name()
            self._inventory.wait()
            self._verdict = self._content.verdict(self._context, self._row.id)
            if unhashed := self._compare(_COMPARED, lacks_digests):
                self._inventory.hash_unhashed(unhashed)
                self._compare(_COMPARED_LATER, lambda _found, _listed: False)
            recorded = self._row.id if self._expectation.is_as_recorded else None
            self._proved.update(judge_documents(self._database, self._inventory.file, recorded))
            self._told_no_more()
            self._inventory.walk(self._row.folder, others)
            self._changed_meanwhile()
            self._tally()
            for rule, told, where in self._expectation.refused.sentences():
                self._listener(Notice(rule, told, where))
        judge_set(
            self.result,
            self._expectation.doubts,
            is_unannounced=self._expectation.is_unannounced and self._is_listed_anew(),
        )

    def _is_listed_anew(self) -> bool:
        """Whether something differs because the lists are others than those that the copy was made by."""
        with self._database.write() as t:
            return t.one(_LISTED_ANEW, (self._row.id, MISSING, DIFFERENT)) is not None

    def _compare(self, query: str, lacks: Callable[[str | None, str | None], bool]) -> int:
        """Judge what a query has of `expected` and `found`, except where more has to be known of the file: these are in
        `unhashed` then, so many. `lacks`: whether digests that were computed are not all that are listed."""
        with self._database.write() as t:
            judged = self._verdicts(t.rows(query, (self._row.id, self._expectation.is_as_recorded)), lacks)
            t.many("INSERT INTO temp.verdicts(verdict, uri) VALUES (?, ?)", judged)
            t.run("DELETE FROM temp.unhashed")
            t.run("INSERT INTO temp.unhashed(uri) SELECT uri FROM temp.verdicts WHERE verdict = ?", (_UNHASHED,))
            t.run(
                "UPDATE temp.expected SET verdict = v.verdict FROM temp.verdicts v"
                " WHERE v.uri = expected.uri AND v.verdict != ?",
                (_UNHASHED,),
            )
            t.run("DELETE FROM temp.verdicts")
            return int(t.value("SELECT count(*) FROM temp.unhashed"))

    def _verdicts(self, rows: Iterator[Row], lacks: Callable[[str | None, str | None], bool]) -> Iterator[Row]:
        for uri, length, listed, lastmod, newer, undone, size, mtime_ns, digests, errno, *placed in rows:
            record = None if placed[0] is None else PlacementRecord(*placed)
            found = None if size is None else FoundFile(size, mtime_ns, digests, errno)
            expected = ExpectedFile(length, listed, lastmod, bool(newer), record, bool(undone))
            verdict = judge_file(expected, found)
            proof = proof_of(expected, found) if verdict == SAME and found is not None else BY_HASH
            if verdict == SAME and proof == BY_HASH:
                self._proved[BY_HASH] += 1
                continue
            needs = lacks(digests, listed if digests_of(listed) or record is None else record.digest)
            if self._verdict is not None and uri == self._verdict.uri and verdict != MISSING:
                needs, verdict, proof = False, self._verdict.verdict, BY_HASH
            if needs:
                yield _UNHASHED, uri
            elif verdict == SAME:
                self._proved[proof] += 1
            else:
                yield verdict, uri

    def _told_no_more(self) -> None:
        """Compare with what was received what a list has told and none tells by now: nobody can say whether it holds.

        A Change List may drop what is old (AMB-22); what is not even as it was received stays a finding.
        """
        as_of = self._expectation.as_of
        if as_of is None:
            return
        with self._database.write() as t:
            t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
            t.run("DELETE FROM temp.told_no_more")
            t.run(_TOLD_NO_MORE, (self._row.id, as_of, MISSING, DIFFERENT))
            t.run(_EXPECT_AS_GONE, (TOLD_NO_MORE,))
            t.run(_EXPECT_AS_RECEIVED, (TOLD_NO_MORE,))
            t.run("DELETE FROM temp.unhashed")
            held = t.run("INSERT INTO temp.unhashed(uri) SELECT uri FROM temp.told_no_more WHERE path IS NOT NULL")
        if held:
            before = self._proved.copy()
            self._inventory.hash_unhashed(held)
            self._compare(_COMPARED_LATER, lambda _found, _listed: False)
            self._proved = before

    def _changed_meanwhile(self) -> None:
        """Look once more: what has changed since the audit began is no finding (DST-Q)."""
        with self._database.write() as t:
            suspicious = t.one("SELECT 1 FROM temp.expected WHERE verdict IN (?, ?) LIMIT 1", (MISSING, DIFFERENT))
            surplus = t.one("SELECT 1 FROM temp.surplus LIMIT 1")
        if (suspicious or surplus) and self._expectation.read_later():
            with self._database.write() as t:
                t.run(
                    "UPDATE temp.expected SET verdict = ? WHERE verdict IS NOT NULL AND uri IN"
                    " (SELECT uri FROM temp.changed WHERE pending)",
                    (CHANGED,),
                )
                t.run(
                    "DELETE FROM temp.surplus WHERE path IN (SELECT r.path FROM resources r JOIN temp.changed c"
                    " ON c.uri = r.uri WHERE r.set_id = ? AND c.pending AND r.path IS NOT NULL)",
                    (self._row.id,),
                )

    def _tally(self) -> None:
        result = self.result
        for proof, count in self._proved.items():
            setattr(result, proof, count)
        result.same = self._proved.total()
        with self._database.write() as t:
            for verdict, count in t.rows("SELECT verdict, count(*) FROM temp.expected GROUP BY verdict"):
                if verdict is not None:
                    setattr(result, verdict.replace(" ", "_"), count)
            result.extra = int(t.value("SELECT count(*) FROM temp.surplus"))
            result.unreadable += int(t.value("SELECT count(*) FROM temp.unread_folders"))
            wanted = self._row.id, self._expectation.is_as_recorded, _MOST_FINDINGS
            for verdict, uri, path, errno, undone, listed, recorded, digests in t.rows(_FINDINGS, wanted):
                reason, expected, found = self._reason(verdict, uri, errno), None, None
                if verdict == MISSING:
                    expected = strongest_text(listed) or recorded
                elif verdict == DIFFERENT and not reason:
                    reason, expected, found = difference(listed, recorded, digests)
                    if undone and not digests_of(listed):
                        reason = _NOT_DONE
                result.findings.append(Finding(verdict, uri, _shown(path), reason, expected, found))
            for path, errno in t.rows(_UNREAD_FOLDERS, (_MOST_FINDINGS,)):
                result.findings.append(Finding(UNREADABLE, None, _shown(path) + "/", os.strerror(errno)))
            for (path,) in t.rows("SELECT path FROM temp.surplus ORDER BY path LIMIT ?", (_MOST_FINDINGS,)):
                held = t.one("SELECT uri FROM resources WHERE path = ?", (path,))
                result.findings.append(
                    Finding(EXTRA, held[0] if held else None, _shown(path), "" if held else "not from the source")
                )
        certain = result.missing + result.different + result.extra
        total = certain + result.unreadable + result.unverifiable + result.changed_during_audit
        total += result.told_no_more
        result.findings_are_cut = total > len(result.findings)

    def _reason(self, verdict: str, uri: str, errno: int | None) -> str:
        if self._verdict is not None and uri == self._verdict.uri and verdict == self._verdict.verdict:
            return self._verdict.reason
        return os.strerror(errno or 0) if verdict == UNREADABLE else ""


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


_DOCUMENTS = """
SELECT e.uri, e.path, e.hash, e.extra, e.type, coalesce(e.verdict, ?1), r.digest FROM temp.expected e
JOIN temp.found f ON f.path = e.path LEFT JOIN resources r ON r.set_id = ?5 AND r.uri = e.uri
WHERE instr(e.extra, ?2) AND NOT coalesce(e.newer, 0) AND coalesce(e.length, f.size) = f.size AND NOT f.errno
AND coalesce(e.verdict, ?1) IN (?1, ?3, ?4)"""


def judge_documents(database: Database, file: Callable[[bytes], bytes], set_id: int | None) -> Counter[str]:
    """Replace the verdicts in `expected` on documents without a listed digest by those on what they say.

    `file` is where one lies, `set_id` the set of which the copy has its own record (None: of none). Returns how many
    more files, or fewer, are proved by what.
    """
    judged, proved = [], Counter[str]()
    with database.write() as t, closing(CanonicalFixity()) as fixity:
        wanted = SAME, CANONICAL, DIFFERENT, UNVERIFIABLE, set_id
        for uri, path, hash_, extra, kind, before, recorded in t.rows(_DOCUMENTS, wanted):
            listed = canonical_hash_of(extra)
            if listed is None or digests_of(hash_):
                continue
            found = DocumentFixity.UNKNOWN
            try:
                found = fixity.judge_file(listed, uri, kind, Path(os.fsdecode(file(path)))).fixity
                verdict = _verdict(found, before, is_recorded=recorded is not None)
            except OSError:
                verdict = UNREADABLE
            otherwise = BY_RECORD if recorded is not None else BY_TIME
            proved[otherwise] -= before == SAME
            proved[BY_HASH if found is DocumentFixity.AS_LISTED else otherwise] += verdict == SAME
            judged.append((None if verdict == SAME else verdict, uri))
        if judged:
            t.many("UPDATE temp.expected SET verdict = ? WHERE uri = ?", judged)
    return proved


def _verdict(found: DocumentFixity, before: str, *, is_recorded: bool) -> str:
    """The verdict by what the document says. The hash of the empty dataset verifies nothing, and where it costs too
    much to find out nothing is known: what is not as it was placed is different all the same."""
    if found is DocumentFixity.AS_LISTED:
        return SAME
    if found is DocumentFixity.OTHER or (before == DIFFERENT and is_recorded):
        return DIFFERENT
    return SAME if found is DocumentFixity.NOTHING and before == SAME else UNVERIFIABLE


_ANY_UNHASHED = (
    "SELECT 1 FROM temp.expected e JOIN resources r ON r.set_id = ? AND r.uri = e.uri"
    " WHERE coalesce(e.hash, '') NOT LIKE '%:%' LIMIT 1"
)


class SetContent:
    """The changes of one set restated by what they are, and the verdict on its dataset."""

    def __init__(self, transport: Transport, root: Path, wanted: str | None, *, is_past: bool) -> None:
        """`wanted`: the dataset that the user names; of what is past (`is_past`) no content can be asked for."""
        self._transport = transport
        self._root = root
        self._wanted = wanted
        self._is_past = is_past

    def restate(self, t: Transaction, set_id: int) -> None:
        """Changes that are told by their patches alone are those of the dataset (TIM-A1)."""
        if any_patches_alone(t):
            from headwater.sync.datasets.held_datasets import restate_patches  # takes the RDF library along

            restate_patches(t, set_id, self._wanted, listed=True)

    def verdict(self, context: ListContext, set_id: int) -> ContentVerdict | None:
        """The verdict on the dataset of a set, where nothing is listed that would tell more than its time."""
        with context.database.write() as t:
            if self._is_past or t.one(_ANY_UNHASHED, (set_id,)) is None:
                return None
        from headwater.sync.audit.dataset_content import DatasetContent  # takes the RDF library along

        return DatasetContent(self._transport, self._root, self._wanted).compare(context, set_id)
