"""The folder of a published dataset: its newest state and all of its patches as files, named by change and digest.

A file is put in its place before the change that needs it is recorded, and removed after the change that no longer
does: whatever is killed when, what the catalog knows of is there, and what it does not know of is left over.

All patches are replayed in series on nothing, each checked by its digest (TIM-08).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.datasets.rows import DatasetPatch, DatasetState
from headwater.errors import SourceFault, StoreFault
from headwater.storage.durable import make_folders, sync_file, sync_folder

if TYPE_CHECKING:
    from headwater.rdf.canonical import DatasetSummary


class BrokenSeries(StoreFault):
    """The patches of a dataset do not lead to it, or one of its files is lost or damaged: nothing is published."""

    code = "HW-DAT-01"


class InputChanged(SourceFault):
    """What a dataset is made of changed while it was read; it is read again."""

    code = "HW-DAT-02"


FOLDER: Final = "datasets"
"""Below the state folder: a folder for each set."""
_SCRATCH: Final = "scratch"
_RESTART: Final = "begin-anew"
_BLOCK: Final = 1 << 20

FileState = tuple[int, int, int, int]


class DatasetFolder:
    """The folder of one set's dataset. One process at a time changes it."""

    def __init__(self, state: Path, name: str) -> None:
        self.path = state / FOLDER / name
        self.scratch = self.path / _SCRATCH
        """Where files lie while they are made."""

        self.restart_note = self.path / _RESTART
        """A file whose presence asks for the history to begin anew."""

        self._known: dict[str, FileState] = {}

    def dataset_of(self, state: DatasetState) -> Path:
        """The file of this state."""
        return self.path / f"{state.seq:05d}-{state.sha256[:16]}.nq"

    def patch_of(self, patch: DatasetPatch) -> Path:
        """The file of this patch."""
        return self.path / f"{patch.seq:05d}-{patch.sha256[:16]}.nqud"

    def fresh_scratch(self) -> Path:
        """The same, empty. Raises OSError."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        make_folders(self.scratch)
        return self.scratch

    def place(self, made: Path, target: Path) -> None:
        """Put a file that was made in the scratch folder in its place, durably. Raises OSError."""
        sync_file(made)
        os.replace(made, target)
        sync_folder(self.path)

    def keep(self, state: DatasetState | None, patches: Iterable[DatasetPatch]) -> list[str]:
        """Remove all files but those of this state and these patches; returns the names of what was left over."""
        wanted = {self.patch_of(one).name for one in patches}
        if state is not None:
            wanted.add(self.dataset_of(state).name)
        left: list[Path] = []
        with suppress(FileNotFoundError):
            left += (one for one in self.path.iterdir() if one.suffix in (".nq", ".nqud") and one.name not in wanted)
        for path in left:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return [path.name for path in left]

    def check(self, path: Path, sha256: str, octets: int) -> None:
        """See that a file is as it was placed: its digest, unless it was found right before and is untouched since.

        Raises BrokenSeries.
        """
        try:
            found = _state_of(path)
            if self._known.get(path.name) == found:
                return
            digest = file_digest(path) if found[0] == octets else ""
        except OSError as cause:
            raise BrokenSeries(f"a file of the dataset cannot be read: {cause.strerror}", where=str(path)) from cause
        if digest != sha256:
            self._known.pop(path.name, None)
            raise BrokenSeries("a file of the dataset is not as it was made", where=str(path))
        self._known[path.name] = found

    def check_all(self, state: DatasetState, patches: Iterable[DatasetPatch]) -> None:
        """The same of the newest state and all patches, of which the last leads to it. Raises BrokenSeries."""
        last = None
        for one in patches:
            self.check(self.patch_of(one), one.sha256, one.octets)
            last = one
        if last is None or last.dataset != state.sha256 or last.seq != state.seq:
            raise BrokenSeries("the newest patch does not lead to the dataset", where=str(self.path))
        self.check(self.dataset_of(state), state.sha256, state.octets)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def blocks_of(path: Path) -> Iterator[bytes]:
    """The octets of a file. Raises BrokenSeries."""
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as cause:
        raise BrokenSeries(f"a file of the dataset cannot be read: {cause.strerror}", where=str(path)) from cause


def _state_of(path: Path) -> FileState:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def replayed(folder: DatasetFolder, patches: Sequence[DatasetPatch], scratch: Path) -> tuple[Path, DatasetSummary]:
    """Execute the patches, in `scratch`: a file of canonical N-Quads, and what it has.

    Raises BrokenSeries where one is lost or damaged, or a line has no effect.
    """
    from headwater.rdf.unified_diff import merge_patches  # takes the RDF library along

    paths = []
    for one in patches:
        folder.check(folder.patch_of(one), one.sha256, one.octets)
        paths.append(folder.patch_of(one))
    target = scratch / "replay.nq"
    applied = merge_patches(None, paths, target, scratch=scratch, strict=True)
    if applied.already_there or applied.not_there:
        count = applied.already_there + applied.not_there
        raise BrokenSeries(f"{count:,} lines of the patches have no effect", where=str(folder.path))
    return target, applied.dataset
