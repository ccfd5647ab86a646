"""Datasets and patches for tests: written to files, and read as sets of statements."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from headwater.rdf.canonical import BlankNodes, RdfOptions, write_canonical
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from headwater.rdf.unified_diff import write_patch

GENID = "https://source.example/.well-known/genid/"


def statement(number: int, value: str = "v") -> bytes:
    """A canonical line."""
    return f'<http://example.org/s{number}> <http://example.org/p> "{value}" .\n'.encode()


def dataset(path: Path, lines: Iterable[bytes]) -> Path:
    """A canonical file of these canonical lines."""
    path.write_bytes(b"".join(sorted(set(lines))))
    return path


def canonical(text: bytes, folder: Path, blank_nodes: BlankNodes = BlankNodes.KEPT) -> bytes:
    """What N-Quads come to."""
    source, target = folder / "in.nq", folder / "out.nq"
    source.write_bytes(text)
    write_canonical([RdfInput(source, N_QUADS)], target, scratch=folder, options=RdfOptions(blank_nodes, GENID))
    return target.read_bytes()


def difference(old: Path, new: Path) -> bytes:
    """The patch from one canonical file to another."""
    target = io.BytesIO()
    write_patch(old, new, target)
    return target.getvalue()
