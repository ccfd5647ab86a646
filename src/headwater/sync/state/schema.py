"""The temporary tables of a run: what was listed, what is to be done.

They are tables of the connection that writes the state (`copies/schema.py`), on disk and not in memory, so that a
difference is one query and a killed run leaves nothing behind.
"""

from __future__ import annotations

PARTIAL_PREFIX = "part-"
"""How the names of partial downloads begin: nothing else in `tmp` of a killed run is of use."""

LISTED = (
    "uri TEXT, loc TEXT, lastmod INTEGER, length INTEGER, hash TEXT, type TEXT, encoding TEXT, links TEXT, extra TEXT"
)
"""What a list says of a resource, in each of the tables below."""

LISTED_COLUMNS = "uri, loc, lastmod, length, hash, type, encoding, links, extra"
"""The names of these columns."""

_CACHE_KIB = 16_384
"""Of pages of these tables in memory: with SQLite's own 2 MB a baseline of 20,000 resources reads and writes pages
25,000 times."""

TEMPORARY = f"""
PRAGMA temp.cache_size = -{_CACHE_KIB};
CREATE TEMP TABLE IF NOT EXISTS listed(
  n INTEGER PRIMARY KEY, {LISTED}, refused INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS changed(
  n INTEGER PRIMARY KEY, list INTEGER, ordinal INTEGER, {LISTED}, change TEXT, at INTEGER, latest INTEGER,
  exact INTEGER, stated INTEGER, refused INTEGER, pending INTEGER, asked TEXT,
  folded INTEGER
);
CREATE TEMP TABLE IF NOT EXISTS refused(n INTEGER PRIMARY KEY, uri TEXT, change TEXT, at INTEGER, refused INTEGER);
CREATE INDEX IF NOT EXISTS temp.changed_place ON changed(list, ordinal);
CREATE TEMP TABLE IF NOT EXISTS work(
  n INTEGER PRIMARY KEY, {LISTED}, path BLOB, held INTEGER, changed_at INTEGER, known_at INTEGER, etag TEXT,
  last_modified TEXT, tries INTEGER, attempt_json TEXT, round INTEGER NOT NULL DEFAULT 0, reason TEXT, UNIQUE(uri)
);
CREATE INDEX IF NOT EXISTS temp.work_path ON work(path);
CREATE INDEX IF NOT EXISTS temp.work_round ON work(round) WHERE round > 0;
CREATE TEMP TABLE IF NOT EXISTS represented(generic TEXT PRIMARY KEY, uri TEXT, n INTEGER);
CREATE INDEX IF NOT EXISTS temp.represented_uri ON represented(uri);
CREATE INDEX IF NOT EXISTS temp.represented_n ON represented(n);
CREATE TEMP TABLE IF NOT EXISTS described(
  content TEXT, record TEXT, by_record INTEGER, PRIMARY KEY(content, record, by_record)
) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS restated(uri TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS aside(uri TEXT PRIMARY KEY, kept BLOB, work BLOB) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS tried(uri TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS folders(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS folded(name BLOB PRIMARY KEY, path BLOB NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS stamps(id INTEGER PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS deletions(id INTEGER PRIMARY KEY, at INTEGER);
CREATE TEMP TABLE IF NOT EXISTS untold(uri TEXT PRIMARY KEY) WITHOUT ROWID;
"""
