"""The transfer by packages: before single requests, what is planned comes by packages of dumps and on demand.

Whatever a package does not bring, or brings otherwise than listed, stays in the work for single requests, in the same
run (`transfer/resources`). A package that fails costs a notice, and nothing else.
"""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import NeedsDirectory
from headwater.packages.limits import PackageLimits
from headwater.processes.pool import processors
from headwater.progress import Done, Progress
from headwater.spec.kinds import Kind
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree, printable_path
from headwater.sync.copy.placing_process import PlacingProcess
from headwater.sync.filters import Scope
from headwater.sync.packages.dump_package import DumpPackage, NeedsWholePackage, NothingWanted
from headwater.sync.packages.manifests import StagedManifest, Warn
from headwater.sync.packages.members import read_file, read_stream
from headwater.sync.packages.on_demand import BatchBounds, OnDemand
from headwater.sync.packages.package_download import PackageDownload, PackageUnavailable
from headwater.sync.packages.placing import MemberPlacing, UnsettledPackage, VerifiedWork
from headwater.sync.packages.transfer_plan import DUMPS, ChosenPackage, TransferPlan, way_of
from headwater.sync.reports import TransferWay
from headwater.sync.run_context import RunContext
from headwater.sync.state.set_rows import Offer, SetRow
from headwater.sync.transfer.adopt_existing import adopt_existing
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, PlanCounts

ON_DEMAND, SINGLE = "on demand", "single requests"

PARALLEL_FROM = 3_000
"""For fewer resources, a process that places them costs more than it saves."""

_CHUNK = 1_000
_PACKAGE_FILE = "package.zip"
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
        self._process: PlacingProcess[VerifiedWork] | None = None
        self._before = UnsettledPackage()
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
            if self._process is not None:
                self._process.close()
            results.flush()
        return [*ways, *self._plan.not_taken]

    def _placing_process(self, tree: FileTree) -> PlacingProcess[VerifiedWork] | None:
        """A process to place small files, where there are many of them, and where it does no harm."""
        lock = self._context.lock
        if (
            lock is None
            or tree.keeps_backup
            or self._context.options.max_total is not None
            or processors() < 2
            or not self._plan.are_wanted(PARALLEL_FROM)
        ):
            return None
        return PlacingProcess(tree, self._context.temp, lock)

    def _placing(self, tree: FileTree, results: ResultLog) -> MemberPlacing:
        """Where members get their places; the process for that is started when the first way is taken."""
        context = self._context
        if self._process is None:
            self._process = self._placing_process(tree)
        return MemberPlacing(tree, results, self._counts, context.each, self._process, largest=context.options.largest)

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
        try:
            for chosen in chain.from_iterable(map(self._plan.packages, DUMPS)):
                if self._failed >= _MOST_FAILED or not self._plan.is_any_wanted():
                    break
                name = way_of(chosen.kind)
                way = ways.setdefault(name, TransferWay(way=name, why=chosen.why, taken=True))
                self._take_one(chosen, tree, results, way)
        finally:
            self._before.settle()
        return list(ways.values())

    def _take_one(self, chosen: ChosenPackage, tree: FileTree, results: ResultLog, way: TransferWay) -> None:
        """Take one package. The last members of one of a Resource Dump, whose packages have nothing in common, get
        their places while the manifest of the next one is read."""
        placing = self._placing(tree, results)
        way.packages += 1
        try:
            reading = self._take(chosen, tree, results, placing, way)
        except SourceFault as fault:
            self._note_fault(chosen, way, fault)
            way.resources += placing.counts.placed
            return
        self._before.settle()
        self._before.keep(placing, partial(self._settle, chosen, way, results, placing, reading))
        if chosen.kind is not Kind.RESOURCE_DUMP or self._plan.is_list(chosen.kind):
            self._before.settle()

    def _settle(
        self,
        chosen: ChosenPackage,
        way: TransferWay,
        results: ResultLog,
        placing: MemberPlacing,
        reading: DumpPackage | None,
    ) -> None:
        """What was given of a package has its place, if it is what is listed: record it, and tell what is wrong."""
        results.flush()
        way.resources += placing.counts.placed
        try:
            placing.check()
        except SourceFault as fault:
            self._note_fault(chosen, way, fault)
            return
        self._failed = 0
        if reading is not None:
            self._tell_missing(chosen, reading, placing)

    def _note_fault(self, chosen: ChosenPackage, way: TransferWay, fault: SourceFault) -> None:
        self._failed += 1
        self._lost = True
        way.fault = way.fault or str(fault)
        self._warn(fault.rule or fault.code, fault.what, fault.where or chosen.package.uri)

    def _take(
        self, chosen: ChosenPackage, tree: FileTree, results: ResultLog, placing: MemberPlacing, way: TransferWay
    ) -> DumpPackage | None:
        """Take one package: while it arrives, or from a file where that cannot be. None: nothing of it is wanted."""
        download = PackageDownload(self._context.transport, chosen.package, self._scope.objection)
        reading = self._reading(chosen, results, placing, whole=False)
        is_given = False
        try:
            with contextlib.closing(download.chunks()) as chunks:
                read_stream(chunks, reading, PackageLimits())
            reading.finish()
            is_given = True
            return reading
        except NothingWanted:
            return None
        except (NeedsDirectory, NeedsWholePackage):
            pass
        except SourceFault as fault:
            reading.flush()  # members that came whole verify by themselves
            broke_off = isinstance(fault, PackageUnavailable) and fault.passing
            if not (broke_off and self._plan.is_list(chosen.kind)):
                raise  # single requests bring the rest, which may be in the package alone else
        finally:
            reading.discard()
            if not is_given:
                self._before.settle()
                placing.settle()
                results.flush()
            way.octets += download.octets
            way.requests += download.requests
        return self._take_from_file(chosen, results, placing, way)

    def _take_from_file(
        self, chosen: ChosenPackage, results: ResultLog, placing: MemberPlacing, way: TransferWay
    ) -> DumpPackage | None:
        path = f"{self._context.temp}/{_PACKAGE_FILE}"
        download = PackageDownload(self._context.transport, chosen.package, self._scope.objection)
        reading = self._reading(chosen, results, placing, whole=True)
        try:
            download.into(path)
            read_file(path, reading, PackageLimits())
            reading.finish()
            placing.settle()
            placing.check()
            if reading.unverifiable and chosen.package.digest is None:
                said = f"neither {reading.unverifiable:,} resources nor their package have a hash: its CRCs verify them"
                self._warn("DST-P1", said, chosen.package.uri)
            return reading
        except NothingWanted:
            return None
        finally:
            reading.discard()
            with contextlib.suppress(OSError):
                Path(path).unlink()
            placing.settle()
            results.flush()
            way.octets += download.octets
            way.requests += download.requests

    def _reading(
        self, chosen: ChosenPackage, results: ResultLog, placing: MemberPlacing, *, whole: bool
    ) -> DumpPackage:
        is_worth = partial(self._plan.is_worth, chosen.kind)
        manifest = StagedManifest(
            self._context.database, chosen.package, chosen.kind, self._scope, self._warn, is_worth
        )
        manifest.is_list = whole and self._plan.is_list(chosen.kind) and not self._lost
        return DumpPackage(manifest, placing, results, self._scope.objection, self._before, whole=whole)

    def _tell_missing(self, chosen: ChosenPackage, reading: DumpPackage, placing: MemberPlacing) -> None:
        """What the manifest names and the package has not, and the other way round (DST-P4)."""
        declared, found = reading.declared + reading.linked, reading.members
        if found < declared:
            said = f"{declared - found:,} members that its manifest names are missing from a package"
            self._warn("DST-P4", said, chosen.package.uri)
        elif found > declared:
            said = f"{found - declared:,} members of a package are in no entry of its manifest: they are ignored"
            self._warn("DST-P4", said, chosen.package.uri)

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
        assert self._plan.offer.on_demand is not None
        placing = self._placing(tree, results)
        demand = OnDemand(
            self._context.transport, self._plan.offer.on_demand, results, placing, tree, self._scope.objection
        )
        try:
            demand.run(bounds)
            placing.settle()
            placing.check()
        except SourceFault as fault:
            way.fault = str(fault)
            self._warn(fault.rule or fault.code, fault.what, fault.where or self._plan.offer.on_demand.href)
        finally:
            placing.settle()
            way.resources, way.octets = placing.counts.placed, demand.octets
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
