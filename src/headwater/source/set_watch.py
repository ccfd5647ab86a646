"""The watch over the folder of a set: passes on what the operating system hints at, and begins again when lost."""

from __future__ import annotations

import os
import threading
from typing import Final

from headwater.ingest.folder.folder_settings import Folder
from headwater.ingest.folder.walk import outside_state
from headwater.ingest.folder.watch import EVERYTHING, CannotWatch, hints
from headwater.progress import Listener, Notice
from headwater.source.worker import SetWorker

WATCH_PAUSE: Final = 5.0
"""Before a folder that cannot be watched is tried again."""


class SetWatch:
    """Watches one folder in a thread of its own, until `stopping`."""

    def __init__(self, folder: Folder, taker: SetWorker, stopping: threading.Event, listener: Listener) -> None:
        self._folder = folder
        self._taker = taker
        self._health = taker.health
        self._stopping = stopping
        self._listener = listener
        self._lock = threading.Lock()
        self._waker: int | None = None

    def end(self) -> None:
        """Have `run` see at once that it is stopping."""
        with self._lock:
            if self._waker is not None:
                os.write(self._waker, b"\0")

    def run(self) -> None:
        """Pass on hints. After a time without watching, everything is hinted at."""
        woken, waker = os.pipe()
        with self._lock:
            self._waker = waker
        try:
            self._watch(woken)
        finally:
            with self._lock:
                self._waker = None
            os.close(woken)
            os.close(waker)

    def _watch(self, woken: int) -> None:
        missed = False
        while not self._stopping.is_set():
            try:
                for found in hints(self._folder.root, self._stopping.is_set, self._health, woken):
                    if not self._health.watching:
                        self._health.watching, self._health.watch_error = True, None
                        self._taker.watch_changed()
                    if missed:
                        missed = False
                        self._taker.hint(EVERYTHING)
                    self._pass_on(found)
            except CannotWatch as fault:
                if self._health.watch_error is None:
                    self._listener(Notice(fault.code, fault.what, fault.where))
                self._health.watch_error = str(fault)
            missed = True
            self._health.watching, self._health.unwatched = False, 0
            self._taker.watch_changed()
            self._stopping.wait(WATCH_PAUSE)

    def _pass_on(self, found: frozenset[bytes]) -> None:
        root = os.path.realpath(self._folder.root)
        below = root.rstrip(b"/") + b"/"
        avoid = tuple(one[len(below) :] for one in self._folder.avoid if one.startswith(below))
        hidden = self._folder.selection.hidden
        mine = [
            path
            for path in outside_state(found)
            if not any(path == one or path.startswith(one + b"/") for one in avoid)
            and (hidden or not (path.startswith(b".") or b"/." in path))
        ]
        if mine:
            self._taker.hint(mine)
            self._taker.appeared(path for path in mine if path and os.path.isdir(os.path.join(root, path)))
