"""Answers to announcements that are refused without reading their body: the status, the reason, and what to do."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headwater.errors import HeadwaterError, UsageFault
from headwater.http import responses
from headwater.http.responses import Head, Response, line

_CLOSE = line(b"connection", b"close")
_SOON = line(b"retry-after", b"5")
_AGAIN = (
    "Send it again after the seconds that Retry-After names; the same Idempotency-Key makes sure that it is taken once."
)


class AnnouncementRefused(UsageFault):
    """A request that announces is refused before its body is read."""

    code: ClassVar[str] = "HW-SRV-14"
    advice: ClassVar[str] = "The answer says what to do; docs/ingest.md describes requests and statuses."


class EarlyRefusal(msgspec.Struct, frozen=True):
    """One reason, with the header fields that go with it."""

    status: int
    what: str
    advice: str
    head: Head = ()

    def answer(self) -> Response:
        """The response."""
        return error_answer(self.status, AnnouncementRefused(self.what, advice=self.advice), head=self.head)


def error_answer(status: int, fault: HeadwaterError, taken: bytes = b"{}\n", *, head: Head = ()) -> Response:
    """The response of a request that a fault has ended; `taken`, an object of JSON, is what was taken before.

    The connection ends with it: the rest of the request's body is not read.
    """
    error = msgspec.json.encode({"code": fault.code, "what": fault.what, "advice": fault.todo})
    whole = b'{"error":' + error + (b"," if taken[:2] != b"{}" else b"") + taken[1:]
    fields = line(b"cache-control", b"no-store") + _CLOSE + head
    return responses.data(status, whole, b"application/json", fields)


BUSY = EarlyRefusal(503, "too much is being announced at this moment", _AGAIN, _SOON)
SET_IS_BUSY = EarlyRefusal(429, "too many requests announce to this set at this moment", _AGAIN, _SOON)
NO_PUSH_SET = EarlyRefusal(
    404,
    "there is no such set, or it is no push set",
    'Announce to /SET/changes of a set with `feed = "events"` or `feed = "dit"` in the configuration.',
)
NO_DOCUMENTS = EarlyRefusal(
    404,
    "no set here takes DIT-ES documents",
    'Give a set `feed = "dit"` in the configuration; events go to /SET/changes.',
)
NO_TOKEN_CONFIGURED = EarlyRefusal(
    403,
    "nobody may announce: no token is configured",
    "Give the set a `token`, `token_file` or `token_env` in the configuration, and start the server again.",
)
NO_TOKEN = EarlyRefusal(
    401,
    "who announces needs a bearer token",
    "Send the header `Authorization: Bearer TOKEN`, once, with the token that the configuration has for the set.",
    line(b"www-authenticate", b'Bearer realm="headwater"'),
)
UNKNOWN_TOKEN = EarlyRefusal(
    401,
    "this token is not known",
    "Send one of the tokens that the configuration has for the set; a server reads them when it starts.",
    line(b"www-authenticate", b'Bearer realm="headwater", error="invalid_token"'),
)
OTHER_TOKEN = EarlyRefusal(
    403, "this token is for another set", "Send the token that the configuration has for this set."
)
KEY_IN_USE = EarlyRefusal(
    409,
    "a request with this Idempotency-Key is under way",
    "Send it again with its key after the seconds that Retry-After names: the answer is the outcome of the first one.",
    _SOON,
)
OTHER_CODING = EarlyRefusal(
    415,
    "a body is plain or gzip",
    "Send it as it is, or compressed by gzip with `Content-Encoding: gzip`.",
    line(b"accept-encoding", b"gzip"),
)


def unknown_parameter(name: str, known: str) -> EarlyRefusal:
    """A parameter that this address does not have: whoever mistypes one must not have something else done."""
    return EarlyRefusal(400, f"unknown parameter {name[:80]!a}", f"This address knows {known}; nothing was taken.")


def too_long(octets: int) -> EarlyRefusal:
    """A body of more than so many octets, or of a length that is none."""
    return EarlyRefusal(413, f"a body has {octets:,} octets at most", "Divide the lines among several requests.")
