"""One set that publishes an RDF dataset, as a task of the scheduler: looks at what it is made of, and publishes.

1. All patches kept, and the recorded state, are as they were made.
2. What the dataset is made of is read as canonical N-Quads into the scratch folder; where it has changed meanwhile, it
   is read again. Where the digest is the recorded one, nothing has changed.
3. The patch from the recorded state is made. Applied to that state, it gives the new one; so all of them in series on
   nothing give it, too (TIM-08).
4. Both files are put in their places, by names that nothing else has.
5. The change is recorded, and with it the rows that name the files: from then on it is true.
6. The file of the state before is removed.

Killed before 5, the files are left over and removed at the next start; after 5, the state before is.

Before each publication the dataset and its patches are checked: where they do not agree, nothing is published, and the
health of the set says so until they do.
"""

import datetime as dt
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from headwater.catalog.interface import Metadata, SetState, StateRow, StateUpdate, UnknownSet, Upsert
from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder, InputChanged, file_digest, replayed
from headwater.datasets.rows import (
    DATASET_FILE,
    DATASET_TYPE,
    FAULT_KEY,
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
from headwater.ingest import dataset_inputs as inputs
from headwater.ingest.folder.comparison import ScanResult
from headwater.progress import Notice
from headwater.publish import dataset_documents
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.rdf import BadRdf
from headwater.rdf.canonical import BAD_LINES_SHOWN, BlankNodes, DatasetSummary, RdfOptions, write_canonical
from headwater.rdf.syntaxes import NAMES
from headwater.rdf.unified_diff import PatchSummary, merge_patches, write_patch
from headwater.source.config import SetConfig
from headwater.source.set_health import PAUSES, SetHealth
from headwater.source.worker import Intake, Looked, SourceContext
from headwater.spec.records import ChangeKind
from headwater.spec.times import MICROSECOND

SOON_SECONDS: Final = 0.5  # until the next look at what has just changed
SETTLED_SECONDS: Final = 1.0
"""What changed more recently may be under way, and its times do not tell one change from the next."""
_READINGS: Final = 3
_LINES: Final = 10_000


class PublishedDataset(Intake):
    """The dataset of one set; blank nodes become IRIs (section 3.5 of RDF 1.1 Concepts).

    With `waits` a look waits until what it is made of is at rest.
    """

    refresh = Refresh.STALE
    fault_key = FAULT_KEY

    def __init__(
        self, context: SourceContext, config: SetConfig, stop: Callable[[], bool], *, waits: bool = False
    ) -> None:
        super().__init__(context, config.name, stop)
        parts = urlsplit(context.site.base_url)
        genid = config.genid or f"{parts.scheme}://{parts.netloc}/.well-known/genid/{config.name}/"
        self.folder = DatasetFolder(context.state, config.name)
        self._config = config
        self._options = RdfOptions(
            BlankNodes(config.blank_nodes), genid, bad_lines=self._leave_out if config.lenient else None
        )
        self._left_out = 0
        self._bad_lines: list[BadRdf] = []
        """How many bad statements were left out at the last reading, and the first of them."""
        self._waits = waits
        self._input = self._find_input()
        self._ahead: bytes | None = None  # the signature of what had times ahead of the clock at the last look
        self._is_unsettled = False
        self._at: dt.datetime | None = None  # when the dataset was looked at last
        self.most_retry_seconds = config.dataset_pause
        self._failed: tuple[SourceFault, bytes | None, float] | None = None
        """The fault of the last look, of which state of the input it is, and until when that is not read again."""
        self._failures = 0

    @property
    def phase(self) -> str:
        """What health says while nothing fails."""
        return "waiting until nobody writes to the dataset" if self._is_unsettled else "following"

    @property
    def state(self) -> DatasetState | None:
        """What is recorded."""
        try:
            return read_dataset(self._catalog, self.name)
        except UnknownSet:
            return None

    def survey(self) -> ScanResult:
        """Whether one round would read the dataset, by what is known without reading it."""
        if self.state is None:
            return ScanResult(created=1, read=1)
        return ScanResult(unchanged=1) if self._is_unchanged() else ScanResult(updated=1, read=1)

    def begin(self) -> None:
        """Bring the folder to what is recorded: what a killed run has left goes."""
        state = self.state
        with suppress(UnknownSet):
            seen = self._catalog.state(self.name)
            if state is None and (seen.count or seen.last_seq):  # a dataset has no other history (TIM-06)
                raise UsageFault("the set has had other resources", where=self.name, code="HW-DAT-06")
        self.folder.keep(state, [] if state is None else patches_from(self._catalog, self.name))

    def look(self) -> Looked:
        """Take the present state where it is another one than is recorded.

        Raises BadRdf and its kinds, InputChanged, SourceFault, BrokenSeries, Stopped, and faults of the
        catalog; what was recorded stays.
        """
        is_anew, seen = self._begin_anew_if_due(), None
        with suppress(SourceFault):
            seen = self._signature()
        if self._failed is not None and seen == self._failed[1] and time.monotonic() < self._failed[2]:
            raise self._failed[0].with_traceback(None)
        try:
            at, scanned = self._context.clock(), self._look()
            while self._waits and scanned is None:
                time.sleep(SOON_SECONDS)
                at, scanned = self._context.clock(), self._look()
        except SourceFault as fault:
            self._failures += 1
            self._failed = fault, seen, time.monotonic() + PAUSES.seconds(self._failures)
            raise
        self._failed, self._failures = None, 0
        self._is_unsettled = scanned is None
        if scanned is None:
            return Looked(is_changed=is_anew)
        self._at = at
        return Looked(at=at, is_changed=is_anew or scanned.changes > 0, scanned=scanned)

    def pause_after(self, looked_seconds: float, health: SetHealth) -> float:
        """As configured; what has just changed is looked at again soon."""
        pause = self._config.dataset_pause
        return max(0.0, (min(pause, SOON_SECONDS) if self._is_unsettled else pause) - looked_seconds)

    def known_at(self) -> dt.datetime | None:
        """When it was looked at last."""
        return self._at

    def may_publish(self) -> bool:
        """Whether there is something, which has been checked. Raises BrokenSeries."""
        if self.state is None:
            return False
        self._context.publisher.reset_history(self.name)  # it may not continue what was published before
        self._begin_anew_if_due()
        self.check()
        return True

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

    def _find_input(self) -> inputs.DatasetInput:
        config, base_url = self._config, self._context.site.base_url
        if config.sparql is not None:
            from headwater.triplestores.sparql_endpoint import EndpointAddress, SparqlEndpoint

            address = EndpointAddress(update=config.sparql, authorization=config.authorization(os.environ))
            return inputs.EndpointInput(config.sparql, lambda: SparqlEndpoint(address))
        if config.oxigraph is not None:
            return inputs.StoreInput(Path(config.oxigraph))
        assert config.dataset is not None
        path = Path(config.dataset)
        if config.syntax is not None:
            return inputs.PathInput(path, base_url, NAMES[config.syntax], config.base_iri)
        return inputs.input_at(path, base_url, config.base_iri)

    def _look(self) -> ScanResult | None:
        """None: what the dataset is made of is not at rest."""
        before, self._input = self.state, self._find_input()
        if before is not None and self._is_unchanged():
            return ScanResult(unchanged=1, read=1, octets=before.octets)
        if not self._is_settled():
            return None
        self.check()
        new, signature = self._read()
        read = [] if signature is None else [seen_row(signature)]
        if (origin := self._input.origin) is not None:
            read.append(origin_row(origin))
        if self._left_out > new.quads:  # it is something else than RDF, or almost nothing of it is
            first, said = self._bad_lines[0], f"{self._left_out:,} bad lines, {new.quads:,} good statements"
            raise BadRdf(f"{said}: not published although lenient; the first: {first.what}", where=first.where)
        if self._left_out:
            lines = "; ".join(f"{one.where}: {one.what}" for one in self._bad_lines)
            text = f"{self.name}: {self._left_out:,} bad statements are left out: {lines}"
            self._context.listener(Notice("HW-DAT-14", text))
        if before is not None and new.sha256 == before.sha256:
            if before.left_out != self._left_out:
                read.append(msgspec.structs.replace(before, left_out=self._left_out).row())
            if read:
                self._record([], self._seen(), read, [])
            self.folder.keep(before, patches_from(self._catalog, self.name))
            return ScanResult(unchanged=1, read=1, octets=before.octets)
        if not new.quads and not self._config.may_be_empty:
            raise SourceFault("there is no statement", where=self._input.where, code="HW-DAT-04")
        patch = self._take(before, new, read)
        text = f"statements added {patch.added:,}, removed {patch.removed:,}; now {new.quads:,}"
        if new.octets > dataset_documents.FORMS_OCTETS >= (before.octets if before else 0):
            text += f"; {new.octets / (1 << 20):.1f} MiB, offered as N-Quads only"
        self._context.listener(Notice("HW-DAT-11", f"{self.name}: {text}"))
        is_first = before is None
        return ScanResult(opened=is_first, created=int(is_first), updated=int(not is_first), read=1, octets=new.octets)

    def _begin_anew_if_due(self) -> bool:
        """Let the patches begin anew from nothing where the Change Lists do, or a user asks for it.

        The present state is recorded once more as created, by a patch of all of it: what was before counts no longer.
        """
        note, state = self.folder.restart_note, self.state
        is_asked = note.exists()
        if state is None:
            note.unlink(missing_ok=True)
            return False
        if is_asked:
            self._context.publisher.reset_history(self.name, is_asked=True)
        catalog = self._catalog  # the number of the first change that the Change Lists may name
        history = decode_publication(catalog.state(self.name).notes).history
        first = next((one.first for one in catalog.segments(self.name) if one.number >= history), 0)
        if not is_asked and state.first >= first:
            return False
        try:
            self.folder.check(self.folder.dataset_of(state), state.sha256, state.octets)
        except BrokenSeries:  # then what it is made of has to do
            new, _signature = self._read()
        else:
            new, self._left_out = DatasetSummary(state.quads, state.octets, state.sha256), state.left_out
            (self.folder.fresh_scratch() / "new.nq").hardlink_to(self.folder.dataset_of(state))
        self._take(None, new, [])
        self._at = self._context.clock()  # a Resource List of before that change would leave a gap to the Change List
        note.unlink(missing_ok=True)
        self._context.listener(Notice("HW-DAT-13", f"{self.name}: its patches begin again from nothing"))
        return True

    def _read(self) -> tuple[DatasetSummary, bytes | None]:
        """The present state in the scratch folder, and the signature of what it was made of."""
        for _reading in range(_READINGS):
            self._pause()
            scratch = self.folder.fresh_scratch()
            signature = self._signature()
            self._left_out, self._bad_lines = 0, []
            try:
                summary = self._write(scratch)
            except (BadRdf, InputChanged, FileNotFoundError):
                if signature is not None and self._signature() == signature:
                    raise
            else:
                if self._signature() == signature:
                    return summary, signature
            self._context.listener(Notice("HW-DAT-12", "the dataset changed while it was read", self._input.where))
        raise InputChanged(f"it changed {_READINGS} times while it was read", where=self._input.where)

    def _write(self, scratch: Path) -> DatasetSummary:
        return write_canonical(self._input.read(scratch), scratch / "new.nq", scratch=scratch, options=self._options)

    def _leave_out(self, count: int, first: Sequence[BadRdf]) -> None:
        self._left_out += count
        self._bad_lines = [*self._bad_lines, *first][:BAD_LINES_SHOWN]

    def _is_unchanged(self) -> bool:
        signature = self._signature()
        return signature is not None and self.state is not None and signature == read_seen(self._catalog, self.name)

    def _is_settled(self) -> bool:
        """Whether what the dataset is made of is at rest.

        Times that lie ahead (the clock was set back, or they are of another machine) do not tell; then it is at rest
        when it is as it was at the last look.
        """
        age_seconds = (time.time_ns() - self._input.changed_at_ns()) / 1e9
        if age_seconds >= 0:
            return age_seconds >= SETTLED_SECONDS
        before, self._ahead = self._ahead, self._signature()
        return self._ahead == before

    def _signature(self) -> bytes | None:
        found = self._input.signature()
        if found is None:
            return None
        options, may_be_empty = self._options, self._config.may_be_empty
        rules: dict[str, object] = {"blank_nodes": options.blank_nodes, "genid": options.genid}
        rules |= {"may_be_empty": may_be_empty} | ({"lenient": True} if self._config.lenient else {})
        return hashlib.sha256(msgspec.msgpack.encode((found, self._input.where, rules))).digest()

    def _take(self, base: DatasetState | None, new: DatasetSummary, rows: list[StateRow]) -> PatchSummary:
        """Make and prove the patch from `base` (None: from nothing), place both files, record the change."""
        self._pause()
        scratch, seen = self.folder.scratch, self._seen()
        made, patch_made = scratch / "new.nq", scratch / "new.nqud"
        with patch_made.open("wb") as file:
            summary = write_patch(self._file_of(base), made, file)
        self._prove(base, patch_made, new)
        seq = seen.last_seq + 1
        digest, octets = file_digest(patch_made), patch_made.stat().st_size
        patch = DatasetPatch(seq, digest, octets, summary.removed, summary.added, new.sha256)
        state = DatasetState(
            seq=seq,
            first=seq if base is None else base.first,
            sha256=new.sha256,
            octets=new.octets,
            quads=new.quads,
            counts=self._counted(base, made, patch_made),
            left_out=self._left_out,
        )
        self._pause()
        self._context.may_record()
        self.folder.place(patch_made, self.folder.patch_of(patch))
        self.folder.place(made, self.folder.dataset_of(state))
        old = [] if base is not None else [one.key for one in patches_from(self._catalog, self.name)]
        now = self._context.clock()
        metadata = Metadata(lastmod=now, hash=f"sha-256:{new.sha256}", length=new.octets, type=DATASET_TYPE)
        change = ChangeKind.CREATED if base is None else ChangeKind.UPDATED
        event = Upsert(DATASET_FILE, metadata, change=change)
        self._record([event], seen, [state.row(), patch.row(), *rows], old, now)
        self.folder.keep(state, patches_from(self._catalog, self.name))
        return summary

    def _prove(self, base: DatasetState | None, patch: Path, new: DatasetSummary) -> None:
        """See that the patch leads from the state before to the new one, as it lies there. Raises BrokenSeries."""
        self._pause()
        scratch = self.folder.scratch
        made = merge_patches(self._file_of(base), [patch], scratch / "proved.nq", scratch=scratch)
        without_effect = made.already_there + made.not_there
        if without_effect or not made.dataset.sha256 == file_digest(scratch / "new.nq") == new.sha256:
            raise BrokenSeries("the patch does not lead to the dataset", where=self._input.where)

    def _file_of(self, base: DatasetState | None) -> Path:
        return Path(os.devnull) if base is None else self.folder.dataset_of(base)

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
        patches = list(patches_from(self._catalog, self.name, state.first))
        made, summary = replayed(self.folder, patches, self.folder.fresh_scratch())
        if summary.sha256 != state.sha256:
            raise BrokenSeries("the patches do not lead to the dataset", where=str(self.folder.path))
        self.folder.place(made, self.folder.dataset_of(state))

    def _seen(self) -> SetState:
        """The set, open: its first Change List begins right before the first change."""
        seen = self._catalog.create(self.name)
        if seen.opened_at is None:
            self._context.may_record()
            seen = self._catalog.open(self.name, self._context.clock() - MICROSECOND)
        return seen

    def _record(
        self,
        events: list[Upsert],
        seen: SetState,
        rows: list[StateRow],
        old: list[tuple[str, str]],
        now: dt.datetime | None = None,
    ) -> None:
        self._context.may_record()
        update = StateUpdate(put=rows, delete=old)
        self._catalog.record(self.name, events, now or self._context.clock(), after=seen, state=update)
