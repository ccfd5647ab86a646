"""The CATALOG argument of commands: a file, a state folder, a configuration, or a cluster's URL."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from headwater.catalog.catalog_url import (
    credentials_from,
    is_cluster,
    is_there,
    open_catalog,
    place_of,
    shown,
    with_patience,
)
from headwater.catalog.interface import Catalog
from headwater.copy_state import FOLDER, STATE
from headwater.errors import UsageFault
from headwater.files.file_copies import free_octets
from headwater.files.folder_marks import is_state, is_tree
from headwater.progress import Listener
from headwater.source.config import OUTPUT_STATE, SourceConfig, read_config
from headwater.source.configured_source import (
    CATALOG,
    DOCUMENTS,
    LITTLE_ROOM,
    catalog_elsewhere,
    full_folders,
    written_folders,
)
from headwater.source.leadership import StateLock

_NOT_YET = "A source makes it: run `headwater serve` or `headwater publish` first."
_ADDRESS = "`headwater explore URL` shows what a source offers; name a folder here."


class CatalogArgument:
    """One place, as far as it is known without opening it: `file` is None for a cluster. Raises BadPlace.

    `patience_seconds`: how long a cluster that is away is waited for, where its URL does not say so. With
    `may_be_new`, a name without an ending that is not there is a state folder to be made, and else a file.
    """

    def __init__(self, place: str, *, may_be_new: bool = False, patience_seconds: float | None = None) -> None:
        self.place = shown(place)
        self.file: Path | None = None
        self.config: SourceConfig | None = None
        """The configuration that the place is, if it is one."""
        self.push_sets: tuple[str, ...] = ()
        """The push sets of a configuration; none where none was read."""
        self.sets: frozenset[str] | None = None
        """All sets of a configuration; None where none was read."""
        self._folders: list[Path] = []
        self._patience_seconds = patience_seconds
        self._cluster = place
        self.is_of_a_source = False
        if place.startswith(("http://", "https://")):
            raise UsageFault(
                "this is an address, and no place of a catalog", code="HW-CLI-01", where=self.place, advice=_ADDRESS
            )
        if is_cluster(place):
            place_of(place)
            return
        path = Path(place.removeprefix("sqlite:"))
        if path.suffix == ".toml" and path.is_file():
            self.config = config = read_config(path)
            self.sets = frozenset(one.name for one in config.sets)
            self.push_sets = tuple(one.name for one in config.sets if one.feed is not None)
            self._folders = written_folders(config)
            self.is_of_a_source = True
            if config.catalog is None:
                self.file = Path(config.state) / CATALOG
            elif is_cluster(config.catalog):
                self._cluster = config.catalog
            else:
                self.file = Path(config.catalog.removeprefix("sqlite:"))
        elif may_be_new and not path.suffix and not path.exists():
            self.file, self.is_of_a_source = path / CATALOG, True
        elif path.is_dir():
            self.file = path / CATALOG
            if not self.file.exists() and (path / OUTPUT_STATE / CATALOG).exists():  # the output of `publish`
                self.file = path / OUTPUT_STATE / CATALOG
        else:
            self.file = path

    def folders_of(self, tree: Path | None) -> tuple[Path, Path]:
        """The state folder of the source, and where its documents are: in the tree, if one is named.

        Raises UsageFault.
        """
        if (config := self.config) is not None:
            return Path(config.state), tree or Path(config.documents or config.to or Path(config.state) / DOCUMENTS)
        state = Path(os.devnull) if self.file is None else self.file.absolute().parent
        found = tree or (state.parent if is_tree(bytes(state.parent)) else state / DOCUMENTS)
        if not is_state(bytes(state)) or catalog_elsewhere(state) is not None or not found.is_dir():
            advice = "Name the configuration, the state folder, or the output of `publish`; a static tree by --to OUT."
            raise UsageFault("the place of the sets' documents is unknown", where=self.place, advice=advice)
        return state, found

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
        found, free = full_folders(self._folders), self.free_octets
        if self.file is not None and free is not None and free < LITTLE_ROOM:
            found[str(self.file.parent)] = free
        return found

    @property
    def _target(self) -> str | Path:
        if self.file is not None:
            return self.file
        return self._cluster if self._patience_seconds is None else with_patience(self._cluster, self._patience_seconds)

    def is_there(self, listener: Listener) -> bool:
        """Whether there is a catalog. Raises faults of the store."""
        return is_there(self._target, credentials=credentials_from(os.environ), listener=listener)

    def missing(self) -> UsageFault:
        """What is wrong with the place, where there is no catalog."""
        path = Path(self.place.removeprefix("sqlite:"))
        where, advice = self.place, None
        if self.file is None or self.is_of_a_source:
            what, where, advice = "there is no catalog yet", str(self.file or self.place), _NOT_YET
        elif not os.path.lexists(path):
            what = "there is nothing at this path"
        elif (path / FOLDER / STATE).is_file():
            what = "this folder is a copy, and not the state of a source"
        else:
            what = "this folder is neither a copy nor the state of a source"
            inside = next((one for one in sorted(path.glob("*/")) if (one / FOLDER / STATE).is_file()), None)
            advice = f"Name a copy in it, as {inside}, or several of them." if inside else None
        return UsageFault(what, code="HW-CLI-01", where=where, advice=advice)

    def open(self, listener: Listener) -> Catalog:
        """The catalog, made when it is not there. Raises the catalog's errors."""
        return open_catalog(self._target, credentials=credentials_from(os.environ), listener=listener)


@contextmanager
def existing(where: CatalogArgument, listener: Listener) -> Iterator[Catalog]:
    """The catalog that is there, for reading, also beside a server at work. Raises UsageFault, the catalog's errors."""
    if not where.is_there(listener):
        raise where.missing()
    with closing(where.open(listener)) as catalog:
        yield catalog


@contextmanager
def restorable(where: CatalogArgument, listener: Listener) -> Iterator[Catalog]:
    """The catalog, made when it is not there; nobody else works on its state folder. Raises Locked."""
    with ExitStack() as stack:
        folder = None if where.file is None else where.file.parent
        if folder is not None and (where.is_of_a_source or is_state(bytes(folder))):
            stack.callback(StateLock(folder).release)
        yield stack.enter_context(closing(where.open(listener)))
