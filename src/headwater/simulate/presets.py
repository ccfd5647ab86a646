"""Presets of a simulation: sources as large and as busy as real ones, as far as these are known.

docs/simulate.md names where the numbers come from.
"""

from __future__ import annotations

import msgspec

from headwater.simulate.settings import BadSimulation, ChangeMix, Sizes

_DAY = 86_400.0


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One source; `set_count` sets are named p0001 and so on."""

    resources: int
    set_count: int = 1
    rate: float
    mix: ChangeMix
    sizes: Sizes
    suffixes: tuple[str, ...]


PRESETS = {
    "arxiv": Preset(
        resources=2_600_000,
        rate=1_600 / _DAY,
        mix=ChangeMix(created=45, updated=54, deleted=1),
        sizes=Sizes(50_000, 1_950_000),
        suffixes=("pdf",),
    ),
    "dbpedia": Preset(
        resources=4_580_000,
        rate=1.0,
        mix=ChangeMix(created=5, updated=94, deleted=1),
        sizes=Sizes(1_000, 29_000),
        suffixes=("nt",),
    ),
    "core": Preset(
        resources=135_000_000,
        set_count=4_123,
        rate=135_000 / _DAY,
        mix=ChangeMix(created=60, updated=35, deleted=5),
        sizes=Sizes(512, 7_680),
        suffixes=("json",),
    ),
}
"""Every preset, by its name."""


def scaled(preset: Preset, scale: float) -> Preset:
    """The same source, so many times as large: resources, changes and sets, so that its sets keep their size."""
    if not 0 < scale <= 1_000:
        raise BadSimulation(f"a scale of {scale}", advice="Give a factor such as 0.01.")
    return msgspec.structs.replace(
        preset,
        resources=max(1, round(preset.resources * scale)),
        set_count=max(1, round(preset.set_count * scale)),
        rate=preset.rate * scale,
    )


def set_names(count: int) -> tuple[str, ...]:
    """Names for so many sets."""
    if not 1 <= count <= 100_000:
        raise BadSimulation(f"{count} sets", advice="Between 1 and 100,000 are possible.")
    return tuple(f"p{number:04d}" for number in range(1, count + 1))
