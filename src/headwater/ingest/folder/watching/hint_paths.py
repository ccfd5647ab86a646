"""Expands the paths of a hint: the topmost of those named, and those by which links lead to the same files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from headwater.files.folder_marks import has_reserved


def expand_hints(paths: Iterable[bytes], links: Mapping[bytes, bytes]) -> list[bytes]:
    """The relative paths to look at when something happened at `paths`; `links` lead from path to path."""
    return topmost(aliased(outside_state(paths), links))


def outside_state(paths: Iterable[bytes]) -> Iterator[bytes]:
    """The paths without those in folders that hold the state of a command, which change all the time."""
    for path in paths:
        if not has_reserved(path):
            yield path


def aliased(paths: Iterable[bytes], links: Mapping[bytes, bytes]) -> set[bytes]:
    """The paths, and those by which links lead to the same files, or to folders above or below them."""
    every = set(paths)
    by_target = defaultdict(list)
    for link, target in links.items():
        by_target[target].append(link)
    found = {link for link, target in links.items() if any(path in every for path in (target, *above(target)))}
    for path in every:
        for folder in above(path):
            found.update(link + path[len(folder) :] for link in by_target.get(folder, ()))
    return every | found


def topmost(paths: Iterable[bytes]) -> list[bytes]:
    """The paths without those that lie below another of them, in order."""
    every = set(paths)
    return sorted(path for path in every if not any(folder in every for folder in above(path)))


def above(path: bytes) -> Iterator[bytes]:
    """The folders above a relative path, nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path
