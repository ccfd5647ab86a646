"""The choice of packages: which way to the octets of resources is taken, by what is wanted and listed.

Packages of a dump are fetched where a quarter of their octets is wanted, a tenth for who prefers dumps. What is left
and smaller than 1 MiB comes on demand where the source offers that, from a dozen resources on.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from headwater.quantities import human_octets

LEAST_RESOURCES = 12
"""Fewer are not worth a look at any package: single requests have them at once."""

LARGE_OCTETS = 1 << 20
"""A resource of this size or more goes by a single request: then octets are what takes time, a break costs only the
rest, and several come at the same time."""

USUAL_OCTETS = 16 << 10
"""What a resource without a listed length is taken for."""

LEAST_SHARE, LEAST_PREFERRED_SHARE = 0.25, 0.1
"""Packages of which less is wanted are left. Who prefers dumps gets one up to LARGE_OCTETS for any share of it."""

_HEADER_OCTETS = 150
"""What a member takes in a package beside its content: of many tiny resources most of a package is headers."""


class Prefer(Enum):
    """What a user says of the ways (`--prefer`). ONLY_DUMPS: resources may be in packages alone."""

    AUTO = "auto"
    LISTS = "lists"
    DUMPS = "dumps"
    ONLY_DUMPS = "only dumps"


class Demand(msgspec.Struct, frozen=True):
    """Resources that are wanted, and their octets together."""

    resources: int
    octets: int


class WayDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a way is taken, and the sentence that says why. `compared`: whether it was considered at all; what was
    not needed, or is not wanted by the user, is not told."""

    taken: bool
    why: str
    compared: bool = True


def choose_packages(length: int | None, wanted: Demand, prefer: Prefer) -> WayDecision:
    """Whether packages of `length` octets in all are fetched for `wanted`, rather than what else there is."""
    if prefer is Prefer.LISTS or not wanted.resources:
        why = "lists are preferred" if prefer is Prefer.LISTS else "nothing of it is wanted"
        return WayDecision(taken=False, why=why, compared=False)
    said = "1 resource is wanted of it" if wanted.resources == 1 else f"{wanted.resources:,} resources are wanted of it"
    if prefer is Prefer.ONLY_DUMPS:
        return WayDecision(taken=True, why=f"{said}, which only dumps list")
    is_preferred = prefer is Prefer.DUMPS
    if wanted.resources < LEAST_RESOURCES and not is_preferred:
        return WayDecision(taken=False, why=f"only {said}", compared=False)
    least = LEAST_PREFERRED_SHARE if is_preferred else LEAST_SHARE
    is_enough = (
        length is None
        or (is_preferred and length <= LARGE_OCTETS)
        or wanted.octets + wanted.resources * _HEADER_OCTETS >= least * length
    )
    share = "" if length is None else f", {human_octets(wanted.octets)} of {human_octets(length)}"
    if is_enough:
        return WayDecision(taken=True, why=f"{said}, dumps are preferred" if is_preferred else f"{said}{share}")
    return WayDecision(taken=False, why=f"{said}{share}: less than a {'tenth' if is_preferred else 'quarter'}")


def choose_demand(wanted: Demand, prefer: Prefer) -> WayDecision:
    """Whether resources that are not large are asked for on demand, rather than one by one."""
    count = "1 resource that is" if wanted.resources == 1 else f"{wanted.resources:,} resources that are"
    if prefer is Prefer.LISTS:
        return WayDecision(taken=False, why="lists are preferred", compared=False)
    if prefer is Prefer.DUMPS and wanted.resources:
        return WayDecision(taken=True, why=f"{count} not large, dumps are preferred")
    if wanted.resources < LEAST_RESOURCES:
        return WayDecision(taken=False, why=f"only {count} not large", compared=False)
    return WayDecision(taken=True, why=f"{count} not large")
