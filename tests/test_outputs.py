"""The page of what the program writes for programs names every key: of JSON, of the lines of changes and of the log."""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headwater.cli import run
from headwater.cli.changes_file import COLUMNS
from headwater.cli.server_log import LogLine, open_log
from headwater.errors import Exit
from headwater.ingest.push.submission import Account
from headwater.notify import subscriber_store
from headwater.notify.hub.store import HubCounts
from headwater.publish.status import ArchiveStatus, ChangeDumpStatus, OpenSegment, ResourceDumpStatus, SourceSetStatus
from headwater.source.set_health import SetHealth
from headwater.sync import copy_status, explore, reports
from headwater.sync.copied_resource import ResourceStatus
from headwater.sync.export import ExportReport

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "outputs.md"
STRUCTS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "Sync": (
        *(reports.SyncReport, reports.SetReport, reports.FailedTransfer, reports.PlannedAction),
        *(reports.TransferWay, reports.StoreReport, reports.DatasetReport, reports.UnverifiedVersion),
    ),
    "Lines of changes": (reports.CopyRecord,),
    "Audit": (reports.AuditReport, reports.SetAudit, reports.Finding, reports.StoreAudit, ExportReport),
    "Status of a copy": (
        *(copy_status.CopyStatus, copy_status.RunStatus),
        *(subscriber_store.PushStatus, subscriber_store.SubscriptionStatus, subscriber_store.ChannelStatus),
    ),
    "Status of a source": (SourceSetStatus, OpenSegment, ResourceDumpStatus, ChangeDumpStatus, ArchiveStatus),
    "Why": (ResourceStatus,),
    "Explore and inspect": (
        *(explore.ExploreReport, explore.ExploreNode, explore.ResourceReport, explore.ListedState),
        *(explore.LinkStatement, explore.HeldFile),
    ),
    "Other commands": (HubCounts, copy_status.Forgotten),
    "Log lines": (LogLine,),
}
"""What each section tells of; keys that stand in another section already need not be repeated in that of a copy."""
INWARD = {"error"}
"""Of a source's health, what `/health` never tells: it may name paths and hosts."""


def names_in(section: str) -> set[str]:
    """What a section has as code."""
    text = PAGE.read_text("utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("section", STRUCTS)
def test_a_section_names_every_key(section: str) -> None:
    keys = {one.encode_name for kind in STRUCTS[section] for one in msgspec.structs.fields(kind)}
    assert sorted(keys - names_in(section)) == []


def test_the_status_of_a_set_of_a_copy_is_told() -> None:
    kinds = (copy_status.SetStatus, copy_status.FailedResource, copy_status.HeldBackDeletion)
    keys = {one.encode_name for kind in kinds for one in msgspec.structs.fields(kind)}
    assert sorted(keys - names_in("Status of a copy") - names_in("Sync")) == []


def test_the_health_of_a_set_is_told() -> None:
    keys = {one.encode_name for one in msgspec.structs.fields(SetHealth)}
    assert sorted(keys - names_in("Health") - INWARD) == []


def test_the_counts_of_records_are_told() -> None:
    assert {*Account().of_events, *Account().of_documents} <= names_in("Other commands")


def test_the_counts_of_a_scan_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    to = ("--files", str(tmp_path / "files"), "--to", str(tmp_path / "out"), "--base-url", "http://x.example")
    assert run(["publish", *to, "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out).keys() <= names_in("Other commands")


def test_the_rate_of_sets_published_at_once_is_that_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "source.toml"
    config.write_text(
        'to = "out"\nbase_url = "http://x.example"\n[[set]]\nfiles = "a"\nname = "a"\n[[set]]\nfiles = "b"\n'
    )
    for name in ("a/1", "b/1", "b/2", "b/3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr("headwater.cli.publish.time", SimpleNamespace(monotonic=iter((0.0, 2.0)).__next__))
    assert run(["publish", str(config)]) == Exit.DONE
    assert [one for one in capsys.readouterr().out.splitlines() if " files/s" in one] == ["all sets: 2.00 s, 2 files/s"]


@pytest.mark.parametrize(("reader", "form", "has_time"), [(0, None, False), (1, None, True), (0, "json", True)])
def test_a_log_that_the_journal_reads_leaves_the_time_to_it(
    reader: int, form: str | None, has_time: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """JOURNAL_STREAM names the file that the journal reads: a standard error that leads elsewhere needs times."""
    found = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + reader}")
    open_log(form).event("stopped", "Stopped")
    assert (re.search(r"\d\d:\d\d:\d\d", capfd.readouterr().err) is not None) is has_time


def test_the_columns_of_changes_are_told() -> None:
    assert set(COLUMNS) <= names_in("Lines of changes")
