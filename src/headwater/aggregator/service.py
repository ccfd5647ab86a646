"""A service at work: the dispatcher of runs, with the threads that deliver events, show pages and give alerts."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from headwater.aggregator.alerts import AlertService
from headwater.aggregator.configuration import AggregatorConfig, faults_in
from headwater.aggregator.dispatcher import Dispatcher, Told, lock_state
from headwater.aggregator.events import held_event
from headwater.aggregator.pages import Pages
from headwater.aggregator.republishing import Republisher
from headwater.aggregator.sink_kinds import opened
from headwater.aggregator.sinks import SinkThreads
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import AggregatorStore, Retirement, SourceState
from headwater.errors import Exit, HeadwaterError, StoreFault, UsageFault
from headwater.progress import Notice, Progress
from headwater.sync.copy_status import copy_records
from headwater.sync.run import utcnow

_TRIM_SECONDS: Final = 3_600.0
_STOP_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 8.5


class FollowingService:
    """All of a service on one state, from `begin` to `close`. Raises StoreFault where another has the state."""

    def __init__(self, config: AggregatorConfig, tell: Callable[[Told], None]) -> None:
        """`tell` may be called by several threads."""
        self.config, self._tell = config, tell
        self._lock = lock_state(config)
        self._trimmed = time.monotonic()
        self._sinks: SinkThreads | None = None
        self._parts: list[AlertService | Pages | Republisher] = []
        self._looked = time.monotonic()
        self.url: str | None = None
        """Where the pages are, if there are any."""

        self.store = SqliteStore(config.home / FILE)
        try:
            self.dispatcher = Dispatcher(config, self.store, tell)  # its process is begun before any thread
        except BaseException:
            self.store.close()
            os.close(self._lock)
            raise

    def begin(self) -> None:
        """Begin to deliver, to show and to alert. Raises UsageFault for what cannot be as it is configured."""
        config = self.config
        self._sinks = SinkThreads(config, self.store, opened, self._hear)
        self._sinks.start()
        self._begin(AlertService(config, self.store, on_fault=self._note))
        if config.publish is not None:
            self._begin(Republisher(config, self.store, self._hear))
        if config.listen is not None:
            pages = Pages(config, self.store, is_alive=self.is_alive, reload=self._reload, on_fault=self._note)
            self._begin(pages)
            self.url = pages.url

    def _begin(self, part: AlertService | Pages | Republisher) -> None:
        part.start()
        self._parts.append(part)

    def is_alive(self) -> bool:
        """Whether the loop has looked lately."""
        return time.monotonic() - self._looked < 60

    def work(self, stopped: threading.Event, looked: Callable[[], None]) -> None:
        """Follow until the event; `looked` is called again and again."""
        self.dispatcher.work(stopped, lambda: self._look(looked))

    def once(self, stopped: threading.Event) -> None:
        """Run each source once, and let the sinks have what came of it."""
        self.dispatcher.once(stopped, lambda: self._look(lambda: None))
        last = self.store.last_number()
        until = time.monotonic() + 60
        while not stopped.is_set() and time.monotonic() < until and self._sinks is not None:
            states = [self.store.sink(one.name) for one in self.config.sinks]
            if all(one.acknowledged >= last or one.failures for one in states):
                break
            stopped.wait(0.1)

    def _look(self, looked: Callable[[], None]) -> None:
        self._looked = time.monotonic()
        looked()
        if self._looked - self._trimmed > _TRIM_SECONDS:
            self._trimmed = self._looked
            try:
                self.store.trim(utcnow() - dt.timedelta(seconds=self.config.keep_events))
            except HeadwaterError as fault:  # the disk is full, for one
                self._note(fault)

    def use(self, config: AggregatorConfig) -> None:
        """Go on by another configuration, which is of the same state. Whatever it raises, the old one goes on."""
        self._check_state(config)
        sinks = SinkThreads(config, self.store, opened, self._hear)
        self.dispatcher.use(config)
        self.config = config
        if self._sinks is not None:
            self._sinks.close(_STOP_SECONDS)
        self._sinks = sinks
        sinks.start()
        for part in self._parts:
            part.use(config)

    def _check_state(self, config: AggregatorConfig) -> None:
        """Raises UsageFault for a configuration of another state."""
        if os.path.realpath(config.state) != os.path.realpath(self.config.state):
            raise UsageFault("the state of a service that runs cannot change", where=str(config.path))

    def _reload(self, config: AggregatorConfig) -> None:
        """Let the main thread read this configuration again. Raises UsageFault where the old one would go on."""
        self._check_state(config)
        for one in config.sinks:
            with faults_in(config.path):
                opened(one, config.state).close()
        os.kill(os.getpid(), signal.SIGHUP)

    def close(self) -> None:
        """End all within ten seconds: runs stop, and what was delivered is acknowledged."""
        until = time.monotonic() + _CLOSE_SECONDS
        ends: list[Callable[[], object]] = [part.stop for part in self._parts]
        if self._sinks is not None:
            ends.append(partial(self._sinks.close, _STOP_SECONDS))
        threads = [threading.Thread(target=end, daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        self.dispatcher.close()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):  # else it may still ask the store
            self.store.close()
        os.close(self._lock)

    def _hear(self, event: Progress | Notice) -> None:
        if isinstance(event, Notice):
            self._tell(event)

    def _note(self, fault: HeadwaterError) -> None:
        self._tell(Notice(fault.code, fault.what, fault.where))


# what an operator does to a source for good

_BATCH: Final = 500
_RETIRE_SECONDS: Final = 3_600.0
_WAIT_SECONDS: Final = 20.0


def retire(
    store: AggregatorStore, state: Path, name: str, how: Retirement, now: Callable[[], dt.datetime] = utcnow
) -> int:
    """Follow a source no longer; returns how many deletions sinks get, where its copy is deleted.

    They are in the journal before the copy goes; after a kill the same call goes on. Raises UnknownSource, and
    StoreFault where a run of the source does not end.
    """
    store.change(name, retirement=how)
    if how is not Retirement.DELETE:
        return 0
    store.release(worker := f"retire {name}", now())  # one that was killed
    until = time.monotonic() + _WAIT_SECONDS
    while (run := store.lease(name, "retire", worker, now(), _RETIRE_SECONDS)) is None:
        if time.monotonic() > until:
            what = "a run of the source has not ended yet"
            raise StoreFault(what, where=name, advice="Run the same command again when it has.")
        time.sleep(0.5)
    copy, deleted, last = state / name, 0, store.source(name)
    assert last is not None
    with suppress(UsageFault):  # there is no copy
        records = copy_records(copy)
        while some := list(islice(records, _BATCH)):
            store.append(run, [held_event(name, one, "deleted") for one in some], now())
            deleted += len(some)
    if copy.is_dir():
        shutil.rmtree(copy)
    gone = SourceState(name=name, url=last.url, life_since=now(), is_paused=last.is_paused, retirement=last.retirement)
    store.end(run, run.ended(now(), Exit.DONE, deleted=deleted), gone)
    return deleted
