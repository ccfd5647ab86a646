"""A source that another process publishes, for a process that only serves: nothing is locked, scanned or written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.catalog.interface import Catalog
from headwater.ingest.belonging import Belonging
from headwater.progress import Listener, silent
from headwater.publish.publisher import Publisher
from headwater.publish.site import SOURCE_DESCRIPTION
from headwater.server.config import SourceConfig
from headwater.server.set_source import folder_of
from headwater.server.source import open_catalog, open_store, utc_now


class ShownSource:
    """What `headwater serve --no-publish` serves. Any number of these may show one catalog and one document storage.

    Until the publishing process has published a set, it counts as not there yet, as with a source that has just begun.
    """

    def __init__(self, config: SourceConfig, *, base_url: str | None = None, listener: Listener = silent) -> None:
        self.config = config
        self.site = config.site(base_url)
        state = Path(config.state)
        self._belonging = {
            name: Belonging(one.root, one.selection, one.avoid)
            for name, one in (
                (set_.name, folder_of(set_, self.site, state, None, config.documents)) for set_ in config.sets
            )
        }
        self.catalog: Catalog = open_catalog(config)
        self.store = open_store(config, clean=False)
        self._publisher = Publisher(self.catalog, self.store, self.site, utc_now, listener)

    def __enter__(self) -> ShownSource:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def is_published(self, name: str) -> bool:
        """Whether the set's documents are there, in the shape that this configuration gives them."""
        return self.is_site_published() and self._publisher.is_published(name)

    def is_site_published(self) -> bool:
        """Whether there is a Source Description; the publishing process writes it when what it names is there."""
        return self.store.get(SOURCE_DESCRIPTION) is not None

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path."""
        return self._belonging[name].takes(relative)

    def health(self) -> Mapping[str, object]:
        """What this process knows of itself; how the sets are is read from the catalog."""
        return {"role": "server", "sets": []}

    def close(self) -> None:
        """Give up the catalog's files."""
        self.catalog.close()
