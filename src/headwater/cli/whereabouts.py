"""What a command means by CATALOG: a file, a state folder, a configuration, or a cluster's URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headwater import notices
from headwater.errors import UsageFault
from headwater.progress import Listener, Notice

if TYPE_CHECKING:
    from headwater.catalog.interface import Portable
    from headwater.server.config import SourceConfig

_PLACES = "headwater.catalog.places"


class NoCatalog(UsageFault):
    """There is no catalog at the place that was named."""

    code: ClassVar[str] = "HW-CLI-01"
    advice: ClassVar[str] = "Name a catalog file, a state folder, a configuration (.toml), or a cluster's URL."


class Whereabouts:
    """One place, as far as it is known without opening it: `file` is None for a cluster."""

    def __init__(self, place: str) -> None:
        from headwater.server.source import CATALOG

        self.place = place
        self.config: SourceConfig | None = None
        self.file: Path | None = None
        if "://" in place:
            return
        path = Path(place.removeprefix("sqlite:"))
        if path.suffix == ".toml" and path.is_file():
            from headwater.server.config import read_config

            self.config = read_config(path)
            path = Path(self.config.state)
        self.file = path / CATALOG if self.config is not None or path.is_dir() else path

    @property
    def state_folder(self) -> Path | None:
        """The state folder of a source that the file lies in; None for a file by itself."""
        from headwater.ingest.walk import is_state

        if self.file is None:
            return None
        folder = self.file.parent
        return folder if self.config is not None or is_state(bytes(folder)) else None

    @property
    def octets(self) -> int | None:
        """What the catalog takes on disk, with what is not in the file yet; None for a cluster."""
        if self.file is None:
            return None
        files = (self.file, self.file.with_name(self.file.name + "-wal"))
        return sum(one.stat().st_size for one in files if one.exists())


@contextmanager
def existing(where: Whereabouts, listener: Listener) -> Iterator[Portable]:
    """The catalog that is there, for reading, also beside a server at work. Raises NoCatalog and the catalog's errors.

    A catalog of an older version is migrated when it is opened, and the listener hears of it.
    """
    if where.file is not None and not where.file.is_file():
        raise NoCatalog("there is no catalog", where=str(where.file))
    catalog = _open(where)
    try:
        tell_migration(catalog, where, listener)
        yield catalog
    finally:
        catalog.close()


@contextmanager
def writable(where: Whereabouts, listener: Listener) -> Iterator[Portable]:
    """The catalog, made when it is not there, for us alone where a source could be at work on it. Raises Locked."""
    from headwater.server.lock import StateLock

    folder = where.state_folder
    lock = StateLock(folder) if folder is not None else None
    try:
        catalog = _open(where)
        try:
            tell_migration(catalog, where, listener)
            yield catalog
        finally:
            catalog.close()
    finally:
        if lock is not None:
            lock.release()


def tell_migration(catalog: object, where: Whereabouts, listener: Listener) -> None:
    """Say when opening has brought the catalog's schema forward."""
    before = getattr(catalog, "migrated_from", None)
    if before is not None:
        text = f"the catalog was of schema version {before} and has been migrated; older versions refuse it now"
        listener(Notice(notices.MIGRATED, text, where.place))


def _open(where: Whereabouts) -> Portable:
    if where.file is None:
        if find_spec(_PLACES) is None:
            raise NoCatalog("this Headwater knows no clusters", where=where.place)
        catalog: Portable = import_module(_PLACES).open_catalog(where.place)
        return catalog
    from headwater.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(where.file)
