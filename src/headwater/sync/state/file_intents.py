"""The table `intents`: a write-ahead note of the files that are about to be placed or removed."""

from __future__ import annotations

import msgspec

from headwater.storage.sqlite.transaction import Transaction
from headwater.typed_decoding import from_msgpack


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
    """A note that is left of an interrupted run: the files it was about to place or remove."""

    number: int
    set_id: int
    files: list[tuple[str, bytes]]
    removal: bool


def intents(transaction: Transaction) -> list[FileIntent]:
    """The notes that are left."""
    rows = transaction.rows("SELECT id, set_id, rows, removal FROM intents ORDER BY id")
    return [
        FileIntent(number, set_id, from_msgpack(files, list[tuple[str, bytes]]), bool(removal))
        for number, set_id, files, removal in rows
    ]
