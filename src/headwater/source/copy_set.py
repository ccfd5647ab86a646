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
from pathlib import Path
from typing import Final

from headwater import notices
from headwater.catalog.faults import UnknownSet
from headwater.catalog.interface import Catalog, SetState
from headwater.copies.copy_state import CopyStateReader, copied_sets, journal_end, sets_noted_after
from headwater.errors import HeadwaterError
from headwater.files.patterns import Selection
from headwater.ingest.copy.intake import CopyIntake, CopyOutcome, Omission
from headwater.ingest.folder.comparison import is_outlined
from headwater.ingest.folder.event_builder import ScanResult
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import FileEntry, RootFault, Walk, path_of
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Notice
from headwater.publish.plan import Refresh
from headwater.publish.publisher import PublishResult
from headwater.source.copy_sets import CopySets
from headwater.source.folder_pipeline import PipelineResult
from headwater.source.scan_settings import FolderOverlap, StaticTree
from headwater.source.set_health import Failures, SetHealth
from headwater.source.source_context import SourceContext
from headwater.spec.records import ChangeKind

TICK_SECONDS: Final = 30.0
"""Between publications without news: pages may be due, documents lost or damaged."""

CODES: Final = {
    Omission.LOOP: notices.COPY_LOOP,
    Omission.CHANGED: notices.COPY_CHANGED,
    Omission.UNCONFIRMED: notices.COPY_UNCONFIRMED,
    Omission.UNUSABLE: notices.COPY_UNUSABLE,
}
"""The notices by which what is left out is told."""


class CopySet:
    """Keeps one set current. Its methods are called by one thread at a time; what fails is shown by `health`."""

    def __init__(self, context: SourceContext, intake: CopyIntake) -> None:
        self.name = intake.name
        self.intake = intake
        self.health = SetHealth(name=intake.name, phase="waiting for the copy")
        self.retry_at = 0.0
        self._context = context
        self._publisher = context.publisher
        self._failures = Failures(self.health, context.clock, context.listener)
        self._at: dt.datetime | None = None
        self._published_seq: int | None = None
        self._pages_left = 0
        self._tick_at = 0.0
        self.is_begun = False

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete."""
        try:
            return self._context.catalog.state(self.name).opened_at is not None
        except UnknownSet:
            return False

    @property
    def is_unsettled(self) -> bool:
        """Whether the set has to look at every state of the copy, whatever the journal says."""
        return not self.is_begun or bool(self._failures) or self.intake.is_partial

    @property
    def due_at(self) -> float:
        """When there is something to do without news of the copy."""
        return max(self.retry_at, time.monotonic() if self._pages_left else self._tick_at)

    def look(self, open_state: Callable[[], CopyStateReader]) -> None:
        """Take what is new in the copy, and publish it."""
        self._attempt("copy", lambda: self._look(open_state()))

    def once(self, state: CopyStateReader, place: Callable[[], None]) -> tuple[CopyOutcome, PublishResult]:
        """Take what the copy holds, have it placed, and publish it. Raises whatever is wrong."""
        if self.is_open:
            self._publisher.reset_history(self.name)
        at = self._context.clock()
        outcome = self.intake.round(state)
        self._at, self.is_begun = at, True
        self._tell(outcome)
        place()
        return outcome, self._publish(at, Refresh.STALE)

    def tick(self) -> None:
        """Publish what is due by time, and what was lost."""
        self._tick_at = time.monotonic() + TICK_SECONDS
        if self.is_open and self.is_begun:
            self._attempt("publication", self._tick)

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            pause = self._failures.attempt(what, work)
        except Stopped:
            return
        self.retry_at = 0.0 if pause is None else time.monotonic() + pause
        if pause is None and not self._failures:
            self.health.phase = "following"

    def _look(self, state: CopyStateReader) -> None:
        was_open, first = self.is_open, not self.is_begun
        if first and was_open:
            if not self._publisher.history.is_older_than_documents(self.name):
                self._publish(None, Refresh.REPAIR)  # what a run before has recorded comes first
            self._publisher.reset_history(self.name)
        if not was_open:
            self.health.phase = "loading"
        at = self._context.clock()
        try:
            outcome = self.intake.round(state)
        except Stopped:
            return
        self._at = at
        self.is_begun = True
        self._tell(outcome)
        self.health.scans += 1
        self.health.scanned_at = at
        if first or not was_open:
            self._publish(at, Refresh.DUE)
        elif self._context.catalog.state(self.name).last_seq != self._published_seq:
            self._publish(at, Refresh.CHANGES)

    def _tick(self) -> None:
        at = None
        if not self._failures:  # nothing is known of the time since the copy could be read last
            at = self._publisher.rotate(self.name) or self._context.catalog.mark(self.name, self._context.clock())
        self._publish(at, Refresh.REPAIR)

    def _publish(self, at: dt.datetime | None, refresh: Refresh) -> PublishResult:
        known = at or self._at or self._context.catalog.state(self.name).opened_at
        assert known is not None
        looked_at = None if at is None else self._context.clock()
        published = self._publisher.publish(self.name, known, refresh, looked_at=looked_at)
        self._published_seq, self._pages_left = published.seq, published.pages_left
        now = time.monotonic()
        tick_at = self._tick_at if refresh is Refresh.CHANGES else now + TICK_SECONDS
        self._tick_at = min(tick_at, now + published.due_in_seconds)
        self._context.events.published(published)
        return published

    def _tell(self, outcome: CopyOutcome) -> None:
        told = outcome.left_out
        if outcome.is_compared:
            self.health.remarks = {}
        for why, count in told.counts.items():
            code = CODES[why]
            if code not in self.health.remarks:
                files = "1 file of the copy is" if count == 1 else f"{count:,} files of the copy are"
                text = f"{files} left out: {why.value}"
                self._context.listener(Notice(code, f"{self.name}: {text}", told.examples[why]))
            self.health.remarks[code] = self.health.remarks.get(code, 0) + count
        if outcome.is_held_back and self.health.held_back is None:
            text = f"{self.name}: the copy is being made anew; deletions wait for the end of its baseline"
            self._context.listener(Notice(notices.COPY_INCOMPLETE, text))
        self.health.held_back = "the copy's baseline has not ended" if self.intake.is_partial else None


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


class CopyTree(SetTree):
    """One set's resources below `place`, of the copy's folder `root`. Set that before anything else."""

    root = b""

    def fill(self) -> tuple[int, int]:
        """Place what has no place yet, or the wrong one; how many files that were, and how many could not be placed.

        Raises PlaceFault.
        """
        placed = left = 0
        for uri, memo in self._rows():
            if self._is_right(uri, memo):
                continue
            one = self._file(uri, memo)
            placed += one is not None and self._check(one)
            left += not self._is_right(uri, memo)
        return placed, left

    def _file(self, uri: str, memo: bytes) -> FileEntry | None:
        """The file of the copy, where it is as it was placed."""
        try:
            found = next(Walk(self.root, Selection()).at(path_of(uri)), None)
        except RootFault:
            return None
        if not isinstance(found, FileEntry) or found.uri != uri or found.stat is None:
            return None
        return found if is_outlined(memo, found.stat, by_inode=False) else None


_ROWS = 5_000


def publish_copies(
    context: SourceContext, sets: CopySets, made: list[CopySet], tree: StaticTree | None
) -> list[PipelineResult]:
    """Bring each set up to date once, and place its files where there is a tree. Raises whatever is wrong with one."""
    return [_publish(context, sets, one, tree) for one in made]


def _publish(context: SourceContext, sets: CopySets, one: CopySet, tree: StaticTree | None) -> PipelineResult:
    copy = sets.copy_of(one.name)
    before = _state(context.catalog, one.name)
    placement = None if tree is None or tree.mode is None else _placement(context, sets, one.name, tree)
    placed = left = removed = 0

    def place() -> None:
        nonlocal placed, left
        if placement is not None:
            placement.begin()
            placed, left = placement.fill()
            placement.settle(placement.root)

    state = CopyStateReader(copy)
    try:
        outcome, published = one.once(state, place)
    finally:
        state.close()
    if placement is not None:
        removed = placement.sweep()
        placement.end()
    scanned = _result(context.catalog, one.name, before, outcome)
    if left:
        text = f"{left:,} files of the copy are not as they were placed: they are not put into the tree"
        context.listener(Notice(notices.COPY_CHANGED, f"{one.name}: {text}", str(copy)))
        scanned.warnings[notices.COPY_CHANGED] = left
    return PipelineResult(name=one.name, scanned=scanned, published=published, placed=placed, removed=removed)


def _state(catalog: Catalog, name: str) -> SetState | None:
    try:
        return catalog.state(name)
    except UnknownSet:
        return None


def _placement(context: SourceContext, sets: CopySets, name: str, tree: StaticTree) -> CopyTree:
    assert tree.mode is not None
    place = tree.folder / name / "resources"
    placement = CopyTree(context.catalog, name, place, tree.mode, context.state / f"{name}.placed")
    placement.root = os.fsencode(sets.roots[name])
    return placement


def refuse_overlap(copy: Path, out: Path) -> None:
    """Raises FolderOverlap where the copy or the output lies in the other."""
    one, other = Path(os.path.realpath(copy)), Path(os.path.realpath(out))
    if one == other or one in other.parents or other in one.parents:
        raise FolderOverlap("the copy and the output lie in each other", where=str(out))


def _result(catalog: Catalog, name: str, before: SetState | None, outcome: CopyOutcome) -> ScanResult:
    """What one round has done, as a scan would tell it."""
    now = catalog.state(name)
    result = ScanResult(at=now.last_at, opened=before is None or before.opened_at is None)
    after = 0 if before is None else before.last_seq
    counts = dict.fromkeys(ChangeKind, 0)
    while changes := catalog.changes(name, after, _ROWS):
        after = changes[-1].seq
        for one in changes:
            counts[one.change] += 1
    result.created = now.count if result.opened else counts[ChangeKind.CREATED]
    result.updated, result.deleted = counts[ChangeKind.UPDATED], counts[ChangeKind.DELETED]
    result.unchanged = max(0, now.count - result.created - result.updated)
    result.warnings = {CODES[why]: count for why, count in outcome.left_out.counts.items()}
    if outcome.is_held_back:
        result.warnings[notices.COPY_INCOMPLETE] = 1
    return result
