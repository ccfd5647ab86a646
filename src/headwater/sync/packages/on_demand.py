"""Packages on demand: what is wanted and not large is asked for in batches by POST, several under way at a time.

What an answer brings is known by its manifest and verified by what is listed (DST-P5). What it does not bring, or
brings otherwise, is left to single requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import PackageLimits
from headwater.spec.extensions import DumpOffer
from headwater.storage.database import Database
from headwater.storage.transaction import Row
from headwater.sync.packages.package_choice import LARGE_OCTETS
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import ELIGIBLE
from headwater.transport.transport import Fetch, Fetched, Transport
from headwater.typed_decoding import from_json

MOST_UNDER_WAY = 2
"""Answers that are asked for at a time: while one is read the next is made, sent and buffered. A source that makes more
of them at once only gives the first one more slowly; measured with 4, the reader waited for a whole second at first."""

_ROOM_OCTETS = 64 << 20
"""What an answer may have beyond twice the listed octets: names, manifest, and resources that grew."""

_NEXT = (
    f"SELECT n, loc, length, hash, tries FROM temp.work WHERE n > ? AND {ELIGIBLE} AND hash IS NOT NULL"  # noqa: S608
    " AND coalesce(length, 0) < ? ORDER BY n LIMIT ?"
)


class _Refusal(msgspec.Struct):
    """What a refused request says of the limits."""

    limits: dict[str, int] = {}


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


class OnDemand:
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
