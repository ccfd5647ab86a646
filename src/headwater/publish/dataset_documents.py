"""Publishes the files of an RDF dataset: patches, the dataset, its description, before the lists that name them.

It is described by the vocabularies VoID and DCAT (TIM-10), in Turtle and as JSON-LD. A small dataset is there in
further syntaxes, too: `http/documents.py` answers by `Accept` with one of them.
"""

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headwater.datasets.dataset_folder import DatasetFolder, blocks_of
from headwater.datasets.rows import DATASET_TYPE, DatasetState, patches_from, read_dataset
from headwater.publish.document_names import DATASET_FORMS
from headwater.publish.site import (
    SetSettings,
    Site,
    change_list_name,
    dataset_name,
    dataset_patch_name,
    description_name,
    is_url,
)
from headwater.publish.store_writer import DocumentMark, PublicationJob, decode_mark
from headwater.rdf import N_QUADS_DIFF, PREFIXES, BadRdf
from headwater.spec.times import format_datetime
from headwater.storage.object_store import ObjectKind

FORMS_OCTETS: Final = 4 << 20
"""A dataset of more is published as N-Quads alone: each further syntax is written, read again and compared for each
change, in about a second for so many octets."""
MOST_PARTITIONS: Final = 100  # of properties, classes and graphs each, the largest first
_PREFIXES: Final = {one: PREFIXES[one] for one in ["dcat", "dcterms", "foaf", "rdfs", "sd", "spdx", "void", "xsd"]}
_MEDIA_TYPES: Final = "https://www.iana.org/assignments/media-types/"
_UNFIT = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def description(
    site: Site, settings: SetSettings, state: DatasetState, at: dt.datetime, forms: list[str]
) -> dict[str, Any]:
    """The description of a dataset that changed last at this time and has these other syntaxes, as JSON-LD."""
    name, counts = settings.name, state.counts
    about, dataset = site.url(description_name(name)), site.url(dataset_name(name))
    digest = {"@value": state.sha256, "@type": "xsd:hexBinary"}
    algorithm = {"@id": "spdx:checksumAlgorithm_sha256"}
    checksum = {"@type": "spdx:Checksum", "spdx:algorithm": algorithm, "spdx:checksumValue": digest}
    patches = "Patches from each state to the next, by a ResourceSync Change List"
    resourcesync = {"@id": "http://www.openarchives.org/rs/1.1/resourcesync"}
    others = [(one, kind) for one, kind in DATASET_FORMS["dataset"] if f"{name}/{one}" in forms]
    dump: dict[str, Any] = {"dcat:byteSize": state.octets, "spdx:checksum": checksum}
    distributions = [
        {
            "@id": f"{about}#{part}",
            "@type": "dcat:Distribution",
            "dcterms:title": _text(title or f"All statements, as {kind}", "en"),
            **({"dcterms:license": {"@id": settings.licence}} if settings.licence else {}),
            **({} if title else {"dcat:downloadURL": {"@id": site.url(file)}}),
            "dcat:accessURL": {"@id": site.url(file)},
            "dcat:mediaType": {"@id": f"{_MEDIA_TYPES}{kind}"},
            **more,
        }
        for part, title, file, kind, more in (
            ("dump", "", dataset_name(name), DATASET_TYPE, dump),
            *((one, "", f"{name}/{one}", kind, {}) for one, kind in others),
            ("patches", patches, change_list_name(name), N_QUADS_DIFF, {"dcterms:conformsTo": resourcesync}),
        )
    ]
    told: dict[str, Any] = {
        "dcterms:title": _text(settings.title or name, settings.language),
        "dcterms:description": settings.description and _text(settings.description, settings.language),
        "dcterms:creator": [_agent(one) for one in settings.creator],
        "dcterms:publisher": settings.publisher and _agent(settings.publisher),
        "dcterms:identifier": settings.identifier and _text(settings.identifier),
        "dcterms:license": settings.licence and {"@id": settings.licence},
        "dcterms:provenance": _left_out(state.left_out),
        "dcterms:modified": {"@value": format_datetime(at), "@type": "xsd:dateTime"},
        "void:triples": state.quads,
        "void:dataDump": {"@id": dataset},
        "void:sparqlEndpoint": settings.endpoint and {"@id": settings.endpoint},
        "void:properties": None if "properties" in counts.incomplete else len(counts.properties),
        "void:classes": None if "classes" in counts.incomplete else len(counts.classes),
        "void:classPartition": [
            {"void:class": {"@id": iri}, "void:entities": count} for iri, count in _largest(counts.classes)
        ],
        "void:propertyPartition": [
            {"void:property": {"@id": iri}, "void:triples": count} for iri, count in _largest(counts.properties)
        ],
        "sd:namedGraph": [
            {"sd:name": {"@id": iri}, "sd:graph": {"@type": ["sd:Graph", "void:Dataset"], "void:triples": count}}
            for iri, count in _largest(counts.graphs)
        ],
        "dcat:distribution": [{"@id": one["@id"]} for one in distributions],
    }
    agents = dict.fromkeys([*settings.creator, settings.publisher or ""])
    return {
        "@context": _PREFIXES,
        "@graph": [
            {"@id": about, "@type": "void:DatasetDescription", "foaf:primaryTopic": {"@id": f"{about}#dataset"}},
            {
                "@id": f"{about}#dataset",
                "@type": ["void:Dataset", "dcat:Dataset", "sd:Dataset"],
                **{key: value for key, value in told.items() if value not in (None, [])},
            },
            *distributions,
            *({"@id": one, "@type": "foaf:Agent"} for one in agents if is_url(one)),
        ],
    }


def _left_out(count: int) -> dict[str, Any] | None:
    if not count:
        return None
    words = f"{count} statements of what the dataset is made of could not be read, and are left out"
    return {"@type": "dcterms:ProvenanceStatement", "rdfs:label": _text(words, "en")}


def _text(text: str, language: str | None = None) -> Any:
    plain = "".join(one if one.isprintable() or one in _ESCAPES else " " for one in text)
    return plain if language is None else {"@value": plain, "@language": language}


def _agent(text: str) -> dict[str, Any]:
    return {"@id": text} if is_url(text) else {"@type": "foaf:Agent", "foaf:name": _text(text)}


def _largest(counts: dict[str, int]) -> list[tuple[str, int]]:
    fit = [(iri, count) for iri, count in counts.items() if not _UNFIT.search(iri)]
    return sorted(fit, key=lambda one: (-one[1], one[0]))[:MOST_PARTITIONS]


def turtle(told: dict[str, Any]) -> str:
    """The same in Turtle."""
    lines = [f"@prefix {prefix}: <{iri}> ." for prefix, iri in told["@context"].items()]
    for node in told["@graph"]:
        said = [f"{key} {value}" for key, value in _said(node)]
        lines.append(f"\n<{node['@id']}> " + " ;\n    ".join(said) + " .")
    return "\n".join(lines) + "\n"


def _said(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, values in node.items():
        for value in values if isinstance(values, list) else [values]:
            if key == "@type":
                yield "a", value
            elif key != "@id":
                yield key, _term(value)


def _term(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(one, one) for one in value) + '"'
    if "@value" in value:
        return _term(value["@value"]) + (f"@{value['@language']}" if "@language" in value else f"^^{value['@type']}")
    if "@id" in value:
        is_short = value["@id"].partition(":")[0] in _PREFIXES
        return str(value["@id"]) if is_short else f"<{value['@id']}>"
    return "[ " + " ; ".join(f"{key} {one}" for key, one in _said(value)) + " ]"


_DATASET: Final = ObjectKind(DATASET_TYPE, has_gzip=True)
_PATCH: Final = ObjectKind(N_QUADS_DIFF, has_gzip=True)


def publish_dataset(job: PublicationJob, folder_of_state: Path) -> tuple[tuple[str, ...], list[str]]:
    """Put the files of a dataset that are not there, or not as they were left, into the store.

    Returns the names of the dataset, of its other syntaxes and of its description, and those of all patches of the
    series. Patches come first: when the dataset is replaced, what leads to it is there; then the lists follow. Raises
    BrokenSeries, and the store's faults.
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
    forms = list(_publish_forms(job, folder, state))
    for file, _kind in DATASET_FORMS["dataset"][1:]:
        if (old := f"{job.name}/{file}") not in forms and job.context.store.mark(old) is not None:
            job.context.may_write()
            job.context.store.delete(old)  # it is of a state that is over
    if not _is_current(job, name, state.seq):
        mark = DocumentMark(generation=writer.generation, latest=job.now, seq=state.seq, changed=lastmod)
        writer.blocks(name, blocks_of(folder.dataset_of(state)), mark.encode, _DATASET)
    at = job.snapshot.state.last_at if state.seq == job.snapshot.state.last_seq else None
    told = description(job.context.site, job.settings, state, changes[0].at if changes else at or job.now, forms)
    mark = DocumentMark(generation=writer.generation, latest=job.now, seq=state.seq)
    for (file, kind), text in zip(DATASET_FORMS["description"], (turtle(told), _as_json(told)), strict=True):
        about = f"{job.name}/{file}"
        forms.append(about)
        if not writer.says(about, [text.encode()]):
            writer.blocks(about, [text.encode()], mark.encode, ObjectKind(f"{kind}; charset=utf-8", has_gzip=True))
    return (name, *forms), patches


def _is_current(job: PublicationJob, name: str, seq: int) -> bool:
    held = decode_mark(job.context.store.mark(name))
    is_of_state = held is not None and (held.generation, held.seq) == (job.store_writer.generation, seq)
    return is_of_state and job.context.is_as_left(name)


def _as_json(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, indent=1) + "\n"


def _publish_forms(job: PublicationJob, folder: DatasetFolder, state: DatasetState) -> Iterator[str]:
    """Put a small dataset into the store in further syntaxes, where they are not as they were left; their names."""
    if state.octets > FORMS_OCTETS:
        return
    from headwater.rdf.canonical import write_small_syntax  # takes the RDF library along
    from headwater.rdf.syntaxes import syntax_of

    has_graphs = bool(state.counts.graphs) or "graphs" in state.counts.incomplete
    unfit = "dataset.ttl" if has_graphs else "dataset.trig"
    writer = job.store_writer
    for file, kind in DATASET_FORMS["dataset"][1:]:
        name, syntax = f"{job.name}/{file}", syntax_of(kind, file)
        if file == unfit or syntax is None:
            continue
        if not _is_current(job, name, state.seq):
            mark = DocumentMark(generation=writer.generation, latest=job.now, seq=state.seq)
            made = folder.fresh_scratch() / file
            try:
                write_small_syntax(folder.dataset_of(state), made, syntax)
                writer.blocks(name, blocks_of(made), mark.encode, ObjectKind(kind, has_gzip=True))
            except BadRdf:  # the syntax cannot say all of it
                continue
            finally:
                shutil.rmtree(folder.scratch, ignore_errors=True)
        yield name
