"""The schema of a destination's state, DEST/.headwater/state.sqlite: sets, resources, failures, runs.

Tables that live only as long as one run (what was listed, what is to be done) are temporary tables of the same
connection, on disk and not in memory, so that a difference is one query and a killed run leaves nothing behind.
"""

from __future__ import annotations

from headwater.storage.schema import Schema

PARTIAL_PREFIX = "part-"
"""How the names of partial downloads begin: nothing else in `tmp` of a killed run is of use."""

FOLDER = ".headwater"

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

SCHEMA = Schema(0x48577331, (_FIRST, _REFUSALS, _HISTORY, _PARTS, _REMOVALS, _UNCONFIRMED, _KEPT_LINKS))
"""A row of `resources` with `path` NULL is a tombstone (DST-B2): its URI was deleted at `changed_at`."""

_LISTED = "uri TEXT, loc TEXT, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT, links TEXT"
"""What a list says of a resource, in each of the tables below."""

TEMPORARY = f"""
CREATE TEMP TABLE IF NOT EXISTS listed(
  n INTEGER PRIMARY KEY, {_LISTED}, refused INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS changed(
  n INTEGER PRIMARY KEY, list INTEGER, ordinal INTEGER, {_LISTED}, change TEXT, at INTEGER, latest INTEGER,
  exact INTEGER, refused INTEGER, pending INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS refused(n INTEGER PRIMARY KEY, uri TEXT, change TEXT, at INTEGER, refused INTEGER);
CREATE INDEX IF NOT EXISTS temp.changed_place ON changed(list, ordinal);
CREATE TEMP TABLE IF NOT EXISTS work(
  n INTEGER PRIMARY KEY, {_LISTED}, path BLOB, held INTEGER, changed_at INTEGER, known_at INTEGER, etag TEXT,
  last_modified TEXT, tries INTEGER, attempt_json TEXT, round INTEGER NOT NULL DEFAULT 0, reason TEXT, UNIQUE(uri)
);
CREATE INDEX IF NOT EXISTS temp.work_path ON work(path);
CREATE INDEX IF NOT EXISTS temp.work_round ON work(round) WHERE round > 0;
CREATE TEMP TABLE IF NOT EXISTS aside(uri TEXT PRIMARY KEY, kept BLOB, work BLOB) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS tried(uri TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS folders(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS deletions(id INTEGER PRIMARY KEY, at INTEGER);
CREATE TEMP TABLE IF NOT EXISTS packed(
  place INTEGER PRIMARY KEY, name TEXT, uri TEXT, hash TEXT, length INTEGER, lastmod INTEGER, at INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS parts(n INTEGER PRIMARY KEY, uri TEXT UNIQUE, at INTEGER, depth INTEGER);
"""
