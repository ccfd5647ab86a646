"""What became of the lines that were announced to one set, counted for those who watch over the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.ingest.fed.feed import Outcome

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
            if one.status >= 400:
                self.rejected += 1
                self.code = self.code or one.code
                if len(self.reasons) < FEW:
                    self.reasons.append(f"line {one.line}: {one.reason}")
            elif one.status == 202:
                self.waiting += 1
            elif one.reason is not None:
                self.ignored += 1
            else:
                self.taken += 1

    @property
    def by_outcome(self) -> dict[str, int]:
        """The counts by the name of the outcome."""
        return {name: getattr(self, name) for name in ("taken", "waiting", "ignored", "rejected")}

    @property
    def words(self) -> str:
        """What was refused, as a person reads it."""
        count = sum(self.by_outcome.values())
        more = f"; {self.rejected - len(self.reasons):,} more" if self.rejected > len(self.reasons) else ""
        return f"{self.rejected:,} of {count:,} announced lines were refused: {'; '.join(self.reasons)}{more}"
