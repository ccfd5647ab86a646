"""The placing of members: what verifies against the list gets its place, and is recorded (DST-P5).

A member is given with the work it may be: a row of `temp.work`, noted before as about to be placed. What does not fit,
or finds its place occupied, is left to single requests, whose rules hold for it (`transfer/resources`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec

from headwater.files.hashing import HASHERS
from headwater.files.whole_writes import write_all
from headwater.packages.faults import BadPackage
from headwater.packages.zip_directory import ZipDirectory, ZipMember
from headwater.progress import Done, ignored
from headwater.sync.copy.file_tree import FileTree, PathOccupied, printable_path
from headwater.sync.faults import DestinationUnusable
from headwater.sync.lists.entries import canonical_hash_of
from headwater.sync.source_times import mtime_ns
from headwater.sync.transfer.result_log import ResultLog
from headwater.sync.transfer.verification import strongest_of
from headwater.sync.transfer.work_queue import PlanCounts, Work

SMALL_OCTETS = 1 << 20
"""A member up to this size is verified in memory, a larger one in its temporary file."""


class StatedByManifest(msgspec.Struct, frozen=True):
    """What the manifest of a package says of a member, in the state that is listed."""

    hash: str | None = None
    length: int | None = None


class MemberPlacing:
    """Verifies members and gives them their places."""

    def __init__(
        self, tree: FileTree, results: ResultLog, counts: PlanCounts, each: Callable[[Done], None], *, largest: int
    ) -> None:
        """`largest`: octets of a resource, whatever is listed."""
        self._tree = tree
        self._results = results
        self._plan = counts
        self._each = each
        self._largest = largest
        self.placed_count = 0

    def place(self, work: Work, package: ZipDirectory, member: ZipMember, stated: StatedByManifest | None) -> None:
        """Place a member of a package if it is what is listed; if not, the work is left.

        `stated` counts where the list gives no digest that can be computed (DST-P5); without it, such work is left.
        Raises BadPackage, with the work left, where the member is not what its package says of it.
        """
        octets = member.octets
        if octets > self._largest or work.length not in (None, octets):
            self._results.left(work)
            return
        name, time_ns = f"{work.n}-member", mtime_ns(work.lastmod, None)
        try:
            if octets <= SMALL_OCTETS:
                body = package.read(member)
                digest = verified_digest(work, octets, lambda algorithm: HASHERS[algorithm](body).hexdigest(), stated)
                size, kept_ns = self._tree.write(name, body, time_ns) if digest is not None else (0, 0)
            else:
                digests = self._write(name, package.blocks(member), work, stated)
                digest = verified_digest(work, octets, digests.get, stated)
                size, kept_ns = self._tree.stamp(name, time_ns)
            if digest is not None:
                self._tree.place(name, work.path)
        except (BadPackage, PathOccupied) as cause:
            self._tree.discard(name)
            self._results.left(work)
            if isinstance(cause, BadPackage):
                raise
            return
        if digest is None:
            self._tree.discard(name)
            self._results.left(work)
            return
        self.placed_count += 1
        self._plan.octets += size
        if self._each is not ignored:
            kind = "created" if work.held is None else "updated"
            self._each(Done(kind, work.uri, printable_path(work.path), size))
        self._results.settled([(work, size, kept_ns, digest)])

    def _write(
        self, name: str, content: Iterator[bytes], work: Work, stated: StatedByManifest | None
    ) -> dict[str, str]:
        """Write a large member into its temporary file; its digests."""
        wanted = strongest_of(work.hash) or (strongest_of(stated.hash) if stated is not None else None)
        algorithm = wanted.algorithm if wanted is not None else "sha-256"
        hasher = HASHERS[algorithm]()
        descriptor = self._tree.create_temporary(name)
        try:
            for block in content:
                hasher.update(block)
                if self._tree.room is not None:
                    self._tree.room.check(len(block))
                write_all(descriptor, block)
        except OSError as cause:
            raise DestinationUnusable(f"cannot write: {cause.strerror}", where=name) from cause
        finally:
            os.close(descriptor)
        return {algorithm: hasher.hexdigest()}


def verified_digest(
    work: Work, octets: int, digest: Callable[[str], str | None], stated: StatedByManifest | None
) -> str | None:
    """The digest by which octets are what is listed, as it is recorded; None where they are not.

    `digest` computes one by its algorithm. Where no digest is listed that can be computed, what is `stated` counts.
    """
    wanted = strongest_of(work.hash)
    if wanted is None:
        if canonical_hash_of(work.extra) is not None:
            return None  # to be verified by what it says, which a transfer does
        if stated is None or stated.length not in (None, octets):
            return None
        wanted = strongest_of(stated.hash)
    if wanted is None:
        found = digest("sha-256")
        return f"sha-256:{found}" if found else None
    return f"{wanted.algorithm}:{wanted.hex}" if digest(wanted.algorithm) == wanted.hex else None
