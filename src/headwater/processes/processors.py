"""The number of processors that this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """As many as this process may use where the system says it (Linux), else all of the machine (macOS)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
