"""The proof of a patch: what it makes of a dataset, as a digest, by the lines themselves and nothing that wrote them.

Files are sorted, so what a patch does not name is taken over in whole runs: the place of each of its lines is found by
bisection, and the proof of a small patch costs little more than the digest of the dataset. All patches are also
replayed in series on nothing, each checked by its digest (TIM-08).
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder
from headwater.datasets.rows import DatasetPatch
from headwater.rdf.applying import apply_patches
from headwater.rdf.canonical import DatasetSummary


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
_FORGOTTEN: Final = 16 * _BLOCK
"""Octets of the map that are given back to the system at once."""
_FIRST_STEP: Final = 256


def patched_digest(old: Path | None, patch: Path) -> str:
    """The SHA-256 of what a patch (removals, then additions, each sorted) makes of a sorted file; None: of nothing.

    Raises BrokenSeries where a line has no effect or is none, and OSError.
    """
    digest = hashlib.sha256()
    with patch.open("rb") as file:
        if old is None or not old.stat().st_size:
            for block in _additions(file, patch):
                digest.update(block)
            return digest.hexdigest()
        with old.open("rb") as held, mmap.mmap(held.fileno(), 0, access=mmap.ACCESS_READ) as octets:
            for piece in _patched(octets, _signed_lines(file, patch), patch):
                digest.update(piece)
    return digest.hexdigest()


def _additions(file: BinaryIO, patch: Path) -> Iterator[bytes]:
    """The statements of a patch that leads from nothing, in blocks of lines."""
    while lines := file.readlines(_BLOCK):
        block = b"".join(lines)
        if not block.startswith(b"+") or block.count(b"\n+") != len(lines) - 1:
            raise BrokenSeries("a patch that leads from nothing has other lines than additions", where=str(patch))
        yield block.replace(b"\n+", b"\n")[1:]


def _signed_lines(file: BinaryIO, patch: Path) -> Iterator[tuple[bytes, bool]]:
    """The statements of a patch in their order, and whether each is added."""
    boundary = 0
    for line in file:
        if not line.startswith(b"-"):
            break
        boundary += len(line)
    return merge(_lines(patch, 0, boundary, b"-"), _lines(patch, boundary, None, b"+"))


def _lines(patch: Path, start: int, end: int | None, sign: bytes) -> Iterator[tuple[bytes, bool]]:
    with patch.open("rb") as file:
        file.seek(start)
        while (end is None or start < end) and (line := file.readline()):
            start += len(line)
            if not line.startswith(sign) or not line.endswith(b"\n"):
                raise BrokenSeries("a patch has a line that is neither a removal nor an addition", where=str(patch))
            yield line[1:], sign == b"+"


def _patched(octets: mmap.mmap, steps: Iterator[tuple[bytes, bool]], patch: Path) -> Iterator[bytes | memoryview]:
    place = 0
    with memoryview(octets) as view:
        for statement, is_added in steps:
            found = _place_of(octets, statement, place)
            yield from _pieces(octets, view, place, found)
            is_there = octets[found : found + len(statement)] == statement
            if is_there == is_added:
                raise BrokenSeries("a line of a patch has no effect", where=str(patch))
            if is_added:
                yield statement
            place = found if is_added else found + len(statement)
        yield from _pieces(octets, view, place, len(view))


def _pieces(octets: mmap.mmap, view: memoryview, start: int, end: int) -> Iterator[memoryview]:
    """The octets from `start` to before `end`; what has been read takes no memory any more."""
    for place in range(start, end, _BLOCK):
        with view[place : min(place + _BLOCK, end)] as piece:
            yield piece
        _forget(octets, place, place + _BLOCK)


def _forget(octets: mmap.mmap, start: int, end: int) -> None:
    """Give back what lies before the part of the map that was entered between these places."""
    entered = end // _FORGOTTEN
    if hasattr(mmap, "MADV_DONTNEED") and entered and entered != start // _FORGOTTEN:
        octets.madvise(mmap.MADV_DONTNEED, (entered - 1) * _FORGOTTEN, _FORGOTTEN)


def _place_of(octets: mmap.mmap, statement: bytes, start: int) -> int:
    """Where the first line from `start` on begins that is not before the statement; `start` is the begin of a line."""
    low, step, size = start, _FIRST_STEP, len(octets)
    high = size
    while low + step < size:
        line = _line_at(octets, low + step, low)
        if octets[line : _end_of(octets, line)] >= statement:
            high = line
            break
        low, step = _end_of(octets, line), step * 2
    while low < high:
        line = _line_at(octets, (low + high) // 2, low)
        end = _end_of(octets, line)
        if octets[line:end] < statement:
            low = end
        else:
            high = line
    return low


def _line_at(octets: mmap.mmap, place: int, low: int) -> int:
    """Where the line begins that has the octet at `place`; `low` is the begin of a line before it."""
    return max(low, octets.rfind(b"\n", low, place) + 1)


def _end_of(octets: mmap.mmap, line: int) -> int:
    end = octets.find(b"\n", line)
    return len(octets) if end < 0 else end + 1
