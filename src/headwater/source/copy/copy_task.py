"""Follows the copy in one folder for all sets that publish it, as a task of the scheduler.

To find out whether a destination has committed anything costs next to nothing, so it is asked four times a second. Of
thousands of sets those are looked at whose files the journal names.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater import notices
from headwater.copies.copy_state import CopyStateReader, copied_sets, journal_end, sets_noted_after
from headwater.errors import HeadwaterError
from headwater.progress import Listener, Notice
from headwater.source.copy.copy_set import CopySet

POLL_SECONDS: Final = 0.25
"""Between looks at the state of the copy."""


class CopyTask:
    """One copy, and the sets of the source that publish it."""

    def __init__(self, root: Path, sets: Sequence[CopySet], listener: Listener) -> None:
        self._root = root
        self._sets = sets
        self._listener = listener
        self._state: CopyStateReader | None = None
        self._journal: tuple[str, int] = ("", 0)
        """The id of the journal that was read, and up to which entry."""
        self._poll_at = 0.0
        self._known_sets: frozenset[str] | None = None

    def due_at(self) -> float:
        """When the copy is to be looked at again."""
        return self._poll_at

    def is_long(self) -> bool:
        """A first load takes as long as it takes."""
        return any(not one.is_begun for one in self._sets)

    def run(self) -> None:
        """Look at the copy, and publish what is new or due."""
        try:
            wanted = self._wanted()
        except HeadwaterError:  # each set says so, as long as it lasts
            self._close()
            wanted = list(self._sets)
        now = time.monotonic()
        for one in wanted:
            if now >= one.retry_at:
                one.look(self._open)
        for one in self._sets:
            if now >= one.due_at:
                one.tick()
        self._poll_at = time.monotonic() + POLL_SECONDS

    def close(self) -> None:
        """Give up the state."""
        self._close()

    def _wanted(self) -> list[CopySet]:
        """The sets that have to look at the copy now."""
        state = self._open()
        if not state.has_changed():
            return [one for one in self._sets if one.is_unsettled]
        for one in self._sets:
            one.retry_at = 0.0  # what was missing may be there by now
        with state.read() as t:
            self._tell_new({one.name for one in copied_sets(t)})
            end = journal_end(t)
            journal, seq = self._journal
            if journal != end.id or end.last < seq or end.first > seq + 1:
                self._journal = end.id, end.last
                return list(self._sets)
            noted = sets_noted_after(t, seq) if end.last > seq else frozenset()
        self._journal = end.id, end.last
        return [one for one in self._sets if one.is_unsettled or one.intake.set_id in noted]

    def _tell_new(self, names: set[str]) -> None:
        """Say which sets the copy has got since it was first looked at; those that we wait for are none."""
        known = self._known_sets
        self._known_sets = frozenset(names) | (known or frozenset())
        if known and (new := names - known):
            text = f"the copy has sets that are not published: {', '.join(sorted(new)[:5])}"
            self._listener(Notice(notices.COPY_NEW_SET, text, str(self._root)))

    def _open(self) -> CopyStateReader:
        """The state, opened anew where another one has taken its place. Raises NoCopyState, and faults of it."""
        if self._state is not None and self._state.is_replaced:
            self._close()
        if self._state is None:
            self._state = CopyStateReader(self._root)
            self._journal = ("", 0)
        return self._state

    def _close(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.close()
