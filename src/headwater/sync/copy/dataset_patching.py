"""Patches of RDF datasets applied from file to file, and verified by the hash that the list states of the result."""

from __future__ import annotations

from pathlib import Path

from headwater.files.hashing import HASHERS
from headwater.patches.faults import PatchRefused
from headwater.rdf.applying import apply_patches
from headwater.rdf.faults import BadRdf


def check_base(base: Path, digest: str) -> None:
    """Raises PatchRefused where a file is not the state before."""
    if not _has(base, digest):
        raise PatchRefused("the copy is not the state before")


def applied_to_file(base: Path, patch: Path, target: Path, result: str, result_length: int | None) -> int:
    """Write what a patch makes of a dataset, which is to have the digest `result`; how many octets it has.

    Raises PatchRefused, whose text has the line.
    """
    try:
        made = apply_patches(base, [patch], target, scratch=target.parent, strict=True).dataset
    except BadRdf as cause:
        raise PatchRefused(cause.what) from cause
    is_right = result == f"sha-256:{made.sha256}" or _has(target, result)
    if not is_right or result_length not in (None, made.octets):
        raise PatchRefused("it leads to something else")
    return made.octets


def _has(path: Path, digest: str) -> bool:
    algorithm, _, wanted = digest.partition(":")
    with path.open("rb") as file:
        hasher = HASHERS[algorithm](usedforsecurity=False)
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return bool(hasher.hexdigest() == wanted)
