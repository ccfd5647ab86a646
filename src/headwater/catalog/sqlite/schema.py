"""The tables of a catalog in SQLite: one script a version, never changed once released.

`resource.id` and `change.id` are `set_id << 40 | slot` and `set_id << 40 | seq`: the file itself lies in the order in
which pages and segments are read, so that a page costs the same in a set of any size, and a load in any order of URIs
appends. Only the unique index knows the order of URIs.
"""

from __future__ import annotations

from headwater.storage.schema import Schema

SLOT_BITS = 40
"""Bits of a slot or a sequence number within an id: a million million of each, for eight million sets."""

_VERSION_1 = """
CREATE TABLE "set" (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  opened_us INTEGER,                      -- NULL while it is loading
  last_seq INTEGER NOT NULL DEFAULT 0,
  last_us INTEGER,                        -- time of the newest change or mark
  count INTEGER NOT NULL DEFAULT 0,
  next_slot INTEGER NOT NULL DEFAULT 0,
  notes BLOB NOT NULL DEFAULT x''
) STRICT;

CREATE TABLE resource (
  id INTEGER PRIMARY KEY,                 -- set_id << 40 | slot
  set_id INTEGER NOT NULL,
  uri TEXT NOT NULL,
  page INTEGER NOT NULL,
  weight INTEGER NOT NULL,
  seq INTEGER NOT NULL,                   -- of the last change; 0: as loaded
  lastmod_us INTEGER,
  hash TEXT,
  length INTEGER,
  type TEXT,
  more BLOB,                              -- JSON of the rare attributes, NULL when there are none
  memo BLOB
) STRICT;
CREATE UNIQUE INDEX resource_uri ON resource (set_id, uri);

CREATE TABLE page (
  set_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  first_slot INTEGER NOT NULL,            -- its slots end where those of the next page begin
  count INTEGER NOT NULL,
  weight INTEGER NOT NULL,
  touched INTEGER NOT NULL,
  rendered INTEGER NOT NULL DEFAULT 0,
  at_us INTEGER,
  completed_us INTEGER,
  stale_us INTEGER,
  PRIMARY KEY (set_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE change (
  id INTEGER PRIMARY KEY,                 -- set_id << 40 | seq
  at_us INTEGER NOT NULL,
  uri TEXT NOT NULL,
  change INTEGER NOT NULL,                -- 1 created, 2 updated, 3 deleted
  lastmod_us INTEGER,
  hash TEXT,
  length INTEGER,
  type TEXT,
  more BLOB
) STRICT;

CREATE TABLE segment (
  set_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  from_us INTEGER NOT NULL,
  until_us INTEGER,                       -- NULL: open
  weight INTEGER NOT NULL,
  PRIMARY KEY (set_id, number)
) STRICT, WITHOUT ROWID;
"""

_VERSION_2 = """
CREATE TABLE state (                      -- not without rowid: a look-up would read every large value on its way
  id INTEGER PRIMARY KEY,
  set_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  rank INTEGER NOT NULL,
  value BLOB NOT NULL,
  UNIQUE (set_id, kind, key)
) STRICT;
CREATE INDEX state_rank ON state (kind, set_id, rank, key);
ALTER TABLE "set" ADD COLUMN state_version INTEGER NOT NULL DEFAULT 0;
"""

SCHEMA = Schema(application_id=0x48574361, migrations=(_VERSION_1, _VERSION_2))
