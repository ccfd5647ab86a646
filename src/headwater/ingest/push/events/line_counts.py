"""What became of the lines that were announced to one set, counted for those who watch over the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.ingest.push.feed import Outcome, OutcomeKind

FEW: Final = 3
"""Reasons that are told."""


class Account(msgspec.Struct, kw_only=True):
    """Lines or documents by outcome: recorded, waiting for a partner, no news, refused; and why the first of these."""

    taken: int = 0
    waiting: int = 0
    ignored: int = 0
    rejected: int = 0
    code: str | None = None
    """Of the first that was refused."""
    reasons: list[str] = msgspec.field(default_factory=list)

    def count(self, outcomes: Sequence[Outcome]) -> None:
        """Add these."""
        for one in outcomes:
            setattr(self, one.kind, getattr(self, one.kind) + 1)
            if one.kind is OutcomeKind.REJECTED:
                self.code = self.code or one.code
                if len(self.reasons) < FEW:
                    self.reasons.append(f"line {one.line}: {one.reason}")

    @property
    def by_outcome(self) -> dict[str, int]:
        """The counts by the name of the outcome."""
        return {kind.value: getattr(self, kind) for kind in OutcomeKind}

    @property
    def words(self) -> str:
        """What was refused, as a person reads it."""
        count = sum(self.by_outcome.values())
        more = f"; {self.rejected - len(self.reasons):,} more" if self.rejected > len(self.reasons) else ""
        return f"{self.rejected:,} of {count:,} announced lines were refused: {'; '.join(self.reasons)}{more}"
