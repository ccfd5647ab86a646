"""Ingest of one dataset: its present state as canonical N-Quads, the patch to it, and the change that announces both.

1. All patches kept, and the recorded state, are as they were made.
2. What the dataset is made of is read as canonical N-Quads into the scratch folder, and on the way the patch from the
   recorded state is made; where it has changed meanwhile, it is read again. Where the digest is the recorded one,
   nothing has changed.
3. The patch, applied to the recorded state, gives the new one. So all of them in series on nothing give it, too
   (TIM-08).
4. Both files are put in their places, by names that nothing else has.
5. The change is recorded, and with it the rows that name the files: from then on it is true.
6. The file of the state before is removed.

Killed before 5, the files are left over and removed at the next start; after 5, the state before is.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog, Metadata, SetState, UnknownSet, Upsert
from headwater.catalog.state import StateRow, StateUpdate
from headwater.datasets.dataset_folder import (
    BrokenSeries,
    DatasetFolder,
    InputChanged,
    file_digest,
    patched_digest,
    replayed,
)
from headwater.datasets.rows import (
    DATASET_FILE,
    DATASET_TYPE,
    CountingLines,
    DatasetCounts,
    DatasetPatch,
    DatasetState,
    origin_row,
    patches_from,
    read_dataset,
    read_seen,
    seen_row,
)
from headwater.errors import SourceFault, UsageFault
from headwater.ingest.dataset_inputs import DatasetInput
from headwater.processes.pool import Stopped
from headwater.progress import Listener, Notice, silent
from headwater.rdf import BadRdf
from headwater.rdf.canonical import BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.unified_diff import PatchSummary, write_patch
from headwater.spec.records import ChangeKind

SETTLED_SECONDS: Final = 1.0
"""What changed more recently may be under way, and its times do not tell one change from the next."""
_READINGS: Final = 3
_TICK: Final = dt.timedelta(microseconds=1)
_LINES: Final = 10_000


class DatasetNews(Enum):
    """What came of a look at what a dataset is made of."""

    UNCHANGED = auto()
    CHANGED = auto()
    UNSETTLED = auto()
    """It changed a moment ago: look again soon."""


class DatasetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one look came to: statements added and removed by the change, statements and octets of the dataset."""

    news: DatasetNews
    is_first: bool = False
    added: int = 0
    removed: int = 0
    quads: int = 0
    octets: int = 0


class DatasetRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a dataset is read: what becomes of blank nodes, below which IRI, whether it may be empty."""

    blank_nodes: BlankNodes = BlankNodes.REPLACED
    genid: str
    may_be_empty: bool = False


class DatasetIntake:
    """One set. One thread at a time. `may_record` is called before anything is recorded, and raises when this process
    must not; `stop` tells a look to end (Stopped)."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        folder: DatasetFolder,
        find_input: Callable[[], DatasetInput],
        rules: DatasetRules,
        clock: Callable[[], dt.datetime],
    ) -> None:
        self.name = name
        self.folder = folder
        self.may_record: Callable[[], None] = lambda: None
        self.stop: Callable[[], bool] = lambda: False
        self.listener: Listener = silent
        self._catalog = catalog
        self._find_input = find_input
        self._input = find_input()
        self._rules = rules
        self._clock = clock
        self._ahead: tuple[bytes | None, float] = (None, 0.0)
        """What had times ahead of the clock at the last look, and since when on the monotonic clock it has been so."""

    @property
    def state(self) -> DatasetState | None:
        """What is recorded."""
        try:
            return read_dataset(self._catalog, self.name)
        except UnknownSet:
            return None

    def is_unchanged(self) -> bool:
        """Whether what the dataset is made of is as it was read last, as far as that can be told without reading it."""
        signature = self._signature()
        return signature is not None and self.state is not None and signature == read_seen(self._catalog, self.name)

    def begin(self) -> None:
        """Bring the folder to what is recorded: what a killed run has left goes, a lost state is made again.

        Raises BrokenSeries where it cannot be.
        """
        state = self.state
        with suppress(UnknownSet):
            seen = self._catalog.state(self.name)
            if state is None and (seen.count or seen.last_seq):  # a dataset has no other history (TIM-06)
                raise UsageFault("the set has had other resources", where=self.name, code="HW-DAT-06")
        self.folder.keep(state, [] if state is None else patches_from(self._catalog, self.name))
        if state is None:
            return
        path = self.folder.dataset_of(state)
        if not path.is_file() or path.stat().st_size != state.octets:
            self._repair(state)

    def check(self) -> None:
        """See that the dataset and all patches are as they were made. Raises BrokenSeries."""
        state = self.state
        if state is None:
            return
        patches = list(patches_from(self._catalog, self.name, state.first))
        try:
            self.folder.check_all(state, patches)
        except BrokenSeries:
            self._repair(state)
            self.folder.check_all(state, patches)

    def look(self) -> DatasetOutcome:
        """Take the present state where it is another one than is recorded.

        Raises BadRdf and its kinds, InputChanged, SourceFault, BrokenSeries, Stopped, and faults of the
        catalog; what was recorded stays.
        """
        before, self._input = self.state, self._find_input()
        if before is not None and self.is_unchanged():
            return _unchanged(before)
        if not self._is_settled():
            return DatasetOutcome(news=DatasetNews.UNSETTLED)
        self.check()
        new, signature, patch = self._read(before)
        read = [] if signature is None else [seen_row(signature)]
        if (origin := self._input.origin) is not None:
            read.append(origin_row(origin))
        if before is not None and new.sha256 == before.sha256:
            if read:
                self._record([], self._seen(), read, [])
            self.folder.keep(before, patches_from(self._catalog, self.name))
            return _unchanged(before)
        if not new.quads and not self._rules.may_be_empty:
            raise SourceFault("there is no statement", where=self._input.where, code="HW-DAT-04")
        return self._take(before, before, new, read, patch)

    def begin_anew(self) -> DatasetOutcome:
        """Record the present state once more as created, by a patch of all of it: what was before counts no longer.

        The caller has seen to it that the Change Lists begin with what comes now.
        """
        state = self.state
        if state is None:
            return DatasetOutcome(news=DatasetNews.UNCHANGED)
        try:
            self.folder.check(self.folder.dataset_of(state), state.sha256, state.octets)
        except BrokenSeries:  # then what it is made of has to do
            new, _signature, _patch = self._read(None)
        else:
            new = DatasetSummary(state.quads, state.octets, state.sha256)
            (self.folder.fresh_scratch() / "new.nq").hardlink_to(self.folder.dataset_of(state))
        return self._take(state, None, new, [])

    def _read(self, before: DatasetState | None) -> tuple[DatasetSummary, bytes | None, PatchSummary | None]:
        """The present state in the scratch folder, the signature of what it was made of, and the patch to it from the
        state before, where there is one."""
        for _reading in range(_READINGS):
            self._pause()
            scratch = self.folder.fresh_scratch()
            signature = self._signature()
            try:
                summary, patch = self._write(scratch, before)
            except (BadRdf, InputChanged, FileNotFoundError):
                if signature is not None and self._signature() == signature:
                    raise
            else:
                if self._signature() == signature:
                    return summary, signature, patch
            self.listener(Notice("HW-DAT-12", "the dataset changed while it was read", self._input.where))
        raise InputChanged(f"it changed {_READINGS} times while it was read", where=self._input.where)

    def _write(self, scratch: Path, before: DatasetState | None) -> tuple[DatasetSummary, PatchSummary | None]:
        inputs, target = self._input.read(scratch), scratch / "new.nq"
        options = RdfOptions(self._rules.blank_nodes, self._rules.genid)
        made = write_canonical(inputs, target, scratch=scratch, options=options)
        if before is None:
            return made, None
        with (scratch / "new.nqud").open("wb") as patch:
            return made, write_patch(self.folder.dataset_of(before), target, patch, are_canonical=True)

    def _is_settled(self) -> bool:
        """Whether what the dataset is made of is at rest.

        Times that lie ahead (the clock was set back, or they are of another machine) do not tell; then it is at rest
        when it has stayed as it is for so long.
        """
        age_seconds = (time.time_ns() - self._input.changed_at_ns()) / 1e9
        if age_seconds >= 0:
            return age_seconds >= SETTLED_SECONDS
        found, now = self._signature(), time.monotonic()
        if found != self._ahead[0]:
            self._ahead = (found, now)
        return now - self._ahead[1] >= SETTLED_SECONDS

    def _signature(self) -> bytes | None:
        """That of what the dataset is made of, and of how it is read."""
        found = self._input.signature()
        if found is None:
            return None
        return hashlib.sha256(msgspec.msgpack.encode((found, self._input.where, self._rules))).digest()

    def _take(
        self,
        known: DatasetState | None,
        base: DatasetState | None,
        new: DatasetSummary,
        rows: list[StateRow],
        summary: PatchSummary | None = None,
    ) -> DatasetOutcome:
        """Prove the patch from `base` (None: from nothing, it is made first), place both files, record the change."""
        self._pause()
        scratch, seen = self.folder.scratch, self._seen()
        made, patch_made = scratch / "new.nq", scratch / "new.nqud"
        if summary is None:
            (scratch / "nothing.nq").touch()
            with patch_made.open("wb") as file:
                summary = write_patch(scratch / "nothing.nq", made, file)
        self._prove(base, patch_made, new)
        seq = seen.last_seq + 1
        patch = DatasetPatch(
            seq, file_digest(patch_made), patch_made.stat().st_size, summary.removed, summary.added, new.sha256
        )
        state = DatasetState(
            seq=seq,
            first=seq if base is None else base.first,
            sha256=new.sha256,
            octets=new.octets,
            quads=new.quads,
            counts=self._counted(base, made, patch_made),
        )
        self._pause()
        self.may_record()
        self.folder.place(patch_made, self.folder.patch_of(patch))
        self.folder.place(made, self.folder.dataset_of(state))
        self.folder.known(self.folder.dataset_of(state))
        old = [] if base is not None else [one.key for one in patches_from(self._catalog, self.name)]
        now = self._clock()
        metadata = Metadata(lastmod=now, hash=f"sha-256:{new.sha256}", length=new.octets, type=DATASET_TYPE)
        change = ChangeKind.CREATED if base is None else ChangeKind.UPDATED
        event = Upsert(DATASET_FILE, metadata, change=change)
        self._record([event], seen, [state.row(), patch.row(), *rows], old, now)
        self.folder.keep(state, patches_from(self._catalog, self.name))
        return DatasetOutcome(
            news=DatasetNews.CHANGED,
            is_first=known is None,
            added=summary.added,
            removed=summary.removed,
            quads=new.quads,
            octets=new.octets,
        )

    def _prove(self, base: DatasetState | None, patch: Path, new: DatasetSummary) -> None:
        """See that the patch leads from the state before to the new one, as it lies there. Raises BrokenSeries."""
        self._pause()
        with ThreadPoolExecutor(1) as other:  # digests leave the interpreter's lock to others
            read = other.submit(file_digest, self.folder.scratch / "new.nq")
            made = patched_digest(None if base is None else self.folder.dataset_of(base), patch)
        if not made == read.result() == new.sha256:
            raise BrokenSeries("the patch does not lead to the dataset", where=self._input.where)

    def _counted(self, base: DatasetState | None, new: Path, patch: Path) -> DatasetCounts:
        counting = CountingLines(None if base is None else base.counts)
        with (new if base is None else patch).open("rb") as file:
            while lines := file.readlines(_LINES * 100):
                if base is None:
                    counting.add(lines)
                else:
                    counting.add((one[1:] for one in lines if one.startswith(b"-")), -1)
                    counting.add(one[1:] for one in lines if one.startswith(b"+"))
        return counting.counts()

    def _repair(self, state: DatasetState) -> None:
        """Make the recorded state again of its patches. Raises BrokenSeries."""
        patches = list(patches_from(self._catalog, self.name, state.first))
        made, summary = replayed(self.folder, patches, self.folder.fresh_scratch())
        if summary.sha256 != state.sha256:
            raise BrokenSeries("the patches do not lead to the dataset", where=str(self.folder.path))
        self.folder.place(made, self.folder.dataset_of(state))

    def _seen(self) -> SetState:
        """The set, open: its first Change List begins right before the first change."""
        seen = self._catalog.create(self.name)
        if seen.opened_at is None:
            self.may_record()
            seen = self._catalog.open(self.name, self._clock() - _TICK)
        return seen

    def _record(
        self,
        events: list[Upsert],
        seen: SetState,
        rows: list[StateRow],
        old: list[tuple[str, str]],
        now: dt.datetime | None = None,
    ) -> None:
        self.may_record()
        update = StateUpdate(put=rows, delete=old)
        self._catalog.record(self.name, events, now or self._clock(), after=seen, state=update)

    def _pause(self) -> None:
        if self.stop():
            raise Stopped


def _unchanged(state: DatasetState) -> DatasetOutcome:
    return DatasetOutcome(news=DatasetNews.UNCHANGED, quads=state.quads, octets=state.octets)
