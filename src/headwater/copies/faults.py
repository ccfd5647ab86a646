"""Faults of reading a copy's state."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import StoreFault


class NoCopyState(StoreFault):
    """There is no copy at this place, or not any more. What is published of it stays as it is."""

    code: ClassVar[str] = "HW-CPY-01"
    advice: ClassVar[str] = "Make the copy with `headwater sync URL DEST`, or mount the disk that it lies on."


class StateOfOlderVersion(StoreFault):
    """An older version of Headwater has written the state of the copy, and a run of it is at work."""

    code: ClassVar[str] = "HW-CPY-02"
    advice: ClassVar[str] = "Restart `headwater sync` with this version; until then nothing new is published."


class NoSetInCopy(StoreFault):
    """The copy holds no set of this name, or several and none is named."""

    code: ClassVar[str] = "HW-CPY-03"
    advice: ClassVar[str] = "Name one of its sets with copy_set; `headwater status DEST` shows them."
