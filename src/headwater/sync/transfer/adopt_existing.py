"""The adoption of files that are there already and are what is listed: of a killed run, or of another tool."""

from __future__ import annotations

import os

from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import digest_of_path
from headwater.sync.source_times import SECOND, mtime_ns
from headwater.sync.transfer.result_log import PlacedFile
from headwater.sync.transfer.verification import digests_of
from headwater.sync.transfer.work_queue import Work


def adopt_existing(tree: FileTree, work: Work) -> PlacedFile | None:
    """The file at the resource's place, if it is what is listed; None: it has to be fetched."""
    found = _right(tree, work.path, work.hash, work.length, work.lastmod)
    if found is None:
        return None
    there, digest = found
    kept = mtime_ns(work.lastmod, None)
    if kept is not None and kept != there.st_mtime_ns:
        tree.touch(work.path, kept)
        again = tree.stat(work.path)
        kept = again.st_mtime_ns if again else kept
    return PlacedFile(work.path, there.st_size, kept or there.st_mtime_ns, digest)


def is_listed(tree: FileTree, path: bytes, listed: str | None, length: int | None, lastmod: int | None) -> bool:
    """Whether the file at `path` is what is listed, as `adopt_existing` would find."""
    return _right(tree, path, listed, length, lastmod) is not None


def _right(
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
