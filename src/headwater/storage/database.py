"""One SQLite file of a schema, opened the one safe way, and copied in one committed state.

One connection writes, guarded by a lock; any number of connections read at the same time, each from one snapshot, and
neither waits for the other (WAL). Several processes may use the file: their writers take turns. The file must lie on a
local file system. A `Database` must not be used on the other side of a fork: open it again there.

`apsw` rather than the interpreter's own SQLite, because versions below 3.51.3 can corrupt a WAL file that several
connections use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import apsw
import msgspec

from headwater.storage.transaction import (
    CLOSED,
    IO_FAULT,
    NO_DATABASE,
    UNREACHABLE,
    DatabaseFault,
    Faults,
    SchemaTooNew,
    SchemaTooOld,
    Transaction,
    create_file,
    disk_is_full,
    fault_of,
    rolled_back,
)


class Durability(Enum):
    """What a power loss may cost: FULL nothing committed, NORMAL the last commits. A killed process costs nothing."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class Schema(msgspec.Struct, frozen=True):
    """What a file of one kind holds: the application's mark in its header and the migrations, oldest first.

    Migration number n (counted from 1) is an SQL script that brings a file from version n - 1 to n. A script that was
    ever released is never changed: the next one mends it.
    """

    application_id: int
    migrations: tuple[str, ...]
    may_migrate: bool = True  # whether an older file is brought to this version; else it is refused (SchemaTooOld)
    has_log: bool = True
    """Whether a new file gets a WAL. Without it values are written once, and reads and commits wait for each other."""

    @property
    def version(self) -> int:
        """The version that this program writes."""
        return len(self.migrations)


_ROOM = 1 << 17  # what SQLite's shared memory and a few pages of its log take
_MEMORY = "/dev/shm"  # noqa: S108  a folder that nobody else can read is made there
_IDLE_READERS = 8
_RETRY_SECONDS = 0.05
_CHECKPOINT_PAGES = {Durability.FULL: 1_000, Durability.NORMAL: 4_000}
"""After so many pages in the log a commit copies them into the file, and waits for the disk twice: where commits do not
wait for it, that is what costs."""


class Database(contextlib.AbstractContextManager["Database"]):
    """A SQLite file of one `Schema`; created, recovered and migrated when it is opened.

    Raises a `DatabaseFault` (HW-DB-…) from every method when the file, the disk or another process is in the way.
    """

    def __init__(
        self,
        path: Path | str,
        schema: Schema,
        *,
        durability: Durability = Durability.FULL,
        busy_seconds: float = 30.0,
        page_octets: int | None = None,
        cache_octets: int = 16 << 20,
    ) -> None:
        self.path = Path(path)
        self.schema = schema
        self.migrated_from: int | None = None
        self._durability = self._writer_durability = durability
        self._busy_seconds = busy_seconds
        self._cache_octets = cache_octets
        self._write_lock = threading.Lock()
        self._pool_lock = threading.Lock()
        self._writing_thread: int | None = None
        self._idle: list[apsw.Connection] = []
        self._lent: set[apsw.Connection] = set()
        self._faults = Faults(self.path)
        self._closed = False
        create_file(self.path)
        self._place = os.path.abspath(self.path)
        self._writer = self._connect()
        try:
            try:
                # which file it is: now that it is open, since a file system of layers may copy it when it is opened
                self._opened = os.stat(self._place)
            except OSError as cause:
                what = f"the database cannot be opened: {cause.strerror}"
                raise DatabaseFault(what, code=UNREACHABLE, where=str(self.path)) from cause
            self._prepare(page_octets)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Transaction]:
        """A transaction that is committed when the block ends, and rolled back when anything at all is raised in it.

        `durable`: no power loss costs it, nor what was committed before it, whatever the database's durability is.

        Takes the writer's turn at the start (`BEGIN IMMEDIATE`): what is read in it cannot change before the commit.
        Threads of this process wait for each other without limit, for other processes `busy_seconds`. When the commit
        itself is interrupted, everything or nothing has happened.
        """
        if self._writing_thread == threading.get_ident():
            raise DatabaseFault("a transaction inside a transaction of the same thread", where=str(self.path))
        with self._write_lock:
            self._writing_thread = threading.get_ident()
            try:
                yield from self._written(Durability.FULL if durable else self._durability)
            finally:
                self._writing_thread = None

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that sees one committed state, whatever is written meanwhile, and can change nothing.

        It never waits for the writer, nor the writer for it. While one is open the WAL file cannot be emptied, so end
        it soon. May be nested: each has its own snapshot.
        """
        with self._pool_lock:
            if self._closed:
                raise DatabaseFault("the database was closed", code=CLOSED, where=str(self.path))
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._connect()
        if idle is None:
            connection.execute("PRAGMA query_only = ON").fetchall()
        with self._pool_lock:
            self._lent.add(connection)
        transaction = Transaction(connection, self.path)
        try:
            with self._faults:
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # a snapshot of now, not of later
                yield transaction
        finally:
            transaction._end()
            self._give_back(connection)

    def _written(self, durability: Durability) -> Iterator[Transaction]:
        if self._closed:
            raise DatabaseFault("the database was closed", code=CLOSED, where=str(self.path))
        try:
            is_in_place = os.path.samestat(os.stat(self._place), self._opened)
        except OSError as cause:
            is_in_place = not isinstance(cause, FileNotFoundError | NotADirectoryError)  # else the system does not tell
        if not is_in_place:
            what = "the database was removed or replaced while it was open"
            raise DatabaseFault(what, code="HW-DB-12", where=str(self.path))
        connection = self._writer
        transaction = Transaction(connection, self.path)
        try:
            with self._faults:
                if durability is not self._writer_durability:
                    connection.execute(f"PRAGMA synchronous = {durability.value}").fetchall()
                    self._writer_durability = durability
                connection.execute("BEGIN IMMEDIATE")
                yield transaction
                transaction._end()
                connection.execute("COMMIT")
        finally:
            transaction._end()
            if not rolled_back(connection) and not self._closed:
                with contextlib.suppress(apsw.Error):
                    self._writer.close(True)
                self._writer, self._writer_durability = self._connect(), self._durability

    def data_version(self) -> int:
        """A number that becomes another one when another process, or another `Database`, has committed something."""
        with self._write_lock, self._faults:
            return int(self._writer.execute("PRAGMA data_version").fetchall()[0][0])  # type: ignore[arg-type]

    def check(self) -> list[str]:
        """What SQLite itself finds wrong in the file's structure; reads all of it. Empty when sound."""
        with self.read() as transaction:
            found = [str(row[0]) for row in transaction.rows("PRAGMA quick_check(100)")]
            broken = [f"row of {row[0]} refers to nothing" for row in transaction.rows("PRAGMA foreign_key_check")]
        return [line for line in found if line != "ok"] + broken[:100]

    def checkpoint(self) -> None:
        """Move what is in the WAL into the file and empty the WAL, as far as readers allow (after a bulk load)."""
        with self._write_lock, self._faults, contextlib.suppress(apsw.BusyError):
            # where a reader is at work, the next automatic checkpoint does it
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Give up every connection; what was committed is on disk.

        Waits for a transaction that another thread is writing. Reads under way end with a DatabaseFault (HW-DB-10).
        """
        with self._pool_lock:
            self._closed = True
            lent, idle = list(self._lent), self._idle
            self._idle = []
        for connection in lent:
            with contextlib.suppress(apsw.Error):
                connection.interrupt()
        for connection in (*lent, *idle):
            with contextlib.suppress(apsw.Error):  # one that a thread is using is closed when that gives it back
                connection.close(True)
        mine = self._writing_thread == threading.get_ident()
        with contextlib.nullcontext() if mine else self._write_lock, contextlib.suppress(apsw.Error):
            self._writer.close(True)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> apsw.Connection:
        with self._faults:
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.set_busy_timeout(int(self._busy_seconds * 1_000))
            for pragma in (
                "PRAGMA foreign_keys = ON",
                "PRAGMA trusted_schema = OFF",
                "PRAGMA cell_size_check = ON",
                f"PRAGMA synchronous = {self._durability.value}",
                "PRAGMA fullfsync = ON",  # macOS: through the cache of the disk
                f"PRAGMA cache_size = -{self._cache_octets >> 10}",
                "PRAGMA journal_size_limit = 67108864",
                f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES[self._durability]}",
            ):
                connection.execute(pragma).fetchall()
            if not self.schema.has_log and connection.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal":
                connection.execute("PRAGMA journal_mode = TRUNCATE").fetchall()  # a removed journal could come back
        return connection

    def _prepare(self, page_octets: int | None) -> None:
        writer = self._writer
        with self._faults:
            # a file that is no database or another program's is refused before anything is written to it
            writer.execute("BEGIN")  # one snapshot: another process may be creating the file at this moment
            empty = not writer.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            ((mark, is_of),) = writer.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
            writer.execute("ROLLBACK")
            if mark != self.schema.application_id and not (empty and mark == 0):
                what = "the file is the database of another program or purpose"
                raise DatabaseFault(what, code=NO_DATABASE, where=str(self.path))
            if not self.schema.may_migrate and int(is_of) < self.schema.version:  # type: ignore[arg-type]
                raise SchemaTooOld(f"the database has schema version {is_of}", where=str(self.path))
            if page_octets is not None:  # of a new file, which can give free pages back (`PRAGMA incremental_vacuum`)
                writer.execute(f"PRAGMA page_size = {page_octets}; PRAGMA auto_vacuum = INCREMENTAL").fetchall()
            if self.schema.has_log:
                self._enter_wal()
        with self.read() as transaction:
            version = int(transaction.value("PRAGMA user_version"))
        self.migrated_from = version if 0 < version < self.schema.version else None
        while version < self.schema.version:
            with self.write() as transaction:  # the next one; another process may have been first
                version = int(transaction.value("PRAGMA user_version"))
                if version < self.schema.version:
                    transaction.run(self.schema.migrations[version])
                    transaction.run(f"PRAGMA application_id = {self.schema.application_id}")
                    version += 1
                    transaction.run(f"PRAGMA user_version = {version}")
        if version > self.schema.version:
            what = f"the database has schema version {version}, this Headwater knows {self.schema.version}"
            raise SchemaTooNew(what, where=str(self.path))

    def _enter_wal(self) -> None:
        """Set WAL mode once for the file's life; two processes that create the file at once must take turns by hand."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                mode = self._writer.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
                break
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        if mode != "wal":
            what = "this file system cannot share memory between processes"
            raise DatabaseFault(what, code=IO_FAULT, where=str(self.path))

    def _give_back(self, connection: apsw.Connection) -> None:
        sound = rolled_back(connection)
        with self._pool_lock:
            self._lent.discard(connection)
            if sound and not self._closed and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        with contextlib.suppress(apsw.Error):
            connection.close(True)


def bound_caches(octets: int) -> None:
    """Let all databases of this process, and of those it forks, hold about so many octets of pages together."""
    apsw.soft_heap_limit(octets)


@contextlib.contextmanager
def opened_to_read(path: Path, schema: Schema) -> Iterator[Database]:
    """A database for reading only, also while another process writes it; nothing is written on a disk without room.

    What an older version has written, what this user may not write to, and what lies on a full disk is read from a
    private copy. Raises DatabaseFaults and OSError.
    """
    writable = all(os.access(one, os.W_OK, effective_ids=True) for one in (path, path.parent))
    with contextlib.ExitStack() as stack:
        database: Database | None = None
        if writable and _room(path.parent) >= _ROOM:
            as_it_is = msgspec.structs.replace(schema, may_migrate=False)
            with contextlib.suppress(SchemaTooOld):
                database = stack.enter_context(Database(path, as_it_is, durability=Durability.NORMAL))
        yield database or stack.enter_context(private_copy(path, schema))


@contextlib.contextmanager
def private_copy(path: Path, schema: Schema) -> Iterator[Database]:
    """A private copy of a database, or an empty one where there is none: whatever is done to it, `path` stays as it is.

    Raises DatabaseFaults, and OSError where it cannot be read.
    """
    from tempfile import TemporaryDirectory, gettempdir

    octets = sum(one.stat().st_size for one in (path, Path(f"{path}-wal")) if one.is_file())
    is_full = _room(Path(gettempdir())) < octets + _ROOM
    with TemporaryDirectory(prefix="headwater-", dir=_MEMORY if is_full and os.path.isdir(_MEMORY) else None) as folder:
        copy = Path(folder) / path.name
        if path.is_file():
            copy_database(path, copy)
        try:
            with Database(copy, schema, durability=Durability.NORMAL) as database:
                yield database
        except DatabaseFault as fault:
            if fault.where is not None and fault.where.startswith(folder):
                fault.where = str(path)  # the copy is nobody's business
            raise


def _room(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize  # some file systems tell no size


_COPIES = 10  # so often the files of a database are copied anew when somebody has changed them meanwhile


def copy_database(original: Path, copy: Path) -> None:
    """Write one committed state of a database to the new file `copy`, whatever is written and checkpointed meanwhile.

    Nothing is made or changed beside the original while it is open, nor where it was closed well: then its file is all
    there is of it. What a killed writer has left, and SQLite cannot recover without writing there, is recovered in the
    copy. Raises DatabaseFaults, and OSError where it cannot be read.
    """
    if not _has_companions(original) and _copy_files(original, copy):
        return
    copy.unlink(missing_ok=True)
    try:
        place = f"{original.absolute().as_uri()}?mode=ro"
        reading = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with (
            contextlib.closing(apsw.Connection(place, flags=reading)) as source,
            contextlib.closing(apsw.Connection(str(copy))) as target,
        ):
            source.set_busy_timeout(30_000)
            with target.backup("main", source, "main") as backup:
                backup.step()
    except apsw.Error as cause:
        is_for_files = isinstance(cause, apsw.ReadOnlyError | apsw.CantOpenError) or disk_is_full(original)
        if not (is_for_files and _copy_files(original, copy)):
            raise fault_of(cause, original) from cause


def _copy_files(original: Path, copy: Path) -> bool:
    """Copy the file and its logs as they lie there; whether none was changed meanwhile."""
    from shutil import copyfile  # with every archive format it knows: the start of each run would pay for it

    files = {suffix: Path(f"{original}{suffix}") for suffix in ("", "-wal", "-journal")}
    for _ in range(_COPIES):
        with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
            before = {suffix: _seen(one) for suffix, one in files.items() if one.exists()}
            for suffix, file in files.items():
                Path(f"{copy}{suffix}").unlink(missing_ok=True)
                if suffix in before:
                    copyfile(file, f"{copy}{suffix}")
            if {suffix: _seen(one) for suffix, one in files.items() if one.exists()} == before:
                return True
    return False


def _has_companions(database: Path) -> bool:
    """Whether files lie beside it that belong to it while it is open, or was not closed."""
    return any(os.path.lexists(f"{database}{suffix}") for suffix in ("-shm", "-wal", "-journal"))


def _seen(database: Path) -> tuple[int, int, int]:
    """What of the state of a file tells whether it has changed. Raises OSError where it cannot be read."""
    with database.open("rb") as file:
        state = os.fstat(file.fileno())
    return state.st_ino, state.st_size, state.st_mtime_ns
