"""How a set keeps the octets of its changes as versions: for Change Dumps, for patches, or for their own sake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.catalog.interface import Event, Upsert
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.recording import NOTHING_KEPT, KeptChanges
from headwater.progress import Listener
from headwater.source.config import SetConfig
from headwater.versions.history import History, has_history, sha256_of
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore

if TYPE_CHECKING:  # what folders alone do not need is imported where it is used: that is a quarter of a start
    from headwater.ingest.push.feed import Feed


def kept_changes(config: SetConfig | None, store: VersionStore, history: History | None) -> KeptChanges:
    """What a set keeps as it is configured; without a configuration only a history that goes on."""
    patch, is_dumped = (config.patch, config.change_dump) if config is not None else ((), False)
    if not (patch or is_dumped or history is not None):
        return NOTHING_KEPT
    predecessors = Predecessors(patch) if patch else None
    keeps_all = is_dumped or history is not None
    return KeptChanges(store=store, predecessors=predecessors, history=history, keeps_all=keeps_all)


def keep_versions(
    feed: Feed, config: SetConfig | None, store: VersionStore, root: str | None, listener: Listener
) -> None:
    """Have the feed of a command keep the octets of its changes, of files below `root`.

    Without a configuration a history that the catalog has goes on; without a root its octets are noted as not kept.
    """
    has_versions = bool(config.versions) if config is not None else feed.name in has_history(feed.catalog)
    kept = kept_changes(config, store, History(feed.catalog, feed.name, store.has) if has_versions else None)
    contents = FileContentReader({feed.name: ContentRoot(prefix=feed.locations.prefix, folder=root)})
    feed.keep_versions(kept, contents, listener)
    if root is None and kept.store is not None:
        feed.keep = _nothing_kept


def _nothing_kept(events: Iterable[Event]) -> set[str]:
    return {sha256_of(one.metadata.hash) for one in events if isinstance(one, Upsert)}
