"""What a set with a folder has to do next, and when: plain functions of its state and the time, without a clock.

Hints only say where to look first. The full scan is the truth; it comes every `rescan_seconds`, and later when it takes
long, so that it never costs more than its share of the time.
"""

from __future__ import annotations

import enum
import math
from typing import Final

import msgspec

from headwater.processes.duty_cycle import DutyCycle

SCANS: Final = DutyCycle(0.1)
"""How much of the time full scans may take."""
HINTED_SCANS: Final = DutyCycle(1 / 3)
"""The same of full scans that hints have asked for."""
HELD_SECONDS = 5.0
"""Between full scans while deletions are held back: the folder may be back."""
UNWATCHED_SECONDS = 2.0
"""Between full scans of a folder that cannot be watched, when they are quick."""
TICK_SECONDS = 30.0
"""Between publications, however busy the folder is: documents may be lost or damaged."""

AT_ONCE: Final = 0.0


class FolderWork(enum.Enum):
    """BEGIN: publish what a run before has recorded. SCAN: the whole folder. HINTS: look where hints say. LARGE: read
    files for which others do not wait."""

    BEGIN = enum.auto()
    SCAN = enum.auto()
    PUBLISH = enum.auto()
    HINTS = enum.auto()
    LARGE = enum.auto()


class FolderSchedule(msgspec.Struct, kw_only=True):
    """When what is due in one set; times are seconds of a clock that never goes back, infinite for never.

    `hints` are relative paths to look at now, `later` those to look at at a time, `large` those of
    large files that are to be read. The last full scan ended at
    `scan_ended_at` and took `scan_seconds`. With `has_pages_left` a round of pages goes on when nothing else is due.
    Before `retry_at` nothing is done.
    """

    is_begun: bool = False
    scan_at: float = 0.0
    scan_ended_at: float = 0.0
    scan_seconds: float = 0.0
    publish_at: float = 0.0
    hints: set[bytes] = msgspec.field(default_factory=set)
    later: list[tuple[float, bytes]] = msgspec.field(default_factory=list)
    large: set[bytes] = msgspec.field(default_factory=set)
    has_pages_left: bool = False
    retry_at: float = 0.0

    def next_work(self, now: float) -> tuple[FolderWork, float]:
        """What is to be done next, and when; a time that is not after `now` stands for at once.

        Of what is due, a full scan comes first: it sees what hints hint at. Then what is due by time, however many
        hints come.
        """
        if not self.is_begun:
            return FolderWork.BEGIN, self.retry_at
        hints_at = AT_ONCE if self.hints else min((due for due, _path in self.later), default=math.inf)
        work = (
            (FolderWork.SCAN, self.scan_at),
            (FolderWork.PUBLISH, self.publish_at),
            (FolderWork.LARGE, AT_ONCE if self.large else math.inf),  # in the middle of which hints are looked at
            (FolderWork.HINTS, hints_at),
            (FolderWork.PUBLISH, AT_ONCE if self.has_pages_left else math.inf),
        )
        chosen, at = next((one for one in work if one[1] <= now), None) or min(work, key=lambda one: one[1])
        return chosen, max(at, self.retry_at)

    def take_hints(self, now: float) -> set[bytes]:
        """The paths to look at now; they are no longer due."""
        taken = self.hints | {path for due, path in self.later if due <= now}
        self.hints = set()
        self.later = [one for one in self.later if one[0] > now]
        return taken

    def scan_by(self, at: float) -> None:
        """Scan the whole folder at this time, unless that is due sooner."""
        self.scan_at = min(self.scan_at, at)

    def scan_for_hints(self) -> None:
        """Scan the whole folder as soon as full scans that hints ask for may take the time."""
        self.scan_by(self.scan_ended_at + HINTED_SCANS.pause_after(self.scan_seconds))

    def regular_scan_at(self, rescan_seconds: float, *, watched: bool, held_back: bool) -> float:
        """When a full scan is due without a hint."""
        longest = min(UNWATCHED_SECONDS if not watched else math.inf, HELD_SECONDS if held_back else math.inf)
        return self.scan_ended_at + max(min(rescan_seconds, longest), SCANS.pause_after(self.scan_seconds))
