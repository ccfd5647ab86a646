"""Dumps: written, copied from, made on demand over latency; against zip, rsync, curl and resync.

`python -m bench dumps` measures all of it; `python -m bench.dumps [--quick] PART ...` some parts (see `PARTS`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from bench.rows import Row

PARTS = ("writing", "copying", "latency", "three_ways", "records", "large", "refresh")
"""Modules of this folder, each with `run(quick)`."""


def run(quick: bool, parts: Sequence[str] = PARTS) -> list[Row]:
    """The rows of this room."""
    rows: list[Row] = []
    for part in parts:
        rows += importlib.import_module(f"bench.dumps.{part}").run(quick)
    return rows
