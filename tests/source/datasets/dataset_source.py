"""Sources of RDF datasets for tests: one round at a time, or at work in threads behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from headwater.progress import Notice
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from headwater.source.worker import SetResult
from tests.source.datasets.importer import ImportedDataset, dataset_file, datasets, import_changes
from tests.support.serving import Face, source_at_work

BASE = "http://data.example/sync"


def triples(*numbers: int, value: str = "v") -> str:
    """N-Triples, a statement for each number."""
    return "".join(f'<http://d.example/s{n}> <http://d.example/p> "{value}{n}" .\n' for n in numbers)


class Rounds:
    """A source in a state folder that is opened anew for each round; its documents are read as files."""

    def __init__(self, folder: Path, *sets: SetConfig, base: str = BASE, **options: object) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config = SourceConfig(state=str(self.state), sets=sets, base_url=base, **options)  # type: ignore[arg-type]
        self.notices: list[Notice] = []

    def run(self) -> list[SetResult]:
        """One round."""
        with Source(self.config, listener=self._hear) as source:
            return source.run_once()

    def fetch(self, url: str) -> bytes:
        """A document by its URL."""
        assert self.config.base_url is not None
        assert url.startswith(self.config.base_url + "/"), url
        return (self.state / "documents" / url.removeprefix(self.config.base_url + "/")).read_bytes()

    def document(self, name: str) -> bytes:
        """A document by its name."""
        return self.fetch(f"{self.config.base_url}/{name}")

    def imported(self, name: str = "d", into: ImportedDataset | None = None) -> ImportedDataset:
        """The dataset as the importer has it, which is that of the dataset file (TIM-08)."""
        into = into or ImportedDataset()
        offered = datasets(self.fetch, str(self.config.base_url))[f"{self.config.base_url}/{name}/capabilitylist.xml"]
        import_changes(self.fetch, offered["changelist"], into)
        assert b"".join(sorted(into.lines)) == dataset_file(self.fetch, offered["resourcelist"])
        return into

    def _hear(self, event: object) -> None:
        if isinstance(event, Notice):
            self.notices.append(event)


def file_set(path: Path, name: str = "d", **options: object) -> SetConfig:
    """The configuration of a set that publishes a file, or a folder of files."""
    return SetConfig(name=name, profile="rdf-dataset", dataset=str(path), **options)  # type: ignore[arg-type]


class DatasetServer(Face):
    """A server over a source of datasets at work."""

    def fetch(self, url: str) -> bytes:
        """What is answered at a URL of the source."""
        answer = self.get(urlsplit(url).path)
        assert answer.status == 200, (url, answer)
        return answer.body

    def imported(self, name: str = "d") -> set[bytes]:
        """The statements as the importer has them."""
        into = ImportedDataset()
        offered = datasets(self.fetch, self.url)[f"{self.url}/{name}/capabilitylist.xml"]
        import_changes(self.fetch, offered["changelist"], into)
        assert b"".join(sorted(into.lines)) == dataset_file(self.fetch, offered["resourcelist"])
        return into.lines

    def health(self) -> dict[str, object]:
        """What `/health` says."""
        told: dict[str, object] = msgspec.json.decode(self.get("/health").body)
        return told


@contextmanager
def dataset_server(
    state: Path, sets: Sequence[SetConfig], *, before: Callable[[Source], None] = lambda _source: None
) -> Iterator[DatasetServer]:
    """A source of these sets at work, and served."""
    config = SourceConfig(state=str(state), sets=tuple(sets))
    with source_at_work(
        DatasetServer, lambda url: msgspec.structs.replace(config, base_url=url), before=before
    ) as running:
        yield running
