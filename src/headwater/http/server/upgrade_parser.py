"""A parser of HTTP requests that ignores offers of another protocol (`Upgrade`, RFC 9110 7.8).

Clients such as Java's offer HTTP/2 (`Upgrade: h2c`) with every request on a plain connection, also with those that have
a body. httptools takes the offer for accepted: it gives no body and wants the rest of the connection taken elsewhere.
So the head is given to it once more, without the offer, before what follows; to a parser that begins anew, because one
that has seen a request with `Connection: close` to its end reads nothing after it.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from httptools import HttpParserUpgrade, HttpRequestParser

_OF_OFFERS = frozenset({b"upgrade", b"http2-settings"})


class ParsedRequest(Protocol):
    """What the parser's callbacks have gathered of the request that is being read."""

    url: bytes
    headers: list[tuple[bytes, bytes]]


class UpgradeIgnoringParser(HttpRequestParser):
    """Calls `protocol` as its base does; a request with an offer comes twice, first with `is_offer` being true."""

    def __init__(self, protocol: ParsedRequest) -> None:
        self._request = protocol
        self._begin()

    def _begin(self) -> None:
        super().__init__(self._request)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own

    @property
    def is_offer(self) -> bool:
        """Whether the present request offers another protocol: it is to be ignored, and comes again without."""
        return self.should_upgrade() and self.get_method() != b"CONNECT"

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Parse octets. Raises what httptools raises."""
        while True:
            try:
                super().feed_data(data)
                return
            except HttpParserUpgrade as offer:
                if not self.is_offer:
                    raise
                head = self._head()
                self._begin()
                data = head + bytes(data)[offer.args[0] :]

    def _head(self) -> bytes:
        """The head of the present request without the offer."""
        version = self.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.get_method(), self._request.url, version)]
        for name, value in self._request.headers:
            name = name.lower()
            if name == b"connection":
                value = b", ".join(one for one in value.split(b",") if one.strip().lower() not in _OF_OFFERS)
            if name not in _OF_OFFERS and (value or name != b"connection"):
                lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"
