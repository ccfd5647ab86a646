"""Two tasks beside publication, which never waits for them: packing the dumps of sets, and removing versions."""

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar, Final

from headwater.catalog.interface import Catalog, UnknownSet
from headwater.errors import HeadwaterError
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Notice
from headwater.publish.change_dump import needed_versions
from headwater.publish.package_builder import PackResult
from headwater.retry import TimeShare
from headwater.source.scheduler import Task, Urgency
from headwater.source.set_health import PAUSES, FailureState
from headwater.versions.history import History, has_history
from headwater.versions.retention import DigestSet, VersionCounts, VersionRetention, collect, prune
from headwater.versions.store import VersionStore

SOON: Final = 1.0  # seconds after a publication in which it is looked whether a package is due
LONGEST: Final = 30.0  # seconds between two looks at a set that was published or packed lately, at most
QUIET_SHARE, LONGEST_QUIET = 0.1, 600.0
"""Of the time in which nothing was published or packed, so much passes between two looks, at most so many seconds:
tens of thousands of sets that rest would else keep a processor at work. What is due by time is late by that share."""
DUTY: Final = TimeShare(0.25)  # how much of the time what there is already may be packed anew


class PackingHealth(FailureState, kw_only=True):
    """How a dump of one set is: what fails at present, and how often this process has packed something."""

    name: str
    dump: str
    packings: int = 0


@dataclass(eq=False)
class DumpPacking:
    """Packs one dump of a set: `pack` makes what is due and says what came of it; it calls `stop` now and then.

    What fails is shown by `health`, and tried again after a pause that grows.
    """

    urgency: ClassVar = Urgency.LONG

    name: str
    dump: str
    pack: Callable[..., PackResult]
    stopping: Event
    wake: Callable[[Task], None]
    listener: Listener
    pause_seconds: float = LONGEST

    def __post_init__(self) -> None:
        self.health = PackingHealth(name=self.name, dump=self.dump)
        self.due_at = 0.0
        self._active_at = time.monotonic()

    def news(self) -> None:
        """The set was published: look soon whether something is due."""
        self._active_at = time.monotonic()
        if not self.health.failures:
            soon = time.monotonic() + SOON
            if soon < self.due_at:
                self.due_at = soon
                self.wake(self)

    def run(self) -> None:
        """Make what is due first, and be due again: other tasks, which share the threads, have their turn between."""
        now = time.monotonic()
        quiet_seconds = min(QUIET_SHARE * (now - self._active_at), LONGEST_QUIET)
        self.due_at = now + max(min(LONGEST, self.pause_seconds), quiet_seconds)
        try:
            began = time.monotonic()
            packed = self.pack(stop=self._stop)
            if packed.is_done:
                self.health.packings += 1
                self._active_at = ended = time.monotonic()
                self.due_at = ended + (DUTY.pause_after(ended - began) if packed.is_offered else 0.0)
        except Stopped:
            return
        except UnknownSet:  # its first scan has not begun; its publication wakes this task
            return
        except Exception as fault:  # noqa: BLE001 - what is not shown here is never seen
            text = f"the {self.dump} of the set {self.name!r} lags behind, and is tried again"
            self.health.add(fault, self.listener, text)
            self.due_at = time.monotonic() + PAUSES.seconds(self.health.failures)
        else:
            self.health.clear()

    def _stop(self) -> None:
        if self.stopping.is_set():
            raise Stopped


# Removing versions that nothing needs and retention does not keep

EVERY_SECONDS: Final = 3_600.0
COLLECTED: Final = ".collected"
"""The mark in the folder of versions: when the last run of `headwater publish` has looked at all of them."""
FIRST_SECONDS: Final = 60.0  # after the start, when there is most to do


def collect_versions(
    catalog: Catalog,
    store: VersionStore,
    retention: VersionRetention,
    clock: Callable[[], dt.datetime],
    histories: Mapping[str, VersionRetention] | None = None,
    *,
    dry_run: bool = False,
) -> VersionCounts:
    """Remove what is no longer kept, or with `dry_run` count it. Raises the catalog's and the versions' StoreFaults.

    `histories` are the retentions of the sets that keep versions; None: they are not known, and all is kept.
    """
    asked_at = clock()
    freed: list[str] = []
    for name in has_history(catalog) if histories is not None else ():
        history = History(catalog, name)
        if (kept := histories.get(name) if histories else None) is not None:
            freed += prune(history, kept, asked_at, dry_run=dry_run)
        elif not dry_run:
            history.forget()
    return collect(store, retention, needed_versions(catalog), asked_at, freed=DigestSet(freed), dry_run=dry_run)


def is_due(mark: Path) -> bool:
    """Whether the last collection, when `mark` was written, is an hour ago; then it is written anew.

    The first is due an hour after the first run that has kept versions.
    """
    if not mark.parent.is_dir():
        return False
    written_at = mark.stat().st_mtime if mark.exists() else None
    is_over = written_at is not None and time.time() - written_at >= EVERY_SECONDS
    if is_over or written_at is None:
        mark.touch()
    return is_over


@dataclass(eq=False)
class VersionCollection:
    """Does that every hour: all versions are looked at."""

    urgency = Urgency.LONG

    collect: Callable[[], None]
    listener: Listener

    def __post_init__(self) -> None:
        self.due_at = time.monotonic() + FIRST_SECONDS

    def run(self) -> None:
        """Do it; what fails is told, and tried again the next time."""
        self.due_at = time.monotonic() + EVERY_SECONDS
        try:
            self.collect()
        except HeadwaterError as fault:
            self.listener(Notice("HW-VER-11", f"versions cannot be removed: {fault}", fault.where))
