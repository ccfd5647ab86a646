"""The states of a dataset that are kept for one store: files of canonical N-Quads, named by their SHA-256.

A store knows by its position which of them it holds. A state is kept before the store goes to it, and removed after the
store has gone from it: killed anywhere, the files of both ends of what was under way are there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.errors import StoreFault
from headwater.files.folder_marks import STATE_MARK, mark_folder
from headwater.rdf.canonical import BlankNodes, RdfOptions, write_canonical
from headwater.rdf.faults import BadRdf
from headwater.rdf.statements import is_plain
from headwater.rdf.syntaxes import N_QUADS, RdfFile, RdfInput
from headwater.rdf.unified_diff import PatchSummary, write_patch
from headwater.storage.durable import replace_file, sync_folder
from headwater.sync.copy.local_files import digest_of_file
from headwater.typed_decoding import from_json

_PIECE: Final = 1 << 20
_NOTE: Final = "state.json"
_NEXT: Final = "next"
_CHANGES: Final = "changes.nqud"
_LEFT_BEHIND: Final = (_NEXT, f".{_NEXT}.*.part", "rdf-*", ".state-*", _CHANGES, "oxigraph.new", "oxigraph.old")
"""Names of what a killed run may have left."""


class CountedState(msgspec.Struct, frozen=True):
    """How many statements a store had when it was left in the state with this SHA-256.

    They are fewer than the dataset has where the store takes two forms of a literal for one.
    """

    sha256: str
    count: int
    at: float = 0.0
    """When they were counted, in seconds since 1970, and how long that took."""

    seconds: float = 0.0


class KeptState(msgspec.Struct, frozen=True):
    """A state of the dataset: of which octets it was made, and its canonical form."""

    source_digest: str
    sha256: str
    quads: int
    copy: str = ""
    """The identity of the copy whose store it is; empty: noted by an earlier version."""

    dataset: str = ""
    """The URI of the dataset, by which a store may have it; empty likewise."""

    counted: CountedState | None = None


def blank_nodes_of(dataset: RdfFile) -> BlankNodes:
    """What becomes of blank nodes: labels stay where the syntax has some for whole files, else the canonical ones."""
    return BlankNodes.KEPT if dataset.syntax.is_lines else BlankNodes.CANONICAL


class KeptStates:
    """The folder of the states that are kept for one store."""

    def __init__(self, folder: Path, copy: str = "") -> None:
        """`copy` is the identity of the copy whose dataset the store follows."""
        folder.mkdir(parents=True, exist_ok=True)
        mark_folder(folder, STATE_MARK)
        self._folder = folder
        self._copy = copy
        self._changes = folder / _CHANGES
        self._compared: tuple[str, str, PatchSummary] | None = None
        for pattern in _LEFT_BEHIND:
            for path in folder.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def path(self, sha256: str) -> Path:
        """Where the file of a state is, or would be."""
        return self._folder / f"{sha256}.nq"

    def __contains__(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def is_of_this_copy(self, dataset: RdfFile) -> bool:
        """Whether it was this copy that brought the store up last; where that is not noted, one with the same file."""
        noted = self._noted()
        if noted is None or not self._copy:
            return False
        return noted.copy == self._copy or (
            not noted.copy and bool(dataset.digest) and noted.source_digest == dataset.digest
        )

    def former_uri(self, dataset: RdfFile) -> str | None:
        """The URI by which this copy has brought the dataset into the store, if it is another one by now."""
        noted = self._noted()
        if noted is None or noted.copy != self._copy or noted.dataset in ("", dataset.uri):
            return None
        return noted.dataset

    def state_of(self, dataset: RdfFile, root: Path) -> KeptState:
        """The state that a file of the copy has, kept. Read only where it is not the one that was read last.

        Raises StoreFault where the file is not what was verified: a store that took it would hold it for ever.
        """
        noted = self._noted()
        if noted is not None and dataset.digest and noted.source_digest == dataset.digest and noted.sha256 in self:
            return self._note(noted, dataset.uri)
        aside = self._folder / _NEXT
        source = RdfInput(root / os.fsdecode(dataset.path), dataset.syntax, dataset.uri, dataset.uri)
        try:
            state = None
            if noted is not None and noted.sha256 in self and dataset.syntax is N_QUADS and is_plain(source.path):
                state = self._continued(noted, dataset.digest, source.path, aside)
            if state is None:
                _check_is_verified(source.path, dataset)
                made = write_canonical(
                    [source], aside, scratch=self._folder, options=RdfOptions(blank_nodes_of(dataset))
                )
                state = KeptState(dataset.digest, made.sha256, made.quads)
            aside.rename(self.path(state.sha256))
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
        sync_folder(self._folder)
        return self._note(state, dataset.uri)

    def _note(self, state: KeptState, uri: str) -> KeptState:
        state = msgspec.structs.replace(state, copy=self._copy, dataset=uri, counted=self.counted)
        if state != self._noted():
            self._write_note(state)
        return state

    def _write_note(self, state: KeptState) -> None:
        replace_file(self._folder / _NOTE, [msgspec.json.encode(state)], ".state-")

    def _continued(self, before: KeptState, digest: str, source: Path, aside: Path) -> KeptState | None:
        """The state of a file that is canonical already, copied: the comparison with the state before proves it.

        None where it is not, or is not known to have the octets that were verified. What differs is kept for `changes`.
        """
        sha256 = _copied(source, aside)
        if digest != f"sha-256:{sha256}":
            return None
        try:
            with self._changes.open("wb") as file:
                summary = write_patch(self.path(before.sha256), aside, file)
        except BadRdf:
            return None
        self._compared = before.sha256, sha256, summary
        return KeptState(digest, sha256, before.quads - summary.removed + summary.added)

    @property
    def counted(self) -> CountedState | None:
        """What was counted in the store when it was left; None: nobody has."""
        noted = self._noted()
        return None if noted is None else noted.counted

    def remember(self, counted: CountedState) -> None:
        """Remember what was counted in the store."""
        noted = self._noted()
        if noted is not None:
            self._write_note(msgspec.structs.replace(noted, counted=counted))

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for temporary files."""
        return tempfile.TemporaryDirectory(prefix="rdf-", dir=self._folder)

    def changes(self, before: str, after: str) -> tuple[Path, PatchSummary]:
        """What leads from one state that is kept to another: removals and then additions; overwritten by the next."""
        if self._compared is not None and self._compared[:2] == (before, after) and self._changes.is_file():
            return self._changes, self._compared[2]
        with self._changes.open("wb") as file:
            summary = write_patch(self.path(before), self.path(after), file)
        self._compared = before, after, summary
        return self._changes, summary

    def forget_changes(self) -> None:
        """Remove the file of changes."""
        self._compared = None
        self._changes.unlink(missing_ok=True)

    def keep_only(self, sha256: str) -> None:
        """Remove the files of other states."""
        for path in self._files():
            if path != self.path(sha256):
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[Path]:
        yield from (path for path in self._folder.glob("*.nq") if len(path.stem) == 64)

    def _noted(self) -> KeptState | None:
        try:
            return from_json((self._folder / _NOTE).read_bytes(), KeptState)
        except (OSError, msgspec.DecodeError):
            return None


def _check_is_verified(path: Path, dataset: RdfFile) -> None:
    """Raises StoreFault where a file has not the digest that it was placed with: it was altered since (DST-V)."""
    algorithm, _, wanted = dataset.digest.partition(":")
    if wanted and digest_of_file(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC), algorithm) != wanted:
        raise StoreFault(
            "the file of the dataset is not what was verified",
            where=str(path),
            advice="It was altered since: run the same command again with --repair.",
        )


def _copied(source: Path, target: Path) -> str:
    """Copy a file; the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with source.open("rb") as old, target.open("wb") as new:
        while piece := old.read(_PIECE):
            digest.update(piece)
            new.write(piece)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()
