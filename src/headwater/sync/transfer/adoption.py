"""Adoption: files that another tool mirrored, where they are what is listed; the base that their names leave out."""

import os
from collections import defaultdict
from collections.abc import Sequence

from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_names import natural_path
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import digest_of_path
from headwater.sync.source_times import SECOND
from headwater.sync.transfer.verification import digests_of


def listed_file(
    tree: FileTree, path: bytes, listed: str | None, length: int | None, lastmod: int | None, *, trusts: bool = False
) -> tuple[os.stat_result, str] | None:
    """What is there and its digest, if it is what is listed: by hash, else length and time; `trusts`: or time alone."""
    found, digests = _possible_file(tree, path, listed, length, lastmod), digests_of(listed)
    if found is None or (not digests and length is None and not trusts):
        return None
    algorithm = digests[0].algorithm if digests else "sha-256"
    hexdigest = digest_of_path(tree, path, algorithm)
    if hexdigest is None or (digests and hexdigest != digests[0].hex):
        return None
    return found, f"{algorithm}:{hexdigest}"


def _possible_file(
    tree: FileTree, path: bytes, listed: str | None, length: int | None, lastmod: int | None
) -> os.stat_result | None:
    """What is there, if it can be what is listed; without a hash its time has to fit."""
    found = tree.stat(path)
    if found is None or length not in (None, found.st_size):
        return None
    seconds = None if lastmod is None else lastmod // SECOND
    return found if digests_of(listed) or seconds == found.st_mtime_ns // 1_000_000_000 else None


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
    t: Transaction, table: str, tree: FileTree, prefix: bytes, default: str, *, trusts: bool = False
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
            if path is not None and (found := _possible_file(tree, prefix + path, *entry[1:])) is not None:
                files[base].append((found.st_size, prefix + path, entry))
    for base in sorted(files, key=lambda base: (-len(files[base]), base != default, -len(base))):
        count, covered = len(files[base]), sum(uri.startswith(base) for uri, *_ in entries)
        few = sorted(files[base], key=lambda file: file[0])[:_HASHED]
        right = sum(listed_file(tree, path, *entry[1:], trusts=trusts) is not None for _, path, entry in few)
        is_enough = count >= _ENOUGH or 2 * count >= len(entries)
        if is_enough and 2 * covered >= len(entries) and 2 * right > len(few):
            return base, count, len(entries)
    return None if files or not entries else (default, 0, len(entries))
