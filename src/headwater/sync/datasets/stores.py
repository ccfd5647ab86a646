"""The stores that follow a dataset: made from what the user asks for, each with the place of its kept states."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import IO, Final

import msgspec

from headwater.copy_state import FOLDER
from headwater.errors import StoreFault
from headwater.sync.connection import netrc_authorization
from headwater.sync.options import SyncOptions
from headwater.triplestores.embedded_store import EmbeddedStore, load_store
from headwater.triplestores.sparql_endpoint import EndpointAddress, SparqlEndpoint
from headwater.triplestores.sparql_store import SparqlStore
from headwater.triplestores.statements import StorePosition, StoreState

_OXIGRAPH: Final = "oxigraph"
MOST_IN_TRANSACTION: Final = 200_000
"""Changes that the embedded store takes in one transaction: they are held in memory."""


class EmbeddedFollower:
    """The embedded store of one dataset; nothing is open between two calls."""

    most_changes = MOST_IN_TRANSACTION
    """More changes than these are loaded as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def state(self) -> StoreState:
        """The position; a transaction is never under way. Raises StoreFault where no run has loaded what is there."""
        if not self.folder.is_dir():
            return StoreState(None)
        with closing(EmbeddedStore(self.folder, read_only=True)) as store:
            position, is_empty = store.position, store.is_empty
        if position is None and not is_empty:
            raise StoreFault("the store holds what no `sync` has loaded", code="HW-TRI-02", where=str(self.folder))
        return StoreState(position)

    def leave(self, dataset: str) -> None:
        """Nothing: the store is loaded anew where its dataset has another URI."""

    def load(self, dataset: Path, position: StorePosition) -> None:
        """Hold what is in a file, and nothing else."""
        load_store(self.folder, dataset, position)

    def apply(self, removals: Iterable[bytes], additions: Iterable[bytes], position: StorePosition) -> None:
        """Remove and add statements and move the position, in one transaction."""
        with closing(EmbeddedStore(self.folder)) as store:
            store.apply(removals, additions, position)

    def write_statements(self, target: IO[bytes]) -> None:
        """Write all statements as N-Quads, in the forms of the store."""
        with closing(EmbeddedStore(self.folder, read_only=True)) as store:
            store.write_statements(target)

    def count(self) -> int:
        """How many statements of the dataset are there."""
        with closing(EmbeddedStore(self.folder, read_only=True)) as store:
            return store.count

    def close(self) -> None:
        """Nothing is open between two calls."""


FollowingStore = EmbeddedFollower | SparqlStore
"""A store that follows a dataset."""


class WantedStore(msgspec.Struct, frozen=True):
    """A store that the user asks for: what it is called, and the folder of its kept states."""

    name: str
    kept: Path
    opened: Callable[[str], FollowingStore]
    """Makes the store of the dataset with this URI."""


def wanted_stores(options: SyncOptions, set_name: str, root: Path) -> list[WantedStore]:
    """The stores that are to follow the dataset of one set."""
    stores = []
    if options.store is not None:
        folder = Path(os.path.abspath(options.store)) / set_name
        stores.append(WantedStore(str(folder), folder, lambda _: EmbeddedFollower(folder / _OXIGRAPH)))
    if options.sparql is not None:
        update = options.sparql
        key = hashlib.sha256(update.encode()).hexdigest()[:16]
        kept = root / FOLDER / "datasets" / set_name / key

        def opened(dataset: str) -> SparqlStore:
            return SparqlStore(SparqlEndpoint(endpoint_address(options)), dataset, update)

        stores.append(WantedStore(update, kept, opened))
    return stores


def endpoint_address(options: SyncOptions) -> EndpointAddress:
    """The endpoint that the options name. Raises UsageFault."""
    assert options.sparql is not None
    authorization = options.sparql_authorization
    if authorization is None and options.netrc:
        authorization = netrc_authorization(options.sparql)
    return EndpointAddress(
        update=options.sparql, query=options.sparql_query, authorization=authorization, authorities=options.ca
    )
