"""`headwater inspect`: reads one ResourceSync document or package of any kind and shows what is in it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import json_option, standard_input
from headwater.cli.shared_options import option
from headwater.cli.source_access import given_options, source_options
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.cli.inspect_views import View
    from headwater.spec.reader import Reader

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
    from headwater.cli.inspect_package import show_package, sniffed
    from headwater.cli.inspect_views import JsonView, LinesView, PeopleView
    from headwater.spec.reader import Reader

    with _opened(target, wanted) as (uri, headers, chunks), sniffed(uri or target, chunks) as (package, octets):
        shown = uri or target

        def make_view(reader: Reader) -> View:
            if as_json:
                return JsonView(shown, reader)
            return LinesView(reader) if as_lines else PeopleView(shown, reader, show_all=show_all)

        if package is not None:
            return show_package(package, shown, make_view, show_all=show_all)
        reader = Reader(base or uri, headers=headers)
        _show_document(reader, octets, make_view(reader), shown)
    return Exit.DONE


def _show_document(reader: Reader, chunks: Iterable[bytes], view: View, shown: str) -> None:
    """Show one document as it is read. Raises DocumentFault, when what came before was shown."""
    from headwater.spec.text_values import DocumentFault

    try:
        for chunk in chunks:
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
    from headwater.sync.connection import Unreachable
    from headwater.sync.lists.documents import sign_in_refused
    from headwater.sync.options import SyncOptions
    from headwater.sync.run import open_transport
    from headwater.transport.transport import Fetch

    with (
        open_transport(uri, SyncOptions(**given_options(wanted)), None) as transport,
        transport.stream(Fetch(uri, max_octets=_LARGEST_BODY)) as answer,
    ):
        if answer.failure is not None:
            raise Unreachable(answer.failure.text, where=uri)
        if refused := sign_in_refused(uri, answer):
            raise refused
        if not 200 <= answer.status < 300:
            raise Unreachable(f"the server answers with status {answer.status}", where=uri)
        yield answer.uri, answer.headers, answer
