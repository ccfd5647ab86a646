"""The result of one scan: counts, deletions that were held back, paths that have to be looked at again."""

from __future__ import annotations

import datetime as dt

import msgspec

from headwater.ingest.folder.comparison import UnreadableFiles
from headwater.ingest.folder.event_builder import EventBatch
from headwater.ingest.held_deletions import DeletionHold

RACY_MOST = 5_000
"""Beyond so many the next full scan sees to the rest."""


class ScanResult(msgspec.Struct, kw_only=True):
    """What one scan did. `at`: all that had happened until then is recorded (None: not known to be so)."""

    at: dt.datetime | None = None
    opened: bool = False
    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    kept: int = 0
    """Resources that could not be looked at, or were being written to, and stay as they are published."""
    read: int = 0
    octets: int = 0
    unreadable: UnreadableFiles = msgspec.field(default_factory=UnreadableFiles)
    held_back: DeletionHold | None = None
    unsettled: list[bytes] = msgspec.field(default_factory=list)
    """Paths that changed while they were read: they are to be looked at again soon."""
    large: list[bytes] = msgspec.field(default_factory=list)
    """Paths of files so large that others would wait for them: they are to be read apart."""
    racy: list[bytes] = msgspec.field(default_factory=list)
    """Paths, up to RACY_MOST, read so soon after a change that their notes prove nothing: later another look does."""
    warnings: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def changes(self) -> int:
        """How many changes were recorded; resources, when the set was loaded."""
        return self.created + self.updated + self.deleted

    def add(self, batch: EventBatch) -> None:
        """Count one batch in."""
        self.created += batch.created
        self.updated += batch.updated
        self.unchanged += batch.unchanged
        self.kept += batch.kept
        self.read += batch.read
        self.octets += batch.octets
        for uri in batch.unreadable:
            self.unreadable.add(uri, 1)
        self.unsettled += batch.unsettled
        self.racy += batch.racy[: RACY_MOST - len(self.racy)]
