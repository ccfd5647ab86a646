"""A set as a target of push: who may send what where, and what is kept of it while the server is stopped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import Event, Upsert
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.dit.intake import PATIENCE
from headwater.ingest.push.feed import Feed
from headwater.progress import Listener
from headwater.source.config import SetConfig
from headwater.source.tokens import AccessTokens
from headwater.versions.history import History, has_history, sha256_of
from headwater.versions.keeping import ContentKeeping
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore


class PushTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One set. `resource_sets` are its names in DIT documents, `news` is called when something was recorded."""

    feed: Feed
    tokens: AccessTokens
    resource_sets: frozenset[str] = frozenset()
    patience: dt.timedelta = PATIENCE
    news: Callable[[], None] = lambda: None


class FeedPlace(NamedTuple):
    """Where the source keeps versions, and where the files of the set are, as far as that is known."""

    versions: VersionStore
    root: str | None


def keep_versions(feed: Feed, config: SetConfig | None, place: FeedPlace, listener: Listener) -> None:
    """Have `feed` keep the octets of its changes, and note them, as far as the set's configuration asks for that.

    Without a configuration a history that the catalog has goes on; without a root its octets are noted as not kept.
    """
    patch = config.patch if config is not None else ()
    wants_history = bool(config.versions) if config is not None else feed.name in has_history(feed.catalog)
    if not (wants_history or patch or (config is not None and config.change_dump)):
        return
    if wants_history:
        feed.history = History(feed.catalog, feed.name, place.versions.has)
    if patch:
        feed.predecessors = Predecessors(patch)
    if place.root is None:
        feed.keep = _nothing_kept
        return
    contents = FileContentReader({feed.name: ContentRoot(prefix=feed.locations.prefix, folder=place.root)})
    is_all = wants_history or not patch or (config is not None and config.change_dump)
    keeps = feed.predecessors.keeps if feed.predecessors is not None and not is_all else lambda _metadata: True
    feed.keep = ContentKeeping(place.versions, contents, feed.name, listener, keeps).keep


def _nothing_kept(events: Iterable[Event]) -> set[str]:
    return {sha256_of(one.metadata.hash) for one in events if isinstance(one, Upsert)}
