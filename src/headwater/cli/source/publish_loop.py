"""Publishing that goes on: follow the sets and say what was published, until a signal ends it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

from headwater.cli.output import json_line, some_of
from headwater.errors import Exit

if TYPE_CHECKING:
    from headwater.source.config import SourceConfig
    from headwater.source.folder.scan_settings import StaticTree


def watch_source(config: SourceConfig, tree: StaticTree | None, *, as_json: bool) -> Exit:
    """Publish and follow until SIGTERM (DONE) or Ctrl-C (INTERRUPTED). Raises what `Source` raises."""
    from headwater.cli.server_log import open_log
    from headwater.source.source import Source

    log = open_log(config.log_format)
    # Until the catalog is open there is nothing to end in order: a signal acts as it always does.
    with Source(config, tree=tree, listener=log.progress, announce=log.published) as source, EndedBySignal() as ended:
        gc.freeze()  # what there is by now stays: of thousands of sets, a collector has a tenth of a second to do
        source.start()
        names = some_of([one.name for one in config.sets])
        log.event("watching", f"Publishing {names} for {config.base_url}", url=config.base_url)
        if as_json:
            json_line({"event": "watching", "url": config.base_url, "state": config.state, "pid": os.getpid()})
            sys.stdout.flush()
        ended.wait()
    log.event("stopped", "Stopped")
    return Exit.INTERRUPTED if ended.by is signal.SIGINT else Exit.DONE


class EndedBySignal:
    """Within it SIGTERM and SIGINT end `wait` instead of the process; a second one acts as it always does."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        self._event = threading.Event()
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> EndedBySignal:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.by = self.by or signal.Signals(number)
        for known, handler in self._before.items():
            signal.signal(known, handler)  # type: ignore[arg-type]
        self._event.set()

    def wait(self) -> None:
        """Return when a signal has come."""
        while not self._event.wait(3600.0):
            pass
