"""Requests by processes beside the run: two of them fetch, verify and place a great many plain resources.

A plain resource has a digest, is small, and is asked for at its address for the first time, without conditions. A
process says of each whether it was at once what is listed; the run records it. Whatever was not is left to `resources`,
as if nothing had been asked; so is all the rest, as soon as the source answers a request otherwise than with content.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from headwater.processes.pool import ProcessPool, WorkerProgram, processors
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_tree import DestinationUnusable
from headwater.sync.run_context import RunContext
from headwater.sync.transfer.plain_fetcher import LARGEST, SHARED, Answer, Request, fetcher
from headwater.sync.transfer.result_log import BATCH, PlacedFile, ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, Work

PROCESSES = 2
FROM = 3_000
"""For fewer resources, starting processes costs more than they save."""

_BLOCK, _AHEAD = 500, 2
"""Resources that a process is given at a time, and how many times it has so many in hand."""

_FOLDER = "requests"
"""The folder of the processes' temporary files."""

_PLAIN = f"{ELIGIBLE} AND links IS NULL AND tries IS NULL AND hash IS NOT NULL AND length <= {LARGEST}"
_COUNT = f"SELECT count(*), min(loc), max(loc) FROM temp.work WHERE {_PLAIN}"  # noqa: S608
_NEXT = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND {_PLAIN} ORDER BY n LIMIT {BATCH}"  # noqa: S608

Placed = Callable[[Work, PlacedFile, str, "str | None"], None]


def may_use_processes(context: RunContext) -> bool:
    """Whether processes can place files of this copy: who keeps what is replaced, or counts all octets, is alone."""
    tree = context.tree
    assert tree is not None
    counts = tree.room is not None and tree.room.most is not None
    return context.lock is not None and not tree.keeps_backup and not counts


@contextmanager
def placing_program(
    context: RunContext, function: Callable[[Any], Callable[[Any], Any]], folder: str, *more: object
) -> Iterator[WorkerProgram]:
    """What a process does that places files of the copy, and holds its lock: `function`, for the folders of the copy
    and of its own temporary files (`folder`, removed at the end), what is kept free, and `more`."""
    tree = context.tree
    assert tree is not None
    temp = f"{context.temp}/{folder}"
    os.makedirs(temp, exist_ok=True)
    keep_free = tree.room.keep_free if tree.room is not None else 0
    settings = (tree.root, os.fsencode(temp), keep_free, *more)
    try:
        yield WorkerProgram(function=function, settings=settings, libraries=True, descriptors=(context.lock or 0,))
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _is_one_host(first: str, last: str) -> bool:
    """Whether addresses from the first to the last in their order are of one host: what it has asked for is known."""
    return first.split("/", 3)[:3] == last.split("/", 3)[:3]


def fetch_plain(context: RunContext, results: ResultLog, placed: Placed) -> None:
    """Have processes fetch, verify and place what is plain, where there is enough of it; `placed` is called for each.

    Raises DestinationUnusable, and what `Transport.check` does.
    """
    with context.database.write() as t:
        count, address, last = t.one(_COUNT) or (0, None, None)
    pays = count >= FROM and processors() > 1 and context.options.largest >= LARGEST
    if not pays or not may_use_processes(context) or not _is_one_host(address, last):
        return
    options = context.transport.share(address, PROCESSES)
    if options is None:
        return
    shared = {name: getattr(options, name) for name in SHARED}

    def stop() -> bool:
        context.transport.check()
        return False

    is_answering = True

    def blocks() -> Iterator[tuple[list[Work], list[Request]]]:
        last = 0
        while is_answering and (works := results.take(partial(Transaction.fetch, sql=_NEXT, values=(last,)))):
            last = works[-1].n
            for some in (works[start : start + _BLOCK] for start in range(0, len(works), _BLOCK)):
                yield some, [_request(work) for work in some]

    with placing_program(context, fetcher, _FOLDER, shared) as program:
        pool: ProcessPool[list[Work]] = ProcessPool(program, _none, processes=PROCESSES, ahead=_AHEAD, stop=stop)
        with closing(pool.answers(blocks())) as answers:
            for works, (outcomes, wait, fault) in answers:
                stop()
                if wait is not None:
                    is_answering = False
                    context.transport.rest(address, wait)
                for work, outcome in zip(works, outcomes, strict=True):
                    if outcome is None:
                        results.left(work)
                    else:
                        size, time_ns, etag, modified, *sent = outcome
                        file = PlacedFile(work.path, size, time_ns, _digest(work), etag, modified)
                        placed(work, file, *sent)
                if fault:
                    raise DestinationUnusable(fault, where=context.destination)


def _none(requests: list[Request]) -> Answer:
    """What came of resources where there is no process."""
    return [None] * len(requests), 0.0, ""


def _digest(work: Work) -> str:
    digest = strongest_of(work.hash)
    return f"{digest.algorithm}:{digest.hex}" if digest is not None else ""


def _request(work: Work) -> Request:
    algorithm, _, hex_ = _digest(work).partition(":")
    return work.name, work.loc, work.path, work.lastmod, work.length or 0, algorithm, hex_
