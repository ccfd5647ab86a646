"""The push sets of a source: makes feeds, targets and tasks from their configuration."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.catalog.interface import Catalog
from headwater.progress import Listener
from headwater.publish.site import Site
from headwater.source.config import SetConfig
from headwater.source.tokens import AccessTokens, BadToken

if TYPE_CHECKING:  # what folders alone do not need is imported where it is used: that is a quarter of a start
    from headwater.catalog.catalog_url import Credentials
    from headwater.ingest.dit.follower import DitFollower
    from headwater.ingest.push.feed import Feed
    from headwater.source.health import PushTarget


INDEX_PATIENCE_SECONDS = 3.0
"""How long one look at an index is tried: the next one comes soon enough, and publishing waits meanwhile."""


def _tokens_of(config: SetConfig) -> AccessTokens:
    try:
        return config.tokens()
    except BadToken as fault:
        fault.where = f"{fault.where} of set {config.name!r}" if fault.where else f"set {config.name!r}"
        raise


class PushSets:
    """The push sets among `sets`; nothing is made on disk when there are none."""

    def __init__(
        self, sets: Iterable[SetConfig], site: Site, catalog: Catalog, state: Path, clock: Callable[[], dt.datetime]
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._configs = {one.name: one for one in sets if one.feed is not None}
        self._tokens = {name: _tokens_of(one) for name, one in self._configs.items()}
        self.tell: Callable[[str], None] = lambda _name: None
        """Told of a set in which something was recorded."""
        self.by_set: dict[str, Feed] = {}
        if self._configs:
            from headwater.ingest.push.feed import Feed
            from headwater.ingest.push.ingest_state import refuse_old_memory
            from headwater.ingest.set_problems import DeletionGuard

            refuse_old_memory(state)
            for name, one in self._configs.items():
                locations = one.locations(site.resource_prefix(name))
                feed = self.by_set[name] = Feed(catalog, name, locations, clock)
                feed.guard = DeletionGuard(catalog, name, one.max_delete, clock)

    @property
    def closed(self) -> list[str]:
        """The sets that nobody can announce to by HTTP, and that follow no index."""
        return [name for name, tokens in self._tokens.items() if tokens.is_empty and self._configs[name].index is None]

    def followers(self, listener: Listener, stop: Callable[[], bool]) -> dict[str, Callable[[], DitFollower]]:
        """What reads the index of each set that follows one, made when it is called. Raises UsageFault."""
        from headwater.ingest.dit.index import index_credentials

        following = [one for one in self._configs.values() if one.index is not None]
        credentials = index_credentials(os.environ, [str(one.index) for one in following])
        return {one.name: partial(self._follower, one, credentials, listener, stop) for one in following}

    def _follower(
        self, config: SetConfig, credentials: Credentials, listener: Listener, stop: Callable[[], bool]
    ) -> DitFollower:
        from headwater.ingest.dit.follower import DitFollower
        from headwater.ingest.dit.index import index_at

        names = config.resource_sets or (config.name,)
        index = index_at(str(config.index), listener, credentials, patience_seconds=INDEX_PATIENCE_SECONDS)
        return DitFollower(self.by_set[config.name], index, frozenset(names), listener=listener, stop=stop)

    def targets(self) -> dict[str, PushTarget]:
        """The sets as targets of push."""
        return {name: self._target(config) for name, config in self._configs.items()}

    def _target(self, config: SetConfig) -> PushTarget:
        from headwater.source.health import PushTarget

        names = frozenset(config.resource_sets or (config.name,)) if config.feed == "dit" else frozenset[str]()
        return PushTarget(
            feed=self.by_set[config.name],
            tokens=self._tokens[config.name],
            resource_sets=names,
            news=lambda: self.tell(config.name),
        )
