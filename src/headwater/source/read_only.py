"""A source that another process publishes, for a process that only serves: nothing is locked, scanned or written."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.catalog.interface import SetState
from headwater.progress import Listener, silent
from headwater.publish.publisher import Publisher
from headwater.source.config import SourceConfig
from headwater.source.configured_source import ConfiguredSource, utc_now
from headwater.source.state_lock import make_state


class ReadOnlySource(ConfiguredSource):
    """What `headwater serve --no-publish` serves. Any number of these may show one catalog and one document storage.

    Until the publishing process has published a set, it counts as not there yet, as with a source that has just begun.
    """

    def __init__(self, config: SourceConfig, *, base_url: str | None = None, listener: Listener = silent) -> None:
        super().__init__(config, base_url)
        make_state(self._state)
        self._open(utc_now, listener)
        self._publisher = Publisher(self.catalog, self.store, self.site, utc_now, listener)

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents are there, in the shape that this configuration gives them."""
        return self.is_site_published() and self._publisher.site_documents.is_published(name, state)

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        return self.is_site_published() and (name is None or self._publisher.site_documents.is_known_published(name))

    def health(self) -> Mapping[str, object]:
        """What this process knows of itself; how the sets are is read from the catalog."""
        return {"role": "server", "sets": []}
