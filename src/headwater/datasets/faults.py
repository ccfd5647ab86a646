"""What may be wrong with a dataset that a source publishes."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import SourceFault, StoreFault, UsageFault


class BrokenSeries(StoreFault):
    """The patches of a dataset do not lead to it, or one of its files is lost or damaged: nothing is published."""

    code: ClassVar[str] = "HW-DAT-01"
    advice: ClassVar[str] = (
        "Bring the files back from a backup, or let the history begin anew: `headwater rdf restart STATE SET`."
    )


class InputChanged(SourceFault):
    """What a dataset is made of changed while it was read; it is read again."""

    code: ClassVar[str] = "HW-DAT-02"
    advice: ClassVar[str] = "Nothing; if this repeats, write files under a temporary name and rename them."


class UnusableInput(SourceFault):
    """What a dataset is made of is missing, cannot be read, or is of no syntax of RDF."""

    code: ClassVar[str] = "HW-DAT-03"
    advice: ClassVar[str] = "What was published stays as it is. Check the path, or the address, of the set."


class EmptyInput(SourceFault):
    """A dataset is empty, which is not published unless it is allowed."""

    code: ClassVar[str] = "HW-DAT-04"
    advice: ClassVar[str] = (
        "Check what the dataset is made of: of a folder, the files with a suffix of RDF (.nq, .nt, .ttl, .trig, .rdf,"
        " .jsonld). If it is empty indeed, set may_be_empty = true in its [[set]] of a configuration."
    )


class NotADataset(UsageFault):
    """A set that is to become a dataset has had other resources: who copies it knows them."""

    code: ClassVar[str] = "HW-DAT-06"
    advice: ClassVar[str] = "Give the dataset another name of a set."


class NoDataset(UsageFault):
    """A state folder has no dataset of this name."""

    code: ClassVar[str] = "HW-DAT-05"
    advice: ClassVar[str] = 'Name the state folder of a source, and a set with profile = "rdf-dataset".'
