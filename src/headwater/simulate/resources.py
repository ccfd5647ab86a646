"""What is simulated: settings with their presets, and synthetic resources, which are functions of them.

Which of them are alive, and in which version, follows from seed, set, number and the changes so far. A content is a
piece of one long filler and an end of its own, so that the state of a digest after the filler can be kept: the
true digest of a resource of any length costs the hashing of at most 127 octets. Lengths are taken from at most `STEPS`
classes, so that few states have to be kept, and vary by up to 63 octets within one. The n-th change of a
set follows from the seed, n, the mix and who is alive: a run that was killed goes on with the changes that would have
come.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import Meta

from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.errors import UsageFault
from headwater.files.hashing import HASHERS
from headwater.files.media_types import media_type
from headwater.spec.records import ChangeKind
from headwater.spec.times import parse_datetime
from headwater.typed_decoding import from_values

if TYPE_CHECKING:
    from hashlib import _Hash


# settings: the first record says what there is. Who goes on with a simulation says the same again, or its octets would
# not be those that are listed. The second says what happens to it, and may be another one each time.
# docs/reference/simulated-sources.md names where the numbers of the presets come from.

LAST_YEAR: Final = 9_000  # simulated time stands still when it comes to this year, because no document could say more
_LARGEST: Final = 1 << 40  # the largest resource: nobody holds it, so this is only to catch slips of the finger

_SIZES = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?\Z")

Sizes = tuple[int, int]  # lengths in octets, evenly spread from the first to the second
Mix = Mapping[ChangeKind, float]  # the shares of the kinds of changes, none of them 0; only their proportions count


class BadSimulation(UsageFault):
    """The settings of a simulation are invalid."""

    code = "HW-SIM-01"


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What there is at the beginning: all of it follows from these values."""

    resources: Annotated[int, Meta(ge=0, le=10**9)]
    sets: Annotated[tuple[str, ...], Meta(min_length=1)]
    seed: int = 0
    sizes: Sizes = (4_096, 4_096)
    hashes: tuple[Annotated[str, Meta(pattern=f"^(?:{'|'.join(HASHERS)})$")], ...] = ("md5",)
    suffixes: Annotated[tuple[Annotated[str, Meta(pattern="^[a-z0-9]{1,8}$")], ...], Meta(min_length=1)] = ("pdf",)
    """Ends of names, which say the media type; who names one several times has more of it."""

    def share(self, name: str) -> int:
        """How many resources the set begins with: all sets have the same, but for the remainder."""
        whole, remainder = divmod(self.resources, len(self.sets))
        return whole + (self.sets.index(name) < remainder)


_MIX: Final = {ChangeKind.CREATED: 1.0, ChangeKind.UPDATED: 8.0, ChangeKind.DELETED: 1.0}


class ChangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What happens: `rate` changes a second of simulated time, over all sets.

    That time runs `warp` times as fast as ours (None: as fast as it goes) and begins at `start` (None: now). The run
    ends after so many `changes`, or so many `seconds` of simulated time (None: never).
    """

    rate: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    mix: Mix = msgspec.field(default_factory=_MIX.copy)
    warp: Annotated[float, Meta(gt=0, le=1e9)] | None = 1.0
    changes: int | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    start: dt.datetime | None = None

    @property
    def last(self) -> int | None:
        """After how many changes the run ends; None: never."""
        by_time = None if self.seconds is None else int(self.seconds * self.rate)
        return min((bound for bound in (self.changes, by_time) if bound is not None), default=None)


Settings = TypeVar("Settings", SourceSettings, ChangeSettings)


def settings_of(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """The settings that these values are; those of the other kind are left out. Raises BadSimulation."""
    try:
        return from_values({name: values[name] for name in kind.__struct_fields__ if name in values}, kind)
    except msgspec.ValidationError as cause:
        raise BadSimulation(f"the settings are not possible: {cause}") from cause


def read_sizes(text: str) -> Sizes:
    """The sizes that `4096` (all the same) or `1-8191` (from, to) say. Raises BadSimulation."""
    found = _SIZES.match(text)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if not least <= most <= _LARGEST:
        raise BadSimulation(f"no sizes: {text[:80]!r}", advice="Give octets, such as 4096, or a range, such as 1-8191.")
    return least, most


def read_mix(text: str) -> Mix:
    """The mix that `created=1,updated=8,deleted=1` says; what is left out does not happen. Raises BadSimulation."""
    shares: dict[ChangeKind, float] = {}
    try:
        for part in text.split(","):
            name, _, share = part.strip().partition("=")
            if ChangeKind(name) in shares or not 0 <= float(share) < 1e9:
                raise ValueError(part)
            shares[ChangeKind(name)] = float(share)
        if not any(shares.values()):
            raise ValueError(text)
    except ValueError as cause:
        advice = "Give shares such as created=1,updated=8,deleted=1."
        raise BadSimulation(f"not a mix of changes: {text[:80]!r}", advice=advice) from cause
    return {kind: shares[kind] for kind in ChangeKind if shares.get(kind)}


def read_start(text: str) -> dt.datetime:
    """A time at which a simulation may begin. Raises ValueError."""
    start = parse_datetime(text)[0]
    if not 1970 <= start.year < LAST_YEAR:
        raise ValueError(text)
    return start


_DAY: Final = 86_400.0

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "arxiv": {
        "resources": 2_600_000,
        "rate": 1_600 / _DAY,
        "mix": "created=45,updated=54,deleted=1",
        "sizes": "50000-1950000",
        "suffixes": ("pdf",),
    },
    "dbpedia": {
        "resources": 4_580_000,
        "rate": 1.0,
        "mix": "created=5,updated=94,deleted=1",
        "sizes": "1000-29000",
        "suffixes": ("nt",),
    },
    "core": {
        "resources": 135_000_000,
        "set_count": 4_123,
        "rate": 135_000 / _DAY,
        "mix": "created=60,updated=35,deleted=5",
        "sizes": "512-7680",
        "suffixes": ("json",),
    },
}
"""For each source, by its name, the options that make one of its size; `set_count` where it has several sets."""


def scaled(name: str, scale: float) -> dict[str, Any]:
    """A preset, so many times as large: resources, changes and sets, so that its sets keep their size.

    Raises BadSimulation.
    """
    if not 0 < scale <= 1_000:
        raise BadSimulation(f"a scale of {scale}", advice="Give a factor such as 0.01.")
    preset = PRESETS[name]
    counts = {field: max(1, round(preset[field] * scale)) for field in ("resources", "set_count") if field in preset}
    return {**preset, **counts, "rate": preset["rate"] * scale}


# resources

_MASK = (1 << 64) - 1
_STRIDE = 0x9E3779B97F4A7C15
_ONE = 1 << 64


def key_of(seed: int, *words: str) -> bytes:
    """A key of 16 octets for one purpose: another seed or another word, and everything drawn from it is another."""
    return hashlib.blake2b("\0".join((str(seed), *words)).encode(), digest_size=16).digest()


class Prng:
    """Pseudorandom numbers without state: each depends on a key and a counter alone, in any order and process.

    The mixing is that of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    """

    def __init__(self, key: bytes) -> None:
        self._start = int.from_bytes(key[:8], "little")

    def draw(self, counter: int) -> int:
        """The number from 0 to 2**64 - 1 at this place of the sequence."""
        mixed = (self._start + counter * _STRIDE) & _MASK
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, end: int, counter: int) -> int:
        """The number from 0 to `end` - 1 at this place of the sequence."""
        return self.draw(counter) * end // _ONE


STEPS = 64
_OWN = 64  # so many octets and up to so many more are the version's own; a hex digest of BLAKE2b has them all
_BLOCK = 1 << 16
_PATH = re.compile(r"[0-9]{3,4}/[0-9]{3}/([0-9]{9,10})\.[a-z0-9]{1,8}\Z")
_SPREAD_SECONDS = 5 * 365 * 86_400
_TIMES = 997
"""So many times of modification there are at the beginning: enough to look like chance, made once for a batch."""


class Filler:
    """One endless text, the same for all resources of a seed, and the states of digests after its first octets."""

    def __init__(self, seed: int, algorithms: tuple[str, ...]) -> None:
        self._block = hashlib.shake_128(key_of(seed, "filler")).hexdigest(_BLOCK // 2).encode()
        self._algorithms = algorithms
        self._states: dict[int, tuple[_Hash, ...]] = {0: tuple(HASHERS[name]() for name in algorithms)}

    def read(self, start: int, end: int) -> bytes:
        """The octets from `start` to before `end`."""
        first, last = start // _BLOCK, -(-end // _BLOCK)
        whole = self._block * (last - first)
        return whole[start - first * _BLOCK : end - first * _BLOCK]

    def hash_after(self, octets: int, end: bytes) -> str:
        """The true `hash` attribute of so many octets of the filler, and of what follows them."""
        digests = []
        for name, state in zip(self._algorithms, self._states.get(octets) or self._state(octets), strict=True):
            digest = state.copy()
            digest.update(end)
            digests.append(f"{name}:{digest.hexdigest()}")
        return " ".join(digests)

    def _state(self, octets: int) -> tuple[_Hash, ...]:
        known = max(one for one in self._states if one <= octets)
        states = tuple(state.copy() for state in self._states[known])
        for start in range(known, octets, _BLOCK):
            block = self.read(start, min(start + _BLOCK, octets))
            for state in states:
                state.update(block)
        self._states[octets] = states
        return states


class SyntheticContent(msgspec.Struct, frozen=True, gc=False):
    """The octets of one version, made as they are asked for: `shared` octets of the filler, then `own`."""

    is_vouched: ClassVar[bool] = True

    filler: Filler
    shared: int
    own: bytes

    @property
    def octets(self) -> int:
        """How many there are."""
        return self.shared + len(self.own)

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        shared, end = self.shared, start + octets
        head = self.filler.read(start, min(end, shared)) if start < shared else b""
        return head + self.own[max(0, start - shared) : max(0, end - shared)]

    def is_unchanged(self) -> bool:
        """Always: a version has the octets that it has."""
        return True

    def close(self) -> None:
        """Nothing is held."""


class SyntheticResources:
    """All that can ever be in one set: numbers from 0, each with versions from 0."""

    def __init__(self, world: SourceSettings, name: str, filler: Filler) -> None:
        self._filler = filler
        self._suffixes = world.suffixes
        self._algorithms = world.hashes
        self._types = {suffix: media_type(f"x.{suffix}") for suffix in world.suffixes}
        self._own = hashlib.blake2b(key=key_of(world.seed, "content", name))
        self._chance = Prng(key_of(world.seed, "name", name))
        self._least, most = world.sizes
        span = most - self._least + 1
        self._steps = min(STEPS, span)
        self._step = span // self._steps
        self._jitter = min(self._step, _OWN)

    def path(self, number: int) -> str:
        """The relative URI: three folders deep, in the order of the numbers."""
        return f"{number // 1_000_000:03d}/{number // 1_000 % 1_000:03d}/{number:09d}.{self._suffix(number)}"

    def number(self, path: str) -> int | None:
        """The number of the resource with this relative URI, or None when it is none of ours."""
        found = _PATH.match(path)
        number = int(found[1]) if found else -1
        return number if number >= 0 and self.path(number) == path else None

    def content(self, number: int, version: int) -> SyntheticContent:
        """The octets of one version."""
        state = self._own.copy()
        state.update(b"%d %d" % (number, version))
        text = state.hexdigest()
        chance = int(text[:16], 16)
        common = self._least + chance % self._steps * self._step
        filler = max(0, common - _OWN)
        length = common + (chance >> 32) % self._jitter
        return SyntheticContent(self._filler, filler, text[: length - filler].encode())

    def metadata(self, number: int, version: int, lastmod: dt.datetime) -> Metadata:
        """What is listed of one version; the digests are true."""
        content = self.content(number, version)
        return Metadata(
            lastmod=lastmod,
            hash=self._filler.hash_after(content.shared, content.own) if self._algorithms else None,
            length=content.octets,
            type=self._types[self._suffix(number)],
        )

    def initial(self, numbers: range, start: dt.datetime) -> list[Upsert]:
        """Resources as they are at the beginning, which is `start`: modified last at any time of five years before."""
        second = start.replace(microsecond=0)
        times = [second - dt.timedelta(seconds=self._chance.below(_SPREAD_SECONDS, ~one)) for one in range(_TIMES)]
        path, metadata = self.path, self.metadata
        return [Upsert(path(number), metadata(number, 0, times[number % _TIMES])) for number in numbers]

    def event(self, change: ChangeKind, number: int, version: int, at: dt.datetime) -> Upsert | Delete:
        """What the catalog is told of a change; the version lies in the memo."""
        if change is ChangeKind.DELETED:
            return Delete(self.path(number))
        metadata = self.metadata(number, version, at.replace(microsecond=0))
        return Upsert(self.path(number), metadata, write_version(version))

    def _suffix(self, number: int) -> str:
        suffixes = self._suffixes
        return suffixes[self._chance.below(len(suffixes), number)] if len(suffixes) > 1 else suffixes[0]


def write_version(version: int) -> bytes:
    """The version as a memo; that of the beginning takes no room."""
    return version.to_bytes((version.bit_length() + 7) // 8, "little")


def read_version(memo: bytes) -> int:
    """The version in a memo."""
    return int.from_bytes(memo, "little")


class Population:
    """The resources of one set by number: those below `born` have been there, `count` of them are alive."""

    def __init__(self, key: bytes, initial: int) -> None:
        self._chance = Prng(key)
        self._alive = bytearray(b"\1") * initial
        self.count = initial

    @property
    def born(self) -> int:
        """How many resources there have ever been."""
        return len(self._alive)

    def next(self, step: int, mix: Mix) -> tuple[ChangeKind, int] | None:
        """The change of this step, carried out; None when there is nothing that the mix could do.

        Where nothing is alive, something is created instead, if the mix creates anything.
        """
        kinds = [kind for kind in mix if self.count or kind is ChangeKind.CREATED]
        if not kinds:
            return None
        bounds = list(accumulate(mix[kind] for kind in kinds))
        place = bisect_right(bounds, self._chance.draw(2 * step) / _ONE * bounds[-1])
        change = kinds[min(place, len(kinds) - 1)]  # rounding
        number = self.born if change is ChangeKind.CREATED else self._living(step)
        self.apply(change, number)
        return change, number

    def apply(self, change: ChangeKind, number: int) -> None:
        """Carry out a change, in whatever order and however often they come."""
        if number >= self.born:
            self._alive.extend(bytes(number + 1 - self.born))
        alive = change is not ChangeKind.DELETED
        self.count += alive - self._alive[number]
        self._alive[number] = alive

    def _living(self, step: int) -> int:
        """One of the living: that which is drawn, or the next one after it."""
        drawn = self._chance.below(self.born, 2 * step + 1)
        after = self._alive.find(1, drawn)
        return after if after >= 0 else self._alive.find(1)
