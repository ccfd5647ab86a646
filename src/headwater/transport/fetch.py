"""Requests and results of the transport as values: `Fetch`, `Fetched`, failures, options."""

import random
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from headwater.errors import Exit, HeadwaterError
from headwater.retry import LONGEST_WAIT_SECONDS
from headwater.transport.access import Level, SignInCredentials, level_of
from headwater.version import __version__

USER_AGENT = f"headwater/{__version__} (ResourceSync destination)"


class DeadlineMet(HeadwaterError):
    """A run has taken as long as it may. It ends as one that is killed does: what was done holds."""

    code = "HW-NET-02"
    exit_status = Exit.SOURCE


class FailureKind(StrEnum):
    """Why there is no usable answer."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    TLS = "tls"
    REDIRECT_REFUSED = "redirect_refused"
    ADDRESS_REFUSED = "address_refused"
    PROTOCOL = "protocol"
    STORE = "store"


class FetchFailure(msgspec.Struct, frozen=True):
    """One failure: its kind, and a sentence for people. `passing`: another try may succeed."""

    kind: FailureKind
    text: str
    passing: bool = False


Objection = Callable[[str], str | None]
"""Why a redirect to a URI is not followed; None: it is."""


class Fetch(msgspec.Struct, frozen=True):
    """One thing to fetch.

    `uri` is sent as it is given. `body` is that of a POST, and of a POST alone: one that only reads, so that it may be
    repeated like a GET, also where it is redirected to (but for a 303, which asks for a GET). `into` names a file that
    is created (it must not exist) when the answer is a 2xx with a whole body; without it the body is kept in memory,
    with `holds_small` a small one is so too. `algorithms` are hashed while the body comes in. More than `max_octets`,
    declared or received, is a failure; `replaces` octets are not new where the whole copy has a bound (`Room`). `keep`
    names the file that keeps the beginning of a long body for another fetch; the caller verifies what comes of it.
    `key` is the caller's own and comes back untouched.
    `objection` says why a redirect to a URI is not followed; None: it is.
    `retries`, where given, holds in place of the transport's as long as nothing of a body has come that may be resumed.
    """

    uri: str
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "GET"
    body: bytes | None = None
    into: str | None = None
    holds_small: bool = False
    algorithms: tuple[str, ...] = ()
    max_octets: int = 64 * 1024 * 1024
    replaces: int = 0
    keep: str | None = None
    key: object = None
    objection: Objection | None = None
    retries: int | None = None


class Fetched(msgspec.Struct):
    """What came of a fetch, after redirects and retries.

    `status` is 0 when there was no answer. With `failure` None and a 2xx status the whole body has been received,
    hashed and, if asked for, written (unless `held`: then it is in `body`); in every other case no file is left but
    what `keep` names. `resumed_at` is where the last answer went on with what had come before, 0 if it was whole;
    `brought` octets of that are of an earlier fetch.
    `octets`, `digests` and `body` are those of the body as received, content coding and all. `moved_to` is where
    permanent redirects alone have led; `retry_after_seconds` is the wait that the last answer asked for.
    """

    fetch: Fetch
    status: int = 0
    uri: str = ""
    headers: dict[str, str] = {}
    octets: int = 0
    resumed_at: int = 0
    brought: int = 0
    digests: dict[str, str] = {}
    body: bytes = b""
    held: bool = False
    failure: FetchFailure | None = None
    retry_after_seconds: float | None = None
    moved_to: str | None = None
    signed_in: bool | None = None
    """Whether credentials were sent with the last request, or withheld from its origin; None: there are none."""

    tries: int = 1

    @property
    def ok(self) -> bool:
        """A 2xx with its whole body."""
        return self.failure is None and 200 <= self.status < 300


class HostPermission(Protocol):
    """What several processes share of the limits of a host, whatever address led to it."""

    def take(self, host: str) -> float:
        """Permit a request to the host, by 0: `give` is called when it has ended; else for how many seconds to wait."""

    def give(self, host: str, status: int) -> None:
        """A request to the host has ended, with this HTTP status; 0: without an answer."""

    def rest(self, host: str, seconds: float) -> None:
        """The host has asked not to be asked for so long (429, 503)."""


class TransportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How hard, how long and as whom a transport tries.

    `concurrency` bounds the requests in flight in all, `per_host` those to one host, `rate_per_second` their number,
    `octets_per_second` what comes of all bodies together. It is one of `shares` that ask the same hosts at a time.
    `authorities` is a file of certificate authorities that are believed beside those of the machine, `proxy` the URI of
    the proxy that all requests take, in place of those of the environment. `source`, a URI, is that by whose addresses
    others are judged (`access`), save those of `named_hosts`. A failed request is tried `retries` times
    more; a `Retry-After` beyond `longest_wait_seconds` is not waited for but returned. Once `stopped` says so, whatever
    is under way is given up (`Interrupted`); so it is `deadline_seconds` after the beginning (`DeadlineMet`). Before
    each request `permission` is asked. The last five are for tests: time that passes, time of day, sleep, chance (0 to
    1), and how far inside an address lies.
    """

    concurrency: int = 64
    per_host: int = 64
    shares: int = 1
    rate_per_second: float | None = None
    octets_per_second: int | None = None
    connect_timeout_seconds: float = 20.0
    stall_timeout_seconds: int = 60
    retries: int = 3
    first_backoff_seconds: float = 0.5
    longest_wait_seconds: float = LONGEST_WAIT_SECONDS
    user_agent: str = USER_AGENT
    credentials: SignInCredentials | None = None
    authorities: str | None = None
    proxy: str | None = None
    source: str | None = None
    named_hosts: tuple[str, ...] = ()
    stopped: Callable[[], bool] | None = None
    deadline_seconds: float | None = None
    permission: HostPermission | None = None
    monotonic: Callable[[], float] = time.monotonic
    time_of_day: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    level_of: Callable[[str], Level] = level_of

    def __repr__(self) -> str:
        """Nothing of them: some are secret."""
        return "TransportOptions(…)"
