"""Publishes the files of an RDF dataset: patches, the dataset, its description, before the lists that name them.

It is described in Turtle, by the vocabularies VoID and DCAT (TIM-10).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headwater.datasets.dataset_folder import DatasetFolder, blocks_of
from headwater.datasets.rows import (
    DATASET_TYPE,
    PATCH_TYPE,
    DatasetCounts,
    DatasetPatch,
    DatasetState,
    patches_from,
    read_dataset,
)
from headwater.publish.site import SetSettings, Site, dataset_name, dataset_patch_name, description_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, decode_mark
from headwater.spec.times import format_datetime
from headwater.storage.object_store import ObjectKind

TURTLE: Final = ObjectKind("text/turtle; charset=utf-8", has_gzip=True)
MOST_PARTITIONS: Final = 100
"""Of properties, classes and graphs each, the largest first."""
_PREFIXES: Final = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "sd": "http://www.w3.org/ns/sparql-service-description#",
    "spdx": "http://spdx.org/rdf/terms#",
    "void": "http://rdfs.org/ns/void#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_UNFIT = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def description(site: Site, settings: SetSettings, state: DatasetState, at: dt.datetime) -> bytes:
    """The description of a dataset that changed last at this time."""
    name = settings.name
    about, dataset = site.url(description_name(name)), site.url(dataset_name(name))
    lines = [f"@prefix {prefix}: <{iri}> ." for prefix, iri in _PREFIXES.items()]
    lines += ["", f"<{about}> a void:DatasetDescription ;", f"    foaf:primaryTopic <{about}#dataset> .", ""]
    lines.append(f"<{about}#dataset> a void:Dataset, dcat:Dataset ;")
    lines.append(f"    dcterms:title {_text(settings.title or name)} ;")
    if settings.licence is not None:
        lines.append(f"    dcterms:license <{settings.licence}> ;")
    lines.append(f'    dcterms:modified "{format_datetime(at)}"^^xsd:dateTime ;')
    lines.append(f"    void:triples {state.quads} ;")
    lines.append(f"    void:dataDump <{dataset}> ;")
    lines += [f"    {line}" for line in _counted(state.counts)]
    lines.append(f"    dcat:distribution <{about}#dump> .")
    lines += [
        "",
        f"<{about}#dump> a dcat:Distribution ;",
        f"    dcat:downloadURL <{dataset}> ;",
        f"    dcat:accessURL <{dataset}> ;",
        f"    dcat:mediaType <https://www.iana.org/assignments/media-types/{DATASET_TYPE}> ;",
        f"    dcat:byteSize {state.octets} ;",
        "    spdx:checksum [",
        "        spdx:algorithm spdx:checksumAlgorithm_sha256 ;",
        f'        spdx:checksumValue "{state.sha256}"^^xsd:hexBinary',
        "    ] .",
        "",
    ]
    return "\n".join(lines).encode()


def _counted(counts: DatasetCounts) -> Iterator[str]:
    if "properties" not in counts.incomplete:
        yield f"void:properties {len(counts.properties)} ;"
    if "classes" not in counts.incomplete:
        yield f"void:classes {len(counts.classes)} ;"
    for iri, count in _largest(counts.classes):
        yield f"void:classPartition [ void:class <{iri}> ; void:entities {count} ] ;"
    for iri, count in _largest(counts.properties):
        yield f"void:propertyPartition [ void:property <{iri}> ; void:triples {count} ] ;"
    for iri, count in _largest(counts.graphs):
        yield f"sd:namedGraph [ sd:name <{iri}> ; sd:graph [ a void:Dataset ; void:triples {count} ] ] ;"


def _largest(counts: dict[str, int]) -> list[tuple[str, int]]:
    fit = [(iri, count) for iri, count in counts.items() if not _UNFIT.search(iri)]
    return sorted(fit, key=lambda one: (-one[1], one[0]))[:MOST_PARTITIONS]


def _text(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else " ") for one in text) + '"'


_DATASET: Final = ObjectKind(DATASET_TYPE, has_gzip=True)
_PATCH: Final = ObjectKind(PATCH_TYPE, has_gzip=True)


class DatasetDocuments:
    """The files of one dataset during one publication, from those of its folder below `state`.

    Patches come first: when the dataset is replaced, what leads to it is there; then the lists follow.
    """

    def __init__(self, job: PublicationJob, state: Path | None) -> None:
        self._job = job
        self._folder = DatasetFolder(state, job.name) if job.settings.dataset and state is not None else None
        self.patches: list[str] = []
        """The names of all patches of the series."""

    def publish(self) -> tuple[str, ...]:
        """Put what is not there, or not as it was left, into the store; the names of the dataset and its description.

        Raises BrokenSeries, and the store's faults.
        """
        job, folder = self._job, self._folder
        state = None if folder is None else read_dataset(job.context.catalog, job.name)
        if folder is None or state is None:
            return ()
        for patch in patches_from(job.context.catalog, job.name, state.first):
            self._put_patch(folder, patch)
        changes = job.context.catalog.changes(job.name, state.seq - 1, 1)
        self._put_dataset(folder, state, changes[0].metadata.lastmod if changes else None)
        at = job.snapshot.state.last_at if state.seq == job.snapshot.state.last_seq else None
        text = description(job.context.site, job.settings, state, changes[0].at if changes else at or job.now)
        name = description_name(job.name)
        mark = DocumentMark(generation=job.store_writer.generation, latest=job.now, seq=state.seq)
        if not job.store_writer.says(name, [text]):
            job.store_writer.blocks(name, [text], mark.encode, TURTLE)
        return dataset_name(job.name), name

    def _put_patch(self, folder: DatasetFolder, patch: DatasetPatch) -> None:
        job, name = self._job, dataset_patch_name(self._job.name, patch.seq, patch.sha256)
        self.patches.append(name)
        if not job.integrity.is_as_left(name):
            mark = self._mark(patch.seq, is_closed=True)
            job.store_writer.blocks(name, blocks_of(folder.patch_of(patch)), mark.encode, _PATCH)

    def _put_dataset(self, folder: DatasetFolder, state: DatasetState, lastmod: dt.datetime | None) -> None:
        job, name = self._job, dataset_name(self._job.name)
        mark = decode_mark(job.context.store.mark(name))
        is_there = mark is not None and (mark.generation, mark.seq) == (job.store_writer.generation, state.seq)
        if not is_there or not job.integrity.is_as_left(name):
            made = self._mark(state.seq, lastmod)
            job.store_writer.blocks(name, blocks_of(folder.dataset_of(state)), made.encode, _DATASET)

    def _mark(self, seq: int, lastmod: dt.datetime | None = None, *, is_closed: bool = False) -> DocumentMark:
        job = self._job
        return DocumentMark(
            generation=job.store_writer.generation, latest=job.now, seq=seq, changed=lastmod, is_closed=is_closed
        )
