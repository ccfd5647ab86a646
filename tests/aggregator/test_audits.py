"""An audit as a run of a service: the record says by what files were compared, and why it is not in sync."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from headwater.aggregator.audits import is_audit_due, run_audit
from headwater.aggregator.configuration import FollowedSource
from headwater.aggregator.store import Life, Run, RunRecord, SourceState
from headwater.errors import Exit
from headwater.sync.options import SyncOptions
from headwater.sync.run import sync
from tests.aggregator import following
from tests.support.fleet import Fleet, FleetSource, fleet
from tests.support.fleet_kinds import DEFECTIVE

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)


def audited(root: Path, source: FleetSource) -> RunRecord:
    followed = FollowedSource(name=source.name, url=source.address, options=SyncOptions(stall_seconds=2, retries=0))
    run = Run(number=7, name=source.name, worker="w", began_at=NOW, lease_until=NOW, kind="audit")
    return run_audit(run, followed, root / source.name)


def total(record: RunRecord, count: str) -> int:
    """A count of an audit's report, over all sets."""
    assert record.report is not None
    return sum(int(one[count]) for one in record.report["sets"])


@pytest.fixture
def running():
    with fleet([(name, DEFECTIVE[name]) for name in ("good", "nohash")], 4, "127.80") as one:
        yield one


def test_the_record_says_by_what_was_compared(tmp_path: Path, running: Fleet) -> None:
    for source in running.sources.values():
        sync(source.address, tmp_path / source.name)
    good, nohash = (audited(tmp_path, one) for one in running.sources.values())
    assert (good.number, good.kind, good.exit_status, good.reason) == (7, "audit", 0, "")
    assert (total(good, "same_by_hash"), total(nohash, "same_by_record")) == (4, 4)
    assert good.requests > 0
    assert good.report is not None
    assert all(not one["findings"] for one in good.report["sets"])


def test_what_differs_is_counted_and_said(tmp_path: Path, running: Fleet) -> None:
    good = running.sources["good"]
    sync(good.address, tmp_path / "good")
    next((tmp_path / "good").glob("**/*.xml")).write_text("altered")
    record = audited(tmp_path, good)
    assert (record.exit_status, record.failed) == (Exit.FINDINGS, 1)
    assert record.reason.startswith("not in sync: ")
    assert "1 different" in record.reason
    assert total(record, "different") == 1
    assert record.report is not None
    assert [one["verdict"] for one in record.report["sets"][0]["findings"]] == ["different"]


def test_a_source_that_is_away_and_a_copy_that_is_not_there_are_records_too(tmp_path: Path, running: Fleet) -> None:
    good = running.sources["good"]
    missing = audited(tmp_path, good)
    assert (missing.exit_status, missing.code) == (Exit.USAGE, "HW-SYN-13")
    sync(good.address, tmp_path / "good")
    running.close = lambda: None  # type: ignore[method-assign]
    Fleet.close(running)
    away = audited(tmp_path, good)
    assert away.exit_status == Exit.SOURCE
    assert away.reason
    assert away.report is None


def test_a_service_audits_after_a_sound_run_and_repairs_what_is_damaged(tmp_path: Path) -> None:
    with following.fleet(tmp_path) as sources:
        sources.add("museum", audit=3_600.0, every=3_600.0)
        with following.service(sources.config()) as service:
            service.until(lambda: service.state("museum").audited_at is not None)
            sync_run, audit_run = reversed(service.store.runs("museum"))
            assert (sync_run.kind, audit_run.kind, audit_run.exit_status) == ("sync", "audit", 0)
            assert total(audit_run, "same_by_hash") == 3
            assert service.state("museum").life is Life.FOLLOWING
            (tmp_path / "museum" / "000.txt").write_bytes(b"damaged")
            service.store.change("museum", audited_at=None)
            service.until(lambda: service.runs("museum") == 4)  # the audit, and a run that repairs at once
            repaired, found = service.store.runs("museum", 2)
            assert (found.kind, found.exit_status, found.failed) == ("audit", Exit.FINDINGS, 1)
            assert (repaired.kind, repaired.exit_status) == ("sync", 0)
            assert sources.is_same("museum")
            assert service.state("museum").life is Life.FOLLOWING


def test_an_audit_waits_for_a_sound_run(tmp_path: Path) -> None:
    now = NOW + dt.timedelta(hours=1)
    weekly = FollowedSource(name="museum", url="http://museum.example/", audit=604_800.0)
    state = SourceState(name="museum", url="http://museum.example/", life=Life.FOLLOWING)
    assert is_audit_due(state, weekly, now)
    assert not is_audit_due(msgspec.structs.replace(state, life=Life.DEGRADED), weekly, now)
    assert not is_audit_due(msgspec.structs.replace(state, audited_at=NOW), weekly, now)
    assert is_audit_due(msgspec.structs.replace(state, audited_at=NOW), weekly, now + dt.timedelta(days=7))
    assert not is_audit_due(state, msgspec.structs.replace(weekly, audit=None), now)
