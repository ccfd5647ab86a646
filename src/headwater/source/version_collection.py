"""Removes versions that nothing needs and retention does not keep, as a task of the scheduler."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from headwater.catalog.interface import Catalog
from headwater.errors import HeadwaterError
from headwater.progress import Listener, Notice
from headwater.publish.change_dump import needed_versions
from headwater.source.scheduler import Urgency
from headwater.versions.history import History, has_history
from headwater.versions.retention import DigestSet, VersionCounts, VersionRetention, collect, prune
from headwater.versions.store import VersionStore

EVERY_SECONDS: Final = 3_600.0
COLLECTED: Final = ".collected"
"""The mark in the folder of versions: when the last run of `headwater publish` has looked at all of them."""
FIRST_SECONDS: Final = 60.0
"""After the start, when there is most to do."""


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


class VersionCollection:
    """Does that every hour: all versions are looked at."""

    urgency = Urgency.LONG

    def __init__(
        self,
        catalog: Catalog,
        store: VersionStore,
        retention: VersionRetention,
        clock: Callable[[], dt.datetime],
        histories: Mapping[str, VersionRetention],
        listener: Listener,
    ) -> None:
        self._collect: Callable[[], VersionCounts] = partial(
            collect_versions, catalog, store, retention, clock, histories
        )
        self._listener = listener
        self.due_at = time.monotonic() + FIRST_SECONDS

    def run(self) -> None:
        """Do it; what fails is told, and tried again the next time."""
        self.due_at = time.monotonic() + EVERY_SECONDS
        try:
            self._collect()
        except HeadwaterError as fault:
            self._listener(Notice("HW-VER-11", f"versions cannot be removed: {fault}", fault.where))
