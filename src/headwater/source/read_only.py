"""A source that another process publishes, for a process that only serves: nothing is locked, scanned or written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.catalog.interface import Catalog, SetState
from headwater.progress import Listener, silent
from headwater.publish.publisher import Publisher
from headwater.publish.site import SOURCE_DESCRIPTION
from headwater.source.config import SourceConfig
from headwater.source.folder.pipeline import belonging_of, folder_of
from headwater.source.push.push_sets import PushSets
from headwater.source.source import open_catalog, open_store, utc_now
from headwater.source.state_lock import make_state


class ReadOnlySource:
    """What `headwater serve --no-publish` serves. Any number of these may show one catalog and one document storage.

    Until the publishing process has published a set, it counts as not there yet, as with a source that has just begun.
    """

    def __init__(self, config: SourceConfig, *, base_url: str | None = None, listener: Listener = silent) -> None:
        self.config = config
        self.site = config.site(base_url)
        state = Path(config.state)
        scanned = [one for one in config.sets if one.feed is None]
        folders = {one.name: folder_of(one, self.site, state, None, config.documents) for one in scanned}
        self._belonging = belonging_of(config, folders)
        self.push_names = frozenset(one.name for one in config.sets if one.feed is not None)
        make_state(state)
        self.catalog: Catalog = open_catalog(config, listener)
        self.store = open_store(config)
        self.push_sets = PushSets(config.sets, self.site, self.catalog, state, utc_now)
        self._publisher = Publisher(self.catalog, self.store, self.site, utc_now, listener)

    def __enter__(self) -> ReadOnlySource:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents are there, in the shape that this configuration gives them."""
        return self.is_site_published() and self._publisher.site_documents.is_published(name, state)

    def is_site_published(self) -> bool:
        """Whether there is a Source Description; the publishing process writes it when what it names is there."""
        return self.store.get(SOURCE_DESCRIPTION) is not None

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        return self.is_site_published() and (name is None or self._publisher.site_documents.is_known_published(name))

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path."""
        return name in self._belonging and self._belonging[name].takes(relative)

    def health(self) -> Mapping[str, object]:
        """What this process knows of itself; how the sets are is read from the catalog."""
        return {"role": "server", "sets": []}

    def close(self) -> None:
        """Give up the files."""
        self.push_sets.close()
        self.catalog.close()
