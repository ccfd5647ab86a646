"""Announces to a server at another address: lines in batches by POST, each tried again until it is answered.

Each batch has an Idempotency-Key of its own, so that one whose answer was lost is not taken twice, and whoever sends
the same lines again under the same key goes on where it broke off.
"""

import gzip
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.ingest.push.events import LineTooLong, refusal
from headwater.ingest.push.feed import Line, Outcome
from headwater.progress import Listener, Notice, silent
from headwater.retry import Backoff
from headwater.transport.fetch import FailureKind, Fetch, Fetched, TransportOptions
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json

BATCH_LINES: Final = 1_000
BATCH_OCTETS: Final = 4 << 20
PATIENCE_SECONDS: Final = 300.0  # how long one batch is tried again …
_PAUSES: Final = Backoff(first=1.0, longest=30.0)  # … after these pauses, unless the server names another one
ANSWER_SECONDS: Final = 120
_SMALL: Final = 1_024
_CERTIFICATE: Final = "Use the server's name as in its certificate. For your own authority, add --ca FILE."
_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_UNDER_WAY: Final = b"HW-ING-53"


class Unanswered(SourceFault):
    """The server for announcements cannot be reached, or has not accepted a batch in time."""

    code = "HW-ING-59"


class _Answer(msgspec.Struct):
    results: list[Outcome] = []


class AnnouncementServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where announcements are sent, with which token.

    `authorities` is a file of certificate authorities that are believed beside those of the machine, `proxy` the URI of
    the proxy (http) that is asked in place of those of the environment.
    """

    url: str
    token: str
    authorities: str | None = None
    proxy: str | None = None


@dataclass
class Sender:
    """Announces to one server. `key` begins the key of each batch; none where repeating is harmless.

    What signs us in is for the server alone: no redirect is followed, and a proxy is told its own user and password
    only.
    """

    server: AnnouncementServer
    key: str | None
    _: KW_ONLY
    listener: Listener = silent
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        url, token, proxy = self.server.url, self.server.token, self.server.proxy
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise UsageFault("not the address of a server", code="HW-ING-57", where=url[:200])
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise UsageFault("this is not a token", advice="Give the token of the set by --token or HEADWATER_TOKEN.")
        if proxy is not None and urlsplit(proxy if "://" in proxy else f"http://{proxy}").scheme != "http":
            raise UsageFault("records need a proxy named as http://HOST:PORT")
        self._transport: Transport | None = None
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
            raise Unanswered("the answer is not that of a Headwater server", where=self.server.url) from cause
        too_long = [refusal(one.number, LineTooLong("the line is too long")) for one in lines if one.text is None]
        return sorted(taken + too_long, key=lambda one: one.line)

    def close(self) -> None:
        """Give up the connection."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _persist(self, body: bytes, query: str) -> Fetched:
        failures, packed = 0, len(body) > _SMALL
        until = time.monotonic() + PATIENCE_SECONDS
        where = self.server.url
        while True:
            reply = self._once(body, query, packed=packed)
            failure = reply.failure
            if failure is not None and failure.kind is FailureKind.TLS:
                what = f"the certificate of the server is not believed: {failure.text}"
                raise Unanswered(what, where=where, advice=_CERTIFICATE)
            if failure is not None and failure.kind is not FailureKind.REDIRECT_REFUSED:
                said = f"no answer: {failure.text}"[:300]
            elif reply.ok:
                return reply
            elif packed and reply.status == 413:  # what expands too much may be no more than others
                packed = False
                continue
            else:
                said = f"{reply.status}: {_words(reply.body)}"
                is_under_way = reply.retry_after_seconds is not None or _UNDER_WAY in reply.body
                if reply.status not in _AGAIN or (reply.status == 409 and not is_under_way):
                    raise UsageFault(f"the server answers {said}", code="HW-ING-58", where=where)
            failures += 1
            asked = reply.retry_after_seconds
            wait = _PAUSES.seconds(failures, random.random()) if asked is None else asked
            if time.monotonic() + wait > until:
                raise Unanswered(f"the server did not accept a batch: {said}", where=where)
            self.listener(Notice(Unanswered.code, f"{said}; trying again in {wait:.0f} s", where))
            self.close()  # the next try is by another connection, which remembers nothing of this one
            self.sleep(wait)

    def _once(self, body: bytes, query: str, *, packed: bool) -> Fetched:
        server = self.server
        if self._transport is None:
            options = TransportOptions(
                authorities=server.authorities, proxy=server.proxy, retries=0, stall_timeout_seconds=ANSWER_SECONDS
            )
            self._transport = Transport(options)
        headers = [("authorization", f"Bearer {server.token}"), ("content-type", "application/x-ndjson")]
        if self.key is not None:
            headers.append(("idempotency-key", f"{self.key}.{self._number}"))
        if packed:
            body = gzip.compress(body, 5, mtime=0)
            headers.append(("content-encoding", "gzip"))
        return self._transport.one(
            Fetch(
                uri=server.url + (f"?{query}" if query else ""),
                headers=tuple(headers),
                method="POST",
                body=body,
                objection=lambda _uri: "the token is for the address that was given",
            )
        )


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


def _words(body: bytes) -> str:
    try:
        told = msgspec.json.decode(body)
        error = told.get("error", {}) if isinstance(told, dict) else {}
        return f"{error['what']} [{error['code']}]"[:300]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return body.decode("utf-8", "replace").strip()[:300] or "nothing said"
