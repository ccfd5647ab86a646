"""The record of what was published: which set, and how many changes became visible."""

from __future__ import annotations

import msgspec


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has made visible: so many changes. The `first` of a process shows all `resources` of the set."""

    name: str
    first: bool
    resources: int
    changes: int
