"""Held files: whether they are as recorded, how damage is recorded, and crash recovery of what a killed run has left.

The table `intents` is the write-ahead log of files: which are about to be placed or removed. Files are not synced one
by one: after a power loss, what was not flushed to disk is hashed again (docs/explanation/how-a-copy-stays-true.md).
"""

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from headwater.files.folder_marks import folded, has_reserved
from headwater.files.hashing import digests_of
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_tree import FileTree, boot_id, flush, printable_path
from headwater.sync.reports import Done, each_of_set, ignored
from headwater.sync.source_times import micros, mtime_ns
from headwater.typed_decoding import from_msgpack

# damage


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


def file_has(path: Path, digest: str) -> bool:
    """Whether the octets of a file have this digest (`algorithm:hex`); one that cannot be read has not."""
    algorithm, _, wanted = digest.partition(":")
    return digest_of_file(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), algorithm) == wanted


def is_intact(tree: FileTree | None, path: bytes, size: int, mtime_ns: int) -> bool:
    """Whether a held file still has the size and time that it was given; without a folder none has."""
    found = tree.stat(path) if tree is not None else None
    return found is not None and found.st_size == size and found.st_mtime_ns == mtime_ns


def stamp(tree: FileTree, t: Transaction, key: int, path: bytes, lastmod: int) -> None:
    """Give a held file the time that is listed, and its row what the file system makes of that."""
    if (wanted := mtime_ns(lastmod)) is not None and (kept := tree.touch(path, wanted)) is not None:
        t.run("UPDATE resources SET mtime_ns = ? WHERE id = ?", (kept, key))


_DAMAGED = (
    "INSERT OR IGNORE INTO failures(set_id, uri, loc, reason, status, tries, first_at, last_at, next_at, lastmod,"
    " length, hash, type, encoding, links, extra, changed_at) SELECT set_id, uri, coalesce(loc, ?),"
    " 'the file is missing, changed or unreadable', 0, 0, ?, ?, 0, lastmod, listed_length, listed_hash, type,"
    " encoding, links, extra, changed_at FROM resources WHERE set_id = ? AND id = ? AND (doomed_at IS NULL"
    " OR EXISTS (SELECT 1 FROM listing l WHERE l.set_id = resources.set_id AND l.uri = resources.uri))"
)
"""One whose deletion waits for consent is only marked: there is nothing to fetch, and the failure would outlast it. One
that is listed, and waits for an alternate in its place, is still to be had."""


def find_damage(database: Database, tree: FileTree | None, now: int, column: str, number: int) -> None:
    """Hash every held file of a set or a run (`number` in a `column` of `resources`), and remember what is missing or
    different, so that it is fetched again; one that is right gets the time that is listed.

    What cannot be read is fetched again too: it stays as it is until verified content takes its place.
    """
    query = (
        "SELECT id, set_id, uri, path, digest, lastmod, mtime_ns FROM resources"  # noqa: S608  our own names
        f" WHERE {column} = ? AND id > ? AND path IS NOT NULL ORDER BY id LIMIT 1000"
    )
    last = 0
    while True:
        with database.write() as t:
            rows = list(t.rows(query, (number, last)))
            if not rows:
                return
            last = rows[-1][0]
            for key, set_id, uri, path, digest, lastmod, mtime in rows:
                algorithm, _, wanted = (digest or "sha-256:").partition(":")
                if not wanted or digest_of_path(tree, path, algorithm) != wanted:
                    t.run(_DAMAGED, (uri, now, now, set_id, key))
                    # whoever compares finds it changed, and no source is asked whether its own has: it would say no
                    t.run("UPDATE resources SET mtime_ns = -1 WHERE id = ?", (key,))
                elif tree is not None and mtime_ns(lastmod) not in (None, mtime):
                    stamp(tree, t, key, path, lastmod)


def fold_held(t: Transaction, *, without_deletions: bool) -> None:
    """Have what is held in `temp.folded`, by the names that a file system sees which folds them.

    Of several that share a name it is that of what is not to be fetched: the file there may be that one's.
    """
    kept = " AND id NOT IN (SELECT id FROM temp.deletions)" if without_deletions else ""
    t.run("DELETE FROM temp.folded")
    held = t.rows(
        f"SELECT path FROM resources WHERE path IS NOT NULL{kept}"  # noqa: S608  our own names
        " ORDER BY id IN (SELECT held FROM temp.work WHERE held IS NOT NULL), id"
    )
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


_TOLD_TOGETHER = 50
"""Of so many files rows are committed at a time: what was told of others stays told, whatever happens next."""


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


class CrashRecovery(msgspec.Struct):
    """Records the begin and the end of each run of one copy, and repairs what an interrupted one has left; `each` hears
    of what that has placed, and may not have told."""

    database: Database
    root: Path
    now: Callable[[], dt.datetime]
    each: Callable[[Done], None] = ignored
    settle: Callable[[], None] = lambda: None
    source: str = ""

    def begin(self, tree: FileTree) -> int:
        """Note that a run begins. What an earlier one wrote is trusted unless the machine has been restarted since.

        Files are not synced one by one. As long as the machine has not gone down, the kernel has them; when it has,
        those of runs that were never flushed are hashed again (docs/explanation/how-a-copy-stays-true.md).
        """
        boot, now = boot_id(), micros(self.now()) or 0
        with self.database.read() as t:
            doubtful = list(t.rows("SELECT id, boot FROM runs WHERE durable = 0"))
        lost = [number for number, at in doubtful if not boot or at != boot]
        self._recover(tree, power_was_lost=bool(lost))
        if doubtful and not lost:
            flush(tree.root)
        for number in lost:
            find_damage(self.database, tree, now, "run", number)
        with self.database.write() as t:
            t.run("DELETE FROM runs WHERE id < (SELECT max(id) FROM runs)")
            t.run("UPDATE runs SET durable = 1")
            t.run("INSERT INTO runs(began_at, boot, durable) VALUES (?, ?, 0)", (now, boot))
            return int(t.value("SELECT max(id) FROM runs"))

    def _recover(self, tree: FileTree, *, power_was_lost: bool) -> None:
        """Find out by the notes what a run did between a file and its row: what lies there now is what the row says.

        After a power loss a file that was removed may be back.
        """
        with self.database.read() as t:
            notes = list(t.rows("SELECT id, set_id, rows, removal FROM intents ORDER BY id"))
        if notes and power_was_lost and tree.folds:
            with self.database.write() as t:
                fold_held(t, without_deletions=False)
        for number, set_id, rows, removal in notes:
            files = from_msgpack(rows, list[tuple[str, bytes]])
            for start in range(0, len(files), _TOLD_TOGETHER):
                with self.database.write() as t:
                    for uri, path in files[start : start + _TOLD_TOGETHER]:
                        if removal and t.one("SELECT 1 FROM resources WHERE path = ?", (path,)) is None:
                            if power_was_lost and not has_reserved(path):
                                other = held_otherwise(t, path) if tree.folds else None
                                if other is None or not tree.respell(path, other[1]):
                                    tree.remove(path)
                            continue
                        done = _recorded(t, tree, set_id, uri, path)
                        if done is not None and self.each is not ignored:  # told before the note of it is gone
                            name = str(t.value("SELECT name FROM sets WHERE id = ?", (set_id,)) or "")
                            row = "SELECT size, digest FROM resources WHERE path = ?"
                            size, digest = t.one(row, (path,)) or (None, None)
                            why = "by a run that was cut short"
                            told = Done(done, uri, printable_path(path), reason=why, hash=digest, length=size)
                            each_of_set(self.each, name, self.source)(told)
                    self.settle()
            with self.database.write() as t:
                t.run("DELETE FROM intents WHERE id = ?", (number,))

    def end(self, number: int) -> None:
        """Note that the run is over, and whether what it wrote is known to be on the disk."""
        with self.database.read() as t:
            wrote = t.one("SELECT 1 FROM resources WHERE run = ? LIMIT 1", (number,)) is not None
        if wrote and not boot_id():
            wrote = not flush(os.fsencode(self.root))
        with self.database.write() as t:
            t.run(
                "UPDATE runs SET ended_at = ?, durable = ? WHERE id = ?", (micros(self.now()), int(not wrote), number)
            )


def _recorded(t: Transaction, tree: FileTree, set_id: int, uri: str, path: bytes) -> str | None:
    """Record what lies there; `created` or `updated`, where that is news."""
    found, digest = tree.stat(path), digest_of_path(tree, path, "sha-256")
    recorded = t.one("SELECT digest, size, mtime_ns FROM resources WHERE path = ?", (path,))
    if found is None or digest is None:
        t.run(
            "UPDATE resources SET digest = NULL, listed_hash = NULL, size = -1, etag = NULL, last_modified = NULL"
            " WHERE path = ?",
            (path,),
        )
        return None
    if recorded is None:
        t.run(
            "INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, run, recovered)"
            " VALUES (?, ?, ?, ?, ?, ?, 0, 1)"
            " ON CONFLICT(set_id, uri) DO UPDATE SET path = excluded.path, size = excluded.size,"
            " mtime_ns = excluded.mtime_ns, digest = excluded.digest, listed_hash = NULL, recovered = 1"
            " WHERE path IS NULL",
            (set_id, uri, path, found.st_size, found.st_mtime_ns, f"sha-256:{digest}"),
        )
        return "created"
    if recorded != (lies_there := (f"sha-256:{digest}", found.st_size, found.st_mtime_ns)):
        t.run(
            "UPDATE resources SET digest = ?, size = ?, mtime_ns = ?, listed_hash = NULL, etag = NULL,"
            " last_modified = NULL, recovered = 1 WHERE path = ?",
            (*lies_there, path),
        )
        return "updated"
    return None
