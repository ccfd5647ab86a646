"""HTTP authentication: credentials for one origin, and whether they were sent (RFC 9110, 11; RFC 7617; RFC 6750).

Whatever is secret goes to the origin it was given for, and to no other: not where that redirects, not to mirrors.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")

REFUSED = (401, 403)
"""Answers to who is not let in (DST-F2)."""

_SCHEME = r"(?:^|,)\s*([A-Za-z][A-Za-z0-9._~+/-]*)(?=\s|,|\Z)(?!\s*=)"


class Presented(StrEnum):
    """Which credentials a request carried."""

    NOTHING = "nothing"
    TOKEN = "the token that was given"  # noqa: S105
    PASSWORD = "the name and password that were given"  # noqa: S105
    OTHER = "the credentials given"
    WITHHELD = "withheld"
    """There was something, but for another origin than that which was asked at last."""


class SignInCredentials(msgspec.Struct, frozen=True):
    """What is sent to the origin of the URI `origin`: an `Authorization` header's value, further headers, and the files
    of a client certificate and its key (PEM). Nothing of it is shown by `repr`.
    """

    origin: str
    authorization: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    certificate: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.origin!r})"

    @property
    def presented(self) -> Presented:
        """What this is called."""
        value = self.authorization or next((v for n, v in self.headers if n.lower() == "authorization"), "")
        scheme = value.partition(" ")[0].lower()
        return {"bearer": Presented.TOKEN, "basic": Presented.PASSWORD}.get(scheme, Presented.OTHER)

    def lines(self, names: set[str]) -> list[bytes]:
        """The header lines of a request that has these headers (names in lower case) of its own."""
        fields = [("Authorization", self.authorization)] if self.authorization else []
        fields += [(name, value) for name, value in self.headers]
        return [f"{name}: {value}".encode("latin-1") for name, value in fields if name.lower() not in names]


def challenged(value: str | None) -> tuple[str, ...]:
    """The authentication schemes that a `WWW-Authenticate` header names, in lower case."""
    return tuple(dict.fromkeys(name.lower() for name in re.findall(_SCHEME, value or "")))
