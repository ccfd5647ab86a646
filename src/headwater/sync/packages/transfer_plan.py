"""The plan of a transfer: which of what is wanted comes by packages of a dump, on demand, or by single requests.

Packages of a dump are fetched where a quarter of their octets is wanted, a tenth for who prefers dumps. What is left
and smaller than 1 MiB comes on demand where the source offers that, from a dozen resources on. Reads the documents of
dumps that are offered, and nothing else.
"""

from __future__ import annotations

from enum import Enum
from math import ceil

import msgspec

from headwater.errors import SourceFault
from headwater.quantities import human_octets
from headwater.spec.kinds import RULES, Kind
from headwater.sync.connection import Scope
from headwater.sync.lists.documents import CAPABILITY_LISTS, offer_of
from headwater.sync.packages.dump_documents import DumpRead, read_dump
from headwater.sync.packages.package_content import MANIFESTS, Warn
from headwater.sync.packages.package_download import ListedPackage
from headwater.sync.reports import TransferWay
from headwater.sync.run_context import RunContext
from headwater.sync.state import CHANGE_DUMP, RESOURCE_DUMP, Offer, SetRow
from headwater.sync.transfer.work_queue import ELIGIBLE

# the rules, over values

LEAST_RESOURCES = 12
"""Fewer are not worth a look at any package: single requests have them at once."""

LARGE_OCTETS = 1 << 20
"""A resource of this size or more goes by a single request: then octets are what takes time, a break costs only the
rest, and several come at the same time."""

USUAL_OCTETS = 16 << 10
"""What a resource without a listed length is taken for."""

LEAST_SHARE, LEAST_PREFERRED_SHARE = 0.25, 0.1
"""Packages of which less is wanted are left. Who prefers dumps gets one up to LARGE_OCTETS for any share of it."""

_HEADER_OCTETS = 150
"""What a member takes in a package beside its content: of many tiny resources most of a package is headers."""


class Prefer(Enum):
    """What a user says of the ways (`--prefer`). ONLY_DUMPS: resources may be in packages alone."""

    AUTO = "auto"
    LISTS = "lists"
    DUMPS = "dumps"
    ONLY_DUMPS = "only dumps"


class Demand(msgspec.Struct, frozen=True):
    """Resources that are wanted, and their octets together."""

    resources: int
    octets: int


class WayDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a way is taken that was considered, and the sentence that says why."""

    taken: bool
    why: str


def choose_packages(length: int | None, wanted: Demand, prefer: Prefer) -> WayDecision | None:
    """Whether packages of `length` octets in all are fetched for `wanted`, rather than what else there is.

    None: they are not considered, as nothing is wanted of them, or too few resources.
    """
    if not wanted.resources or (prefer is Prefer.AUTO and wanted.resources < LEAST_RESOURCES):
        return None
    said = "1 resource is wanted of it" if wanted.resources == 1 else f"{wanted.resources:,} resources are wanted of it"
    if prefer is Prefer.ONLY_DUMPS:
        return WayDecision(taken=True, why=f"{said}, which only dumps list")
    is_preferred = prefer is Prefer.DUMPS
    least = LEAST_PREFERRED_SHARE if is_preferred else LEAST_SHARE
    is_enough = (
        length is None
        or (is_preferred and length <= LARGE_OCTETS)
        or wanted.octets + wanted.resources * _HEADER_OCTETS >= least * length
    )
    share = "" if length is None else f", {human_octets(wanted.octets)} of {human_octets(length)}"
    if is_enough:
        return WayDecision(taken=True, why=f"{said}, dumps are preferred" if is_preferred else f"{said}{share}")
    return WayDecision(taken=False, why=f"{said}{share}: less than a {'tenth' if is_preferred else 'quarter'}")


def why_on_demand(wanted: Demand, prefer: Prefer) -> str | None:
    """Why resources that are not large are asked for on demand, rather than one by one; None: they are not."""
    if wanted.resources < (1 if prefer is Prefer.DUMPS else LEAST_RESOURCES):
        return None
    count = "1 resource that is" if wanted.resources == 1 else f"{wanted.resources:,} resources that are"
    return f"{count} not large, dumps are preferred" if prefer is Prefer.DUMPS else f"{count} not large"


_WANTED = f"SELECT count(*), sum(coalesce(length, {USUAL_OCTETS})) FROM temp.work WHERE {ELIGIBLE}"  # noqa: S608
_ANY_WANTED = f"SELECT 1 FROM temp.work WHERE {ELIGIBLE}"  # noqa: S608  our own names


_OF_CHANGES = " AND changed_at IS NOT NULL"
_OF_BASELINES = " AND changed_at IS NULL"

_FAST_OCTETS_PER_SECOND = 64e6
"""From here on the octets that deflating saves come sooner than it takes: 4 KiB of text shrink by 2.5 KiB in 25 us at
the source, and are inflated in 11 us."""

_USUAL_OCTETS_PER_SECOND = 10e6
"""Of a source that was not asked yet."""

_LEAST_BATCH_RESOURCES, _MOST_BATCH_RESOURCES = 250, 5_000
"""Of one request on demand, where the limits allow it: enough that a request costs little beside them, so few that
requests overlap and a failure costs little."""

_LEAST_BATCH_OCTETS, _MOST_BATCH_OCTETS = 256 << 10, 32 << 20
_BATCH_SECONDS = 15.0
"""So long one answer on demand takes at most, as far as is known."""

_MOST_UNDER_WAY = 2
"""Answers that are asked for at a time: while one is read the next is made, sent and buffered. A source that makes more
of them at once only gives the first one more slowly; measured with 4, the reader waited for a whole second at first."""

DUMPS = (CHANGE_DUMP, RESOURCE_DUMP)
"""In the order in which they are looked at: what changes have brought is in few packages of a Change Dump."""


class ChosenPackage(msgspec.Struct, frozen=True):
    """A package that is to be fetched, of which kind of dump, and why."""

    kind: Kind
    package: ListedPackage
    why: str

    @property
    def way(self) -> str:
        """The way, as a report names it."""
        return RULES[self.kind].title


class BatchBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for at a time: so many resources, of so many octets, each of less than `large_octets`."""

    resources: int
    octets: int
    large_octets: int
    under_way: int
    deflate: bool = True
    """Whether the source is to deflate: on a fast line it costs both sides more than it saves."""

    at: str | None = None
    """The moment of which resources are asked for; None: as they are."""


class TransferPlan:
    """Decides for the work of one set, as it now is; asked again after each way was gone."""

    def __init__(self, context: RunContext, row: SetRow, offer: Offer, scope: Scope, warn: Warn) -> None:
        self._context = context
        self._set = row
        self.offer = offer
        self._scope = scope
        self._warn = warn
        self.prefer = Prefer(context.options.prefer)
        self.not_taken: list[TransferWay] = []
        """What is offered and was not taken, and why."""

    def is_worth_a_look(self) -> bool:
        """Whether enough is wanted to look at packages, and there are any on offer."""
        if self.prefer is Prefer.LISTS:
            return False
        dumps = any(self._preference(kind) is not Prefer.AUTO for kind in MANIFESTS)
        if not self.are_wanted(count=1 if dumps else LEAST_RESOURCES):
            return False
        if self._set.position is not None:
            self.offer = self._offer_of_now()
        documents = self.offer.documents
        return self.offer.on_demand is not None or not documents.keys().isdisjoint((RESOURCE_DUMP, CHANGE_DUMP))

    def _offer_of_now(self) -> Offer:
        """What the Capability List offers of packages by now: who polls a Change List has not read it again."""
        uri = self.offer.capability_list
        if uri is None:
            return self.offer
        try:
            probe = self._context.documents.probe(uri)
        except SourceFault:
            return self.offer
        if probe.document is None or probe.document.kind not in CAPABILITY_LISTS:
            return self.offer
        fresh, offer = offer_of(probe, self.offer.description, self._context.documents), self.offer
        for capability in (RESOURCE_DUMP, CHANGE_DUMP):
            offer = offer.with_document(capability, fresh.documents.get(capability))
        return msgspec.structs.replace(offer, on_demand=fresh.on_demand)

    def wanted(self, also: str = "", *values: int) -> Demand:
        """What of the work packages may bring; `also`: a further condition on it."""
        with self._context.database.write() as t:
            resources, octets = t.one(_WANTED + also, values) or (0, 0)
        return Demand(resources, octets or 0)

    def are_wanted(self, also: str = "", *, count: int = 1) -> bool:
        """Whether there are so many of them, which is sooner known than how many there are."""
        with self._context.database.write() as t:
            return t.one(f"{_ANY_WANTED}{also} LIMIT 1 OFFSET ?", (count - 1,)) is not None

    def packages(self, capability: str) -> list[ChosenPackage]:
        """The packages of the dump of this capability (one of `DUMPS`) that are worth their octets."""
        uri = self.offer.documents.get(capability)
        if uri is None or not self.are_wanted(_OF_CHANGES if capability == CHANGE_DUMP else ""):
            return []
        try:
            dump = read_dump(self._context.documents, uri, self._scope.objection)
        except SourceFault as fault:
            self._warn(fault.rule or fault.code, f"a dump is passed over: {fault.what}", fault.where or uri)
            return []
        if RULES[dump.kind].capability != capability:
            said = f"a dump is passed over: it is offered as another than it is, a {RULES[dump.kind].title}"
            self._warn("DST-A7", said, uri)
            return []
        return self._of_change_dump(dump) if capability == CHANGE_DUMP else self._of_resource_dump(dump)

    def _of_resource_dump(self, dump: DumpRead) -> list[ChosenPackage]:
        """All packages or none: what is wanted lies in all of them alike, as far as can be known before."""
        if not dump.packages:
            return []
        choice = choose_packages(dump.octets, self.wanted(), self._preference(dump.kind))
        if choice is None or not choice.taken:
            self._note_missed(dump.kind, choice)
            return []
        packages = (
            reversed(dump.packages) if self.is_list(dump.kind) else dump.packages
        )  # the later one counts (DST-B3)
        return [ChosenPackage(dump.kind, package, choice.why) for package in packages]

    def _of_change_dump(self, dump: DumpRead) -> list[ChosenPackage]:
        """The packages whose interval holds changes that are wanted (DST-D); the newest first, whose states count."""
        chosen: list[ChosenPackage] = []
        missed: WayDecision | None = None
        for package in reversed(dump.packages):
            if package.from_ is None and package.until is None:
                wanted = self.wanted(_OF_CHANGES)
            else:
                low, high = package.from_ or 0, package.until if package.until is not None else 1 << 62
                wanted = self.wanted(" AND changed_at BETWEEN ? AND ?", low, high)
            choice = choose_packages(package.length, wanted, self._preference(dump.kind))
            if choice is not None and choice.taken:
                chosen.append(ChosenPackage(dump.kind, package, choice.why))
            else:
                missed = choice or missed
        if not chosen:
            self._note_missed(dump.kind, missed)
        return chosen

    def _note_missed(self, kind: Kind, choice: WayDecision | None) -> None:
        """Tell of what was not taken, where it was considered at all."""
        if choice is not None:
            self.not_taken.append(TransferWay(way=RULES[kind].title, why=choice.why))

    def is_list(self, kind: Kind) -> bool:
        """Whether a dump of this kind stands for a list that the source does not offer (DST-D)."""
        listed = self.offer.resource_list if kind is Kind.RESOURCE_DUMP else self.offer.change_list
        return listed is None and RULES[kind].capability in self.offer.documents

    def _preference(self, kind: Kind) -> Prefer:
        """What only a dump lists may be in its packages alone: then they are taken, unless the user says other."""
        if self.is_list(kind):
            also = _OF_CHANGES if kind is Kind.CHANGE_DUMP else _OF_BASELINES
            return Prefer.ONLY_DUMPS if self.are_wanted(also) else self.prefer
        return self.prefer

    def demand(self) -> tuple[str, BatchBounds] | None:
        """Why the rest that is not large is asked for on demand, and how much at a time; None: it is not."""
        offer, options = self.offer.on_demand, self._context.options
        if offer is None:
            return None
        limits, large = offer.limits, min(LARGE_OCTETS, offer.limits.octets)
        wanted = self.wanted(" AND hash IS NOT NULL AND coalesce(length, 0) < ?", large)
        why = why_on_demand(wanted, self.prefer)
        if why is None:
            return None
        measured = self._context.transport.octets_per_second(self.offer.identity) or _USUAL_OCTETS_PER_SECOND
        line = measured if options.bwlimit is None else min(measured, options.bwlimit)
        is_near = self._context.transport.guard.source_is_near or measured >= _FAST_OCTETS_PER_SECOND
        overlapping = ceil(wanted.resources / max(1, limits.requests))
        bounds = BatchBounds(
            resources=min(limits.resources, _MOST_BATCH_RESOURCES, max(_LEAST_BATCH_RESOURCES, overlapping)),
            octets=min(limits.octets, _MOST_BATCH_OCTETS, max(_LEAST_BATCH_OCTETS, int(_BATCH_SECONDS * line))),
            large_octets=large,
            under_way=min(limits.requests, _MOST_UNDER_WAY, options.concurrency),
            deflate=options.bwlimit is not None or not is_near,
        )
        return why, bounds
