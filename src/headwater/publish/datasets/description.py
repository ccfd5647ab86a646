"""Describes an RDF dataset in Turtle, by the vocabularies VoID and DCAT (TIM-10): pure, counts in, octets out."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Final

from headwater.datasets.counts import DatasetCounts
from headwater.datasets.rows import DATASET_TYPE, DatasetState
from headwater.publish.datasets.names import dataset_name, description_name
from headwater.publish.site import SetSettings, Site
from headwater.spec.datetimes import format_datetime
from headwater.storage.objects.interface import ObjectKind

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
