"""Fetches topics: for their new content (WebSub), or to see whether what was handed in for one is true (RS-NT-07)."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from headwater.notify.http_client import KNOWN, AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.hub.policy import ClientShares, objection_to_redirect, objection_to_url
from headwater.notify.hub.queues import FairQueue, HubContext, HubDriver
from headwater.notify.hub.store import ChangedTopic, Payload, stranger
from headwater.notify.websub import are_in_head, monotonic_unix_time, topic_links
from headwater.retry import Backoff
from headwater.spec import uris

SECONDS: Final = 8.0
_REDIRECTS: Final = 5
_SLOTS, _HOST_SLOTS = 64, 8
_PAUSE: Final = Backoff(0.6, 60.0)
_TRIES: Final = 8
_STRANGE_OCTETS, _STRANGE_HOST_OCTETS = 128 << 20, 32 << 20
"""Of topics that are being fetched at the word of somebody who is not known: in all, and of one host."""


class TopicFault(msgspec.Struct, frozen=True):
    """Why a topic cannot be used. `is_passing`: another try may succeed. `is_too_long`: it has more than allowed.

    `text` may have an address; then `public_text` is for strangers.
    """

    text: str
    is_passing: bool = False
    is_too_long: bool = False
    public_text: str = ""


async def fetch_topic(
    context: HubContext,
    topic: str,
    *,
    is_trusted: bool,
    client: str = "",
    max_octets: int | None = None,
    has_room: Callable[[int], bool] = lambda _octets: True,
) -> Payload | TopicFault:
    """Fetch a topic, over a few redirects, each of which is judged. It has to name this hub unless it `is_trusted`.

    A topic that says that its address is another one is not taken for it (WS-H-17); the body of what its head condemns
    is not read. `client`: a stranger who has named it. `max_octets`: what it may have, as much as any payload unless
    given; `has_room` as for a request.
    """
    url, options = topic, context.options
    most = options.limits.payload_octets if max_octets is None else max_octets
    asker = KNOWN if is_trusted else stranger(client)
    for _ in range(_REDIRECTS + 1):
        judge = partial(_judged, url=url, topic=topic, hub=options.url, is_trusted=is_trusted)

        def wants_body(head: HttpAnswer, judge: Callable[[HttpAnswer], Payload | TopicFault] = judge) -> bool:
            if head.is_redirect:
                return False
            links, kind = head.headers.get("link", ""), head.headers.get("content-type", "")
            tells_links = not head.ok or are_in_head(links, kind, "")
            return not tells_links or isinstance(judge(head), Payload)

        bounds = AnswerBounds(seconds=SECONDS, max_octets=most, has_room=has_room, wants_body=wants_body)
        answer = await context.client.request("GET", url, bounds, asker=asker)
        if isinstance(answer, HttpFailure):
            text, told = (f"the topic cannot be fetched: {why}" for why in (answer.text, answer.public_text))
            is_passing = not answer.is_final
            return TopicFault(text, is_passing=is_passing, is_too_long=answer.is_too_long, public_text=told)
        if not answer.is_redirect:
            return judge(answer)
        target = uris.resolve(url, answer.headers["location"])
        if why := objection_to_redirect(url, target):
            return TopicFault(f"the topic redirects to an address that cannot be used: {why}")
        url = target
    return TopicFault("the topic redirects too often")


def _judged(answer: HttpAnswer, url: str, topic: str, *, hub: str, is_trusted: bool) -> Payload | TopicFault:
    if not answer.ok:
        return TopicFault(f"the topic answers with HTTP status {answer.status}", is_passing=answer.status >= 500)
    media_type = answer.headers.get("content-type", "application/octet-stream")
    links = topic_links(answer.headers.get("link", ""), answer.body, media_type, url)
    if not is_trusted and uris.normalise(hub) not in map(uris.normalise, links.hubs):
        return TopicFault(f"the topic does not name this hub, {hub}, in a link with rel=hub")
    if links.canonical is not None and uris.normalise(links.canonical) != uris.normalise(topic):
        return TopicFault(f"the topic says that its address is {links.canonical}")
    has_list = links.capability_list is not None and objection_to_url(links.capability_list) is None
    others = (f'<{links.capability_list}>; rel="resourcesync"',) if has_list else ()
    return Payload(topic=topic, media_type=media_type, body=answer.body, links=others)


class TopicFetches(HubDriver[ChangedTopic]):
    """Fetches topics that have changed, hosts in turns; `on_fetched` gets what they have, or why they have nothing."""

    def __init__(
        self, context: HubContext, on_fetched: Callable[[ChangedTopic, Payload | TopicFault], Awaitable[None]]
    ) -> None:
        self._strange: FairQueue[ChangedTopic] = FairQueue(_SLOTS, _HOST_SLOTS)
        self._trusted: FairQueue[ChangedTopic] = FairQueue(_SLOTS, _HOST_SLOTS)
        super().__init__(context, self._trusted, self._strange)
        self._on_fetched = on_fetched
        self._octets = ClientShares(_STRANGE_OCTETS, _STRANGE_HOST_OCTETS)
        self._latest: dict[str, float] = {}
        self.failed = 0

    @property
    def pending(self) -> int:
        """How many requests of strangers to fetch are queued, also those that later ones have taken the place of."""
        return len(self._strange)

    def add(self, changed: ChangedTopic) -> None:
        """Fetch a topic soon; word that came before and waits is passed over."""
        self._latest[changed.topic] = changed.noted_at
        self._enqueue(changed)

    def _queue_of(self, changed: ChangedTopic) -> FairQueue[ChangedTopic]:
        return self._trusted if changed.is_trusted else self._strange

    def _is_current(self, changed: ChangedTopic) -> bool:
        return self._latest.get(changed.topic) == changed.noted_at

    async def _work(self, changed: ChangedTopic) -> ChangedTopic | None:
        with self._octets.growing(changed.host) as has_room:
            found = await fetch_topic(
                self._context,
                changed.topic,
                is_trusted=changed.is_trusted,
                client=changed.client,
                has_room=(lambda _octets: True) if changed.is_trusted else has_room,
            )
            if isinstance(found, TopicFault) and found.is_passing and changed.tries + 1 < _TRIES:
                tries = changed.tries + 1
                due_at = monotonic_unix_time() + _PAUSE.seconds(tries, random.random())
                return msgspec.structs.replace(changed, tries=tries, due_at=due_at)
            self.failed += isinstance(found, TopicFault)
            await self._on_fetched(changed, found)
            if self._is_current(changed):
                del self._latest[changed.topic]
            return None
