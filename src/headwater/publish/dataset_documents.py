"""Publishes the files of an RDF dataset: patches, the dataset, its description, before the lists that name them.

It is described in Turtle, by the vocabularies VoID and DCAT (TIM-10).
"""

import datetime as dt
import re
from pathlib import Path
from typing import Final

from headwater.datasets.dataset_folder import DatasetFolder, blocks_of
from headwater.datasets.rows import (
    DATASET_TYPE,
    DatasetState,
    patches_from,
    read_dataset,
)
from headwater.publish.site import SetSettings, Site, dataset_name, dataset_patch_name, description_name
from headwater.publish.store_writer import DocumentMark, PublicationJob, decode_mark
from headwater.rdf import N_QUADS_DIFF
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
    title = "".join(_ESCAPES.get(one, one if one.isprintable() else " ") for one in settings.title or name)
    lines.append(f'    dcterms:title "{title}" ;')
    if settings.licence is not None:
        lines.append(f"    dcterms:license <{settings.licence}> ;")
    lines.append(f'    dcterms:modified "{format_datetime(at)}"^^xsd:dateTime ;')
    lines.append(f"    void:triples {state.quads} ;")
    lines.append(f"    void:dataDump <{dataset}> ;")
    counts = state.counts
    if "properties" not in counts.incomplete:
        lines.append(f"    void:properties {len(counts.properties)} ;")
    if "classes" not in counts.incomplete:
        lines.append(f"    void:classes {len(counts.classes)} ;")
    for iri, count in _largest(counts.classes):
        lines.append(f"    void:classPartition [ void:class <{iri}> ; void:entities {count} ] ;")
    for iri, count in _largest(counts.properties):
        lines.append(f"    void:propertyPartition [ void:property <{iri}> ; void:triples {count} ] ;")
    for iri, count in _largest(counts.graphs):
        graph = f"sd:graph [ a void:Dataset ; void:triples {count} ]"
        lines.append(f"    sd:namedGraph [ sd:name <{iri}> ; {graph} ] ;")
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


def _largest(counts: dict[str, int]) -> list[tuple[str, int]]:
    fit = [(iri, count) for iri, count in counts.items() if not _UNFIT.search(iri)]
    return sorted(fit, key=lambda one: (-one[1], one[0]))[:MOST_PARTITIONS]


_DATASET: Final = ObjectKind(DATASET_TYPE, has_gzip=True)
_PATCH: Final = ObjectKind(N_QUADS_DIFF, has_gzip=True)


def publish_dataset(job: PublicationJob, folder_of_state: Path) -> tuple[tuple[str, ...], list[str]]:
    """Put the files of a dataset that are not there, or not as they were left, into the store.

    Returns the names of the dataset and its description, and those of all patches of the series. Patches come first:
    when the dataset is replaced, what leads to it is there; then the lists follow. Raises BrokenSeries, and the store's
    faults.
    """
    folder, writer, is_as_left = DatasetFolder(folder_of_state, job.name), job.store_writer, job.context.is_as_left
    state, patches = read_dataset(job.context.catalog, job.name), list[str]()
    if state is None:
        return (), patches
    for patch in patches_from(job.context.catalog, job.name, state.first):
        name = dataset_patch_name(job.name, patch.seq, patch.sha256)
        patches.append(name)
        if not is_as_left(name):
            mark = DocumentMark(generation=writer.generation, latest=job.now, seq=patch.seq, is_closed=True)
            writer.blocks(name, blocks_of(folder.patch_of(patch)), mark.encode, _PATCH)
    changes = job.context.catalog.changes(job.name, state.seq - 1, 1)
    lastmod, name = changes[0].metadata.lastmod if changes else None, dataset_name(job.name)
    held = decode_mark(job.context.store.mark(name))
    if held is None or (held.generation, held.seq) != (writer.generation, state.seq) or not is_as_left(name):
        mark = DocumentMark(generation=writer.generation, latest=job.now, seq=state.seq, changed=lastmod)
        writer.blocks(name, blocks_of(folder.dataset_of(state)), mark.encode, _DATASET)
    at = job.snapshot.state.last_at if state.seq == job.snapshot.state.last_seq else None
    text = description(job.context.site, job.settings, state, changes[0].at if changes else at or job.now)
    about = description_name(job.name)
    mark = DocumentMark(generation=writer.generation, latest=job.now, seq=state.seq)
    if not writer.says(about, [text]):
        writer.blocks(about, [text], mark.encode, TURTLE)
    return (name, about), patches
