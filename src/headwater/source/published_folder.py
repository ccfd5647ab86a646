"""The folder of a set: scanned as a whole or where hints say, watched for these, and placed in a static tree."""

import math
import threading
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from headwater.catalog.interface import SetState, StateUpdate
from headwater.catalog.lease import SharedCatalog
from headwater.files.patterns import Selection
from headwater.ingest.deletion_guard import unreadable_update, versions_update
from headwater.ingest.folder.comparison import ScanResult, UnreadableFiles
from headwater.ingest.folder.scanner import FolderScanner
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import Folder, PathFilter, quote
from headwater.ingest.recording import NOTHING_KEPT, KeptChanges
from headwater.progress import Listener, Notice, of_set
from headwater.retry import TimeShare
from headwater.source import worker
from headwater.source.set_health import SetHealth
from headwater.source.worker import Intake, Looked, SetWorker, SourceContext

SCANS: Final = TimeShare(0.1)  # how much of the time full scans may take
UNWATCHED_SECONDS = 2.0  # between full scans of a folder that cannot be watched, when they are quick


class PublishedFolder(Intake):
    """Scans when told to. One thread at a time.

    Where others may have taken the work over without our knowing, a scan begins with a fence: what an older one still
    has in hand is refused by the catalog (Moved). `stop` says whether a scan has to end.
    """

    is_dated_by_looks = True
    looking_phase = "scanning"

    def __init__(
        self,
        context: SourceContext,
        name: str,
        folder: Folder,
        rescan_seconds: float = math.inf,
        stop: Callable[[], bool] | None = None,
        kept: KeptChanges = NOTHING_KEPT,
    ) -> None:
        super().__init__(context, name)
        self._folder = folder
        self._kept = kept
        self._rescan_seconds = rescan_seconds
        self._fence: int | None = None
        if folder.place is not None:
            self._tree = SetTree(context.catalog, name, folder.place, folder.place_mode)

        self._scanner = FolderScanner(
            context.catalog,
            name,
            folder,
            context.clock,
            listener=of_set(context.listener, name),
            stop=stop or (lambda: False),
            breathe=lambda: self.breathe(),
            before_change=context.may_record,
            seen=self._seen,
            kept=kept,
        )
        self._unreadable = UnreadableFiles()
        self._is_whole = False  # whether the last look was one at the whole

    def begin(self) -> None:
        """Refuse what an older process still has in hand."""
        if isinstance(self._catalog, SharedCatalog):
            self._catalog.create(self.name)
            self._context.may_record()
            self._fence = self._catalog.fence(self.name)

    def look(self) -> Looked:
        """Scan the whole folder. Raises what the scanner and the catalog raise."""
        self._catalog.create(self.name)
        self.begin()
        history = self._kept.history
        if history is not None:
            history.begin()
        scanned = self._scanner.scan()
        self._unreadable = scanned.unreadable
        self._note_problems(scanned, is_whole=True, is_unreadable_known=True)
        if history is not None and scanned.opened:
            history.begin()
        self._is_whole = True
        held_back = None if scanned.held_back is None else str(scanned.held_back)
        return Looked(at=scanned.at, is_changed=True, held_back=held_back, scanned=scanned)

    def look_at(self, paths: Collection[bytes]) -> Looked:
        """Scan these relative paths."""
        if self._fence is None:
            self.begin()
        scanned = self._scanner.rescan(paths)
        held_back = None if scanned.held_back is None else str(scanned.held_back)
        is_known = held_back is None and self._unreadable.looked_again(map(quote, paths), scanned.unreadable)
        self._note_problems(scanned, is_whole=False, is_unreadable_known=is_known)
        self._is_whole = False
        return Looked(at=scanned.at, is_changed=bool(scanned.changes), held_back=held_back, scanned=scanned)

    def pause_after(self, looked_seconds: float, health: SetHealth) -> float:
        """As configured, sooner where nothing hints at changes; but scans keep to their share of the time."""
        longest = min(
            UNWATCHED_SECONDS if not health.watching else math.inf,
            worker.HELD_SECONDS if health.held_back is not None else math.inf,
        )
        return max(min(self._rescan_seconds, longest), SCANS.pause_after(looked_seconds))

    def place(self, looked: Looked) -> int:
        """Place what is about to be published in the static tree, where there is one."""
        placed = 0
        if self._tree is not None:
            if self._is_whole:
                placed, _left = self._tree.complete(self._folder.walk)
            if placed or looked.scanned.read:
                self._tree.settle(self._folder.root)
        return placed

    def withdraw(self) -> int:
        """Remove files from it once the whole was looked at: what is looked at may not be recorded yet."""
        return super().withdraw() if self._is_whole else 0

    def _note_problems(self, scanned: ScanResult, *, is_whole: bool, is_unreadable_known: bool) -> None:
        catalog, name, updates = self._catalog, self.name, list[StateUpdate | None]()
        if is_whole or scanned.held_back is not None:
            guard = self._scanner.guard
            updates.append(guard.after_scan(scanned.held_back, is_whole=is_whole, deleted=scanned.deleted))
        if scanned.changes and self._kept.store is not None:
            updates.append(versions_update(catalog, name, scanned.warnings.get("HW-ING-23", 0)))
        if is_unreadable_known:
            updates.append(unreadable_update(catalog, name, self._unreadable.count, self._unreadable.places))
        for update in updates:
            if update is not None:
                self._context.may_record()
                catalog.record(name, (), self._context.clock(), after=self._seen(), state=update)

    def _seen(self) -> SetState | None:
        if self._fence is None:
            return None
        return msgspec.structs.replace(self._catalog.state(self.name), fence=self._fence)


WATCH_PAUSE: Final = 5.0  # before a folder that cannot be watched is tried again


def watch_folder(folder: Folder, worker: SetWorker, stopping: threading.Event, listener: Listener) -> None:
    """Hint at what changes in a folder until `stopping`; after a time without watching, at everything."""
    # With it comes the watching, which one round does not need.
    from headwater.ingest.folder.watch import EVERYTHING, CannotWatch, hints

    health, missed = worker.health, False
    selection, seen = folder.selection, folder.selection.current()

    def is_stopped() -> bool:
        """Whether to end; asked all the time, and meanwhile whether the set leaves out something else by now."""
        nonlocal seen
        if (now := selection.current()) is not seen:
            seen = now
            worker.hint(EVERYTHING)
        return stopping.is_set()

    def unwatched(count: int) -> None:
        health.unwatched = count

    while not is_stopped():
        ours = PathFilter(folder.root, Selection(hidden=folder.selection.hidden), folder.avoid)
        try:
            for changed in hints(folder.root, is_stopped, unwatched):
                split = [(path.rpartition(b"/"), path) for path in changed]  # a mark is about the folder that it is in
                found = {above if name in selection.marks else path for (above, _slash, name), path in split}
                if not health.watching:
                    health.watching, health.watch_error = True, None
                    worker.watch_changed()
                # states of commands change all the time
                paths = EVERYTHING if missed else {path for path in found if path in EVERYTHING or ours.takes(path)}
                missed = False
                if paths:
                    worker.hint(paths)
        except CannotWatch as fault:
            if health.watch_error is None:
                listener(Notice(fault.code, fault.what, fault.where))
            health.watch_error = str(fault)
        missed = True
        health.watching, health.unwatched = False, 0
        worker.watch_changed()
        stopping.wait(WATCH_PAUSE)
