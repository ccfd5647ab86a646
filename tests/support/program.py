"""The program run in this process, where only its exit status and what it says are asked about: a start costs most."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from headwater import cli

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Done(NamedTuple):
    """A command line that has ended, as `subprocess.run` tells it."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_here(*arguments: object, octets: bytes = b"") -> Done:
    """Run one command line with `octets` on its standard input; what it says goes through real descriptors."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(octets)
        given.seek(0)
        with _streams(given, out, err), _as_it_was():
            status = cli.run([str(one) for one in arguments])
        for file in (out, err):
            file.seek(0)
        return Done(status, out.read(), err.read())


@contextmanager
def _streams(*files: BinaryIO) -> Iterator[None]:
    """Give the process other standard streams, below Python and in it."""
    kept = (sys.stdin, sys.stdout, sys.stderr)
    for stream in kept[1:]:
        stream.flush()
    saved = [os.dup(number) for number in range(3)]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    ours = [_text(number, mode) for number, mode in enumerate(("r", "w", "w"))]
    sys.stdin, sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        for stream in ours[1:]:
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = kept
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _text(number: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding="utf-8", errors="surrogateescape", line_buffering=number == 2)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Leave signals and logging as they are now."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    root = logging.getLogger()
    logs, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        root.handlers[:] = logs
        root.setLevel(level)
