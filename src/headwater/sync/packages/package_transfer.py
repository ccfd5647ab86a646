"""The transfer by packages: before single requests, what is planned comes by packages of dumps and on demand.

Whatever a package does not bring, or brings otherwise than listed, stays in the work for single requests, in the same
run (`transfer/resources`). A package that fails costs a notice, and nothing else.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.packages.limits import PackageLimits
from headwater.packages.package import read_package
from headwater.progress import Done, Progress
from headwater.spec.kinds import Kind
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree, printable_path
from headwater.sync.filters import Scope
from headwater.sync.packages.on_demand import BatchBounds, OnDemand
from headwater.sync.packages.package_content import MANIFESTS, PackageContent, Warn
from headwater.sync.packages.package_download import PackageDownload
from headwater.sync.packages.placing import MemberPlacing
from headwater.sync.packages.transfer_plan import DUMPS, ChosenPackage, TransferPlan, way_of
from headwater.sync.reports import TransferWay
from headwater.sync.run_context import RunContext
from headwater.sync.state.set_rows import Offer, SetRow
from headwater.sync.transfer.adopt_existing import adopt_existing
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, PlanCounts

ON_DEMAND, SINGLE = "on demand", "single requests"

_CHUNK = 1_000
_MOST_FAILED = 3

_NEXT = (
    f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND held IS NULL AND {ELIGIBLE} ORDER BY n LIMIT {_CHUNK}"  # noqa: S608
)


class PackageTransfer:
    """Brings what packages can bring of `temp.work` of one set. Raises StoreFault when the copy cannot be written."""

    def __init__(
        self, context: RunContext, row: SetRow, offer: Offer, counts: PlanCounts, scope: Scope, warn: Warn
    ) -> None:
        self._context = context
        self._set = row
        self._counts = counts
        self._scope = scope
        self._warn = warn
        self._plan = TransferPlan(context, row, offer, scope, warn)
        self._failed = 0
        """How many packages have failed, one after the other."""

        self._lost = False
        """Whether a package could not be taken whole: a package before it may hold earlier states."""

    def preview(self) -> list[TransferWay]:
        """What would be taken, and why, for a dry run."""
        if not self._plan.is_worth_a_look():
            return []
        ways: dict[str, TransferWay] = {}
        for chosen in next(filter(None, map(self._plan.packages, DUMPS)), []):
            way = ways.setdefault(way_of(chosen.kind), TransferWay(way=way_of(chosen.kind), why=chosen.why, taken=True))
            way.packages += 1
            way.octets += chosen.package.length or 0
        if not ways and (demand := self._plan.demand()) is not None:
            ways[ON_DEMAND] = TransferWay(way=ON_DEMAND, why=demand[0].why, taken=demand[0].taken)
        return [*ways.values(), *self._plan.not_taken]

    def run(self, at: str | None = None) -> list[TransferWay]:
        """Go the ways that pay; returns what came of each. `at`: resources are wanted as they were at that moment.

        Then they are asked for on demand, from a source that offers it, and by no dump.
        """
        tree = self._context.tree
        assert tree is not None
        if not self._plan.is_worth_a_look():
            return []
        results = ResultLog(
            self._context.database,
            self._set,
            self._context.run_number,
            lambda done: self._context.listener(Progress("transferring", done, results.total, self._counts.octets)),
        )
        try:
            if self._context.adopt:
                self._adopt(tree, results)
            ways = self._by_dumps(tree, results) if at is None else []
            ways += self._by_demand(tree, results, at)
        finally:
            results.flush()
        return [*ways, *self._plan.not_taken]

    def _adopt(self, tree: FileTree, results: ResultLog) -> None:
        """What is there already is not fetched by a package either."""
        last = 0

        def select(t: Transaction) -> list[Row]:
            return list(t.rows(_NEXT, (last,)))

        while works := results.take(select):
            last = works[-1].n
            for work in works:
                found = adopt_existing(tree, work)
                if found is None:
                    results.left(work)
                    continue
                self._counts.adopted += 1
                self._context.each(Done("adopted", work.uri, printable_path(work.path)))
                results.settled([(work, found.size, found.mtime_ns, found.digest)])
        results.flush()

    # packages of dumps

    def _by_dumps(self, tree: FileTree, results: ResultLog) -> list[TransferWay]:
        ways: dict[str, TransferWay] = {}
        for chosen in chain.from_iterable(map(self._plan.packages, DUMPS)):
            if self._failed >= _MOST_FAILED or not self._plan.is_any_wanted():
                break
            name = way_of(chosen.kind)
            way = ways.setdefault(name, TransferWay(way=name, why=chosen.why, taken=True))
            way.packages += 1
            try:
                self._take_package(chosen, tree, results, way)
                self._failed = 0
            except SourceFault as fault:
                self._failed += 1
                self._lost = True
                way.fault = way.fault or str(fault)
                self._warn(fault.rule or fault.code, fault.what, fault.where or chosen.package.uri)
        return list(ways.values())

    def _take_package(self, chosen: ChosenPackage, tree: FileTree, results: ResultLog, way: TransferWay) -> None:
        """Fetch one package and take what is wanted of it. Raises SourceFault."""
        listed, objection = chosen.package, self._scope.objection
        download = PackageDownload(self._context.transport, listed, self._context.temp, objection)
        placing = MemberPlacing(self._context, tree, results, self._counts)
        try:
            download.fetch()
            with open(download.path, "rb", buffering=1 << 20) as file:
                package = read_package(file, kind=MANIFESTS[chosen.kind], base_uri=listed.uri)
                is_list = self._plan.is_list(chosen.kind) and not self._lost
                content = PackageContent(
                    self._context.database, package, listed, self._scope, self._warn, is_list=is_list
                )
                content.place(placing, results, objection)
            if content.unverifiable and listed.digest is None:
                said = f"neither {content.unverifiable:,} resources nor their package have a hash: its CRCs verify them"
                self._warn("DST-P1", said, listed.uri)
        finally:
            download.remove()
            results.flush()
            way.resources += placing.placed_count
            way.octets += download.octets
            way.requests += download.requests

    # on demand

    def _by_demand(self, tree: FileTree, results: ResultLog, at: str | None) -> list[TransferWay]:
        demand = self._plan.demand()
        if demand is None or self._plan.offer.on_demand is None:
            return []
        choice, bounds = demand
        way = TransferWay(way=ON_DEMAND, why=choice.why, taken=choice.taken)
        if choice.taken:
            self._ask(tree, results, way, msgspec.structs.replace(bounds, at=at))
        return [way]

    def _ask(self, tree: FileTree, results: ResultLog, way: TransferWay, bounds: BatchBounds) -> None:
        offer, context = self._plan.offer.on_demand, self._context
        assert offer is not None
        placing = MemberPlacing(self._context, tree, results, self._counts)

        def take(path: Path, limits: PackageLimits) -> None:
            with path.open("rb", buffering=1 << 20) as file:
                package = read_package(file, limits, kind=Kind.RESOURCE_DUMP_MANIFEST, base_uri=offer.href)
                content = PackageContent(context.database, package, None, self._scope, self._warn)
                content.place(placing, results, self._scope.objection)

        demand = OnDemand(context.transport, context.database, offer, context.temp, take, self._scope.objection)
        try:
            demand.run(bounds)
        except SourceFault as fault:
            way.fault = str(fault)
            self._warn(fault.rule or fault.code, fault.what, fault.where or offer.href)
        finally:
            results.flush()
            way.resources, way.octets = placing.placed_count, demand.octets
            way.packages = way.requests = demand.requests


def merged_ways(ways: list[TransferWay], more: list[TransferWay]) -> list[TransferWay]:
    """What several transfers of one run came to: each way once, taken where one of them took it."""
    merged = {way.way: way for way in ways}
    for way in more:
        before = merged.setdefault(way.way, way)
        if before is way or not way.taken:
            continue
        if not before.taken:
            merged[way.way] = way
            continue
        for name in ("packages", "requests", "resources", "octets"):
            setattr(before, name, getattr(before, name) + getattr(way, name))
        before.fault = before.fault or way.fault
    return list(merged.values())
