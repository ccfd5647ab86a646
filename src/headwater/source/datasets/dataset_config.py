"""The configuration of a set that publishes an RDF dataset: the keys of its `[[set]]` (`docs/configuration.md`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from headwater.source.tokens import BadToken

DATASET_KEYS: Final = (
    "dataset",
    "sparql",
    "sparql_authorization_env",
    "oxigraph",
    "syntax",
    "base_iri",
    "blank_nodes",
    "genid",
    "licence",
    "dataset_seconds",
    "may_be_empty",
)
"""Keys that mean nothing to other sets."""
UNFIT_KEYS: Final = (
    "resource_base",
    "retention_seconds",
    "dump",
    "change_dump",
    "patch",
    "archive",
    "versions",
    "mirrors",
    "variants",
    "described",
    "links",
    "classic",
)
"""Keys that would break what the profile promises: one link an entry, every change for ever, one Capability List."""
_BASE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x20<>\"{}|\\^`#]+")
_FILE_SECONDS: Final = 1.0
_STORE_SECONDS: Final = 60.0
_ENDPOINT_SECONDS: Final = 300.0

Pause = Annotated[float, msgspec.Meta(gt=0)]


class DatasetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a set's dataset is made of, and how."""

    profile: Literal["rdf-dataset"] | None = None
    dataset: str | None = None
    sparql: str | None = None
    sparql_authorization_env: str | None = None
    oxigraph: str | None = None
    syntax: Literal["nquads", "ntriples", "turtle", "trig", "rdfxml", "jsonld"] | None = None
    base_iri: str | None = None
    blank_nodes: Literal["iris", "refuse"] = "iris"
    genid: str | None = None
    licence: str | None = None
    dataset_seconds: Pause | None = None
    may_be_empty: bool = False

    @property
    def is_dataset(self) -> bool:
        """Whether the set is an RDF dataset."""
        return self.profile is not None

    @property
    def dataset_pause(self) -> float:
        """Between two looks at what the dataset is made of."""
        if self.dataset_seconds is not None:
            return self.dataset_seconds
        if self.sparql is not None:
            return _ENDPOINT_SECONDS
        return _FILE_SECONDS if self.dataset is not None else _STORE_SECONDS

    def dataset_complaint(self) -> str | None:
        """What is wrong with a set that is a dataset, by what it is made of; None: nothing."""
        given = [name for name in ("dataset", "sparql", "oxigraph") if getattr(self, name)]
        if len(given) != 1:
            return "a dataset is made of one of dataset, sparql and oxigraph"
        if self.syntax is not None and self.dataset is None:
            return "syntax is that of files: it belongs to dataset"
        if self.base_iri is not None:
            if self.dataset is None:
                return "base_iri is for relative IRIs in files: it belongs to dataset"
            if not _BASE.fullmatch(self.base_iri):
                return "base_iri is an absolute IRI without a fragment, such as https://example.org/people/"
        if self.sparql_authorization_env is not None and self.sparql is None:
            return "sparql_authorization_env belongs to sparql"
        return None

    def authorization(self, environment: Mapping[str, str]) -> str | None:
        """What the endpoint is told in `Authorization`. Raises BadToken."""
        name = self.sparql_authorization_env
        if name is None:
            return None
        value = environment.get(name, "").strip()
        if not value or not value.isprintable() or not value.isascii():
            raise BadToken("the environment variable holds nothing that could be sent as Authorization", where=name)
        return value
