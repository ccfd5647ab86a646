"""The settings of a simulation: how many resources of which sizes in which sets, how they change, and presets.

The first record says what there is: who goes on with a simulation says the same again, or its octets would not be those
that are listed. The second says what happens to it, and may be another one each time. docs/simulate.md names where the
numbers of the presets come from.
"""

from __future__ import annotations

import datetime as dt
import re

import msgspec

from headwater.errors import UsageFault
from headwater.spec.hashes import HASHLIB

LARGEST = 1 << 40
"""The largest resource: nobody holds it, so this is only to catch slips of the finger."""
MOST_RESOURCES = 10**9
FIRST_YEAR, LAST_YEAR = 1970, 9_000
"""Where simulated time begins; it stands still when it comes to the last year, because no document could say more."""

_SIZES = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")
_SUFFIX = re.compile(r"[a-z0-9]{1,8}\Z")
_SHARES = ("created", "updated", "deleted")


class BadSimulation(UsageFault):
    """The settings of a simulation are invalid."""

    code = "HW-SIM-01"


class Sizes(msgspec.Struct, frozen=True):
    """Lengths in octets, evenly spread from `least` to `most`."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= LARGEST:
            raise BadSimulation(f"sizes from {self.least} to {self.most} octets")


class ChangeMix(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of the changes; only their proportions count."""

    created: float = 0.0
    updated: float = 0.0
    deleted: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.created, self.updated, self.deleted)
        if not all(0 <= share < 1e9 for share in shares) or not any(shares):
            raise BadSimulation(f"a mix of {shares}", advice="Give shares such as created=1,updated=8,deleted=1.")


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What there is at the beginning: all of it follows from these values."""

    resources: int
    sets: tuple[str, ...]
    seed: int = 0
    sizes: Sizes = Sizes(4_096, 4_096)
    hashes: tuple[str, ...] = ("md5",)
    suffixes: tuple[str, ...] = ("pdf",)
    """Ends of names, which say the media type; who names one several times has more of it."""

    def __post_init__(self) -> None:
        if not 0 <= self.resources <= MOST_RESOURCES:
            raise BadSimulation(f"{self.resources} resources", advice=f"At most {MOST_RESOURCES:,} are possible.")
        if not self.sets:
            raise BadSimulation("no set")
        if unknown := next((name for name in self.hashes if name not in HASHLIB), None):
            raise BadSimulation(f"unknown hash: {unknown!r}", advice=f"Use one of {', '.join(HASHLIB)}.")
        if not self.suffixes or not all(map(_SUFFIX.match, self.suffixes)):
            raise BadSimulation(f"suffixes {self.suffixes}", advice="Give one or more, of 1 to 8 characters a-z, 0-9.")

    def share(self, name: str) -> int:
        """How many resources the set begins with: all sets have the same, but for the remainder."""
        whole, remainder = divmod(self.resources, len(self.sets))
        return whole + (self.sets.index(name) < remainder)


class ChangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What happens: `rate` changes a second of simulated time, over all sets.

    That time runs `warp` times as fast as ours (None: as fast as it goes) and begins at `start` (None: now). The run
    ends after so many `changes`, or so many `seconds` of simulated time (None: never).
    """

    rate: float = 1.0
    mix: ChangeMix = ChangeMix(created=1, updated=8, deleted=1)
    warp: float | None = 1.0
    changes: int | None = None
    seconds: float | None = None
    start: dt.datetime | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1e6:
            raise BadSimulation(f"{self.rate} changes a second", advice="Between 0 and a million are possible.")
        if self.warp is not None and not 0 < self.warp <= 1e9:
            raise BadSimulation(f"a warp of {self.warp}")
        if self.seconds is not None and not 0 <= self.seconds <= 1e12:
            raise BadSimulation(f"{self.seconds} seconds")
        if self.start is not None and not FIRST_YEAR <= self.start.year < LAST_YEAR:
            raise BadSimulation(f"a start in the year {self.start.year}")

    @property
    def last(self) -> int | None:
        """After how many changes the run ends; None: never."""
        by_time = None if self.seconds is None else int(self.seconds * self.rate)
        bounds = [bound for bound in (self.changes, by_time) if bound is not None]
        return min(bounds) if bounds else None


def read_sizes(text: str) -> Sizes:
    """The sizes that `4096` (all the same) or `1-8191` (from, to) say. Raises BadSimulation."""
    found = _SIZES.match(text)
    if found is None:
        raise BadSimulation(f"no sizes: {text[:80]!r}", advice="Give octets, such as 4096, or a range, such as 1-8191.")
    least, most = found[1][:20], (found[2] or found[1])[:20]
    return Sizes(int(least), int(most))


def read_mix(text: str) -> ChangeMix:
    """The mix that `created=1,updated=8,deleted=1` says; what is left out does not happen. Raises BadSimulation."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if name not in _SHARES or name in shares or not value >= 0:
            raise BadSimulation(f"no share: {part[:80]!r}", advice="Give shares such as created=1,updated=8,deleted=1.")
        shares[name] = value
    return ChangeMix(**shares)


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
