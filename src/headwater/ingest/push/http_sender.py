"""Announces to a server at another address: lines in batches by POST, each tried again until it is answered.

Each batch has an Idempotency-Key of its own, so that one whose answer was lost is not taken twice, and whoever sends
the same lines again under the same key goes on where it broke off.
"""

from __future__ import annotations

import gzip
import random
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.ingest.push.events import LineTooLong, refusal
from headwater.ingest.push.feed import Outcome
from headwater.ingest.push.lines import Line
from headwater.progress import Listener, Notice, silent
from headwater.retry import Backoff, retry_after_seconds
from headwater.typed_decoding import from_json

BATCH_LINES: Final = 1_000
BATCH_OCTETS: Final = 4 << 20
PATIENCE_SECONDS: Final = 300.0
"""How long one batch is tried again …"""
_PAUSES: Final = Backoff(first=1.0, longest=30.0)
"""… after these pauses, unless the server names another one."""
ANSWER_SECONDS: Final = 120.0
_SMALL: Final = 1_024
_PROXY_PORT: Final = 1_080  # as libcurl has it
_CERTIFICATE: Final = "Name the server as its certificate does; the file of an authority of your own by --ca."
_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_UNDER_WAY: Final = b"HW-ING-53"


class Unanswered(SourceFault):
    """The server for announcements cannot be reached, or has not accepted a batch in time."""

    code = "HW-ING-59"


class _Answer(msgspec.Struct):
    results: list[Outcome] = []


class _Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    retry_after: float | None


class AnnouncementServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where announcements are sent, with which token.

    `tls` is how an https server is judged, `proxy` the URI of a proxy (http) that is asked in its place.
    """

    url: str
    token: str
    tls: ssl.SSLContext | None = None
    proxy: str | None = None


class Sender:
    """Announces to one server. `key` begins the key of each batch; none where repeating is harmless.

    What signs us in is for the server alone: no redirect is followed, and a proxy is told its own user and password
    only.
    """

    def __init__(
        self,
        server: AnnouncementServer,
        key: str | None,
        *,
        listener: Listener = silent,
        patience_seconds: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url, token = server.url, server.token
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise UsageFault("not the address of a server", code="HW-ING-57", where=url[:200])
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise UsageFault("the token is none", advice="Give the token of the set by --token or HEADWATER_TOKEN.")
        self._url = url
        self._parts = parts
        self._tls = server.tls
        self._proxy = None if server.proxy is None else _proxy_at(server.proxy)
        self._token = token
        self._key = key
        self._listener = listener
        self._patience = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._sleep = sleep
        self._connection: HTTPConnection | None = None
        self._number = 0

    def send(self, lines: Sequence[Line], query: str = "") -> list[Outcome]:
        """Announce lines as one batch; what became of each, by its number. Raises UsageFault, Unanswered.

        One that was too long to be read is refused here: what is sent in its place is a blank line, which is none.
        """
        self._number += 1
        body = b"".join((one.text or b"").rstrip(b"\r\n") + b"\n" for one in lines)
        reply = self._persist(body, query)
        try:
            results = from_json(reply.body, _Answer).results
            taken = [msgspec.structs.replace(one, line=lines[one.line - 1].number) for one in results]
        except (msgspec.DecodeError, IndexError) as cause:
            raise Unanswered("the answer is none of a server for announcements", where=self._url) from cause
        too_long = [refusal(one.number, LineTooLong("the line is too long")) for one in lines if one.text is None]
        return sorted(taken + too_long, key=lambda one: one.line)

    def close(self) -> None:
        """Give up the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _persist(self, body: bytes, query: str) -> _Reply:
        """The answer to one batch, tried again as long as that may help."""
        until, failures, packed = time.monotonic() + self._patience, 0, len(body) > _SMALL
        while True:
            try:
                reply = self._once(body, query, packed=packed)
                said = f"{reply.status}: {_words(reply.body)}"
            except ssl.SSLCertVerificationError as cause:
                self.close()
                what = f"the certificate of the server is not believed: {cause.verify_message}"
                raise Unanswered(what, where=self._url, advice=_CERTIFICATE) from cause
            except (OSError, HTTPException) as cause:
                self.close()
                reply, said = None, f"no answer: {_reason(cause)}"[:300]
            if reply is not None and reply.status in (200, 207):
                return reply
            if packed and reply is not None and reply.status == 413:  # what expands too much may be no more than others
                packed = False
                continue
            if reply is not None and not _may_pass(reply):
                raise UsageFault(f"the server answers {said}", code="HW-ING-58", where=self._url)
            failures += 1
            asked = None if reply is None else reply.retry_after
            wait = _PAUSES.seconds(failures, random.random()) if asked is None else asked
            if time.monotonic() + wait > until:
                raise Unanswered(f"a batch was not taken: {said}", where=self._url)
            self._listener(Notice(Unanswered.code, f"{said}; trying again in {wait:.0f} s", self._url))
            self._sleep(wait)

    def _connected(self) -> HTTPConnection:
        """A connection to the server, or to the proxy: which then connects it with the server, where that is https."""
        server, proxy = self._parts, self._proxy
        at = server if proxy is None else proxy
        host, port = at.hostname or "", at.port or (None if proxy is None else _PROXY_PORT)
        if server.scheme == "http":
            return HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        made = HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=self._tls)
        if proxy is not None:
            made.set_tunnel(server.hostname or "", server.port, _proxy_headers(proxy))
        return made

    def _once(self, body: bytes, query: str, *, packed: bool) -> _Reply:
        if self._connection is None:
            self._connection = self._connected()
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/x-ndjson"}
        if self._key is not None:
            headers["idempotency-key"] = f"{self._key}.{self._number}"
        if packed:
            body = gzip.compress(body, 5, mtime=0)
            headers["content-encoding"] = "gzip"
        target = self._parts.path + (f"?{query}" if query else "")
        if self._proxy is not None and self._parts.scheme == "http":
            target = f"http://{self._parts.netloc}{target}"
            headers |= _proxy_headers(self._proxy)
        self._connection.request("POST", target, body, headers)
        answer = self._connection.getresponse()
        reply = _Reply(answer.status, answer.read(), _asked_seconds(answer))
        if answer.will_close:
            self.close()
        return reply


def _proxy_at(proxy: str) -> SplitResult:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise UsageFault("what is announced goes by a proxy that is named as http://HOST:PORT")
    return parts


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """What a proxy is told of who asks: told to no other."""
    if proxy.username is None:
        return {}
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {b64encode(user.encode()).decode()}"}


def batches(lines: Iterable[Line]) -> Iterable[list[Line]]:
    """The lines in batches that one request takes well."""
    batch: list[Line] = []
    octets = 0
    for one in lines:
        if batch and (len(batch) >= BATCH_LINES or octets + len(one.text or b"") > BATCH_OCTETS):
            yield batch
            batch, octets = [], 0
        batch.append(one)
        octets += len(one.text or b"")
    if batch:
        yield batch


def _may_pass(reply: _Reply) -> bool:
    """Whether the same request may be answered otherwise later; a 409 only while its key is under way."""
    if reply.status == 409:
        return reply.retry_after is not None or _UNDER_WAY in reply.body
    return reply.status in _AGAIN


def _asked_seconds(answer: HTTPResponse) -> float | None:
    """The wait that an answer asks for."""
    return retry_after_seconds(answer.getheader("retry-after"), answer.getheader("date"), time.time())


def _reason(cause: Exception) -> str:
    """Why there is no answer, in the system's words, without the name of a Python class where there are others."""
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _words(body: bytes) -> str:
    """What the server says, in a line."""
    try:
        told = msgspec.json.decode(body)
        error = told.get("error", {}) if isinstance(told, dict) else {}
        return f"{error['what']} [{error['code']}]"[:300]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return body.decode("utf-8", "replace").strip()[:300] or "nothing said"
