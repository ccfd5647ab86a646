"""The work queue of one set (`temp.work`): resources that are to be fetched, and which attempt comes next for each.

Whoever plans adds a `PlannedFetch`; who fetches takes a `Work`. Both have the columns of a listed resource in common
(`ListedColumns`), in the same order as every query that reads them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, NamedTuple

import msgspec

from headwater.spec.kinds import PATCH
from headwater.storage.sqlite.transaction import Transaction
from headwater.sync.lists.entries import links_of, without_links
from headwater.sync.state.validators import Validators
from headwater.sync.transfer.past_ways import KnownOfState, Way, WayKind
from headwater.sync.transfer.verification import digests_of
from headwater.typed_decoding import from_json

_ROOM_FOR_GROWTH = 64 << 20

WAITING_ROUND = -2
"""The round of a row that waits for others to be fetched: none."""

WITHHELD_ROUND = -3
"""The round of a row that no package is to bring: none, as long as packages are read."""

MOST_MIRRORS_ASKED = 8
"""So many mirrors are asked for one resource in a run: each of them may be one that hangs."""


class LocAttempt(msgspec.Struct, frozen=True, tag="loc", omit_defaults=True):
    """Asks `loc`, conditionally where a copy is held."""

    asked: int = 0
    """The mirrors that were asked before, a bit for each."""

    of_source: ClassVar[bool] = True
    """Whether the source itself is asked: then its scope holds, and its `Last-Modified` is believed."""

    keeps_parts: ClassVar[bool] = True
    """Whether a body that breaks off may be gone on with."""

    suffix: ClassVar[str] = "loc"

    def uri(self, loc: str, mirrors: list[str]) -> str:
        """What is asked for."""
        return loc


class LocPastCachesAttempt(msgspec.Struct, frozen=True, tag="loc past caches", omit_defaults=True):
    """Asks `loc` past all caches: what came before was not what is listed (DST-5.3)."""

    asked: int = 0
    of_source: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = False
    suffix: ClassVar[str] = "fresh"

    def uri(self, loc: str, mirrors: list[str]) -> str:
        """What is asked for."""
        return loc


class MirrorAttempt(msgspec.Struct, frozen=True, tag="mirror", omit_defaults=True):
    """Asks one of the mirrors (`rel="duplicate"`, DST-S2)."""

    number: int
    """Which of them, by their `pri`."""

    asked: int = 0
    is_after_loc: bool = False
    """Whether `loc` has been asked in vain; else it is the last way that is left."""

    of_source: ClassVar[bool] = False
    keeps_parts: ClassVar[bool] = True

    @property
    def suffix(self) -> str:
        """What tells its temporary file from those of other attempts."""
        return f"mirror{self.number}"

    def uri(self, loc: str, mirrors: list[str]) -> str:
        """What is asked for."""
        return mirrors[self.number]


class PastAttempt(msgspec.Struct, frozen=True, tag="past"):
    """Asks for an earlier state: the first of these ways, and then the next (RS-REL-08…10)."""

    ways: tuple[Way, ...]
    step: int = 0
    known: KnownOfState = KnownOfState()
    doubt: str | None = None
    """What nobody can tell of its state then."""

    keeps_parts: ClassVar[bool] = False

    @property
    def way(self) -> Way:
        """The one that is next."""
        return self.ways[0]

    @property
    def of_source(self) -> bool:
        """A version may be anywhere, as a mirror may; `loc` may not."""
        return self.way.kind in (WayKind.LOC, WayKind.LINKS)

    @property
    def suffix(self) -> str:
        """What tells its temporary file from those of other attempts."""
        return f"past{self.step}"

    def uri(self, loc: str, mirrors: list[str]) -> str:
        """What is asked for."""
        return self.way.href

    def then(self, instead: tuple[Way, ...] = ()) -> PastAttempt | None:
        """The attempt after this one; `instead`: the ways that this one has led to."""
        ways = (*instead, *self.ways[1:])
        return PastAttempt(ways, self.step + 1, self.known, self.doubt) if ways else None


class PatchStep(msgspec.Struct, frozen=True, array_like=True):
    """One patch: where it is, and what is stated of it and of its result (digests as `algorithm:hex`)."""

    href: str
    type: str
    length: int | None
    hash: str | None
    result: str
    result_length: int | None


class PatchAttempt(msgspec.Struct, frozen=True, tag="patch"):
    """Asks for the patch `number` of those that lead from the copy to what is listed; the first attempt of all."""

    base: str
    """The digest of the copy that they start from."""

    steps: tuple[PatchStep, ...]
    number: int = 0

    of_source: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = False

    @property
    def step(self) -> PatchStep:
        """The patch that is asked for."""
        return self.steps[self.number]

    @property
    def next(self) -> PatchAttempt | None:
        """The patch after it; None when there is none."""
        return msgspec.structs.replace(self, number=self.number + 1) if self.number + 1 < len(self.steps) else None

    @property
    def suffix(self) -> str:
        """What tells its temporary file from those of other attempts."""
        return f"patch{self.number}"

    def uri(self, loc: str, mirrors: list[str]) -> str:
        """What is asked for."""
        return self.step.href


Attempt = LocAttempt | LocPastCachesAttempt | MirrorAttempt | PatchAttempt | PastAttempt
"""One way to the octets of a resource."""

FIRST = LocAttempt()
PAST_CACHES = LocPastCachesAttempt()


def encode_attempt(attempt: Attempt) -> str | None:
    """An attempt as `temp.work` has it; the first one is None."""
    return None if attempt == FIRST else msgspec.json.encode(attempt).decode()


@lru_cache(maxsize=64)
def _decode_attempt(encoded: str) -> Attempt:
    return from_json(encoded, Attempt)  # type: ignore[no-any-return]  # a union is no type to it


class PlannedFetch(NamedTuple):
    """A row to be added to `temp.work`; the fields are its columns."""

    uri: str
    loc: str
    path: bytes
    held: int | None = None
    """The row of `resources` of the copy that is held."""

    lastmod: int | None = None
    length: int | None = None
    hash: str | None = None
    type: str | None = None
    encoding: str | None = None
    links: str | None = None
    extra: str | None = None
    changed_at: int | None = None
    known_at: int | None = None
    """The moment that the list or the change speaks of."""

    etag: str | None = None
    last_modified: str | None = None
    tries: int | None = None
    """How often it has failed in earlier runs; None: it has not."""

    attempt_json: str | None = None
    """The attempt that is made first, where that is not to ask `loc`."""


ADD_WORK = (
    f"INSERT OR REPLACE INTO temp.work({', '.join(PlannedFetch._fields)})"  # noqa: S608
    f" VALUES ({', '.join('?' * len(PlannedFetch._fields))})"
)


class ListedColumns(msgspec.Struct, frozen=True, gc=False):
    """What a list, a change or a remembered failure says of one resource."""

    uri: str
    loc: str
    lastmod: int | None
    length: int | None
    hash: str | None
    type: str | None
    encoding: str | None
    links: str | None
    """Those that are kept (`kept_links`)."""

    extra: str | None

    @property
    def stated(self) -> tuple[str | None, str | None, str | None, str | None, str | None]:
        """What is kept with the copy of what the source states, beside hash, length and time: as `resources` has it."""
        links = self.links if self.links is None or PATCH not in self.links else without_links(self.links, PATCH)
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
    ) -> PlannedFetch:
        """The row of `temp.work` for this resource."""
        return PlannedFetch(
            self.uri, self.loc, path, held, self.lastmod, self.length, self.hash, self.type, self.encoding,
            self.links, self.extra, changed_at, known_at, validators.etag, validators.last_modified, tries,
        )  # fmt: skip


class Work(ListedColumns, frozen=True, gc=False):
    """One row of `temp.work`: a resource to be fetched, and the attempt that is next."""

    path: bytes
    held: int | None
    changed_at: int | None
    known_at: int | None
    etag: str | None
    last_modified: str | None
    tries: int | None
    n: int
    reason: str | None
    attempt_json: str | None
    intent: int = 0

    @property
    def is_first(self) -> bool:
        """Whether nothing has been asked for it in this run."""
        return self.attempt_json is None

    @property
    def attempt(self) -> Attempt:
        """The attempt that is next."""
        return FIRST if self.attempt_json is None else _decode_attempt(self.attempt_json)

    @property
    def name(self) -> str:
        """Its temporary file, of this attempt alone."""
        return f"{self.n}-{self.attempt.suffix}"

    @property
    def target(self) -> str:
        """The URI that the next attempt asks for."""
        return self.loc if self.attempt_json is None else self.attempt.uri(self.loc, mirrors_of(self))


COLUMNS = tuple(name for name in Work.__struct_fields__ if name != "intent")
"""Those of `temp.work` that make a `Work`, in its order."""

ELIGIBLE = "round = 0 AND attempt_json IS NULL AND etag IS NULL AND last_modified IS NULL AND encoding IS NULL"
"""Work that a package can settle: not asked for yet, wanted whatever is held, and in no content coding of its own."""


def listed_columns(alias: str) -> str:
    """The columns of `ListedColumns` in a query, from a table that has them; without a `loc` the URI is asked for."""
    rest = (name for name in ListedColumns.__struct_fields__ if name not in ("uri", "loc"))
    return ", ".join((f"{alias}.uri", f"coalesce({alias}.loc, {alias}.uri)", *(f"{alias}.{name}" for name in rest)))


def mirrors_of(work: Work) -> list[str]:
    """The URIs of the mirrors of a resource, best first (DST-S2)."""
    return [link.href for link in links_of(work.links, "duplicate")]


def may_use_mirrors(work: Work, *, trusted: bool) -> bool:
    """Whether the mirrors of a resource count: only what has a hash or a length can be checked (DST-S2).

    `trusted`: the user believes them without.
    """
    if work.links is None or '"duplicate"' not in work.links:
        return False
    return trusted or work.length is not None or bool(digests_of(work.hash))


def next_attempt(work: Work, *, mismatch: bool, mirrors: bool) -> Attempt | None:
    """The attempt after `work.attempt`; None when there is none left (DST-S2, DST-5.3).

    Mirrors by their `pri`, then `loc`, then `loc` past all caches where something else came, then mirrors that were
    passed over before. `mirrors`: whether they count at all (`may_use_mirrors`).
    """
    tried = work.attempt
    if isinstance(tried, PastAttempt):
        return tried.then()
    if isinstance(tried, PatchAttempt):
        return FIRST
    if isinstance(tried, LocAttempt) and mismatch:
        return LocPastCachesAttempt(tried.asked)
    if isinstance(tried, MirrorAttempt):
        asked = tried.asked | 1 << tried.number
        found = _unasked(work, asked, mirrors=mirrors)
        if tried.is_after_loc:
            return None if found is None else MirrorAttempt(found, asked, is_after_loc=True)
        later = next_mirror(work, asked, tried.number + 1, mirrors=mirrors)
        return LocAttempt(asked) if later is None else MirrorAttempt(later, asked)
    found = _unasked(work, tried.asked, mirrors=mirrors)
    return None if found is None else MirrorAttempt(found, tried.asked, is_after_loc=True)


def _unasked(work: Work, asked: int, *, mirrors: bool) -> int | None:
    return next_mirror(work, asked, 0, mirrors=mirrors)


def next_mirror(work: Work, asked: int, first: int, *, mirrors: bool) -> int | None:
    """The number of the next mirror from `first` on that is not among those `asked`, of which there may be a few."""
    if not mirrors or asked.bit_count() >= MOST_MIRRORS_ASKED:
        return None
    return next((n for n in range(first, len(mirrors_of(work))) if not asked >> n & 1), None)


def octet_limit(length: int | None, largest: int) -> int:
    """How many octets of a resource are taken: a listed length leaves room for growth, not for an endless answer."""
    return largest if length is None else min(largest, max(_ROOM_FOR_GROWTH, 4 * length))


class PlanCounts(msgspec.Struct):
    """The counts of one set's plan, and then of its run."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    waiting: int = 0
    refused: int = 0
    left_out: int = 0
    held_back: int = 0
    adopted: int = 0
    octets: int = 0
    from_mirrors: int = 0
    patched: int = 0
    octets_saved: int = 0


def clear_plan(t: Transaction) -> None:
    """Empty what an earlier plan of this run has left."""
    for table in ("work", "deletions", "folders", "stamps"):
        t.run(f"DELETE FROM temp.{table}")  # noqa: S608
