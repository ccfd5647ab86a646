"""The transfer by packages: before single requests, what is planned comes by packages of dumps and on demand.

Packages of a dump are fetched where a quarter of their octets is wanted, a tenth for who prefers dumps. What is left
and smaller than 1 MiB comes on demand where the source offers that, from a dozen resources on: it is asked for in
batches by POST, two under way at a time. Whatever a package does not bring, or brings otherwise than listed, stays in
the work for single requests, in the same run (`transfer/resources`). A package that fails costs a notice, and nothing
else.
"""

from collections.abc import Iterator
from contextlib import closing
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import PackageLimits
from headwater.packages.package import read_package
from headwater.quantities import human_octets
from headwater.spec.extensions import DumpOffer
from headwater.spec.kinds import RULES, Kind
from headwater.spec.records import Entry
from headwater.sync.connection import Scope
from headwater.sync.lists.archives import read_whole
from headwater.sync.lists.position import NEVER
from headwater.sync.packages.dump_documents import MANIFESTS, PREFIX, fetch_package, remove_package
from headwater.sync.packages.package_content import MemberBlock, MemberPlacing, PackageContent, Warn
from headwater.sync.reports import SetReport, TransferWay
from headwater.sync.source_times import micros
from headwater.sync.state import CHANGE_DUMP, CHANGE_LIST, RESOURCE_DUMP, RESOURCE_LIST, Offer, SetRow
from headwater.sync.transfer.results_and_retries import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import ELIGIBLE, LEAST_RESOURCES, RunContext
from headwater.transport.fetch import Fetch

# the rules, over values

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


class Demand(NamedTuple):
    """Resources that are wanted, and their octets together."""

    resources: int
    octets: int


class WayDecision(NamedTuple):
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
    if length is None or prefer is Prefer.ONLY_DUMPS:
        return WayDecision(taken=True, why=said)
    said += f", {human_octets(wanted.octets)} of {human_octets(length)}"
    is_preferred = prefer is Prefer.DUMPS
    least = LEAST_PREFERRED_SHARE if is_preferred else LEAST_SHARE
    is_enough = wanted.octets + wanted.resources * _HEADER_OCTETS >= least * length
    if is_enough or (is_preferred and length <= LARGE_OCTETS):
        return WayDecision(taken=True, why=said)
    return WayDecision(taken=False, why=f"{said}: less than a {'tenth' if is_preferred else 'quarter'}")


def why_on_demand(wanted: Demand, prefer: Prefer) -> str | None:
    """Why resources that are not large are asked for on demand, rather than one by one; None: they are not."""
    if wanted.resources < (1 if prefer is Prefer.DUMPS else LEAST_RESOURCES):
        return None
    return f"{wanted.resources:,} resource{' that is' if wanted.resources == 1 else 's that are'} not large"


# the transfer

ON_DEMAND, SINGLE = "on demand", "single requests"
_DUMPS = {Kind.CHANGE_DUMP: CHANGE_DUMP, Kind.RESOURCE_DUMP: RESOURCE_DUMP}
"""Their capabilities, in the order in which they are looked at: what changes have brought is in few packages of a
Change Dump."""

_MOST_FAILED, _MOST_BROKEN = 3, 2
"""So many packages of a dump, in a row, and answers on demand may fail."""

_BATCH_RESOURCES, _BATCH_OCTETS = 2_000, 16 << 20
"""Of one request on demand, where the limits allow it: enough that a request costs little beside them, so few that
requests overlap and a failure costs little."""

_MOST_UNDER_WAY = 2
"""Answers that are asked for at a time: while one is read the next is made, sent and buffered."""

_ROOM_OCTETS = 64 << 20
"""What an answer may have beyond twice the listed octets: names, manifest, and resources that grew."""

_OF_CHANGES = " AND changed_at IS NOT NULL"
_OF_BASELINES = " AND changed_at IS NULL"
_SMALL = " AND hash IS NOT NULL AND coalesce(length, 0) < ?"
_WANTED = f"SELECT count(*), sum(coalesce(length, {USUAL_OCTETS})) FROM temp.work WHERE {ELIGIBLE}"  # noqa: S608
_ANY_WANTED = f"SELECT 1 FROM temp.work WHERE {ELIGIBLE}"  # noqa: S608  our own names
_NEXT = f"SELECT n, loc, length, hash, tries FROM temp.work WHERE n > ? AND {ELIGIBLE}{_SMALL} ORDER BY n LIMIT ?"  # noqa: S608


class _ChosenPackages(NamedTuple):
    kind: Kind
    why: str
    packages: list[Entry]


class PackageTransfer:
    """Brings what packages can bring of `temp.work` of one set. Raises StoreFault when the copy cannot be written."""

    def __init__(
        self, context: RunContext, row: SetRow, offer: Offer, counts: SetReport, scope: Scope, warn: Warn
    ) -> None:
        self._context = context
        self._set = row
        self._offer = offer
        self._counts = counts
        self._scope = scope
        self._warn = warn
        self._prefer = Prefer(context.options.prefer)
        self._failed = 0
        """How many packages have failed, one after the other."""

        self._lost = False
        """Whether a package could not be taken whole: a package before it may hold earlier states."""

    def preview(self) -> None:
        """Report the ways that would be gone as the work now is: the first of them decides for a preview."""
        if (chosen := next(filter(None, map(self._chosen, _DUMPS)), None)) is not None:
            way = self._counts.way(RULES[chosen.kind].title, chosen.why)
            way.packages, way.octets = len(chosen.packages), sum(package.length or 0 for package in chosen.packages)
        elif (why := self._why_on_demand()) is not None:
            self._counts.way(ON_DEMAND, why)

    def run(self, at: str | None = None) -> None:
        """Go the ways that pay, and report what comes of each. `at`: resources are wanted as they were at that moment.

        Then they are asked for on demand, from a source that offers it, and by no dump.
        """
        self._results = ResultLog(self._context, self._set, self._counts)
        self._placing = MemberPlacing(self._context, self._results)
        for kind in _DUMPS if at is None else ():
            if (chosen := self._chosen(kind)) is not None:
                way = self._counts.way(RULES[kind].title, chosen.why)
                self._place(way, self._blocks_of_dump(chosen, way))
        if (why := self._why_on_demand()) is not None and self._offer.on_demand is not None:
            way = self._counts.way(ON_DEMAND, why)
            self._place(way, self._blocks_on_demand(self._offer.on_demand, at, way))

    def _place(self, way: TransferWay, blocks: Iterator[MemberBlock]) -> None:
        before = self._placing.placed_count
        self._failed = 0
        try:
            self._placing.place(blocks, self._wanted().resources)
        finally:
            self._results.flush()
            way.resources += self._placing.placed_count - before

    def _note_failure(self, way: TransferWay, uri: str, fault: SourceFault) -> None:
        self._failed += 1
        self._lost = True
        way.fault = way.fault or str(fault)
        self._warn(fault.rule or fault.code, fault.what, fault.where or uri)

    # the plan, as the work now is

    def _wanted(self, also: str = "", *values: int) -> Demand:
        with self._context.database.write() as t:
            resources, octets = t.one(_WANTED + also, values) or (0, 0)
        return Demand(resources, octets or 0)

    def _are_wanted(self, also: str = "", *, count: int = 1) -> bool:
        with self._context.database.write() as t:
            return t.one(f"{_ANY_WANTED}{also} LIMIT 1 OFFSET ?", (count - 1,)) is not None

    def _is_list(self, kind: Kind) -> bool:
        """Whether a dump of this kind stands for a list that the source does not offer (DST-D)."""
        listed = RESOURCE_LIST if kind is Kind.RESOURCE_DUMP else CHANGE_LIST
        return listed not in self._offer.documents and _DUMPS[kind] in self._offer.documents

    def _preference(self, kind: Kind) -> Prefer:
        """What only a dump lists may be in its packages alone: then they are taken, unless the user says other."""
        of_kind = _OF_CHANGES if kind is Kind.CHANGE_DUMP else _OF_BASELINES
        return Prefer.ONLY_DUMPS if self._is_list(kind) and self._are_wanted(of_kind) else self._prefer

    def _chosen(self, kind: Kind) -> _ChosenPackages | None:
        """The packages of the dump of this kind that are worth their octets.

        Of a Resource Dump all or none: what is wanted lies in all of them alike, as far as can be known before. Of a
        Change Dump those whose interval holds changes that are wanted (DST-D); the newest first, whose states count.
        """
        uri, preference = self._offer.documents.get(_DUMPS[kind]), self._preference(kind)
        least = LEAST_RESOURCES if preference is Prefer.AUTO else 1
        if uri is None or not self._are_wanted(_OF_CHANGES if kind is Kind.CHANGE_DUMP else "", count=least):
            return None
        try:
            packages, _ = read_whole(self._context.documents, uri, _DUMPS[kind], self._scope.objection)
        except SourceFault as fault:
            self._warn(fault.rule or fault.code, f"Headwater skips a dump: {fault.what}", fault.where or uri)
            return None
        lengths = [package.length for package in packages if package.length is not None]
        groups: list[tuple[list[Entry], int | None, Demand]] = []
        if kind is Kind.RESOURCE_DUMP and packages:
            ordered = packages[::-1] if self._is_list(kind) else packages  # the later one counts (DST-B3)
            groups = [(ordered, sum(lengths) if len(lengths) == len(packages) else None, self._wanted())]
        for package in reversed(packages) if kind is Kind.CHANGE_DUMP else ():
            interval = micros(package.from_) or 0, NEVER if package.until is None else micros(package.until) or 0
            groups.append(([package], package.length, self._wanted(" AND changed_at BETWEEN ? AND ?", *interval)))
        choices = [(some, choose_packages(length, wanted, preference)) for some, length, wanted in groups]
        taken = [(some, choice.why) for some, choice in choices if choice is not None and choice.taken]
        if taken:
            return _ChosenPackages(kind, taken[0][1], [package for some, _ in taken for package in some])
        if missed := [choice.why for _, choice in choices if choice is not None]:
            self._counts.way(RULES[kind].title, missed[-1], taken=False)
        return None

    def _why_on_demand(self) -> str | None:
        offer = self._offer.on_demand
        if offer is None:
            return None
        return why_on_demand(self._wanted(_SMALL, min(LARGE_OCTETS, offer.limits.octets)), self._prefer)

    # packages of dumps

    def _blocks_of_dump(self, chosen: _ChosenPackages, way: TransferWay) -> Iterator[MemberBlock]:
        """What is wanted of each package; after some in a row that fail no more are fetched."""

        def came(octets: int) -> None:
            way.octets += octets
            way.requests += 1

        for listed in chosen.packages:
            failed, note = self._failed, partial(self._note_failure, way, listed.loc)
            self._results.flush()
            if failed >= _MOST_FAILED or not self._are_wanted():
                return
            way.packages += 1
            path = ""
            try:
                path = fetch_package(self._context.transport, listed, self._context.temp, self._scope.objection, came)
                with open(path, "rb", buffering=1 << 20) as file:
                    package = read_package(file, kind=MANIFESTS[chosen.kind], base_uri=listed.loc)
                    content = PackageContent(
                        package, listed, self._scope, self._warn, note,
                        is_list=lambda: self._is_list(chosen.kind) and not self._lost,
                    )  # fmt: skip
                    yield from content.blocks(self._results, self._placing)
            except SourceFault as fault:
                note(fault)
            finally:
                remove_package(path)
            if self._failed == failed:
                self._failed = 0

    # packages on demand

    def _blocks_on_demand(self, offer: DumpOffer, at: str | None, way: TransferWay) -> Iterator[MemberBlock]:
        """What is wanted of each answer; after some in a row that fail no more are asked for."""
        failed = partial(self._note_failure, way, offer.href)
        if objection := self._scope.objection(offer.href):
            failed(SourceFault(f"not requested: {objection}", code="HW-PKG-14", where=offer.href, rule="DST-S12"))
            return
        self._answered = 0
        with closing(self._context.transport.many(self._batches(offer, at, way))) as answers:
            for fetched in answers:
                path = Path(fetched.fetch.into or "")
                self._answered += 1
                way.octets += fetched.octets
                try:
                    if fetched.failure is not None or fetched.status != 200:
                        said = f"HTTP status {fetched.status}" if fetched.failure is None else fetched.failure.text
                        what = f"no package on demand: {said}"
                        raise SourceFault(what, code="HW-PKG-14", where=offer.href, rule="DST-F1")
                    limits = PackageLimits(octets=fetched.fetch.max_octets)
                    with path.open("rb", buffering=1 << 20) as file:
                        package = read_package(file, limits, kind=Kind.RESOURCE_DUMP_MANIFEST, base_uri=offer.href)
                        content = PackageContent(package, None, self._scope, self._warn, failed)
                        yield from content.blocks(self._results, self._placing)
                except SourceFault as fault:
                    failed(fault)
                finally:
                    path.unlink(missing_ok=True)
                if self._failed >= _MOST_BROKEN:
                    return

    def _batches(self, offer: DumpOffer, at: str | None, way: TransferWay) -> Iterator[Fetch | None]:
        """The request for each batch; None as long as enough are under way."""
        limits, options, last_n = offer.limits, self._context.options, 0
        asked: dict[str, object] = {} if at is None else {"at": at}
        if options.bwlimit is None and self._context.transport.guard.source_is_near:
            asked["deflate"] = False  # it would cost both sides more than it saves
        while True:
            if way.requests - self._answered >= min(limits.requests, _MOST_UNDER_WAY, options.concurrency):
                yield None
                continue
            uris: list[str] = []
            count = octets = room = 0
            with self._context.database.write() as t:
                most = min(LARGE_OCTETS, limits.octets), min(limits.resources, _BATCH_RESOURCES)
                for n, loc, length, hash_, tries in t.rows(_NEXT, (last_n, *most)):
                    octets += length or 0
                    if count and octets > min(limits.octets, _BATCH_OCTETS):
                        break
                    last_n, count, room = n, count + 1, room + (LARGE_OCTETS if length is None else length)
                    if strongest_of(hash_) is not None and (tries is None or self._scope.objection(loc) is None):
                        uris.append(loc)
            if not count:
                return
            if uris:
                path = f"{self._context.temp}/{PREFIX}{way.requests}.zip"
                way.requests += 1
                way.packages += 1
                yield Fetch(
                    offer.href,
                    (("Content-Type", "application/json"), ("Accept", "application/zip")),
                    method="POST",
                    body=msgspec.json.encode({"uris": uris, **asked}),
                    into=path,
                    max_octets=2 * room + _ROOM_OCTETS,
                    objection=self._scope.objection,
                )
