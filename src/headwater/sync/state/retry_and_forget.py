"""`headwater retry` and `headwater forget`: failures and held-back deletions made due, or dropped from the state."""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from headwater.errors import UsageFault
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_tree import printable_path
from headwater.sync.state.facts import forget_measure
from headwater.sync.state.set_rows import SetRow, failure_count, held_back_count, sets

_MOST_SHOWN = 100
_OF_ANY_SET = "set_id IN (SELECT id FROM sets) AND uri = ?"  # by the index, whose first column is the set


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten: how many failures, deletions held back, and sets, and how many files are left unwatched.

    `released` names the first of the files that stay where they are and no longer belong to the copy.
    """

    failures: int = 0
    deletions: int = 0
    sets: tuple[str, ...] = ()
    files: int = 0
    released: tuple[str, ...] = ()


def make_due(t: Transaction, uris: Sequence[str]) -> int:
    """Let the next run try these failures again (all, where none is named), whatever wait was set or asked for.

    Returns how many. Raises UsageFault.
    """
    known = _failing(t, uris)
    if uris:
        _all_known(uris, known)
    clear = "UPDATE failures SET next_at = 0, wait_until = NULL"
    if not uris:
        t.run(clear)
        return int(t.value("SELECT count(*) FROM failures"))
    t.many(clear + " WHERE uri = ?", [(uri,) for uri in uris])
    return sum(known.values())


def forget(t: Transaction, uris: Sequence[str]) -> Forgotten:
    """Forget failures and deletions held back, by URI. No file is removed.

    A resource whose transfer failed is fetched again when the source lists or changes it the next time. A file whose
    deletion was held back stays where it is and no longer belongs to the copy. Raises UsageFault.
    """
    known = _failing(t, uris)
    kept = {uri: path for uri in uris for path in _held_back(t, uri)}
    _all_known(uris, known.keys() | kept.keys())
    for uri in uris:
        t.run(
            f"UPDATE resources SET size = -1, digest = NULL, listed_hash = NULL WHERE {_OF_ANY_SET}"  # noqa: S608
            " AND path IS NOT NULL AND EXISTS (SELECT 1 FROM failures f WHERE f.set_id = resources.set_id"
            " AND f.uri = resources.uri)",
            (uri,),
        )  # the file may be damaged: the next comparison must not take it for whole
        t.run("DELETE FROM failures WHERE uri = ?", (uri,))
        t.run(
            "UPDATE resources SET path = NULL, size = NULL, digest = NULL, etag = NULL, newer = 0,"  # noqa: S608
            " changed_at = coalesce(doomed_at, changed_at, 0), doomed_at = NULL"
            f" WHERE {_OF_ANY_SET} AND doomed_at IS NOT NULL",
            (uri,),
        )
    for row in sets(t):
        if not held_back_count(t, row.id):
            forget_measure(t, row.id)
    released = [printable_path(path) for path in kept.values()]
    return Forgotten(
        failures=sum(known.values()),
        deletions=len(kept),
        files=len(released),
        released=tuple(released[:_MOST_SHOWN]),
    )


_OF_A_SET = (
    "resources", "failures", "documents", "intents", "refusals", "partials", "set_history", "representations",
    "descriptions", "listing", "released",
)  # fmt: skip


def forget_sets(t: Transaction, gone: Sequence[SetRow]) -> Forgotten:
    """Forget whole sets; their files stay where they are."""
    failures = deletions = files = 0
    released: list[str] = []
    for row in gone:
        failures += failure_count(t, row.id)
        deletions += held_back_count(t, row.id)
        held = "FROM resources WHERE set_id = ? AND path IS NOT NULL"
        files += int(t.value(f"SELECT count(*) {held}", (row.id,)))
        for (path,) in t.rows(f"SELECT path {held} ORDER BY path LIMIT {_MOST_SHOWN}", (row.id,)):
            released.append(printable_path(path))
        for table in _OF_A_SET:
            t.run(f"DELETE FROM {table} WHERE set_id = ?", (row.id,))  # noqa: S608  our own names
        t.run("DELETE FROM sets WHERE id = ?", (row.id,))
        forget_measure(t, row.id)
    t.run("DELETE FROM documents WHERE set_id = 0")  # what the source offers is looked at anew
    return Forgotten(
        failures=failures,
        deletions=deletions,
        sets=tuple(row.name for row in gone),
        files=files,
        released=tuple(released[:_MOST_SHOWN]),
    )


def failing(t: Transaction) -> list[str]:
    """The URIs of all failures that are remembered."""
    return [uri for (uri,) in t.rows("SELECT DISTINCT uri FROM failures")]


def held_back(t: Transaction) -> list[str]:
    """The URIs of all files whose deletion is held back."""
    query = "SELECT DISTINCT uri FROM resources WHERE doomed_at IS NOT NULL AND path IS NOT NULL"
    return [uri for (uri,) in t.rows(query)]


def _failing(t: Transaction, uris: Sequence[str]) -> dict[str, int]:
    counts = {uri: int(t.value("SELECT count(*) FROM failures WHERE uri = ?", (uri,))) for uri in uris}
    return {uri: number for uri, number in counts.items() if number}


def _held_back(t: Transaction, uri: str) -> list[bytes]:
    query = f"SELECT path FROM resources WHERE {_OF_ANY_SET} AND doomed_at IS NOT NULL AND path IS NOT NULL"  # noqa: S608
    return [path for (path,) in t.rows(query, (uri,))]


def _all_known(uris: Sequence[str], known: Container[str]) -> None:
    for uri in uris:
        if uri not in known:
            raise UsageFault(
                "the copy remembers no failure and no deletion held back for this URI", code="HW-SYN-21", where=uri
            )
