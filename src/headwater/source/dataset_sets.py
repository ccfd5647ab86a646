"""The sets of a source that publish RDF datasets: makes their intakes and tasks from the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.publish.site import Site
from headwater.source.config import SetConfig
from headwater.source.scan_settings import FolderOverlap
from headwater.source.worker import SetResult, SetWorker, SourceContext

if TYPE_CHECKING:  # with it come the parsers, which other sets do not need
    from headwater.ingest.datasets.inputs import DatasetInput
    from headwater.ingest.datasets.intake import DatasetIntake
    from headwater.ingest.folder.event_builder import ScanResult
    from headwater.source.published_dataset import PublishedDataset
    from headwater.source.scheduler import Scheduler


class DatasetSets:
    """Those among `sets` that are RDF datasets; nothing is made while there are none."""

    def __init__(self, sets: Iterable[SetConfig], site: Site) -> None:
        self._site = site
        self._configs = [one for one in sets if one.is_dataset]

    def refuse_overlap(self, *ours: str | None) -> None:
        """See that no dataset is made of what we write ourselves into these folders. Raises FolderOverlap."""
        folders = [os.path.join(os.path.realpath(one), "") for one in ours if one is not None]
        for config in self._configs:
            path = os.path.join(os.path.realpath(config.dataset or config.oxigraph or os.devnull), "")
            if any(path.startswith(one) or one.startswith(path) for one in folders):
                what = "what the dataset is made of overlaps with the state or the output"
                raise FolderOverlap(what, where=config.dataset or config.oxigraph)

    def schedule(self, context: SourceContext, scheduler: Scheduler) -> list[SetWorker]:
        """Have this scheduler keep the sets current; who does is returned."""
        stop = scheduler.stopping.is_set
        workers = [SetWorker(context, self._published(context, one, stop), stop) for one in self._configs]
        for one in workers:
            scheduler.add(one)
        return workers

    def run_once(self, context: SourceContext) -> list[SetResult]:
        """Bring each set up to date once. Raises whatever is wrong with one."""
        return [SetWorker(context, self._published(context, one, waits=True)).once() for one in self._configs]

    def survey(self, context: SourceContext, name: str) -> ScanResult:
        """Whether `run_once` would read the dataset of a set, by what is known without reading it."""
        from headwater.ingest.folder.event_builder import ScanResult

        intake = self._intake(context, next(one for one in self._configs if one.name == name), lambda: False)
        if intake.state is None:
            return ScanResult(created=1, read=1)
        return ScanResult(unchanged=1) if intake.is_unchanged() else ScanResult(updated=1, read=1)

    def _published(
        self,
        context: SourceContext,
        config: SetConfig,
        stop: Callable[[], bool] = lambda: False,
        *,
        waits: bool = False,
    ) -> PublishedDataset:
        from headwater.source.published_dataset import PublishedDataset

        return PublishedDataset(context, self._intake(context, config, stop), config.dataset_pause, waits=waits)

    def _intake(self, context: SourceContext, config: SetConfig, stop: Callable[[], bool]) -> DatasetIntake:
        from headwater.datasets.dataset_folder import DatasetFolder
        from headwater.ingest.datasets.intake import DatasetIntake, DatasetRules
        from headwater.rdf.canonical import BlankNodes

        rules = DatasetRules(
            blank_nodes=BlankNodes(config.blank_nodes),
            genid=config.genid or self._genid(config.name),
            may_be_empty=config.may_be_empty,
        )
        folder = DatasetFolder(context.state, config.name)
        made_of = _input(config, self._site.base_url)
        intake = DatasetIntake(context.catalog, config.name, folder, made_of, rules, context.clock)
        intake.may_record, intake.stop, intake.listener = context.may_record, stop, context.listener
        return intake

    def _genid(self, name: str) -> str:
        """Below the well-known place of this origin (section 3.5 of RDF 1.1 Concepts)."""
        parts = urlsplit(self._site.base_url)
        return f"{parts.scheme}://{parts.netloc}/.well-known/genid/{name}/"


def _input(config: SetConfig, base_url: str) -> DatasetInput:
    from headwater.ingest.datasets import inputs
    from headwater.rdf.syntaxes import NAMES

    if config.sparql is not None:
        from headwater.sparql.endpoint import EndpointAddress, SparqlEndpoint

        address = EndpointAddress(update=config.sparql, authorization=config.authorization(os.environ))
        return inputs.EndpointInput(config.sparql, lambda: SparqlEndpoint(address))
    if config.oxigraph is not None:
        return inputs.StoreInput(Path(config.oxigraph))
    assert config.dataset is not None
    path = Path(config.dataset)
    if config.syntax is not None:
        return inputs.PathInput(path, base_url, NAMES[config.syntax], config.base_iri)
    return inputs.PathOrCopy(path, base_url, config.base_iri)
