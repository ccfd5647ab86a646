"""The discovery of a topic's hubs and address: what the Capability List says, confirmed by the topic (F-03)."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.notify.http_client import HttpClient
from headwater.notify.http_connection import AnswerBounds, HttpAnswer
from headwater.notify.hub.requests import objection_to_url
from headwater.notify.subscriber.records import NotificationChannel
from headwater.notify.topic_links import TopicLinks, topic_links
from headwater.spec import uris

MOST_HUBS: Final = 3
"""Of several hubs so many are subscribed at: where one is dead another delivers."""

_SECONDS: Final = 10.0
_OCTETS: Final = 12 << 20
_BOUNDS: Final = AnswerBounds(seconds=_SECONDS, max_octets=_OCTETS)
_REDIRECTS: Final = 5


class DiscoveredTopic(msgspec.Struct, frozen=True):
    """Where to subscribe, and to which topic (WS-S-03)."""

    topic: str
    hubs: tuple[str, ...]


async def discover(client: HttpClient, channel: NotificationChannel) -> DiscoveredTopic:
    """Ask the topic; where it does not answer, or says nothing, what the Capability List says holds.

    An address that the topic gives as its own counts only where it is of the same origin as the one that was asked.
    """
    url, found = channel.topic, TopicLinks()
    for _ in range(_REDIRECTS + 1):
        answer = await client.request("GET", url, _BOUNDS)
        if not isinstance(answer, HttpAnswer):
            break
        if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
            target = uris.resolve(url, answer.headers["location"])
            if objection_to_url(target) or (url.startswith("https:") and not target.startswith("https:")):
                break
            url = target
            continue
        if answer.ok:
            media_type = answer.headers.get("content-type", "")
            found = topic_links(answer.headers.get("link", ""), answer.body, media_type, url)
        break
    return discovered(channel, found, url)


def discovered(channel: NotificationChannel, found: TopicLinks, url: str) -> DiscoveredTopic:
    """What holds, of what the Capability List and the topic at `url` say: hubs of the topic first, https first."""
    topic = channel.topic
    if found.canonical is not None and not objection_to_url(found.canonical):
        origins = {uris.origin(channel.topic), uris.origin(url)}
        topic = found.canonical if uris.origin(found.canonical) in origins else topic
    usable = [hub for hub in dict.fromkeys((*found.hubs, *channel.hubs)) if not objection_to_url(hub)]
    secure = {hub.partition(":")[2] for hub in usable if hub.startswith("https:")}
    kept = [hub for hub in usable if hub.startswith("https:") or hub.partition(":")[2] not in secure]  # WS-S-14
    return DiscoveredTopic(topic, tuple(kept[:MOST_HUBS]))
