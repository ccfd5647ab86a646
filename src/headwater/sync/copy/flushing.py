"""Makes everything that was written to a copy durable at once, and tells whether the machine was restarted since."""

from __future__ import annotations

import ctypes
import os
import sys


def flush(root: bytes) -> bool:
    """Have everything on the copy's file system written; cheap when the kernel has already done it.

    True when it is durable now. Outside Linux a system may only have begun when it says that it has.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "syncfs") or library.syncfs(descriptor) != 0:
            os.sync()
        return sys.platform == "linux"
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """What changes with every start of the machine: while it is the same, no power was lost. Empty when unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
