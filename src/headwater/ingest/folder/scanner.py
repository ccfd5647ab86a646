"""Compares a folder with a set of the catalog, large files last, and records what differs: files become changes.

A pass over an open set has four steps, and each may be killed and repeated:

1. Look: walk and catalog are merged; what differs is queued on disk. Files whose note is unchanged are not opened.
2. Judge whether so many deletions can be true (`deletion_guard`).
3. Record deletions, each after a second look, so that a name is free before it is taken (a file becomes a folder).
4. Read the new and the changed files, and record them in batches.

A set that is still being loaded has nothing to lose: no deletion is judged, and the set is opened at the end, as of the
start of the walk. An interrupted load goes on where it was, because loaded files have notes.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile

from headwater.catalog.interface import (
    NO_UPDATE,
    WITHDRAWN,
    Catalog,
    Delete,
    Event,
    Metadata,
    Moved,
    Resource,
    SetState,
    StateRow,
    StateUpdate,
    UnknownSet,
    Upsert,
)
from headwater.errors import UsageFault
from headwater.files.folder_marks import has_reserved
from headwater.ingest.deletion_guard import DeletionGuard, DeletionHold, HoldReason
from headwater.ingest.folder.comparison import Candidate, DifferenceQueue, ScanResult, compare
from headwater.ingest.folder.file_events import BATCH, EventBuilder, batched, unreadable
from headwater.ingest.folder.walk import (
    FileEntry,
    Folder,
    PathFilter,
    RootFault,
    UnreadableEntry,
    Walk,
    WalkEntry,
    path_of,
    quote,
    topmost,
)
from headwater.ingest.recording import NOTHING_KEPT, KeptChanges, is_acceptable
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Notice, Progress, silent
from headwater.spec.times import to_microseconds

EXAMPLES = 10  # so many places are named for each rule in one pass; the rest is a number
_REMEMBERED = 10_000


class WarningLog:
    """Counts the warnings of one pass by rule, and reports those that are not `known` from passes before."""

    def __init__(self, listener: Listener, known: set[tuple[str, bytes]]) -> None:
        self._listener = listener
        self._known = known
        self._counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._now: set[tuple[str, bytes]] = set()

    def add(self, rule: str, message: str, path: bytes) -> None:
        """One place is left out, or nearly."""
        self._counts[rule] += 1
        key = (rule, path)
        if key not in self._known and key not in self._now and self._told[rule] < EXAMPLES:
            self._told[rule] += 1
            self._listener(Notice(rule, message, os.fsdecode(path)))
        if len(self._now) < _REMEMBERED:
            self._now.add(key)

    def end(self, *, whole: bool) -> dict[str, int]:
        """The pass is over: how many warnings each rule had. A `whole` pass has said everything that is to say."""
        for rule, count in self._counts.items():
            if self._told[rule] >= EXAMPLES < count:
                self._listener(Notice(rule, f"the same of {count - EXAMPLES:,} more files or folders"))
        if whole:
            self._known.clear()
        if len(self._known) < _REMEMBERED:
            self._known |= self._now
        return dict(self._counts)


LONGEST_URI = 8_000  # no longer URI is published: servers and clients refuse them
LONG_URI = 2_047  # RS-DOC-19: a longer URI fits no Sitemap; it is published all the same, because leaving out is a loss

LOAD_BATCH = 10_000
"""Files of one transaction of the first load, at most; so many where versions are kept, as each waits for the disk."""

LARGE_OCTETS = 64 << 20
"""Larger files are read after all others, which do not wait for them: a second or so reads this many."""
_ROWS = 5_000
_BREATH = 1_000
_BREATH_SECONDS = 0.25
_ATTEMPTS = 3


@dataclass
class FolderScanner:
    """Scans one folder into one set, in one thread; a pass over hints may come in the middle of another pass.

    `stop` and `breathe` are called often: the first ends the pass (Stopped), the second may do something urgent.
    `before_change` is called before anything is placed or recorded, and may raise. `seen` is what the set must still be
    when something is recorded (`Catalog.record`, `after`); None: whatever it is. `kept` is what is kept of changes;
    where that has a history, the present state of all is kept.
    """

    catalog: Catalog
    name: str
    folder: Folder
    clock: Callable[[], dt.datetime]
    listener: Listener = silent
    stop: Callable[[], bool] = lambda: False
    breathe: Callable[[], None] = lambda: None
    before_change: Callable[[], None] = lambda: None
    seen: Callable[[], SetState | None] = lambda: None
    kept: KeptChanges = NOTHING_KEPT

    def __post_init__(self) -> None:
        self.path_filter = PathFilter(self.folder.root, self.folder.selection, self.folder.avoid)
        self.guard = DeletionGuard(self.catalog, self.name, self.folder.max_delete, self.clock)
        self.warned: set[tuple[str, bytes]] = set()  # the warnings that were reported
        self.is_busy = False  # whether a pass is under way
        self.overtaken: set[str] = set()  # what was recorded in the middle of it by passes that have looked later

    def scan(self) -> ScanResult:
        """Compare the whole folder; load and open the set when it is new.

        Raises Stopped, HW-ING-02 (new sets only: a known set is kept as it is and the pass says `held_back`),
        HW-ING-30, and the catalog's faults. Whatever was recorded before stays, and the next pass goes on from there.
        """
        is_new, began = self.catalog.create(self.name).opened_at is None, self.clock()
        result = ScanResult(opened=is_new, at=None if is_new else self.catalog.mark(self.name, began))
        self._run(_Pass.scan, result)
        if is_new:
            result.at = self.catalog.open(self.name, began).opened_at
        return result

    def rescan(self, paths: Iterable[bytes]) -> ScanResult:
        """Compare these relative paths only: files, or folders with all below them, there or gone. The set is open."""
        return self._run(lambda one: one.rescan(paths), ScanResult(), is_whole=False)

    def survey(
        self, told: Callable[[Candidate], None] = lambda _one: None, paths: Iterable[bytes] | None = None
    ) -> ScanResult:
        """What a scan would find to do, or a rescan of these paths, without reading a file or recording anything.

        `told` is called with each file that would be read, or deleted. Whether a file has changed is told by its state,
        not by its octets. Raises HW-ING-02 where the whole folder cannot be read.
        """
        return self._run(lambda one: one.survey(told, paths), ScanResult(), is_whole=paths is None)

    def _run(self, work: Callable[[_Pass], None], result: ScanResult, *, is_whole: bool = True) -> ScanResult:
        is_inner, self.is_busy = self.is_busy, True
        try:
            with DifferenceQueue() as queue:
                one = _Pass(self, result, queue, is_inner=is_inner)
                work(one)
        finally:
            self.is_busy = is_inner
            if not is_inner:
                self.overtaken.clear()
        result.warnings = one.warnings.end(whole=is_whole)
        if result.unreadable.count:  # files: one warning for a folder is about all below it
            result.warnings["HW-ING-20"] = result.unreadable.count
        return result


class _Pass:
    """One pass of a scanner. Unless it `is_inner`, others may come in the middle of it.

    Large files are left to the outermost pass: one that reads them for a while must not read them once more in its
    middle, nor record them twice. They are `unsettled` in any other.
    """

    def __init__(self, scanner: FolderScanner, result: ScanResult, queue: DifferenceQueue, *, is_inner: bool) -> None:
        self._is_inner = is_inner
        self.warnings = WarningLog(scanner.listener, scanner.warned)
        self._scanner = scanner
        self._catalog = scanner.catalog
        self._name = scanner.name
        self._folder = scanner.folder
        self._result = result
        self._queue = queue
        self._is_loading = result.opened
        self._total = 0
        with suppress(UnknownSet):  # of a survey
            self._total = self._catalog.state(self._name).count
        self._breathe_at = 0.0
        self._event_builder = EventBuilder(
            self._folder,
            scanner.clock,
            result,
            stop=self._breathing,
            warn=self.warnings.add,
            overtaken=() if is_inner else scanner.overtaken,
            kept=scanner.kept,
        )

    def scan(self) -> None:
        """Compare the whole folder and record what differs. Raises HW-ING-02 where a new set's cannot be read."""
        if (walk := self._look_at_everything(is_needed=self._is_loading)) is not None:
            self._record_all(walk)

    def survey(self, told: Callable[[Candidate], None], paths: Iterable[bytes] | None) -> None:
        """Compare the whole folder, or these paths, and count what would be recorded. Raises HW-ING-02 where the whole
        cannot be read."""
        result = self._result
        if paths is None:
            self._look_at_everything(is_needed=True)
        else:
            self._look_at(paths)
        for one in self._queue.take():
            if not one.path and result.held_back is not None and not self._is_left_out(one.uri):
                continue
            told(one)
            result.deleted += not one.path
            result.created += bool(one.path and not one.known)
            result.updated += bool(one.path and one.known)
            result.octets += one.octets
        result.read = result.created + result.updated

    def _look_at_everything(self, *, is_needed: bool) -> Walk | None:
        """Steps 1 and 2. Raises HW-ING-02 where the folder cannot be read and `is_needed`."""
        result, queue, total = self._result, self._queue, self._total
        try:
            walk = self._folder.walk(self.warnings.add)
            self._look(walk.everything(), self._rows(), None if self._is_loading else total)
        except RootFault as fault:
            if is_needed:
                cause = fault.__cause__
                text = f"cannot be published: {cause.strerror if isinstance(cause, OSError) else cause}"
                raise UsageFault(text, code="HW-ING-02", where=os.fsdecode(self._folder.root)) from fault
            self._hold_all_back()
            return None
        vanished = queue.vanished - queue.left_out
        if vanished and not walk.still_there():
            self._hold_back(DeletionHold(HoldReason.ROOT_MISSING, vanished, total - queue.left_out))
        if not self._is_loading and result.held_back is None:
            if vanished and self._catalog.state(self._name).count != total:
                # hints have come in between, and are counted by the guard
                missing = (one.uri for one in queue.take() if not one.path)
                judged = (uri for uri in missing if not self._is_left_out(uri))
                vanished = sum(len(self._catalog.get(self._name, uris)) for uris in batched(judged, BATCH))
            self._judge(vanished, is_whole=True)
        return walk

    def rescan(self, paths: Iterable[bytes]) -> None:
        """Compare these relative paths and record what differs."""
        if (walk := self._look_at(paths)) is not None:
            self._record_all(walk)

    def _look_at(self, paths: Iterable[bytes]) -> Walk | None:
        """The same two steps for some paths; None where the folder cannot be read."""
        try:
            walk = self._folder.walk(self.warnings.add)
        except RootFault:
            self._hold_all_back()
            return None
        for path in topmost(one for one in paths if not has_reserved(one)):  # states of commands change all the time
            uri, seen = quote(path), walk.at(path)
            exact: dict[str, Resource] = {}
            with suppress(UnknownSet):  # of a survey
                exact = self._catalog.get(self._name, [uri])
            first = list(islice(seen, 1))  # at the path itself or below it; something unreadable counts for both
            is_file = any(isinstance(one, FileEntry) and one.uri == uri for one in first)
            unread = [one for one in first if isinstance(one, UnreadableEntry)]
            is_here = is_file or any(not one.uri.startswith(uri + "/") for one in unread)
            self._look(first if is_here else [], [(one.uri, one.memo) for one in exact.values()])
            self._look([] if is_file else chain(first, seen), self._rows(uri + "/"))
        self._judge(self._queue.vanished - self._queue.left_out, is_whole=False)
        return walk

    def _breathing(self) -> bool:
        """Whether to stop; asked again and again while a large file is read, for which nobody waits."""
        if not self._is_inner and time.monotonic() >= self._breathe_at:
            self._scanner.breathe()
            self._breathe_at = time.monotonic() + _BREATH_SECONDS
        return self._scanner.stop()

    def _pause(self) -> None:
        if self._scanner.stop():
            raise Stopped
        if not self._is_inner:
            self._scanner.breathe()

    # Step 1: look

    def _look(self, seen: Iterable[WalkEntry], held: Iterable[tuple[str, bytes]], total: int | None = None) -> None:
        usual = LONG_URI - self._folder.uri_prefix_length

        def closed(one: UnreadableEntry) -> None:
            self.warnings.add(*unreadable(one.path, one.error))

        builder = self._event_builder
        mark = builder.mark if self._folder.types is None else lambda uri: builder.given(uri)[1]
        for one in compare(self._pausing(seen, total), held, mark, self._result, closed):
            if not one.path:
                self._queue.left_out += self._is_left_out(one.uri)
            elif len(one.uri) > usual and not self._fits(one):
                continue
            self._queue.put(one)

    def _pausing(self, seen: Iterable[WalkEntry], total: int | None) -> Iterator[WalkEntry]:
        for number, one in enumerate(seen):
            if number % _BREATH == 0:
                self._pause()
                if number:
                    self._scanner.listener(Progress("look", number, total))
            yield one

    def _rows(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        # Below a file lies nothing: a hint for one must not read thousands of its neighbours to find that out.
        after, limit = prefix, 1 if prefix else _ROWS
        with suppress(UnknownSet):  # of a survey
            while rows := self._catalog.memos(self._name, after, limit):
                yield from takewhile(lambda row: row[0].startswith(prefix), rows) if prefix else rows
                if not rows[-1][0].startswith(prefix):
                    return
                after, limit = rows[-1][0], min(8 * limit, _ROWS)

    def _is_left_out(self, uri: str) -> bool:
        """Whether the settings no longer take it: then it goes by its owner's will, whatever lies in the folder."""
        return not self._scanner.path_filter.takes(path_of(uri))

    def _fits(self, one: Candidate) -> bool:
        """Whether a file is published whose URI is longer than usual; and say so, or why not."""
        length = self._folder.uri_prefix_length + len(one.uri)
        if length > LONGEST_URI or not is_acceptable(one.uri, Metadata()):
            self.warnings.add("HW-ING-14", f"left out: its URI would have {length:,} characters", one.path)
            return False
        text = f"its URI has {length:,} characters, more than a Sitemap may have"
        self.warnings.add("RS-DOC-19", text, one.path)
        return True

    # Steps 2 and 3: judge and record deletions

    def _judge(self, vanished: int, *, is_whole: bool) -> None:
        queue = self._queue
        found = self._total - queue.vanished + queue.candidates
        verdict = self._scanner.guard.judge(self._total - queue.left_out, vanished, found, is_whole=is_whole)
        if verdict is not None:
            self._hold_back(verdict)

    def _hold_all_back(self) -> None:
        is_known = self._folder.selection.fault is None
        reason = HoldReason.ROOT_MISSING if is_known else HoldReason.PATTERNS_MISSING
        self._hold_back(DeletionHold(reason, self._total, self._total))

    def _hold_back(self, hold: DeletionHold) -> None:
        result = self._result
        result.held_back = hold
        result.kept += hold.waiting
        result.at = None
        text = f"deletions are held back: {hold}"
        self.warnings.add("HW-ING-21", text, self._folder.root)

    def _delete(self, walk: Walk) -> None:
        """Record the deletions. What is there after all was being replaced as the walk came by: it is looked at again.

        While deletions are held back, those that the settings want are recorded all the same.
        """
        result = self._result
        if not (self._queue.vanished if result.held_back is None else self._queue.left_out):
            return
        vanished = (
            one.uri
            for one in self._queue.take()
            if not one.path and (result.held_back is None or self._is_left_out(one.uri))
        )
        for uris in batched(vanished, BATCH):
            self._pause()
            gone: list[Event] = []
            held = self._catalog.get(self._name, uris)  # without those that a hint has brought meanwhile
            for uri in held:
                found = islice(walk.at(path_of(uri)), 1)
                again = [one for one in found if isinstance(one, UnreadableEntry) or one.uri == uri]
                if again:
                    result.kept += 1
                    result.unsettled.append(path_of(uri))
                else:
                    gone.append(Delete(uri))
            withdrawn = [held[one.uri] for one in gone if self._is_left_out(one.uri)]
            update = NO_UPDATE if self._is_loading else self._scanner.guard.counted(len(gone) - len(withdrawn))
            if withdrawn and not self._is_loading:
                state = self._catalog.state(self._name)
                until = to_microseconds(state.last_at or state.opened_at or self._scanner.clock())
                pages = dict.fromkeys(one.page for one in withdrawn)
                rows = [StateRow(WITHDRAWN, str(page), rank=until) for page in pages]
                update = StateUpdate([*update.put, *rows], update.delete)
            result.deleted += len(gone) - len(self._record(gone, update=update))

    # Step 4: read and record

    def _record_all(self, walk: Walk) -> None:
        result, queue = self._result, self._queue
        self._delete(walk)
        known: Callable[[list[str]], dict[str, Resource]] = partial(self._catalog.get, self._name)
        kept = self._scanner.kept
        size, versions = BATCH, kept.store
        if self._is_loading:
            # whatever is read is loaded; patches lead from the octets of the first load, and histories begin with them
            known, is_kept = (lambda _uris: {}), kept.predecessors is not None or kept.history is not None
            versions = versions if is_kept else None
            size = LOAD_BATCH if versions is not None else min(LOAD_BATCH, self._catalog.load_batch)

        def candidates(*, are_large: bool) -> Iterator[Candidate]:
            for one in queue.take():
                if one.path and (one.octets > LARGE_OCTETS and not self._is_loading) is are_large:
                    if not self._folder.selection.is_fixed and self._is_left_out(one.uri):  # since it was found
                        continue
                    self._scanner.before_change()
                    yield one

        def not_kept(path: bytes, text: str) -> None:
            self.warnings.add("HW-ING-23", text, path)

        has_large = queue.largest > LARGE_OCTETS
        if self._is_inner and has_large:
            result.unsettled += [path_of(one.uri) for one in queue.take() if one.path and one.octets > LARGE_OCTETS]
        with nullcontext() if versions is None else versions.intake() as intake:
            for are_large in (False, True) if has_large and not self._is_inner else (False,):
                aside = None if intake is None else intake.folder
                for batch in self._event_builder.batches(candidates(are_large=are_large), known, size, aside):
                    lost = set[str]()
                    if intake is not None and batch.versions is not None:
                        lost = batch.versions.keep(intake, not_kept)
                    self._record(batch.events, batch.replaced, lost)
                    if batch.memos:
                        self._overtake(uri for uri, _memo in batch.memos)
                        self._catalog.remember(self._name, batch.memos)
                    self._scanner.listener(Progress("read", result.read, queue.candidates, result.octets))
                    self._pause()

    def _record(
        self,
        events: list[Event],
        replaced: Iterable[tuple[Metadata, Upsert]] = (),
        lost: Collection[str] = (),
        update: StateUpdate = NO_UPDATE,
    ) -> tuple[str, ...]:
        if not events:
            return ()
        history, noted = self._scanner.kept.history, self._scanner.kept.predecessors
        self._scanner.before_change()
        if self._is_loading:
            self._catalog.load(self._name, events)
            return ()
        if noted is not None:
            update = StateUpdate(update.put, update.delete, noted.notes(replaced))
        self._overtake(one.uri for one in events)
        failed = 0
        while True:
            try:
                after, now = self._scanner.seen(), self._scanner.clock()
                rows = update if history is None else history.update(events, lost, update)
                return self._catalog.record(self._name, events, now, after=after, state=rows).ignored
            except Moved:  # rows of the set were written since it was seen; a fence does not go away
                failed += 1
                if failed == _ATTEMPTS:
                    raise

    def _overtake(self, uris: Iterable[str]) -> None:
        if self._is_inner:
            self._scanner.overtaken.update(uris)
