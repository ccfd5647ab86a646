"""The views of `headwater inspect` on a document: text for people, one JSON object, or a line of JSON an entry.

A view takes entries as they come and keeps at most the few that it shows; docs/inspect.md is its contract.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from headwater.cli.output import begin_json, harmless_json, printable
from headwater.errors import SourceFault
from headwater.quantities import human_octets
from headwater.spec.extensions import CANONICAL, canonical_digest, dump_offer
from headwater.spec.kinds import DUMP, RULES
from headwater.spec.reader import Reader, Warned
from headwater.spec.records import Document, Entry, Link
from headwater.spec.times import Coarse, format_datetime

SHOWN = 20
"""Entries that people see without `--all`."""

_TIMES = ("at", "completed", "from_", "until")


class JsonView:
    """One object. `entries` comes first, because the head is certain only at the end (AMB-04)."""

    def __init__(self, target: str, reader: Reader) -> None:
        self._target = target
        self._reader = reader
        self._started = False
        self._any = False
        self.more: dict[str, Any] = {}
        """What is said besides, at the end."""

    def entries(self, entries: list[Entry]) -> None:
        self._start()
        for line in map(encoded, entries):
            _write(b",\n" if self._any else b"\n", line)
            self._any = True

    def end(self, fault: SourceFault | None) -> None:
        self._start()
        reader = self._reader
        document = reader.document
        rest: dict[str, Any] = {
            "target": self._target,
            "kind": document.kind.value if document else None,
            "title": RULES[document.kind].title if document else None,
            "root": RULES[document.kind].root.value if document else None,
            "capability": document.capability if document else None,
            "version": reader.version,
            "attributes": attributes(document) if document else {},
            "links": [_plain(link) for link in document.links] if document else [],
            "entry_count": reader.entry_count,
            "skipped_count": reader.skipped_count,
            "octets": reader.octet_count,
            "warnings": reader.warnings,
            "complete": fault is None,
            **self.more,
        }
        if fault is not None:
            rest["fault"] = {
                "code": fault.code,
                "rule": fault.rule,
                "message": fault.what,
                "line": getattr(fault, "line", None),
            }
        _write(b"\n],\n", harmless_json(_encoder.encode(rest))[1:], b"\n")

    def _start(self) -> None:
        if not self._started:
            self._started = True
            begin_json()
            _write(b'{"entries":[')


class LinesView:
    """One line of JSON an entry; everything else goes to standard error."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def entries(self, entries: list[Entry]) -> None:
        for line in map(encoded, entries):
            _write(line, b"\n")

    def end(self, fault: SourceFault | None) -> None:
        for one in self._reader.warnings:
            click.echo(f"warning: {_warning_line(one)}", err=True)


class PeopleView:
    """Head, entries and warnings as text; without `show_all` only the first entries."""

    def __init__(self, target: str, reader: Reader, *, show_all: bool) -> None:
        self._target = target
        self._reader = reader
        self._show_all = show_all
        self._count = 0
        self._shown_head: Document | None = None
        self._lines: list[str] = []

    def entries(self, entries: list[Entry]) -> None:
        shown = entries if self._show_all else entries[: max(0, SHOWN - self._count)]
        for entry in shown:
            self._count += 1
            self._lines += _entry_lines(self._count, entry)
        if self._show_all and self._reader.document is not None:
            self._say()

    def end(self, fault: SourceFault | None) -> None:
        reader = self._reader
        self._say()
        if reader.entry_count > self._count:
            click.echo(f"  … and {reader.entry_count - self._count:,} more; --all shows all")
        if fault is None or reader.entry_count or reader.document is not None:
            self._say_counts(fault)
        for one in reader.warnings:
            click.echo(f"warning: {_warning_line(one)}")

    def _say_counts(self, fault: SourceFault | None) -> None:
        reader = self._reader
        skipped = f", {reader.skipped_count:,} skipped" if reader.skipped_count else ""
        so_far = " before the fault" if fault else ""
        entries = "entry" if reader.entry_count == 1 else "entries"
        click.echo(f"{reader.entry_count:,} {entries}{so_far}{skipped}, {human_octets(reader.octet_count)}")

    def _say(self) -> None:
        document = self._reader.document
        if document is not None and document != self._shown_head:
            self._shown_head = document
            click.echo("\n".join(_head_lines(self._target, document, self._reader.version)))
        if self._lines:
            click.echo("\n".join(self._lines))
            self._lines = []


View = JsonView | LinesView | PeopleView
"""One way to show a document: `entries` takes the next ones, `end` says what is known at its end, or at a fault."""


def encoded(entry: Entry) -> bytes:
    """The entry as JSON, under the standard's attribute names."""
    if entry.extra or any(link.extra for link in entry.links):
        return harmless_json(_encoder.encode(_plain(entry)))
    return harmless_json(_encoder.encode(entry))


def attributes(document: Document) -> dict[str, Any]:
    """The root's `rs:md` but for its capability."""
    plain = _plain(document)
    for name in ("kind", "capability", "links"):
        plain.pop(name, None)
    return plain


def _written(value: object) -> str:
    """A time that was written coarser than a second, as it was written (RS-TIME-03)."""
    if not isinstance(value, Coarse):
        raise NotImplementedError(type(value).__name__)
    span = value.until - value
    if span <= dt.timedelta(minutes=1):
        return value.isoformat(timespec="minutes")[:-6] + "Z"
    if span <= dt.timedelta(days=1):
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return f"{value.year:04d}-{value.month:02d}" if span <= dt.timedelta(days=31) else f"{value.year:04d}"


_encoder = msgspec.json.Encoder(enc_hook=_written)


def _plain(record: Entry | Link | Document) -> dict[str, Any]:
    """The record as a dict of its set attributes; `extra` becomes an object."""
    plain: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_written)
    if record.extra:
        plain["extra"] = dict(record.extra)
    if not isinstance(record, Link) and record.links:
        plain["links"] = [_plain(link) for link in record.links]
    return plain


def _warning_line(warned: Warned) -> str:
    times = f" ({warned.count:,} times)" if warned.count > 1 else ""
    example = f": {printable(warned.examples[0])}" if warned.examples else ""
    return f"[{warned.rule}] {printable(warned.message)}{times}{example}"


def _write(*parts: bytes) -> None:
    sys.stdout.buffer.write(b"".join(parts))


def _moment(time: dt.datetime) -> str:
    return _written(time) if isinstance(time, Coarse) else format_datetime(time)


def _head_lines(target: str, document: Document, version: str | None) -> Iterator[str]:
    title = RULES[document.kind].title
    capability = f' (capability "{printable(document.capability)}")' if document.capability else ""
    yield f"{title}{capability}: {printable(target)}"
    for name in _TIMES:
        time = getattr(document, name)
        if time is not None:
            yield f"  {name.rstrip('_'):<12} {_moment(time)}"
    if document.kind in _HISTORIES and document.until is None:
        yield "  open         more changes are to come"
    if version:
        yield f"  version      {version}"
    for name, value in document.extra:
        yield f"  {printable(name)} {printable(value)}"
    offer = dump_offer(document)
    for link in document.links:
        if offer is None or link.rel != DUMP:
            yield f"  {printable(link.rel):<12} {printable(link.href)}"
    if offer is not None:
        most = offer.limits
        yield f"  on demand    {printable(offer.href)}"
        yield f"               {most.resources:,} resources, {human_octets(most.octets)}, {most.requests} at a time"
    for absent in document.absent:
        yield f"  absent       {printable(absent.uri)}{f' · {absent.reason.value}' if absent.reason else ''}"


_HISTORIES = frozenset(kind for kind, rules in RULES.items() if rules.capability in ("changelist", "changedump"))


def _entry_lines(number: int, entry: Entry) -> Iterator[str]:
    yield f"{number:>6}  {printable(entry.loc)}"
    facts = list(_facts(entry))
    if facts:
        yield f"        {' · '.join(facts)}"
    for digest in (entry.hash or "").split():
        yield f"        {printable(digest)}"
    for link in entry.links:
        yield f"        {printable(link.rel)} → {printable(link.href)}{_link_facts(link)}"


def _facts(entry: Entry) -> Iterator[str]:
    if entry.capability:
        yield printable(entry.capability)
    if entry.change is not None:
        yield entry.change.value
    if entry.datetime is not None:
        yield _moment(entry.datetime)
    for name in _TIMES:
        time = getattr(entry, name)
        if time is not None:
            yield f"{name.rstrip('_')} {_moment(time)}"
    if entry.lastmod is not None:
        yield f"modified {_moment(entry.lastmod)}"
    if entry.length is not None:
        yield human_octets(entry.length)
    yield from map(printable, _stated(entry.type, entry.encoding, entry.path, entry.changefreq))
    if (digest := canonical_digest(entry.extra)) is not None:
        yield f"canonical sha-256:{digest}"
    for name, value in entry.extra:
        if name == CANONICAL and digest is not None:
            continue
        yield f"{printable(name)}={printable(value)}"


def _link_facts(link: Link) -> str:
    facts = list(map(printable, _stated(link.type, link.encoding, link.path, link.hash, link.profile)))
    if link.pri is not None:
        facts.append(f"pri {link.pri}")
    if link.length is not None:
        facts.append(human_octets(link.length))
    if link.modified is not None:
        facts.append(f"modified {_moment(link.modified)}")
    return f" ({', '.join(facts)})" if facts else ""


def _stated(*values: str | None) -> Iterable[str]:
    return (value for value in values if value)
