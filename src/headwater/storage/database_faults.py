"""What can go wrong with a database file, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from headwater.errors import StoreFault


class DatabaseFault(StoreFault):
    """Root of all faults of a database file."""

    code = "HW-DB-01"


class DatabaseFull(DatabaseFault):
    """No room is left on the disk, in the quota, or in the limit of the file's size. Nothing was half written."""

    code = "HW-DB-02"


class DatabaseReadOnly(DatabaseFault):
    """The file, its folder or its file system is not writable."""

    code = "HW-DB-03"


class DatabaseLocked(DatabaseFault):
    """Another process kept the file locked for too long."""

    code = "HW-DB-04"


class DatabaseCorrupt(DatabaseFault):
    """The file's content contradicts itself."""

    code = "HW-DB-05"


class NotADatabase(DatabaseFault):
    """The file is not a database, or it is the database of another program."""

    code = "HW-DB-06"


class DatabaseUnreachable(DatabaseFault):
    """The file cannot be opened or created: no such folder, no permission, a folder in its place."""

    code = "HW-DB-07"


class DatabaseIOFault(DatabaseFault):
    """The operating system could not read, write or lock the file."""

    code = "HW-DB-08"


class SchemaTooNew(DatabaseFault):
    """The file was written by a newer version of Headwater."""

    code = "HW-DB-09"


class SchemaTooOld(DatabaseFault):
    """An older version of Headwater has written the file, and it is not to be migrated now."""

    code = "HW-DB-11"


class DatabaseClosed(DatabaseFault):
    """The database was closed while it was still being read."""

    code = "HW-DB-10"
