"""The names of the documents of an RDF dataset, in the store and below the base URL."""

from __future__ import annotations

from headwater.datasets.rows import DATASET_FILE
from headwater.publish.capabilities import DESCRIPTION_FILE, PATCH_SUFFIX


def dataset_name(set_name: str) -> str:
    """The RDF dataset of a set that is one (TIM-07)."""
    return f"{set_name}/{DATASET_FILE}"


def description_name(set_name: str) -> str:
    """What describes the RDF dataset (TIM-10)."""
    return f"{set_name}/{DESCRIPTION_FILE}"


def dataset_patch_name(set_name: str, seq: int, sha256: str) -> str:
    """The patch of a change of the RDF dataset, by its SHA-256 (TIM-A1)."""
    return f"{set_name}/patch/{seq:05d}-{sha256[:16]}.{PATCH_SUFFIX}"
