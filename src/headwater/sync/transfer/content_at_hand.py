"""Files that another tool mirrored, adopted with the base that their names leave out; octets newer than listed.

A file of a killed run, or of another tool, is adopted where it is what is listed. Octets that are newer than listed are
unconfirmed until a list of the same run confirms them (DST-5.3): nobody can tell from one answer whether a resource has
changed since it was listed or its octets are wrong. So they get no place among the copies yet: a later entry whose hash
fits places them without another transfer, and what no entry tells of is asked for once more. They last as long as the
run on their set; until they have a place, the resource is remembered as failed.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_names import natural_path
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import digest_of_file, digest_of_path, is_intact
from headwater.sync.reports import SetReport
from headwater.sync.source_times import SECOND
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import ADD_WORK, PAST_CACHES, Work
from headwater.typed_decoding import from_msgpack

UNCONFIRMED = "newer than listed, and no list tells of it yet"
_KEPT_HEADERS = ("etag", "last-modified", "date")


class UnconfirmedFile(msgspec.Struct, frozen=True):
    """One answer: its temporary file, octets and digest, and the headers that go with a copy."""

    name: str
    octets: int
    digest: str
    headers: dict[str, str]


class UnconfirmedContent:
    """The unconfirmed files of one set, kept among the temporary files; `count` is how many."""

    def __init__(self, database: Database, tree: FileTree | None) -> None:
        self._database = database
        self._tree = tree
        self._made = 0
        self.count = 0

    def put(self, work: Work, name: str, octets: int, digest: str, headers: Mapping[str, str]) -> None:
        """Keep a finished temporary file."""
        assert self._tree is not None
        self._made += 1
        kept = UnconfirmedFile(
            f"aside-{self._made}", octets, digest, {n: headers[n] for n in _KEPT_HEADERS if n in headers}
        )
        self._tree.rename(name, kept.name)
        with self._database.write() as t:
            t.run(
                "INSERT INTO temp.aside(uri, kept, work) VALUES (?, ?, ?)",
                (work.uri, msgspec.msgpack.encode(kept), msgspec.msgpack.encode(work)),
            )
        self.count += 1

    def take(self, uri: str) -> UnconfirmedFile | None:
        """What is kept of a resource, and no longer from here on: the file is the caller's."""
        if not self.count:
            return None
        with self._database.write() as t:
            kept = t.value("SELECT kept FROM temp.aside WHERE uri = ?", (uri,))
            t.run("DELETE FROM temp.aside WHERE uri = ?", (uri,))
        if kept is None:
            return None
        self.count -= 1
        return from_msgpack(kept, UnconfirmedFile)

    def fits(self, kept: UnconfirmedFile, work: Work) -> bool:
        """Whether these octets are what an entry lists, by its strongest digest; a length alone proves nothing."""
        wanted = strongest_of(work.hash)
        if wanted is None or (work.length is not None and work.length != kept.octets):
            return False
        tree = self._tree
        assert tree is not None
        algorithm, _, found = kept.digest.partition(":")
        if algorithm != wanted.algorithm:
            found = digest_of_file(lambda: tree.open_temporary(kept.name), wanted.algorithm) or ""
        return found == wanted.hex

    def replaces_verified(self, work: Work) -> bool:
        """Whether a copy that a list has confirmed would give way; none that is missing or damaged is one."""
        if work.held is None:
            return False
        with self._database.read() as t:
            row = t.one("SELECT path, size, mtime_ns FROM resources WHERE id = ? AND newer = 0", (work.held,))
        return row is not None and is_intact(self._tree, *row)

    def plan_again(self, t: Transaction, set_id: int, counts: SetReport) -> None:
        """Plan what is kept for another transfer, past all caches, unless a list has settled it as deleted."""
        query = (
            "SELECT a.work FROM temp.aside a JOIN failures f ON f.set_id = ? AND f.uri = a.uri"
            " WHERE a.uri NOT IN (SELECT uri FROM temp.work) ORDER BY a.uri"
        )
        for (encoded,) in list(t.rows(query, (set_id,))):
            work = from_msgpack(encoded, Work)
            counts.created += work.held is None
            counts.updated += work.held is not None
            row = work.planned(
                work.path, work.held, changed_at=work.changed_at, known_at=work.known_at, tries=work.tries,
                attempts=(PAST_CACHES,),
            )  # fmt: skip
            t.run(ADD_WORK, row)

    def clear(self) -> None:
        """Remove what is left: it stays remembered as failed."""
        if self._tree is None or not self.count:
            return
        with self._database.write() as t:
            left = [from_msgpack(kept, UnconfirmedFile) for (kept,) in t.rows("SELECT kept FROM temp.aside")]
            t.run("DELETE FROM temp.aside")
        for kept in left:
            with contextlib.suppress(OSError):
                self._tree.discard(kept.name)
        self.count = 0


# adoption


def listed_file(
    tree: FileTree, path: bytes, listed: str | None, length: int | None, lastmod: int | None
) -> tuple[os.stat_result, str] | None:
    """What is there and its digest, if it is what is listed: by hash; where none is listed, by length and time."""
    found = tree.stat(path)
    if found is None or (length is not None and length != found.st_size):
        return None
    digests = digests_of(listed)
    algorithm = digests[0].algorithm if digests else "sha-256"
    seconds = None if lastmod is None else lastmod // SECOND
    if not digests and (length is None or seconds != found.st_mtime_ns // 1_000_000_000):
        return None
    hexdigest = digest_of_path(tree, path, algorithm)
    if hexdigest is None or (digests and hexdigest != digests[0].hex):
        return None
    return found, f"{algorithm}:{hexdigest}"


# the base under which files already in DEST have the names of what is listed (DST-B5)
#
# A mirror that another tool has made follows its own rule. What is adopted of it is decided file by file.

_SAMPLE = 200
_DEEPEST = 20
_HASHED = 5
_ENOUGH = 3
_SAMPLED = {"listed": "NOT refused", "changed": "pending AND change != 'deleted'"}

_Entry = tuple[str, str | None, int | None, int | None]
"""What is listed of one resource: URI, hash, length and `lastmod`."""


def fitting_base(
    t: Transaction, table: str, tree: FileTree, prefix: bytes, default: str
) -> tuple[str, int, int] | None:
    """The base by which most of the files that lie below `prefix` have names, `default` if no other does better.

    Some hundred listed URIs are tried with every folder of theirs as the base, and with none (names that begin with the
    host). With the base comes how many of how many fit: 0 where no file has such a name. None where too few fit.
    """
    step = max(1, int(t.value(f"SELECT coalesce(max(n), 0) FROM temp.{table}")) // _SAMPLE)  # noqa: S608  our own names
    query = f"SELECT uri, hash, length, lastmod FROM temp.{table} WHERE {_SAMPLED[table]} AND n % ? = 0 LIMIT ?"  # noqa: S608
    entries: Sequence[_Entry] = t.fetch(query, (step, _SAMPLE))
    files: defaultdict[str, list[tuple[int, bytes, _Entry]]] = defaultdict(list)
    for entry in entries:
        ends = [n for n, character in enumerate(entry[0]) if character == "/" and n > entry[0].find("://") + 2]
        for base in dict.fromkeys((default, *(entry[0][: end + 1] for end in ends[:_DEEPEST]), "")):
            path = natural_path(entry[0], base)
            if path is not None and (size := _size_if_listed(tree, prefix + path, entry)) is not None:
                files[base].append((size, prefix + path, entry))
    votes = Counter({base: len(found) for base, found in files.items()})
    for base, count in sorted(votes.items(), key=lambda vote: (-vote[1], vote[0] != default, -len(vote[0]))):
        covered = sum(uri.startswith(base) for uri, *_ in entries)
        few = sorted(files[base], key=lambda file: file[0])[:_HASHED]
        right = sum(listed_file(tree, path, *entry[1:]) is not None for _, path, entry in few)
        is_enough = count >= _ENOUGH or 2 * count >= len(entries)
        if is_enough and 2 * covered >= len(entries) and 2 * right > len(few):
            return base, count, len(entries)
    return None if votes or not entries else (default, 0, len(entries))


def _size_if_listed(tree: FileTree, path: bytes, entry: _Entry) -> int | None:
    """The size of the file there, if it can be what is listed; without a length its time has to fit."""
    found, (_, listed, length, lastmod) = tree.stat(path), entry
    if found is None or length not in (None, found.st_size):
        return None
    if length is None and listed is None:
        seconds = None if lastmod is None else lastmod // SECOND
        return found.st_size if seconds == found.st_mtime_ns // 1_000_000_000 else None
    return found.st_size
