"""Publishes a copy: records what the copy of a destination holds by now, for all sets that publish it.

To find out whether a destination has committed anything costs next to nothing, so it is asked four times a second. Of
thousands of sets those are looked at whose files the journal names. A run of `headwater publish` does it once, and
places the files in a static tree: a link or a copy of every file that is as it was placed. A file that was changed in
the copy is not put there; what the tree has of it stays as it is, for the next run of `sync` mends the copy.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from headwater.catalog.interface import Catalog
from headwater.copy_state import CopyStateReader, copied_sets, journal_end, sets_noted_after
from headwater.errors import HeadwaterError
from headwater.files.patterns import Selection
from headwater.ingest.copy_intake import CopyIntake, CopyPlace, Omission
from headwater.ingest.folder.comparison import ScanResult
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import Walk
from headwater.progress import Listener, Notice
from headwater.source.scheduler import Urgency
from headwater.source.set_folders import FolderOverlap
from headwater.source.worker import Intake, Looked, SetWorker, SourceContext
from headwater.spec.records import ChangeKind

POLL_SECONDS: Final = 0.25
"""Between looks at the state of the copy."""
_ROWS: Final = 5_000

CODES: Final = {
    Omission.LOOP: "HW-CPY-11",
    Omission.CHANGED: "HW-CPY-12",
    Omission.UNCONFIRMED: "HW-CPY-13",
    Omission.UNUSABLE: "HW-CPY-14",
}
"""The notices by which what is left out is told."""


class PublishedCopy(Intake):
    """The copy of one set; with a `tree`, its files are placed there."""

    waiting_phase = "waiting for the copy"

    def __init__(
        self, context: SourceContext, place: CopyPlace, stop: Callable[[], bool], tree: SetTree | None
    ) -> None:
        super().__init__(context, place.name)
        self._copy = place.root
        self._root = os.fsencode(place.root / place.folder)
        """The folder of its files."""
        self.intake = CopyIntake(context.catalog, place, context.clock, context.listener, stop)
        self.intake.may_record = context.may_record
        self._tree = tree
        self.was_held_back = False
        self._is_current = False
        """Whether the last look went well: nothing is known of the time since the copy could be read last."""
        self._remarks: dict[str, int] = {}

    @property
    def set_id(self) -> int | None:
        """The set of the copy, by its number in the state, since it was read."""
        return self.intake.set_id

    def look(self) -> Looked:
        """Take what is new in the copy."""
        self._is_current = False
        was_open, before = self.is_open, self.last_seq()
        at = self._context.clock()
        with closing(CopyStateReader(self._copy)) as state:
            outcome = self.intake.round(state)
        self._is_current = self.is_open
        told = outcome.left_out
        if outcome.is_compared:
            self._remarks = {}
        for why, count in told.counts.items():
            code = CODES[why]
            if code not in self._remarks:
                files = "1 file of the copy is" if count == 1 else f"{count:,} files of the copy are"
                text = f"{files} left out: {why.value}"
                self._context.listener(Notice(code, f"{self.name}: {text}", told.examples[why]))
            self._remarks[code] = self._remarks.get(code, 0) + count
        if outcome.is_held_back and not self.was_held_back:
            text = f"{self.name}: the copy is being made anew; deletions wait for the end of its baseline"
            self._context.listener(Notice("HW-CPY-15", text))
        self.was_held_back = self.intake.is_partial
        return Looked(
            at=at,
            is_changed=not was_open or self.last_seq() != before,
            held_back="the copy's baseline has not ended" if self.intake.is_partial else None,
            scanned=ScanResult(opened=not was_open, warnings=dict(self._remarks)),
        )

    def last_seq(self) -> int:
        """The number of the newest change."""
        return self._context.catalog.state(self.name).last_seq if self.is_open else 0

    def known_at(self) -> dt.datetime | None:
        """Now: a copy that nobody has changed is as it was looked at last."""
        return self._context.clock() if self._is_current else None

    def place(self, looked: Looked) -> int:
        """Place the files that are as they were placed in the copy."""
        if self._tree is None:
            return 0
        self._tree.begin()
        placed, left = self._tree.complete(lambda: Walk(self._root, Selection()))
        self._tree.settle(self._root)
        if left:
            text = f"{left:,} files of the copy are not as they were placed: they are not put into the tree"
            self._context.listener(Notice("HW-CPY-12", f"{self.name}: {text}", os.fsdecode(self._root)))
            looked.scanned.warnings["HW-CPY-12"] = left
        return placed

    def withdraw(self, looked: Looked) -> int:
        """Remove the files from the tree that are published no longer."""
        if self._tree is None:
            return 0
        removed = self._tree.sweep()
        self._tree.end()
        return removed


class CopyWatch:
    """Tells the workers of the sets that publish one copy what a destination has committed, as a task."""

    urgency = Urgency.NEWS

    def __init__(
        self, root: Path, sets: Sequence[SetWorker], listener: Listener, known: frozenset[str] | None = None
    ) -> None:
        """Other sets than the `known` ones (None: than are there first) are told of, as new ones."""
        self._root = root
        self._sets = sets
        self._listener = listener
        self._state: CopyStateReader | None = None
        self._journal: tuple[str, int] = ("", 0)
        """The id of the journal that was read, and up to which entry."""
        self.due_at = 0.0
        self._has_failed = False
        self._known_sets = known
        self._copies = {one.name: one.intake for one in sets if isinstance(one.intake, PublishedCopy)}

    def run(self) -> None:
        """Have the sets look at the copy for which it may have news, or which it cannot be read for any longer."""
        try:
            self._tell_sets()
            self._has_failed = False
        except HeadwaterError:  # each set says so, as long as it lasts
            self.close()
            for one in self._sets if not self._has_failed else ():
                one.look_now()
            self._has_failed = True
        self.due_at = time.monotonic() + POLL_SECONDS

    def close(self) -> None:
        """Give up the state."""
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def _tell_sets(self) -> None:
        if self._state is not None and self._state.is_replaced:
            self.close()
        if self._state is None:  # for the first time, or another one has taken its place
            self._state = CopyStateReader(self._root)
            self._journal = ("", 0)
        state = self._state
        if not state.has_changed():
            return
        with state.read() as t:
            names = frozenset(one.name for one in copied_sets(t))
            if self._known_sets and (new := names - self._known_sets):  # those that we wait for are none
                text = f"the copy has sets that are not published: {', '.join(sorted(new)[:5])}"
                self._listener(Notice("HW-CPY-16", text, str(self._root)))
            self._known_sets = names | (self._known_sets or frozenset())
            end = journal_end(t)
            journal, seq = self._journal
            is_whole = journal != end.id or end.last < seq or end.first > seq + 1
            noted = sets_noted_after(t, seq) if not is_whole and end.last > seq else frozenset()
        self._journal = end.id, end.last
        for one in self._sets:
            if is_whole or one.is_unsettled or self._copies[one.name].set_id in noted:
                one.look_now(is_other_input=True)  # what was missing may be there by now


def count_changes(catalog: Catalog, name: str, after: int, scanned: ScanResult) -> None:
    """Count what was recorded after the change `after`, as a scan would."""
    counts = dict.fromkeys(ChangeKind, 0)
    while changes := catalog.changes(name, after, _ROWS):
        after = changes[-1].seq
        for one in changes:
            counts[one.change] += 1
    now = catalog.state(name)
    scanned.at = now.last_at
    scanned.created = now.count if scanned.opened else counts[ChangeKind.CREATED]
    scanned.updated, scanned.deleted = counts[ChangeKind.UPDATED], counts[ChangeKind.DELETED]
    scanned.unchanged = max(0, now.count - scanned.created - scanned.updated)


def refuse_overlap(copy: Path, out: Path) -> None:
    """Raises FolderOverlap where the copy or the output lies in the other."""
    one, other = Path(os.path.realpath(copy)), Path(os.path.realpath(out))
    if one == other or one in other.parents or other in one.parents:
        raise FolderOverlap("the copy and the output lie in each other", where=str(out))
