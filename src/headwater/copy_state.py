"""The state of a copy, DEST/.headwater/state.sqlite: its schema, and a reader for a source that publishes the copy.

A destination writes it. The reader learns of each change by the journal: triggers note there, in the transaction of
every change to a row of `resources`, the path that has another state now.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headwater.errors import StoreFault
from headwater.spec.kinds import Kind
from headwater.storage.database import Database, Durability, Schema
from headwater.storage.lock import LockHeld, lock_exclusive, lock_shared, waited_for
from headwater.storage.transaction import SchemaTooOld, Transaction

FOLDER = ".headwater"
"""The folder of the state, within the copy."""

STATE = "state.sqlite"
"""The file of the state, in that folder."""

JOURNAL_ENTRIES = 100_000
"""So many changes are kept in the journal; a reader that is further behind compares everything."""

JOURNAL_ID = "journal id"
"""A fact: by which a reader tells the journal of this state from that of another one at the same place."""

_FIRST = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE sets(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  folder TEXT NOT NULL UNIQUE,
  identity TEXT NOT NULL UNIQUE,
  offer TEXT NOT NULL,
  base TEXT,
  scope TEXT,
  baseline_at INTEGER,
  baseline_uri TEXT,
  baseline_done INTEGER NOT NULL DEFAULT 0,
  hole_until INTEGER,
  position TEXT
);
CREATE TABLE documents(
  set_id INTEGER NOT NULL, uri TEXT NOT NULL, etag TEXT, last_modified TEXT, moved_to TEXT,
  PRIMARY KEY(set_id, uri)
) WITHOUT ROWID;
CREATE TABLE resources(
  id INTEGER PRIMARY KEY,
  set_id INTEGER NOT NULL,
  uri TEXT NOT NULL,
  path BLOB,
  size INTEGER,
  mtime_ns INTEGER,
  digest TEXT,
  listed_hash TEXT,
  listed_length INTEGER,
  lastmod INTEGER,
  etag TEXT,
  last_modified TEXT,
  changed_at INTEGER,
  newer INTEGER NOT NULL DEFAULT 0,
  doomed_at INTEGER,
  run INTEGER NOT NULL,
  UNIQUE(set_id, uri)
);
CREATE UNIQUE INDEX resources_path ON resources(path) WHERE path IS NOT NULL;
CREATE INDEX resources_doomed ON resources(set_id) WHERE doomed_at IS NOT NULL;
CREATE INDEX resources_run ON resources(run);
CREATE TABLE failures(
  set_id INTEGER NOT NULL, uri TEXT NOT NULL, loc TEXT NOT NULL,
  reason TEXT NOT NULL, status INTEGER, tries INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
  next_at INTEGER NOT NULL, wait_until INTEGER,
  lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT, mirrors TEXT, changed_at INTEGER,
  PRIMARY KEY(set_id, uri)
) WITHOUT ROWID;
CREATE TABLE intents(id INTEGER PRIMARY KEY, set_id INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE TABLE runs(
  id INTEGER PRIMARY KEY, began_at INTEGER NOT NULL, ended_at INTEGER, boot TEXT NOT NULL, durable INTEGER NOT NULL
);
"""

_REFUSALS = """
CREATE TABLE refusals(
  set_id INTEGER NOT NULL, uri TEXT NOT NULL, host TEXT, reason TEXT NOT NULL, count INTEGER NOT NULL,
  changed_at INTEGER,
  PRIMARY KEY(set_id, uri)
) WITHOUT ROWID;
"""

_HISTORY = """
CREATE TABLE set_history(
  set_id INTEGER PRIMARY KEY, checked_at INTEGER NOT NULL, sound_at INTEGER, unsound_since_at INTEGER,
  report TEXT NOT NULL
);
"""

_PARTS = """
CREATE TABLE partials(
  name TEXT PRIMARY KEY, set_id INTEGER NOT NULL, uri TEXT NOT NULL, href TEXT NOT NULL, hash TEXT,
  validator TEXT NOT NULL, total INTEGER NOT NULL, began_at INTEGER NOT NULL, boot TEXT NOT NULL
) WITHOUT ROWID;
"""
"""Beginnings of long bodies, kept in `tmp` over runs: of which resource, asked for where, by which validator."""

_REMOVALS = "ALTER TABLE intents ADD COLUMN removal INTEGER NOT NULL DEFAULT 0;"

_UNCONFIRMED = "CREATE INDEX resources_newer ON resources(set_id) WHERE newer"

_KEPT_LINKS = """
ALTER TABLE failures RENAME COLUMN mirrors TO links;
UPDATE failures SET links = (
  SELECT json_group_array(json_object('rel', 'duplicate', 'href', m.value)) FROM json_each(failures.links) AS m
) WHERE links IS NOT NULL;
"""
"""What were the URIs of mirrors are links by now, as those of any other relation may be."""

_STATED = """
ALTER TABLE resources ADD COLUMN loc TEXT;
ALTER TABLE resources ADD COLUMN type TEXT;
ALTER TABLE resources ADD COLUMN encoding TEXT;
ALTER TABLE resources ADD COLUMN links TEXT;
ALTER TABLE resources ADD COLUMN extra TEXT;
ALTER TABLE resources ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE failures ADD COLUMN extra TEXT;
"""
"""What the source states of a resource that is held, for whoever publishes the copy (DST-S9): `loc` where it is not
`uri`, `links` and `extra` (attributes of other namespaces) as JSON. `recovered`: what lies there after a killed run,
and no list has confirmed it."""

_JOURNALED = (
    "uri, path, size, mtime_ns, digest, listed_hash, listed_length, lastmod, newer, loc, type, encoding, links, extra,"
    " recovered"
)
_OLD, _NEW = (", ".join(f"{side}.{name.strip()}" for name in _JOURNALED.split(",")) for side in ("old", "new"))


def _noting(side: str) -> str:
    return f"""BEGIN
  INSERT INTO journal(set_id, path) VALUES ({side}.set_id, {side}.path);
  DELETE FROM journal WHERE seq <= last_insert_rowid() - {JOURNAL_ENTRIES};
END;"""  # noqa: S608  our own names


_JOURNAL = f"""
CREATE TABLE journal(seq INTEGER PRIMARY KEY, set_id INTEGER NOT NULL, path BLOB NOT NULL);
INSERT OR REPLACE INTO facts(name, value) VALUES ('{JOURNAL_ID}', lower(hex(randomblob(16))));
CREATE TRIGGER journal_placed AFTER INSERT ON resources WHEN new.path IS NOT NULL {_noting("new")}
CREATE TRIGGER journal_changed AFTER UPDATE OF {_JOURNALED} ON resources
  WHEN new.path IS NOT NULL AND ({_OLD}) IS NOT ({_NEW}) {_noting("new")}
CREATE TRIGGER journal_moved AFTER UPDATE OF path ON resources
  WHEN old.path IS NOT NULL AND old.path IS NOT new.path {_noting("old")}
CREATE TRIGGER journal_forgotten AFTER DELETE ON resources WHEN old.path IS NOT NULL {_noting("old")}
"""  # noqa: S608  our own names
"""Every way by which a row of `resources` changes is noted, also those of later versions and of a person's hand."""

_REPRESENTATIONS = """
CREATE TABLE representations(
  set_id INTEGER NOT NULL, generic TEXT NOT NULL, uri TEXT NOT NULL, PRIMARY KEY(set_id, generic)
) WITHOUT ROWID;
CREATE INDEX representations_uri ON representations(set_id, uri);
"""

_DESCRIPTIONS = """
CREATE TABLE descriptions(
  set_id INTEGER NOT NULL, content TEXT NOT NULL, record TEXT NOT NULL, by_record INTEGER NOT NULL,
  PRIMARY KEY(set_id, content, record, by_record)
) WITHOUT ROWID;
CREATE INDEX descriptions_record ON descriptions(set_id, record, by_record);
CREATE TABLE listing(
  set_id INTEGER NOT NULL, uri TEXT NOT NULL, loc TEXT, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT,
  encoding TEXT, links TEXT, extra TEXT, refused INTEGER NOT NULL, at INTEGER, latest INTEGER, exact INTEGER,
  is_change INTEGER NOT NULL,
  PRIMARY KEY(set_id, uri)
) WITHOUT ROWID;
CREATE TABLE released(set_id INTEGER NOT NULL, uri TEXT NOT NULL, PRIMARY KEY(set_id, uri)) WITHOUT ROWID;
"""
"""For sets of which resources are chosen by links (`sync/linked_resources.py`): what is listed, chosen or not."""

_DELETED = "CREATE INDEX resources_deleted ON resources(set_id, changed_at) WHERE path IS NULL"
"""What was deleted is counted and forgotten without a look at what is held."""

_PUSHED = """
CREATE TABLE pushed(set_id INTEGER NOT NULL, uri TEXT NOT NULL, at INTEGER, was_known INTEGER NOT NULL,
  changed_at INTEGER, doomed_at INTEGER, PRIMARY KEY(set_id, uri)) WITHOUT ROWID;
"""
_NO_PUSHED = "INSERT INTO facts SELECT DISTINCT 'pushed ' || set_id, 'ahead' FROM pushed; DROP TABLE pushed;"

_ONE_FORM = """
UPDATE sets SET offer = json_set(
  json_remove(offer, '$.resource_list', '$.change_list', '$.others'), '$.documents', json_patch(
    json_patch('{}', json_object('resourcelist', offer ->> 'resource_list', 'changelist', offer ->> 'change_list')),
    (SELECT json_group_object(value ->> 0, value ->> 1) FROM json_each(sets.offer, '$.others'))))
WHERE json_type(offer, '$.documents') IS NULL;
UPDATE sets SET position = json_object('time', coalesce(
  (SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'gap of set ' || sets.id), baseline_at))
WHERE hole_until IS NOT NULL;
ALTER TABLE sets DROP COLUMN hole_until;
"""
"""An offer is a mapping by capability; gaps that were passed over are none: the copy is where it was before."""

_LISTING_ALONE = """
DROP TABLE representations; DROP TABLE descriptions; DROP TABLE released;
UPDATE sets SET scope = scope || ' ' WHERE json_array_length(scope) = 7;
"""
"""Where alternates are preferred all is read anew, as by another choice: what is listed was not remembered."""

SCHEMA = Schema(
    0x48577331,
    (
        _FIRST,
        _REFUSALS,
        _HISTORY,
        _PARTS,
        _REMOVALS,
        _UNCONFIRMED,
        _KEPT_LINKS,
        _STATED,
        _JOURNAL,
        _REPRESENTATIONS,
        _DESCRIPTIONS,
        _DELETED,
        _PUSHED,
        _NO_PUSHED,
        _ONE_FORM,
        "DROP TABLE partials",
        _LISTING_ALONE,
    ),
)
"""A row of `resources` with `path` NULL is a tombstone (DST-B2): its URI was deleted at `changed_at`."""


# what is held, and the journal, read while a destination writes. Nothing is written, but for a migration from an older
# version where no run is at work. Every read is one transaction, and neither it nor the run that writes
# ever waits for the other.

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
    is_whole: int  # whether a baseline has come to its end


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
    unconfirmed: int  # whether no list confirms these octets: newer than listed, or found after a killed run


class JournalEnd(msgspec.Struct, frozen=True):
    """The end of the journal of a state: its id, its newest entry (0: none), and the oldest that is still kept."""

    id: str
    last: int
    first: int
    path: bytes | None = None  # the path of the newest entry


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


def noted_counts(t: Transaction, seq: int) -> dict[int, int]:
    """The sets that entries of the journal after one are of, and how many these are."""
    return dict(t.rows("SELECT set_id, count(*) FROM journal WHERE seq > ? GROUP BY set_id", (seq,)))


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


class NotificationChannel(NamedTuple):
    """A channel of a set as its Capability List, whose URI is `identity`, advertises it (RS-CH-05).

    `kind` is `change-notification` or `framework-notification`.
    """

    kind: Kind
    identity: str
    topic: str
    hubs: tuple[str, ...] = ()


_LOCK_FILE: Final = "push.lock"
_LOCK_SECONDS: Final = 1.0
"""Who only looks holds it for a moment."""


def lock_as_follower(folder: Path) -> int | None:
    """Hold the lock until the descriptor is closed; None where another process follows, or no file can be made."""
    try:
        return waited_for(lock_exclusive, folder / _LOCK_FILE, _LOCK_SECONDS)
    except (LockHeld, OSError):
        return None


def without_lock(folder: Path) -> None:
    """Leave no lock, by which the copy would seem to be followed by nobody: a process of many copies holds none."""
    with contextlib.suppress(OSError):
        (folder / _LOCK_FILE).unlink(missing_ok=True)


def is_followed(folder: Path) -> bool | None:
    """Whether a process follows the copy whose state is in `folder`; None: that cannot be seen."""
    try:
        descriptor = lock_shared(folder / _LOCK_FILE)
    except LockHeld:
        return True
    except OSError:
        return None
    os.close(descriptor)
    return False
