"""Updates by patches: those that lead from a copy to what is listed, and a dataset's first import from its changes.

A first import executes all patches of the Change List on nothing (TIM-08, TIM-A6). What they make counts only with the
hash that the Resource List states of the dataset: it waits aside, as what is newer than listed does, and gets its place
where it fits. Else the dataset is fetched, and the reason told.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.patches import LARGEST, format_of_patch, is_of_dataset
from headwater.progress import Progress
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.entries import ListContext, links_of
from headwater.sync.lists.position import Position
from headwater.sync.reports import SetReport
from headwater.sync.run_context import RunContext
from headwater.sync.state import SetRow
from headwater.sync.transfer.content_at_hand import UnconfirmedContent
from headwater.sync.transfer.patching import LARGEST_OF_DATASET
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, PatchAttempt, PatchStep, Work
from headwater.transport.fetch import Fetch, Fetched, Objection

MOST_STEPS: Final = 20
"""So many patches, one after the other, are asked for at most: each is a request that waits for the one before. Of
datasets there is no such limit where their octets are stated: while they change, the whole is newer than any list."""
_MOST_WRITTEN: Final = 16 << 30
"""Octets that so many patches of a dataset may have written: each writes the whole."""

PENDING_CHANGES = (
    "SELECT change, coalesce(stated, at), hash, length, links FROM temp.changed WHERE uri = ? AND (pending OR folded)"
    " ORDER BY list, ordinal"
)


class PendingChange(NamedTuple):
    """A change of one resource after the position; the fields are columns of `temp.changed`."""

    change: str
    at: int | None
    hash: str | None
    length: int | None
    links: str | None


class HeldState(NamedTuple):
    """The copy: its digest, its octets, and whether it is what was listed before the pending changes."""

    digest: str
    octets: int
    is_previous: bool


def planned_patches(
    held: HeldState, pending: Sequence[PendingChange], objection: Objection
) -> tuple[PatchAttempt, ...]:
    """The patches that lead from the copy to the last of these changes; none: it is fetched whole.

    1. The copy is exactly a state that the changes tell of, or else the one before all of them (`is_previous`).
    2. Each change after it is an update with a hash, and has a patch of a known type within the scope.
    3. Together they are fewer octets than the resource, and no more than `MOST_STEPS`, but of a dataset.
    """
    changes = [one for n, one in enumerate(pending) if n + 1 == len(pending) or not _is_same(one, pending[n + 1])]
    start = next((n + 1 for n in range(len(changes) - 1, -1, -1) if _leaves(changes[n], held.digest)), None)
    if start is None:
        start = 0 if held.is_previous else len(changes)
    steps = [_step(one, objection) for one in changes[start:]]
    found = [one for one in steps if one is not None]
    if not found or len(found) < len(steps):
        return ()
    of_dataset = all(is_of_dataset(one.type) for one in found)
    if held.octets > LARGEST and not of_dataset:
        return ()
    whole = changes[-1].length
    octets = sum(one.length or 0 for one in found)
    is_stated = all(one.length is not None for one in found)
    if whole is not None and (octets >= whole or not (of_dataset or is_stated or len(found) == 1)):
        return ()
    is_fewer = is_stated and octets < held.octets
    if len(found) > MOST_STEPS and not (of_dataset and is_fewer and len(found) * held.octets <= _MOST_WRITTEN):
        return ()
    return (PatchAttempt(found[0], held.digest), *map(PatchAttempt, found[1:]))


def _is_same(one: PendingChange, other: PendingChange) -> bool:
    """Whether two lists that overlap tell one change twice."""
    return one.at is not None and (one.change, one.at, one.hash) == (other.change, other.at, other.hash)


def _leaves(change: PendingChange, digest: str) -> bool:
    """Whether a change has left octets of this digest."""
    return change.change != "deleted" and digest in map(str, digests_of(change.hash))


def _step(change: PendingChange, objection: Objection) -> PatchStep | None:
    result = strongest_of(change.hash)
    if change.change != "updated" or result is None:
        return None
    for link in links_of(change.links, PATCH):
        if _is_usable(link) and objection(link.href) is None:
            hash_ = str(digest) if (digest := strongest_of(link.hash)) is not None else None
            return PatchStep(link.href, link.type or "", link.length, hash_, str(result), change.length)
    return None


def _is_usable(link: Link) -> bool:
    """Whether the patch is of a known type (RS-DST-12), as it is, and not too large."""
    if is_of_dataset(link.type):
        return not link.encoding
    return format_of_patch(link.type) is not None and not link.encoding and (link.length or 0) <= LARGEST


# the first import of a dataset

MOST_PATCHES: Final = 100_000
_MOST_OCTETS: Final = 64 << 30
_WANTED: Final = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE uri = ? AND held IS NULL"  # noqa: S608  our own


class _NoChain(Exception):
    """The changes do not lead from nothing to the dataset; the text says why."""


def patches_from_nothing(
    changes: Sequence[PendingChange],
    listed_hash: str | None,
    known_at: int | None,
    objection: Callable[[str], str | None],
) -> list[Link]:
    """The patches that lead from nothing to the state with this hash, or of this time. Raises _NoChain."""
    gone = max((n for n, one in enumerate(changes) if one.change == "deleted"), default=-1)
    changes = changes[gone + 1 :]
    wanted = set(map(str, digests_of(listed_hash)))
    ends = [n for n, one in enumerate(changes) if wanted & set(map(str, digests_of(one.hash)))]
    if ends:
        changes = changes[: ends[-1] + 1]
    elif known_at is not None:
        changes = [one for one in changes if one.at is None or one.at <= known_at]
    changes = [one for n, one in enumerate(changes) if not n or one != changes[n - 1]]  # of lists that overlap
    if not changes:
        raise _NoChain("the Change List has none of its changes")
    if changes[0].change != "created" and changes[0].hash is not None:  # a patch at `loc` says only what became of it
        raise _NoChain("the first change that is listed did not create it")
    if len(changes) > MOST_PATCHES:
        raise _NoChain("there are too many changes")
    return [_patch(one, objection) for one in changes]


def _patch(change: PendingChange, objection: Objection) -> Link:
    for link in links_of(change.links, PATCH):
        if is_of_dataset(link.type) and not link.encoding and objection(link.href) is None:
            return link
    raise _NoChain("a change has no patch")


class FirstImport:
    """Brings the dataset of a set from its changes, where nothing is held of it yet."""

    def __init__(
        self, run: RunContext, row: SetRow, lists: ListContext, unconfirmed: UnconfirmedContent,
        warn: Callable[[str, str, str | None], None],
    ) -> None:  # fmt: skip
        from headwater.sync.dataset_sync import restate_patches  # takes the RDF library along, as those below

        wanted = run.options.dataset
        self._run = run
        self._row = row
        self._lists = msgspec.structs.replace(
            lists, restate=lambda t, set_id: restate_patches(t, set_id, wanted, listed=True)
        )
        self._unconfirmed = unconfirmed
        self._warn = warn

    def bring(self, counts: SetReport, among: Container[int] | None = None) -> None:
        """Have what the changes make wait aside, if there is a dataset to be fetched for the first time.

        `among`: the rows of `temp.work` that it may be; None: any.
        """
        work = self._work()
        if work is None or (among is not None and work.n not in among):
            return
        try:
            patches = self._patches(work)
            octets, made = self._made(work, patches)
        except (_NoChain, SourceFault, OSError) as cause:
            what = cause.what if isinstance(cause, HeadwaterError) else str(cause)
            self._warn("TIM-A6", f"the dataset is fetched, not made from its changes: {what:.300}", work.uri)
            return
        counts.patched += 1
        counts.octets += octets
        counts.octets_saved += max(0, made - octets)

    def _work(self) -> Work | None:
        from headwater.rdf.syntaxes import NoSingleDataset
        from headwater.sync.dataset_sync import listed_dataset

        with self._run.database.write() as t:
            try:
                dataset = listed_dataset(t, self._run.options.dataset)
            except NoSingleDataset:
                return None
            row = None if dataset is None else t.one(_WANTED, (dataset.uri,))
        return None if row is None else Work(*row)

    def _patches(self, work: Work) -> list[Link]:
        if strongest_of(work.hash) is None:
            raise _NoChain("the Resource List states no hash of it")
        reading = ChangeListReader(self._lists, self._row.id, self._row.offer, Position()).read()
        if reading.outcome is not ReadingOutcome.READ:
            raise _NoChain(reading.reason or "the Change List cannot be read")
        with self._run.database.write() as t:
            changes = [PendingChange(*one) for one in t.rows(PENDING_CHANGES, (work.uri,))]
            t.run("DELETE FROM temp.changed")
        return patches_from_nothing(changes, work.hash, work.known_at, self._lists.scope.objection)

    def _made(self, work: Work, patches: Sequence[Link]) -> tuple[int, int]:
        """Fetch all patches, and execute them in one pass; how many octets came, and how many were made of them."""
        from headwater.rdf.unified_diff import apply_patches

        temp = Path(self._run.temp)
        paths = [temp / f"first-{n}" for n in range(len(patches))]
        target = temp / "first-import"
        try:
            received = self._fetched(patches, paths)
            made = apply_patches(None, paths, target, scratch=temp, strict=True).dataset
            digest = strongest_of(work.hash)
            if digest is not None and digest.algorithm == "sha-256" and digest.hex != made.sha256:
                raise _NoChain("its changes lead to something else")
            self._unconfirmed.put(work, target.name, made.octets, f"sha-256:{made.sha256}", {})
        finally:
            for path in (*paths, target):
                with suppress(OSError):
                    path.unlink()
        return received, made.octets

    def _fetched(self, patches: Sequence[Link], paths: Sequence[Path]) -> int:
        from headwater.rdf.unified_diff import check_growth

        octets = 0
        for done, fetched in enumerate(self._run.transport.many(map(self._fetch, range(len(paths)), patches, paths))):
            number = int(str(fetched.fetch.key))
            _check(patches[number], fetched)
            check_growth(paths[number])
            octets += fetched.octets
            if octets > _MOST_OCTETS:
                raise _NoChain("its changes are too large")
            self._run.listener(Progress("fetching changes", done + 1, len(paths), octets))
        return octets

    def _fetch(self, number: int, link: Link, path: Path) -> Fetch:
        wanted = strongest_of(link.hash)
        return Fetch(
            link.href,
            into=str(path),
            algorithms=(wanted.algorithm if wanted else "sha-256",),
            max_octets=min(LARGEST_OF_DATASET, link.length or LARGEST_OF_DATASET),
            key=str(number),
            objection=self._lists.scope.objection,
        )


def _check(link: Link, fetched: Fetched) -> None:
    """Raises _NoChain where a patch is not what its link states."""
    if not fetched.ok:
        why = fetched.failure.text if fetched.failure else f"HTTP status {fetched.status}"
        raise _NoChain(f"{link.href}: {why}")
    wanted = strongest_of(link.hash)
    if link.length not in (None, fetched.octets) or (wanted and fetched.digests[wanted.algorithm] != wanted.hex):
        raise _NoChain(f"{link.href} is not what its link states")
    if fetched.headers.get("content-encoding", "identity") != "identity":
        raise _NoChain(f"{link.href} has a content coding that nobody asked for")
