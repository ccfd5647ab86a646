"""The subscriptions of one copy, as they are held in memory beside the file."""

from __future__ import annotations

from collections.abc import Callable

from headwater.notify.group_commit import GroupCommit
from headwater.notify.subscriber.discovery import DiscoveredTopic
from headwater.notify.subscriber.records import NotificationChannel, Subscription, SubscriptionState
from headwater.notify.subscriber.store import SubscriberStore


class SubscribedCopy:
    """What the subscriber holds of one copy. Its event loop changes it, other threads may look."""

    def __init__(self, store: SubscriberStore, on_news: Callable[[], None], tell: Callable[[str, str], None]) -> None:
        """`on_news` is called when something was queued, or a subscription has changed; `tell` says what, and where."""
        self.store = store
        self.on_news = on_news
        self.tell = tell
        self.writer = GroupCommit(store.database, store.threads)
        self.held: dict[int, Subscription] = {}
        self._by_channel: dict[str, dict[int, Subscription]] = {}
        for one in store.subscriptions():
            self.put(one)
        self.wanted: dict[str, NotificationChannel] = {}
        """The channels that are subscribed to, by topic, once it `is_known` which these are."""

        self.is_known = False
        self.discovered: dict[str, DiscoveredTopic] = {}
        self.tried: dict[str, tuple[int, float]] = {}
        """Of channels without a hub: how often they were asked, and when they are again."""

        self.activated: set[str] = set()
        """Channels of which a subscription has begun, whose Change List has to be read once more."""

        self.doubted: set[str] = set()
        """Channels of which a delivery could not be taken."""

    def put(self, subscription: Subscription) -> None:
        """Hold a subscription as it is by now."""
        self.held[subscription.id] = subscription
        self._by_channel.setdefault(subscription.channel, {})[subscription.id] = subscription

    def pop(self, subscription: Subscription) -> None:
        """Hold it no more."""
        self.held.pop(subscription.id, None)
        self._by_channel.get(subscription.channel, {}).pop(subscription.id, None)

    def of(self, channel: str) -> list[Subscription]:
        """The subscriptions to a channel."""
        return list(self._by_channel.get(channel, {}).values())

    def is_pushed(self, channel: str, now: float) -> bool:
        """Whether a subscription to the channel holds."""
        return any(one.state is SubscriptionState.ACTIVE and (one.ends_at or 0) > now for one in self.of(channel))
