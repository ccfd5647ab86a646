"""The warnings of scans: each is reported once, at most ten for each rule, and the rest are counted."""

from __future__ import annotations

import os
from collections import Counter

from headwater.ingest.folder.walking.walk import ScanWarning
from headwater.progress import Listener, Notice

EXAMPLES = 10
"""So many places are named for each rule in one pass; the rest is a number."""
_REMEMBERED = 10_000


class WarningLog:
    """Counts warnings by rule and reports those that the scan before did not have."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._known: set[tuple[str, bytes]] = set()
        self._at_begin: frozenset[tuple[str, bytes]] = frozenset()
        self._counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._now: set[tuple[str, bytes]] = set()

    def share(self, other: WarningLog) -> None:
        """From now on nothing is told that `other` has told, nor the other way round."""
        self._known = other._known

    def begin(self) -> None:
        """A pass begins."""
        self._counts.clear()
        self._told.clear()
        self._now = set()
        self._at_begin = frozenset(self._known)

    def add(self, warn: ScanWarning) -> None:
        """One place is left out, or nearly."""
        self._counts[warn.rule] += 1
        key = (warn.rule, warn.path)
        if len(self._now) < _REMEMBERED:
            self._now.add(key)
        if key in self._known or self._told[warn.rule] >= EXAMPLES:
            return
        self._told[warn.rule] += 1
        if len(self._known) < _REMEMBERED:
            self._known.add(key)
        self._listener(Notice(warn.rule, warn.message, os.fsdecode(warn.path)))

    def end(self, *, whole: bool) -> dict[str, int]:
        """The pass is over: how many warnings each rule had. A `whole` pass has said everything that is to say."""
        for rule, count in self._counts.items():
            if self._told[rule] >= EXAMPLES < count:
                self._listener(Notice(rule, f"and so for {count - EXAMPLES:,} more"))
        if whole:  # what another pass has told meanwhile stays told
            self._known -= self._at_begin - self._now
            self._known |= self._now
        elif len(self._known) < _REMEMBERED:
            self._known |= self._now
        return dict(self._counts)
