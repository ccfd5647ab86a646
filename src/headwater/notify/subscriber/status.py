"""How a copy stands that is followed by push: its mode, its subscriptions and leases, what waits to be applied."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec

from headwater.copy_state import is_followed
from headwater.notify.subscriber.store import FILE, MODE, SCHEMA, SubscriberStore, Subscription, SubscriptionState
from headwater.spec.times import from_optional
from headwater.storage.database import opened_to_read


class SubscriptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription. `state` is requested, active, retired or denied; `fault` is what went wrong last."""

    channel: str
    capability_list: str
    topic: str
    hub: str
    state: str
    lease_ends: dt.datetime | None
    next_request: dt.datetime | None
    """When the hub is asked next: to subscribe, to renew, to end it."""

    last_delivery: dt.datetime | None
    fault: str | None


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the payloads of a channel have led, in the source's time, and whether one may be missing."""

    topic: str
    capability_list: str
    reached: dt.datetime | None
    has_gap: bool


class PushStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`mode` is `push` where notifications keep the copy current and polls are a back-up, else `poll`.

    It is as the process has left it that was the last to follow the copy.
    """

    mode: str
    is_followed: bool | None
    """Whether a process follows the copy at present; null where that cannot be seen."""

    waiting: int
    """Deliveries that are acknowledged and not applied yet."""

    last_delivery: dt.datetime | None
    subscriptions: tuple[SubscriptionStatus, ...]
    channels: tuple[ChannelStatus, ...]

    def reached(self, capability_list: str) -> dt.datetime | None:
        """How far payloads have led in the set with this Capability List; None where one may be missing."""
        found = [one for one in self.channels if one.capability_list == capability_list and not one.has_gap]
        return max((one.reached for one in found if one.reached is not None), default=None)


def push_status(folder: Path) -> PushStatus | None:
    """How the copy stands whose state is in `folder`; None where it was never followed by push."""
    if not (folder / FILE).is_file():
        return None
    with opened_to_read(folder / FILE, SCHEMA) as database:
        store = SubscriberStore(database)
        held = [one for one in store.subscriptions() if one.state is not SubscriptionState.RETIRED]
        topics = sorted({(one.channel, one.identity) for one in held})
        progress = {(topic, identity): store.progress(topic) for topic, identity in topics}
        return PushStatus(
            mode=store.fact(MODE) or "poll",
            is_followed=is_followed(folder),
            waiting=store.waiting(),
            last_delivery=_moment(max((one.heard_at or 0.0 for one in held), default=0.0)),
            subscriptions=tuple(map(_status, held)),
            channels=tuple(
                ChannelStatus(
                    topic=topic,
                    capability_list=identity,
                    reached=from_optional(one.reached),
                    has_gap=one.needs_poll or bool(one.beyond),
                )
                for (topic, identity), one in progress.items()
            ),
        )


def _status(held: Subscription) -> SubscriptionStatus:
    return SubscriptionStatus(
        channel=held.kind.value,
        capability_list=held.identity,
        topic=held.topic,
        hub=held.hub,
        state=held.state.value,
        lease_ends=_moment(held.ends_at),
        next_request=_moment(held.next_at),
        last_delivery=_moment(held.heard_at),
        fault=held.fault,
    )


def _moment(seconds: float | None) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(seconds, dt.UTC) if seconds else None
