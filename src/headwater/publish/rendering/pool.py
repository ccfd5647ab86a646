"""Renders pages of a Resource List in processes, in parallel.

The publisher writes them into the store one by one, in the order of their numbers. Processes, not threads: rendering
holds the interpreter's lock.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle
from pathlib import Path
from typing import BinaryIO

import msgspec

from headwater.processes.pool import ProcessPool, WorkerProgram
from headwater.processes.processors import processors
from headwater.publish.rendering.worker import RenderedPage, RenderJob, RenderRequest, page_renderer
from headwater.publish.store_writer import read_range
from headwater.spec.times import from_microseconds

POOL_ENTRIES = 60_000
"""With fewer entries to render, starting processes takes as long as it saves."""

_AHEAD = 2
"""Pages that a process has in hand: one that it renders, and one that waits or is being put into its place."""

_NOT_RENDERED = (0, 0)


class RenderPool:
    """Starts the processes: they read the SQLite file `catalog`; without one there are none.

    Safe for several threads: one publication at a time has processes, the others do without.
    """

    def __init__(self, catalog: Path | None, processes: int | None = None) -> None:
        self._catalog = catalog
        self._processes = processors() if processes is None else processes
        self._turn = threading.Lock()

    @contextmanager
    def rendering(self, order: RenderJob, numbers: Sequence[int], entries: int) -> Iterator[PageRendering]:
        """Have these pages rendered, which have so many entries together, as far as that saves time."""
        count = min(self._processes, len(numbers))
        if self._catalog is None or count < 2 or entries < POOL_ENTRIES or not self._turn.acquire(blocking=False):
            yield PageRendering(iter(()))
            return
        try:
            site = msgspec.structs.replace(order.site, sets=(order.site.settings(order.name),))
            request = RenderRequest(order=msgspec.structs.replace(order, site=site), catalog=str(self._catalog))
            with ExitStack() as files, closing(_pages(request, numbers, count, files)) as pages:
                yield PageRendering(pages)
        finally:
            self._turn.release()


class PageRendering:
    """The pages of one publication while processes render them."""

    def __init__(self, pages: Iterator[RenderedPage | None]) -> None:
        self._pages = pages

    def take(self) -> RenderedPage | None:
        """The next page in the order of their numbers, as `worker.page` gives it; None: the caller renders it.

        Its blocks are good until the next call.
        """
        return next(self._pages, None)


def _pages(
    request: RenderRequest, numbers: Sequence[int], processes: int, stack: ExitStack
) -> Generator[RenderedPage | None, None, None]:
    """The pages as processes render them; None in the place of one that none has rendered."""
    try:
        # As many as there are pages in hand at a time: a file is free again when its page has been taken.
        files = [stack.enter_context(_anonymous_file()) for _number in range(processes * _AHEAD)]
    except OSError:  # no room for them
        return
    program = WorkerProgram(
        function=page_renderer,
        settings=msgspec.json.encode(request),
        libraries=True,
        descriptors=tuple(file.fileno() for file in files),
    )
    pool: ProcessPool[BinaryIO] = ProcessPool(program, lambda _job: _NOT_RENDERED, processes=processes, ahead=_AHEAD)
    jobs = ((file, (number, file.fileno())) for number, file in zip(numbers, cycle(files), strict=False))
    for file, (octets, completed) in pool.answers(jobs):
        is_whole = octets > 0 and os.fstat(file.fileno()).st_size == octets
        yield (from_microseconds(completed), read_range(file, 0, octets)) if is_whole else None


def _anonymous_file() -> BinaryIO:
    # Unbuffered: a buffer would go on giving what the file held before.
    return tempfile.TemporaryFile(buffering=0)
