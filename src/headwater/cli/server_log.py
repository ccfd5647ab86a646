"""The log of a server on standard error, as text or as lines of JSON: requests, events, notices, faults.

Every line of JSON has the keys of `LogLine`, whatever it is about (docs/reference/outputs.md).
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from headwater.cli.output import counted, harmless_json, printable
from headwater.cli.progress_output import Reminders
from headwater.errors import HeadwaterError, StoreFault
from headwater.progress import Notice, Progress

if TYPE_CHECKING:
    from headwater.http.responses import AccessRecord
    from headwater.ingest.push.submission import Account
    from headwater.source.set_health import Publication


LOOK_SECONDS = 1.0
_CLUSTER = "HW-CLU-"  # what comes again with every request that is tried again
_encode = msgspec.json.Encoder().encode


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON. `code` is an error's or a notice's, `set` the set that it is about; either may be null."""

    time: str
    level: str
    event: str
    code: str | None = None
    set: str | None = None
    message: str
    fields: Mapping[str, object]


class ServerLog:
    """Says what a server does, a line at a time, from any thread.

    Written without `logging`, which takes as long for a line as the server for the answer. Without a `stream` a line
    goes to what is standard error at that moment: above the bars as long as there are any.
    """

    def __init__(self, stream: TextIO | LogFile | None = None, *, as_json: bool) -> None:
        self._stream = stream
        self._as_json = as_json
        self._has_time = stream is not None or not _is_journal()
        self._lock = threading.Lock()
        self._reminders = Reminders()

    def served(self, request: AccessRecord) -> None:
        """One answered request."""
        if self._as_json:
            message = f"{request.method} {request.target} {request.status}"
            self._tell("info", "request", message, _fields(request))
            return
        cut = "" if request.complete else " cut short"
        package = "" if request.asked is None else f" {request.asked}: {counted(request.resources or 0, 'resource')}"
        agent = "" if request.agent is None else f' "{request.agent}"'
        self._line(
            f'{request.client} "{request.method} {printable(request.target)}" {request.status} '
            f"{request.octets} {request.seconds * 1000:.1f}ms{cut}{printable(package + agent)}"
        )

    def event(self, event: str, text: str, **fields: object) -> None:
        """Something that happened to the server."""
        self._tell("info", event, text, fields)

    def published(self, news: Publication) -> None:
        """A set is there for the first time, or has changed."""
        first, changes = f"{counted(news.resources, 'resource')} published", counted(news.changes, "change")
        text = f"{news.name}: {first if news.is_first else f'published {changes}'}"
        fields = {"resources": news.resources, "changes": news.changes, "first": news.is_first}
        self._tell("info", "published", text, fields, set=news.name)

    def progress(self, event: Progress | Notice) -> None:
        """What the source reports: notices; progress is for bars, not for logs."""
        if isinstance(event, Notice):
            count: int | None = 0
            if event.rule.startswith(_CLUSTER):  # it says the same of whatever was under way, as that a node is away
                with self._lock:
                    count = self._reminders.due((event.rule, event.message))
            if count is None:
                return
            more = f"; {count:,} times since the last notice" if count else ""
            where = f" ({event.where})" if event.where else ""
            text = f"{event.message}{more}{where} [{event.rule}]"
            self._tell("warning", "notice", text, {"where": event.where}, code=event.rule, set=event.set_name)

    def fault(self, fault: HeadwaterError | OSError) -> None:
        """Something that went wrong while a request was answered."""
        code = fault.code if isinstance(fault, HeadwaterError) else "HW-SRV-02"
        text = str(fault) if f"[{code}]" in str(fault) else f"{fault} [{code}]"
        self._tell("error", "fault", f"fault: {text}", {}, code=code)

    def announced(self, name: str, account: Account) -> None:
        """Lines that were announced to a set and refused."""
        if account.rejected:
            text = f"{name}: {account.words} [{account.code}]"
            fields = {**account.by_outcome, "reasons": account.reasons}
            self._tell("warning", "refused", text, fields, code=account.code, set=name)

    def _tell(self, level: str, event: str, text: str, fields: Mapping[str, object], **of: str | None) -> None:
        """Write a line; `of` has `code` and `set`, as far as there are any."""
        if not self._as_json:
            self._line(printable(text))
            return
        line = LogLine(time=_now(), level=level, event=event, message=text, fields=fields, **of)
        self._write(harmless_json(_encode(line)).decode() + "\n")

    def _line(self, text: str) -> None:
        self._write(f"{_now()} {text}\n" if self._has_time else f"{text}\n")

    def _write(self, line: str) -> None:
        with self._lock:
            stream = self._stream or sys.stderr
            try:
                stream.write(line)
                stream.flush()
            except (OSError, ValueError):  # nobody reads it, or there is no room for it: that stops no answer
                return


def _fields(request: AccessRecord) -> dict[str, Any]:
    told = msgspec.structs.asdict(request) | {"seconds": round(request.seconds, 6)}
    return {name: one for name, one in told.items() if one is not None}


_PACKAGES: Final = "packages.ndjson"
_PACKAGES_OCTETS: Final = 1 << 18


def note_package(state: Path, request: AccessRecord) -> None:
    """Add a package on demand to the last ones of which a state folder tells. Where that cannot be, it is lost."""
    path, name = state / _PACKAGES, request.target.split("/")[-2]
    told = {"time": _now(), "set": name, **_fields(request)}
    del told["client"]
    with suppress(OSError), path.open("ab") as file:
        file.write(_encode(told) + b"\n")
        if file.tell() > _PACKAGES_OCTETS:
            path.replace(path.with_suffix(".old"))


def last_packages(state: Path, most: int) -> Iterator[dict[str, Any]]:
    """The last packages of a source, the newest first."""
    lines = list[bytes]()
    for path in (state / f"{_PACKAGES.partition('.')[0]}.old", state / _PACKAGES):
        with suppress(OSError):
            lines += path.read_bytes().splitlines()
    for line in lines[: -most - 1 : -1]:
        with suppress(msgspec.DecodeError):  # it was cut off
            yield msgspec.json.decode(line)


class LogFile:
    """A log file that is opened anew within a second after it was renamed or removed, by each process that writes."""

    def __init__(self, path: str) -> None:
        self._path, self._looked_at = path, 0.0
        try:
            self._open()
        except OSError as cause:
            raise StoreFault(f"the log cannot be written: {cause.strerror}", where=path) from cause

    def write(self, line: str) -> None:
        """Append a line. Raises OSError."""
        if time.monotonic() > self._looked_at + LOOK_SECONDS:
            is_there = os.path.exists(self._path)
            if not is_there or not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno())):
                before = self._file
                self._open()
                before.close()
            self._looked_at = time.monotonic()
        self._file.write(line)

    def flush(self) -> None:
        """Let it be read."""
        self._file.flush()

    def _open(self) -> None:
        self._file = open(self._path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        self._looked_at = time.monotonic()


def open_log(form: str | None, path: str | None = None) -> ServerLog:
    """The log on standard error, or in a file, as text unless `form` is `json`. Raises StoreFault."""
    # uvicorn's own lines say nothing that ours do not, and its tracebacks of cut connections alarm for nothing.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return ServerLog(None if path is None else LogFile(path), as_json=form == "json")


def _is_journal() -> bool:
    """Whether systemd's journal reads standard error, and adds the time of each line itself (systemd.exec(5))."""
    with suppress(OSError):
        found = os.fstat(2)
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
