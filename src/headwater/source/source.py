"""A source at work: catalog, store, publisher and the threads of its sets, under one lock.

`headwater publish` makes one round (`run_once`); `headwater serve` follows the folders in threads (`start`, `stop`) and
asks `is_published` before it shows anything.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater import notices
from headwater.catalog import catalog_url
from headwater.catalog.claims import Claim, Claiming
from headwater.catalog.interface import Resource, SetState
from headwater.errors import HeadwaterError
from headwater.ingest.folder.dry_run import DryRun, dry_run
from headwater.progress import Listener, Notice, of_set, silent
from headwater.publish.publisher import Publisher
from headwater.publish.rendering.pool import RenderPool
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import CATALOG, ConfiguredSource, utc_now
from headwater.source.folder.pipeline import FolderPipeline, PipelineResult
from headwater.source.folder.scan_settings import StaticTree
from headwater.source.leadership import Leadership
from headwater.source.publication import Publication
from headwater.source.set_health import SetHealth
from headwater.source.state_lock import StateLock

if TYPE_CHECKING:
    from headwater.source.folder.worker import FolderWorker
    from headwater.source.push.scheduler import PushScheduler

_SETTLING_ROUNDS = 3
_EXAMPLES = 3


class Source(ConfiguredSource):
    """One source. A context manager: its lock, threads and files are given up with it.

    `base_url` is used when the configuration has none. With a `tree`, documents (and resources) go there instead of
    into the state folder. `announce` is told what the threads have published. Raises Locked, StateUnusable, the
    catalog's and the configuration's errors.
    """

    def __init__(
        self,
        config: SourceConfig,
        *,
        base_url: str | None = None,
        tree: StaticTree | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
        listener: Listener = silent,
        announce: Callable[[Publication], None] = lambda _one: None,
    ) -> None:
        super().__init__(config, base_url, tree)
        self._announce = announce
        self._clock = clock
        self._listener = listener
        self._folder_workers: list[FolderWorker] = []
        self._scheduler: PushScheduler | None = None
        self._lock = StateLock(self._state)
        try:
            self._open(clock, listener)
            self.leadership = Leadership(self._claim(), listener)
            self.publisher = Publisher(
                self.catalog,
                self.store,
                self.site,
                clock,
                listener,
                keep_others=tree is not None,
                may_write=self.leadership.check,
                render_pool=self._render_pool(),
            )
        except BaseException:
            self._lock.release()
            raise

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents may be shown; `state`: what the catalog holds of it, where that is known."""
        if self.leadership.is_ours:
            return self.publisher.site_documents.is_published(name, state)
        return self.is_site_published() and self.publisher.site_documents.has_documents(name, state)

    def is_site_published(self) -> bool:
        """Whether the Source Description may be shown. While we stand by, another process knows what it has to say."""
        if self.leadership.is_ours:
            return self.publisher.site_documents.is_site_published()
        return super().is_site_published()

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        if self.leadership.is_ours:
            return self.publisher.site_documents.is_known_published(name)
        return self.is_site_published() and (name is None or self.publisher.site_documents.is_known_whole(name))

    def run_once(self) -> list[PipelineResult]:
        """Bring every set with a folder up to date once: scan, record, publish every stale page.

        Files that are being written get a while. Raises NotLeader when another process publishes the source.
        """
        self.leadership.take()
        self.store.clean()
        return [self._work(one) for one in self.config.sets if one.feed is None]

    def _work(self, config: SetConfig) -> PipelineResult:
        self._tell_left_resources(config.name)
        worker = self._worker(config, lambda: False, lambda: None)
        worked = worker.full(force_pages=True)
        for _round in range(_SETTLING_ROUNDS):
            if not worked.scanned.unsettled:
                break
            again = worker.hinted(worked.scanned.unsettled)
            worked = _together(worked, again)
        return worked

    def _tell_left_resources(self, name: str) -> None:
        tree = self._tree
        if tree is not None and tree.mode is None and (left := tree.folder / name / "resources").is_dir():
            text = "what an earlier run placed stays, and is no longer kept current"
            self._listener(Notice(notices.LEFT_RESOURCES, text, str(left)))

    def _worker(self, config: SetConfig, stop: Callable[[], bool], breathe: Callable[[], None]) -> FolderPipeline:
        return FolderPipeline(
            self.catalog,
            self.publisher,
            config.name,
            self._folders[config.name],
            self._clock,
            state=self._state,
            listener=of_set(self._listener, config.name),
            stop=stop,
            breathe=breathe,
            may_record=self.leadership.check,
        )

    def survey(self, name: str) -> DryRun:
        """What `run_once` would find to do for a set; nothing is read, recorded or written."""
        known = any(one.name == name for one in self.catalog.sets())
        count = self.catalog.state(name).count if known else 0
        return dry_run(self._folders[name], self._rows(name) if known else (), count, self._listener)

    def _rows(self, name: str) -> Iterator[Resource]:
        after = ""
        while rows := self.catalog.resources(name, after):
            yield from rows
            after = rows[-1].uri

    def _render_pool(self) -> RenderPool | None:
        """Processes can print what is in a file, at the system's time."""
        place = catalog_url.place_of(self.config.catalog or str(self._state / CATALOG))
        return RenderPool(place) if isinstance(place, Path) and self._clock is utc_now else None

    def _claim(self) -> Claim | None:
        if not isinstance(self.catalog, Claiming):
            return None
        return self.catalog.claim(f"publish {self.site.base_url}", f"process {os.getpid()} on {socket.gethostname()}")

    def start(self) -> None:
        """Follow all sets until `stop` while we lead: each folder in its own threads, push sets in a few for all."""
        if closed := self.push_sets.closed:
            more = f" and {len(closed) - _EXAMPLES:,} more" if len(closed) > _EXAMPLES else ""
            text = f"without a token nobody can announce to {', '.join(closed[:_EXAMPLES])}{more}"
            self._listener(Notice(notices.NO_TOKEN, text))
        self.leadership.whenever(self._begin, self._end)

    def _begin(self) -> None:
        self.store.clean()
        self.publisher.begin()
        self._folder_workers = [self._folder_worker(one) for one in self.config.sets if one.feed is None]
        self._scheduler = self.push_sets.scheduler(
            self.publisher, self._listener, self._announce, self._name_the_published
        )
        for worker in self._workers:
            worker.start()

    def _end(self) -> None:
        text = f"{self.leadership.holder or 'another process'} publishes this source now; this process stands by"
        self._listener(Notice(notices.TURN_LOST, text))
        self._end_workers(10.0)

    def _folder_worker(self, config: SetConfig) -> FolderWorker:
        # With it comes the watching, which one round does not need.
        from headwater.source.folder.worker import FolderWorker

        return FolderWorker(
            lambda stop, breathe: self._worker(config, stop, breathe),
            config.name,
            watched=config.watch,
            # A rotation is due after a full scan: only that knows the folder as it was at one time.
            rescan_seconds=min(config.rescan_seconds, config.rotation_seconds or config.rescan_seconds),
            clock=self._clock,
            listener=of_set(self._listener, config.name),
            announce=self._announce,
            after_failure=self._name_the_published,
        )

    def _name_the_published(self) -> None:
        """A set that fails does not hide the others: the Source Description names those that are there."""
        with suppress(HeadwaterError):  # it is said by the set whose work fails for the same reason
            self.publisher.site_documents.name_published()

    def stop(self, timeout: float = 10.0) -> bool:
        """End the threads; True when they have ended in time. What was recorded and published is safe either way."""
        if isinstance(self.catalog, Claiming):
            self.catalog.hurry()
        ended = self.leadership.halt(timeout)
        ended = self._end_workers(timeout) and ended
        if ended:
            self.leadership.release()
        return ended

    def _end_workers(self, timeout: float) -> bool:
        for worker in self._workers:
            worker.stop()
        ended = [worker.join(timeout) for worker in self._workers]
        return all(ended)

    @property
    def _workers(self) -> list[FolderWorker | PushScheduler]:
        return [*self._folder_workers, *([self._scheduler] if self._scheduler is not None else [])]

    def close(self) -> None:
        """Stop, and give up the lock and the files."""
        if self.stop():  # a thread that has not ended still writes: then the end of the process gives the lock up
            super().close()
            self._lock.release()

    def health(self) -> Mapping[str, object]:
        """How the source is, as plain values: for each set what it does, what it knows, what failed last."""
        turn = "ours" if self.leadership.is_ours else f"standing by: {self.leadership.holder or 'asking for the turn'}"
        return {"turn": turn, "sets": [msgspec.to_builtins(one) for one in self.sets_health]}

    @property
    def sets_health(self) -> list[SetHealth]:
        """The same as records."""
        pushed = self._scheduler.healths if self._scheduler is not None else []
        return [*(worker.health for worker in self._folder_workers), *pushed]


def _together(first: PipelineResult, again: PipelineResult) -> PipelineResult:
    scanned = first.scanned
    for field in ("created", "updated", "deleted", "read", "octets"):
        setattr(scanned, field, getattr(scanned, field) + getattr(again.scanned, field))
    scanned.unsettled = again.scanned.unsettled
    return msgspec.structs.replace(first, published=again.published or first.published)
