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
from typing import TYPE_CHECKING

import msgspec

from headwater.catalog.interface import Delete, Metadata, Upsert
from headwater.errors import UsageFault
from headwater.files.hashing import HASHERS
from headwater.ingest.folder.file_events import media_type
from headwater.spec.records import HASHLIB, ChangeKind

if TYPE_CHECKING:
    from hashlib import _Hash


# settings: the first record says what there is. Who goes on with a simulation says the same again, or its octets would
# not be those that are listed. The second says what happens to it, and may be another one each time. docs/simulate.md
# names where the numbers of the presets come from.

LARGEST = 1 << 40
"""The largest resource: nobody holds it, so this is only to catch slips of the finger."""
_MOST_RESOURCES = 10**9
FIRST_YEAR, LAST_YEAR = 1970, 9_000
"""Where simulated time begins; it stands still when it comes to the last year, because no document could say more."""

_SIZES = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")
_SUFFIX = re.compile(r"[a-z0-9]{1,8}\Z")
_SHARES = ("created", "updated", "deleted")


class BadSimulation(UsageFault):
    """The settings of a simulation are invalid."""

    code = "HW-SIM-01"


def _require(is_so: bool, what: str, advice: str | None = None) -> None:  # noqa: FBT001 - a condition
    if not is_so:
        raise BadSimulation(what, advice=advice)


class Sizes(msgspec.Struct, frozen=True):
    """Lengths in octets, evenly spread from `least` to `most`."""

    least: int
    most: int

    def __post_init__(self) -> None:
        _require(0 <= self.least <= self.most <= LARGEST, f"sizes from {self.least} to {self.most} octets")


class ChangeMix(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of the changes; only their proportions count."""

    created: float = 0.0
    updated: float = 0.0
    deleted: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.created, self.updated, self.deleted)
        is_mix = all(0 <= share < 1e9 for share in shares) and any(shares)
        _require(is_mix, f"a mix of {shares}", "Give shares such as created=1,updated=8,deleted=1.")


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
        most, unknown = f"At most {_MOST_RESOURCES:,} are possible.", [one for one in self.hashes if one not in HASHLIB]
        _require(0 <= self.resources <= _MOST_RESOURCES, f"{self.resources} resources", most)
        _require(bool(self.sets), "no set")
        _require(not unknown, f"unknown hash: {', '.join(map(repr, unknown))}", f"Use one of {', '.join(HASHLIB)}.")
        is_usual = bool(self.suffixes) and all(map(_SUFFIX.match, self.suffixes))
        _require(is_usual, f"suffixes {self.suffixes}", "Give one or more, of 1 to 8 characters a-z, 0-9.")

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
        _require(0 <= self.rate <= 1e6, f"{self.rate} changes a second", "Between 0 and a million are possible.")
        _require(self.warp is None or 0 < self.warp <= 1e9, f"a warp of {self.warp}")
        _require(self.seconds is None or 0 <= self.seconds <= 1e12, f"{self.seconds} seconds")
        _require(self.start is None or FIRST_YEAR <= self.start.year < LAST_YEAR, f"a start at {self.start}")

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
    _require(0 < scale <= 1_000, f"a scale of {scale}", "Give a factor such as 0.01.")
    return msgspec.structs.replace(
        preset,
        resources=max(1, round(preset.resources * scale)),
        set_count=max(1, round(preset.set_count * scale)),
        rate=preset.rate * scale,
    )


def set_names(count: int) -> tuple[str, ...]:
    """Names for so many sets."""
    _require(1 <= count <= 100_000, f"{count} sets", "Between 1 and 100,000 are possible.")
    return tuple(f"p{number:04d}" for number in range(1, count + 1))


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

    def share(self, counter: int) -> float:
        """The number from 0 to below 1 at this place of the sequence."""
        return (self.draw(counter) >> 11) / (1 << 53)


STEPS = 64
_OWN = 64
"""So many octets and up to so many more are the version's own; a hex digest of BLAKE2b has them all."""
_BLOCK = 1 << 16
_PATH = re.compile(r"[0-9]{3,4}/[0-9]{3}/([0-9]{9,10})\.[a-z0-9]{1,8}\Z")
_SPREAD_SECONDS = 5 * 365 * 86_400
_TIMES = 997
"""So many times of modification there are at the beginning: enough to look like chance, made once for a batch."""


class _SyntheticContent(msgspec.Struct, frozen=True, gc=False):
    """The octets of one version: `filler` octets of the filler, then `end`."""

    filler: int
    end: bytes

    def __len__(self) -> int:
        return self.filler + len(self.end)


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

    def hash_of(self, content: _SyntheticContent) -> str:
        """The true `hash` attribute of the content."""
        states = self._states.get(content.filler) or self._state(content.filler)
        digests = []
        for name, state in zip(self._algorithms, states, strict=True):
            digest = state.copy()
            digest.update(content.end)
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


class SyntheticResources:
    """All that can ever be in one set: numbers from 0, each with versions from 0."""

    def __init__(self, world: SourceSettings, name: str, filler: Filler) -> None:
        self._filler = filler
        self._suffixes = world.suffixes
        self._algorithms = world.hashes
        self._types = {suffix: media_type(f"x.{suffix}") for suffix in world.suffixes}
        self._own = hashlib.blake2b(key=key_of(world.seed, "content", name))
        self._chance = Prng(key_of(world.seed, "name", name))
        span = world.sizes.most - world.sizes.least + 1
        self._least = world.sizes.least
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

    def content(self, number: int, version: int) -> _SyntheticContent:
        """The octets of one version."""
        state = self._own.copy()
        state.update(b"%d %d" % (number, version))
        text = state.hexdigest()
        chance = int(text[:16], 16)
        common = self._least + chance % self._steps * self._step
        filler = max(0, common - _OWN)
        length = common + (chance >> 32) % self._jitter
        return _SyntheticContent(filler, text[: length - filler].encode())

    def read(self, content: _SyntheticContent, start: int, end: int) -> bytes:
        """The octets of a content from `start` to before `end`, or to its end."""
        filler = content.filler
        head = self._filler.read(start, min(end, filler)) if start < filler else b""
        return head + content.end[max(0, start - filler) : max(0, end - filler)]

    def metadata(self, number: int, version: int, lastmod: dt.datetime) -> Metadata:
        """What is listed of one version; the digests are true."""
        content = self.content(number, version)
        return Metadata(
            lastmod=lastmod,
            hash=self._filler.hash_of(content) if self._algorithms else None,
            length=len(content),
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


class OpenSyntheticContent:
    """A content whose octets are made as they are asked for: always those of its version."""

    is_vouched = True

    def __init__(self, resources: SyntheticResources, content: _SyntheticContent) -> None:
        self._resources = resources
        self._content = content
        self.octets = len(content)

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return self._resources.read(self._content, start, start + octets)

    def is_unchanged(self) -> bool:
        """Always: a version has the octets that it has."""
        return True

    def close(self) -> None:
        """Nothing is held."""


_TRIES = 16
"""How often a resource is drawn before the next living one is taken: it fails only where few of many are left."""
_DRAWS = _TRIES + 1
"""Places in the sequence of chance that belong to one change."""


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

    def next(self, step: int, mix: ChangeMix) -> tuple[ChangeKind, int] | None:
        """The change of this step, carried out; None when there is nothing that the mix could do.

        Where nothing is alive, something is created instead, if the mix creates anything.
        """
        change = self._kind(step, mix)
        if change is not ChangeKind.CREATED and not self.count:
            if not mix.created:
                return None
            change = ChangeKind.CREATED
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

    def _kind(self, step: int, mix: ChangeMix) -> ChangeKind:
        place = self._chance.share(step * _DRAWS) * (mix.created + mix.updated + mix.deleted)
        # Rounding must not give what the mix excludes.
        if place < mix.created or not (mix.updated or mix.deleted):
            return ChangeKind.CREATED
        return (
            ChangeKind.UPDATED
            if (place < mix.created + mix.updated and mix.updated) or not mix.deleted
            else ChangeKind.DELETED
        )

    def _living(self, step: int) -> int:
        """One of the living, each as likely as any other as long as they are not few among many."""
        number = 0
        for place in range(step * _DRAWS + 1, (step + 1) * _DRAWS):
            number = self._chance.below(self.born, place)
            if self._alive[number]:
                return number
        after = self._alive.find(1, number)
        return after if after >= 0 else self._alive.find(1)
