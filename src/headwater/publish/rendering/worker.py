"""A render worker: a process that renders pages of a Resource List for a publisher in another process.

It is started by the pool (`pool.py`), reads the catalog itself, from a snapshot of its own, and puts each page into an
anonymous file that it shares with the publisher. It never touches a document: writing pages into the store, in their
order, stays with the publisher.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, cycle, islice

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.errors import HeadwaterError
from headwater.publish.rendering import documents
from headwater.publish.site import Site
from headwater.publish.store_writer import render_document


class RenderJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages of one publication have in common."""

    site: Site
    name: str
    at: dt.datetime
    indexed: bool


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first message to a process: the SQLite file to read, the files (descriptors) to write to in turn."""

    order: RenderJob
    catalog: str
    files: tuple[int, ...] = ()


class WorkerReply(msgspec.Struct, frozen=True):
    """What a process answers for a page: its size in octets, and when its snapshot had been taken."""

    octets: int
    completed: dt.datetime


def page(
    catalog: Catalog, order: RenderJob, number: int, clock: Callable[[], dt.datetime]
) -> tuple[dt.datetime, Iterator[bytes]]:
    """When the snapshot of a page had been taken (RS-TIME-06), and the page in blocks."""
    site, name = order.site, order.name
    rows = catalog.page(name, number)
    first = list(islice(rows, 1))  # the snapshot is taken by the first read; its time is known from here on
    completed = max(order.at, clock())
    head = documents.resource_list(site, name, order.at, completed, indexed=order.indexed)
    entries = documents.resource_entries(chain(first, rows), site.resource_prefix(name))
    return completed, render_document(head, entries, site.profile)


def _write_page(blocks: Iterator[bytes], descriptor: int) -> int:
    """Make these blocks all that the file holds; returns how many octets that are."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    octets = 0
    for block in blocks:
        octets += len(block)
        view = memoryview(block)
        while view:
            view = view[os.write(descriptor, view) :]
    return octets


def _serve() -> None:
    """Render the pages whose numbers come in, until there are no more; the files take turns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the publisher decides what an interruption means
    gc.disable()  # nothing here makes cycles
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerRequest)
    catalog = SqliteCatalog(job.catalog)
    for file, line in zip(cycle(job.files), sys.stdin.buffer, strict=False):
        completed, blocks = page(catalog, job.order, int(line), lambda: dt.datetime.now(dt.UTC))
        printed = WorkerReply(_write_page(blocks, file), completed)
        sys.stdout.buffer.write(msgspec.json.encode(printed) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(OSError, HeadwaterError):  # the publisher renders the page itself, and says what is in the way
        _serve()
