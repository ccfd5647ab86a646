"""`headwater inspect`: reads one ResourceSync document or package of any kind and shows what is in it."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from headwater.spec.kinds import RULES
from headwater.spec.reader import Reader, Warned
from headwater.spec.records import Document, Entry, Link, written
from headwater.spec.text_values import DocumentFault
from headwater.sync.connection import Unreachable
from headwater.sync.options import SyncOptions

# views of a document: text for people, one JSON object, or a line of JSON an entry. A view takes entries as they come
# and keeps at most the few that it shows; docs/reference/outputs.md is its contract.

_SHOWN = 20
"""Entries that people see without `--all`."""


@dataclass
class _View:
    """One way to show a document: `entries` takes the next ones, `end` says what is known at its end, or at a fault.

    This one writes a line of JSON for an entry; everything else goes to standard error.
    """

    target: str
    show_all: bool
    reader: Reader

    def entries(self, entries: list[Entry]) -> None:
        for line in map(_encoded, entries):
            sys.stdout.buffer.write(line + b"\n")

    def end(self, fault: SourceFault | None) -> None:
        for one in self.reader.warnings:
            click.echo(_warning_line(one), err=True)


class _JsonView(_View):
    """One object. `entries` comes first, because the head is certain only at the end (AMB-04)."""

    package: Mapping[str, Any] | None = None
    """What is said of a package besides, at the end."""
    _lead = b""

    def entries(self, entries: list[Entry]) -> None:
        if not self._lead:
            begin_json()
            sys.stdout.buffer.write(b'{"entries":[')
            self._lead = b"\n"
        for line in map(_encoded, entries):
            sys.stdout.buffer.write(self._lead + line)
            self._lead = b",\n"

    def end(self, fault: SourceFault | None) -> None:
        self.entries([])
        reader = self.reader
        document = reader.document
        told = document.to_dict() if document else {}
        rest: dict[str, Any] = {
            "target": self.target,
            "kind": document.kind.value if document else None,
            "title": RULES[document.kind].title if document else None,
            "root": RULES[document.kind].root.value if document else None,
            "capability": document.capability if document else None,
            "version": reader.version,
            "attributes": {name: value for name, value in told.items() if name not in ("kind", "capability", "links")},
            "links": [link.to_dict() for link in document.links] if document else [],
            "entry_count": reader.entry_count,
            "skipped_count": reader.skipped_count,
            "octets": reader.octet_count,
            "warnings": reader.warnings,
            "complete": fault is None,
            **(self.package or {}),
        }
        if fault is not None:
            line = getattr(fault, "line", None)
            rest["fault"] = {"code": fault.code, "rule": fault.rule, "message": fault.what, "line": line}
        sys.stdout.buffer.write(b"\n],\n" + harmless_json(_encoder.encode(rest))[1:] + b"\n")


class _TextView(_View):
    """Head, entries and warnings as text; without `show_all` only the first entries."""

    _count = 0
    _shown_head: Document | None = None
    _lines: tuple[str, ...] = ()

    def entries(self, entries: list[Entry]) -> None:
        shown = entries if self.show_all else entries[: max(0, _SHOWN - self._count)]
        for number, entry in enumerate(shown, self._count + 1):
            facts = " · ".join(map(" ".join, _facts(entry, "loc")))
            self._lines += (f"{number:>6}  {printable(entry.loc)}", *((f"        {facts}",) if facts else ()))
            self._lines += tuple(f"        {printable(link.rel)} → {_target(link)}" for link in entry.links)
        self._count += len(shown)
        if self.show_all and self.reader.document is not None:
            self._say()

    def end(self, fault: SourceFault | None) -> None:
        reader = self.reader
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
        document = self.reader.document
        if document is not None and document != self._shown_head:
            self._shown_head = document
            capability = f' (capability "{printable(document.capability)}")' if document.capability else ""
            click.echo(f"{RULES[document.kind].title}{capability}: {printable(self.target)}")
            facts = _facts(document, "kind", "capability")
            if document.kind in _HISTORIES and document.until is None:
                facts.append(("open", "more changes are to come"))
            if self.reader.version:
                facts.append(("version", self.reader.version))
            facts += [(printable(link.rel), _target(link)) for link in document.links]
            for absent in document.absent:
                reason = f" · {absent.reason.value}" if absent.reason else ""
                facts.append(("absent", f"{printable(absent.uri)}{reason}"))
            for name, value in facts:
                click.echo(f"  {name:<12} {value}")
        if self._lines:
            click.echo("\n".join(self._lines))
            self._lines = ()


_encoder = msgspec.json.Encoder(enc_hook=written)


def _encoded(entry: Entry) -> bytes:
    has_extra = entry.extra or any(link.extra for link in entry.links)
    return harmless_json(_encoder.encode(entry.to_dict() if has_extra else entry))


def _warning_line(warned: Warned) -> str:
    times = f" ({warned.count:,} times)" if warned.count > 1 else ""
    example = f": {printable(warned.examples[0])}" if warned.examples else ""
    return f"warning: [{warned.rule}] {printable(warned.message)}{times}{example}"


def _facts(record: Entry | Link | Document, *said: str) -> list[tuple[str, str]]:
    """What a record states besides what is `said` already: names and values, as in JSON."""
    plain = record.to_dict()
    stated = {name: value for name, value in plain.items() if name not in ("extra", "links", "absent", *said)}
    return [(printable(name), printable(str(value))) for name, value in (stated | plain.get("extra", {})).items()]


def _target(link: Link) -> str:
    told = ", ".join(map(" ".join, _facts(link, "rel", "href")))
    return f"{printable(link.href)}{f' ({told})' if told else ''}"


_HISTORIES = frozenset(kind for kind, rules in RULES.items() if rules.capability in ("changelist", "changedump"))


# a package of a dump: its members, the entries of its manifest, and what is wrong with them


_SPARE = 256 << 20
"""Octets that are left free on the disk."""

_MOST_DAMAGED = 1_000
"""Damaged members that are told one by one: a hostile package may have hundreds of thousands."""


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
    if not head.startswith((LOCAL_SIGNATURE, END_SIGNATURE)) and not target.lower().endswith(".zip"):
        yield None, whole
        return
    with open(target, "rb") if os.path.isfile(target) else tempfile.TemporaryFile() as file:
        if not os.path.isfile(target):
            room = shutil.disk_usage(tempfile.gettempdir()).free - _SPARE
            for chunk in whole:
                room -= len(chunk)
                if room < 0:
                    what = "the package is larger than the room for temporary files"
                    advice = "Free space, or name a folder with more of it by TMPDIR."
                    raise StoreFault(what, where=tempfile.gettempdir(), advice=advice)
                file.write(chunk)
        yield file, ()


def _show_package(file: BinaryIO, view: _View) -> Exit:
    """Show a package. Gives FINDINGS when entries cannot be had from it as the manifest says.

    Raises BadPackage when it cannot be believed; where members are damaged, when all others were read.
    """
    package: PackageFile | None = None
    ended: BadPackage | None = None
    problems: list[PackageProblem] = []
    damaged: dict[str, BadPackage | None] = {}  # by their names; the fault of the first

    def read(member: ZipMember, check: Callable[[], object]) -> None:
        """Read a member. A damaged one is noted, and the next is read: all of them are to be known."""
        if member.name in damaged:
            return
        try:
            check()
        except BadPackage as fault:
            damaged[member.name] = None if damaged else fault
            if len(problems) < _MOST_DAMAGED:
                problems.append(PackageProblem(fault.rule or fault.code, fault.what, member.name, fails=True))

    try:
        package = read_package(file)
        view.reader = package.reader
        for packaged in package.entries():
            view.entries([packaged.entry])
            if packaged.member is not None:
                read(packaged.member, partial(package.verify, packaged))
        for member in package.undeclared():
            read(member, partial(package.directory.check, member))
    except BadPackage as fault:
        ended = fault
    found = ended or next(iter(damaged.values()), None)
    if ended is None and found is not None and len(damaged) > 1:
        what = f"{len(damaged):,} members are damaged; of the first of them: {found.what}"
        found = type(found)(what, rule=found.rule)
    problems += package.problems if package is not None else []
    if isinstance(view, _JsonView):
        view.package = {"package": None}
        if package is not None:
            members = [
                {
                    "name": member.name,
                    "octets": member.octets,
                    "packed_octets": member.packed,
                    "method": "deflated" if member.method == DEFLATED else "stored",
                    "crc": f"{member.crc:08x}",
                }
                for member in package.directory.members
            ]
            told = {"members": members, "problems": problems, "problems_left_out": package.untold}
            view.package = {"package": told}
        view.end(found)
    else:
        view.end(ended)
        if package is not None:
            _say_package(package, problems, is_text=isinstance(view, _TextView), show_all=view.show_all)
    if found is not None:
        found.where = view.target
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
_LARGEST_BODY = 1 << 40  # the reader's own limits come first; the transport only needs a number


@click.command(name="inspect")
@click.argument("target")
@json_option
@option("--ndjson", "Write a line of JSON for each entry; warnings go to standard error.", name="as_lines")
@option("--all", "Show all entries, not only 20.", name="show_all")
@option("--base URI", "The URI of the document, to resolve relative URIs of a file.")
@source_options
def command(target: str, as_json: bool, as_lines: bool, show_all: bool, base: str | None, **wanted: Any) -> Exit:
    """Show what is in the document or package at TARGET: a URL, a file, or - for standard input.

    For a document it shows kind, version, attributes, links and entries, with a warning and the rule for each fault. A
    document may be gzip, and of any length. For a package (a ZIP file of a dump) it shows the manifest and verifies
    every member.
    """
    if as_json and as_lines:
        raise click.UsageError("--json and --ndjson exclude each other")
    with _opened(target, wanted) as (uri, headers, chunks), _sniffed(uri or target, chunks) as (package, octets):
        shown = uri or target
        kind = _JsonView if as_json else _View if as_lines else _TextView
        view = kind(shown, show_all, Reader(base or uri, headers=headers))
        if package is not None:
            return _show_package(package, view)
        try:
            for chunk in octets:
                if entries := view.reader.feed(chunk):
                    view.entries(entries)
            if entries := view.reader.close():
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
    if target.lower().startswith(("http://", "https://")):
        with _fetched(target, wanted) as opened:
            yield opened
    elif target == "-":
        yield None, {}, iter(lambda: standard_input().read(_CHUNK), b"")
    else:
        try:
            file = open(target, "rb")  # noqa: SIM115  closed below; only the opening may fail in this way
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as cause:
            is_folder = isinstance(cause, IsADirectoryError)
            what = "this is a folder, not a file" if is_folder else "there is no such file"
            advice = "Name a file, - for standard input, or an http(s) URL."
            raise UsageFault(what, where=target, advice=advice) from cause
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
