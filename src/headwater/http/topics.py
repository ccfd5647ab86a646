"""Answers at the topics of a source's channels: the newest notification, and who distributes them (RS-NT-01…03)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headwater.http import responses
from headwater.http.responses import Response, line
from headwater.http.routes import REVALIDATE, HttpRequest, Route
from headwater.publish.capabilities import CHANNELS, Channel
from headwater.publish.site import topic_url
from headwater.source.health import ServableSource
from headwater.source.hub_streams import latest_payload


class TopicEndpoint:
    """The topics of all sets of a source that has `hubs`."""

    def __init__(self, source: ServableSource, hubs: tuple[str, ...]) -> None:
        self._source = source
        self._hubs = hubs

    def routes(self) -> Iterator[Route]:
        """A row for each channel; none without hubs."""
        for channel in CHANNELS if self._hubs else ():
            yield Route(
                name="topic",
                pattern=f"/{{set}}/{channel.name}",
                handler=partial(self.answer, channel),
                media_type=b"application/xml",
                cache=REVALIDATE,
            )

    async def answer(self, channel: Channel, request: HttpRequest) -> Response:
        """The newest payload, or nothing (RS-NT-02), with `self` and every hub in one `Link` header (WS-P-02)."""
        name = request.match.set_name
        assert name is not None
        body = await request.access.ask(latest_payload, self._source.catalog, name, channel, self._hubs)
        links = [f'<{topic_url(self._source.site, name, channel)}>; rel="self"']
        links += [f'<{hub}>; rel="hub"' for hub in self._hubs]
        head = line(b"cache-control", request.route.cache) + line(b"link", ", ".join(links).encode("ascii"))
        return responses.data(200, body, request.route.media_type, head)
