"""The file of `sync --changes`: a line for each resource, as CSV or JSON lines."""

from __future__ import annotations

import csv
import datetime as dt
import io
import os
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from headwater.cli.output import (
    encoded_json,
    printable,
    see_outside,
)
from headwater.errors import StoreFault

if TYPE_CHECKING:
    from headwater.progress import Done


COLUMNS: Final = ("time", "action", "uri", "path", "octets", "reason", "set", "kept", "old_hash")
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
        kept = (done.kept, done.old_hash)
        values = (time, done.action, done.uri, done.path, done.octets, done.reason, done.set_name, *kept)
        self._append(_csv_line(values) if self._is_csv else encoded_json(dict(zip(COLUMNS, values, strict=True))))

    def _append(self, line: bytes) -> None:
        try:
            with self._lock:
                file = self._pipe or self._path.open("ab")
                is_begun = file.tell() > 0 if file.seekable() else self._pipe is not None
                self._pipe = None if file.seekable() else file
                with nullcontext() if self._pipe else file:
                    file.write((_csv_line(COLUMNS) if self._is_csv and not is_begun else b"") + line)
                    file.flush()
        except OSError as cause:
            raise StoreFault(f"cannot be written: {cause.strerror}", code="HW-CLI-04", where=str(self._path)) from cause

    def close(self) -> None:
        """Close a pipe, whose reader may have gone."""
        if self._pipe is not None:
            with suppress(OSError):
                self._pipe.close()


def _csv_line(values: tuple[str | int | None, ...]) -> bytes:
    text = io.StringIO()
    shown = [printable(one) if isinstance(one, str) else one for one in values]
    harmless = [f"'{one}" if isinstance(one, str) and one.startswith(_FORMULA) else one for one in shown]
    csv.writer(text, lineterminator="\n").writerow(harmless)
    return text.getvalue().encode("utf-8", "replace")
