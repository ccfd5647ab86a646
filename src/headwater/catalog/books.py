"""The books of a set from one state, and of all at once: each question to a catalog beyond a network is a journey."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headwater.catalog.interface import Catalog, Page, Segment, SetState


class Books(msgspec.Struct, frozen=True):
    """One set with its pages and segments, as `state`, `pages` and `segments` tell them."""

    state: SetState
    pages: Sequence[Page]
    segments: Sequence[Segment]


@runtime_checkable
class BooksOfOneState(Protocol):
    """A catalog that tells the books of a set from one state."""

    def books_of(self, name: str, newest: int | None = None) -> Books:
        """One set's; with `newest`, as of any committed state that has this change. Raises UnknownSet."""
        ...


@runtime_checkable
class Bookkeeping(BooksOfOneState, Protocol):
    """A catalog that tells the books of all sets in a few requests."""

    def books(self) -> Iterator[Books]:
        """Every set's, by name; each set's from one state."""
        ...

    def times(self, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
        """When the change of this number happened, for each set that has it."""
        ...


def books_of_set(catalog: Catalog, name: str, newest: int | None = None) -> Books:
    """The books of one set, where the catalog can tell them from one state. Raises UnknownSet, the catalog's faults.

    With `newest` they are those of any committed state that has this change: the one that it remembers will do.
    """
    if isinstance(catalog, BooksOfOneState):
        return catalog.books_of(name, newest)
    state = catalog.state(name)
    return Books(state, catalog.pages(name), catalog.segments(name))


def books_of(catalog: Catalog, names: frozenset[str] = frozenset()) -> Iterator[Books]:
    """The books of the sets, by name; all, when none is named. Raises the catalog's faults."""
    if isinstance(catalog, Bookkeeping):
        yield from (books for books in catalog.books() if not names or books.state.name in names)
        return
    for state in catalog.sets():
        if not names or state.name in names:
            yield Books(state, catalog.pages(state.name), catalog.segments(state.name))


def times_of(catalog: Catalog, wanted: Mapping[str, int]) -> dict[str, dt.datetime]:
    """When the change of this number happened, for each set that has it. Raises the catalog's faults."""
    if isinstance(catalog, Bookkeeping):
        return catalog.times(wanted)
    found = {name: catalog.changes(name, seq - 1, 1) for name, seq in wanted.items()}
    return {name: changes[0].at for name, changes in found.items() if changes}
