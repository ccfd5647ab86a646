"""The file of `sync --changes`: a line for each resource, as CSV or JSON lines."""

from __future__ import annotations

import csv
import datetime as dt
import io
import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from headwater.cli.output import encoded_json, printable, see_outside
from headwater.errors import StoreFault

if TYPE_CHECKING:
    from headwater.sync.reports import Done


COLUMNS: Final = (
    *("time", "action", "uri", "path", "octets", "reason", "set", "kept", "old_hash"),
    *("hash", "length", "type", "lastmod", "links", "source"),
)
_FORMULA: Final = ("=", "+", "-", "@")
"""With these a field begins that a spreadsheet executes: names in a copy are a stranger's."""


class ChangesFile:
    """Appends to one file, from any thread. What is told stays when the process is killed.

    The file is opened for each line: where it has been moved away or removed, as log rotation does, a new one begins.
    A pipe is opened once, since its reader takes the first close for the end. Close it.
    """

    def __init__(self, path: Path, destination: Path) -> None:
        """Begin it. Raises UsageFault where it is in the copy, StoreFault where it cannot be opened."""
        see_outside(path, destination, "--changes")
        self._path = Path(os.path.abspath(path))
        self._is_csv = path.suffix.lower() == ".csv"
        self._lock = threading.Lock()
        self._pipe: IO[bytes] | None = None
        self._append(b"")

    def tell(self, done: Done) -> None:
        """Append a resource, with the time of now. Raises StoreFault."""
        time = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        values = [time, *(getattr(done, "set_name" if name == "set" else name) for name in COLUMNS[1:])]
        names, more = (COLUMNS, []) if self._is_csv or not done.repaired else ((*COLUMNS, "repaired"), [True])
        self._append(table_line(names, values + more, is_csv=self._is_csv))

    def _append(self, line: bytes) -> None:
        try:
            with self._lock:
                file = self._pipe or self._path.open("ab")
                is_begun = file.tell() > 0 if file.seekable() else self._pipe is not None
                self._pipe = None if file.seekable() else file
                with nullcontext() if self._pipe else file:
                    file.write((csv_line(COLUMNS) if self._is_csv and not is_begun else b"") + line)
                    file.flush()
        except OSError as cause:
            raise StoreFault(f"cannot be written: {cause.strerror}", code="HW-CLI-04", where=str(self._path)) from cause

    def close(self) -> None:
        """Close a pipe, whose reader may have gone."""
        if self._pipe is not None:
            with suppress(OSError):
                self._pipe.close()


def table_line(names: Sequence[str], values: Sequence[Any], *, is_csv: bool) -> bytes:
    """A record as a line of JSON or of CSV."""
    return csv_line(values) if is_csv else encoded_json(dict(zip(names, values, strict=True)))


def csv_line(values: Sequence[Any]) -> bytes:
    """A line of CSV in which a spreadsheet finds no formula, and a terminal nothing that steers it; links are JSON."""

    def cell(value: Any) -> str | int:
        if value is None or value == ():
            return ""
        if isinstance(value, tuple):
            return encoded_json(value).decode().strip()
        return value.isoformat() if isinstance(value, dt.datetime) else value

    text = io.StringIO()
    shown = [printable(one) if isinstance(one, str) else one for one in map(cell, values)]
    harmless = [f"'{one}" if isinstance(one, str) and one.startswith(_FORMULA) else one for one in shown]
    csv.writer(text, lineterminator="\n").writerow(harmless)
    return text.getvalue().encode("utf-8", "replace")
