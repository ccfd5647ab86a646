"""The index of packs, in SQLite: which pack has the octets of which SHA-256, and where.

Rows have ascending numbers in the order in which they came: new ones go to the end of the table, and those of a pack
lie within a range. They are found by the first eight octets of their digests, which keeps the part of the file small
that is written in no order; of two versions that have these in common, packs have one. Every function is part of a
transaction that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from headwater.storage.database import Schema
from headwater.storage.sqlite.transaction import Transaction

FILE: Final = "index.sqlite"
SCHEMA: Final = Schema(
    application_id=0x48575650,
    migrations=(
        """
CREATE TABLE packs(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, octets INTEGER NOT NULL, live INTEGER NOT NULL,
  first INTEGER NOT NULL, last INTEGER NOT NULL, is_closed INTEGER NOT NULL
);
CREATE TABLE versions(
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL, pack INTEGER NOT NULL, start INTEGER NOT NULL,
  octets INTEGER NOT NULL, used_us INTEGER NOT NULL
);
CREATE UNIQUE INDEX versions_by_digest ON versions(substr(digest, 1, 8));
""",
    ),
)

_PACK = "SELECT id, name, octets, live, first, last FROM packs"
_PLACE = (
    "SELECT name, start, versions.octets FROM versions JOIN packs ON packs.id = pack"
    " WHERE substr(digest, 1, 8) = substr(?1, 1, 8) AND digest = ?1"
)
_VERSION = "SELECT id, digest, pack, start, octets, used_us FROM versions"

VersionRow = tuple[int, bytes, int, int, int, int]
"""A row as it is written: the values of a PackedVersion."""


class Pack(msgspec.Struct, frozen=True):
    """One pack: the name of its file, how many octets of it count, how many of these are of `live` records.

    Its rows are from `first` to `last`, among those of others.
    """

    id: int
    name: str
    octets: int
    live: int
    first: int
    last: int


class PackedVersion(NamedTuple):
    """One version in a pack: its octets begin at `start`."""

    id: int
    digest: bytes
    pack: int
    start: int
    octets: int
    used_us: int


class VersionPlace(NamedTuple):
    """Where the octets of a version are: the name of the pack, their start and number."""

    pack: str
    start: int
    octets: int


def place_of(tx: Transaction, digest: bytes) -> VersionPlace | None:
    """Where a version is."""
    row = tx.one(_PLACE, (digest,))
    return None if row is None else VersionPlace(*row)


def packs(tx: Transaction) -> list[Pack]:
    """All packs, oldest first."""
    return [Pack(*row) for row in tx.fetch(f"{_PACK} ORDER BY id")]


def pack_of(tx: Transaction, number: int) -> Pack | None:
    """The pack with this number."""
    row = tx.one(f"{_PACK} WHERE id = ?", (number,))
    return None if row is None else Pack(*row)


def open_pack(tx: Transaction) -> Pack | None:
    """The one that is appended to."""
    row = tx.one(f"{_PACK} WHERE NOT is_closed ORDER BY id DESC LIMIT 1")
    return None if row is None else Pack(*row)


def has_packs(tx: Transaction) -> bool:
    """Whether there is a pack."""
    return tx.one("SELECT 1 FROM packs LIMIT 1") is not None


def add_pack(tx: Transaction, name: str, first: int, *, is_closed: bool) -> Pack:
    """Note an empty pack; nothing is appended to one that is closed, but by who has made it."""
    sql = "INSERT INTO packs(name, octets, live, first, last, is_closed) VALUES(?, 0, 0, ?, ?, ?) RETURNING id"
    number = int(tx.value(sql, (name, first, first, is_closed)))
    return Pack(number, name, 0, 0, first, first)


def note_appended(tx: Transaction, pack: Pack, octets: int, live: int, last: int) -> None:
    """A pack has so many octets now, so many more live ones, and rows up to this number."""
    tx.run("UPDATE packs SET octets = ?, live = live + ?, last = ? WHERE id = ?", (octets, live, last, pack.id))


def note_dead(tx: Transaction, dead: dict[int, int]) -> None:
    """So many octets of records of packs no longer count, by the packs' numbers."""
    tx.many("UPDATE packs SET live = live - ? WHERE id = ?", [(octets, pack) for pack, octets in dead.items()])


def forget_pack(tx: Transaction, pack: Pack) -> None:
    """A pack without live records is gone."""
    tx.run("DELETE FROM packs WHERE id = ?", (pack.id,))


def next_id(tx: Transaction) -> int:
    """The number of the next row."""
    last = int(tx.value("SELECT coalesce(max(id), 0) FROM versions"))
    return max(last + 1, int(tx.value("SELECT coalesce(max(last), 1) FROM packs")))


def add_versions(tx: Transaction, rows: Sequence[VersionRow]) -> bool:
    """Note versions that have been appended; whether none of them was there already."""
    before = tx.value("SELECT total_changes()")
    tx.many("INSERT OR IGNORE INTO versions VALUES(?, ?, ?, ?, ?, ?)", rows)
    return bool(tx.value("SELECT total_changes()") == before + len(rows))


def find_versions(tx: Transaction, digests: Iterable[bytes]) -> list[PackedVersion]:
    """Those of these digests that are there."""
    sql = f"{_VERSION} WHERE substr(digest, 1, 8) = substr(?1, 1, 8) AND digest = ?1"
    return [PackedVersion(*row) for row in tx.rows_each(sql, ((one,) for one in digests))]


def of_same_key(tx: Transaction, digests: Iterable[bytes]) -> set[bytes]:
    """Those of these digests that share their first octets with another one that is there."""
    sql = "SELECT ?1 FROM versions WHERE substr(digest, 1, 8) = substr(?1, 1, 8) AND digest <> ?1"
    return {row[0] for row in tx.rows_each(sql, ((one,) for one in digests))}


def touch_versions(tx: Transaction, rows: Iterable[PackedVersion], used_us: int) -> None:
    """A change has named these at this time."""
    tx.many("UPDATE versions SET used_us = ? WHERE id = ?", [(used_us, one.id) for one in rows])


def remove_versions(tx: Transaction, rows: Iterable[PackedVersion]) -> None:
    """These are no longer kept where they are."""
    tx.many("DELETE FROM versions WHERE id = ?", [(one.id,) for one in rows])


def versions_after(tx: Transaction, last: int, limit: int) -> list[PackedVersion]:
    """Up to `limit` versions after the row with this number, in the order of their rows."""
    return [PackedVersion(*row) for row in tx.fetch(f"{_VERSION} WHERE id > ? ORDER BY id LIMIT ?", (last, limit))]


def versions_of(tx: Transaction, pack: Pack, limit: int) -> list[PackedVersion]:
    """Up to `limit` versions of a pack, in the order of their octets."""
    sql = f"{_VERSION} WHERE id BETWEEN ? AND ? AND pack = ? ORDER BY id LIMIT ?"
    return [PackedVersion(*row) for row in tx.fetch(sql, (pack.first, pack.last, pack.id, limit))]
