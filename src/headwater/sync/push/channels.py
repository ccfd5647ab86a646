"""The channels of the sets of a copy, as their Capability Lists have advertised them (RS-CH-05)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.spec.kinds import Kind
from headwater.sync.copy.destination_folder import DestinationFolder, readable_state
from headwater.sync.lists.position import Position
from headwater.sync.run import SyncTask
from headwater.sync.sets.registry import remembered_scope
from headwater.sync.state.set_rows import sets

_RETRY_AT = "SELECT min(max(next_at, coalesce(wait_until, 0))) FROM failures WHERE set_id = ?"
_KINDS = (Kind.CHANGE_NOTIFICATION, Kind.FRAMEWORK_NOTIFICATION)


class OfferedChannel(NamedTuple):
    """A channel of a set: kind, topic and hubs."""

    kind: Kind
    topic: str
    hubs: tuple[str, ...]


class FollowedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A set of a copy: its Capability List, how far its lists have led, and its channels."""

    name: str
    identity: str
    position: Position
    channels: tuple[OfferedChannel, ...] = ()
    retry_at: int | None = None
    """When the first resource that could not be had may be asked for again, in microseconds since 1970."""

    @property
    def changes(self) -> str | None:
        """The topic of its Change Notifications."""
        return next((one.topic for one in self.channels if one.kind is Kind.CHANGE_NOTIFICATION), None)


def followed_sets(task: SyncTask, names: Collection[str] | None) -> list[FollowedSet]:
    """The sets with these names (None: those that the task wants) that have a position.

    A topic outside the scope of its set is left out (DST-S12)."""
    found: list[FollowedSet] = []
    with readable_state(DestinationFolder(Path(task.destination))) as database, database.read() as t:
        for row in sets(t):
            wanted = not task.options.sets or row.name in task.options.sets or row.offer.identity in task.options.sets
            if row.position is None or not (wanted if names is None else row.name in names):
                continue
            scope = remembered_scope(t, task.url, task.options, row.offer)
            offered = ((kind, row.offer.documents.get(kind.value)) for kind in _KINDS)
            channels = tuple(
                OfferedChannel(kind, topic, row.offer.hubs.get(kind.value, ()))
                for kind, topic in offered
                if topic is not None and scope.refusal(topic) is None
            )
            followed = FollowedSet(
                name=row.name,
                identity=row.offer.identity,
                position=row.position,
                channels=channels,
                retry_at=t.value(_RETRY_AT, (row.id,)),
            )
            found.append(followed)
    return found
