"""What can go wrong with a database file, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import StoreFault


class DatabaseFault(StoreFault):
    """Root of all faults of a database file."""

    code: ClassVar[str] = "HW-DB-01"
    advice: ClassVar[str] = "Report this as a bug: the database refused a statement that Headwater wrote."


class DatabaseFull(DatabaseFault):
    """No room is left on the disk, in the quota, or in the limit of the file's size. Nothing was half written."""

    code: ClassVar[str] = "HW-DB-02"
    advice: ClassVar[str] = "Free space on that file system, then run the same command again: nothing was half written."


class DatabaseReadOnly(DatabaseFault):
    """The file, its folder or its file system is not writable."""

    code: ClassVar[str] = "HW-DB-03"
    advice: ClassVar[str] = "Give this user write permission on the file and on its folder."


class DatabaseLocked(DatabaseFault):
    """Another process kept the file locked for too long."""

    code: ClassVar[str] = "HW-DB-04"
    advice: ClassVar[str] = (
        "End the other process that uses this file, or wait for it, then run the same command again."
    )


class DatabaseCorrupt(DatabaseFault):
    """The file's content contradicts itself."""

    code: ClassVar[str] = "HW-DB-05"
    advice: ClassVar[str] = "Move the file away and restore a backup, or let Headwater create it again; check the disk."


class NotADatabase(DatabaseFault):
    """The file is not a database, or it is the database of another program."""

    code: ClassVar[str] = "HW-DB-06"
    advice: ClassVar[str] = (
        "Name another file, or restore a backup of this one. Without a backup, move it away and run the command again:"
        " a copy is compared with its source anew, and a source scans its folders."
    )


class DatabaseUnreachable(DatabaseFault):
    """The file cannot be opened or created: no such folder, no permission, a folder in its place."""

    code: ClassVar[str] = "HW-DB-07"
    advice: ClassVar[str] = "Make sure that the folder exists and that this user may write in it."


class DatabaseIOFault(DatabaseFault):
    """The operating system could not read, write or lock the file."""

    code: ClassVar[str] = "HW-DB-08"
    advice: ClassVar[str] = (
        "Check the disk. The file must be on a local file system: network shares cannot lock safely."
    )


class SchemaTooNew(DatabaseFault):
    """The file was written by a newer version of Headwater."""

    code: ClassVar[str] = "HW-DB-09"
    advice: ClassVar[str] = "Upgrade Headwater; an older version never writes to a newer file."


class SchemaTooOld(DatabaseFault):
    """An older version of Headwater has written the file, and it is not to be migrated now."""

    code: ClassVar[str] = "HW-DB-11"
    advice: ClassVar[str] = "End the process of the older version that has it open, and start again."


class DatabaseClosed(DatabaseFault):
    """The database was closed while it was still being read."""

    code: ClassVar[str] = "HW-DB-10"
    advice: ClassVar[str] = "Nothing is lost: run the same command again."


class DatabaseRemoved(DatabaseFault):
    """The file was removed or replaced while a process had it open: what that records would be lost with it."""

    code: ClassVar[str] = "HW-DB-12"
    advice: ClassVar[str] = (
        "End the process that has it open, restore a backup of the file if there is one, and start again. Without a"
        " backup a source scans its folders anew, and a copy is compared with its source anew."
    )
