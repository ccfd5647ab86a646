"""Statements inside one transaction of a SQLite database, and the meaning of its errors."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from headwater.errors import StoreFault
from headwater.storage.durable import sync_descriptor, sync_folder

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


_SHARED_OCTETS = 65_536


def create_file(path: Path) -> None:
    """Make the file when it is not there, for this user only whatever the umask; its companions get the same mode.

    Raises DatabaseFault.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as cause:
        what = "the path of a database must be valid UTF-8"
        raise DatabaseFault(what, code=UNREACHABLE, where=repr(path)) from cause
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as cause:
        is_refused = isinstance(cause, PermissionError) or cause.errno == errno.EROFS
        code = READ_ONLY if is_refused else UNREACHABLE
        raise DatabaseFault(f"the database cannot be created: {cause.strerror}", code=code, where=str(path)) from cause
    try:
        os.fchmod(descriptor, 0o600)
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def disk_is_full(path: Path) -> bool:
    """Whether there is no room even for what SQLite shares between processes; it calls that an I/O error."""
    with contextlib.suppress(OSError):
        system = os.statvfs(path.parent)
        return system.f_bavail * system.f_frsize < _SHARED_OCTETS
    return False


Value = str | int | float | bytes | None
Values = Sequence[Value] | Mapping[str, Value]
Row = tuple[Any, ...]

_FAULTS: tuple[tuple[type[apsw.Error], str, str], ...] = (
    (apsw.ReadOnlyError, READ_ONLY, "the database is read-only"),
    (apsw.PermissionsError, READ_ONLY, "no permission on the database"),
    (apsw.BusyError, "HW-DB-04", "the database is locked by another process"),
    (apsw.LockedError, "HW-DB-04", "the database is locked"),
    (apsw.CorruptError, "HW-DB-05", "the database is corrupt"),
    (apsw.NotADBError, NO_DATABASE, "the file is not a database"),
    (apsw.CantOpenError, UNREACHABLE, "the database cannot be opened"),
    (apsw.IOError, IO_FAULT, "the database cannot be read or written"),
    (apsw.ProtocolError, IO_FAULT, "the file system does not lock the database as it must"),
    (apsw.ConnectionClosedError, CLOSED, "the database was closed"),
    (apsw.CursorClosedError, CLOSED, "the database was closed"),
    (apsw.InterruptError, CLOSED, "the database was closed"),
)


class Faults(msgspec.Struct, frozen=True):
    """A block in which what SQLite raises is a fault of the database in this file."""

    path: Path

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, _kind: object, cause: BaseException | None, _trace: object) -> None:
        """Raise the fault that an error of SQLite is."""
        if isinstance(cause, apsw.Error):
            raise fault_of(cause, self.path) from cause


class Transaction:
    """Statements inside one transaction; good until the `with` block ends, and for one thread at a time."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._faults = Faults(path)
        self._cursors: set[apsw.Cursor] = set()
        self._ended = False

    def run(self, sql: str, values: Values = ()) -> int:
        """Execute to its end and return the number of rows that the last statement changed."""
        with self._faults:
            for _ in self._connection.execute(sql, values):
                pass
        return self._connection.changes()

    def many(self, sql: str, rows: Iterable[Values]) -> None:
        """Execute once for each of `rows`, always to the end: rows that RETURNING gives back are read and dropped.

        (A driver's `executemany` with RETURNING stops where its reader stops, without an error.)
        """
        with self._faults:
            for _ in self._connection.executemany(sql, rows):
                pass

    def rows(self, sql: str, values: Values = ()) -> Iterator[Row]:
        """Stream the rows of a query. It starts with the first row taken, and ends with the transaction."""
        return self._stream(lambda: self._connection.execute(sql, values))

    def fetch(self, sql: str, values: Values = ()) -> list[Row]:
        """All rows of a query, where they are few enough to be held: faster than one after another."""
        with self._faults:
            found: list[Row] = self._connection.execute(sql, values).fetchall()
        return found

    def rows_each(self, sql: str, sequence: Iterable[Values]) -> Iterator[Row]:
        """Stream the rows of a query executed once for each item of `sequence`, one after another."""
        return self._stream(lambda: self._connection.executemany(sql, sequence))

    def one(self, sql: str, values: Values = ()) -> Row | None:
        """The first row of a query, or None."""
        with self._faults:
            cursor = self._connection.execute(sql, values)
            row = next(cursor, None)
            cursor.close(True)
        return row

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None when there is no row."""
        row = self.one(sql, values)
        return None if row is None else row[0]

    def _stream(self, start: Any) -> Iterator[Row]:
        if self._ended:
            raise DatabaseFault("the transaction has ended", code=CLOSED, where=str(self._path))
        cursor: apsw.Cursor | None = None
        try:
            with self._faults:
                cursor = start()
                self._cursors.add(cursor)
                yield from cursor
        finally:
            if cursor is not None:
                self._cursors.discard(cursor)
                with contextlib.suppress(apsw.Error):
                    cursor.close(True)

    def _end(self) -> None:
        self._ended = True
        for cursor in list(self._cursors):  # an unfinished query would keep its snapshot, and the WAL, alive
            with contextlib.suppress(apsw.Error):
                cursor.close(True)
        self._cursors.clear()


def fault_of(cause: apsw.Error, path: Path) -> DatabaseFault:
    """The fault that says who must act; an unknown one is our own bug and says so."""
    where = str(path)
    if isinstance(cause, apsw.FullError) or (isinstance(cause, apsw.IOError) and disk_is_full(path)):
        return DatabaseFull("the disk is full", where=where)  # SQLite calls the latter "not an error"
    if isinstance(cause, apsw.CantOpenError) and path.is_file() and not os.access(path, os.W_OK):
        return DatabaseFault(f"the database is read-only: {cause}", code=READ_ONLY, where=where)
    for kind, code, what in _FAULTS:
        if isinstance(cause, kind):
            return DatabaseFault(what if what.endswith(str(cause)) else f"{what}: {cause}", code=code, where=where)
    return DatabaseFault(f"{type(cause).__name__}: {cause}", where=where)


def rolled_back(connection: apsw.Connection) -> bool:
    """End whatever transaction is open; False when the connection is beyond use."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except apsw.Error:
        return False
    return True
