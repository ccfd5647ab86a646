"""Reads the state of a copy while a destination writes it: its sets, what is held, the journal of what has changed.

Nothing is written, but for a migration from an older version where no run is at work. Every read is one transaction,
which never waits for the run that writes, nor that for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headwater.copies.schema import FOLDER, JOURNAL_ID, SCHEMA, STATE
from headwater.errors import StoreFault
from headwater.storage.database import Database, Durability
from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared, waited_for
from headwater.storage.transaction import SchemaTooOld, Transaction

_AS_IT_IS = msgspec.structs.replace(SCHEMA, may_migrate=False)

_HELD = (
    "uri, path, size, mtime_ns, digest, listed_hash, listed_length, lastmod, loc, type, encoding, links, extra,"
    " newer OR recovered"
)


class CopiedSet(NamedTuple):
    """One set that a copy holds: its files lie below `folder`; `identity` is the URI of its Capability List."""

    id: int
    name: str
    folder: str
    identity: str
    is_whole: int
    """Whether a baseline has come to its end."""


class CopiedFile(NamedTuple):
    """One resource whose file has its place: what the source states, and the file as it was verified.

    `path` is below the copy's folder. `digest` is that of the octets as they were placed; None where they are not known
    to be whole. Times: `lastmod` in microseconds since 1970, `mtime_ns` in nanoseconds.
    """

    uri: str
    path: bytes
    size: int
    mtime_ns: int
    digest: str | None
    listed_hash: str | None
    listed_length: int | None
    lastmod: int | None
    loc: str | None
    type: str | None
    encoding: str | None
    links: str | None
    extra: str | None
    unconfirmed: int
    """Whether no list confirms these octets: newer than listed, or found after a killed run."""


class JournalEnd(msgspec.Struct, frozen=True):
    """The end of the journal of a state: its id, its newest entry (0: none), and the oldest that is still kept."""

    id: str
    last: int
    first: int
    path: bytes | None = None
    """The path of the newest entry."""


class CopyStateReader:
    """The open state of the copy in `root`. Close it. Raises HW-CPY-01, HW-CPY-02, and DatabaseFaults."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._file = self.root / FOLDER / STATE
        if not self._file.is_file():
            raise StoreFault("there is no copy", code="HW-CPY-01", where=str(self.root))
        self._database = _opened(self.root, self._file)
        self._key = _key(self._file)
        self._seen: int | None = None

    @property
    def is_replaced(self) -> bool:
        """Whether another file, or none, lies at the place of the state by now."""
        return self._key is None or _key(self._file) != self._key

    def has_changed(self) -> bool:
        """Whether anything was committed since this was asked last; costs next to nothing."""
        version = self._database.data_version()
        changed, self._seen = version != self._seen, version
        return changed

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One committed state, for the functions below."""
        with self._database.read() as t:
            yield t

    def close(self) -> None:
        """Give up the file."""
        self._database.close()


def copied_sets(t: Transaction) -> list[CopiedSet]:
    """The sets of the copy, in the order in which they were first seen."""
    rows = t.rows("SELECT id, name, folder, identity, baseline_done FROM sets ORDER BY id")
    return [CopiedSet(*row) for row in rows]


def journal_end(t: Transaction) -> JournalEnd:
    """How far the journal goes."""
    identity = t.value("SELECT value FROM facts WHERE name = ?", (JOURNAL_ID,))
    last = t.one("SELECT seq, path FROM journal ORDER BY seq DESC LIMIT 1")
    first = t.value("SELECT min(seq) FROM journal")
    return JournalEnd(str(identity), last[0], first, last[1]) if last else JournalEnd(str(identity), 0, 1)


def path_noted(t: Transaction, seq: int) -> bytes | None:
    """The path of an entry of the journal; None where it is not kept."""
    path: bytes | None = t.value("SELECT path FROM journal WHERE seq = ?", (seq,))
    return path


def noted_after(t: Transaction, seq: int, limit: int) -> list[tuple[int, int, bytes]]:
    """Number, set and path of up to `limit` entries of the journal after one."""
    return t.fetch("SELECT seq, set_id, path FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))


def sets_noted_after(t: Transaction, seq: int) -> frozenset[int]:
    """The sets that entries of the journal after one are of."""
    return frozenset(number for (number,) in t.rows("SELECT DISTINCT set_id FROM journal WHERE seq > ?", (seq,)))


def count_noted_after(t: Transaction, set_id: int, seq: int) -> int:
    """How many entries of the journal after one are of a set."""
    return int(t.value("SELECT count(*) FROM journal WHERE seq > ? AND set_id = ?", (seq, set_id)))


def files_after(t: Transaction, set_id: int, uri: str, limit: int) -> list[CopiedFile]:
    """Up to `limit` files of a set by URI, from the one after `uri` on."""
    query = (
        f"SELECT {_HELD} FROM resources WHERE set_id = ? AND uri > ? AND path IS NOT NULL"  # noqa: S608  our own names
        " ORDER BY uri LIMIT ?"
    )
    return [CopiedFile(*row) for row in t.rows(query, (set_id, uri, limit))]


def files_at(t: Transaction, set_id: int, paths: Iterable[bytes]) -> dict[bytes, CopiedFile]:
    """The files of a set that have these paths."""
    query = f"SELECT {_HELD} FROM resources WHERE path = ? AND set_id = ?"  # noqa: S608  our own names
    found = (CopiedFile(*row) for row in t.rows_each(query, ((path, set_id) for path in paths)))
    return {one.path: one for one in found}


def _opened(root: Path, file: Path) -> Database:
    try:
        return Database(file, _AS_IT_IS, durability=Durability.NORMAL)
    except SchemaTooOld:
        pass
    try:
        lock = lock_exclusive(root / FOLDER / "lock")
    except LockHeld as cause:
        raise StoreFault("an older version is changing this copy", code="HW-CPY-02", where=str(root)) from cause
    except OSError as cause:
        raise StoreFault(f"cannot be read: {cause.strerror}", code="HW-CPY-01", where=str(root)) from cause
    try:
        return Database(file, SCHEMA, durability=Durability.NORMAL)
    finally:
        os.close(lock)


def _key(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


FILE: Final = "push.lock"
_SECONDS: Final = 1.0
"""Who only looks holds it for a moment."""


def lock_as_follower(folder: Path) -> int | None:
    """Hold the lock until the descriptor is closed; None where another process follows, or no file can be made."""
    try:
        return waited_for(lock_exclusive, folder / FILE, _SECONDS)
    except (LockHeld, OSError):
        return None


def without_lock(folder: Path) -> None:
    """Leave no lock, by which the copy would seem to be followed by nobody: a process of many copies holds none."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def is_followed(folder: Path) -> bool | None:
    """Whether a process follows the copy whose state is in `folder`; None: that cannot be seen."""
    try:
        descriptor = lock_shared(folder / FILE)
    except LockHeld:
        return True
    except OSError:
        return None
    os.close(descriptor)
    return False
