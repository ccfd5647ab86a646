"""The file of `sync --changes`: a line for each resource that a run has dealt with, as JSON or as CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.cli.output import harmless_json, printable
from headwater.errors import StoreFault, UsageFault

if TYPE_CHECKING:
    from io import FileIO

    from headwater.progress import Done

COLUMNS: Final = ("time", "action", "uri", "path", "octets", "reason", "set")
_FORMULA: Final = ("=", "+", "-", "@")
"""With these a field begins that a spreadsheet executes: names in a copy are a stranger's."""


class ChangesFile:
    """Appends to one file, from any thread. What is told stays when the process is killed.

    Where the file has been moved away or removed, as log rotation does, a new one is begun with the next line.
    """

    def __init__(self, path: Path, destination: Path) -> None:
        """Open it. Raises UsageFault where it is in the copy, StoreFault where it cannot be opened."""
        if path.resolve().is_relative_to(destination.resolve()):
            raise UsageFault("the file of --changes lies in the copy, where audits would find it", where=str(path))
        self._path = Path(os.path.abspath(path))
        self._is_csv = path.suffix.lower() == ".csv"
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        with self._faults():
            self._open()

    def tell(self, done: Done) -> None:
        """Append a resource, with the time of now. Raises StoreFault."""
        time = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        values = (time, done.action, done.uri, done.path, done.octets, done.reason, done.set_name)
        line = _csv_line(values) if self._is_csv else _json_line(values)
        with self._lock, self._faults():
            if self._file is None or not self._is_there(self._file):
                self._open()
            self._write(line)

    def _open(self) -> None:
        self.close()
        self._file = self._path.open("ab", buffering=0)
        if self._is_csv and not self._file.tell():
            self._write(_csv_line(COLUMNS))

    def _is_there(self, file: FileIO) -> bool:
        """Whether the name still leads to the open file."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(file.fileno()))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            raise StoreFault(f"cannot be written: {cause.strerror}", code="HW-CLI-04", where=str(self._path)) from cause

    def _write(self, line: bytes) -> None:
        """Append a line; a file system that fills up takes part of it, and refuses the rest."""
        assert self._file is not None
        left = memoryview(line)
        while left:
            left = left[self._file.write(left) :]

    def close(self) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _json_line(values: tuple[str | int, ...]) -> bytes:
    import msgspec

    return harmless_json(msgspec.json.encode(dict(zip(COLUMNS, values, strict=True)))) + b"\n"


def _csv_line(values: tuple[str | int, ...]) -> bytes:
    text = io.StringIO()
    shown = [printable(one) if isinstance(one, str) else one for one in values]
    harmless = [f"'{one}" if isinstance(one, str) and one.startswith(_FORMULA) else one for one in shown]
    csv.writer(text, lineterminator="\n").writerow(harmless)
    return text.getvalue().encode("utf-8", "replace")
