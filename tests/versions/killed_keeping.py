"""`headwater publish CONFIG` in small batches; killed by who has started it, or at one of its steps."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from headwater import cli
from headwater.files import hash_pool
from headwater.ingest.folder import file_events, scanner
from headwater.storage.database import Database

STEPS = ("fsync", "unlink", "writev", "replace", "mkdir")


def make_small() -> None:
    """Batches and blocks of a few files."""
    hash_pool.SERIAL_FILES, hash_pool.BLOCK_FILES = 16, 4
    scanner.LOAD_BATCH = 40
    file_events.EventBuilder.batches.__defaults__ = (40, (), None)


def die_at(step: int) -> None:
    """End the process before that change to a file system, or around that commit."""
    left = step

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))
    Database._written = dying(Database._written)  # type: ignore[method-assign]
    Database._give_back = dying(Database._give_back)  # type: ignore[method-assign]


if __name__ == "__main__":
    make_small()
    if sys.argv[1] != "0":
        die_at(int(sys.argv[1]))
    scan = scanner.FolderScanner.scan

    def told(self: scanner.FolderScanner) -> Any:
        os.write(1, b"scanning\n")
        return scan(self)

    scanner.FolderScanner.scan = told  # type: ignore[method-assign]
    sys.exit(cli.run(["publish", sys.argv[2], "--json"]))
