"""The table `documents`: the validators of documents that have been dealt with, for conditional requests (DST-C1)."""

from __future__ import annotations

import msgspec

from headwater.storage.transaction import Transaction

SOURCE = 0
"""The number of the "set" whose documents are those of the source as a whole."""


class Validators(msgspec.Struct, frozen=True):
    """The validators of a document (`ETag`, `Last-Modified`) for a conditional request (DST-C1)."""

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
    return Validators(*row) if row and any(row) else None


def all_validators(transaction: Transaction, set_id: int) -> dict[str, Validators]:
    """The validators of all documents that have been dealt with, by URI."""
    rows = transaction.rows("SELECT uri, etag, last_modified FROM documents WHERE set_id = ?", (set_id,))
    return {uri: Validators(etag, modified) for uri, etag, modified in rows if etag or modified}


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
    return dict(transaction.rows(query, (SOURCE,)))


def forget_documents(transaction: Transaction, set_id: int) -> None:
    """Forget all validators of a set: its documents are to be read again."""
    transaction.run("DELETE FROM documents WHERE set_id = ?", (set_id,))
