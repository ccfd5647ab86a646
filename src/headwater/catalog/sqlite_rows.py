"""The tables of a catalog in SQLite, and values of the catalog as their rows, and back.

`resource.id` and `change.id` are `set_id << 40 | slot` and `set_id << 40 | seq`: the file itself lies in the order in
which pages and segments are read, so that a page costs the same in a set of any size, and a load in any order of URIs
appends. Only the unique index knows the order of URIs. A migration that was ever released is never changed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from headwater.catalog.interface import Change, Metadata, Resource, SetState
from headwater.catalog.page_filling import Logged, Put, to_microseconds
from headwater.spec.records import ChangeKind, Extra, Link
from headwater.spec.times import from_microseconds, from_optional
from headwater.storage.database import Schema
from headwater.storage.transaction import Row
from headwater.typed_decoding import json_decoder

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


CHANGES = {1: ChangeKind.CREATED, 2: ChangeKind.UPDATED, 3: ChangeKind.DELETED}
_CHANGE_NUMBERS = {change: number for number, change in CHANGES.items()}

RESOURCE_COLUMNS = "lastmod_us, hash, length, type, more, uri, memo, page, seq"
CHANGE_COLUMNS = "lastmod_us, hash, length, type, more, id, at_us, uri, change"
PAGE_COLUMNS = "number, count, weight, touched, rendered, at_us, completed_us, stale_us"
SEGMENT_COLUMNS = "number, first, last, from_us, weight, until_us"
SET_COLUMNS = "name, opened_us, last_seq, last_us, count, notes, state_version"


class More(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attributes that few resources have."""

    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()


_to_json = msgspec.json.Encoder().encode
_from_json = json_decoder(More)


def _described(metadata: Metadata) -> Row:
    """The columns lastmod_us, hash, length, type and more, which is JSON of the rare attributes where there are any."""
    lastmod = metadata.lastmod
    lastmod_us = None if lastmod is None else to_microseconds(lastmod)
    if metadata.links or metadata.extra or metadata.encoding is not None or metadata.changefreq is not None:
        links = tuple(  # times as JSON keeps them exactly: of no subclass, in UTC
            link
            if link.modified is None
            else msgspec.structs.replace(link, modified=from_microseconds(to_microseconds(link.modified)))
            for link in metadata.links
        )
        rare = More(encoding=metadata.encoding, changefreq=metadata.changefreq, links=links, extra=metadata.extra)
        return lastmod_us, metadata.hash, metadata.length, metadata.type, _to_json(rare)
    return lastmod_us, metadata.hash, metadata.length, metadata.type, None


def metadata_of(
    lastmod_us: int | None, hash_: str | None, length: int | None, type_: str | None, more: Any
) -> Metadata:
    """The metadata that the five columns keep."""
    lastmod = None if lastmod_us is None else from_microseconds(lastmod_us)
    if more is None:
        return Metadata(lastmod=lastmod, hash=hash_, length=length, type=type_)
    return Metadata(lastmod=lastmod, hash=hash_, length=length, type=type_, **asdict(_from_json(more)))


def fresh_row(base: int, set_id: int, put: Put) -> Row:
    """A row for INSERT INTO resource, in the order of its columns."""
    event, place = put.event, put.place
    lastmod_us, hash_, length, type_, more = _described(event.metadata)
    slot, uri, memo = base | place.slot, event.uri, event.memo or None
    return slot, set_id, uri, place.page, place.weight, put.seq, lastmod_us, hash_, length, type_, more, memo


def kept_row(base: int, put: Put) -> Row:
    """Values for UPDATE resource … WHERE id = ?."""
    event, place = put.event, put.place
    return place.weight, put.seq, *_described(event.metadata), event.memo or None, base | place.slot


def change_row(base: int, logged: Logged) -> Row:
    """A row for INSERT INTO change, in the order of its columns."""
    what = base | logged.seq, logged.at_us, logged.uri, _CHANGE_NUMBERS[logged.change]
    return *what, *_described(logged.metadata)


def resource_of(row: Row) -> Resource:
    """From RESOURCE_COLUMNS."""
    lastmod_us, hash_, length, type_, more, uri, memo, page, seq = row
    return Resource(uri, metadata_of(lastmod_us, hash_, length, type_, more), memo or b"", page, seq)


def recorded_of(row: Row, base: int) -> Change:
    """From CHANGE_COLUMNS."""
    *described, id_, at_us, uri, change = row
    return Change(id_ - base, from_microseconds(at_us), uri, CHANGES[change], metadata_of(*described))


def state_of(row: Row, page_count: int) -> SetState:
    """From SET_COLUMNS."""
    name, opened_us, last_seq, last_us, count, notes, state_version = row
    return SetState(
        name=name,
        opened_at=from_optional(opened_us),
        last_seq=last_seq,
        last_at=from_optional(last_us),
        count=count,
        page_count=page_count,
        notes=notes,
        state_version=state_version,
    )
