"""Where the intake of announced records keeps its memory: beside the catalog, for all who share that."""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable
from pathlib import Path

from headwater.catalog.interface import Catalog
from headwater.ingest.fed.memory import Memory, SqliteMemory


def open_memory(catalog: Catalog, path: Path, clock: Callable[[], dt.datetime]) -> Memory:
    """The memory: in the cluster that has the catalog, else in the file at `path`. Raises the store's faults."""
    if not catalog.is_remote:
        return SqliteMemory(path)
    from headwater.catalog.cluster.catalog import ClusterCatalog
    from headwater.ingest.fed.cluster_memory import ClusterMemory

    if not isinstance(catalog, ClusterCatalog):
        raise TypeError(f"no memory is known beside a {type(catalog).__name__}")
    return ClusterMemory(catalog, f"process {os.getpid()} on {socket.gethostname()}", clock)
