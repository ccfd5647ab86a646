"""The records of a subscriber: channels, subscriptions at hubs, and deliveries that wait to be applied."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headwater.spec.kinds import Kind


class NotificationChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of a set as its Capability List advertises it (RS-CH-05).

    `kind` is `change-notification` or `framework-notification`, `identity` the URI of the Capability List.
    """

    kind: Kind
    identity: str
    topic: str
    hubs: tuple[str, ...] = ()


class SubscriptionState(StrEnum):
    """How far a subscription has come."""

    REQUESTED = "requested"
    """Its intent is not verified yet."""

    ACTIVE = "active"
    RETIRED = "retired"
    """It is to be ended: another one has taken its place, or the channel is not wanted any more."""

    DENIED = "denied"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription at one hub. Times are in seconds since 1970, by the local clock.

    `channel` is the topic as it is advertised, `topic` what the topic itself says that its address is (WS-S-03).
    """

    id: int
    kind: Kind
    identity: str
    channel: str
    topic: str
    hub: str
    callback: str
    token: str
    """The part of the callback's path that nobody can guess (WS-S-05)."""

    secret: bytes
    state: SubscriptionState
    asked_at: float | None = None
    """When the hub has last accepted the request."""

    ends_at: float | None = None
    """When the lease ends."""

    next_at: float = 0.0
    """When something is to be done for it: to ask, to ask again, to renew, to end it."""

    failures: int = 0
    heard_at: float | None = None
    """When a delivery was last accepted."""

    fault: str | None = None
    """What went wrong last."""


class QueuedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that was acknowledged and is not applied yet."""

    seq: int
    kind: Kind
    identity: str
    channel: str
    came_at: float
    body: bytes
