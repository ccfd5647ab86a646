"""The pipeline of a set with a folder: scan the folder, record its changes, publish the documents."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import msgspec

from headwater import notices
from headwater.catalog.interface import SetState
from headwater.catalog.lease import SharedCatalog
from headwater.catalog.state import StateUpdate
from headwater.ingest.folder.comparison import UnreadableFiles
from headwater.ingest.folder.event_builder import ScanResult
from headwater.ingest.folder.folder_settings import Folder, ScanHooks
from headwater.ingest.folder.scanner import FolderScanner
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import RootFault, Walk, quote
from headwater.ingest.set_problems import unreadable_update, versions_update
from headwater.progress import of_set
from headwater.publish.plan import Refresh
from headwater.publish.publisher import PublishResult
from headwater.source.source_context import SourceContext

APART_OCTETS = 64 << 20
"""Larger files are hashed apart, so that no other change waits: a second or so holds this many."""


class PipelineResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of work on a set did."""

    name: str
    scanned: ScanResult
    published: PublishResult | None
    placed: int = 0
    removed: int = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether deletions were held back, or something could not be read: not all that is there is published."""
        left_out = (notices.UNREADABLE, notices.COPY_CHANGED, notices.COPY_INCOMPLETE)
        scanned = self.scanned
        return bool(scanned.held_back or scanned.unsettled or any(map(scanned.warnings.get, left_out)))


class PipelineHost(Protocol):
    """Whoever has a pipeline do its work, and is asked by it in the middle of a scan."""

    def is_stopping(self) -> bool:
        """Whether the scan has to end."""
        ...

    def breathe(self) -> None:
        """Do what is urgent."""
        ...


class Alone:
    """The host of a pipeline with nothing else to do."""

    def is_stopping(self) -> bool:
        """Never."""
        return False

    def breathe(self) -> None:
        """Nothing is urgent."""


class FolderPipeline:
    """Does the work of one set when told to. One thread at a time.

    Where others may have taken the work over without our knowing, a scan begins with a fence: what an older one still
    has in hand is refused by the catalog (Moved).
    """

    def __init__(self, context: SourceContext, name: str, folder: Folder, host: PipelineHost | None = None) -> None:
        apart_octets = None if host is None else APART_OCTETS
        host = host or Alone()
        self.name = name
        self.folder = folder
        self._context = context
        self._catalog = context.catalog
        self._publisher = context.publisher
        self._fence: int | None = None
        self._placement = None
        if folder.place is not None:
            note = context.state / f"{name}.placed"
            self._placement = SetTree(context.catalog, name, Path(os.fsdecode(folder.place)), folder.place_mode, note)

        def scanner(breathe: Callable[[], None]) -> FolderScanner:
            return FolderScanner(
                context.catalog,
                name,
                folder,
                context.clock,
                listener=of_set(context.listener, name),
                hooks=ScanHooks(
                    stop=host.is_stopping,
                    breathe=breathe,
                    before_change=self._before_change,
                    seen=self._seen,
                    versions=context.versions_of(name),
                    predecessors=context.predecessors_of(name),
                    history=context.history_of(name),
                    keeps_first=context.predecessors_of(name) is not None or context.history_of(name) is not None,
                    keeps=context.keeps_of(name),
                    apart_octets=apart_octets,
                ),
            )

        self._scanner = scanner(host.breathe)
        # A pass over hints may come in the middle of a full one, so it has a scanner of its own.
        self._hinted = scanner(Alone().breathe)
        self._hinted.share(self._scanner)
        self.at: dt.datetime | None = None
        """All that had happened until then is recorded …"""
        self._looked_at: dt.datetime | None = None
        """… as was seen then, by a clock that may have been set back since."""
        self._unreadable = UnreadableFiles()
        self._published_seq = 0
        self._is_overtaken: bool | None = None
        """Whether more was published than the catalog knows; until the first scan has ended, when that was asked."""
        self.pages_left = 0
        self.due_in_seconds = math.inf
        """What remains of a round of pages: the next publication goes on with it."""

    @property
    def is_open(self) -> bool:
        """Whether the first load is complete."""
        return self._catalog.create(self.name).opened_at is not None

    @property
    def is_behind(self) -> bool:
        """Whether changes are recorded that are not published yet."""
        return self._catalog.state(self.name).last_seq > self._published_seq

    def full(self, refresh: Refresh = Refresh.DUE) -> PipelineResult:
        """Scan the whole folder and publish. Raises what the scanner, the catalog and the store raise."""
        before = self._catalog.create(self.name)
        self._put_up_fence()
        if self.at is None and before.opened_at is not None:
            self._is_unsure()
            self._publisher.reset_history(self.name)
        turned = self._publisher.rotate(self.name) if before.opened_at is not None else None
        history = self._context.history_of(self.name)
        if history is not None:
            history.begin()
        began = self._context.clock()
        scanned = self._scanner.scan()
        self._note(scanned, is_whole=True)
        self._note_versions(scanned)
        self._unreadable = scanned.unreadable
        self._note_unreadable()
        if history is not None and scanned.opened:
            history.begin()
        self._is_overtaken = False
        if scanned.at is not None:
            self.at, self._looked_at = turned or scanned.at, began
        fresh = scanned.opened and scanned.unchanged == 0
        return self._publish(scanned, before.last_seq, refresh, verify=not fresh)

    def hinted(self, paths: Collection[bytes], *, is_apart: bool = False) -> PipelineResult:
        """Scan these relative paths and publish when something changed.

        `is_apart`: they are large files that were left; hints do not wait for them.
        """
        before = self._catalog.state(self.name).last_seq
        if self._fence is None:
            self._put_up_fence()
        scanned = self._scanner.rescan(paths, is_apart=True) if is_apart else self._hinted.rescan(paths)
        self._note_versions(scanned)
        if scanned.held_back is not None:
            self._note(scanned, is_whole=False)
        elif self._looked_at is not None and self._unreadable.looked_again(map(quote, paths), scanned.unreadable):
            self._note_unreadable()
        if not scanned.changes or self._is_unsure():
            return PipelineResult(name=self.name, scanned=scanned, published=None)
        return self._publish(scanned, before, Refresh.DUE, verify=False)

    def _note(self, scanned: ScanResult, *, is_whole: bool) -> None:
        """Have `headwater status` say whether deletions are held back."""
        update = self._scanner.guard.after_scan(scanned.held_back, is_whole=is_whole, deleted=scanned.deleted)
        if update is not None:
            self._record(update)

    def _note_versions(self, scanned: ScanResult) -> None:
        """Have `headwater status` say whether versions could be kept."""
        if scanned.changes and self._context.versions_of(self.name) is not None:
            lost = scanned.warnings.get(notices.VERSION_NOT_KEPT, 0)
            if (update := versions_update(self._catalog, self.name, lost)) is not None:
                self._record(update)

    def _note_unreadable(self) -> None:
        """Have `headwater status` say how many files cannot be read."""
        update = unreadable_update(self._catalog, self.name, self._unreadable.count, self._unreadable.places)
        if update is not None:
            self._record(update)

    def _record(self, update: StateUpdate) -> None:
        self._context.may_record()
        self._catalog.record(self.name, (), self._context.clock(), after=self._seen(), state=update)

    def _put_up_fence(self) -> None:
        if isinstance(self._catalog, SharedCatalog):
            self._context.may_record()
            self._fence = self._catalog.fence(self.name)

    def _before_change(self) -> None:
        self._context.may_record()
        if self._placement is not None:
            self._placement.begin()

    def _seen(self) -> SetState | None:
        if self._fence is None:
            return None
        return msgspec.structs.replace(self._catalog.state(self.name), fence=self._fence)

    def publish(self) -> None:
        """Publish what is recorded, and restore documents that are lost or damaged. The set is open.

        A catalog that is older than what was published knows nothing of the time between: the folder is scanned first.
        """
        if not self._is_unsure():
            self._print(Refresh.REPAIR)

    def _is_unsure(self) -> bool:
        if self._is_overtaken is None:
            self._is_overtaken = self._publisher.history.is_older_than_documents(self.name)
        return self._is_overtaken

    def _print(self, refresh: Refresh) -> PublishResult:
        published = self._publisher.publish(self.name, self._known_at(), refresh, looked_at=self._looked_at)
        self._published_seq, self.pages_left = published.seq, published.pages_left
        self.due_in_seconds = published.due_in_seconds
        self._context.events.published(published)
        return published

    def _known_at(self) -> dt.datetime:
        # Before the first scan of this process nothing newer is known than the opening; the publisher never goes
        # back behind what it has stated before.
        at = self.at or self._catalog.state(self.name).opened_at
        assert at is not None
        return at

    def _publish(self, scanned: ScanResult, before: int, refresh: Refresh, *, verify: bool) -> PipelineResult:
        placement = self._placement
        placed = removed = 0
        if placement is not None:
            if verify:
                placed = self._complete(placement)
            placement.settle(self.folder.root)
        published = self._print(refresh)
        if placement is not None:
            removed = placement.sweep() if placement.torn else placement.remove_deleted(before)
            if not scanned.unsettled:
                placement.end()
        return PipelineResult(name=self.name, scanned=scanned, published=published, placed=placed, removed=removed)

    def _complete(self, placement: SetTree) -> int:
        folder = self.folder
        try:
            walk = Walk(folder.root, folder.selection, avoid=folder.avoid, base_url=folder.base_url)
            return placement.complete(walk) if placement.torn else placement.verify(walk)
        except RootFault:
            return 0  # the scan has said that the folder is not there
