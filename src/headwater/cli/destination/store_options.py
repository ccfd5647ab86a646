"""The options of commands that know triplestores which follow RDF datasets, and what these commands say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.output import counted, printable

if TYPE_CHECKING:
    from headwater.sync.reports import DatasetReport

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--store",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="Keep the RDF dataset of each set in an embedded triplestore of its own below DIR.",
    ),
    click.option(
        "--sparql", metavar="URL", help="Keep RDF datasets in graphs of the SPARQL endpoint with this update address."
    ),
    click.option("--sparql-query", metavar="URL", help="The address for queries, if it is another."),
    click.option(
        "--sparql-user",
        envvar="HEADWATER_SPARQL_USER",
        metavar="NAME:PASSWORD",
        help="User name and password (Basic), sent to the endpoint's origin only; better by the variable or ~/.netrc.",
    ),
    click.option(
        "--dataset",
        metavar="URI",
        help="Which file is the RDF dataset (URI or file name), if the source does not tell.",
    ),
)


def store_options(command: Command) -> Command:
    """Give a command the options of triplestores."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_sparql_user(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of `SyncOptions`, with what the user of the endpoint comes to."""
    user = given.pop("sparql_user", None)
    if user and given.get("sparql"):
        from headwater.sync.connection import basic

        name, _, password = user.partition(":")
        given["sparql_authorization"] = basic(name, password)
    return given


def show_dataset(dataset: DatasetReport) -> None:
    """Tell what became of the stores of a dataset."""
    for store in dataset.stores:
        name = printable(store.store)
        if store.fault is not None:
            click.echo(f"  store {name}: failed: {printable(store.fault)}", err=True)
        elif store.done == "loaded":
            click.echo(f"  store {name}: loaded with {counted(store.added, 'statement')}")
        elif store.done == "patched":
            click.echo(f"  store {name}: {store.removed:,} removed, {store.added:,} added")
