"""`headwater inspect` of a package of a dump: its members, the entries of its manifest, and what is wrong with them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO

import click

from headwater.cli.inspect_views import SHOWN, JsonView, PeopleView, View
from headwater.cli.output import printable
from headwater.errors import Exit, StoreFault
from headwater.packages.faults import BadPackage
from headwater.packages.package import PackagedEntry, PackageFile, PackageProblem, read_package
from headwater.packages.zip_format import DEFLATED, END_SIGNATURE, LOCAL_SIGNATURE
from headwater.packages.zip_reader import ZipMember
from headwater.quantities import human_octets
from headwater.spec.reader import Reader

SIGNATURES = (LOCAL_SIGNATURE, END_SIGNATURE)

_SPARE = 256 << 20
"""Octets that are left free on the disk."""

_MOST_DAMAGED = 1_000
"""Damaged members that are told one by one: a hostile package may have hundreds of thousands."""

MakeView = Callable[[Reader], View]


@contextmanager
def sniffed(target: str, chunks: Iterable[bytes]) -> Iterator[tuple[BinaryIO | None, Iterable[bytes]]]:
    """A file with the whole package where `chunks` is one (by its first octets, or by the target's name), else None;
    and the chunks, of which nothing is lost. A package that is no local file is kept in a temporary one."""
    source = iter(chunks)
    head = b""
    while len(head) < len(LOCAL_SIGNATURE) and (chunk := next(source, b"")):
        head += chunk
    whole = chain((head,), source)
    if not head.startswith(SIGNATURES) and not target.lower().endswith(".zip"):
        yield None, whole
        return
    if os.path.isfile(target):
        with open(target, "rb") as local:
            yield local, ()
        return
    with tempfile.TemporaryFile() as file:
        _keep(whole, file)
        yield file, ()


def _keep(chunks: Iterable[bytes], file: BinaryIO) -> None:
    """Write a package into a temporary file. Raises StoreFault before it fills the disk: it may never end."""
    room = shutil.disk_usage(tempfile.gettempdir()).free - _SPARE
    for chunk in chunks:
        room -= len(chunk)
        if room < 0:
            raise StoreFault(
                "the package is larger than the room for temporary files",
                where=tempfile.gettempdir(),
                advice="Free space, or name a folder with more of it by TMPDIR.",
            )
        file.write(chunk)


class _MemberCheck:
    """Reads the members of a package. A damaged one is noted, and the next is read: all of them are to be known."""

    def __init__(self) -> None:
        self._damaged: set[str] = set()
        self._first: BadPackage | None = None
        self.problems: list[PackageProblem] = []
        """The damaged members, at most `_MOST_DAMAGED` of them."""

    def verify(self, package: PackageFile, packaged: PackagedEntry) -> None:
        """Read the member of an entry, if it has one, and compare it with what the entry says."""
        if packaged.member is not None:
            self._read(packaged.member, lambda: package.verify(packaged))

    def check(self, package: PackageFile, member: ZipMember) -> None:
        """Read a member that no entry names."""
        self._read(member, lambda: package.directory.check(member))

    def _read(self, member: ZipMember, read: Callable[[], object]) -> None:
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


def show_package(file: BinaryIO, target: str, make_view: MakeView, *, show_all: bool) -> Exit:
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
            members.verify(package, packaged)
        for member in package.undeclared():
            members.check(package, member)
    except BadPackage as fault:
        ended = fault
    problems = [*members.problems, *package.problems] if package is not None else []
    found = ended or members.fault
    if isinstance(view, JsonView):
        view.more = {"package": _plain(package, problems)}
        view.end(found)
    else:
        view.end(ended)
        if package is not None:
            _say_package(package, problems, is_text=isinstance(view, PeopleView), show_all=show_all)
    if found is not None:
        found.where = target
        sys.stdout.flush()
        raise found
    return Exit.FINDINGS if any(problem.fails for problem in problems) else Exit.DONE


def _say_package(package: PackageFile, problems: list[PackageProblem], *, is_text: bool, show_all: bool) -> None:
    """The members, and what is wrong with them, problems first; where entries are lines for a program, that alone."""
    if is_text:
        _say_members(package, show_all=show_all)
    told = sorted(problems, key=lambda problem: not problem.fails)
    for problem in told if show_all else told[:SHOWN]:
        click.echo(_problem_line(problem), err=not is_text)
    if len(told) > SHOWN and not show_all:
        more = len(told) - SHOWN + package.untold
        click.echo(f"  … and {more:,} more problems and warnings; --all shows all", err=not is_text)
    elif package.untold:
        click.echo(f"  … and {package.untold:,} more problems and warnings", err=not is_text)


def _say_members(package: PackageFile, *, show_all: bool) -> None:
    members = package.directory.members
    packed = sum(member.record.packed for member in members)
    click.echo(f"{len(members):,} members, {human_octets(packed)} packed")
    for member in members if show_all else members[:SHOWN]:
        click.echo(f"        {_member_line(member)}")
    if len(members) > SHOWN and not show_all:
        click.echo(f"  … and {len(members) - SHOWN:,} more; --all shows all")


def _member_line(member: ZipMember) -> str:
    deflated = f", deflated to {human_octets(member.record.packed)}" if member.record.method == DEFLATED else ""
    return f"{printable(member.name)} · {human_octets(member.octets)}{deflated}"


def _problem_line(problem: PackageProblem) -> str:
    word = "problem" if problem.fails else "warning"
    message, subject = printable(problem.message), printable(problem.subject)
    return f"{word}: [{problem.rule}] {message}" + ("" if subject in message else f": {subject}")


def _plain(package: PackageFile | None, problems: list[PackageProblem]) -> dict[str, Any] | None:
    if package is None:
        return None
    members = [
        {
            "name": member.name,
            "octets": member.octets,
            "packed_octets": member.record.packed,
            "method": "deflated" if member.record.method == DEFLATED else "stored",
            "crc": f"{member.record.crc:08x}",
        }
        for member in package.directory.members
    ]
    return {"members": members, "problems": problems, "problems_left_out": package.untold}
