"""What can go wrong with any catalog, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from headwater.errors import StoreFault, UsageFault


class UnknownSet(UsageFault):
    """The catalog has no set of this name."""

    code = "HW-CAT-01"


class WrongPhase(UsageFault):
    """`load` on a set that is open, or `record` on one that is still loading."""

    code = "HW-CAT-02"


class Unacceptable(UsageFault):
    """A value that a catalog cannot store, because no document could: a time without a zone, an odd type, too much."""

    code = "HW-CAT-04"


class Moved(StoreFault):
    """Another process has recorded changes in the set since it was read; nothing was recorded."""

    code = "HW-CAT-12"
