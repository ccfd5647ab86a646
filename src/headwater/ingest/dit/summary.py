"""Summary of documents that were taken: counts, and notices for a person."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater import notices
from headwater.ingest.dit.intake import IntakeResult
from headwater.ingest.push.feed import Outcome, OutcomeKind
from headwater.progress import Listener, Notice


class Tally(msgspec.Struct, kw_only=True):
    """Counts of documents: taken into the set, waiting for a partner, no news, of other sets, refused."""

    documents: int = 0
    taken: int = 0
    waiting: int = 0
    ignored: int = 0
    foreign: int = 0
    rejected: int = 0

    def count(self, outcomes: Sequence[Outcome], *, foreign: int = 0) -> None:
        """Add these."""
        self.documents += len(outcomes) + foreign
        self.foreign += foreign
        for one in outcomes:
            setattr(self, one.kind, getattr(self, one.kind) + 1)

    @property
    def words(self) -> str:
        """The counts as a person reads them."""
        noun = "document" if self.documents == 1 else "documents"
        return (
            f"{self.documents:,} {noun}: {self.taken:,} taken, {self.waiting:,} waited for their partner,"
            f" {self.ignored:,} no news, {self.foreign:,} of other sets, {self.rejected:,} refused"
        )

    def complain(self, outcomes: Sequence[Outcome], listener: Listener) -> None:
        """Say what was refused."""
        for one in outcomes:
            if one.kind is OutcomeKind.REJECTED:
                listener(Notice(one.code or notices.LEFT_OUT, f"a line was refused: {one.reason}", f"line {one.line}"))

    def notice(self, taken: IntakeResult, listener: Listener) -> None:
        """Say what was left out of documents, and what was merged (DIT-A9)."""
        for line, remark in taken.remarks:
            listener(Notice(notices.LEFT_OUT, f"left out of the document at line {line}: {remark}"))
        for uri in taken.merged:
            listener(Notice(notices.MERGED, "documents of different locations are one resource", uri))
