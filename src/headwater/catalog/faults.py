"""What can go wrong with any catalog, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import StoreFault, Undetermined, UsageFault


class UnknownSet(UsageFault):
    """The catalog has no set of this name."""

    code: ClassVar[str] = "HW-CAT-01"
    advice: ClassVar[str] = "Name a set that exists, or publish it first."


class WrongPhase(UsageFault):
    """`load` on a set that is open, or `record` on one that is still loading."""

    code: ClassVar[str] = "HW-CAT-02"
    advice: ClassVar[str] = "Load before the set is opened; record after."


class NewerSchema(StoreFault):
    """The catalog was written by a newer version of Headwater."""

    code: ClassVar[str] = "HW-CAT-03"
    advice: ClassVar[str] = "Upgrade Headwater; an older version never writes to a newer catalog."


class Unacceptable(UsageFault):
    """A value that a catalog cannot store, because no document could: a time without a zone, an odd type, too much."""

    code: ClassVar[str] = "HW-CAT-04"
    advice: ClassVar[str] = "Correct or leave out what is named; nothing of this call was recorded."


class SetExists(UsageFault):
    """The set that was to be restored is in the catalog already."""

    code: ClassVar[str] = "HW-CAT-05"
    advice: ClassVar[str] = "Restore into another catalog; a set is never overwritten."


class SetMoved(Undetermined):
    """The set changed while it was dumped, and this backend cannot keep a snapshot of it for so long."""

    code: ClassVar[str] = "HW-CAT-07"
    advice: ClassVar[str] = "Stop the writers to the set until the dump is complete, then try again."


class Moved(StoreFault):
    """Another process has recorded changes in the set since it was read; nothing was recorded."""

    code: ClassVar[str] = "HW-CAT-12"
    advice: ClassVar[str] = "Send it again."
