"""The schema of a copy's state, DEST/.headwater/state.sqlite: sets, resources, failures, runs, the journal.

A destination writes it. A source that publishes the copy reads it, and learns of each change by the journal: triggers
note there, in the transaction of every change to a row of `resources`, the path that has another state now.
"""

from __future__ import annotations

from headwater.storage.database import Schema

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
"""Which alternate is copied in place of a resource; with `generic` = `uri` it has an entry of its own."""

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
"""For sets of which resources are chosen by metadata records (`sync/metadata/statements.py`): which record describes
what, and which of the two says so; what is listed, chosen or not; what is held and was chosen once."""

_DELETED = "CREATE INDEX resources_deleted ON resources(set_id, changed_at) WHERE path IS NULL"
"""What was deleted is counted and forgotten without a look at what is held."""

_PUSHED = """
CREATE TABLE pushed(set_id INTEGER NOT NULL, uri TEXT NOT NULL, at INTEGER, was_known INTEGER NOT NULL,
  changed_at INTEGER, doomed_at INTEGER, PRIMARY KEY(set_id, uri)) WITHOUT ROWID;
"""
_NO_PUSHED = "INSERT INTO facts SELECT DISTINCT 'pushed ' || set_id, 'ahead' FROM pushed; DROP TABLE pushed;"

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
    ),
)
"""A row of `resources` with `path` NULL is a tombstone (DST-B2): its URI was deleted at `changed_at`."""
