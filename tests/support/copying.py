"""What tests of whole runs say: run, look at the tree, look at the status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import Exit, HeadwaterError
from headwater.progress import Notice, Progress
from headwater.sync.audit.auditor import audit
from headwater.sync.options import SyncOptions
from headwater.sync.reports import AuditReport, SyncReport
from headwater.sync.run import SyncTask, synchronise
from headwater.transport.fetch import TransportOptions
from headwater.transport.transport import Transport

IMPATIENT = TransportOptions(
    retries=2,
    first_backoff_seconds=0.01,
    longest_wait_seconds=0.2,
    connect_timeout_seconds=30,
    stall_timeout_seconds=30,
)


DEFAULTS = SyncOptions()


class Ran(msgspec.Struct):
    """One run: its status, its report or its error, and every notice."""

    status: int
    report: SyncReport | None
    error: HeadwaterError | None
    notices: list[Notice]

    @property
    def one(self):
        assert self.report is not None, self.error
        assert len(self.report.sets) == 1
        return self.report.sets[0]

    def rules(self) -> set[str]:
        return {notice.rule for notice in self.notices}


def go(url: str, folder: Path, transport: TransportOptions = IMPATIENT, **options: object) -> Ran:
    """One `sync`, with impatient transport."""
    notices: list[Notice] = []

    def listen(event: Notice | Progress) -> None:
        if isinstance(event, Notice):
            notices.append(event)

    with Transport(transport) as wire:
        try:
            report = run_over(wire, url, folder, SyncOptions(**options), listener=listen)  # type: ignore[arg-type]
        except HeadwaterError as error:
            return Ran(int(error.exit_status), None, error, notices)
    return Ran(int(report.exit_status), report, None, notices)


def run_over(wire: Transport, url: str, folder: Path, options: SyncOptions = DEFAULTS, **more: Any) -> SyncReport:
    """One `sync` by this transport."""
    return synchronise(SyncTask(url=url, destination=folder, options=options, transport=wire, **more))


def check(url: str, folder: Path, **options: object) -> AuditReport:
    """One `audit`."""
    with Transport(IMPATIENT) as wire:
        return audit(url, folder, SyncOptions(**options), transport=wire)  # type: ignore[arg-type]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a copy, our state aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".headwater" not in path.relative_to(folder).parts
    }


def is_clean(folder: Path) -> bool:
    """Whether no temporary file is left."""
    return not list((folder / ".headwater" / "tmp").iterdir())


DONE, FINDINGS, USAGE, SOURCE = Exit.DONE, Exit.FINDINGS, Exit.USAGE, Exit.SOURCE
FAILED, UNDETERMINED, STORE = Exit.TRANSFERS_FAILED, Exit.UNDETERMINED, Exit.STORE
