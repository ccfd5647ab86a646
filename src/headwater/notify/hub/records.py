"""The records of a hub: subscriptions and their intents, messages, what is due."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.notify.http_client import NameAsker


def stranger(client: str) -> NameAsker:
    """Who has named something without a token."""
    return NameAsker("strangers", client)


UNKNOWN: Final = stranger("")
"""After a restart nobody knows who has named something."""


def subscriber(host: str) -> NameAsker:
    """Who has confirmed a subscription with a callback at `host:port`: all names of one domain have one share."""
    return NameAsker("subscribers", ".".join(host.rpartition(":")[0].split(".")[-2:]))


class Message(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """One payload of a topic as it came; `seq` counts the payloads of the topic. `links` are further `Link` values."""

    topic: str
    seq: int
    media_type: str
    links: tuple[str, ...]
    body: bytes


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher has handed in, or what was fetched, for a topic. `links` are further values of `Link`."""

    topic: str
    media_type: str
    body: bytes
    links: tuple[str, ...] = ()


class DueSubscription(msgspec.Struct):
    """A subscription that has not received everything: the number of the last message it has, when it is to be tried.

    `failures` counts those in a row; `due_at` and `expires_at`, the end of the lease, are UNIX times; `is_busy` while a
    delivery is made or remembered.
    """

    id: int
    topic_id: int
    topic: str
    host: str
    callback: str
    secret: bytes | None
    position: int
    failures: int
    due_at: float
    expires_at: float
    is_busy: bool = False


class AddedMessage(msgspec.Struct, frozen=True):
    """A message that was added to a topic, and the subscriptions that were waiting for nothing before."""

    topic_id: int
    message: Message
    due: list[DueSubscription]


class ChangedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is to be fetched since `noted_at`; `is_trusted`: somebody known to the hub has said so.

    `client` has said so, where that is known; no store keeps it.
    """

    topic: str
    noted_at: float
    is_trusted: bool
    client: str = ""


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """What came of a delivery: `position` is the last message received or given up, `due_at` None when it has all.

    One that `is_gone` ends the lease that ends at `expires_at`, and no later one of the same subscription.
    """

    id: int
    position: int
    failures: int
    due_at: float | None
    error: str | None
    is_gone: bool = False
    expires_at: float = 0.0


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was answered 202 and whose intent is not verified yet, or that is denied for a `denial`.

    `asker` is whose names it has; no store keeps it.
    """

    id: int
    is_unsubscribe: bool
    topic: str
    callback: str
    host: str
    lease_seconds: int
    secret: bytes | None
    tries: int
    due_at: float
    denial: str | None = None
    asker: NameAsker = UNKNOWN


class HubCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How a hub stands."""

    topics: int
    subscriptions: int
    behind: int
    failing: int
    pending: int
    messages: int
    message_octets: int
    changed_topics: int


class TopicCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How one topic stands; `last_at` is the UNIX time of its last message."""

    topic: str
    subscriptions: int
    behind: int
    failing: int
    messages: int
    last_seq: int
    last_at: float | None
