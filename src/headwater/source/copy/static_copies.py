"""Publishes the copies of a source once: records what each holds, places its files in a static tree, publishes."""

from __future__ import annotations

import os
from pathlib import Path

from headwater import notices
from headwater.catalog.faults import UnknownSet
from headwater.catalog.interface import Catalog, SetState
from headwater.copies.copy_state import CopyStateReader
from headwater.ingest.copy.intake import CopyOutcome
from headwater.ingest.folder.scan_result import ScanResult
from headwater.progress import Notice
from headwater.source.copy.copy_set import CODES, CopySet
from headwater.source.copy.copy_sets import CopySets
from headwater.source.copy.copy_tree import CopyTree
from headwater.source.folder.pipeline import PipelineResult
from headwater.source.folder.scan_settings import FolderOverlap, StaticTree
from headwater.source.source_context import SourceContext
from headwater.spec.records import ChangeKind

_ROWS = 5_000


def publish_copies(
    context: SourceContext, sets: CopySets, made: list[CopySet], tree: StaticTree | None
) -> list[PipelineResult]:
    """Bring each set up to date once, and place its files where there is a tree. Raises whatever is wrong with one."""
    return [_publish(context, sets, one, tree) for one in made]


def _publish(context: SourceContext, sets: CopySets, one: CopySet, tree: StaticTree | None) -> PipelineResult:
    copy = sets.copy_of(one.name)
    before = _state(context.catalog, one.name)
    placement = None if tree is None or tree.mode is None else _placement(context, sets, one.name, tree)
    placed = left = removed = 0

    def place() -> None:
        nonlocal placed, left
        if placement is not None:
            placement.begin()
            placed, left = placement.fill()
            placement.settle(placement.root)

    state = CopyStateReader(copy)
    try:
        outcome, published = one.once(state, place)
    finally:
        state.close()
    if placement is not None:
        removed = placement.sweep()
        placement.end()
    scanned = _result(context.catalog, one.name, before, outcome)
    if left:
        text = f"{left:,} files of the copy are not as they were placed: they are not put into the tree"
        context.listener(Notice(notices.COPY_CHANGED, f"{one.name}: {text}", str(copy)))
        scanned.warnings[notices.COPY_CHANGED] = left
    return PipelineResult(name=one.name, scanned=scanned, published=published, placed=placed, removed=removed)


def _state(catalog: Catalog, name: str) -> SetState | None:
    try:
        return catalog.state(name)
    except UnknownSet:
        return None


def _placement(context: SourceContext, sets: CopySets, name: str, tree: StaticTree) -> CopyTree:
    assert tree.mode is not None
    place = tree.folder / name / "resources"
    placement = CopyTree(context.catalog, name, place, tree.mode, context.state / f"{name}.placed")
    placement.root = os.fsencode(sets.roots[name])
    return placement


def refuse_overlap(copy: Path, out: Path) -> None:
    """Raises FolderOverlap where the copy or the output lies in the other."""
    one, other = Path(os.path.realpath(copy)), Path(os.path.realpath(out))
    if one == other or one in other.parents or other in one.parents:
        raise FolderOverlap("the copy and the output lie in each other", where=str(out))


def _result(catalog: Catalog, name: str, before: SetState | None, outcome: CopyOutcome) -> ScanResult:
    """What one round has done, as a scan would tell it."""
    now = catalog.state(name)
    result = ScanResult(at=now.last_at, opened=before is None or before.opened_at is None)
    after = 0 if before is None else before.last_seq
    counts = dict.fromkeys(ChangeKind, 0)
    while changes := catalog.changes(name, after, _ROWS):
        after = changes[-1].seq
        for one in changes:
            counts[one.change] += 1
    result.created = now.count if result.opened else counts[ChangeKind.CREATED]
    result.updated, result.deleted = counts[ChangeKind.UPDATED], counts[ChangeKind.DELETED]
    result.unchanged = max(0, now.count - result.created - result.updated)
    result.warnings = {CODES[why]: count for why, count in outcome.left_out.counts.items()}
    if outcome.is_held_back:
        result.warnings[notices.COPY_INCOMPLETE] = 1
    return result
