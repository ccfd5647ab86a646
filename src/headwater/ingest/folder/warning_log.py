"""Says once, and not without end, what a scan leaves out: a million unreadable files make one line, not a million."""

from __future__ import annotations

import os
from collections import Counter

from headwater.ingest.folder.walking.walk import ScanWarning
from headwater.progress import Listener, Notice

EXAMPLES = 10
"""So many places are named for each rule in one pass; the rest is a number."""
_REMEMBERED = 10_000


class WarningLog:
    """Counts remarks by rule and tells a listener of those that the pass before did not make."""

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

    def add(self, remark: ScanWarning) -> None:
        """One place is left out, or nearly."""
        self._counts[remark.rule] += 1
        key = (remark.rule, remark.path)
        if len(self._now) < _REMEMBERED:
            self._now.add(key)
        if key in self._known or self._told[remark.rule] >= EXAMPLES:
            return
        self._told[remark.rule] += 1
        if len(self._known) < _REMEMBERED:
            self._known.add(key)
        self._listener(Notice(remark.rule, remark.message, os.fsdecode(remark.path)))

    def end(self, *, whole: bool) -> dict[str, int]:
        """The pass is over: how often each rule was remarked on. A `whole` pass has said everything that is to say."""
        for rule, count in self._counts.items():
            if self._told[rule] >= EXAMPLES < count:
                self._listener(Notice(rule, f"and so for {count - EXAMPLES:,} more"))
        if whole:  # what another pass has told meanwhile stays told
            self._known -= self._at_begin - self._now
            self._known |= self._now
        elif len(self._known) < _REMEMBERED:
            self._known |= self._now
        return dict(self._counts)
