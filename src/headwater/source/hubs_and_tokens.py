"""Access tokens, compared in constant time and never kept in clear; the `[notify]` and `[hub]` tables of a source.

`[notify]` says which hubs are told, and how; `[hub]` how a hub works, and where: see `keys.txt` and
`docs/how-to/push-changes-through-a-hub.md`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from headwater.errors import UsageFault
from headwater.notify.http_client import HttpProxy, read_proxy
from headwater.notify.hub.policy import AddressPolicy, HubLimits, TrustedProxies, lease_bounds, objection_to_url
from headwater.publish.site import BadSite, check_url
from headwater.toml_files import secret_texts
from headwater.transport.access import Level, level_of, literal_address

if TYPE_CHECKING:
    from headwater.notify.hub.policy import HubOptions


SHORTEST: Final = 16  # characters of a token: fewer can be guessed
LONGEST: Final = 1_000


class BadToken(UsageFault):
    """A token is invalid, too short, or cannot be read."""

    code: ClassVar[str] = "HW-CFG-02"


class AccessTokens:
    """The tokens that one set accepts; without any it accepts none."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = tuple(hashlib.sha256(_checked(token).encode("ascii")).digest() for token in tokens)

    @property
    def is_empty(self) -> bool:
        """Whether there is no token at all."""
        return not self._digests

    def accepts(self, token: bytes) -> bool:
        """Whether this is one of the tokens; takes as long for every token, right or wrong."""
        digest = hashlib.sha256(token).digest()
        found = False
        for one in self._digests:
            found |= hmac.compare_digest(one, digest)
        return found


class TokenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where tokens stand: in the configuration, in a file (one a line), and in an environment variable."""

    token: str | None = None
    token_file: str | None = None
    token_env: str | None = None

    def token_texts(self, environment: Mapping[str, str] = os.environ) -> list[str]:
        """The tokens in clear. Raises BadToken."""
        own = [] if self.token is None else [self.token]
        found = secret_texts(self.token_file, self.token_env, BadToken, environment)
        return [_checked(text, self.token_file or self.token_env) for text in (*own, *found)]


def _checked(token: str, where: str | None = None) -> str:
    """The token. Raises BadToken, which says what is wrong with it and shows nothing of it."""
    if not SHORTEST <= len(token) <= LONGEST:
        raise BadToken(f"a token has {len(token):,} characters, and {SHORTEST} to {LONGEST:,} are needed", where=where)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadToken("a token has a space, or a character that is not printable ASCII", where=where)
    return token


# The tables, and the options of `headwater hub`

_MOST_HUBS = 16


class BadNotifyConfig(UsageFault):
    """The `[notify]` table has no hub, one twice, or something that is no URL of one."""

    code: ClassVar[str] = "HW-CFG-06"


class NotifyConfig(TokenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notifications are sent, with which token, and how many changes are told together."""

    hubs: tuple[str, ...]
    proxy: str | None = None
    authorities: str | None = None
    batch_count: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    batch_seconds: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 0.02
    framework_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.hubs) <= _MOST_HUBS or len(set(self.hubs)) != len(self.hubs):
            raise BadNotifyConfig(f"notify.hubs names from one to {_MOST_HUBS} hubs, each once")
        for hub in self.hubs:
            try:
                check_url(hub)
            except BadSite as cause:
                raise BadNotifyConfig(f"notify.hubs: {cause.what}") from cause
        self.proxy_for("https", "")

    def proxy_for(self, _scheme: str, host: str) -> HttpProxy | None:
        """The proxy by which a hub is asked: none for this machine itself. Raises BadNotifyConfig."""
        if self.proxy is None:
            return None
        try:
            proxy = read_proxy(self.proxy)
        except UsageFault as cause:
            raise BadNotifyConfig(f"notify.proxy: {cause.what}", advice=cause.todo) from None
        literal = literal_address(host)
        return None if literal is not None and level_of(literal) is Level.LOCAL else proxy

    def sent_token(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The token that is sent to the hubs; None where there is none. Raises BadToken."""
        found = self.token_texts(environment)
        if len(found) > 1:
            raise BadToken("[notify] takes one token", advice="Give one of token, token_file and token_env.")
        return found[0] if found else None


LOOPBACK = ("127.0.0.0/8", "::1/128")  # the addresses of this machine alone
ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound to unasked


class BadHubConfig(UsageFault):
    """The address or the URL of a hub cannot be used."""

    code: ClassVar[str] = "HW-CFG-07"


class HubConfig(TokenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a hub listens and keeps its state, whom it believes, and what it allows."""

    listen: str = "127.0.0.1:8080"
    base_url: str | None = None
    state: str | None = None
    allow_private: bool | tuple[str, ...] = False
    trusted_proxies: tuple[str, ...] = ()
    lease_bounds: str | None = None
    signature: Literal["sha1", "sha256", "sha384", "sha512"] = "sha256"
    authorities: str | None = None

    def __post_init__(self) -> None:
        host, _port = self.address
        if host in ANY_HOST and self.base_url is None:
            what = f"a hub that listens on {host or 'every address'} needs the URL that publishers and subscribers use"
            raise BadHubConfig(what, advice="Give it: --base-url of `headwater hub`, base_url of [hub].")
        if self.base_url is not None and (why := objection_to_url(self.base_url)):
            raise BadHubConfig(f"the hub's base URL cannot be used: {why}")
        self.limits  # noqa: B018  told when the file is read, not when the hub is started
        self.addresses  # noqa: B018
        self.proxies  # noqa: B018

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return host_and_port(self.listen)

    @property
    def limits(self) -> HubLimits:
        """The bounds on what strangers can make it do. Raises UsageFault."""
        if self.lease_bounds is None:
            return HubLimits()
        least, most = lease_bounds(self.lease_bounds)
        return HubLimits(least_lease=least, most_lease=most)

    @property
    def addresses(self) -> AddressPolicy:
        """Which addresses callbacks and topics may have. Raises UsageFault."""
        if isinstance(self.allow_private, bool):
            return AddressPolicy(everything=self.allow_private)
        return AddressPolicy(self.allow_private)

    @property
    def proxies(self) -> TrustedProxies:
        """Whose word of where a request comes from is taken. Raises UsageFault."""
        return TrustedProxies(self.trusted_proxies)

    @property
    def receivers(self) -> str:
        """Whom the hub delivers to, in words."""
        allowed = self.allow_private
        if isinstance(allowed, bool) or not allowed:
            return "any address" if allowed else "public addresses"
        return f"public addresses and {'this machine' if allowed == LOOPBACK else ', '.join(allowed)}"

    def tokens(self, more: Iterable[str] = ()) -> AccessTokens:
        """Those of publishers who are believed. Raises BadToken."""
        return AccessTokens([*self.token_texts(), *more])

    def options(self, own_url: str) -> HubOptions:
        """What the hub is told; `own_url` is where it listens."""
        from headwater.notify.hub.policy import HubOptions
        from headwater.notify.websub import SignatureMethod

        return HubOptions(
            url=self.base_url or f"{own_url}/",
            limits=self.limits,
            method=SignatureMethod(self.signature),
            authorities=self.authorities,
        )


def host_and_port(text: str) -> tuple[str, int]:
    """HOST:PORT as it is given to `--listen`. Raises UsageFault."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise UsageFault(f"what is listened on has to be HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
