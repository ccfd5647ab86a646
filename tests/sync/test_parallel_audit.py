"""An audit whose files are hashed by processes: its report is that of one without."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from pathlib import Path

import pytest

from headwater.files import hash_pool
from headwater.storage.transaction import DatabaseFull, Transaction
from headwater.sync.audit import comparison
from headwater.sync.reports import AuditReport
from tests.support.copying import FINDINGS, check, go
from tests.support.fake_source import Site, Source

FILES = 60


@pytest.fixture
def copy(source: Source, site: Site, dest: Path) -> Path:
    """A copy in which there is one finding of each kind."""
    for number in range(FILES):
        site.put(f"d{number % 3}/g{number:03d}.txt", b"content %d\n" % number, change=False)
    site.publish()
    go(source.base, dest)
    (dest / "d0/g000.txt").unlink()
    (dest / "d1/g001.txt").write_bytes(b"CONTENT 1\n")
    (dest / "d2/g002.txt").write_bytes(b"longer than it was\n")
    (dest / "d0/g003.txt").unlink()
    (dest / "d0/g003.txt").mkdir()
    (dest / "d1/g004.txt").unlink()
    (dest / "d1/g004.txt").symlink_to("g007.txt")
    (dest / "d2/one too many.txt").write_bytes(b"")
    os.utime(dest / "d2/g005.txt", ns=(1, 1))
    return dest


def hash_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "processors", lambda: 2)
    monkeypatch.setattr(hash_pool, "SERIAL_FILES", 8)
    monkeypatch.setattr(hash_pool, "BLOCK_FILES", 4)


def md5(octets: bytes) -> str:
    return f"md5:{hashlib.md5(octets).hexdigest()}"


def without_times(report: AuditReport) -> AuditReport:
    report.seconds, report.time = 0.0, dt.datetime.min
    return report


def test_the_report_is_the_same(source: Source, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = check(source.base, copy)
    hash_by_processes(monkeypatch)
    assert without_times(check(source.base, copy)) == without_times(alone)
    one = alone.sets[0]
    assert (alone.exit_status, one.missing, one.different, one.extra) == (FINDINGS, 3, 2, 1)
    assert one.same == FILES
    paths = [finding.path for finding in one.findings if finding.verdict != "extra"]
    assert paths == sorted(paths)


def test_a_list_with_other_digests_than_the_copy_was_made_by(
    source: Source, site: Site, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = site.resource("d0/g006.txt", hash=md5(site.files["d0/g006.txt"]))
    wrong = site.resource("d1/g007.txt", hash=md5(b"something else"))
    names = [name for name in sorted(site.files) if name not in ("d0/g006.txt", "d1/g007.txt")]
    site.publish_list([*map(site.resource, names), right, wrong])
    alone = check(source.base, copy)
    hash_by_processes(monkeypatch)
    assert without_times(check(source.base, copy)) == without_times(alone)
    assert alone.sets[0].different == 3
    assert site.uri("d1/g007.txt") in {finding.uri for finding in alone.sets[0].findings}


def test_results_that_cannot_be_written_down_end_it(
    source: Source, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_by_processes(monkeypatch)
    many = Transaction.many

    def full(self: Transaction, sql: str, rows: object) -> None:
        if sql == comparison._KEEP:
            raise DatabaseFull("the disk is full", where="state")
        many(self, sql, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Transaction, "many", full)
    with pytest.raises(DatabaseFull):
        check(source.base, copy)
