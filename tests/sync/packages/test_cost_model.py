"""Which way to resources is taken: a table of what is wanted, offered and measured."""

from __future__ import annotations

import pytest

from headwater.spec.extensions import DumpLimits
from headwater.sync.packages.cost_model import (
    LARGE_OCTETS,
    MEMBER_SECONDS,
    Demand,
    NetworkMeasures,
    Prefer,
    batch_octets,
    batch_resources,
    choose_demand,
    choose_packages,
    demand_seconds,
    large_octets,
    package_seconds,
    single_seconds,
)

KIB, MIB = 1 << 10, 1 << 20
NEAR = NetworkMeasures(request_seconds=0.0005, octets_per_second=500e6, parallel=64)
USUAL = NetworkMeasures()
FAR = NetworkMeasures(request_seconds=0.2, octets_per_second=2e6, parallel=16)
LIMITS = DumpLimits(resources=10_000, octets=256 * MIB, requests=4)

PACKAGES = [
    # wanted, octets of the packages, network, on demand, taken
    ("all of many small ones", Demand(20_000, 80 * MIB), 40 * MIB, USUAL, None, True),
    ("all of many small ones, on demand too", Demand(20_000, 80 * MIB), 40 * MIB, USUAL, LIMITS, True),
    ("all of many small ones nearby", Demand(20_000, 80 * MIB), 80 * MIB, NEAR, None, True),
    ("the half of many small ones", Demand(10_000, 40 * MIB), 40 * MIB, USUAL, None, True),
    ("a hundredth of them", Demand(200, 800 * KIB), 40 * MIB, USUAL, None, False),
    ("a tenth of them, which on demand brings alone", Demand(2_000, 8 * MIB), 40 * MIB, USUAL, LIMITS, False),
    ("a tenth of them where requests take long", Demand(2_000, 8 * MIB), 40 * MIB, FAR, None, True),
    ("eleven", Demand(11, 44 * KIB), 40 * KIB, FAR, None, False),
    ("nothing", Demand(0, 0), 40 * KIB, FAR, None, False),
    ("of unknown length", Demand(20_000, 80 * MIB), None, USUAL, None, True),
]


@pytest.mark.parametrize(("said", "wanted", "length", "network", "limits", "taken"), PACKAGES, ids=lambda _: "")
def test_packages_are_fetched_where_most_of_their_octets_are_wanted(
    said: str, wanted: Demand, length: int | None, network: NetworkMeasures, limits: DumpLimits | None, taken: bool
) -> None:
    decided = choose_packages(length, wanted, network, limits, Prefer.AUTO)
    assert decided.taken is taken, f"{said}: {decided.why}"
    assert decided.why
    assert not choose_packages(length, wanted, network, limits, Prefer.LISTS).taken
    assert choose_packages(length, wanted, network, limits, Prefer.ONLY_DUMPS).taken is bool(wanted.resources)


PREFERRED = [
    # wanted, octets of the packages, taken by who prefers dumps
    ("one of a large package", Demand(1, 4 * KIB), 40 * MIB, False),
    ("many small ones, and little of it all the same", Demand(12, 48 * KIB), 40 << 30, False),
    ("a tenth of it", Demand(1, 4 * MIB), 40 * MIB, True),
    ("one of a small package", Demand(1, 4 * KIB), MIB, True),
    ("one of a package of unknown length", Demand(1, 4 * KIB), None, True),
    ("nothing", Demand(0, 0), 4 * KIB, False),
]


@pytest.mark.parametrize(("said", "wanted", "length", "taken"), PREFERRED, ids=lambda _: "")
def test_who_prefers_dumps_gets_no_large_package_of_which_little_is_wanted(
    said: str, wanted: Demand, length: int | None, taken: bool
) -> None:
    for network in (NEAR, USUAL, FAR):
        decided = choose_packages(length, wanted, network, LIMITS, Prefer.DUMPS)
        assert decided.taken is taken, f"{said}: {decided.why}"
        assert decided.compared is bool(wanted.resources)


@pytest.mark.parametrize("network", [NEAR, USUAL, FAR], ids=["near", "usual", "far"])
def test_who_prefers_dumps_gets_at_least_the_packages_that_take_the_least_time(network: NetworkMeasures) -> None:
    """Of many tiny resources most of a package is headers: 70,000 of 7 octets in 9.7 MiB."""
    tiny = Demand(70_000, 490_000)
    assert choose_packages(10_204_541, tiny, network, None, Prefer.DUMPS).taken
    assert choose_packages(10_204_541, tiny, network, None, Prefer.AUTO).taken


DEMAND = [
    ("a dozen", Demand(12, 48 * KIB), USUAL, True),
    ("eleven", Demand(11, 44 * KIB), USUAL, False),
    ("a million", Demand(1_000_000, 500_000_000), USUAL, True),
    ("a million nearby", Demand(1_000_000, 500_000_000), NEAR, True),
    ("none", Demand(0, 0), USUAL, False),
]


@pytest.mark.parametrize(("said", "wanted", "network", "taken"), DEMAND, ids=lambda _: "")
def test_from_a_dozen_on_small_resources_come_on_demand(
    said: str, wanted: Demand, network: NetworkMeasures, taken: bool
) -> None:
    decided = choose_demand(wanted, network, LIMITS, Prefer.AUTO)
    assert decided.taken is taken, f"{said}: {decided.why}"
    assert not choose_demand(wanted, network, LIMITS, Prefer.LISTS).taken
    assert choose_demand(wanted, network, LIMITS, Prefer.DUMPS).taken is bool(wanted.resources)


def test_one_resource_is_told_in_the_singular() -> None:
    one = Demand(1, 4 * KIB)
    assert choose_packages(4 * KIB, one, USUAL, LIMITS, Prefer.DUMPS).why.startswith("1 resource is wanted of it")
    assert choose_demand(one, USUAL, LIMITS, Prefer.DUMPS).why.startswith("1 resource that is not large")


@pytest.mark.parametrize("network", [NEAR, USUAL, FAR])
def test_estimates_grow_with_what_is_wanted(network: NetworkMeasures) -> None:
    little, much = Demand(100, 100 * KIB), Demand(200, 300 * KIB)
    assert single_seconds(little, network) <= single_seconds(much, network)
    assert demand_seconds(little, network, LIMITS) < demand_seconds(much, network, LIMITS)
    assert package_seconds(None, little, network) < package_seconds(None, much, network)
    assert package_seconds(MIB, little, network) < package_seconds(10 * MIB, little, network)


def test_what_is_large_depends_on_the_network() -> None:
    assert large_octets(NetworkMeasures(request_seconds=0.0001)) == 64 * KIB
    assert large_octets(NetworkMeasures(request_seconds=0.01, octets_per_second=2.5e6)) == 200_000
    assert large_octets(NetworkMeasures(request_seconds=5.0)) == LARGE_OCTETS


@pytest.mark.parametrize(("wanted", "resources"), [(1, 250), (1_000, 250), (4_001, 1_001), (1_000_000, 5_000)])
def test_a_batch_lets_requests_overlap_within_the_limits(wanted: int, resources: int) -> None:
    assert batch_resources(Demand(wanted, wanted), LIMITS) == resources
    assert batch_resources(Demand(wanted, wanted), DumpLimits(resources=7, octets=1, requests=1)) == 7


@pytest.mark.parametrize(
    ("octets_per_second", "limit", "octets"),
    [(500e6, 256 * MIB, 32 * MIB), (500e6, MIB, MIB), (100 * KIB, 256 * MIB, 1500 * KIB), (10, 256 * MIB, 256 * KIB)],
)
def test_an_answer_on_demand_is_as_long_as_the_next_one_can_wait(
    octets_per_second: float, limit: int, octets: int
) -> None:
    """With `--bwlimit` an answer could take so long that the source cuts off the next one, which waits for it."""
    network = NetworkMeasures(octets_per_second=octets_per_second)
    assert batch_octets(network, DumpLimits(resources=10_000, octets=limit, requests=4)) == octets


def test_estimates_that_read_alike_are_called_about_the_same() -> None:
    """Two equal numbers would give no reason."""
    alike = Demand(20, 20 * KIB)
    seconds = demand_seconds(alike, USUAL, LIMITS)
    near = NetworkMeasures(request_seconds=USUAL.request_seconds, parallel=20_000)
    told = choose_demand(alike, near, LIMITS, Prefer.AUTO).why
    assert told == f"20 resources that are not large: about {seconds:.2f} s, and about the same by single requests"
    octets = int((single_seconds(alike, near) - 0.05 - 20 * MEMBER_SECONDS) * near.octets_per_second)
    told = choose_packages(octets, alike, near, None, Prefer.AUTO).why
    assert told == "20 resources are wanted of it: about 0.05 s, and about the same by single requests"
    assert choose_demand(Demand(5_000, 5 * MIB), FAR, LIMITS, Prefer.AUTO).why.endswith(" s by single requests")
