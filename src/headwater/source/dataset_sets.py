"""The sets of a source that publish RDF datasets: makes their intakes and tasks from the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.publish.site import Site
from headwater.source.config import SetConfig
from headwater.source.folder_pipeline import PipelineResult
from headwater.source.scan_settings import FolderOverlap
from headwater.source.source_context import SourceContext

if TYPE_CHECKING:  # with it come the parsers, which other sets do not need
    from headwater.ingest.datasets.inputs import DatasetInput
    from headwater.ingest.folder.dry_run import DryRun
    from headwater.source.dataset_set import DatasetSet
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

    def schedule(self, context: SourceContext, scheduler: Scheduler) -> list[DatasetSet]:
        """Have this scheduler keep the sets current, which are returned."""
        sets = [self._set(context, one, scheduler.stopping.is_set) for one in self._configs]
        for one in sets:
            scheduler.add(one)
        return sets

    def run_once(self, context: SourceContext) -> list[PipelineResult]:
        """Bring each set up to date once. Raises whatever is wrong with one."""
        from headwater.ingest.datasets.intake import DatasetNews
        from headwater.ingest.folder.event_builder import ScanResult

        results = []
        for config in self._configs:
            outcome, published = self._set(context, config, lambda: False).work()
            is_changed = outcome.news is DatasetNews.CHANGED
            scanned = ScanResult(
                opened=outcome.is_first,
                created=int(is_changed and outcome.is_first),
                updated=int(is_changed and not outcome.is_first),
                unchanged=int(not is_changed),
                read=1,
                octets=outcome.octets,
            )
            results.append(PipelineResult(name=config.name, scanned=scanned, published=published))
        return results

    def survey(self, context: SourceContext, name: str) -> DryRun:
        """Whether `run_once` would read the dataset of a set, by what is known without reading it."""
        from headwater.ingest.folder.dry_run import DryRun

        intake = self._set(context, next(one for one in self._configs if one.name == name), lambda: False).intake
        if intake.state is None:
            return DryRun(new=1)
        return DryRun(unchanged=1) if intake.is_unchanged() else DryRun(changed=1)

    def _set(self, context: SourceContext, config: SetConfig, stop: Callable[[], bool]) -> DatasetSet:
        from headwater.datasets.dataset_folder import DatasetFolder
        from headwater.ingest.datasets.inputs import PathOrCopy
        from headwater.ingest.datasets.intake import DatasetIntake, DatasetRules
        from headwater.rdf.canonical import BlankNodes
        from headwater.source.dataset_set import DatasetSet

        rules = DatasetRules(
            blank_nodes=BlankNodes(config.blank_nodes),
            genid=config.genid or self._genid(config.name),
            may_be_empty=config.may_be_empty,
        )
        folder = DatasetFolder(context.state, config.name)
        made_of = _input(config, self._site.base_url)
        intake = DatasetIntake(context.catalog, config.name, folder, made_of, rules, context.clock)
        if isinstance(made_of, PathOrCopy):
            intake.origin = made_of.origin
        intake.may_record, intake.stop, intake.listener = context.may_record, stop, context.listener
        return DatasetSet(context, intake, config.dataset_pause)

    def _genid(self, name: str) -> str:
        """Below the well-known place of this origin (section 3.5 of RDF 1.1 Concepts)."""
        parts = urlsplit(self._site.base_url)
        return f"{parts.scheme}://{parts.netloc}/.well-known/genid/{name}/"


def _input(config: SetConfig, base_url: str) -> DatasetInput:
    from headwater.ingest.datasets import inputs
    from headwater.ingest.datasets.inputs import PathOrCopy
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
    return PathOrCopy(path, base_url, config.base_iri)
