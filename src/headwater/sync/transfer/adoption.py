"""Adoption: files that another tool mirrored, where they are what is listed; the base that their names leave out."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence

from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_names import natural_path
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import digest_of_path
from headwater.sync.source_times import SECOND
from headwater.sync.transfer.verification import digests_of


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
