"""The first import of a dataset from its changes (TIM-08, TIM-A6): all patches of the Change List, executed on nothing.

What they make counts only with the hash that the Resource List states of the dataset: it waits aside, as what is newer
than listed does, and gets its place where it fits. Else the dataset is fetched, and the reason told.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.patches import is_of_dataset
from headwater.progress import Progress
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.entries import ListContext, links_of
from headwater.sync.lists.position import Position
from headwater.sync.reports import SetReport
from headwater.sync.state import SetRow
from headwater.sync.transfer.content_at_hand import UnconfirmedContent
from headwater.sync.transfer.patching import LARGEST_OF_DATASET, PENDING_CHANGES, PendingChange
from headwater.sync.transfer.verification import digests_of, strongest_of
from headwater.sync.transfer.work_queue import COLUMNS, RunContext, Work
from headwater.transport.fetch import Fetch

_MOST_PATCHES: Final = 100_000
_MOST_OCTETS: Final = 64 << 30
_WANTED: Final = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE uri = ? AND held IS NULL"  # noqa: S608  our own


class _NoChain(Exception):
    """The changes do not lead from nothing to the dataset; the text says why."""


class FirstImport:
    """Makes the dataset of a set from its changes, where nothing is held of it yet."""

    def __init__(self, run: RunContext, row: SetRow, lists: ListContext, unconfirmed: UnconfirmedContent) -> None:
        from headwater.sync.dataset_sync import restate_patches  # takes the RDF library along, as those below

        wanted = run.options.dataset
        self._run = run
        self._row = row
        self._lists = msgspec.structs.replace(
            lists, restate=lambda t, set_id: restate_patches(t, set_id, wanted, listed=True)
        )
        self._unconfirmed = unconfirmed

    def bring(
        self, counts: SetReport, warn: Callable[[str, str, str | None], None], among: Container[int] | None = None
    ) -> None:
        """Have what the changes make wait aside, if there is a dataset to be fetched for the first time.

        `among`: the rows of `temp.work` that it may be; None: any.
        """
        from headwater.rdf.syntaxes import NoSingleDataset
        from headwater.sync.dataset_sync import listed_dataset

        with self._run.database.write() as t:
            try:
                dataset = listed_dataset(t, self._run.options.dataset)
            except NoSingleDataset:
                return
            row = None if dataset is None else t.one(_WANTED, (dataset.uri,))
        work = None if row is None else Work(*row)
        if work is None or (among is not None and work.n not in among):
            return
        try:
            octets, made = self._make(work, self._patches(work))
        except (_NoChain, SourceFault, OSError) as cause:
            what = cause.what if isinstance(cause, HeadwaterError) else str(cause)
            warn("TIM-A6", f"the dataset is fetched, not made from its changes: {what:.300}", work.uri)
            return
        counts.patched += 1
        counts.octets += octets
        counts.octets_saved += max(0, made - octets)

    def _patches(self, work: Work) -> list[Link]:
        """The patches that lead from nothing to the listed hash, or to what is told up to the time of the list."""
        wanted = set(map(str, digests_of(work.hash)))
        if not wanted:
            raise _NoChain("the Resource List states no hash of it")
        reading = ChangeListReader(self._lists, self._row.id, self._row.offer, Position()).read()
        if reading.outcome is not ReadingOutcome.READ:
            raise _NoChain(reading.reason or "the Change List cannot be read")
        with self._run.database.write() as t:
            changes = [PendingChange(*one) for one in t.rows(PENDING_CHANGES, (work.uri,))]
            t.run("DELETE FROM temp.changed")
        changes = changes[max((n + 1 for n, one in enumerate(changes) if one.change == "deleted"), default=0) :]
        ends = [n + 1 for n, one in enumerate(changes) if one.leaves(wanted)]
        if ends:
            changes = changes[: ends[-1]]
        elif work.known_at is not None:
            changes = [one for one in changes if one.at is None or one.at <= work.known_at]
        changes = [one for n, one in enumerate(changes) if not n or one != changes[n - 1]]  # of lists that overlap
        if not changes:
            raise _NoChain("the Change List has none of its changes")
        if changes[0].change != "created" and changes[0].hash is not None:  # of a patch at `loc` nobody knows the rest
            raise _NoChain("the first change that is listed did not create it")
        if len(changes) > _MOST_PATCHES:
            raise _NoChain("there are too many changes")
        found = []
        for change in changes:
            usable = (
                link
                for link in links_of(change.links, PATCH)
                if is_of_dataset(link.type) and not link.encoding and self._lists.scope.objection(link.href) is None
            )
            if (link := next(usable, None)) is None:
                raise _NoChain("a change has no patch")
            found.append(link)
        return found

    def _make(self, work: Work, patches: Sequence[Link]) -> tuple[int, int]:
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
        """Fetch the patches; how many octets came. Raises _NoChain where one is not what its link states."""
        wanted = [strongest_of(link.hash) for link in patches]
        requests = (
            Fetch(
                link.href,
                into=str(path),
                algorithms=(digest.algorithm if digest else "sha-256",),
                max_octets=min(LARGEST_OF_DATASET, link.length or LARGEST_OF_DATASET),
                key=number,
                objection=self._lists.scope.objection,
            )
            for number, (link, path, digest) in enumerate(zip(patches, paths, wanted, strict=True))
        )
        octets = 0
        for done, fetched in enumerate(self._run.transport.many(requests)):
            number = int(str(fetched.fetch.key))
            link, digest = patches[number], wanted[number]
            if not fetched.ok:
                why = fetched.failure.text if fetched.failure else f"HTTP status {fetched.status}"
                raise _NoChain(f"{link.href}: {why}")
            if link.length not in (None, fetched.octets) or (
                digest and fetched.digests[digest.algorithm] != digest.hex
            ):
                raise _NoChain(f"{link.href} is not what its link states")
            if fetched.headers.get("content-encoding", "identity") != "identity":
                raise _NoChain(f"{link.href} has a content coding that nobody asked for")
            octets += fetched.octets
            if octets > _MOST_OCTETS:
                raise _NoChain("its changes are too large")
            self._run.listener(Progress("fetching changes", done + 1, len(paths), octets))
        return octets
