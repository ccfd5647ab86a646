"""Where a dump lies: a file that is there whole or not at all, plain or gzip, or a pipe."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from headwater.catalog.dump.file import DamagedDump
from headwater.storage.gzip_member import MAGIC, GzipCompressor, header

_BUFFER = 1 << 18


class CountingStream:
    """A stream that counts what it takes; gzip when asked for."""

    def __init__(self, file: BinaryIO, *, compressed: bool) -> None:
        self._file = file
        self._gzip = GzipCompressor() if compressed else None
        self.octets = 0
        if compressed:
            self._pass(header(""))

    def write(self, octets: bytes, /) -> None:
        """Take all of `octets`."""
        self._pass(octets if self._gzip is None else self._gzip.add(octets))

    def finish(self) -> None:
        """Write what is still held."""
        if self._gzip is not None:
            self._pass(self._gzip.finish())
        self._file.flush()

    def _pass(self, octets: bytes) -> None:
        self._file.write(octets)
        self.octets += len(octets)


@contextlib.contextmanager
def written(path: Path) -> Iterator[CountingStream]:
    """A dump that gets its name when the block ends well, readable by this user only; gzip when the name says `.gz`.

    It holds private notes. What has the name already stays until then; a device or a pipe is written as it is. Raises
    OSError.
    """
    compressed = path.name.endswith(".gz")
    if _is_special(path):
        with path.open("wb", buffering=_BUFFER) as file:
            yield from _through(file, compressed=compressed)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=_BUFFER) as file:
            yield from _through(file, compressed=compressed)
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _through(file: BinaryIO, *, compressed: bool) -> Iterator[CountingStream]:
    out = CountingStream(file, compressed=compressed)
    yield out
    out.finish()


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


class DumpInput:
    """A dump as it is read, gzip or plain: damage of the compression is damage of the dump."""

    def __init__(self, file: io.BufferedReader) -> None:
        compressed = file.peek(len(MAGIC)).startswith(MAGIC)
        inflated = cast(io.RawIOBase, gzip.GzipFile(fileobj=file))  # it does what a buffer asks of a raw stream
        self._file = io.BufferedReader(inflated, _BUFFER) if compressed else file

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, or at most `limit` octets of it. Raises DamagedDump, OSError."""
        try:
            return self._file.readline(limit)
        except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
            raise DamagedDump(f"the compressed form is cut off or damaged: {cause}") from cause
