"""The Change Notifications of a set for one hub: what lies between the hub's position and what is visible (RS-CN)."""

from __future__ import annotations

import datetime as dt

import msgspec

from headwater.publish.capabilities import CHANGE_CHANNEL
from headwater.publish.notifications import ToTell, change_payload
from headwater.source.events.publication import VisibleChanges
from headwater.source.notifications.hub_position import Begin, HubPosition, Resend, Tell, batch_pause, next_step
from headwater.source.notifications.notification_stream import NotificationStream, NotifyContext


class ChangeStream(NotificationStream[HubPosition]):
    """Those of one set; `visible` is what is published of it."""

    channel = CHANGE_CHANNEL
    kind = HubPosition

    def __init__(self, visible: VisibleChanges, hub: str, context: NotifyContext) -> None:
        super().__init__(visible.name, hub, context)
        self.visible = visible
        self._first_visible = visible
        """A hub that is new hears of what comes after that, however soon it comes."""

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0 if self.position is None else self.position.waiting(self.visible)

    def pause(self, since_last: float) -> float:
        """Nothing, unless there are only few changes, and the last were told just now."""
        if self.position is None or not self.position.is_taken or not self.waiting:
            return 0.0
        settings = self._context.settings
        return batch_pause(
            self.waiting, since_last, batch_count=settings.batch_count, batch_seconds=settings.batch_seconds
        )

    def _holds(self, position: HubPosition) -> bool:
        return next_step(position, self.visible) == Resend()

    def _made(self, position: HubPosition | None) -> HubPosition | None:
        visible = self.visible
        step = next_step(position, visible)
        if position is None and self._first_visible.history == visible.history:
            step = next_step(position, self._first_visible)
        if isinstance(step, Begin):  # nothing is sent for it
            at = self._time_after(step.seq)
            self._write(HubPosition(history=visible.history, after=step.seq, seq=step.seq, until=at))
            position, step = self.position, next_step(self.position, visible)
        if not isinstance(step, Tell):
            return None
        assert position is not None
        told = ToTell(
            name=self.name,
            after=step.after,
            last=step.last,
            most=self._context.settings.batch_count,
            from_=position.until,
            most_octets=self.most_octets,
        )
        payload = change_payload(self._context.site, self._context.catalog, told)
        return HubPosition(
            history=visible.history,
            after=step.after,
            since=position.until,
            seq=payload.last,
            until=payload.until,
            payload=payload.octets,
            is_taken=False,
        )

    def _before(self, position: HubPosition) -> HubPosition | None:
        if position.since is None:
            return None
        return msgspec.structs.replace(position, seq=position.after, until=position.since, is_taken=True)

    def _time_after(self, seq: int) -> dt.datetime:
        """A time that the change `seq` is not after, and all later ones are: where the interval of these begins."""
        catalog = self._context.catalog
        times = [one.from_ for one in catalog.segments(self.name) if one.first == seq + 1]
        times += [one.at for one in catalog.changes(self.name, seq - 1, 1)] if seq > 0 else []
        return max(times)
