"""`headwater inspect`: reads one ResourceSync document or package of any kind and shows what is in it."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import click
import msgspec

from headwater.cli.output import begin_json, harmless_json, json_option, printable, standard_input
from headwater.cli.shared_options import given_options, option, source_options
from headwater.errors import Exit, SourceFault, StoreFault, UsageFault
from headwater.packages.faults import BadPackage
from headwater.packages.package import PackageFile, PackageProblem, read_package
from headwater.packages.zip_format import DEFLATED, END_SIGNATURE, LOCAL_SIGNATURE
from headwater.packages.zip_reader import ZipMember
from headwater.quantities import human_octets
from headwater.spec.extensions import CANONICAL, canonical_digest, dump_offer
from headwater.spec.kinds import DUMP, RULES
from headwater.spec.reader import Reader, Warned
from headwater.spec.records import Document, Entry, Link
from headwater.spec.text_values import DocumentFault
from headwater.spec.times import Coarse, format_datetime
from headwater.sync.connection import Unreachable
from headwater.sync.options import SyncOptions

# views of a document: text for people, one JSON object, or a line of JSON an entry. A view takes entries as they come
# and keeps at most the few that it shows; docs/inspect.md is its contract.

_SHOWN = 20
"""Entries that people see without `--all`."""

_TIMES = ("at", "completed", "from_", "until")


class _JsonView:
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
        for line in map(_encoded, entries):
            sys.stdout.buffer.write((b",\n" if self._any else b"\n") + line)
            self._any = True

    def end(self, fault: SourceFault | None) -> None:
        self._start()
        reader = self._reader
        document = reader.document
        told = _plain(document) if document else {}
        rest: dict[str, Any] = {
            "target": self._target,
            "kind": document.kind.value if document else None,
            "title": RULES[document.kind].title if document else None,
            "root": RULES[document.kind].root.value if document else None,
            "capability": document.capability if document else None,
            "version": reader.version,
            "attributes": {name: value for name, value in told.items() if name not in ("kind", "capability", "links")},
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
        sys.stdout.buffer.write(b"\n],\n" + harmless_json(_encoder.encode(rest))[1:] + b"\n")

    def _start(self) -> None:
        if not self._started:
            self._started = True
            begin_json()
            sys.stdout.buffer.write(b'{"entries":[')


class _LinesView:
    """One line of JSON an entry; everything else goes to standard error."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def entries(self, entries: list[Entry]) -> None:
        for line in map(_encoded, entries):
            sys.stdout.buffer.write(line + b"\n")

    def end(self, fault: SourceFault | None) -> None:
        for one in self._reader.warnings:
            click.echo(_warning_line(one), err=True)


class _PeopleView:
    """Head, entries and warnings as text; without `show_all` only the first entries."""

    def __init__(self, target: str, reader: Reader, *, show_all: bool) -> None:
        self._target = target
        self._reader = reader
        self._show_all = show_all
        self._count = 0
        self._shown_head: Document | None = None
        self._lines: list[str] = []

    def entries(self, entries: list[Entry]) -> None:
        shown = entries if self._show_all else entries[: max(0, _SHOWN - self._count)]
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
            skipped = f", {reader.skipped_count:,} skipped" if reader.skipped_count else ""
            entries = f"{'entry' if reader.entry_count == 1 else 'entries'}{' before the fault' if fault else ''}"
            click.echo(f"{reader.entry_count:,} {entries}{skipped}, {human_octets(reader.octet_count)}")
        for one in reader.warnings:
            click.echo(_warning_line(one))

    def _say(self) -> None:
        document = self._reader.document
        if document is not None and document != self._shown_head:
            self._shown_head = document
            click.echo("\n".join(_head_lines(self._target, document, self._reader.version)))
        if self._lines:
            click.echo("\n".join(self._lines))
            self._lines = []


_View = _JsonView | _LinesView | _PeopleView
"""One way to show a document: `entries` takes the next ones, `end` says what is known at its end, or at a fault."""


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
    plain: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_written)
    if record.extra:
        plain["extra"] = dict(record.extra)
    if not isinstance(record, Link) and record.links:
        plain["links"] = [_plain(link) for link in record.links]
    return plain


def _encoded(entry: Entry) -> bytes:
    has_extra = entry.extra or any(link.extra for link in entry.links)
    return harmless_json(_encoder.encode(_plain(entry) if has_extra else entry))


def _warning_line(warned: Warned) -> str:
    times = f" ({warned.count:,} times)" if warned.count > 1 else ""
    example = f": {printable(warned.examples[0])}" if warned.examples else ""
    return f"warning: [{warned.rule}] {printable(warned.message)}{times}{example}"


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
        told = [printable(one) for one in (link.type, link.encoding, link.path, link.hash, link.profile) if one]
        told += [f"pri {link.pri}"] if link.pri is not None else []
        told += [human_octets(link.length)] if link.length is not None else []
        told += [f"modified {_moment(link.modified)}"] if link.modified is not None else []
        more = f" ({', '.join(told)})" if told else ""
        yield f"        {printable(link.rel)} → {printable(link.href)}{more}"


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
    yield from map(printable, filter(None, (entry.type, entry.encoding, entry.path, entry.changefreq)))
    if (digest := canonical_digest(entry.extra)) is not None:
        yield f"canonical sha-256:{digest}"
    for name, value in entry.extra:
        if name == CANONICAL and digest is not None:
            continue
        yield f"{printable(name)}={printable(value)}"


# a package of a dump: its members, the entries of its manifest, and what is wrong with them

_SIGNATURES = (LOCAL_SIGNATURE, END_SIGNATURE)

_SPARE = 256 << 20
"""Octets that are left free on the disk."""

_MOST_DAMAGED = 1_000
"""Damaged members that are told one by one: a hostile package may have hundreds of thousands."""

_MakeView = Callable[[Reader], _View]


@contextmanager
def _sniffed(target: str, chunks: Iterable[bytes]) -> Iterator[tuple[BinaryIO | None, Iterable[bytes]]]:
    """A file with the whole package where `chunks` is one (by its first octets, or by the target's name), else None;
    and the chunks, of which nothing is lost. A package that is no local file is kept in a temporary one: raises
    StoreFault before it fills the disk, for it may never end."""
    source = iter(chunks)
    head = b""
    while len(head) < len(LOCAL_SIGNATURE) and (chunk := next(source, b"")):
        head += chunk
    whole = chain((head,), source)
    if not head.startswith(_SIGNATURES) and not target.lower().endswith(".zip"):
        yield None, whole
        return
    with open(target, "rb") if os.path.isfile(target) else tempfile.TemporaryFile() as file:
        if not os.path.isfile(target):
            room = shutil.disk_usage(tempfile.gettempdir()).free - _SPARE
            for chunk in whole:
                room -= len(chunk)
                if room < 0:
                    raise StoreFault(
                        "the package is larger than the room for temporary files",
                        where=tempfile.gettempdir(),
                        advice="Free space, or name a folder with more of it by TMPDIR.",
                    )
                file.write(chunk)
        yield file, ()


class _MemberCheck:
    """Reads the members of a package. A damaged one is noted, and the next is read: all of them are to be known."""

    def __init__(self) -> None:
        self._damaged: set[str] = set()
        self._first: BadPackage | None = None
        self.problems: list[PackageProblem] = []
        """The damaged members, at most `_MOST_DAMAGED` of them."""

    def read(self, member: ZipMember, read: Callable[[], object]) -> None:
        if member.name in self._damaged:
            return
        try:
            read()
        except BadPackage as fault:
            self._first = self._first or fault
            self._damaged.add(member.name)
            if len(self.problems) < _MOST_DAMAGED:
                self.problems.append(PackageProblem(fault.rule or fault.code, fault.what, member.name, fails=True))

    @property
    def fault(self) -> BadPackage | None:
        """Where members are damaged the first of the faults, with their number."""
        count = len(self._damaged)
        if self._first is None or count == 1:
            return self._first
        what = f"{count:,} members are damaged; of the first of them: {self._first.what}"
        return type(self._first)(what, rule=self._first.rule)


def _show_package(file: BinaryIO, target: str, make_view: _MakeView, *, show_all: bool) -> Exit:
    """Show a package. Gives FINDINGS when entries cannot be had from it as the manifest says.

    Raises BadPackage when it cannot be believed; where members are damaged, when all others were read.
    """
    view = make_view(Reader())
    package: PackageFile | None = None
    ended: BadPackage | None = None
    members = _MemberCheck()
    try:
        package = read_package(file)
        view = make_view(package.reader)
        for packaged in package.entries():
            view.entries([packaged.entry])
            if packaged.member is not None:
                members.read(packaged.member, partial(package.verify, packaged))
        for member in package.undeclared():
            members.read(member, partial(package.directory.check, member))
    except BadPackage as fault:
        ended = fault
    problems = [*members.problems, *package.problems] if package is not None else []
    found = ended or members.fault
    if isinstance(view, _JsonView):
        view.more = {"package": None}
        if package is not None:
            members_told = [
                {
                    "name": member.name,
                    "octets": member.octets,
                    "packed_octets": member.packed,
                    "method": "deflated" if member.method == DEFLATED else "stored",
                    "crc": f"{member.crc:08x}",
                }
                for member in package.directory.members
            ]
            told = {"members": members_told, "problems": problems, "problems_left_out": package.untold}
            view.more = {"package": told}
        view.end(found)
    else:
        view.end(ended)
        if package is not None:
            _say_package(package, problems, is_text=isinstance(view, _PeopleView), show_all=show_all)
    if found is not None:
        found.where = target
        sys.stdout.flush()
        raise found
    return Exit.FINDINGS if any(problem.fails for problem in problems) else Exit.DONE


def _say_package(package: PackageFile, problems: list[PackageProblem], *, is_text: bool, show_all: bool) -> None:
    """The members, and what is wrong with them, problems first; where entries are lines for a program, that alone."""
    members = package.directory.members
    if is_text:
        packed = sum(member.packed for member in members)
        click.echo(f"{len(members):,} members, {human_octets(packed)} packed")
        for one in members if show_all else members[:_SHOWN]:
            packed_to = f", deflated to {human_octets(one.packed)}" if one.method == DEFLATED else ""
            click.echo(f"        {printable(one.name)} · {human_octets(one.octets)}{packed_to}")
        if len(members) > _SHOWN and not show_all:
            click.echo(f"  … and {len(members) - _SHOWN:,} more; --all shows all")
    told = sorted(problems, key=lambda problem: not problem.fails)
    for problem in told if show_all else told[:_SHOWN]:
        message, subject = printable(problem.message), printable(problem.subject)
        of = "" if subject in message else f": {subject}"
        click.echo(f"{'problem' if problem.fails else 'warning'}: [{problem.rule}] {message}{of}", err=not is_text)
    is_cut = len(told) > _SHOWN and not show_all
    if more := (len(told) - _SHOWN if is_cut else 0) + package.untold:
        rest = "; --all shows all" if is_cut else ""
        click.echo(f"  … and {more:,} more problems and warnings{rest}", err=not is_text)


# the command

_CHUNK = 1 << 17
_WEB = ("http://", "https://")
_LARGEST_BODY = 1 << 40  # the reader's own limits come first; the transport only needs a number


@click.command(name="inspect")
@click.argument("target")
@json_option
@option("--ndjson", "Write one line of JSON for each entry; warnings go to standard error.", name="as_lines")
@option("--all", "Show every entry, not only the first 20.", name="show_all")
@option("--base URI", "The document's own URI, to resolve relative ones in a file.")
@source_options
def command(target: str, as_json: bool, as_lines: bool, show_all: bool, base: str | None, **wanted: Any) -> Exit:
    """Read the document or package at TARGET (a URL, a file, or - for standard input) and show what is in it.

    It shows kind, version, attributes, links and entries, and warns of the faults that the reader could read past, with
    the rule's id. Documents may be gzip. Entries are not held in memory: a list of a million entries is no problem.
    Of a package (the ZIP files of dumps) it shows the manifest and the members, and verifies each by its entry.
    """
    if as_json and as_lines:
        raise click.UsageError("--json and --ndjson exclude each other")
    with _opened(target, wanted) as (uri, headers, chunks), _sniffed(uri or target, chunks) as (package, octets):
        shown = uri or target

        def make_view(reader: Reader) -> _View:
            if as_json:
                return _JsonView(shown, reader)
            return _LinesView(reader) if as_lines else _PeopleView(shown, reader, show_all=show_all)

        if package is not None:
            return _show_package(package, shown, make_view, show_all=show_all)
        reader = Reader(base or uri, headers=headers)
        view = make_view(reader)
        try:
            for chunk in octets:
                if entries := reader.feed(chunk):
                    view.entries(entries)
            if entries := reader.close():
                view.entries(entries)
        except DocumentFault as fault:
            fault.locate(shown)
            view.end(fault)
            sys.stdout.flush()
            raise
        view.end(None)
    return Exit.DONE


@contextmanager
def _opened(target: str, wanted: dict[str, Any]) -> Iterator[tuple[str | None, dict[str, str], Iterable[bytes]]]:
    """The document's own URI, if it has one, the headers of the answer, and its octets as they come."""
    if target.lower().startswith(_WEB):
        with _fetched(target, wanted) as opened:
            yield opened
    elif target == "-":
        yield None, {}, iter(lambda: standard_input().read(_CHUNK), b"")
    else:
        try:
            file = open(target, "rb")  # noqa: SIM115  closed below; only the opening may fail in this way
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as cause:
            is_folder = isinstance(cause, IsADirectoryError)
            raise UsageFault(
                "this is a folder, not a file" if is_folder else "there is no such file",
                where=target,
                advice="Name a file, - for standard input, or an http(s) URL.",
            ) from cause
        with file:
            yield None, {}, iter(lambda: file.read(_CHUNK), b"")


@contextmanager
def _fetched(uri: str, wanted: dict[str, Any]) -> Iterator[tuple[str, dict[str, str], Iterable[bytes]]]:
    # Imported here: a file is read without an HTTP client.
    from headwater.sync.lists.documents import sign_in_refused
    from headwater.sync.run import open_transport
    from headwater.transport.fetch import Fetch

    with (
        open_transport(uri, SyncOptions(**given_options(wanted)), None) as transport,
        transport.stream(Fetch(uri, max_octets=_LARGEST_BODY)) as (answer, chunks),
    ):
        if answer.failure is not None:
            raise Unreachable(answer.failure.text, where=uri)
        if refused := sign_in_refused(uri, answer):
            raise refused
        if not 200 <= answer.status < 300:
            raise Unreachable(f"the server answers with status {answer.status}", where=uri)
        yield answer.uri, answer.headers, chunks
