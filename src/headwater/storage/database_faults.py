"""What can go wrong with a database file, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from typing import Final

from headwater.errors import StoreFault

READ_ONLY: Final = "HW-DB-03"
NO_DATABASE: Final = "HW-DB-06"
UNREACHABLE: Final = "HW-DB-07"
IO_FAULT: Final = "HW-DB-08"
CLOSED: Final = "HW-DB-10"
"""Codes of faults that nobody catches by their kind: `messages.txt` tells what they mean."""


class DatabaseFault(StoreFault):
    """Root of all faults of a database file."""

    code = "HW-DB-01"


class DatabaseFull(DatabaseFault):
    """No room is left on the disk, in the quota, or in the limit of the file's size. Nothing was half written."""

    code = "HW-DB-02"


class SchemaTooNew(DatabaseFault):
    """The file was written by a newer version of Headwater."""

    code = "HW-DB-09"


class SchemaTooOld(DatabaseFault):
    """An older version of Headwater has written the file, and it is not to be migrated now."""

    code = "HW-DB-11"
