"""Rows that are stored with a set and in its transactions: octets under a kind and a key, never published.

Whatever has to agree with the set's resources and changes, and is neither, is kept here: what an intake has taken, how
far something was read, who has subscribed to what. The catalog knows kinds and keys as texts only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headwater.spec.records import ChangeKind

RowKey = tuple[str, str]
"""Kind and key of a row: a set has one row of both at most."""

LONGEST_KIND = 100
LONGEST_KEY = 8_192
"""Octets of a key, so that any URI can be one."""
LARGEST_VALUE = 4 << 20
"""Octets of a value: on a cluster all rows of a batch lie in one document until they are in their places."""


WITHDRAWN = "withdrawn"
"""Rows by the number of a page: up to this time it held a resource that the set's settings have taken out since."""


class StateRow(msgspec.Struct, frozen=True, gc=False):
    """One row. The rows of a kind are ordered by `rank` (a time, a number; 0 where no order is needed), then by key."""

    kind: str
    key: str
    value: bytes = b""
    rank: int = 0


class NumberedChange(msgspec.Struct, frozen=True, gc=False):
    """A change of a batch, with the number and the time (microseconds) that the catalog has given it."""

    seq: int
    at_us: int
    uri: str
    change: ChangeKind


RowsOfChanges = Callable[[Sequence[NumberedChange]], Sequence[StateRow]]
"""Rows that follow from the changes of a batch as they are logged. May be called several times: it has no effects."""


class StateUpdate(msgspec.Struct, frozen=True):
    """What a batch does to the rows of its set: deletions first, then rows in the order given, each over its older one.

    To delete a row that is not there is no error. `of_changes` makes further rows of what `record` logs, put last.
    """

    put: Sequence[StateRow] = ()
    delete: Sequence[RowKey] = ()
    of_changes: RowsOfChanges | None = None


NO_UPDATE = StateUpdate()
