"""The dataset of a copy that a destination has made: the file that its state has, verified, and where it came from.

What is published is what was placed and verified (DST-V): a file that no list confirms, or that is not as it was
placed, is not read. The origin becomes the `via` of the published dataset (DST-S9).
"""

from __future__ import annotations

import datetime as dt
import os
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from headwater.copies.copy_state import CopiedFile, CopiedSet, CopyStateReader, copied_sets, files_after, files_at
from headwater.copies.dataset_choice import RdfFile, chosen_dataset, rdf_file
from headwater.copies.schema import FOLDER, STATE
from headwater.datasets.faults import InputChanged, UnusableInput
from headwater.ingest.copy.inherited_links import VIA, leads_home
from headwater.ingest.datasets.inputs import ChosenInput, DatasetInput, PathInput, signature_of_files
from headwater.rdf.syntaxes import RdfInput
from headwater.spec.records import Link
from headwater.storage.sqlite.transaction import Transaction
from headwater.typed_decoding import from_json

_DEEPEST: Final = 64
_AT_ONCE: Final = 1_000
_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


class _Found(NamedTuple):
    """The file of the dataset, and how it is written."""

    file: CopiedFile
    dataset: RdfFile


def copy_above(path: Path) -> Path | None:
    """The folder of the copy that a path is, or lies in; None: it is none of a copy."""
    path = Path(os.path.abspath(path))
    folders = (path, *path.parents)[:_DEEPEST]
    return next((one for one in folders if (one / FOLDER / STATE).is_file()), None)


class PathOrCopy(ChosenInput):
    """A file or a folder, of a copy or not, whatever is there when it is looked at. `base` is for what is of none."""

    def __init__(self, path: Path, base_url: str, base: str | None = None) -> None:
        self.where = str(path)
        self._path = path
        self._base_url = base_url
        self._plain = PathInput(path, base_url, None, base)
        self._copied: CopiedInput | None = None

    def origin(self) -> Link | None:
        """Where what was read last has come from."""
        return None if self._copied is None else self._copied.origin

    def _present(self) -> DatasetInput:
        copy = copy_above(self._path)
        if copy is None:
            self._copied = None
            return self._plain
        if self._copied is None or self._copied.copy != copy:
            self._copied = CopiedInput(self._path, copy, self._base_url)
        return self._copied


class CopiedInput:
    """The dataset below a folder of a copy, or the one that a file of it is."""

    def __init__(self, path: Path, copy: Path, base_url: str) -> None:
        self.where = str(path)
        self.origin: Link | None = None
        """Where what was read last has come from."""

        self.copy = copy
        self._below = os.fsencode(os.path.relpath(os.path.abspath(path), copy))
        self._base_url = base_url

    def signature(self) -> bytes | None:
        """By what the state says of the file, and by what the system says."""
        found = self._found()
        path = self._path(found)
        said = f"{found.file.uri}\0{found.file.digest}\0{found.file.unconfirmed}\0{found.file.links}"
        return signature_of_files([(said.encode("utf-8", "surrogatepass"), self._stat(path))])

    def changed_at_ns(self) -> int:
        """Nothing that is placed is under way: files of a copy are renamed to their names."""
        return 0

    def read(self, scratch: Path) -> list[RdfInput]:
        """The file. Raises InputChanged where it is not as it was placed, for the moment at least."""
        _ = scratch
        found = self._found()
        path, file = self._path(found), found.file
        if file.unconfirmed:
            raise UnusableInput("no list confirms the dataset of the copy yet", where=str(path))
        seen = self._stat(path)
        if (seen.st_size, seen.st_mtime_ns) != (file.size, file.mtime_ns):
            raise InputChanged("the dataset of the copy is not as it was placed", where=str(path))
        self.origin = self._origin(file)
        return [RdfInput(path, found.dataset.syntax, found.dataset.uri, str(path))]

    def _found(self) -> _Found:
        """What the state has by now. Raises UnusableInput, NoSingleDataset, and faults of the state."""
        with closing(CopyStateReader(self.copy)) as state, state.read() as t:
            some = [(one, rdf) for one in self._files(t) if (rdf := _as_rdf(one)) is not None]
        chosen = chosen_dataset([rdf for _, rdf in some], None)
        if chosen is None:
            raise UnusableInput("the copy has no RDF dataset here", where=self.where)
        return next(_Found(one, rdf) for one, rdf in some if rdf is chosen)

    def _files(self, t: Transaction) -> list[CopiedFile]:
        for one in copied_sets(t):
            if (found := files_at(t, one.id, [self._below]).get(self._below)) is not None:
                return [found]
        if Path(self.where).is_file():
            what = "the copy does not hold this file"
            raise UnusableInput(what, where=self.where, advice="Name a file that `headwater sync` has placed.")
        sets = [one for one in copied_sets(t) if self._is_meant(one)]
        if len(sets) != 1:
            told = ", ".join(one.folder or "." for one in copied_sets(t))[:200]
            what = "this is no folder of a set of the copy" if not sets else "the copy has several sets"
            raise UnusableInput(what, where=self.where, advice=f"Name the folder of one set: {told}.")
        return files_after(t, sets[0].id, "", _AT_ONCE)

    def _is_meant(self, one: CopiedSet) -> bool:
        return self._below in (b".", os.fsencode(one.folder or "."))

    def _path(self, found: _Found) -> Path:
        return self.copy / os.fsdecode(found.file.path)

    def _stat(self, path: Path) -> os.stat_result:
        try:
            return path.stat(follow_symlinks=False)
        except OSError as cause:
            raise UnusableInput(f"cannot be read: {cause.strerror}", where=str(path)) from cause

    def _origin(self, file: CopiedFile) -> Link:
        """The `via` of the entry that it was copied by, else its own resource there. Raises UnusableInput."""
        kept = from_json(file.links, list[Link]) if file.links else []
        link = next(
            (one for one in kept if one.rel.lower() == VIA),
            Link(
                rel=VIA,
                href=file.loc or file.uri,
                modified=None if file.lastmod is None else _EPOCH + dt.timedelta(microseconds=file.lastmod),
                hash=file.listed_hash,
                length=file.listed_length,
                type=file.type,
            ),
        )
        if leads_home([link], self._base_url):
            raise UnusableInput("the dataset of the copy came from here", where=link.href)
        return link


def _as_rdf(file: CopiedFile) -> RdfFile | None:
    return rdf_file(file.uri, file.path, file.type, file.extra, file.digest)
