"""The Change Notifications of a set for one hub, between the catalog and the octets that are sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import StateUpdate
from headwater.progress import Listener
from headwater.publish.capabilities import CHANGE_CHANNEL
from headwater.publish.rendering.notifications import ToTell, change_payload
from headwater.publish.site import Site
from headwater.source.events.publication import VisibleChanges
from headwater.source.notifications.hub_position import Begin, HubPosition, Tell, read_position, row_of


class NotifyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What notifications are made with. `may_send` raises when another process has the right to."""

    catalog: Catalog
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener
    may_send: Callable[[], None]
    token: str | None
    batch_count: int
    batch_seconds: float


class ChangeChannel:
    """Reads, makes and keeps the notifications of sets for one hub; waits for the catalog, and raises its faults."""

    def __init__(self, hub: str, context: NotifyContext) -> None:
        self._hub = hub
        self._context = context

    def read(self, name: str) -> HubPosition | None:
        """How far the hub has been told."""
        return read_position(self._context.catalog, name, CHANGE_CHANNEL, self._hub)

    def write(self, name: str, position: HubPosition) -> None:
        """Keep a position."""
        self._context.may_send()
        update = StateUpdate([row_of(CHANGE_CHANNEL, self._hub, position)])
        self._context.catalog.record(name, [], self._context.clock(), state=update)

    def begin(self, visible: VisibleChanges, step: Begin) -> HubPosition:
        """Begin a chain; nothing is sent for it."""
        at = self._time_after(visible.name, step.seq)
        position = HubPosition(history=visible.history, after=step.seq, seq=step.seq, until=at)
        self.write(visible.name, position)
        return position

    def tell(self, visible: VisibleChanges, step: Tell, before: HubPosition) -> HubPosition:
        """Make the next notification, and keep its octets before they are sent."""
        most = self._context.batch_count
        told = ToTell(name=visible.name, after=step.after, last=step.last, most=most, from_=before.until)
        payload = change_payload(self._context.site, self._context.catalog, told)
        position = HubPosition(
            history=visible.history,
            after=step.after,
            seq=payload.last,
            until=payload.until,
            payload=payload.octets,
            is_taken=False,
        )
        self.write(visible.name, position)
        return position

    def _time_after(self, name: str, seq: int) -> dt.datetime:
        """A time that the change `seq` is not after, and all later ones are: where the interval of these begins."""
        catalog = self._context.catalog
        times = [one.from_ for one in catalog.segments(name) if one.first == seq + 1]
        times += [one.at for one in catalog.changes(name, seq - 1, 1)] if seq > 0 else []
        return max(times)
