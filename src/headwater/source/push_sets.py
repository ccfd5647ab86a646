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
    from headwater.source.scheduler import Scheduler
    from headwater.source.worker import SetWorker, SourceContext


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
        self._workers: dict[str, SetWorker] = {}
        self.by_set: dict[str, Feed] = {}
        if self._configs:
            from headwater.ingest.push.feed import Feed
            from headwater.ingest.push.ingest_state import refuse_old_memory
            from headwater.ingest.set_problems import DeletionGuard

            refuse_old_memory(catalog, state)
            for name, one in self._configs.items():
                locations = one.locations(site.resource_prefix(name))
                feed = self.by_set[name] = Feed(catalog, name, locations, clock)
                feed.guard = DeletionGuard(catalog, name, one.max_delete, clock)

    @property
    def closed(self) -> list[str]:
        """The sets that nobody can announce to by HTTP, and that follow no index."""
        return [name for name, tokens in self._tokens.items() if tokens.is_empty and self._configs[name].index is None]

    def schedule(self, context: SourceContext, scheduler: Scheduler) -> list[SetWorker]:
        """Have this scheduler keep the fed sets current; who does is returned. Nothing when there are none."""
        if not self.by_set:
            return []
        from headwater.ingest.dit.index import index_credentials
        from headwater.source.published_feed import FeedWatch, IndexPoll, PublishedFeed
        from headwater.source.worker import SetWorker

        indexes = [str(one.index) for one in self._configs.values() if one.index is not None]
        credentials, stop = index_credentials(os.environ, indexes), scheduler.stopping.is_set
        for name, feed in self.by_set.items():
            config = self._configs[name]
            intake = PublishedFeed(context, feed, has_index=config.index is not None)
            worker = self._workers[name] = SetWorker(context, intake, stop, scheduler.wake)
            scheduler.add(worker)
            if config.index is not None:
                index = partial(_index, config, feed, credentials, context.listener, stop)
                scheduler.add(IndexPoll(worker, context.clock, index, config.poll_seconds))
        workers = list(self._workers.values())
        scheduler.add(FeedWatch(context, workers))
        return workers

    def targets(self) -> dict[str, PushTarget]:
        """The sets as targets of push."""
        return {name: self._target(name) for name in self.by_set}

    def _target(self, name: str) -> PushTarget:
        from headwater.source.health import PushTarget

        config = self._configs[name]
        names = frozenset(config.resource_sets or (name,)) if config.feed == "dit" else frozenset[str]()

        def news() -> None:
            if (worker := self._workers.get(name)) is not None:
                worker.tell()

        return PushTarget(
            feed=self.by_set[name],
            tokens=self._tokens[name],
            resource_sets=names,
            news=news,
        )


def _index(
    config: SetConfig, feed: Feed, credentials: Credentials, listener: Listener, stop: Callable[[], bool]
) -> DitFollower:
    from headwater.ingest.dit.follower import DitFollower
    from headwater.ingest.dit.index import index_at

    names = config.resource_sets or (config.name,)
    index = index_at(str(config.index), listener, credentials, patience_seconds=INDEX_PATIENCE_SECONDS)
    return DitFollower(feed, index, frozenset(names), listener=listener, stop=stop)
