"""The statements of an Oxigraph store in a folder, as N-Quads in a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, cast

from pyoxigraph import RdfFormat, Store

from headwater.rdf.faults import BadRdf
from headwater.triplestores.positions import WithoutPosition


def dump_store(folder: Path, target: Path) -> None:
    """Write all statements of the store, which no process may write to meanwhile, but the position that `sync` keeps
    there: it is none of the dataset. Raises BadRdf where it is none."""
    try:
        with target.open("wb") as file:
            Store.read_only(str(folder)).dump(cast(IO[bytes], WithoutPosition(file.write)), RdfFormat.N_QUADS)
    except (OSError, RuntimeError, ValueError) as cause:
        raise BadRdf(f"the store cannot be read: {str(cause)[:300]}", where=str(folder)) from cause
