"""How the datasets of a catalog stand, for `headwater status`: statements, patches, and what is wrong at present."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import RowKey, StateRow, StateUpdate
from headwater.datasets.rows import DATASET_KEY, PATCH_KIND, read_dataset

FAULT_KEY: Final[RowKey] = ("dataset", "fault")


class DatasetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as it is recorded: so many `patches` lead to it, the first of them that of the change `first`.

    `fault` is why it is not up to date: what it is made of cannot be read, or the patches do not lead to it.
    """

    set: str
    statements: int
    octets: int
    sha256: str
    patches: int
    first: int
    fault: str | None = None


def dataset_statuses(catalog: Catalog, names: Collection[str] = ()) -> Iterator[DatasetStatus]:
    """The datasets of a catalog, by name; all, where none is named."""
    counts = catalog.sets_with_rows(PATCH_KIND)
    for name in sorted(catalog.sets_with_rows(DATASET_KEY[0])):
        if names and name not in names:
            continue
        state, row = read_dataset(catalog, name), catalog.rows(name, [FAULT_KEY]).get(FAULT_KEY)
        fault = None if row is None else row.value.decode("utf-8", "replace")
        if state is None and fault is None:
            continue
        yield DatasetStatus(
            set=name,
            statements=state.quads if state is not None else 0,
            octets=state.octets if state is not None else 0,
            sha256=state.sha256 if state is not None else "",
            patches=counts.get(name, 0),
            first=state.first if state is not None else 0,
            fault=fault,
        )


def fault_update(fault: str | None) -> StateUpdate:
    """The rows by which it is noted what is wrong with a dataset, or that nothing is."""
    if fault is None:
        return StateUpdate(delete=[FAULT_KEY])
    return StateUpdate(put=[StateRow(*FAULT_KEY, fault.encode("utf-8", "replace")[:2000])])
