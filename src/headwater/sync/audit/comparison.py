"""The comparison of one set: expected files with files on disk, apart from what has changed meanwhile (DST-Q)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec

from headwater.errors import SourceFault, Undetermined
from headwater.progress import Notice
from headwater.storage.database import Row
from headwater.sync.audit.expected_files import ExpectedFiles
from headwater.sync.audit.findings import (
    CHANGED,
    DIFFERENT,
    EXTRA,
    MISSING,
    SAME,
    UNREADABLE,
    ContentVerdict,
    ExpectedFile,
    Finding,
    FoundFile,
    PlacementRecord,
    SetAudit,
    judge_file,
    judge_set,
)
from headwater.sync.audit.inventory import Inventory
from headwater.sync.lists.entries import ListContext
from headwater.sync.state.set_rows import SetRow

_MOST_FINDINGS = 10_000

TABLES = "CREATE TEMP TABLE IF NOT EXISTS verdicts(uri TEXT, verdict TEXT);"

_EXTRA = (
    "SELECT w.path FROM temp.walked w WHERE NOT EXISTS (SELECT 1 FROM temp.expected e WHERE e.path = w.path)"
    " AND NOT EXISTS (SELECT 1 FROM temp.spared s WHERE s.path = w.path)"
)

_FINDINGS = (
    "SELECT e.verdict, e.uri, e.path, f.errno FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path"
    " WHERE e.verdict IS NOT NULL ORDER BY e.path LIMIT ?"
)
_UNREAD_FOLDERS = "SELECT path, errno FROM temp.unread_folders ORDER BY path LIMIT ?"


class _ComparedRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `temp.expected`, with what `temp.found` has of the file; nothing, where there is none."""

    uri: str
    length: int | None
    hash: str | None
    lastmod: int | None
    newer: int | None
    size: int | None
    mtime_ns: int | None
    digests: str | None
    errno: int | None
    placed_mtime_ns: int | None
    placed_lastmod: int | None
    placed_known_at: int | None

    @property
    def expected(self) -> ExpectedFile:
        """What is listed."""
        placed = None
        if self.placed_mtime_ns is not None:
            placed = PlacementRecord(self.placed_mtime_ns, self.placed_lastmod, self.placed_known_at)
        return ExpectedFile(self.length, self.hash, self.lastmod, bool(self.newer), placed)

    @property
    def found(self) -> FoundFile | None:
        """What is there."""
        if self.size is None:
            return None
        return FoundFile(self.size, self.mtime_ns or 0, self.digests or "", self.errno or 0)


class SetComparison:
    """Compares one set. Call `run` once; the verdict is in `result`."""

    def __init__(
        self, context: ListContext, row: SetRow, expectation: ExpectedFiles, inventory: Inventory, result: SetAudit
    ) -> None:
        self._database = context.database
        self._listener = context.listener
        self._row = row
        self.judge_content: Callable[[], ContentVerdict | None] = lambda: None
        """The verdict on a file that only its content can tell of."""

        self._content: ContentVerdict | None = None
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
            self._inventory.hash_expected()
            self._inventory.walk(self._row.folder, others)
            self._content = self.judge_content()
            self._compare()
            self._changed_meanwhile()
            self._tally()
            for rule, told, where in self._expectation.refused.sentences():
                self._listener(Notice(rule, told, where))
        judge_set(self.result, self._expectation.doubts)

    def _compare(self) -> None:
        query = (
            "SELECT e.uri, e.length, e.hash, e.lastmod, e.newer, f.size, f.mtime_ns, f.digests, f.errno,"
            " r.mtime_ns, r.lastmod, coalesce(r.changed_at, s.baseline_at)"
            " FROM temp.expected e LEFT JOIN temp.found f ON f.path = e.path"
            " LEFT JOIN resources r ON e.hash IS NULL AND r.set_id = ?1 AND r.uri = e.uri"
            " LEFT JOIN sets s ON s.id = r.set_id"
        )
        with self._database.write() as t:
            t.many(
                "INSERT INTO temp.verdicts(verdict, uri) VALUES (?, ?)", self._verdicts(t.rows(query, (self._row.id,)))
            )
            t.run("UPDATE temp.expected SET verdict = v.verdict FROM temp.verdicts v WHERE v.uri = expected.uri")
            t.run("DELETE FROM temp.verdicts")

    def _verdicts(self, rows: Iterator[Row]) -> Iterator[Row]:
        for values in rows:
            row = _ComparedRow(*values)
            verdict = judge_file(row.expected, row.found)
            if self._content is not None and row.uri == self._content.uri and verdict != MISSING:
                verdict = self._content.verdict
            if verdict == SAME:
                self.result.same += 1
            else:
                yield verdict, row.uri

    def _changed_meanwhile(self) -> None:
        """Look once more: what has changed since the audit began is no finding (DST-Q)."""
        with self._database.write() as t:
            suspicious = t.one("SELECT 1 FROM temp.expected WHERE verdict IN (?, ?) LIMIT 1", (MISSING, DIFFERENT))
            surplus = t.one(_EXTRA + " LIMIT 1")
        if (suspicious or surplus) and self._expectation.read_later():
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
            result.unreadable += int(t.value("SELECT count(*) FROM temp.unread_folders"))
            for verdict, uri, path, errno in t.rows(_FINDINGS, (_MOST_FINDINGS,)):
                result.findings.append(Finding(verdict, uri, _shown(path), self._reason(verdict, uri, errno)))
            for path, errno in t.rows(_UNREAD_FOLDERS, (_MOST_FINDINGS,)):
                result.findings.append(Finding(UNREADABLE, None, _shown(path) + "/", os.strerror(errno)))
            for (path,) in t.rows(_EXTRA + " ORDER BY w.path LIMIT ?", (_MOST_FINDINGS,)):
                held = t.one("SELECT uri FROM resources WHERE path = ?", (path,))
                result.findings.append(
                    Finding(EXTRA, held[0] if held else None, _shown(path), "" if held else "not from the source")
                )
        certain = result.missing + result.different + result.extra
        total = certain + result.unreadable + result.unverifiable + result.changed_during_audit
        result.findings_are_cut = total > len(result.findings)

    def _reason(self, verdict: str, uri: str, errno: int | None) -> str:
        if self._content is not None and uri == self._content.uri and verdict == self._content.verdict:
            return self._content.reason
        return os.strerror(errno or 0) if verdict == UNREADABLE else ""


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
