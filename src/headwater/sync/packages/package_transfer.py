"""The transfer by packages: before single requests, what is planned comes by packages of dumps and on demand.

On demand, what is wanted and not large is asked for in batches by POST, several under way at a time. Whatever a package
does not bring, or brings otherwise than listed, stays in the work for single requests, in the same run
(`transfer/resources`). A package that fails costs a notice, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import PackageLimits
from headwater.packages.package import read_package
from headwater.progress import Progress
from headwater.spec.extensions import DumpOffer
from headwater.spec.kinds import Kind
from headwater.storage.database import Database
from headwater.storage.transaction import Row
from headwater.sync.connection import Scope
from headwater.sync.packages.package_content import MANIFESTS, PackageContent, Warn
from headwater.sync.packages.package_download import PackageDownload
from headwater.sync.packages.placing import MemberBlock, MemberPlacing
from headwater.sync.packages.transfer_plan import DUMPS, LARGE_OCTETS, BatchBounds, ChosenPackage, TransferPlan
from headwater.sync.reports import SetReport, TransferWay
from headwater.sync.run_context import RunContext
from headwater.sync.state import Offer, SetRow
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import ELIGIBLE
from headwater.transport.transport import Fetch, Fetched, Transport
from headwater.typed_decoding import from_json

ON_DEMAND, SINGLE = "on demand", "single requests"

_MOST_FAILED, _MOST_BROKEN = 3, 2
"""So many packages of a dump, in a row, and answers on demand may fail."""


class PackageTransfer:
    """Brings what packages can bring of `temp.work` of one set. Raises StoreFault when the copy cannot be written."""

    def __init__(
        self, context: RunContext, row: SetRow, offer: Offer, counts: SetReport, scope: Scope, warn: Warn
    ) -> None:
        self._context = context
        self._counts = counts
        self._scope = scope
        self._warn = warn
        self._plan = TransferPlan(context, row, offer, scope, warn)
        self._results = results = ResultLog(
            context.database,
            row,
            context.run_number,
            lambda done: context.listener(Progress("transferring", done, results.total, counts.octets)),
        )
        self._placing = MemberPlacing(context, results, counts)
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
            way = ways.setdefault(chosen.way, TransferWay(way=chosen.way, why=chosen.why, taken=True))
            way.packages += 1
            way.octets += chosen.package.length or 0
        if not ways and (demand := self._plan.demand()) is not None:
            ways[ON_DEMAND] = TransferWay(way=ON_DEMAND, why=demand[0], taken=True)
        return [*ways.values(), *self._plan.not_taken]

    def run(self, at: str | None = None) -> list[TransferWay]:
        """Go the ways that pay; returns what came of each. `at`: resources are wanted as they were at that moment.

        Then they are asked for on demand, from a source that offers it, and by no dump.
        """
        if not self._plan.is_worth_a_look():
            return []
        ways: list[TransferWay] = []
        try:
            asked = DUMPS if at is None else ()
            ways += [self._by_dump(packages) for one in asked if (packages := self._plan.packages(one))]
            ways += self._by_demand(at)
        finally:
            self._results.flush()
        return [*ways, *self._plan.not_taken]

    def _place(self, way: TransferWay, blocks: Iterator[MemberBlock]) -> None:
        """Place what a way brings, and count it."""
        before = self._placing.placed_count
        self._failed = 0
        try:
            self._placing.place(blocks, self._plan.wanted().resources)
        finally:
            self._results.flush()
            way.resources = self._placing.placed_count - before

    def _note_failure(self, way: TransferWay, uri: str, fault: SourceFault) -> None:
        """A package, or a part of it, could not be taken: it costs a notice."""
        self._failed += 1
        self._lost = True
        way.fault = way.fault or str(fault)
        self._warn(fault.rule or fault.code, fault.what, fault.where or uri)

    # packages of dumps

    def _by_dump(self, packages: list[ChosenPackage]) -> TransferWay:
        way = TransferWay(way=packages[0].way, why=packages[0].why, taken=True)
        self._place(way, self._blocks_of_dump(packages, way))
        return way

    def _blocks_of_dump(self, packages: list[ChosenPackage], way: TransferWay) -> Iterator[MemberBlock]:
        """What is wanted of each package; after some in a row that fail no more are fetched."""
        for chosen in packages:
            failed = self._failed
            self._results.flush()
            is_over = not self._plan.are_wanted() and not self._results.is_any_open
            if failed >= _MOST_FAILED or is_over:
                return
            try:
                yield from self._blocks_of_package(chosen, way)
            except SourceFault as fault:
                self._note_failure(way, chosen.package.uri, fault)
            if self._failed == failed:
                self._failed = 0

    def _blocks_of_package(self, chosen: ChosenPackage, way: TransferWay) -> Iterator[MemberBlock]:
        """Fetch one package; what is wanted of it. Raises SourceFault."""
        listed = chosen.package
        download = PackageDownload(self._context.transport, listed, self._context.temp, self._scope.objection)
        failed = partial(self._note_failure, way, listed.uri)
        way.packages += 1
        try:
            download.fetch()
            with open(download.path, "rb", buffering=1 << 20) as file:
                package = read_package(file, kind=MANIFESTS[chosen.kind], base_uri=listed.uri)
                content = PackageContent(
                    package, listed, self._scope, self._warn, failed,
                    is_list=lambda: self._plan.is_list(chosen.kind) and not self._lost,
                )  # fmt: skip
                yield from content.blocks(self._results, self._placing)
            if content.unverifiable and listed.digest is None:
                said = f"neither {content.unverifiable:,} resources nor their package have a hash: its CRCs verify them"
                self._warn("DST-P1", said, listed.uri)
        finally:
            download.remove()
            way.octets += download.octets
            way.requests += download.requests

    # on demand

    def _by_demand(self, at: str | None) -> list[TransferWay]:
        demand, offer = self._plan.demand(), self._plan.offer.on_demand
        if demand is None or offer is None:
            return []
        why, bounds = demand
        way = TransferWay(way=ON_DEMAND, why=why, taken=True)
        self._place(way, self._blocks_on_demand(offer, msgspec.structs.replace(bounds, at=at), way))
        return [way]

    def _blocks_on_demand(self, offer: DumpOffer, bounds: BatchBounds, way: TransferWay) -> Iterator[MemberBlock]:
        """What is wanted of each answer; after some in a row that fail no more are asked for."""
        context = self._context
        failed = partial(self._note_failure, way, offer.href)
        demand = _OnDemand(context.transport, context.database, offer, context.temp, self._scope.objection)
        with closing(demand.answers(bounds)) as answers:
            for answer in answers:
                way.packages, way.requests, way.octets = demand.requests, demand.requests, demand.octets
                try:
                    if isinstance(answer, SourceFault):
                        raise answer
                    path, limits = answer
                    with path.open("rb", buffering=1 << 20) as file:
                        package = read_package(file, limits, kind=Kind.RESOURCE_DUMP_MANIFEST, base_uri=offer.href)
                        content = PackageContent(package, None, self._scope, self._warn, failed)
                        yield from content.blocks(self._results, self._placing)
                except SourceFault as fault:
                    failed(fault)
                if self._failed >= _MOST_BROKEN:
                    return


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


# packages on demand

_ROOM_OCTETS = 64 << 20
"""What an answer may have beyond twice the listed octets: names, manifest, and resources that grew."""

_NEXT = (
    f"SELECT n, loc, length, hash, tries FROM temp.work WHERE n > ? AND {ELIGIBLE} AND hash IS NOT NULL"  # noqa: S608
    " AND coalesce(length, 0) < ? ORDER BY n LIMIT ?"
)


class _Refusal(msgspec.Struct):
    """What a refused request says of the limits."""

    limits: dict[str, int] = {}


class _OnDemand:
    """Asks for all work that may come on demand."""

    def __init__(
        self,
        transport: Transport,
        database: Database,
        offer: DumpOffer,
        temp: str,
        objection: Callable[[str], str | None],
    ) -> None:
        self._transport = transport
        self._database = database
        self._offer = offer
        self._temp = temp
        self._objection = objection
        self._last_n = 0
        self._under_way: set[Path] = set()
        self.requests = self.octets = 0

    def answers(self, bounds: BatchBounds) -> Generator[tuple[Path, PackageLimits] | SourceFault, None, None]:
        """Ask for everything; each answer as a file, which is removed afterwards, or why there is none."""
        if objection := self._objection(self._offer.href):
            what = f"not requested: {objection}"
            yield SourceFault(what, code="HW-PKG-14", where=self._offer.href, rule="DST-S12")
            return
        answers = self._transport.many(self._fetches(bounds))
        try:
            for fetched in answers:
                path = Path(fetched.fetch.into or "")
                self._under_way.discard(path)
                self.octets += fetched.octets
                try:
                    yield self._refusal(fetched) or (path, PackageLimits(octets=fetched.fetch.max_octets))
                finally:
                    path.unlink(missing_ok=True)
        finally:
            answers.close()
            for path in self._under_way:
                path.unlink(missing_ok=True)

    def _fetches(self, bounds: BatchBounds) -> Iterator[Fetch | None]:
        """The request for each batch; None as long as enough are under way."""
        while True:
            if len(self._under_way) >= bounds.under_way:
                yield None
            elif (fetch := self._next(bounds)) is not None:
                self.requests += 1
                yield fetch
            else:
                return

    def _next(self, bounds: BatchBounds) -> Fetch | None:
        """The request for the next batch; None: there is nothing more to ask for."""
        uris: list[str] = []
        while not uris:
            rows = self._rows(bounds)
            if not rows:
                return None
            self._last_n = rows[-1][0]
            uris = [
                loc
                for _, loc, _, hash_, tries in rows
                if strongest_of(hash_) is not None and (tries is None or self._objection(loc) is None)
            ]
        octets = sum(LARGE_OCTETS if length is None else length for _, _, length, *_ in rows)
        asked: dict[str, object] = {"uris": uris}
        if not bounds.deflate:
            asked["deflate"] = False
        if bounds.at is not None:
            asked["at"] = bounds.at
        path = Path(self._temp, f"demand-{self.requests}.zip")
        self._under_way.add(path)
        return Fetch(
            self._offer.href,
            (("Content-Type", "application/json"), ("Accept", "application/zip")),
            method="POST",
            body=msgspec.json.encode(asked),
            into=str(path),
            max_octets=2 * octets + _ROOM_OCTETS,
            objection=self._objection,
        )

    def _rows(self, bounds: BatchBounds) -> list[Row]:
        rows: list[Row] = []
        octets = 0
        with self._database.write() as t:
            for row in t.rows(_NEXT, (self._last_n, bounds.large_octets, bounds.resources)):
                octets += row[2] or 0
                if rows and octets > bounds.octets:
                    break
                rows.append(row)
        return rows

    def _refusal(self, fetched: Fetched) -> SourceFault | None:
        """Why an answer is none; None: it is one."""
        if fetched.failure is not None:
            return self._refused(fetched.failure.text)
        if fetched.status == 200:
            return None
        limits = _Refusal()
        with suppress(msgspec.MsgspecError):
            limits = from_json(fetched.body, _Refusal)
        said = f"; its limits are {limits.limits}" if limits.limits else ""
        return self._refused(f"HTTP status {fetched.status}{said}")

    def _refused(self, reason: str) -> SourceFault:
        return SourceFault(f"no package on demand: {reason}", code="HW-PKG-14", where=self._offer.href, rule="DST-F1")
