"""Who may act on the pages of a service: sessions of people who know the operator's token, and where a form came from.

A session is begun by the token, lies in a cookie that only this site is sent, and has a secret of its own that each
form repeats. Both the token and the secret are compared in constant time. A program sends the token with each request
in `Authorization: Bearer`, and needs no session.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

import msgspec

from headwater.notify.hub.policy import RequestRate

SESSION_SECONDS: Final = 12 * 3_600.0
_MOST: Final = 100
_NAME: Final = "headwater_operator"
_TRIES, _TRIES_AT_ONCE = 0.1, 10.0  # wrong tokens of one client: so many a second, and at once


class OperatorSession(msgspec.Struct, frozen=True):
    """A session: what the forms of its pages repeat, and when it ends (seconds of a monotonic clock)."""

    csrf: str
    ends: float


class OperatorSessions:
    """The sessions of one service, in its memory: after its start the token has to be entered again."""

    def __init__(self, token: str | None) -> None:
        """`token`: that of the configuration; None: nobody may act."""
        self._token = token
        self._sessions: dict[str, OperatorSession] = {}
        self._failures = RequestRate(_TRIES, int(_TRIES_AT_ONCE))

    @property
    def can_act(self) -> bool:
        """Whether anybody may act at all."""
        return bool(self._token)

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        given, own = token.encode("utf-8", "replace"), (self._token or "").encode()
        return hmac.compare_digest(given, own) and bool(own)

    def wait_seconds(self, client: str, now: float) -> float:
        """How long a client that has sent a wrong token has to wait before the next; counts this one."""
        return self._failures.wait_seconds(client, now)

    def begin(self, now: float) -> str:
        """Begin a session; returns what its cookie has. The oldest give way to many others."""
        self._sessions = {key: one for key, one in self._sessions.items() if one.ends > now}
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = OperatorSession(secrets.token_urlsafe(32), now + SESSION_SECONDS)
        return key

    def csrf(self, cookies: str | None, now: float) -> str | None:
        """The secret of the session that a `Cookie` header names; None: there is none that still lasts."""
        found = self._sessions.get(_key(cookies))
        return found.csrf if found is not None and found.ends > now else None

    def end(self, cookies: str | None) -> None:
        """End the session that a `Cookie` header names."""
        self._sessions.pop(_key(cookies), None)

    def is_form_of(self, cookies: str | None, csrf: str, now: float) -> bool:
        """Whether a form with this secret belongs to the session of its cookie."""
        own = self.csrf(cookies, now)
        return own is not None and hmac.compare_digest(csrf.encode("utf-8", "replace"), own.encode())


def cookie(key: str, path: str, *, is_secure: bool) -> str:
    """The `Set-Cookie` header of a session; an empty key ends it. Only forms of this site send it back."""
    age = int(SESSION_SECONDS) if key else 0
    rest = "; Secure" if is_secure else ""
    return f"{_NAME}={key}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{rest}"


def _key(cookies: str | None) -> str:
    for one in (cookies or "")[:8_192].split(";"):
        name, _, value = one.strip().partition("=")
        if name == _NAME:
            return value
    return ""


def is_own_form(fetch_site: str | None, origin: str | None, host: str | None) -> bool:
    """Whether a POST of a browser came from a page of this site.

    `Sec-Fetch-Site` says so through any proxy. A browser without it (over plain HTTP, none sends it but to loopback)
    sends `Origin`, whose host must be the one that was asked. What sends neither is no browser's form.
    """
    if fetch_site is not None:
        return fetch_site == "same-origin"
    return origin is not None and host is not None and origin.partition("://")[2] == host
