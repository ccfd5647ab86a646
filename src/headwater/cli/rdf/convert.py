"""`headwater rdf convert`: a dataset in another syntax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from headwater.cli.output import counted, json_document
from headwater.cli.rdf.streams import (
    STANDARD,
    SYNTAX_NAMES,
    deliver,
    file_type,
    output_option,
    rdf_inputs,
    reads_rdf,
    scratch_folder,
)
from headwater.errors import Exit, UsageFault


@click.command("convert", short_help="Write a dataset in another syntax.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=file_type)
@click.option(
    "--to", type=click.Choice(SYNTAX_NAMES), help="The syntax to write.  [default: by the suffix of --output]"
)
@output_option
@reads_rdf
def convert(
    files: Sequence[str], to: str | None, output: str, as_json: bool, syntax: str | None, base: str | None
) -> Exit:
    """Write the dataset of all FILEs in another syntax: the same octets for the same dataset.

    What was written is read again and compared. What a syntax cannot say is refused: named graphs in most, some
    predicates in RDF/XML. Blank nodes get the labels of RDFC-1.0.
    """
    from headwater.rdf.syntaxes import NAMES, syntax_of
    from headwater.rdf.writing import write_syntax

    if as_json and output == STANDARD:
        raise UsageFault("standard output cannot have the result and a summary", advice="Give --output with --json.")
    wanted = NAMES[to] if to is not None else syntax_of(None, output)
    if wanted is None:
        raise UsageFault("nothing says in which syntax to write", advice="Name it with --to.")
    with scratch_folder() as scratch:
        inputs = rdf_inputs(files, scratch, syntax, base)
        found = write_syntax(inputs, scratch / "result", wanted, scratch=scratch)
        deliver(scratch / "result", output)
    if as_json:
        json_document({"syntax": wanted.name, "media_type": wanted.media_type, **asdict(found)})
    else:
        click.echo(f"{counted(found.quads, 'statement')} in {wanted.title}", err=True)
    return Exit.DONE
