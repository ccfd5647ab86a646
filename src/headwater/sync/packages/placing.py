"""The placing of members: what verifies by itself against the list gets its place, and is recorded (DST-P5).

A member is given with the work it may be: rows of `temp.work`, which are noted as about to be placed before. What does
not fit, or finds its place occupied, is left to single requests, whose rules hold for it (`transfer/resources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from headwater.deflate import crc32
from headwater.files.hashing import HASHERS
from headwater.packages.faults import BadPackage
from headwater.packages.zip_stream import WholeMember
from headwater.progress import Done, ignored
from headwater.spec.hashes import Digest
from headwater.sync.copy.file_placer import FileContent, NewFile, Placement, PlacementOutcome
from headwater.sync.copy.file_tree import FileTree, PathOccupied, printable_path
from headwater.sync.copy.placing_process import PlacingProcess
from headwater.sync.lists.entries import canonical_hash_of
from headwater.sync.source_times import mtime_ns
from headwater.sync.transfer.result_log import PlacedWork, ResultLog
from headwater.sync.transfer.verification import strongest_of, strongest_text
from headwater.sync.transfer.work_queue import PlanCounts, Work


class StatedByManifest(msgspec.Struct, frozen=True):
    """What the manifest of a package that was verified as a whole says of a member, in the state that is listed."""

    hash: str | None = None
    length: int | None = None


class PlacingCounts(msgspec.Struct):
    """What came of members so far: placed of how many octets, different from what is listed
    or too large, with an occupied place."""

    placed: int = 0
    octets: int = 0
    different: int = 0
    occupied: int = 0


VerifiedWork = tuple[Work, str]
"""Work, and the digest by which its octets are what is listed; with a process that verifies, if they are."""

_NOTED = 500
"""So many outcomes are noted at a time."""

_PLACED, _OCCUPIED = Placement.PLACED.value, Placement.OCCUPIED.value


class MemberPlacing:
    """Places small members (`member`), what is in memory (`octets`), or in a finished temporary file (`file`)."""

    def __init__(
        self,
        tree: FileTree,
        results: ResultLog,
        counts: PlanCounts,
        each: Callable[[Done], None],
        process: PlacingProcess[VerifiedWork] | None = None,
        *,
        largest: int,
    ) -> None:
        """With a `process`, what is in memory is placed by it; `settle` waits for the last. `largest`: octets of a
        resource, whatever is listed."""
        self.largest = largest
        self._process = process
        self.tree = tree
        self._results = results
        self._plan = counts
        self._each = each
        self.counts = PlacingCounts()
        self._damage: str | None = None
        self._given: dict[int, bool] = {}
        """The work that the process got, by `n`, and whether it is known to have its place."""

    def member(
        self, work: Work, wanted: Digest | None, member: WholeMember, stated: StatedByManifest | None = None
    ) -> bool:
        """Place a small member if it is what is listed, and tell whether it may be; if not, the work is left.

        `wanted`: the strongest digest that is listed of the work. With a process it is known only later whether it is:
        then the work is left when that is known. `stated` as for `octets`. That a member is not what its package says
        of it is told by `check`.
        """
        body = member.body
        if body.plain_octets > self.largest or work.length not in (None, body.plain_octets):
            return self._different(work)
        if wanted is None or self._process is None:
            return self.content(work, member, stated)
        algorithm, digest = wanted.algorithm, wanted.hex
        content = (body.packed, body.plain_octets, body.crc, body.is_deflated, algorithm, digest)
        return self._give(self._process, work, f"{algorithm}:{digest}", content)

    def planned(self, members: Iterable[tuple[Work | None, WholeMember]]) -> None:
        """The same for small members of which the digest of each is listed; without work there is nothing to place."""
        files: list[tuple[VerifiedWork, NewFile]] = []
        for work, member in members:
            if work is None:
                continue
            body, digest = member.body, strongest_text(work.hash)
            if (
                self._process is None
                or digest is None
                or body.plain_octets > self.largest
                or work.length not in (None, body.plain_octets)
                or work.n in self._given
            ):
                self.member(work, strongest_of(work.hash), member)
                continue
            algorithm, _, value = digest.partition(":")
            content = (body.packed, body.plain_octets, body.crc, body.is_deflated, algorithm, value)
            self._given[work.n] = False
            files.append(((work, digest), _new_file(work, content)))
        if files and self._process is not None:
            self._note_outcomes(self._process.give(files))

    def _give(self, process: PlacingProcess[VerifiedWork], work: Work, digest: str, content: FileContent) -> bool:
        """Have the process place it; always true. It has one state of a resource in hand at a time."""
        if self.has_place(work):
            self._results.left(work)
            return True
        self._given[work.n] = False
        self._note_outcomes(process.give([((work, digest), _new_file(work, content))]))
        return True

    def has_place(self, work: Work) -> bool:
        """Whether an earlier state of this resource has its place; waits for the process where it has one in hand.

        To be asked before the temporary file of this work is written to. Raises DestinationUnusable.
        """
        if work.n not in self._given:
            return False
        self.settle()
        return self._given[work.n]

    def content(self, work: Work, member: WholeMember, stated: StatedByManifest | None = None) -> bool:
        """Place a small member if it is what is listed, and tell whether it is: inflated and verified here, at once.

        For work whose digest only the manifest gives (`stated`), or where no process places. What is damaged is left
        as well, and told by `check`.
        """
        try:
            octets = member.octets
        except BadPackage as fault:
            self._damage = fault.what
            return self._different(work)
        return self.octets(work, octets, stated)

    def check(self) -> None:
        """Raises BadPackage, once, where a member was not what its package says of it."""
        damage, self._damage = self._damage, None
        if damage is not None:
            raise BadPackage(damage)

    def octets(
        self,
        work: Work,
        octets: bytes,
        stated: StatedByManifest | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> bool:
        """Place these octets if they are what is listed, and tell whether they are; if not, the work is left.

        `stated` counts where the list gives no digest that can be computed (DST-P5); without it, such work is left.
        `digests`: hex digests of these octets that were computed before.
        """
        if len(octets) > self.largest:
            return self._different(work)
        known = digests or {}
        digest = verified_digest(
            work, len(octets), lambda algorithm: known.get(algorithm) or digest_of(octets, algorithm), stated
        )
        if digest is None:
            return self._different(work)
        if self._process is not None:
            content = (octets, len(octets), crc32(octets), False, None, None)
            return self._give(self._process, work, digest, content)
        name = temporary_name(work)
        size, mtime = self.tree.write(name, octets, mtime_ns(work.lastmod, None))
        return self._place(work, name, size, mtime, digest)

    def catch_up(self) -> None:
        """Note what has got its place meanwhile, and keep the process at work. Raises DestinationUnusable."""
        if self._process is not None:
            self._note_outcomes(self._process.take())

    def settle(self) -> None:
        """Wait until what was given has its place. Raises DestinationUnusable."""
        if self._process is not None:
            self._note_outcomes(self._process.help())
            self._results.flush()  # while the process is at work
            self._note_outcomes(self._process.rest())

    def _note_outcomes(self, outcomes: Iterable[tuple[VerifiedWork, PlacementOutcome]]) -> None:
        placed: list[PlacedWork] = []
        try:
            for (work, digest), (placement, size, time_ns, fault) in outcomes:
                if placement == _PLACED:
                    placed.append((work, size, time_ns, digest))
                    if len(placed) >= _NOTED:
                        some, placed = placed, []
                        self._note_placed(some)
                        self._results.flush_when_due()
                elif placement == _OCCUPIED:
                    self._note_occupied(work)
                else:
                    self._damage = fault or self._damage
                    self._different(work)
        finally:  # also where the copy cannot be written to any more
            self._note_placed(placed)

    def file(self, work: Work, octets: int, digests: dict[str, str], stated: StatedByManifest | None = None) -> bool:
        """The same with the temporary file of this work, whose digests were computed while it was written."""
        digest = verified_digest(work, octets, digests.get, stated) if octets <= self.largest else None
        name = temporary_name(work)
        if digest is None:
            self.tree.discard(name)
            return self._different(work)
        size, mtime = self.tree.stamp(name, mtime_ns(work.lastmod, None))
        return self._place(work, name, size, mtime, digest)

    def leave(self, work: Work) -> None:
        """Nothing is placed for this work."""
        self._results.left(work)

    def _different(self, work: Work) -> bool:
        self.counts.different += 1
        self._results.left(work)
        return False

    def _place(self, work: Work, name: str, size: int, time_ns: int, digest: str) -> bool:
        try:
            self.tree.place(name, work.path)
        except PathOccupied:
            self.tree.discard(name)
            self._note_occupied(work)
            return False
        self._note_placed([(work, size, time_ns, digest)])
        return True

    def _note_occupied(self, work: Work) -> None:
        self.counts.occupied += 1
        self._results.left(work)

    def _note_placed(self, placed: list[PlacedWork]) -> None:
        if self._process is not None:
            self._given.update(dict.fromkeys([work.n for work, *_ in placed], True))
        octets = sum([size for _, size, _, _ in placed])
        self.counts.placed += len(placed)
        self.counts.octets += octets
        self._plan.octets += octets
        if self._each is not ignored:
            for work, size, _, _ in placed:
                kind = "created" if work.held is None else "updated"
                self._each(Done(kind, work.uri, printable_path(work.path), size))
        self._results.settled(placed)


class UnsettledPackage:
    """The package before, if any: its last members get their places while the manifest of the next one is read."""

    def __init__(self) -> None:
        self._placing: MemberPlacing | None = None
        self._then: Callable[[], None] | None = None

    def keep(self, placing: MemberPlacing, then: Callable[[], None]) -> None:
        """All members of a package were given to `placing`; `then` is to be done when they have their places."""
        self._placing, self._then = placing, then

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return self._placing is not None

    def catch_up(self) -> None:
        """Keep the process at work. Raises DestinationUnusable."""
        if self._placing is not None:
            self._placing.catch_up()

    def settle(self) -> None:
        """Wait until it is settled; before members of another one are placed. Raises DestinationUnusable."""
        placing, then = self._placing, self._then
        self._placing = self._then = None
        if placing is not None and then is not None:
            placing.settle()
            then()


def _new_file(work: Work, content: FileContent) -> NewFile:
    return (temporary_name(work), work.path, mtime_ns(work.lastmod, None), *content)


def temporary_name(work: Work) -> str:
    """The temporary file of a member for this work."""
    return f"{work.n}-member"


def digest_of(octets: bytes, algorithm: str) -> str:
    """The hex digest of octets in memory."""
    return HASHERS[algorithm](octets).hexdigest()


def verified_digest(
    work: Work, octets: int, digest: Callable[[str], str | None], stated: StatedByManifest | None
) -> str | None:
    """The digest by which octets are what is listed, as it is recorded; None where they are not.

    `digest` computes one by its algorithm. Where no digest is listed that can be computed, what is `stated` counts.
    """
    if work.length is not None and work.length != octets:
        return None
    wanted = strongest_of(work.hash)
    if wanted is None:
        if canonical_hash_of(work.extra) is not None:
            return None  # to be verified by what it says, which a transfer does
        if stated is None or stated.length not in (None, octets):
            return None
        wanted = strongest_of(stated.hash)
    if wanted is None:
        found = digest("sha-256") or ""
        return f"sha-256:{found}" if found else None
    return f"{wanted.algorithm}:{wanted.hex}" if digest(wanted.algorithm) == wanted.hex else None


def algorithms_for(work: Work, stated: StatedByManifest | None) -> tuple[str, ...]:
    """The algorithms whose digests `verified_digest` asks for."""
    wanted = strongest_of(work.hash) or (strongest_of(stated.hash) if stated is not None else None)
    return (wanted.algorithm if wanted is not None else "sha-256",)
