"""Refuses what push sets remembered outside of the catalog, before it was kept there as rows: it is not taken over."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headwater.catalog.interface import Catalog
from headwater.errors import UsageFault

_FILE = "ingest.sqlite"


class OldMemory(UsageFault):
    """The state of push sets was written by an older Headwater, in a place that is no longer read."""

    code: ClassVar[str] = "HW-ING-62"
    advice: ClassVar[str] = (
        "Remove it to continue without it: idempotency keys and documents that wait for their partner are then lost, "
        "and an index is read again from its beginning."
    )


def refuse_old_memory(catalog: Catalog, state: Path) -> None:
    """Raise OldMemory when something is left in the state folder or, for a catalog on a cluster, beside its indices."""
    if catalog.is_remote:
        from headwater.catalog.cluster.catalog import ClusterCatalog

        if isinstance(catalog, ClusterCatalog) and catalog.has_old_memory():
            raise OldMemory("the index is of an older version", where=f"{catalog.prefix}-memory-v1")
    elif (state / _FILE).exists():
        raise OldMemory("the file is of an older version", where=str(state / _FILE))
