"""Faults of reading a copy's state."""

from __future__ import annotations

from headwater.errors import StoreFault


class NoCopyState(StoreFault):
    """There is no copy at this place, or not any more. What is published of it stays as it is."""

    code = "HW-CPY-01"


class StateOfOlderVersion(StoreFault):
    """An older version of Headwater has written the state of the copy, and a run of it is at work."""

    code = "HW-CPY-02"


class NoSetInCopy(StoreFault):
    """The copy holds no set of this name, or several and none is named."""

    code = "HW-CPY-03"
