"""A source at work: catalog, store, publisher and the threads of its sets, under one lock.

`headwater publish` makes one round (`run_once`); `headwater serve` follows the folders in threads (`start`, `stop`) and
asks `is_published` before it shows anything.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.catalog.lease import SharedCatalog
from headwater.files.file_copies import LINK
from headwater.ingest.folder.comparison import Candidate, ScanResult
from headwater.ingest.folder.scanner import FolderScanner
from headwater.ingest.folder.static_tree import SetTree
from headwater.progress import Listener, Notice, of_set, silent
from headwater.publish.change_dump import KeptContents
from headwater.publish.document_names import CHANGE_DUMP, RESOURCE_DUMP
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import VERSIONS, ConfiguredSource, note_catalog, utc_now
from headwater.source.configured_source import harvester as make_harvester
from headwater.source.hubs_and_tokens import NotifyConfig
from headwater.source.leadership import StateLock, leadership_of, make_state
from headwater.source.packing_and_version_removal import (
    COLLECTED,
    DumpPacking,
    VersionCollection,
    collect_versions,
    is_due,
)
from headwater.source.published_folder import WATCH_PAUSE, PublishedFolder, watch_folder
from headwater.source.scheduler import Scheduler
from headwater.source.set_folders import has_copy
from headwater.source.set_health import Publication, PublicationEvents, SetHealth
from headwater.source.worker import Intake, SetResult, SetWorker, SourceContext
from headwater.time_windows import windows_of

if TYPE_CHECKING:
    from headwater.source.notifier import Notifier
    from headwater.source.published_copy import CopyWatch

_SETTLING_ROUNDS = 3
_SETTLING_SECONDS = 2.0
"""So long, and a little longer, one run waits for files that are being written; the next run takes the others."""
_EXAMPLES = 3
_HUB_SECONDS = 10.0  # so long one round waits for hubs; the next one sends what they have not taken
_PATCH_SECONDS = 300.0  # so long one round makes patches, for which nobody waits


class Source(ConfiguredSource):
    """One source. A context manager: its lock, threads and files are given up with it.

    With `forget`, documents that nothing names any more go at once. Who listens to `events` is told what becomes
    visible. Sets of a copy that are not `known_in_copy` (None: there first) are told of as new. Raises Locked,
    StateUnusable, the catalog's and the configuration's errors.
    """

    def __init__(
        self,
        config: SourceConfig,
        *,
        clock: Callable[[], dt.datetime] = utc_now,
        listener: Listener = silent,
        forget: bool = False,
        known_in_copy: frozenset[str] | None = None,
    ) -> None:
        super().__init__(config)
        self.events = PublicationEvents()
        self._clock = clock
        self._listener = listener
        self._known_in_copy = known_in_copy
        self._workers: dict[str, SetWorker] = {}
        self._copies: list[CopyWatch] = []
        self._scheduler: Scheduler | None = None
        self._packing: dict[str, list[DumpPacking]] = {}
        self.web_server_files: dict[Path, bool] = {}  # of a static tree: those written, and whether one was there
        self._notifier: Notifier | None = None
        self._lock = StateLock(self._state)
        try:
            self._open(clock, listener)
            note_catalog(config)
            self.leadership = leadership_of(self.catalog, self.site.base_url, listener)
            has_change_dumps = any(one.change_dump for one in config.sets)
            options = PublisherOptions(
                keep_others=config.to is not None,
                may_write=self.leadership.check,
                contents=self.contents,
                change_contents=KeptContents(self.versions, self.catalog, self.contents) if has_change_dumps else None,
                spool=self._state,
                versions=self.versions if self.has_versions else None,
                forget=forget,
                written=lambda name, documents: self._notifier.wrote(name, documents) if self._notifier else None,
            )
            self.publisher = Publisher(self.catalog, self.store, self.site, clock, listener, options)
            self._context = SourceContext(
                catalog=self.catalog,
                publisher=self.publisher,
                clock=clock,
                state=self._state,
                events=self.events,
                listener=listener,
                site=self.site,
                may_record=self.leadership.check,
            )
            self.push_sets.tell = lambda name: self._workers[name].tell() if name in self._workers else None
            self.events.listen(self._pack_soon)
            if config.notify is not None:
                self._notifier = self._made_notifier(config.notify)
        except BaseException:
            self._lock.release()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process may publish now. While we stand by, another one knows what is to be shown."""
        return self.leadership.is_ours

    def run_once(self) -> list[SetResult]:
        """Bring every set up to date once, of push sets those of a static tree: look, record, publish what is stale.

        Hubs are told. Files that are being written get a while. Raises NotLeader when another process publishes the
        source.
        """
        self.leadership.take()
        self.store.clean()
        self._clean_versions()
        if (maker := self.publisher.patch_maker) is not None:
            maker.seconds = _PATCH_SECONDS
        kinds = sorted(self.config.sets, key=lambda one: (not one.files, one.copy is not None))
        worked = [self._once(one) for one in kinds if self._is_there(one)]
        if worked:
            self.publisher.site_documents.name_published()
        for one in worked:
            while (
                self.site.settings(one.name).change_dump and self.publisher.pack_changes(one.name, at_once=True).is_done
            ):
                pass
        if self.has_versions and is_due(self._state / VERSIONS / COLLECTED):
            self._collect_versions()
        self._write_web_server_files()
        if self._notifier is not None:
            self._notifier.start()
            for publication in self.events.newest:
                self._notifier.visible(publication)
            self._notifier.settle(_HUB_SECONDS)
            self._notifier.stop(_HUB_SECONDS)
        return worked

    def _is_there(self, config: SetConfig) -> bool:
        """Whether one round publishes a set: no copy that is yet to come, and no push set but in a static tree.

        What is harvested is harvested by then."""
        if config.feed is not None and not config.is_harvested:
            return self.config.to is not None and self._intake(config, None).is_open
        return config.copy is None or has_copy(Path(config.copy))

    def _write_web_server_files(self) -> None:
        if self.config.to is not None:
            from headwater.source.web_server_files import write_web_server_files

            told = self.config, self.site, self.catalog, self._listener
            self.web_server_files = write_web_server_files(*told)

    def _collect_versions(self) -> None:
        config = self.config
        collect_versions(self.catalog, self.versions, config.version_retention, self._clock, config.kept_versions)

    def _once(self, config: SetConfig) -> SetResult:
        """Publish a set, and pack each page of its resources that is due, once."""
        name, whole = config.name, self.config
        left = Path(whole.to or os.devnull, name, "resources")
        if whole.place_of(config) is None and left.is_dir():
            text = "files of an earlier run stay public, and are no longer updated"
            self._listener(Notice("HW-PUB-12", text, str(left)))
        worked = self._round(config)
        for _page in range(len(self.catalog.pages(name)) + 2 if config.dump else 0):
            if not self.publisher.pack_resources(name).is_done:
                break
        return worked

    def _round(self, config: SetConfig) -> SetResult:
        worker = self._worker(config)
        worked = worker.once()
        if config.copy is not None and worker.health.held_back is not None:
            worked.scanned.warnings["HW-CPY-15"] = 1
        for _round in range(_SETTLING_ROUNDS):
            if not worked.scanned.unsettled:
                break
            time.sleep(min(config.settle_seconds, _SETTLING_SECONDS) * 0.6)
            worked = _together(worked, worker.look_again(worked.scanned.unsettled))
        return worked

    def _clean_versions(self) -> None:
        if self.has_versions:
            self.versions.clean()
        for history in self.histories.values():
            history.begin()

    def survey(self, name: str, told: Callable[[Candidate], None] = lambda _one: None) -> ScanResult:
        """What `run_once` would find to do for a set; nothing is read, recorded or written. `told`: of each file."""
        config = next(one for one in self.config.sets if one.name == name)
        if name not in self._folders:
            from headwater.source.published_dataset import PublishedDataset

            return PublishedDataset(self._context, config, lambda: False).survey()
        folder, kept = self._folders[name], self.kept_of(config)
        return FolderScanner(self.catalog, name, folder, self._clock, self._listener, kept=kept).survey(told)

    def start(self) -> None:
        """Keep all sets current until `stop`, by the tasks of one scheduler, while we lead (decision 028)."""
        if closed := self.push_sets.closed:
            more = f" and {len(closed) - _EXAMPLES:,} more" if len(closed) > _EXAMPLES else ""
            text = f"without a token, nobody can send records to {', '.join(closed[:_EXAMPLES])}{more}"
            self._listener(Notice("HW-CFG-11", text))
        self.leadership.whenever(self._begin, self._end)

    def _made_notifier(self, notify: NotifyConfig) -> Notifier:
        # With it come an HTTP client and an event loop, which a source without hubs does not need.
        from headwater.source.notifier import Notifier, NotifyContext

        context = NotifyContext(
            catalog=self.catalog,
            store=self.store,
            site=self.site,
            clock=self._clock,
            listener=self._listener,
            may_write=self.leadership.check,
            is_shown=self.is_published,
            token=notify.sent_token(),
            settings=notify,
            is_static=self.config.to is not None,
        )
        notifier = Notifier(notify.hubs, context)
        self.events.listen(notifier.visible)
        return notifier

    def _begin(self) -> None:
        self.store.clean()
        self.publisher.begin()
        self.events.begin()
        if self._notifier is not None:
            self._notifier.start()
        self._scheduler = scheduler = Scheduler(self._listener)
        self._clean_versions()
        self._write_web_server_files()
        self._packing = {}
        told = scheduler.stopping, scheduler.wake, self._listener
        for one in self.site.sets:
            some = self._packing[one.name] = []
            if one.dump:
                pack = partial(self.publisher.pack_resources, one.name)
                some.append(DumpPacking(one.name, RESOURCE_DUMP.title, pack, *told))
            if one.change_dump:
                pack = partial(self.publisher.pack_changes, one.name)
                some.append(DumpPacking(one.name, CHANGE_DUMP.title, pack, *told, one.change_dump_seconds))
            for packing in some:
                scheduler.add(packing)
        if self.has_versions:
            scheduler.add(VersionCollection(self._collect_versions, self._listener))
        self._schedule_sets(scheduler)
        scheduler.start()

    def _end(self) -> None:
        self._listener(Notice("HW-OWN-11", f"{self.leadership.words}; this process stands by"))
        self._end_work(10.0)
        self._workers, self._packing = {}, {}  # with their failures

    def _schedule_sets(self, scheduler: Scheduler) -> None:
        """Have this scheduler keep the sets current; copies, indexes and push sets are watched for all their sets."""
        self._workers = {one.name: self._worker(one, scheduler) for one in self.config.sets}
        copies: dict[str, list[SetWorker]] = {}
        for one in self.config.sets:
            worker = self._workers[one.name]
            scheduler.add(worker)
            if one.copy is not None:
                copies.setdefault(one.copy, []).append(worker)
            if one.files and one.watch:
                told = worker, scheduler.stopping, of_set(self._listener, one.name)
                scheduler.add_loop(partial(watch_folder, self._folders[one.name], *told))
        if copies:
            from headwater.source.published_copy import CopyWatch

            self._copies = [
                CopyWatch(Path(copy), some, self._listener, self._known_in_copy) for copy, some in copies.items()
            ]
            for copy in self._copies:
                scheduler.add(copy)
        if self.push_names:
            from headwater.source.published_feed import FeedWatch, HostPolls, IndexPoll
            from headwater.transport.scheduler import host_of, site_of

            scheduler.add(FeedWatch(self._context, [self._workers[name] for name in sorted(self.push_names)]))
            followers = self.push_sets.followers(self._listener, scheduler.stopping.is_set)
            hosts: dict[str, list[IndexPoll]] = {}  # no repository is asked for two sets at once
            for one in self.config.sets:
                if (index := followers.get(one.name)) is not None:
                    worker, windows = self._workers[one.name], windows_of(one.window)
                    poll = IndexPoll(worker, self._clock, index, one.poll_pause, one.is_harvested, windows)
                    host = host_of(site_of(one.url) or "") if one.url else f"index of {one.name}"
                    hosts.setdefault(host, []).append(poll)
            for polls in hosts.values():
                scheduler.add(HostPolls(polls))

    def _worker(self, config: SetConfig, scheduler: Scheduler | None = None) -> SetWorker:
        if scheduler is None:
            return SetWorker(self._context, self._intake(config, None))
        stop = scheduler.stopping.is_set
        watched_seconds = WATCH_PAUSE if config.files and config.watch else 0.0
        return SetWorker(self._context, self._intake(config, stop), scheduler.wake, watched_seconds)

    def _intake(self, config: SetConfig, stop: Callable[[], bool] | None) -> Intake:
        """What a set is made of; without `stop`, for one round.

        What only its kind needs is imported here: that is a part of a start.
        """
        context, name = self._context, config.name
        if config.files:
            # A rotation is due after a full scan: only that knows the folder as it was at one time.
            rescan_seconds = min(config.rescan_seconds, config.rotation_seconds or config.rescan_seconds)
            return PublishedFolder(context, name, self._folders[name], rescan_seconds, stop, self.kept_of(config))
        if config.feed is not None:
            from headwater.source.published_feed import PublishedFeed

            harvester = None
            if stop is None and config.is_harvested:
                harvester = partial(make_harvester, config, self.push_sets.by_set[name], self._listener)
            has_index = config.index is not None or config.is_harvested
            return PublishedFeed(context, name, has_index=has_index, harvester=harvester)
        if config.copy is not None:
            from headwater.source.published_copy import PublishedCopy

            place, tree = self.config.place_of(config), None
            if place is not None:
                tree = SetTree(context.catalog, name, place, self.config.resources or LINK)
            copy = PublishedCopy(context, config, self.copy_folders[name], stop or (lambda: False), tree)
            copy.keep_versions(self.kept_of(config), self.contents, self._listener)
            return copy
        from headwater.source.published_dataset import PublishedDataset

        return PublishedDataset(context, config, stop or (lambda: False), waits=stop is None)

    def _pack_soon(self, publication: Publication) -> None:
        for one in self._packing.get(publication.name, ()):
            one.news()

    def stop(self, timeout: float = 10.0) -> bool:
        """End the threads; True when they have ended in time. What was recorded and published is safe either way."""
        if isinstance(self.catalog, SharedCatalog):
            self.catalog.hurry()
        ended = self.leadership.halt(timeout)
        ended = self._end_work(timeout) and ended
        if ended:
            self.leadership.release()
        return ended

    def _end_work(self, timeout: float) -> bool:
        if self._scheduler is None:
            return True
        self._scheduler.stop()
        ended = self._scheduler.join(timeout)
        if self._notifier is not None:
            ended = self._notifier.stop(timeout) and ended
        for copy in self._copies:
            copy.close()
        for one in self.sets_health:
            one.phase = "stopped"
        return ended

    def close(self) -> None:
        """Stop, and give up the lock and the files."""
        if self.stop():  # a thread that has not ended still writes: then the end of the process gives the lock up
            super().close()
            self._lock.release()

    def health(self) -> Mapping[str, object]:
        """How the source is, as plain values: for each set what it does, what it knows, what failed last.

        Of a process that stands by only whether it could begin to publish: its turn is over, with what failed then.
        """
        if not self.leadership.is_ours:
            failed = self.leadership.failed
            sets = [SetHealth(name=one.name, phase="standing by") for one in self.site.sets]
            error = {} if failed.error is None else {"error": failed.error, "error_code": failed.error_code}
            return {"turn": "standing by", "sets": [msgspec.to_builtins(one) for one in sets], **error}
        told = {"turn": "ours", "sets": [msgspec.to_builtins(one) for one in self.sets_health]}
        hubs = [] if self._notifier is None else [msgspec.to_builtins(one) for one in self._notifier.health]
        dumps = [msgspec.to_builtins(one.health) for some in self._packing.values() for one in some]
        more = {"hubs": hubs, "dumps": dumps}
        return told | {key: some for key, some in more.items() if some}

    @property
    def sets_health(self) -> list[SetHealth]:
        """The same as records."""
        return [one.health for one in self._workers.values()]


class ReadOnlySource(ConfiguredSource):
    """What `headwater serve --no-publish` serves. Any number of these may show one catalog and one document storage.

    Until the publishing process has published a set, it counts as not there yet, as with a source that has just begun.
    """

    def __init__(self, config: SourceConfig, *, listener: Listener = silent) -> None:
        super().__init__(config)
        make_state(self._state)
        self._open(utc_now, listener)
        self.publisher = Publisher(self.catalog, self.store, self.site, utc_now, listener)

    def health(self) -> Mapping[str, object]:
        """What this process knows of itself; how the sets are is read from the catalog."""
        return {"role": "server", "sets": []}


def _together(first: SetResult, again: SetResult) -> SetResult:
    scanned = first.scanned
    for field in ("created", "updated", "deleted", "read", "octets"):
        setattr(scanned, field, getattr(scanned, field) + getattr(again.scanned, field))
    scanned.unsettled = again.scanned.unsettled
    return msgspec.structs.replace(first, published=again.published or first.published)
