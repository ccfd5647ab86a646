"""A dry run of a scan: what it would find to do, without reading a file or recording anything."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headwater.catalog.interface import Resource
from headwater.ingest.folder.comparison import ComparisonCounts, MissingResource, compare, rules_mark
from headwater.ingest.folder.event_builder import RULES, unreadable
from headwater.ingest.folder.folder_settings import Folder, FolderUnusable
from headwater.ingest.folder.scanner import WarningLog
from headwater.ingest.folder.walk import PathFilter, RootFault, UnreadableEntry, Walk, path_of
from headwater.ingest.set_problems import DeletionGuard, DeletionHold
from headwater.progress import Listener, silent


class DryRun(msgspec.Struct, kw_only=True):
    """Files that are new, that may have changed (told by their state, not their octets), whose deletion is due."""

    new: int = 0
    changed: int = 0
    vanished: int = 0
    unchanged: int = 0
    kept: int = 0
    octets: int = 0
    """How much would be read."""
    held_back: DeletionHold | None = None
    warnings: dict[str, int] = msgspec.field(default_factory=dict)


def dry_run(
    folder: Folder,
    held: Iterable[Resource],
    count: int,
    listener: Listener = silent,
    guard: DeletionGuard | None = None,
) -> DryRun:
    """Compare the folder with the `count` resources that are `held`, sorted by URI. Raises FolderUnusable."""
    memos = ((one.uri, one.memo) for one in held)
    result = DryRun()
    tally = ComparisonCounts()
    warnings = WarningLog(listener)
    warnings.begin()
    path_filter = PathFilter(folder.root, folder.selection, folder.avoid)
    left_out = 0

    def closed(one: UnreadableEntry) -> None:
        warnings.add(unreadable(one.path, one.error))

    try:
        walk = Walk(folder.root, folder.selection, avoid=folder.avoid, base_url=folder.base_url, warn=warnings.add)
        for one in compare(walk.everything(), memos, rules_mark(RULES, *folder.algorithms), tally, closed):
            if isinstance(one, MissingResource):
                result.vanished += 1
                left_out += not path_filter.takes(path_of(one.uri))
                continue
            result.octets += one.octets
            if one.known:
                result.changed += 1
            else:
                result.new += 1
    except RootFault as fault:
        raise FolderUnusable(f"cannot be published: {fault.__cause__}", where=str(folder.root)) from fault
    result.unchanged, result.kept = tally.unchanged, tally.kept
    if guard is not None:
        result.held_back = guard.judge(count - left_out, result.vanished - left_out, tally.found)
    if result.held_back is not None:  # as in a scan: what was excluded goes nevertheless
        result.kept += result.held_back.vanished
        result.vanished = left_out
    result.warnings = warnings.end(whole=True)
    return result
