"""The kinds of sinks: a command, a webhook, a file of JSON lines, an index of OpenSearch, a table of an SQL database.

`opened` makes the one that a configuration names; other kinds are entry points of the group `headwater.sinks`. Events
that come again after a kill have the same numbers: index and table keep the number and take none twice, the file looks
at its end, a command and a webhook keep the last number themselves.
"""

from __future__ import annotations

import contextlib
import hmac
import importlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import entry_points
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from headwater.aggregator.configuration import SinkConfig
from headwater.aggregator.events import Quarantine, event_lines
from headwater.aggregator.sinks import Failure, Sink, SinkFault
from headwater.aggregator.store import Event
from headwater.catalog.catalog_url import ClusterPlace, access_of, credentials_from, place_of
from headwater.errors import UsageFault
from headwater.storage.durable import sync_descriptor, sync_folder
from headwater.transport.fetch import FailureKind, Fetch, TransportOptions
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json
from headwater.version import __version__

GROUP: Final = "headwater.sinks"
"""The group of entry points: each is called with a `SinkConfig`, and makes a `Sink`."""

MISCONFIGURED: Final = "HW-AGG-11"

_TAIL: Final = 300  # characters of what a sink answers that are told
_GRACE_SECONDS: Final = 1.0  # for a command, once the service ends
_POLL_SECONDS: Final = 0.2


def _timeout(config: SinkConfig, default: float) -> float:
    text = config.options.get("timeout", default)
    try:
        return float(text)
    except ValueError as cause:
        raise UsageFault(f"timeout is a number of seconds, not {text!r:.100}", code=MISCONFIGURED) from cause


def run_command(
    words: Sequence[str],
    octets: bytes,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    stopped: threading.Event | None = None,
) -> None:
    """Run a command with these octets on its standard input. Raises SinkFault where it does not end with 0.

    After so many seconds, and soon after `stopped` is set, it is killed, with all that it has started.
    """
    try:
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
        ) as process:
            try:
                errors = _said(process, octets, time.monotonic() + seconds, stopped or threading.Event())
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired as cause:
        raise SinkFault(f"the command took longer than {seconds:.0f} s", where=words[0]) from cause
    except OSError as cause:
        what = f"the command cannot be run: {cause.strerror}"
        raise SinkFault(what, where=words[0], failure=Failure.UNAVAILABLE) from cause
    if process.returncode:
        said = errors.decode("utf-8", "replace").strip()[-_TAIL:]
        how = f"exit status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise SinkFault(f"the command ended with {how}{said and f': {said}'}", where=words[0])


def _said(process: subprocess.Popen[bytes], octets: bytes, until: float, stopped: threading.Event) -> bytes:
    """What a command writes to standard error. Raises TimeoutExpired."""
    left: bytes | None = octets
    while True:
        try:
            return process.communicate(left, timeout=_POLL_SECONDS)[1]
        except subprocess.TimeoutExpired:
            left, now = None, time.monotonic()  # what is not yet written goes on
            if stopped.is_set():
                until = min(until, now + _GRACE_SECONDS)
            if now >= until:
                raise


class CommandSink(Sink):
    """Runs a command for each batch, which gets the events as JSON lines on its standard input; exit status 0: taken.

    The words are split as a shell would; no shell reads them. What it writes to standard error is told when it fails.
    """

    stopped: threading.Event | None = None
    """Ends a command that is at work."""

    def __init__(self, config: SinkConfig, _state: Path) -> None:
        self._timeout = _timeout(config, 300.0)
        try:
            self._words = shlex.split(config.command or "")
        except ValueError as cause:
            raise UsageFault(f"command: {cause}", code=MISCONFIGURED) from cause
        if not self._words:
            raise UsageFault("command has no words", code=MISCONFIGURED)

    def apply(self, events: Sequence[Event]) -> None:
        """Run the command."""
        run_command(self._words, event_lines(events), self._timeout, stopped=self.stopped)


_PATIENT: Final = frozenset({408, 425, 429, 502, 503, 504})
_FINAL: Final = frozenset({400, 409, 410, 413, 414, 415, 422})
"""Answers to what was sent; others of 4xx are about who sent it, or where to, and may be mended by the operator."""


def post_signed(url: str, body: bytes, secret: str | None, timeout_seconds: float = 30.0) -> None:
    """POST JSON to an address of the configuration, once; redirects are not followed. Raises SinkFault without a 2xx.

    With a secret, `Webhook-Signature` is `sha256=` and the HMAC-SHA-256, in hex, of the value of
    `Webhook-Timestamp` (seconds since 1970), a full stop, and the body.
    """
    stamp = str(int(time.time()))
    headers = [("Content-Type", "application/json"), ("Webhook-Timestamp", stamp)]
    if secret:
        told = hmac.new(secret.encode(), f"{stamp}.".encode() + body, sha256).hexdigest()
        headers.append(("Webhook-Signature", f"sha256={told}"))
    options = TransportOptions(
        concurrency=1,
        retries=0,
        connect_timeout_seconds=timeout_seconds,
        stall_timeout_seconds=max(1, int(timeout_seconds)),
        deadline_seconds=2 * timeout_seconds,
        longest_wait_seconds=0.0,
        user_agent=f"headwater/{__version__} (service)",
    )
    fetch = Fetch(
        url,
        tuple(headers),
        method="POST",
        body=body,
        max_octets=1 << 20,
        objection=lambda _uri: "redirects are not followed",
    )
    with Transport(options) as transport:
        answer = transport.one(fetch)
    if answer.ok:
        return
    wait, said = answer.retry_after_seconds, answer.body[:_TAIL].decode(errors="replace").strip()
    what, failure = f"the answer is {answer.status}{said and f': {said}'}", Failure.FAILED
    if answer.failure is not None and not answer.status:
        what = f"no answer: {answer.failure.text}"
        if answer.failure.kind not in (FailureKind.TIMEOUT, FailureKind.STALLED):  # of which an event may be the cause
            failure = Failure.UNAVAILABLE
    elif answer.status in _FINAL:
        failure = Failure.REFUSED
    elif answer.status in _PATIENT:
        failure = Failure.UNAVAILABLE
    raise SinkFault(what, failure=failure, wait_seconds=wait)


class WebhookSink(Sink):
    """Sends each batch by POST: `{"sink": …, "first": number, "last": number, "events": […]}`, signed with the secret.

    A 2xx acknowledges. What is answered with 400, 409, 410, 413, 414, 415 or 422 is refused for good; `Retry-After` is
    obeyed.
    """

    def __init__(self, config: SinkConfig, _state: Path) -> None:
        self._name, self._url, self._secret = config.name, config.url or "", config.secret
        self._timeout = _timeout(config, 30.0)
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            what = "url: a webhook has an http or https address, without a user name"  # which may have a password
            raise UsageFault(what, code=MISCONFIGURED)

    def apply(self, events: Sequence[Event]) -> None:
        """Send the batch."""
        values = {"sink": self._name, "first": events[0].number, "last": events[-1].number}
        body = msgspec.json.encode(values | {"events": [one.to_dict() for one in events]})
        post_signed(self._url, body, self._secret, self._timeout)


_TAIL_OCTETS: Final = 1 << 20


class FileSink(Sink):
    """Appends JSON lines to a file, on the disk before they count as taken; another program may rename it at any time.

    A line that a kill has left half is removed; lines of the batch that are there already are not written again.
    """

    def __init__(self, config: SinkConfig, _state: Path) -> None:
        self._path = Path(config.path or "")

    def apply(self, events: Sequence[Event]) -> None:
        """Append the lines."""
        try:
            is_new = not self._path.exists()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with FileIO(descriptor, "r+") as file:
                end, last = _whole_lines(file)
                if events[0].number <= last <= events[-1].number:
                    events = [one for one in events if one.number > last]
                file.truncate(end)
                file.seek(end)
                left = memoryview(event_lines(events))
                while left:
                    left = left[file.write(left) :]
                sync_descriptor(descriptor)
            if is_new:
                sync_folder(self._path.parent)
        except OSError as cause:
            what = f"the file cannot be written: {cause.strerror}"
            raise SinkFault(what, where=str(self._path), failure=Failure.UNAVAILABLE) from cause


class _Line(msgspec.Struct, frozen=True):
    number: int


def _whole_lines(file: FileIO) -> tuple[int, int]:
    """Where the last whole line of a file ends, and the number of its event; 0: there is none."""
    size = file.seek(0, os.SEEK_END)
    start, tail = size, b""
    while start and tail.count(b"\n") < 2:
        take = min(start, _TAIL_OCTETS)
        start -= take
        file.seek(start)
        tail = file.read(take) + tail
    end = tail.rfind(b"\n") + 1
    try:
        return start + end, from_json(tail[tail.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end], _Line).number
    except msgspec.MsgspecError:  # there is none, or the file was another program's before
        return start + end, 0


_CONFLICT: Final = 409  # a later state is there
_NO_INDEX: Final = 404  # with an error; the deletion of what is not there has none
_TEXT_OCTETS: Final = 1 << 20


class IndexSink(Sink):
    """Keeps a document for each resource in an index of OpenSearch or Elasticsearch, under one identifier for good.

    The number of the event is the document's external version: an event that comes twice, or late, changes nothing.
    `url` is as that of a catalog (`opensearch://user@host:9200/INDEX`), credentials as there; `index` names another
    index. With `content = "text"` a document also has the beginning of the file as `content`.
    """

    def __init__(self, config: SinkConfig, state: Path) -> None:
        place = place_of(config.url or "")
        if not isinstance(place, ClusterPlace):
            raise UsageFault("a sink of kind opensearch needs the URL of a cluster", code=MISCONFIGURED)
        from headwater.storage.cluster import Cluster

        self._index = config.index or place.prefix
        self._with_text = config.options.get("content") == "text"
        self._state = state
        access = access_of(place, credentials_from(os.environ, "INDEX"))
        self._cluster = Cluster(access, patience_seconds=_timeout(config, 20.0), request_seconds=20.0)

    def apply(self, events: Sequence[Event]) -> dict[int, str]:
        """Write the documents; returns those that the index does not take, for its mapping or their content."""
        from headwater.storage.cluster import ClusterFault, passes, slices

        refused: dict[int, str] = {}
        left = iter(events)
        for part in slices(self._operation(event) for event in events):
            batch = list(islice(left, len(part)))
            try:
                results = self._cluster.results(f"/{self._index}/_bulk", part)
            except ClusterFault as fault:
                raise SinkFault(fault.what, where=fault.where, failure=Failure.UNAVAILABLE) from fault
            for event, (status, reason) in zip(batch, results, strict=False):
                if reason is None or status == _CONFLICT:
                    continue
                said = f"{reason.type}: {reason.reason}"[:_TAIL]
                if passes(status, reason) or status in (401, 403, _NO_INDEX):
                    raise SinkFault(said, where=self._index, failure=Failure.UNAVAILABLE)
                refused[event.number] = said
        return refused

    def _operation(self, event: Event) -> bytes:
        told = "\0".join((event.source, event.set_name, event.path)).encode()
        action = {"_id": sha256(told).hexdigest(), "version": event.number, "version_type": "external"}
        if event.action == "deleted":
            return msgspec.json.encode({"delete": action}) + b"\n"
        values = event.to_dict()
        if self._with_text:
            with contextlib.suppress(OSError), (self._state / event.source / event.path).open("rb") as file:
                values["content"] = file.read(_TEXT_OCTETS).decode("utf-8", "replace")
        return msgspec.json.encode({"index": action}) + b"\n" + msgspec.json.encode(values) + b"\n"

    def close(self) -> None:
        """Give up the connections."""
        self._cluster.close()


_KEY: Final = ("source", "set_name", "path")
_VALUES: Final = ("uri", "origin", "hash", "length", "type", "lastmod", "links", "number")
_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class SqlSink(Sink):
    """Keeps a row for each resource in a table, which it makes when it is not there; deletions delete rows.

    `path` is a file of SQLite; else `module` in the options names a DB-API module (PEP 249) such as `psycopg`, and
    `url` is what its `connect` takes. The database must know `ON CONFLICT … DO UPDATE` (SQLite, PostgreSQL).
    """

    def __init__(self, config: SinkConfig, _state: Path) -> None:
        table, name = config.table or "headwater", config.options.get("module", "sqlite3")
        if not all(part.isidentifier() for part in table.split(".")):
            raise UsageFault(f"no name of a table: {table!r:.100}", code=MISCONFIGURED)
        try:
            self._module: Any = importlib.import_module(name)
        except ImportError as cause:
            raise UsageFault(f"the module {name} is not installed", code=MISCONFIGURED) from cause
        self._place = config.url or config.path
        if not self._place:
            raise UsageFault("a sink of kind sql needs path, or url", code=MISCONFIGURED)
        self._connection: Any = None
        mark = _PLACEHOLDERS.get(getattr(self._module, "paramstyle", "qmark"), "?")
        self._make = (
            f"CREATE TABLE IF NOT EXISTS {table}(source TEXT NOT NULL, set_name TEXT NOT NULL, path TEXT NOT NULL,"
            " uri TEXT NOT NULL, origin TEXT, hash TEXT, length BIGINT, type TEXT, lastmod TEXT, links TEXT,"
            f" number BIGINT NOT NULL, PRIMARY KEY({', '.join(_KEY)}))"
        )
        self._put = (
            f"INSERT INTO {table}({', '.join(_KEY + _VALUES)}) VALUES ({', '.join([mark] * len(_KEY + _VALUES))})"  # noqa: S608
            f" ON CONFLICT({', '.join(_KEY)}) DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in _VALUES)}"
            f" WHERE {table}.number < excluded.number"
        )
        where = " AND ".join(f"{one} = {mark}" for one in _KEY)
        self._remove = f"DELETE FROM {table} WHERE {where} AND number < {mark}"  # noqa: S608

    def apply(self, events: Sequence[Event]) -> None:
        """Write the rows in one transaction."""
        try:
            if self._connection is None:
                self._connection = self._module.connect(self._place)
                self._connection.cursor().execute(self._make)
                self._connection.commit()
            cursor = self._connection.cursor()
            for event in events:
                key = event.source, event.set_name, event.path
                if event.action == "deleted":
                    cursor.execute(self._remove, (*key, event.number))
                else:
                    cursor.execute(self._put, _row(event))
            self._connection.commit()
        except self._module.Error as cause:
            self.close()
            passing = isinstance(cause, self._module.OperationalError | self._module.InterfaceError)
            failure = Failure.UNAVAILABLE if passing else Failure.FAILED
            raise SinkFault(f"the database says: {str(cause)[:_TAIL]}", failure=failure) from cause

    def close(self) -> None:
        """Give up the connection, and what is not committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._module.Error):
                connection.close()


def _row(event: Event) -> tuple[str | int | None, ...]:
    values: Mapping[str, Any] = event.to_dict() | {"set_name": event.set_name}
    links = msgspec.json.encode(values["links"]).decode() if values["links"] else None
    return tuple(links if one == "links" else values[one] for one in _KEY + _VALUES)


_KINDS: Final[Mapping[str, tuple[Callable[[SinkConfig, Path], Sink], tuple[str, ...]]]] = {
    "command": (CommandSink, ("command",)),
    "webhook": (WebhookSink, ("url",)),
    "file": (FileSink, ("path",)),
    "opensearch": (IndexSink, ("url",)),
    "sql": (SqlSink, ()),
}
"""Each kind, and the fields that it cannot do without."""


def opened(config: SinkConfig, state: Path, stopped: threading.Event | None = None) -> Sink:
    """The sink of this configuration; `state`: the folder of the copies; `stopped` ends it. Raises UsageFault.

    None of our kinds connects to anything, or writes, before it gets events.
    """
    try:
        Quarantine.of(config.quarantine)
        if (kind := _KINDS.get(config.kind)) is not None:
            if needed := [name for name in kind[1] if not getattr(config, name)]:
                raise UsageFault(f"a sink of kind {config.kind} needs {needed[0]}", code=MISCONFIGURED)
            sink = kind[0](config, state)
            if isinstance(sink, CommandSink):
                sink.stopped = stopped
            return sink
        for other in entry_points(group=GROUP, name=config.kind):
            made: Sink = other.load()(config)
            return made
        advice = f"Kinds are {', '.join(_KINDS)}, and the entry points `{GROUP}` of installed packages."
        raise UsageFault(f"no kind of sink: {config.kind!r:.100}", code=MISCONFIGURED, advice=advice)
    except UsageFault as fault:
        fault.where = fault.where or config.name
        raise
