"""The comparison of one set: the files of the copy are read, hashed and judged, apart from changes meanwhile (DST-Q).

RDF documents of which only the hash of what they say is listed are read and hashed for it (docs/extensions.md).
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from headwater.errors import SourceFault, Undetermined
from headwater.files import hashing
from headwater.files.file_copies import GONE
from headwater.files.folder_marks import folded, is_reserved, leads_inside
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HASHERS, HashRequest, HashResult
from headwater.processes.pool import processors
from headwater.progress import Notice, Progress
from headwater.storage.database import Database
from headwater.storage.transaction import Row
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
    SetAudit,
    difference,
    judge_file,
    judge_set,
    proof_of,
)
from headwater.sync.copy.canonical_fixity import CanonicalFixity, DocumentFixity
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.lists.entries import ListContext, canonical_hash_of
from headwater.sync.state import SetRow
from headwater.sync.transfer.verification import digests_of, strongest_text

# the files and their hashes, from the disk alone

PARALLEL_FROM = 3_000
"""With fewer files to hash, processes cost more than they save."""

_CHUNK = 5_000

_NO_SUCH_FILE = frozenset({errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
"""A socket, or a name that no file can have here: there is nothing that could be read."""

_KEEP_SURPLUS = """
INSERT OR IGNORE INTO temp.surplus(path) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = ?1)
AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = ?1)"""


class Inventory:
    """The files of a copy as they lie on the disk."""

    def __init__(self, root: bytes, database: Database) -> None:
        self._root = os.path.realpath(root)
        self._database = database

    def hashed(
        self, wanted: Iterator[ExpectedFile], count: int
    ) -> Iterator[tuple[Sequence[ExpectedFile], Sequence[HashResult]]]:
        """Hash these files, of which there are so many: blocks with their results, in the order of the files."""
        processes = min(processors(), 8) if count >= PARALLEL_FROM else 0
        yield from HashPool(processes=processes if processes > 1 else 0).read(wanted, self._request)

    def _request(self, wanted: ExpectedFile) -> HashRequest:
        """With every digest that is listed, else with that of what was placed; without any the state alone is read."""
        algorithms = _algorithms(wanted.hash or "") or _algorithms(wanted.digest or "")
        return self.file(wanted.path), algorithms, None

    def file(self, path: bytes) -> bytes:
        """Where a file of the copy lies: nowhere, where a state has a path that leads out of it."""
        return self._root + b"/" + path if leads_inside(path) else b""

    def walk(self, folder: str, others: list[str]) -> None:
        """Have every file below the folder of one set in `surplus` that is neither in `expected` nor in `spared`.

        Folders that cannot be read are in `unread_folders`. `others` are the folders of the other sets, which may lie
        in it.
        """
        skip = {other.encode() for other in others if other} if not folder else set()
        with self._database.write() as t:
            t.run("DELETE FROM temp.surplus")
            t.run("DELETE FROM temp.unread_folders")
        unread: list[tuple[bytes, int]] = []
        files = _files(self._root, folder.encode(), skip, unread)
        while block := [(path,) for path in islice(files, _CHUNK)]:
            with self._database.write() as t:
                t.many(_KEEP_SURPLUS, block)
        with self._database.write() as t:
            t.many("INSERT OR IGNORE INTO temp.unread_folders(path, errno) VALUES (?, ?)", unread)
        with FileTree(Path(os.fsdecode(self._root)), None) as tree:
            if tree.folds:
                self._spare_spellings()

    def _spare_spellings(self) -> None:
        """Take out of `surplus` what is expected under another spelling of its name: to the file system it is that."""
        with self._database.write() as t:
            t.run("DELETE FROM temp.folded")
            named = t.rows("SELECT path FROM temp.expected UNION ALL SELECT path FROM temp.spared")
            t.many(
                "INSERT OR IGNORE INTO temp.folded(name, path) VALUES (?1, ?1)", ((folded(path),) for (path,) in named)
            )
            surplus = t.fetch("SELECT path FROM temp.surplus")
            known = "DELETE FROM temp.surplus WHERE path = ?1 AND EXISTS (SELECT 1 FROM temp.folded WHERE name = ?2)"
            t.many(known, ((path, folded(path)) for (path,) in surplus))


def _algorithms(listed: str) -> tuple[str, ...]:
    """The algorithms of the digests that are listed; where one stands there alone, it need not be a digest as well."""
    name, _, rest = listed.partition(":")
    if name in HASHERS and rest.isalnum():
        return (name,)
    return tuple(digest.algorithm for digest in digests_of(listed))


def _found_file(result: HashResult) -> FoundFile | None:
    """The file that was hashed. None: there is no plain file; with an errno there is one that cannot be read."""
    outcome, error, (size, mtime_ns, _, _), _, _, digests, _ = result
    if outcome == hashing.READ:
        return FoundFile(size, mtime_ns, digests)
    if outcome == hashing.UNREADABLE and error not in _NO_SUCH_FILE:
        return FoundFile(-1, 0, "", error or errno.EIO)
    is_changing = outcome == hashing.CHANGED and error != errno.ELOOP
    return FoundFile(-1, 0, "") if is_changing else None  # a file, but no content that could be the right one


def _files(root: bytes, folder: bytes, skip: set[bytes], unread: list[tuple[bytes, int]]) -> Iterator[bytes]:
    """Every file and link below `folder`, relative to `root`; folders are not followed through links.

    Folders that cannot be read are added to `unread`, each with the errno.
    """
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + here if here else root))
        except GONE:
            continue
        except OSError as cause:
            unread.append((here, cause.errno or errno.EIO))
            continue
        for entry in entries:
            if not here and (entry.name in skip or is_reserved(entry.name)):
                continue
            path = here + b"/" + entry.name if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path


_MOST_FINDINGS = 10_000

TABLES = """
CREATE TEMP TABLE IF NOT EXISTS told_no_more(uri TEXT PRIMARY KEY, path BLOB, length INTEGER, hash TEXT) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS surplus(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS unread_folders(path BLOB PRIMARY KEY, errno INTEGER) WITHOUT ROWID;
"""

_RECORD = "newer, mtime_ns, placed_lastmod, known_at, digest"
_PAGE = 5_000
_EXPECTED = f"SELECT uri, path, length, hash, lastmod, type, extra, undone, {_RECORD} FROM temp.expected WHERE uri > ?1"  # noqa: S608
_EXPECTED_PAGE = f"{_EXPECTED} ORDER BY uri LIMIT {_PAGE}"
_RECEIVED_PAGE = (
    f"{_EXPECTED} AND uri IN (SELECT uri FROM temp.told_no_more WHERE path IS NOT NULL)"  # noqa: S608  our own names
    f" ORDER BY uri LIMIT {_PAGE}"
)
_JUDGE = "UPDATE temp.expected SET verdict = ?, errno = ?, digests = ? WHERE uri = ?"
_FINDINGS = (
    "SELECT verdict, uri, path, errno, undone, hash, digest, coalesce(digests, '') FROM temp.expected"
    " WHERE verdict IS NOT NULL ORDER BY path LIMIT ?"
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
        content: Callable[[], ContentVerdict | None],
        inventory: Inventory,
        result: SetAudit,
    ) -> None:
        """`content`: compares what the source sends, where nothing that is listed tells more than times."""
        self._database = context.database
        self._listener = context.listener
        self._row = row
        self._content = content
        self._verdict: ContentVerdict | None = None
        self._fixity = CanonicalFixity()
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
            self._verdict = self._content()
            with closing(self._fixity):
                proved = self._compare(_EXPECTED_PAGE)
                self._told_no_more()
            self._inventory.walk(self._row.folder, others)
            self._changed_meanwhile()
            self._tally(proved)
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

    def _compare(self, query: str) -> Counter[str]:
        """Hash the files of a query and note the verdicts on those that are not the same; counts what proves others."""
        proved = Counter[str]()
        with self._database.write() as t:
            count = int(t.value("SELECT count(*) FROM temp.expected"))
        done = 0
        for block, results in self._inventory.hashed(self._wanted(query), count):
            judged = list(self._judged(block, results, proved))
            if judged:
                with self._database.write() as t:
                    t.many(_JUDGE, judged)
            done += len(block)
            self._listener(Progress("hashing", done))
        return proved

    def _wanted(self, query: str) -> Iterator[ExpectedFile]:
        """The rows of a query, some thousand to a transaction: none stays open while files are read."""
        last = ""
        while True:
            with self._database.write() as t:
                rows = t.fetch(query, (last,))
            if not rows:
                return
            last = rows[-1][0]
            yield from (ExpectedFile(*row) for row in rows)

    def _judged(
        self, block: Sequence[ExpectedFile], results: Sequence[HashResult], proved: Counter[str]
    ) -> Iterator[Row]:
        for wanted, result in zip(block, results, strict=True):
            found = _found_file(result)
            verdict, proof = self._judge(wanted, found)
            if verdict == SAME:
                proved[proof] += 1
            else:
                errno, digests = (None, None) if found is None else (found.errno, found.digests)
                yield verdict, errno, digests, wanted.uri

    def _judge(self, wanted: ExpectedFile, found: FoundFile | None) -> tuple[str, str]:
        """The verdict on a file, and what proves that it is the same, where it is."""
        verdict = judge_file(wanted, found)
        if found is None:
            return verdict, BY_HASH
        proof = proof_of(wanted, found) if verdict == SAME else BY_HASH
        if self._verdict is not None and wanted.uri == self._verdict.uri:
            verdict, proof = self._verdict.verdict, BY_HASH
        if wanted.extra is None or verdict == UNREADABLE or wanted.newer or digests_of(wanted.hash):
            return verdict, proof
        listed = canonical_hash_of(wanted.extra)
        if listed is None or wanted.length not in (None, found.size):
            return verdict, proof
        return self._judge_document(wanted, listed, verdict)

    def _judge_document(self, wanted: ExpectedFile, listed: str, before: str) -> tuple[str, str]:
        """The verdict on a document without a listed digest by what it says, and what proves that it is the same."""
        path = Path(os.fsdecode(self._inventory.file(wanted.path)))
        try:
            fixity = self._fixity.judge_file(listed, wanted.uri, wanted.type, path).fixity
        except OSError:
            return UNREADABLE, BY_HASH
        is_recorded = wanted.digest is not None
        otherwise = BY_RECORD if is_recorded else BY_TIME
        verdict = _verdict_on_document(fixity, before, is_recorded=is_recorded)
        return verdict, BY_HASH if fixity is DocumentFixity.AS_LISTED else otherwise

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
            is_any_held = t.one("SELECT 1 FROM temp.told_no_more WHERE path IS NOT NULL LIMIT 1") is not None
        if is_any_held:
            self._compare(_RECEIVED_PAGE)

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

    def _tally(self, proved: Counter[str]) -> None:
        result = self.result
        for proof, count in proved.items():
            setattr(result, proof, count)
        result.same = proved.total()
        with self._database.write() as t:
            for verdict, count in t.rows("SELECT verdict, count(*) FROM temp.expected GROUP BY verdict"):
                if verdict is not None:
                    setattr(result, verdict.replace(" ", "_"), count)
            result.extra = int(t.value("SELECT count(*) FROM temp.surplus"))
            result.unreadable += int(t.value("SELECT count(*) FROM temp.unread_folders"))
            found_rows = t.rows(_FINDINGS, (_MOST_FINDINGS,))
            for verdict, uri, path, errno, undone, listed, recorded, digests in found_rows:
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


def _verdict_on_document(found: DocumentFixity, before: str, *, is_recorded: bool) -> str:
    """The verdict by what the document says. The hash of the empty dataset verifies nothing, and where it costs too
    much to find out nothing is known: what is not as it was placed is different all the same."""
    if found is DocumentFixity.AS_LISTED:
        return SAME
    if found is DocumentFixity.OTHER or (before == DIFFERENT and is_recorded):
        return DIFFERENT
    return SAME if found is DocumentFixity.NOTHING and before == SAME else UNVERIFIABLE
