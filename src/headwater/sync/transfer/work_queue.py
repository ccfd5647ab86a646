"""The work queue of a set (`temp.work`): the attempts at each resource in order, and which mirrors are trusted.

Mirrors are asked first, by `pri` and by what the run has learnt of their hosts (DST-S2, DST-F11), then `loc`. The run
itself (`RunContext`) is what all its sets share.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

import msgspec

from headwater.progress import Listener
from headwater.spec.kinds import PATCH
from headwater.storage.database import Database
from headwater.storage.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.lists.documents import Documents
from headwater.sync.lists.entries import links_of, without_patches
from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done
from headwater.sync.state import Validators
from headwater.sync.transfer.verification import digests_of
from headwater.transport.fetch import Fetched
from headwater.transport.scheduler import site_of
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json

_ROOM_FOR_GROWTH = 64 << 20

WAITING_ROUND = -2
"""The round of a row that waits for others to be fetched: none."""

LEAST_RESOURCES = 12
"""Fewer are not worth a look at any package: single requests have them at once."""

MOST_MIRRORS_ASKED = 8
"""So many mirrors are asked for one resource in a run: each of them may be one that hangs."""


class LocAttempt(msgspec.Struct, frozen=True, tag="loc", omit_defaults=True):
    """Asks `loc`: conditionally where a copy is held, or past all caches (DST-5.3)."""

    is_past_caches: bool = False
    of_source: ClassVar[bool] = True
    """Whether the source itself is asked: then its scope holds, and its `Last-Modified` is believed."""


class MirrorAttempt(msgspec.Struct, frozen=True, tag="mirror"):
    """Asks one of the mirrors (`rel="duplicate"`, DST-S2)."""

    href: str
    of_source: ClassVar[bool] = False


class WayKind(StrEnum):
    """What is asked."""

    LOC = "loc"  # `loc` itself, which may be as it was
    MEMENTO = "memento"  # the version of that very state (DST-S6)
    TIMEGATE = "TimeGate"  # a TimeGate, for the version of the moment (DST-S7)
    TIMEMAP = "TimeMap"  # a TimeMap, for its versions (DST-S8)
    LINKS = "links of loc"  # `loc`, for its `Link` headers alone


class Way(msgspec.Struct, frozen=True, array_like=True):
    """One way: what is asked, where, and what is known of it."""

    kind: WayKind
    href: str
    stated_at: int | None = None  # of a memento from a TimeMap: its `datetime`
    found: tuple[tuple[str, int], ...] = ()  # of a page of a TimeMap: the best versions of the pages before it
    read: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    """Of a page of a TimeMap: the pages that were read before it, and those that come after it."""


class KnownOfState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of the state that is wanted: the changes before and after it, and whether there was any."""

    changed_before: int | None = None
    changed_after: int | None = None
    existed: bool = True
    has_hash: bool = True
    asked_at: int = 0  # for when versions are asked: the moment itself, or `second_before` it


class PastAttempt(msgspec.Struct, frozen=True, tag="past"):
    """Asks for an earlier state in one way (RS-REL-08…10)."""

    way: Way
    known: KnownOfState = KnownOfState()
    doubt: str | None = None  # what nobody can tell of its state then

    @property
    def href(self) -> str:
        """What is asked for."""
        return self.way.href

    @property
    def of_source(self) -> bool:
        """A version may be anywhere, as a mirror may; `loc` may not."""
        return self.way.kind in (WayKind.LOC, WayKind.LINKS)


def past_attempts(ways: tuple[Way, ...], known: KnownOfState, doubt: str | None = None) -> tuple[PastAttempt, ...]:
    """The attempts that go these ways, one after the other."""
    return tuple(PastAttempt(way, known, doubt) for way in ways)


class PatchStep(msgspec.Struct, frozen=True, array_like=True):
    """One patch: where it is, and what is stated of it (its digest as `algorithm:hex`)."""

    href: str
    type: str
    length: int | None
    hash: str | None


class PatchAttempt(msgspec.Struct, frozen=True, tag="patch", omit_defaults=True):
    """Asks for the patches that lead, one by one, from the copy to what is listed: the first attempt of all."""

    steps: tuple[PatchStep, ...]
    base: str | None = None  # the digest of the copy that they start from; None: they start from nothing
    of_source: ClassVar[bool] = True

    @property
    def href(self) -> str:
        """What is asked for first."""
        return self.steps[0].href


Attempt = LocAttempt | MirrorAttempt | PatchAttempt | PastAttempt
"""One way to the octets of a resource."""

FIRST = LocAttempt()
PAST_CACHES = LocAttempt(is_past_caches=True)
_USUAL: tuple[Attempt, ...] = (FIRST,)


def encode_attempts(attempts: tuple[Attempt, ...]) -> str | None:
    """Attempts as `temp.work` has them; none are None: it is to be asked for as if nothing had been."""
    return msgspec.json.encode(attempts).decode() if attempts else None


@lru_cache(maxsize=64)
def _decode_attempts(encoded: str) -> tuple[Attempt, ...]:
    return from_json(encoded, tuple[Attempt, ...])


class ListedColumns(msgspec.Struct, frozen=True, gc=False):
    """What a list, a change or a remembered failure says of one resource."""

    uri: str
    loc: str
    lastmod: int | None
    length: int | None
    hash: str | None
    type: str | None
    encoding: str | None
    links: str | None  # those that are kept (`kept_links`)
    extra: str | None

    @property
    def stated(self) -> tuple[str | None, str | None, str | None, str | None, str | None]:
        """What is kept with the copy of what the source states, beside hash, length and time: as `resources` has it."""
        links = self.links if self.links is None or PATCH not in self.links else without_patches(self.links)
        return None if self.loc == self.uri else self.loc, self.type, self.encoding, links, self.extra

    def planned(
        self,
        path: bytes,
        held: int | None = None,
        *,
        changed_at: int | None,
        known_at: int | None,
        tries: int | None,
        validators: Validators = Validators(),  # noqa: B008  frozen
        attempts: tuple[Attempt, ...] = (),
    ) -> Row:
        """The row that `ADD_WORK` adds for this resource. `held`: the row of `resources` of the copy that is held;
        `known_at`: the moment that the list or the change speaks of; `tries`: how often it has failed in earlier runs;
        `attempts`: where others come before its mirrors and `loc`."""
        return (
            self.uri, self.loc, self.lastmod, self.length, self.hash, self.type, self.encoding, self.links, self.extra,
            path, held, changed_at, known_at, validators.etag, validators.last_modified, tries,
            encode_attempts(attempts),
        )  # fmt: skip


class Work(ListedColumns, frozen=True, gc=False):
    """One row of `temp.work`: a resource to be fetched, and the attempts that are left."""

    path: bytes
    held: int | None
    changed_at: int | None
    known_at: int | None
    etag: str | None
    last_modified: str | None
    tries: int | None
    n: int
    reason: str | None
    attempt_json: str | None  # None: nothing has been asked for it in this run
    intent: int = 0

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that are left, the next one first."""
        return _USUAL if self.attempt_json is None else _decode_attempts(self.attempt_json)

    @property
    def attempt(self) -> Attempt:
        """The attempt that is next."""
        return self.attempts[0]

    @property
    def name(self) -> str:
        """Its temporary file."""
        return f"{self.n}-content"

    @property
    def target(self) -> str:
        """The URI that the next attempt asks for."""
        attempt = self.attempt
        return self.loc if isinstance(attempt, LocAttempt) else attempt.href


COLUMNS = tuple(name for name in Work.__struct_fields__ if name != "intent")
"""Those of `temp.work` that make a `Work`, in its order."""

_ADDED = (*COLUMNS[: COLUMNS.index("n")], "attempt_json")
ADD_WORK = f"INSERT OR REPLACE INTO temp.work({', '.join(_ADDED)}) VALUES ({', '.join('?' * len(_ADDED))})"  # noqa: S608

ELIGIBLE = "round = 0 AND attempt_json IS NULL AND etag IS NULL AND last_modified IS NULL AND encoding IS NULL"
"""Work that a package can settle: not asked for yet, wanted whatever is held, and in no content coding of its own."""


def listed_columns(alias: str) -> str:
    """The columns of `ListedColumns` in a query, from a table that has them; without a `loc` the URI is asked for."""
    rest = (name for name in ListedColumns.__struct_fields__ if name not in ("uri", "loc"))
    return ", ".join((f"{alias}.uri", f"coalesce({alias}.loc, {alias}.uri)", *(f"{alias}.{name}" for name in rest)))


def attempts_with_mirrors(work: Work, *, trusted: bool) -> tuple[Attempt, ...]:
    """The attempts at a resource: its mirrors, best first (DST-S2), then `loc`; where a copy is held that a 304 may
    confirm, `loc` is asked before them.

    Mirrors count only for what has a hash or a length that can be checked, or where the user believes them (`trusted`).
    """
    is_checked = trusted or work.length is not None or bool(digests_of(work.hash))
    links = links_of(work.links, "duplicate")[:MOST_MIRRORS_ASKED] if is_checked else ()
    mirrors = tuple(MirrorAttempt(link.href) for link in links)
    return (FIRST, *mirrors) if work.etag or work.last_modified else (*mirrors, FIRST)


def request_headers(work: Work) -> tuple[tuple[str, str], ...]:
    """Request headers of the present attempt: as listed, conditional for what is held, or past all caches."""
    if work.attempt_json is None and not (work.etag or work.last_modified or work.encoding):
        return ()  # as most are
    wanted = [("Accept-Encoding", work.encoding)]
    if work.attempt == FIRST:
        wanted += [("If-None-Match", work.etag), ("If-Modified-Since", work.last_modified)]
    elif work.attempt == PAST_CACHES:
        wanted += [("Cache-Control", "no-cache"), ("Pragma", "no-cache")]
    return tuple((name, value) for name, value in wanted if value)


def attempts_after(work: Work, *, mismatch: bool) -> tuple[Attempt, ...]:
    """The attempts that are left after one that has brought nothing, or something else (`mismatch`).

    What `loc` has sent, and is something else, is asked for once more, past all caches (DST-5.3).
    """
    attempt, *rest = work.attempts
    return (PAST_CACHES, *rest) if mismatch and attempt == FIRST else tuple(rest)


def octet_limit(length: int | None, largest: int) -> int:
    """How many octets of a resource are taken: a listed length leaves room for growth, not for an endless answer."""
    return largest if length is None else min(largest, max(_ROOM_FOR_GROWTH, 4 * length))


def clear_plan(t: Transaction) -> None:
    """Empty what an earlier plan of this run has left."""
    for table in ("work", "deletions", "stamps"):
        t.run(f"DELETE FROM temp.{table}")  # noqa: S608


# what a run learns of mirrors

UNPROVEN_AT_ONCE = 4
"""Requests at a time to a host that has not answered yet: what hangs costs a run one time-out."""

MOST_FAULTS = 16
"""A host with so many faults in a row is given up. An answer without content (404, 503 …) is one."""

_FAULTS_OF_A_LOSS = 6
"""Of a host from which no answer comes."""

MOST_LIES = 4
"""A host that sends so often something else than listed is given up, whatever it sends between (DST-F11)."""

MOST_HOSTS = 64
"""A list may name a mirror of its own for each resource: so many hosts are asked in a run, and no more."""


class _Host(msgspec.Struct):
    open: int = 0
    is_proven: bool = False
    faults: int = 0
    lies: int = 0
    is_out: bool = False


class Mirrors(msgspec.Struct):
    """The hosts of mirrors in one run. One that sends something else than listed is soon asked no more (DST-F11)."""

    hosts: dict[str, _Host] = {}

    def takes(self, site: str | None) -> bool | None:
        """Whether a request to this host (`site_of`) is made, which counts as begun; None: it waits."""
        if site is None or (site not in self.hosts and len(self.hosts) >= MOST_HOSTS):
            return False
        host = self.hosts.setdefault(site, _Host())
        if not host.is_out and not host.is_proven and host.open >= UNPROVEN_AT_ONCE:
            return None
        host.open += not host.is_out
        return not host.is_out

    def ready(self, work: Work, options: SyncOptions) -> Work | None:
        """A resource with the attempt that is made now, which counts as begun; None: it waits for a mirror."""
        if work.links is None:
            return work
        attempts = work.attempts
        if work.attempt_json is None and options.mirrors == "on" and '"duplicate"' in work.links:
            attempts = attempts_with_mirrors(work, trusted=options.trust_mirrors)
        while isinstance(attempts[0], MirrorAttempt) and not (is_taken := self.takes(site_of(attempts[0].href))):
            if is_taken is None:
                return None
            attempts = attempts[1:] or (FIRST,)
        if attempts == work.attempts:
            return work
        return msgspec.structs.replace(work, attempt_json=encode_attempts(attempts))

    def sent(self, href: str) -> None:
        """A mirror has sent what is listed."""
        host = self._answered(href)
        host.is_proven, host.faults = True, 0

    def _answered(self, href: str) -> _Host:
        host = self.hosts[site_of(href) or ""]
        host.open -= 1
        return host

    def failed(self, href: str, fetched: Fetched, tell: Callable[[str, str, str], None], *, mismatch: bool) -> None:
        """Nothing came of a mirror, or something else (`mismatch`); `tell` hears when its host is given up."""
        host, failure, rule = self._answered(href), fetched.failure, "DST-S2"
        host.is_proven = host.is_proven or mismatch or failure is None
        if mismatch:
            host.lies += 1
            told, rule = "sends something else than listed", "DST-F11"
        elif failure is not None:
            host.faults += _FAULTS_OF_A_LOSS
            told = f"is out: {failure.text}"
        else:
            host.faults += 1
            told = f"has not sent {MOST_FAULTS} resources in a row (HTTP status {fetched.status})"
        if not host.is_out and (host.lies >= MOST_LIES or host.faults >= MOST_FAULTS):
            host.is_out = True
            tell(rule, f"the mirror {site_of(href)} {told}; it is not asked again in this run", href)


# the run


class RunContext(msgspec.Struct, kw_only=True):
    """What the sets of one run share. `tree` is None in a dry run without a folder; `now` is in microseconds."""

    documents: Documents
    transport: Transport
    database: Database
    tree: FileTree | None
    temp: str
    run_number: int
    options: SyncOptions
    source: str
    destination: str
    listener: Listener
    each: Callable[[Done], None]
    settle: Callable[[], None] = lambda: None
    now: Callable[[], int]
    lock: int | None = None
    """The open file by which the run holds the folder of the copy; a process of the run holds it as well."""

    adopt: bool
    mirrors: Mirrors = msgspec.field(default_factory=Mirrors)  # what this run has learnt of mirrors (DST-F11)
    failed: dict[str, Done] = msgspec.field(default_factory=dict)
    """What has failed of a set, by URI: told at its end, unless a later change has settled it."""
