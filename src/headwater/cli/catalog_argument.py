"""The CATALOG argument of commands: a file, a state folder, a configuration, or a cluster's URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import UsageFault
from headwater.files.file_copies import free_octets
from headwater.progress import Listener

if TYPE_CHECKING:
    from headwater.catalog.interface import Catalog


OUTPUT_STATE = ".headwater"
"""The state folder inside the output of `publish`, unless another is named."""

_NOT_YET = "A source makes it: run `headwater serve` or `headwater publish` first."
_ADDRESS = "`headwater explore URL` shows what a source offers; name a folder here."


class CatalogArgument:
    """One place, as far as it is known without opening it: `file` is None for a cluster. Raises BadPlace.

    `patience_seconds`: how long a cluster that is away is waited for, where its URL does not say so. With
    `may_be_new`, a name without an ending that is not there is a state folder to be made, and else a file.
    """

    def __init__(self, place: str, *, may_be_new: bool = False, patience_seconds: float | None = None) -> None:
        from headwater.catalog.catalog_url import is_cluster, place_of, shown

        self.place = shown(place)
        self.file: Path | None = None
        self.push_sets: tuple[str, ...] = ()
        """The push sets of a configuration; none where none was read."""
        self.sets: frozenset[str] | None = None
        """All sets of a configuration; None where none was read."""
        self._folders: list[Path] = []
        self._patience_seconds = patience_seconds
        self._cluster = place
        self._is_of_a_source = False
        if place.startswith(("http://", "https://")):
            raise UsageFault(
                "this is an address, and no place of a catalog", code="HW-CLI-01", where=self.place, advice=_ADDRESS
            )
        if is_cluster(place):
            place_of(place)
            return
        path = Path(place.removeprefix("sqlite:"))
        if path.suffix == ".toml" and path.is_file():
            self._read(path)
        elif may_be_new and not path.suffix and not path.exists():
            self.file, self._is_of_a_source = _inside(path), True
        elif path.is_dir():
            self.file = _inside(path)
            if not self.file.exists() and _inside(path / OUTPUT_STATE).exists():  # the output of `publish`
                self.file = _inside(path / OUTPUT_STATE)
        else:
            self.file = path

    def _read(self, path: Path) -> None:
        from headwater.catalog.catalog_url import is_cluster
        from headwater.source.config import read_config
        from headwater.source.configured_source import written_folders

        config = read_config(path)
        self.sets = frozenset(one.name for one in config.sets)
        self.push_sets = tuple(one.name for one in config.sets if one.feed is not None)
        self._folders = written_folders(config)
        self._is_of_a_source = True
        configured: str | None = config.catalog
        if configured is None:
            self.file = _inside(Path(config.state))
        elif is_cluster(configured):
            self._cluster = configured
        else:
            self.file = Path(configured.removeprefix("sqlite:"))

    @property
    def state_folder(self) -> Path | None:
        """The state folder of a source that the file lies in; None for a file by itself."""
        from headwater.files.folder_marks import is_state

        if self.file is None:
            return None
        folder = self.file.parent
        return folder if self._is_of_a_source or is_state(bytes(folder)) else None

    @property
    def octets(self) -> int | None:
        """What the catalog takes on disk, with what is not in the file yet; None for a cluster."""
        if self.file is None:
            return None
        files = (self.file, self.file.with_name(self.file.name + "-wal"))
        return sum(one.stat().st_size for one in files if one.exists())

    @property
    def free_octets(self) -> int | None:
        """How much room is left where the catalog lies; None for a cluster."""
        return None if self.file is None else free_octets(self.file.parent)

    @property
    def full(self) -> dict[str, int]:
        """The folders of the source where nothing more can be written, as far as they are known: their free octets."""
        from headwater.source.configured_source import LITTLE_ROOM, full_folders

        found, free = full_folders(self._folders), self.free_octets
        if self.file is not None and free is not None and free < LITTLE_ROOM:
            found[str(self.file.parent)] = free
        return found

    @property
    def _target(self) -> str | Path:
        from headwater.catalog.catalog_url import with_patience

        if self.file is not None:
            return self.file
        return self._cluster if self._patience_seconds is None else with_patience(self._cluster, self._patience_seconds)

    def is_there(self, listener: Listener) -> bool:
        """Whether there is a catalog. Raises faults of the store."""
        from headwater.catalog.catalog_url import credentials_from, is_there

        return is_there(self._target, credentials=credentials_from(os.environ), listener=listener)

    def missing(self) -> UsageFault:
        """What is wrong with the place, where there is no catalog."""
        from headwater.copy_state import FOLDER, STATE

        path = Path(self.place.removeprefix("sqlite:"))
        if self.file is None or self._is_of_a_source:
            return UsageFault(
                "there is no catalog yet", code="HW-CLI-01", where=str(self.file or self.place), advice=_NOT_YET
            )
        if not os.path.lexists(path):
            return UsageFault("there is nothing at this path", code="HW-CLI-01", where=self.place)
        if (path / FOLDER / STATE).is_file():
            return UsageFault(
                "this folder is a copy, and not the state of a source", code="HW-CLI-01", where=self.place
            )
        return UsageFault("this folder is neither a copy nor the state of a source", code="HW-CLI-01", where=self.place)

    def open(self, listener: Listener) -> Catalog:
        """The catalog, made when it is not there. Raises the catalog's errors."""
        from headwater.catalog.catalog_url import credentials_from, open_catalog

        return open_catalog(self._target, credentials=credentials_from(os.environ), listener=listener)


@contextmanager
def existing(where: CatalogArgument, listener: Listener) -> Iterator[Catalog]:
    """The catalog that is there, for reading, also beside a server at work. Raises UsageFault, the catalog's errors."""
    if not where.is_there(listener):
        raise where.missing()
    catalog = where.open(listener)
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def restorable(where: CatalogArgument, listener: Listener) -> Iterator[Catalog]:
    """The catalog, made when it is not there; nobody else works on its state folder. Raises Locked."""
    from headwater.source.leadership import StateLock

    folder = where.state_folder
    lock = StateLock(folder) if folder is not None else None
    try:
        catalog = where.open(listener)
        try:
            yield catalog
        finally:
            catalog.close()
    finally:
        if lock is not None:
            lock.release()


def _inside(folder: Path) -> Path:
    from headwater.source.configured_source import CATALOG

    return folder / CATALOG
