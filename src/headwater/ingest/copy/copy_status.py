"""How far the sets of a catalog are behind the copies that they publish, for `headwater status`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from headwater.catalog.interface import Catalog
from headwater.copies.copy_state import CopyStateReader, count_noted_after, journal_end, path_noted
from headwater.errors import HeadwaterError
from headwater.ingest.copy.position import KEY, KIND, leads_on, read_position


class CopyLag(msgspec.Struct, frozen=True, kw_only=True):
    """A set that publishes the copy in the folder `copy`, of the set whose Capability List at its source is `origin`.

    `waiting`: changes of the copy that are not recorded yet; None where that cannot be told from here, as `fault` says,
    or where all is to be compared.
    """

    set: str
    copy: str
    origin: str
    waiting: int | None
    fault: str | None = None


def copy_lags(catalog: Catalog, names: Collection[str] = ()) -> Iterator[CopyLag]:
    """The sets of a catalog that publish copies, by name; all, where none is named."""
    for name in sorted(catalog.sets_with_rows(KIND)):
        row = catalog.rows(name, [KEY]).get(KEY)
        if row is None or (names and name not in names):
            continue
        position = read_position(row.value)
        lag = CopyLag(set=name, copy=position.place, origin=position.origin, waiting=None)
        try:
            state = CopyStateReader(position.place)
        except HeadwaterError as fault:
            yield msgspec.structs.replace(lag, fault=fault.what)
            continue
        try:
            with state.read() as t:
                if leads_on(position, journal_end(t), path_noted(t, position.seq)):
                    lag = msgspec.structs.replace(lag, waiting=count_noted_after(t, position.set_id, position.seq))
        except HeadwaterError as fault:
            lag = msgspec.structs.replace(lag, fault=fault.what)
        finally:
            state.close()
        yield lag
