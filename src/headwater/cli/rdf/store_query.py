"""`headwater rdf query`: a SPARQL query of the embedded store that follows a dataset."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headwater.cli.output import printable, standard_input
from headwater.errors import Exit, UsageFault

_FORMS = ("tsv", "csv", "json", "xml")
_SHOWN = 10


@click.command("query", short_help="Query the store that follows a dataset.")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("query", metavar="QUERY")
@click.option(
    "--as",
    "form",
    type=click.Choice(_FORMS),
    default="tsv",
    show_default=True,
    help="How rows and answers are written; triples (CONSTRUCT, DESCRIBE) are N-Triples.",
)
@click.option("--positions", is_flag=True, help="With the graph of positions, which is none of the dataset.")
def query(store: Path, query: str, form: str, positions: bool) -> Exit:
    """Print what the SPARQL query QUERY (or @FILE; - for standard input) finds in STORE.

    STORE is what `headwater sync --store DIR` keeps for a set: DIR/SET. The command only reads, and sees the state
    after the last change. The graph in which `sync` notes how far the store is does not count as part of the dataset;
    a query sees it if it names it with FROM, or with --positions.

    Exit statuses: 0 done; 2 usage, or no query; 6 fault of the store.
    """
    from headwater.triplestores.embedded_store import EmbeddedStore

    folder = store / "oxigraph" if (store / "oxigraph").is_dir() else store
    if not (folder / "CURRENT").exists():
        sets = ", ".join(sorted(one.parent.name for one in store.glob("*/oxigraph"))[:_SHOWN])
        raise UsageFault(
            "there is no store in this folder" + (f", but there are those of sets: {printable(sets)}" if sets else ""),
            where=str(store),
            advice="Name DIR/SET, of the DIR that `headwater sync --store DIR` keeps.",
        )
    opened = EmbeddedStore(folder, read_only=True)
    try:
        found = opened.query(_text(query), form, with_positions=positions)
    finally:
        opened.close()
    sys.stdout.buffer.write(found)
    if not found.endswith(b"\n"):
        click.echo()
    return Exit.DONE


def _text(query: str) -> str:
    """The query itself, from wherever it is."""
    try:
        if query == "-":
            return standard_input().read().decode()
        return Path(query[1:]).read_text("utf-8") if query.startswith("@") else query
    except (OSError, UnicodeDecodeError) as cause:
        raise UsageFault(f"the query cannot be read: {cause}", advice="Name a file of UTF-8 text.") from cause
