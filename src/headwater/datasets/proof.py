"""The proof of a patch: what it makes of a dataset, as a digest, by the lines themselves and nothing that wrote them.

Files are sorted, so what a patch does not name is taken over in whole blocks, and the proof of a small patch costs
little more than the digest of the dataset. All patches are also
replayed in series on nothing, each checked by its digest (TIM-08).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder
from headwater.datasets.rows import DatasetPatch
from headwater.rdf.canonical import DatasetSummary
from headwater.rdf.unified_diff import EffectCounts, apply_patches, patched_blocks, plain_blocks


class Replay(msgspec.Struct, frozen=True):
    """What patches have made: a file of canonical N-Quads."""

    path: Path
    summary: DatasetSummary


def replayed(folder: DatasetFolder, patches: Sequence[DatasetPatch], scratch: Path) -> Replay:
    """Execute the patches, in `scratch`. Raises BrokenSeries where one is lost or damaged, or a line has no effect."""
    paths = []
    for one in patches:
        folder.check(folder.patch_of(one), one.sha256, one.octets)
        paths.append(folder.patch_of(one))
    target = scratch / "replay.nq"
    applied = apply_patches(None, paths, target, scratch=scratch, strict=True)
    if applied.already_there or applied.not_there:
        count = applied.already_there + applied.not_there
        raise BrokenSeries(f"{count:,} lines of the patches have no effect", where=str(folder.path))
    return Replay(target, applied.dataset)


_BLOCK: Final = 1 << 20


def patched_digest(old: Path | None, patch: Path) -> str:
    """The SHA-256 of what a patch (removals, then additions, each sorted) makes of a sorted file; None: of nothing.

    Raises BrokenSeries where a line has no effect or is none, and OSError.
    """
    digest, counts = hashlib.sha256(), EffectCounts()
    with patch.open("rb") as file:
        if old is None or not old.stat().st_size:
            for block in _additions(file, patch):
                digest.update(block)
            return digest.hexdigest()
        with old.open("rb", buffering=_BLOCK) as held:
            for block in patched_blocks(plain_blocks(held), _signed_lines(file, patch), counts):
                digest.update(block)
    if counts.already_there or counts.not_there:
        raise BrokenSeries("a line of a patch has no effect", where=str(patch))
    return digest.hexdigest()


def _additions(file: BinaryIO, patch: Path) -> Iterator[bytes]:
    """The statements of a patch that leads from nothing, in blocks of lines."""
    while lines := file.readlines(_BLOCK):
        block = b"".join(lines)
        if not block.startswith(b"+") or block.count(b"\n+") != len(lines) - 1:
            raise BrokenSeries("a patch that leads from nothing has other lines than additions", where=str(patch))
        yield block.replace(b"\n+", b"\n")[1:]


def _signed_lines(file: BinaryIO, patch: Path) -> Iterator[tuple[bytes, bytes]]:
    """The statements of a patch in their order, each with its sign."""
    boundary = 0
    for line in file:
        if not line.startswith(b"-"):
            break
        boundary += len(line)
    return merge(_lines(patch, 0, boundary, b"-"), _lines(patch, boundary, None, b"+"), key=_place)


def _place(step: tuple[bytes, bytes]) -> tuple[bytes, bool]:
    """By statement; one that is removed and added is removed first."""
    return step[0], step[1] == b"+"


def _lines(patch: Path, start: int, end: int | None, sign: bytes) -> Iterator[tuple[bytes, bytes]]:
    with patch.open("rb") as file:
        file.seek(start)
        while (end is None or start < end) and (line := file.readline()):
            start += len(line)
            if not line.startswith(sign) or not line.endswith(b"\n"):
                raise BrokenSeries("a patch has a line that is neither a removal nor an addition", where=str(patch))
            yield line[1:], sign
