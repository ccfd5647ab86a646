"""The run context: what the sets of one run share (source, folder, state, options, listeners)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.progress import Done, Listener
from headwater.storage.database import Database
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.lists.documents import Documents
from headwater.sync.options import SyncOptions
from headwater.sync.transfer.work_queue import Mirrors
from headwater.transport.transport import Transport


class RunContext(msgspec.Struct, kw_only=True):
    """What the sets of one run share. `tree` is None in a dry run without a folder; `now` is in microseconds."""

    documents: Documents
    transport: Transport
    database: Database
    tree: FileTree | None
    temp: str
    run_number: int
    options: SyncOptions
    source: str
    destination: str
    listener: Listener
    each: Callable[[Done], None]
    now: Callable[[], int]
    lock: int | None = None
    """The open file by which the run holds the folder of the copy; a process of the run holds it as well."""

    adopt: bool
    mirrors: Mirrors = msgspec.field(default_factory=Mirrors)
    """What this run has learnt of mirrors (DST-F11)."""
