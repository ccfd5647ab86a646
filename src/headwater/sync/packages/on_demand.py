"""Packages on demand: what is wanted and not large is asked for in batches by POST, several under way at a time.

The order of an answer's members is the source's, and its manifest comes last (docs/extensions.md): a member is known by
the digest that is listed of what was asked for, which verifies it as well (DST-P5). What an answer does not bring, or
brings otherwise, is left to single requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from headwater.errors import SourceFault
from headwater.packages.faults import BadPackage, NeedsDirectory
from headwater.packages.limits import PackageLimits
from headwater.packages.zip_stream import WholeMember
from headwater.spec.extensions import DumpOffer
from headwater.spec.hashes import Digest
from headwater.storage.sqlite.transaction import Row, Transaction
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.network.fetch import Fetch
from headwater.sync.network.transport import OpenedStream, StreamBroken, StreamedAnswer, Transport
from headwater.sync.packages.cost_model import LARGE_OCTETS
from headwater.sync.packages.large_member import LargeMember
from headwater.sync.packages.members import read_stream
from headwater.sync.packages.placing import MemberPlacing, digest_of, temporary_name
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE, Work
from headwater.typed_decoding import from_json

MOST_UNDER_WAY = 2
"""Answers that are asked for at a time: while one is read the next is made, sent and buffered. A source that makes more
of them at once only gives the first one more slowly; measured with 4, the reader waited for a whole second at first."""

_MOST_BROKEN = 2
_ROOM_OCTETS = 64 << 20
"""What an answer may have beyond twice the listed octets: names, manifest, and resources that grew."""


_NEXT = (
    f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND {ELIGIBLE} AND hash IS NOT NULL"  # noqa: S608
    " AND coalesce(length, 0) < ? ORDER BY n LIMIT ?"
)
_LENGTH = COLUMNS.index("length")


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


class _Batch:
    """What one request asks for: the work that waits, by the digests that are listed of it, and by the names that its
    members are expected to have: their addresses below `folder`."""

    def __init__(self, works: list[Work], folder: str) -> None:
        self._listed: dict[tuple[str, str], list[Work]] = {}
        self._named: dict[str, tuple[Work, Digest]] = {}
        self._waiting: set[int] = set()
        self.unusable: list[Work] = []
        self.uris: list[str] = []
        for work in works:
            wanted = strongest_of(work.hash)
            if wanted is None:
                self.unusable.append(work)
                continue
            self._listed.setdefault((wanted.algorithm, wanted.hex), []).append(work)
            self._waiting.add(work.n)
            self.uris.append(work.loc)
            if work.loc.startswith(folder):
                self._named[work.loc[len(folder) :]] = work, wanted
        self.octets = sum(LARGE_OCTETS if work.length is None else work.length for work in works)
        """Those that are listed; what lists no length is small, or is fetched by itself in the end."""

        self.algorithms = tuple({algorithm for algorithm, _ in self._listed})

    def take(self, digests: dict[str, str]) -> list[Work]:
        """The work that has one of these digests, which waits no longer."""
        found: list[Work] = []
        for algorithm, digest in digests.items():
            found += [work for work in self._listed.pop((algorithm, digest), ()) if work.n in self._waiting]
        self._waiting.difference_update([work.n for work in found])
        return found

    def take_named(self, name: str, octets: int) -> tuple[Work, Digest] | None:
        """The work whose member has this name, as far as name and length tell, and its digest; it waits no longer."""
        named = self._named.get(name)
        if named is None or named[0].n not in self._waiting or named[0].length not in (None, octets):
            return None
        self._waiting.remove(named[0].n)
        return named

    def rest(self) -> list[Work]:
        """The work that still waits, which does so no longer."""
        rest = [work for works in self._listed.values() for work in works if work.n in self._waiting]
        self._waiting.clear()
        return rest


class _Answer:
    """Takes the members of one answer (a `MemberConsumer`)."""

    def __init__(self, batch: _Batch, placing: MemberPlacing, tree: FileTree) -> None:
        self._batch = batch
        self._placing = placing
        self._tree = tree
        self._large: LargeMember | None = None

    def manifest(self, octets: bytes) -> None:
        """What is not in the answer is seen by what is left; why, single requests find out."""

    def manifest_end(self) -> None:
        """Nothing is to be done."""

    def small(self, members: Sequence[WholeMember]) -> None:
        """Whole members: place each for the work that has its name, else for all that have its digest.

        With a name only the guess is made: the digest verifies it all the same (DST-P5). Raises BadPackage.
        """
        for member in members:
            self._place(member)

    def _place(self, member: WholeMember) -> None:
        named = self._batch.take_named(member.name, member.body.plain_octets)
        if named is not None:
            self._placing.member(*named, member)
            return
        octets = member.octets
        digests = {algorithm: digest_of(octets, algorithm) for algorithm in self._batch.algorithms}
        for work in self._batch.take(digests):
            self._placing.octets(work, octets, digests=digests)

    def begin(self, name: str) -> bool:
        """A larger member."""
        most = min(self._batch.octets + _ROOM_OCTETS, self._placing.largest)
        self._large = LargeMember(self._tree, "demand-member", self._batch.algorithms, most)
        return True

    def block(self, octets: bytes) -> None:
        """The next octets of it."""
        assert self._large is not None
        self._large.write(octets)

    def end(self) -> None:
        """It is whole: place it for the first that has this digest; the others are left."""
        assert self._large is not None
        member, self._large = self._large, None
        digests = member.close()
        works = self._batch.take(digests)
        if not works:
            member.discard()
            return
        self._tree.rename(member.name, temporary_name(works[0]))
        self._placing.file(works[0], member.octets, digests)
        for work in works[1:]:
            self._placing.leave(work)

    def discard(self) -> None:
        """The answer broke off: leave nothing of a member that is not whole."""
        if self._large is not None:
            self._large.discard()
            self._large = None


class OnDemand:
    """Asks for all work that may come on demand, and places what comes."""

    def __init__(
        self,
        transport: Transport,
        offer: DumpOffer,
        results: ResultLog,
        placing: MemberPlacing,
        tree: FileTree,
        objection: Callable[[str], str | None],
    ) -> None:
        self._transport = transport
        self._offer = offer
        self._results = results
        self._placing = placing
        self._tree = tree
        self._objection = objection
        self._folder = offer.href.partition("?")[0].rpartition("/")[0] + "/"
        self._last_n = 0
        self._opened: deque[tuple[_Batch, OpenedStream]] = deque()
        self.requests = 0
        self.octets = 0

    def run(self, bounds: BatchBounds) -> None:
        """Ask until everything was asked for. Raises SourceFault, with the rest left, where the source fails at it."""
        if objection := self._objection(self._offer.href):
            raise SourceFault(f"not requested: {objection}", code="HW-PKG-14", where=self._offer.href, rule="DST-S12")
        broken: list[SourceFault] = []
        try:
            while self._open(bounds):
                batch, stream = self._opened.popleft()
                try:
                    self._read(batch, stream)
                except (StreamBroken, BadPackage, NeedsDirectory) as fault:
                    broken.append(fault)
                    if len(broken) >= _MOST_BROKEN:
                        raise
                finally:
                    stream.close()
                    self._leave(batch)
        finally:
            for batch, stream in self._opened:
                stream.close()
                self._leave(batch)
            self._opened.clear()
        if broken:
            raise broken[0]

    def _open(self, bounds: BatchBounds) -> bool:
        """Have as many requests under way as there may be; whether there is any."""
        while len(self._opened) < bounds.under_way:
            works = self._next(bounds)
            if not works:
                break
            batch = _Batch(works, self._folder)
            if batch.uris:
                self.requests += 1
                self._opened.append((batch, self._transport.open_stream(self._fetch(batch, bounds))))
            else:
                self._leave(batch)
        return bool(self._opened)

    def _next(self, bounds: BatchBounds) -> list[Work]:
        def select(t: Transaction) -> list[Row]:
            rows: list[Row] = []
            octets = 0
            for row in t.rows(_NEXT, (self._last_n, bounds.large_octets, bounds.resources)):
                octets += row[_LENGTH] or 0
                if rows and octets > bounds.octets:
                    break
                rows.append(row)
            return rows

        works = self._results.take(select)
        if works:
            self._last_n = works[-1].n
        return [work for work in works if not self._is_refused(work)]

    def _is_refused(self, work: Work) -> bool:
        """Whether the scope, which is another by now perhaps, refuses what an earlier run has failed to fetch."""
        refused = work.tries is not None and self._objection(work.loc) is not None
        if refused:
            self._results.left(work)
        return refused

    def _fetch(self, batch: _Batch, bounds: BatchBounds) -> Fetch:
        asked: dict[str, object] = {"uris": batch.uris}
        if not bounds.deflate:
            asked["deflate"] = False
        if bounds.at is not None:
            asked["at"] = bounds.at
        return Fetch(
            self._offer.href,
            (("Content-Type", "application/json"), ("Accept", "application/zip")),
            method="POST",
            body=msgspec.json.encode(asked),
            max_octets=2 * batch.octets + _ROOM_OCTETS,
            objection=self._objection,
        )

    def _read(self, batch: _Batch, stream: OpenedStream) -> None:
        answer = stream.answer()
        self._judge(answer)
        consumer = _Answer(batch, self._placing, self._tree)
        limits = PackageLimits(octets=2 * batch.octets + _ROOM_OCTETS)
        try:
            read_stream(self._counted(answer), consumer, limits, manifest_first=False)
            self._placing.check()
        finally:
            consumer.discard()

    def _counted(self, answer: StreamedAnswer) -> Iterator[bytes]:
        for chunk in answer:
            self.octets += len(chunk)
            yield chunk

    def _judge(self, answer: StreamedAnswer) -> None:
        if answer.failure is not None:
            raise self._refused(answer.failure.text)
        if answer.status != 200:
            limits = _Refusal()
            with suppress(msgspec.MsgspecError):
                limits = from_json(answer.body, _Refusal)
            said = f"; its limits are {limits.limits}" if limits.limits else ""
            raise self._refused(f"HTTP status {answer.status}{said}")

    def _refused(self, reason: str) -> SourceFault:
        return SourceFault(f"no package on demand: {reason}", code="HW-PKG-14", where=self._offer.href, rule="DST-F1")

    def _leave(self, batch: _Batch) -> None:
        for work in (*batch.rest(), *batch.unusable):
            self._results.left(work)
        batch.unusable.clear()
