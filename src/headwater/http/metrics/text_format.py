"""The text format of Prometheus (0.0.4), written without its client library.

docs/decisions/016-own-metrics-text.md says what the library would have cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Family(msgspec.Struct, frozen=True):
    """Samples of one name. `kind` is `gauge` or `counter`; a counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class Histogram(msgspec.Struct, frozen=True):
    """A distribution over `bounds`, which ascend."""

    name: str
    help: str
    bounds: tuple[float, ...]
    samples: Sequence[tuple[Labels, Sequence[int], float]]
    """Labels, `len(bounds) + 1` counts (not added up), and the sum of all that was observed."""


def exposition(families: Iterable[Family | Histogram]) -> bytes:
    """The page. A family without samples is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        kind = family.kind if isinstance(family, Family) else "histogram"
        lines += (f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {kind}")
        if isinstance(family, Family):
            lines += (_line(family.name, labels, value) for labels, value in family.samples)
        else:
            for labels, counts, total in family.samples:
                lines += _histogram(family, labels, counts, total)
    return "".join(f"{line}\n" for line in lines).encode()


def _histogram(family: Histogram, labels: Labels, counts: Sequence[int], total: float) -> Iterable[str]:
    added = 0
    for bound, count in zip((*family.bounds, math.inf), counts, strict=True):
        added += count
        yield _line(f"{family.name}_bucket", (*labels, ("le", _number(bound))), added)
    yield _line(f"{family.name}_sum", labels, total)
    yield _line(f"{family.name}_count", labels, added)


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str) -> str:
    return _help(text).replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
