"""One set that publishes an RDF dataset, as a task of the scheduler: looks at what it is made of, and publishes.

Before each publication the dataset and its patches are checked: where they do not agree, nothing is published, and the
health of the set says so until they do.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder
from headwater.datasets.rows import FAULT_KEY, fault_update
from headwater.ingest import dataset_inputs as inputs
from headwater.ingest.dataset_intake import DatasetIntake, DatasetNews, DatasetRules
from headwater.ingest.folder.comparison import ScanResult
from headwater.progress import Notice
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.rdf.canonical import BlankNodes
from headwater.rdf.syntaxes import NAMES
from headwater.source.config import SetConfig
from headwater.source.set_health import SetHealth
from headwater.source.worker import Intake, Looked, SourceContext

SOON_SECONDS: Final = 0.5
"""Until the next look at what has just changed."""


class PublishedDataset(Intake):
    """The dataset of one set. With `waits` a look waits until what it is made of is at rest."""

    refresh = Refresh.STALE

    def __init__(
        self, context: SourceContext, config: SetConfig, stop: Callable[[], bool], *, waits: bool = False
    ) -> None:
        super().__init__(context, config.name)
        self._pause_seconds = config.dataset_pause
        self._intake = dataset_intake(context, config, stop)
        self._waits = waits
        self._is_continued = self._is_unsettled = False
        self._at: dt.datetime | None = None
        """When the dataset was looked at last."""

    @property
    def phase(self) -> str:
        """What health says while nothing fails."""
        return "waiting until the dataset is at rest" if self._is_unsettled else "following"

    def begin(self) -> None:
        """Bring the files to what is recorded, unless a user has asked for a new beginning."""
        try:
            self._intake.begin()
        except BrokenSeries:
            if not self._intake.folder.restart_note.exists():
                raise

    def look(self) -> Looked:
        """Take the present state where it is another one than is recorded."""
        is_anew = self._begin_anew_if_due()
        at = self._context.clock()
        outcome = self._intake.look()
        while self._waits and outcome.news is DatasetNews.UNSETTLED:
            time.sleep(SOON_SECONDS)
            at = self._context.clock()
            outcome = self._intake.look()
        self._is_unsettled = outcome.news is DatasetNews.UNSETTLED
        if not self._is_unsettled:
            self._at = at
        is_changed = outcome.news is DatasetNews.CHANGED
        if is_changed:
            text = (
                f"{self.name}: statements added {outcome.added:,}, removed {outcome.removed:,}; now {outcome.quads:,}"
            )
            self._context.listener(Notice("HW-DAT-11", text))
        scanned = ScanResult(
            opened=outcome.is_first,
            created=int(is_changed and outcome.is_first),
            updated=int(is_changed and not outcome.is_first),
            unchanged=int(not is_changed),
            read=1,
            octets=outcome.octets,
        )
        return Looked(at=None if self._is_unsettled else at, is_changed=is_changed or is_anew, scanned=scanned)

    def pause_after(self, looked_seconds: float, health: SetHealth) -> float:
        """As configured; what has just changed is looked at again soon."""
        pause = min(self._pause_seconds, SOON_SECONDS) if self._is_unsettled else self._pause_seconds
        return max(0.0, pause - looked_seconds)

    def known_at(self) -> dt.datetime | None:
        """When it was looked at last."""
        return self._at

    def may_publish(self) -> bool:
        """Whether there is something, which has been checked. Raises BrokenSeries."""
        if self._intake.state is None:
            return False
        if not self._is_continued:  # once there is something that may not continue what was published before
            self._context.publisher.reset_history(self.name)
            self._is_continued = True
        self._begin_anew_if_due()
        self._intake.check()
        return True

    def _begin_anew_if_due(self) -> bool:
        """Let the patches begin anew from nothing where the Change Lists do, or a user asks for it."""
        note, state = self._intake.folder.restart_note, self._intake.state
        is_asked = note.exists()
        if state is None:
            note.unlink(missing_ok=True)
            return False
        if is_asked:
            self._context.publisher.restart_history(self.name)
        catalog = self._catalog  # the number of the first change that the Change Lists may name
        history = decode_publication(catalog.state(self.name).notes).history
        first = next((one.first for one in catalog.segments(self.name) if one.number >= history), 0)
        if not is_asked and state.first >= first:
            return False
        self._intake.begin_anew()
        self._at = self._context.clock()  # a Resource List of before that change would leave a gap to the Change List
        note.unlink(missing_ok=True)
        self._context.listener(Notice("HW-DAT-13", f"{self.name}: its patches begin anew from nothing"))
        return True

    def note(self, fault: str | None) -> None:
        """Have `headwater status` say what is wrong, or that nothing is. Raises faults of the catalog."""
        catalog = self._context.catalog
        update = fault_update(fault)
        if fault is not None or catalog.rows(self.name, [FAULT_KEY]):
            self._context.may_record()
            if catalog.create(self.name).opened_at is None:
                catalog.load(self.name, (), state=update)
            else:
                catalog.record(self.name, (), self._context.clock(), state=update)


def dataset_intake(context: SourceContext, config: SetConfig, stop: Callable[[], bool]) -> DatasetIntake:
    """The intake of a set that is an RDF dataset; blank nodes become IRIs (section 3.5 of RDF 1.1 Concepts)."""
    parts = urlsplit(context.site.base_url)
    rules = DatasetRules(
        blank_nodes=BlankNodes(config.blank_nodes),
        genid=config.genid or f"{parts.scheme}://{parts.netloc}/.well-known/genid/{config.name}/",
        may_be_empty=config.may_be_empty,
    )
    folder, find_input = DatasetFolder(context.state, config.name), partial(_input, config, context.site.base_url)
    intake = DatasetIntake(context.catalog, config.name, folder, find_input, rules, context.clock)
    intake.may_record, intake.stop, intake.listener = context.may_record, stop, context.listener
    return intake


def survey(context: SourceContext, config: SetConfig) -> ScanResult:
    """Whether one round would read the dataset, by what is known without reading it."""
    intake = dataset_intake(context, config, lambda: False)
    if intake.state is None:
        return ScanResult(created=1, read=1)
    return ScanResult(unchanged=1) if intake.is_unchanged() else ScanResult(updated=1, read=1)


def _input(config: SetConfig, base_url: str) -> inputs.DatasetInput:
    """What a dataset is made of, as it is by now."""
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
