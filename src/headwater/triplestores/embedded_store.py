"""The embedded store of one dataset: Oxigraph in a folder, loaded aside, patched in one transaction with its position.

How far it has got stands in a named graph of its own, `POSITION_GRAPH`, written in the transaction of what it tells of.

Oxigraph keeps "01" of an integer as "1": to it both are one, to the dataset two (NQUD-A7).
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

import pyoxigraph

from headwater.errors import StoreFault, UsageFault
from headwater.rdf import BadRdf
from headwater.rdf.statements import OctetStream
from headwater.storage.durable import sync_folder
from headwater.triplestores.sparql_updates import (
    POSITION_GRAPH,
    StorePosition,
    StoreState,
    as_data,
    position_of,
    statements_of,
    with_blank_nodes,
    with_iris,
)

_CHUNK: Final = 4 << 20
_QUADS: Final = 10_000
_NEW: Final = ".new"
_OLD: Final = ".old"
_GRAPH: Final = pyoxigraph.NamedNode(POSITION_GRAPH)
_NO_WORDS = re.compile(
    r"""(?sx) (?P<quote>\"{3}|'{3}) (?:[^\\]|\\.)*? (?P=quote)   # literals
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    | <[^<>"{}|^`\\\s]*> | \#[^\n]*                               # IRIs, and comments
    """
)
_GRAPH_WORD = re.compile(r"(?i)\bgraph\b")
_OWN_DATASET = re.compile(r"(?i)(?<![?$\w:-])from(?:\s+named)?\s*(?:<|[\w.-]*:)")
_FORMAT: Final = pyoxigraph.RdfFormat.N_QUADS


@contextmanager
def _faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError, SyntaxError) as cause:
        raise StoreFault(f"the store: {str(cause)[:300]}", code="HW-RDS-01", where=str(folder)) from cause


class EmbeddedStore:
    """The store of one dataset in a folder. Nothing is open between two calls.

    Raises StoreFault where there is no store that can be opened.
    """

    most_changes = 200_000  # more changes than these are loaded as a whole: those of a transaction are held in memory

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def _opened(self, *, to_write: bool = False) -> Iterator[pyoxigraph.Store]:
        with _faults(self._folder):
            if not self._folder.is_dir():
                raise FileNotFoundError("there is no store")
            yield pyoxigraph.Store(str(self._folder)) if to_write else pyoxigraph.Store.read_only(str(self._folder))

    def close(self) -> None:
        """Nothing is open between two calls."""

    def leave(self, dataset: str) -> None:
        """Nothing: the store is loaded anew where its dataset has another URI."""

    def state(self) -> StoreState:
        """The position; a transaction is never under way. Raises StoreFault where no run has loaded what is there."""
        if not self._folder.is_dir():
            return StoreState(None)
        with self._opened() as store:
            found = store.quads_for_pattern(None, None, None, _GRAPH)
            position = position_of({q.predicate.value: getattr(q.object, "value", str(q.object)) for q in found})
            if position is None and next(iter(store), None) is not None:
                where = str(self._folder)
                raise StoreFault("the store has content that no `sync` loaded", code="HW-TRI-02", where=where)
        return StoreState(position)

    def count(self) -> int:
        """How many statements the dataset has here."""
        with self._opened() as store:
            return len(store) - sum(1 for _ in store.quads_for_pattern(None, None, None, _GRAPH))

    def load(self, dataset: Path, position: StorePosition) -> None:
        """Hold what is in a file of canonical N-Quads, and nothing else.

        It is loaded aside and takes the place of the one before by a rename: killed before that, the one before is
        there; between the two renames there is none.
        """
        folder = self._folder
        aside, before = folder.with_name(folder.name + _NEW), folder.with_name(folder.name + _OLD)
        with _faults(folder):
            for left in (aside, before):
                shutil.rmtree(left, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            store = pyoxigraph.Store(str(aside))
            with dataset.open("rb") as stream:
                store.bulk_load(cast(IO[bytes], OctetStream(_pieces_with_iris(stream))), _FORMAT)
            store.extend(pyoxigraph.parse(b"".join(statements_of(position)), _FORMAT))
            store.flush()
            del store
            if folder.exists():
                folder.rename(before)
            aside.rename(folder)
            sync_folder(folder.parent)
            shutil.rmtree(before, ignore_errors=True)

    def apply(self, removals: Iterable[bytes], additions: Iterable[bytes], position: StorePosition) -> None:
        """Remove and add statements and move the position, all of it or nothing; durable when this returns.

        Statements are canonical N-Quads, with or without the end of a line.
        """
        update = b"".join(
            (
                f"DELETE WHERE {{ GRAPH <{POSITION_GRAPH}> {{ ?s ?p ?o }} }};\n".encode(),
                as_data("DELETE DATA", removals),
                as_data("INSERT DATA", additions),
                as_data("INSERT DATA", statements_of(position)),
            )
        )
        with self._opened(to_write=True) as store:
            try:
                store.update(update.decode())
                store.flush()
            finally:
                del store  # a fault that somebody keeps does not hold the folder

    def write_statements(self, target: IO[bytes]) -> None:
        """Write all statements of the dataset as N-Quads, in no order, literals in the forms of the store."""
        with self._opened() as store:
            target.writelines(map(with_blank_nodes, _lines_of(store)))

    def query(self, text: str, form: str, *, with_positions: bool = False) -> bytes:
        """The result of a query in a media type or file extension. Raises UsageFault.

        The graph of positions is there for a query that has it in its own dataset (`FROM`), or `with_positions`.
        """
        words = _NO_WORDS.sub(lambda found: "<>" if found[0].startswith("<") else " ", text)
        sees_all = with_positions or _GRAPH_WORD.search(words) is None or _OWN_DATASET.search(words) is not None
        with self._opened() as store:
            try:
                # none but the dataset's, unless a query can see none, or names those that it sees
                graphs = None if sees_all else [graph for graph in store.named_graphs() if graph != _GRAPH]
                found = store.query(text, named_graphs=graphs)
                if isinstance(found, pyoxigraph.QueryTriples):
                    return found.serialize(format=pyoxigraph.RdfFormat.N_TRIPLES) or b""
                kind = pyoxigraph.QueryResultsFormat.from_extension(form)
                return found.serialize(format=kind or pyoxigraph.QueryResultsFormat.TSV) or b""
            except (SyntaxError, ValueError, RuntimeError, OSError) as cause:
                raise UsageFault(f"the query: {str(cause)[:300]}", code="HW-RDS-02") from cause


def dump_store(folder: Path, target: Path) -> None:
    """Write all statements of the store, which no process may write to meanwhile, but the position that `sync` keeps
    there: it is none of the dataset. Raises BadRdf where it is none."""
    try:
        with target.open("wb") as file:
            file.writelines(_lines_of(pyoxigraph.Store.read_only(str(folder))))
    except (OSError, RuntimeError, ValueError) as cause:
        raise BadRdf(f"the store cannot be read: {str(cause)[:300]}", where=str(folder)) from cause


def write_normalised(dataset: Path, target: Path) -> None:
    """Write what a file of canonical N-Quads is with literals in the forms of the store, in no order."""
    with dataset.open("rb") as stream, target.open("wb") as file:
        for piece in _pieces_with_iris(stream):
            store = pyoxigraph.Store()
            store.bulk_load(piece, _FORMAT)
            file.writelines(map(with_blank_nodes, _lines_of(store)))


def _lines_of(store: pyoxigraph.Store) -> Iterator[bytes]:
    """All statements but those of positions as N-Quads, in blocks of whole lines, in no order."""
    quads = (quad for quad in store if quad.graph_name != _GRAPH)
    while some := list(islice(quads, _QUADS)):
        yield pyoxigraph.serialize(some, format=_FORMAT) or b""


def _pieces_with_iris(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield with_iris(chunk + stream.readline())
