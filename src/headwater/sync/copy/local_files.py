"""Local files: their digests, whether they are as recorded, and how damage is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable

from headwater.files.folder_marks import folded
from headwater.files.hashing import digests_of
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.source_times import mtime_ns


def digest_of_file(open_it: Callable[[], int], algorithm: str) -> str | None:
    """The hex digest of a file that `open_it` opens for reading; None when it cannot be opened or read."""
    try:
        descriptor = open_it()
    except OSError:
        return None
    try:
        return digests_of(descriptor, (algorithm,))[1][0]
    except OSError:
        return None
    finally:
        os.close(descriptor)


def is_intact(tree: FileTree | None, path: bytes, size: int, mtime_ns: int) -> bool:
    """Whether a held file still has the size and time that it was given; without a folder none has."""
    found = tree.stat(path) if tree is not None else None
    return found is not None and found.st_size == size and found.st_mtime_ns == mtime_ns


def stamp(tree: FileTree, t: Transaction, key: int, path: bytes, lastmod: int) -> None:
    """Give a held file the time that is listed, and its row what the file system makes of that."""
    if (wanted := mtime_ns(lastmod)) is not None:
        tree.touch(path, wanted)
        if (found := tree.stat(path)) is not None:
            t.run("UPDATE resources SET mtime_ns = ? WHERE id = ?", (found.st_mtime_ns, key))


def find_damage(database: Database, tree: FileTree | None, set_id: int, now: int) -> None:
    """Hash every held file of a set, and remember what is missing or different, so that it is fetched again; one that
    is right gets the time that is listed.

    What cannot be read is fetched again too: it stays as it is until verified content takes its place.
    """
    last = 0
    while True:
        with database.write() as t:
            rows = list(
                t.rows(
                    "SELECT id, uri, path, digest, lastmod, mtime_ns FROM resources WHERE set_id = ? AND id > ?"
                    " AND path IS NOT NULL ORDER BY id LIMIT 1000",
                    (set_id, last),
                )
            )
            if not rows:
                return
            last = rows[-1][0]
            for key, uri, path, digest, lastmod, mtime in rows:
                algorithm, _, wanted = (digest or "sha-256:").partition(":")
                if not wanted or digest_of_path(tree, path, algorithm) != wanted:
                    record_damage(t, set_id, key, uri, now)
                elif tree is not None and mtime_ns(lastmod) not in (None, mtime):
                    stamp(tree, t, key, path, lastmod)


def fold_held(t: Transaction, *, without_deletions: bool) -> None:
    """Have what is held in `temp.folded`, by the names that a file system sees which folds them."""
    kept = " AND id NOT IN (SELECT id FROM temp.deletions)" if without_deletions else ""
    t.run("DELETE FROM temp.folded")
    held = t.rows(f"SELECT path FROM resources WHERE path IS NOT NULL{kept} ORDER BY id")  # noqa: S608  our own names
    t.many("INSERT OR IGNORE INTO temp.folded(name, path) VALUES (?, ?)", ((folded(path), path) for (path,) in held))


def held_otherwise(t: Transaction, path: bytes) -> tuple[str, bytes] | None:
    """URI and path of what is held under another spelling of a name, by `fold_held`."""
    query = (
        "SELECT r.uri, r.path FROM temp.folded f JOIN resources r ON r.path = f.path WHERE f.name = ? AND f.path != ?"
    )
    found = t.one(query, (folded(path), path))
    return None if found is None else (found[0], found[1])


def digest_of_path(tree: FileTree | None, path: bytes, algorithm: str) -> str | None:
    """The hex digest of a held file; None when there is none to be read, as without a folder."""
    return None if tree is None else digest_of_file(lambda: tree.open(path), algorithm)


def record_damage(t: Transaction, set_id: int, key: int, uri: str, now: int) -> None:
    """Remember a held file as failed, so that it is fetched again with what was listed of it.

    One whose deletion waits for consent is only marked: there is nothing to fetch, and the failure would outlast it.
    One that waits for an alternate in its place is still to be had.
    """
    t.run(
        "INSERT OR IGNORE INTO failures(set_id, uri, loc, reason, status, tries, first_at, last_at, next_at, lastmod,"
        " length, hash, type, encoding, links, extra, changed_at) SELECT set_id, uri, coalesce(loc, ?),"
        " 'the file is missing, changed or unreadable', 0, 0, ?, ?, 0, lastmod, listed_length, listed_hash, type,"
        " encoding, links, extra, changed_at FROM resources WHERE set_id = ? AND id = ? AND (doomed_at IS NULL"
        " OR uri IN (SELECT generic FROM representations WHERE set_id = resources.set_id))",
        (uri, now, now, set_id, key),
    )
    # whoever compares finds it changed, and no source is asked whether its own has: it would say no
    t.run("UPDATE resources SET mtime_ns = -1 WHERE id = ?", (key,))
