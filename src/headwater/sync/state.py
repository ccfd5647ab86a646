"""What a destination remembers, in DEST/.headwater/state.sqlite: sets, positions, resources, failures, runs.

Tables that live only as long as one run (what was listed, what is to be done) are temporary tables of the same
connection, on disk and not in memory, so that a difference is one query and a killed run leaves nothing behind.
"""

from __future__ import annotations

import msgspec

from headwater.storage.database import Row, Transaction
from headwater.storage.schema import Schema
from headwater.sync.lists.position import Position

PARTIAL_PREFIX = "part-"
"""How the names of partial downloads begin: nothing else in `tmp` of a killed run is of use."""

FOLDER = ".headwater"
IN_PUBLIC = "host seen in public"
"""A fact: the host of the source's address, where it was seen at a public address (DST-S12)."""

RESOURCE_LIST, CHANGE_LIST = "resourcelist", "changelist"
"""The capabilities that a copy is made from, as a Capability List names them."""

SOURCE = 0
"""The number of the "set" whose documents are those of the source as a whole."""

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

SCHEMA = Schema(0x48577331, (_FIRST, _REFUSALS, _HISTORY, _PARTS, _REMOVALS, _UNCONFIRMED))
"""A row of `resources` with `path` NULL is a tombstone (DST-B2): its URI was deleted at `changed_at`."""

TEMPORARY = """
CREATE TEMP TABLE IF NOT EXISTS listed(
  n INTEGER PRIMARY KEY, uri TEXT, loc TEXT, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT,
  mirrors TEXT, refused INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS changed(
  n INTEGER PRIMARY KEY, list INTEGER, ordinal INTEGER, uri TEXT, loc TEXT, change TEXT, at INTEGER, latest INTEGER,
  exact INTEGER, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT, mirrors TEXT, refused INTEGER,
  pending INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS refused(n INTEGER PRIMARY KEY, uri TEXT, change TEXT, at INTEGER, refused INTEGER);
CREATE INDEX IF NOT EXISTS temp.changed_place ON changed(list, ordinal);
CREATE TEMP TABLE IF NOT EXISTS work(
  n INTEGER PRIMARY KEY, uri TEXT UNIQUE, loc TEXT, path BLOB, held INTEGER, lastmod INTEGER, length INTEGER, hash TEXT,
  type TEXT, encoding TEXT, mirrors TEXT, changed_at INTEGER, known_at INTEGER, etag TEXT, last_modified TEXT,
  tries INTEGER, attempt_json TEXT, round INTEGER NOT NULL DEFAULT 0, reason TEXT
);
CREATE INDEX IF NOT EXISTS temp.work_path ON work(path);
CREATE INDEX IF NOT EXISTS temp.work_round ON work(round) WHERE round > 0;
CREATE TEMP TABLE IF NOT EXISTS aside(uri TEXT PRIMARY KEY, kept BLOB, work BLOB) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS tried(uri TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS folders(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS doomed(id INTEGER PRIMARY KEY, at INTEGER);
CREATE TEMP TABLE IF NOT EXISTS parts(n INTEGER PRIMARY KEY, uri TEXT UNIQUE, at INTEGER, depth INTEGER);
"""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the documents of one set are."""

    identity: str
    """The Capability List's URI; where there is none, the URI of the list itself."""

    name: str
    capability_list: str | None = None
    description: str | None = None
    documents: dict[str, str] = {}
    """The URI of the document of each capability, by the capability as a Capability List names it."""

    is_sitemap: bool = False

    @property
    def resource_list(self) -> str | None:
        """Its Resource List, or the index of one."""
        return self.documents.get(RESOURCE_LIST)

    @property
    def change_list(self) -> str | None:
        """Its Change List, or the index of one."""
        return self.documents.get(CHANGE_LIST)

    def with_document(self, capability: str, uri: str | None) -> Offer:
        """The same with another document of this capability, or with none."""
        documents = {name: where for name, where in self.documents.items() if name != capability}
        if uri is not None:
            documents[capability] = uri
        return msgspec.structs.replace(self, documents=documents)


class _EarlierOffer(msgspec.Struct):
    """What an offer was written down as before there were capabilities other than two."""

    resource_list: str | None = None
    change_list: str | None = None
    others: tuple[tuple[str, str], ...] = ()


def decode_offer(encoded: str) -> Offer:
    """An offer as it is written down, also by an earlier version."""
    offer = msgspec.json.decode(encoded, type=Offer)
    if offer.documents:
        return offer
    earlier = msgspec.json.decode(encoded, type=_EarlierOffer)
    lists = {RESOURCE_LIST: earlier.resource_list, CHANGE_LIST: earlier.change_list}
    documents = {name: uri for name, uri in lists.items() if uri is not None}
    return msgspec.structs.replace(offer, documents=documents | dict(earlier.others))


class Move(msgspec.Struct, frozen=True):
    """A set's documents are elsewhere by now, and what is held of it is still to be taken along (DST-F10)."""

    origin: Offer
    """Where they were."""

    said: bool = False
    """Whether the user says so; else a permanent redirect, or what is listed there."""


class SetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One set as remembered. With a `move`, `offer` is what is offered at the new place, and is not remembered yet."""

    id: int
    name: str
    folder: str
    offer: Offer
    base: str | None = None
    scope: str | None = None
    baseline_at: int | None = None
    baseline_uri: str | None = None
    baseline_done: bool = False
    hole_until: int | None = None
    position: Position | None = None
    move: Move | None = None


_SET_COLUMNS = "id, name, folder, offer, base, scope, baseline_at, baseline_uri, baseline_done, hole_until, position"


def set_of(row: Row) -> SetRow:
    """One row of `sets` as a value."""
    return SetRow(
        id=row[0],
        name=row[1],
        folder=row[2],
        offer=decode_offer(row[3]),
        base=row[4],
        scope=row[5],
        baseline_at=row[6],
        baseline_uri=row[7],
        baseline_done=bool(row[8]),
        hole_until=row[9],
        position=msgspec.json.decode(row[10], type=Position) if row[10] else None,
    )


def sets(transaction: Transaction) -> list[SetRow]:
    """All sets, in the order in which they were first seen."""
    return [set_of(row) for row in transaction.rows(f"SELECT {_SET_COLUMNS} FROM sets ORDER BY id")]  # noqa: S608


def one_set(transaction: Transaction, set_id: int) -> SetRow:
    """One set as it now is."""
    row = transaction.one(f"SELECT {_SET_COLUMNS} FROM sets WHERE id = ?", (set_id,))  # noqa: S608
    assert row is not None
    return set_of(row)


def add_set(transaction: Transaction, offer: Offer, folder: str) -> SetRow:
    """Remember a set that was not known."""
    transaction.run(
        "INSERT INTO sets(name, folder, identity, offer) VALUES (?, ?, ?, ?)",
        (offer.name, folder, offer.identity, msgspec.json.encode(offer).decode()),
    )
    row = transaction.one("SELECT id FROM sets WHERE identity = ?", (offer.identity,))
    assert row is not None
    return one_set(transaction, row[0])


def keep_offer(transaction: Transaction, set_id: int, offer: Offer) -> None:
    """Remember where the documents of a set now are."""
    transaction.run("UPDATE sets SET offer = ? WHERE id = ?", (msgspec.json.encode(offer).decode(), set_id))


def keep_position(transaction: Transaction, set_id: int, position: Position) -> None:
    """Move the position: the last thing that a step does (DST-F6, DST-F7)."""
    transaction.run("UPDATE sets SET position = ? WHERE id = ?", (msgspec.json.encode(position).decode(), set_id))


def fact(transaction: Transaction, name: str) -> str | None:
    """A remembered fact about the whole copy."""
    value = transaction.value("SELECT value FROM facts WHERE name = ?", (name,))
    return None if value is None else str(value)


def keep_fact(transaction: Transaction, name: str, value: str) -> None:
    """Remember a fact about the whole copy."""
    transaction.run("INSERT OR REPLACE INTO facts(name, value) VALUES (?, ?)", (name, value))


def remember_base(transaction: Transaction, set_id: int, base: str) -> None:
    """Remember that the names of a set were once made with this base: who goes on naming it means the present one."""
    known = former_bases(transaction, set_id)
    keep_fact(transaction, f"former bases {set_id}", msgspec.json.encode(sorted({*known, base})).decode())


def former_bases(transaction: Transaction, set_id: int) -> list[str]:
    """The bases of a set before its source moved (DST-F10)."""
    return msgspec.json.decode(fact(transaction, f"former bases {set_id}") or "[]", type=list[str])


def measure(transaction: Transaction, set_id: int) -> int | None:
    """How many files a set held when deletions were first held back (DST-B4); None where none are."""
    value = fact(transaction, f"held when held back {set_id}")
    return None if value is None else int(value)


def keep_measure(transaction: Transaction, set_id: int, held: int) -> None:
    """Remember how many files a set holds while deletions are held back."""
    keep_fact(transaction, f"held when held back {set_id}", str(held))


def forget_measure(transaction: Transaction, set_id: int) -> None:
    """No deletions are held back any more."""
    transaction.run("DELETE FROM facts WHERE name = ?", (f"held when held back {set_id}",))


class Validators(msgspec.Struct, frozen=True):
    """What a conditional request for a document says (DST-C1)."""

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The request headers."""
        return tuple(
            (name, value)
            for name, value in (("If-None-Match", self.etag), ("If-Modified-Since", self.last_modified))
            if value
        )


def validators(transaction: Transaction, set_id: int, uri: str) -> Validators | None:
    """The validators of a document whose content has been dealt with entirely; None when there are none."""
    row = transaction.one("SELECT etag, last_modified FROM documents WHERE set_id = ? AND uri = ?", (set_id, uri))
    return Validators(row[0], row[1]) if row and (row[0] or row[1]) else None


def all_validators(transaction: Transaction, set_id: int) -> dict[str, Validators]:
    """The validators of all documents that have been dealt with, by URI."""
    rows = transaction.rows("SELECT uri, etag, last_modified FROM documents WHERE set_id = ?", (set_id,))
    return {row[0]: Validators(row[1], row[2]) for row in rows if row[1] or row[2]}


def keep_validators(
    transaction: Transaction,
    set_id: int,
    uri: str,
    etag: str | None,
    modified: str | None,
    moved_to: str | None = None,
) -> None:
    """Remember that this state of a document has been dealt with; set 0 holds those of the source as a whole.

    `moved_to`: where it is permanently redirected to (DST-F10).
    """
    transaction.run(
        "INSERT OR REPLACE INTO documents(set_id, uri, etag, last_modified, moved_to) VALUES (?, ?, ?, ?, ?)",
        (set_id, uri, etag, modified, moved_to),
    )


def keep_moved(transaction: Transaction, set_id: int, uri: str, moved_to: str | None) -> None:
    """Remember where a document is permanently redirected to, and nothing else of it (DST-F10)."""
    transaction.run(
        "INSERT INTO documents(set_id, uri, moved_to) VALUES (?, ?, ?)"
        " ON CONFLICT(set_id, uri) DO UPDATE SET moved_to = excluded.moved_to",
        (set_id, uri, moved_to),
    )


def moved_documents(transaction: Transaction) -> dict[str, str]:
    """Where documents of the source as a whole are permanently redirected to (DST-F10)."""
    query = "SELECT uri, moved_to FROM documents WHERE set_id = ? AND moved_to IS NOT NULL"
    return {row[0]: row[1] for row in transaction.rows(query, (SOURCE,))}


def forget_documents(transaction: Transaction, set_id: int) -> None:
    """Forget all validators of a set: its documents are to be read again."""
    transaction.run("DELETE FROM documents WHERE set_id = ?", (set_id,))


def intend(transaction: Transaction, set_id: int, rows: list[tuple[str, bytes]], *, removal: bool = False) -> int:
    """Note which files (URI, path) are about to be placed or removed, and return the note's number.

    What a killed run, or a power loss, has left of them is found out by the note (`intents`). A file may be placed only
    when the note is on the disk: nobody else would know of it. Of a removal the row knows until it is told.
    """
    transaction.run(
        "INSERT INTO intents(set_id, rows, removal) VALUES (?, ?, ?)",
        (set_id, msgspec.msgpack.encode(rows), int(removal)),
    )
    return int(transaction.value("SELECT last_insert_rowid()"))


class FileIntent(msgspec.Struct, frozen=True):
    """A note of a run that did not come to say what became of these files."""

    number: int
    set_id: int
    files: list[tuple[str, bytes]]
    removal: bool


def intents(transaction: Transaction) -> list[FileIntent]:
    """The notes that are left."""
    rows = transaction.rows("SELECT id, set_id, rows, removal FROM intents ORDER BY id")
    return [
        FileIntent(row[0], row[1], msgspec.msgpack.decode(row[2], type=list[tuple[str, bytes]]), bool(row[3]))
        for row in rows
    ]
