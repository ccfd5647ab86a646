"""What may be wrong with a dataset that a source publishes."""

from __future__ import annotations

from headwater.errors import SourceFault, StoreFault, UsageFault


class BrokenSeries(StoreFault):
    """The patches of a dataset do not lead to it, or one of its files is lost or damaged: nothing is published."""

    code = "HW-DAT-01"


class InputChanged(SourceFault):
    """What a dataset is made of changed while it was read; it is read again."""

    code = "HW-DAT-02"


class UnusableInput(SourceFault):
    """What a dataset is made of is missing, cannot be read, or is of no syntax of RDF."""

    code = "HW-DAT-03"


class EmptyInput(SourceFault):
    """A dataset is empty, which is not published unless it is allowed."""

    code = "HW-DAT-04"


class NotADataset(UsageFault):
    """A set that is to become a dataset has had other resources: who copies it knows them."""

    code = "HW-DAT-06"


class NoDataset(UsageFault):
    """A state folder has no dataset of this name."""

    code = "HW-DAT-05"
