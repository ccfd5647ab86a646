"""The detection of a base: under which base files already in DEST have the names of what is listed (DST-B5).

A mirror that another tool has made follows its own rule. Some hundred listed URIs are tried with every folder of
theirs as the base, and with none (names that begin with the host); a base counts where files of the listed length lie
under the names that it makes, and a few of them are what is listed. Nothing is taken here: what is adopted is decided
file by file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from headwater.files.folder_marks import is_reserved
from headwater.storage.transaction import Transaction
from headwater.sync.copy.file_names import natural_path
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.source_times import SECOND
from headwater.sync.transfer.content_at_hand import is_listed

_SAMPLE = 200
_SAMPLE_BELOW = 40
_MOST_FOLDERS = 50
_DEEPEST = 20
_HASHED = 5
_ENOUGH = 3

_QUERIES = {
    "listed": "SELECT uri, hash, length, lastmod FROM temp.listed WHERE NOT refused AND n % ? = 0 LIMIT ?",
    "changed": "SELECT uri, hash, length, lastmod FROM temp.changed"
    " WHERE pending AND change != 'deleted' AND n % ? = 0 LIMIT ?",
}


class SampledResource(msgspec.Struct, frozen=True):
    """What is listed of one resource."""

    uri: str
    hash: str | None
    length: int | None
    lastmod: int | None


class BaseFit(msgspec.Struct, frozen=True):
    """A base under which files have the names of `fits` of the `tried` resources; they lie in the folder `below`."""

    base: str
    fits: int
    tried: int
    below: bytes = b""


def fitting_base(t: Transaction, table: str, tree: FileTree, prefix: bytes, default: str) -> BaseFit | None:
    """The base by which most of the files that lie below `prefix` have names, `default` if no other does better.

    Where the files lie one folder deeper that folder is `below`, and no base makes names of it. None where too few fit;
    `fits` is 0 where none does.
    """
    entries = _entries(t, table, _SAMPLE)
    if not entries:
        return None
    found = _best(tree, entries, prefix, default)
    if found is None or found.fits:
        return found
    some = entries[:: max(1, len(entries) // _SAMPLE_BELOW)]
    for folder in _folders(tree, prefix):
        below = _best(tree, some, prefix + folder + b"/", default)
        if below is not None and below.fits:
            return msgspec.structs.replace(below, below=prefix + folder)
    return found


def _entries(t: Transaction, table: str, most: int) -> list[SampledResource]:
    count = int(t.value(f"SELECT coalesce(max(n), 0) FROM temp.{table}"))  # noqa: S608  our own names
    return [SampledResource(*row) for row in t.rows(_QUERIES[table], (max(1, count // most), most))]


def _best(tree: FileTree, entries: Sequence[SampledResource], prefix: bytes, default: str) -> BaseFit | None:
    votes: Counter[str] = Counter()
    files: dict[str, list[tuple[int, bytes, SampledResource]]] = {}
    for entry in entries:
        for base in _bases(entry.uri, default):
            path = natural_path(entry.uri, base)
            size = None if path is None else _size(tree, prefix + path, entry)
            if path is not None and size is not None:
                votes[base] += 1
                files.setdefault(base, []).append((size, prefix + path, entry))
    for base, count in sorted(votes.items(), key=lambda vote: (-vote[1], vote[0] != default, -len(vote[0]))):
        covered = sum(entry.uri.startswith(base) for entry in entries)
        many = count >= _ENOUGH or 2 * count >= len(entries)
        if many and 2 * covered >= len(entries) and _is_what_is_listed(tree, files[base]):
            return BaseFit(base, count, len(entries))
    return None if votes else BaseFit(default, 0, len(entries))


def _bases(uri: str, default: str) -> Iterator[str]:
    """Every folder that could be the base of this URI, and none: then names begin with the host."""
    yield default
    end = uri.find("/", uri.find("://") + 3)
    for _ in range(_DEEPEST):
        if end < 0:
            break
        if uri[: end + 1] != default:
            yield uri[: end + 1]
        end = uri.find("/", end + 1)
    if default:
        yield ""


def _size(tree: FileTree, path: bytes, entry: SampledResource) -> int | None:
    """The size of the file there, if it can be what is listed; without a length its time has to fit."""
    found = tree.stat(path)
    if found is None or (entry.length is not None and entry.length != found.st_size):
        return None
    if entry.length is None and entry.hash is None:
        seconds = None if entry.lastmod is None else entry.lastmod // SECOND
        return found.st_size if seconds == found.st_mtime_ns // 1_000_000_000 else None
    return found.st_size


def _is_what_is_listed(tree: FileTree, files: list[tuple[int, bytes, SampledResource]]) -> bool:
    """Whether most of a few of these files, the smallest, are what is listed of them."""
    few = sorted(files, key=lambda file: file[0])[:_HASHED]
    right = sum(is_listed(tree, path, entry.hash, entry.length, entry.lastmod) for _, path, entry in few)
    return 2 * right > len(few)


def _folders(tree: FileTree, prefix: bytes) -> list[bytes]:
    try:
        with os.scandir(tree.root + b"/" + prefix) as entries:
            names = (
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not is_reserved(entry.name)
            )
            return sorted(name for name, _ in zip(names, range(_MOST_FOLDERS), strict=False))
    except OSError:
        return []
