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
from headwater.cli.output import human_octets, printable
from headwater.errors import Exit, StoreFault
from headwater.packages.faults import BadPackage
from headwater.packages.package import PackageFile, PackageProblem, read_package
from headwater.packages.zip_directory import ZipMember
from headwater.packages.zip_format import DEFLATED, END_SIGNATURE, LOCAL_SIGNATURE
from headwater.spec.reader import Reader

SIGNATURES = (LOCAL_SIGNATURE, END_SIGNATURE)

_SPARE = 256 << 20
"""Octets that are left free on the disk."""

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


def show_package(file: BinaryIO, target: str, make_view: MakeView, *, show_all: bool) -> Exit:
    """Show a package. Gives FINDINGS when entries cannot be had from it as the manifest says. Raises BadPackage."""
    view = make_view(Reader())
    package: PackageFile | None = None
    try:
        package = read_package(file)
        view = make_view(package.reader)
        for packaged in package.entries():
            view.entries([packaged.entry])
            package.verify(packaged)
        for member in package.undeclared():
            package.directory.check(member)
    except BadPackage as fault:
        fault.where = target
        _end(view, package, fault, show_all=show_all)
        sys.stdout.flush()
        raise
    _end(view, package, None, show_all=show_all)
    return Exit.FINDINGS if any(problem.fails for problem in package.problems) else Exit.DONE


def _end(view: View, package: PackageFile | None, fault: BadPackage | None, *, show_all: bool) -> None:
    if isinstance(view, JsonView):
        view.more = {"package": _plain(package)}
        view.end(fault)
        return
    view.end(fault)
    if package is None:
        return
    is_text = isinstance(view, PeopleView)
    if is_text:
        _say_members(package, show_all=show_all)
    for problem in package.problems:
        click.echo(_problem_line(problem), err=not is_text)


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
    return f"{word}: [{problem.rule}] {printable(problem.message)}: {printable(problem.subject)}"


def _plain(package: PackageFile | None) -> dict[str, Any] | None:
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
    problems = [
        {"rule": one.rule, "message": one.message, "subject": one.subject, "fails": one.fails}
        for one in package.problems
    ]
    return {"members": members, "problems": problems}
