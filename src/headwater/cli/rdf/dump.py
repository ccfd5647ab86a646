"""`headwater rdf dump`: the RDF documents of a copy as one dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import counted, json_document, json_option
from headwater.cli.rdf.streams import (
    STANDARD,
    deliver,
    genid_prefix,
    names_blank_nodes,
    output_option,
    scratch_folder,
)
from headwater.cli.shared_options import dest_argument
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.copies.copy_state import CopyStateReader
    from headwater.rdf.syntaxes import RdfInput

_PAGE = 1_000


@click.command("dump", short_help="Write the RDF of a copy as one N-Quads file.")
@dest_argument
@click.option("--set", "names", multiple=True, metavar="NAME", help="Of this set of the copy (may be repeated).")
@output_option
@names_blank_nodes("canonical")
@json_option
def dump(dest: Path, names: tuple[str, ...], output: str, as_json: bool, **options: Any) -> Exit:
    """Write what all RDF documents of the copy DEST say as canonical N-Quads; changes nothing.

    A document is one by its media type, as the source states it, or else by the suffix of its name. Relative IRIs are
    resolved against its URI, and its blank nodes are its own. Resources of other kinds, and patches, are passed over.
    """
    from headwater.copies.copy_state import CopyStateReader
    from headwater.rdf.canonical import BlankNodes, RdfOptions, write_canonical

    if as_json and output == STANDARD:
        raise UsageFault("standard output cannot have the result and a summary", advice="Give --output with --json.")
    treated = BlankNodes(options["blank_nodes"])
    genid = genid_prefix(treated.value, options["genid"])
    state = CopyStateReader(dest)
    try:
        inputs = list(_documents(state, dest, names))
    finally:
        state.close()
    with scratch_folder() as scratch:
        found = write_canonical(
            inputs, scratch / "result", scratch=scratch, durable=False, options=RdfOptions(treated, genid)
        )
        deliver(scratch / "result", output)
    if as_json:
        json_document({"documents": len(inputs), **asdict(found)})
    else:
        click.echo(f"{counted(found.quads, 'statement')} of {counted(len(inputs), 'document')}", err=True)
    return Exit.DONE


def _documents(state: CopyStateReader, dest: Path, names: tuple[str, ...]) -> Iterator[RdfInput]:
    """The RDF documents of sets of a copy, of all without names. Raises UsageFault for a set that there is not."""
    from headwater.copies.copy_state import copied_sets, files_after
    from headwater.rdf.syntaxes import RdfInput, syntax_of

    with state.read() as t:
        sets = copied_sets(t)
        if unknown := set(names) - {one.name for one in sets}:
            raise UsageFault(
                f"the copy has no set {min(unknown)!r}",
                where=str(dest),
                advice="`headwater status DEST` shows its sets.",
            )
        for one in sets:
            after = ""
            while (not names or one.name in names) and (files := files_after(t, one.id, after, _PAGE)):
                after = files[-1].uri
                for file in files:
                    path = os.fsdecode(file.path)
                    syntax = syntax_of(file.type, path)
                    if syntax is not None:
                        yield RdfInput(dest / path, syntax, base=file.uri, name=file.uri)
