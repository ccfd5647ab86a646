"""The tables of a hub's state."""

from __future__ import annotations

from typing import Final

from headwater.storage.database import Schema

_FIRST: Final = """
CREATE TABLE topics(
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, url TEXT NOT NULL,
  last_seq INTEGER NOT NULL DEFAULT 0, last_at REAL, digest BLOB, changed_at REAL, is_trusted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX changed_topics ON topics(changed_at) WHERE changed_at IS NOT NULL;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL,
  type TEXT NOT NULL, links TEXT NOT NULL, octets INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(topic_id, seq)
);
CREATE TABLE subscriptions(
  id INTEGER PRIMARY KEY AUTOINCREMENT, topic_id INTEGER NOT NULL, topic TEXT NOT NULL,
  callback_key TEXT NOT NULL, callback TEXT NOT NULL, host TEXT NOT NULL,
  secret BLOB, expires_at REAL NOT NULL, position INTEGER NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0, due_at REAL, error TEXT,
  UNIQUE(topic_id, callback_key)
);
CREATE INDEX due_subscriptions ON subscriptions(due_at) WHERE due_at IS NOT NULL;
CREATE INDEX leases ON subscriptions(expires_at);
CREATE TABLE hosts(host TEXT PRIMARY KEY, subscriptions INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER subscribed AFTER INSERT ON subscriptions BEGIN
  INSERT INTO hosts VALUES(new.host, 1) ON CONFLICT DO UPDATE SET subscriptions = subscriptions + 1;
END;
CREATE TRIGGER unsubscribed AFTER DELETE ON subscriptions BEGIN
  UPDATE hosts SET subscriptions = subscriptions - 1 WHERE host = old.host;
  DELETE FROM hosts WHERE host = old.host AND subscriptions < 1;
END;
CREATE TABLE intents(
  id INTEGER PRIMARY KEY AUTOINCREMENT, is_unsubscribe INTEGER NOT NULL,
  topic_key TEXT NOT NULL, topic TEXT NOT NULL, callback_key TEXT NOT NULL, callback TEXT NOT NULL,
  host TEXT NOT NULL, lease_seconds INTEGER NOT NULL, secret BLOB,
  tries INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL, denial TEXT
);
CREATE INDEX intents_of_pair ON intents(topic_key, callback_key);
"""

SCHEMA = Schema(application_id=0x48574842, migrations=(_FIRST,))
FILE: Final = "hub.sqlite"
