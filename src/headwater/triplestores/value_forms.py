"""Literals whose lexical form a store normalises: which statements a removal of another form would take along.

Oxigraph keeps "01" of an integer as "1": to it both are one, to the dataset two (NQUD-A7). After the removal of one
form those that the dataset still has are added again, which does no harm in a store that keeps them apart.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from headwater.triplestores.embedded_store import SameInStore
from headwater.triplestores.sparql_text import parts_of


def forms_still_there(removals: Iterable[bytes], dataset: Path) -> Iterator[bytes]:
    """The statements of the dataset that a store may take for one of those removed.

    `dataset` is the file of the dataset after the removals: canonical N-Quads, sorted by octets, as are the removals.
    """
    if dataset.stat().st_size == 0:
        return
    with dataset.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for prefix, group in groupby(removals, _prefix):
            if prefix is None:
                continue
            found = _lines_from(content, prefix)
            first = next(found, None)
            if first is not None:
                removed = SameInStore(group)
                yield from (line for line in (first, *found) if line in removed)


def _prefix(statement: bytes) -> bytes | None:
    """Subject and predicate, of a statement whose object is a literal with a datatype or a language."""
    if b'"^^<' not in statement and b'"@' not in statement:
        return None
    subject, predicate, value = parts_of(statement).triple.split(b" ", 2)
    return subject + b" " + predicate + b' "' if value.startswith(b'"') and not value.endswith(b'"') else None


def _lines_from(content: mmap.mmap, prefix: bytes) -> Iterator[bytes]:
    """The lines that begin with `prefix`."""
    low, high = 0, len(content)
    while low < high:
        middle = max(content.rfind(b"\n", 0, (low + high) // 2) + 1, low)
        if content[middle : middle + len(prefix)] < prefix:
            low = content.find(b"\n", middle) + 1 or len(content)
        else:
            high = middle
    while content[low : low + len(prefix)] == prefix:
        end = content.find(b"\n", low) + 1 or len(content)
        yield content[low:end]
        low = end
