"""The keeper of subscriptions, as a copy that is followed knows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headwater.notify.subscriber.records import NotificationChannel
from headwater.notify.subscriber.subscribed_copy import SubscribedCopy


class SubscriptionKeeper(Protocol):
    """Who keeps the subscriptions (`CallbackListener`)."""

    @property
    def is_alive(self) -> bool:
        """Whether it still listens."""
        ...

    def add(self, copy: SubscribedCopy) -> None:
        """Take up a copy, before `want`."""
        ...

    def want(self, copy: SubscribedCopy, channels: Iterable[NotificationChannel]) -> None:
        """Subscribe to these channels of a copy and to no others."""
        ...

    def renew(self, copy: SubscribedCopy, channel: str) -> None:
        """Ask the hubs of a channel anew."""
        ...
