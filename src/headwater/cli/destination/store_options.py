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
    """Give a command the options of triplestores that it keeps current."""
    return _with_stores(
        command,
        "Keep the RDF dataset of each set in an embedded triplestore of its own below DIR.",
        "Keep RDF datasets in graphs of the SPARQL endpoint with this update address.",
    )


def compared_store_options(command: Command) -> Command:
    """Give a command the options of triplestores that it looks into."""
    return _with_stores(
        command,
        "Compare the embedded triplestores below DIR, too, that `sync --store` keeps.",
        "Compare the graphs of the SPARQL endpoint with this update address, too, that `sync --sparql` keeps.",
    )


def _with_stores(command: Command, of_store: str, of_endpoint: str) -> Command:
    stores = click.option("--store", type=click.Path(file_okay=False), metavar="DIR", help=of_store)
    endpoint = click.option("--sparql", metavar="URL", help=of_endpoint)
    for option in reversed((stores, endpoint, *_OPTIONS)):
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
