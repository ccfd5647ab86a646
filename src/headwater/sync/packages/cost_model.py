"""The cost model: which way to the octets of resources takes the least time, from what is measured and listed.

Plain functions over values. Times are seconds, and estimates: what matters is their order, and that a package of which
little is wanted is not fetched. Three ways are compared: single requests, packages made on demand of a batch of
resources, and the packages of a dump as they are.
"""

from __future__ import annotations

from enum import Enum
from math import ceil

import msgspec

from headwater.quantities import human_octets
from headwater.spec.extensions import DumpLimits
from headwater.sync.network.throttling import FIRST_LIMIT

LEAST_RESOURCES = 12
"""Fewer are not worth a look at any package: single requests have them at once."""

LARGE_OCTETS = 1 << 20
"""A resource of this size or more goes by a single request: then octets are what takes time, a break costs only the
rest, and several come at the same time."""

USUAL_OCTETS = 16 << 10
"""What a resource without a listed length is taken for."""

LEAST_SHARE = 0.1
"""Who prefers dumps gets packages of which at least this share of the octets is wanted: not all of a dump for one
resource. Up to LARGE_OCTETS a package is fetched for any share of it, and so is one that takes the least time: of many
tiny resources most of a package is headers."""

SINGLE_SECONDS = 100e-6
MEMBER_SECONDS = 40e-6
MADE_SECONDS = 20e-6
"""What a resource costs both sides by a single request, out of a package, and as it is packed on demand, beside the
network."""


class Prefer(Enum):
    """What a user says of the ways (`--prefer`). ONLY_DUMPS: resources may be in packages alone."""

    AUTO = "auto"
    LISTS = "lists"
    DUMPS = "dumps"
    ONLY_DUMPS = "only dumps"


class NetworkMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has measured of a source so far; the defaults are for one that was not asked yet."""

    request_seconds: float = 0.05
    octets_per_second: float = 10e6
    parallel: int = FIRST_LIMIT
    """How many single requests are under way at a time."""


class Demand(msgspec.Struct, frozen=True):
    """Resources that are wanted, and their octets together."""

    resources: int
    octets: int

    def share(self, share: float) -> Demand:
        """A part of them."""
        return Demand(ceil(self.resources * share), ceil(self.octets * share))


def single_seconds(wanted: Demand, network: NetworkMeasures) -> float:
    """How long single requests take, most of them over connections that have to be opened first."""
    waiting = network.request_seconds * (1 + wanted.resources / network.parallel)
    return max(waiting, wanted.resources * SINGLE_SECONDS) + wanted.octets / network.octets_per_second


def demand_seconds(wanted: Demand, network: NetworkMeasures, limits: DumpLimits) -> float:
    """How long packages on demand take: their members come one after another, their requests overlap."""
    batches = max(ceil(wanted.resources / limits.resources), ceil(wanted.octets / limits.octets), 1)
    waiting = network.request_seconds * max(1.0, batches / limits.requests)
    handling = wanted.resources * (MEMBER_SECONDS + MADE_SECONDS)
    return waiting + handling + wanted.octets / network.octets_per_second


def package_seconds(length: int | None, wanted: Demand, network: NetworkMeasures) -> float:
    """How long a package takes of which `wanted` is taken: all of it has to come. `length` None: as long as wanted."""
    octets = wanted.octets if length is None else length
    return network.request_seconds + wanted.resources * MEMBER_SECONDS + octets / network.octets_per_second


class WayDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a way is taken, and the sentence that says why. `compared`: whether it was considered at all; what was
    not needed, or is not wanted by the user, is not told."""

    taken: bool
    why: str
    compared: bool = True


def choose_packages(
    length: int | None, wanted: Demand, network: NetworkMeasures, limits: DumpLimits | None, prefer: Prefer
) -> WayDecision:
    """Whether packages of `length` octets in all are fetched for `wanted`, rather than what else there is."""
    if prefer is Prefer.LISTS or not wanted.resources:
        why = "lists are preferred" if prefer is Prefer.LISTS else "nothing of it is wanted"
        return WayDecision(taken=False, why=why, compared=False)
    said = "1 resource is wanted of it" if wanted.resources == 1 else f"{wanted.resources:,} resources are wanted of it"
    if prefer is Prefer.ONLY_DUMPS:
        return WayDecision(taken=True, why=f"{said}, which only dumps list")
    if prefer is Prefer.DUMPS:
        if length is None or length <= LARGE_OCTETS or wanted.octets >= LEAST_SHARE * length:
            return WayDecision(taken=True, why=f"{said}, dumps are preferred")
        soonest = choose_packages(length, wanted, network, limits, Prefer.AUTO)
        share = f"{human_octets(wanted.octets)} of {human_octets(length)}"
        return soonest if soonest.taken else WayDecision(taken=False, why=f"{said}, {share}: less than a tenth")
    if wanted.resources < LEAST_RESOURCES:
        return WayDecision(taken=False, why=f"only {said}", compared=False)
    whole = package_seconds(length, wanted, network)
    others = {"single requests": single_seconds(wanted, network)}
    if limits is not None:
        others["packages on demand"] = demand_seconds(wanted, network, limits)
    other = min(others, key=lambda name: others[name])
    why = f"{said}: {_compared(whole, others[other], other)}"
    return WayDecision(taken=whole <= others[other], why=why)


def choose_demand(wanted: Demand, network: NetworkMeasures, limits: DumpLimits, prefer: Prefer) -> WayDecision:
    """Whether resources that are not large are asked for on demand, rather than one by one."""
    said = (
        "1 resource that is not large"
        if wanted.resources == 1
        else f"{wanted.resources:,} resources that are not large"
    )
    if prefer is Prefer.LISTS:
        return WayDecision(taken=False, why="lists are preferred", compared=False)
    if prefer is Prefer.DUMPS and wanted.resources:
        return WayDecision(taken=True, why=f"{said}, dumps are preferred")
    if wanted.resources < LEAST_RESOURCES:
        return WayDecision(taken=False, why=f"only {said}", compared=False)
    packed, single = demand_seconds(wanted, network, limits), single_seconds(wanted, network)
    return WayDecision(taken=packed <= single, why=f"{said}: {_compared(packed, single, 'single requests')}")


def large_octets(network: NetworkMeasures) -> int:
    """From which size on a resource goes by a single request: where its octets take longer than some round trips."""
    return int(min(LARGE_OCTETS, max(64 << 10, 8 * network.request_seconds * network.octets_per_second)))


FAST_OCTETS_PER_SECOND = 64e6
"""From here on the octets that deflating saves come sooner than it takes: 4 KiB of text shrink by 2.5 KiB in 25 us at
the source, and are inflated in 11 us."""

LEAST_BATCH_RESOURCES = 250
MOST_BATCH_RESOURCES = 5_000
"""Of one request on demand, where the limits allow it: enough that a request costs little beside them; a moment's work
for both sides, and some hundred KiB of URIs."""


def batch_resources(wanted: Demand, limits: DumpLimits) -> int:
    """How many resources are asked for at a time: so many that requests overlap, so few that a failure costs little."""
    overlapping = ceil(wanted.resources / max(1, limits.requests))
    return min(limits.resources, MOST_BATCH_RESOURCES, max(LEAST_BATCH_RESOURCES, overlapping))


MOST_BATCH_OCTETS = 32 << 20
LEAST_BATCH_OCTETS = 256 << 10
BATCH_SECONDS = 15.0
"""So long one answer on demand takes at most, as far as is known: the next one waits meanwhile, and servers cut off who
takes nothing for a while."""


def batch_octets(network: NetworkMeasures, limits: DumpLimits) -> int:
    """How many listed octets are asked for at a time."""
    in_time = max(LEAST_BATCH_OCTETS, int(BATCH_SECONDS * network.octets_per_second))
    return min(limits.octets, MOST_BATCH_OCTETS, in_time)


def _compared(seconds: float, others: float, name: str) -> str:
    """Two estimates, that of the way in question and the `others` one, as people read them."""
    own, other = _seconds(seconds), _seconds(others)
    return f"about {own}, and about the same by {name}" if own == other else f"about {own}, and {other} by {name}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"
