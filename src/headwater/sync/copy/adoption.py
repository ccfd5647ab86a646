"""Takes a file that lies there already, if it is what is listed (4.3): left by a killed run or by another tool."""

from __future__ import annotations

import os

from headwater.sync.copy.digest import digest_of_descriptor
from headwater.sync.copy.place import Tree
from headwater.sync.moments import SECOND
from headwater.sync.verify import digests_of
from headwater.sync.ways import Work, mtime_ns


def adopt(tree: Tree, work: Work) -> tuple[tuple[int, int], str] | None:
    """Size, modification time (ns) and digest of the file at the resource's place; None: it has to be fetched."""
    found = tree.stat(work.path)
    if found is None or (work.length is not None and work.length != found.st_size):
        return None
    digests = digests_of(work.hash)
    algorithm = digests[0].algorithm if digests else "sha-256"
    seconds = None if work.lastmod is None else work.lastmod // SECOND
    if not digests and (work.length is None or seconds != found.st_mtime_ns // 1_000_000_000):
        return None
    hexdigest = _hashed(tree, work.path, algorithm)
    if hexdigest is None or (digests and hexdigest != digests[0].hex):
        return None
    kept = mtime_ns(work.lastmod, None)
    if kept is not None and kept != found.st_mtime_ns:
        tree.touch(work.path, kept)
        again = tree.stat(work.path)
        kept = again.st_mtime_ns if again else kept
    return (found.st_size, kept or found.st_mtime_ns), f"{algorithm}:{hexdigest}"


def _hashed(tree: Tree, path: bytes, algorithm: str) -> str | None:
    try:
        descriptor = tree.open(path)
    except OSError:
        return None
    try:
        return digest_of_descriptor(descriptor, algorithm)
    finally:
        os.close(descriptor)
