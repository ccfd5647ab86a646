"""A set's parts by the ordinary reads, for a backend that cannot hold one state of it for as long as a dump takes."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from headwater.catalog.faults import SetMoved
from headwater.catalog.interface import Catalog, Part, Portable, SetSnapshot, SetState
from headwater.catalog.state import StateRow

_BATCH = 10_000
_ROWS = 1_000


def read_parts(catalog: Catalog, name: str) -> Iterator[Part]:
    """The parts of a set that nobody writes to meanwhile. Raises UnknownSet at once, SetMoved when somebody has.

    Memos are private to the ingest and not watched: one that is replaced meanwhile may be given as it was or as it is.
    """
    return _read(catalog, _snapshot(catalog, name))


def parts_of(catalog: Catalog, name: str) -> Iterator[Part]:
    """The parts of a set as this catalog gives them best. Raises UnknownSet at once."""
    return catalog.dump(name) if isinstance(catalog, Portable) else read_parts(catalog, name)


def _read(catalog: Catalog, snapshot: SetSnapshot) -> Iterator[Part]:
    name = snapshot.state.name
    yield snapshot
    for page in snapshot.pages:
        yield from catalog.page(name, page.number)
        if _state(catalog, name) != snapshot.state:
            raise SetMoved("the set changed while it was dumped", where=name)
    seq = 0
    while seq < snapshot.state.last_seq:
        changes = catalog.changes(name, seq, min(_BATCH, snapshot.state.last_seq - seq))
        yield from changes
        seq = changes[-1].seq if changes else snapshot.state.last_seq
    for kind in sorted(catalog.row_counts(name), key=str.encode):
        yield from every_row(catalog, name, kind)
    if _snapshot(catalog, name) != snapshot:
        raise SetMoved("the set changed while it was dumped", where=name)


def every_row(catalog: Catalog, name: str, kind: str) -> Iterator[StateRow]:
    """All rows of a kind in their order."""
    rows = catalog.rows_of(name, kind, limit=_ROWS)
    while rows:
        yield from rows
        rows = catalog.rows_of(name, kind, after=rows[-1], limit=_ROWS)


def _state(catalog: Catalog, name: str) -> SetState:
    """What belongs to the set: who was shut out of this catalog is no matter of another, and no change."""
    return replace(catalog.state(name), fence=0)


def _snapshot(catalog: Catalog, name: str) -> SetSnapshot:
    state = _state(catalog, name)
    return SetSnapshot(state=state, pages=tuple(catalog.pages(name)), segments=tuple(catalog.segments(name)))
