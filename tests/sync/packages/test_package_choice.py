"""Which way to resources is taken: a table of what is wanted and offered."""

from __future__ import annotations

import pytest

from headwater.sync.packages.package_transfer import Demand, Prefer, choose_packages, why_on_demand
from headwater.sync.transfer.work_queue import LEAST_RESOURCES

KIB, MIB = 1 << 10, 1 << 20

PACKAGES = [
    # wanted, octets of the packages, taken
    ("all of many small ones", Demand(20_000, 80 * MIB), 40 * MIB, True),
    ("the half of many small ones", Demand(10_000, 40 * MIB), 80 * MIB, True),
    ("a tenth of them", Demand(2_000, 8 * MIB), 80 * MIB, False),
    ("tiny ones: most of a package is headers", Demand(70_000, 490_000), 10_204_541, True),
    ("eleven", Demand(11, 44 * KIB), 40 * KIB, False),
    ("nothing", Demand(0, 0), 40 * KIB, False),
    ("of unknown length", Demand(20_000, 80 * MIB), None, True),
]


@pytest.mark.parametrize(("said", "wanted", "length", "taken"), PACKAGES, ids=lambda _: "")
def test_packages_are_fetched_where_a_quarter_of_their_octets_is_wanted(
    said: str, wanted: Demand, length: int | None, taken: bool
) -> None:
    decided = choose_packages(length, wanted, Prefer.AUTO)
    assert (decided is not None and decided.taken) is taken, f"{said}: {decided}"
    assert (decided is None) is (wanted.resources < LEAST_RESOURCES), said
    only = choose_packages(length, wanted, Prefer.ONLY_DUMPS)
    assert (only is not None and only.taken) is bool(wanted.resources)


PREFERRED = [
    # wanted, octets of the packages, taken by who prefers dumps
    ("one of a large package", Demand(1, 4 * KIB), 40 * MIB, False),
    ("many small ones, and little of it all the same", Demand(12, 48 * KIB), 40 << 30, False),
    ("a tenth of it", Demand(1, 4 * MIB), 40 * MIB, True),
    ("tiny ones: most of a package is headers", Demand(70_000, 490_000), 10_204_541, True),
    ("one of a small package", Demand(1, 4 * KIB), MIB, True),
    ("one of a package of unknown length", Demand(1, 4 * KIB), None, True),
    ("nothing", Demand(0, 0), 4 * KIB, False),
]


@pytest.mark.parametrize(("said", "wanted", "length", "taken"), PREFERRED, ids=lambda _: "")
def test_who_prefers_dumps_gets_no_large_package_of_which_little_is_wanted(
    said: str, wanted: Demand, length: int | None, taken: bool
) -> None:
    decided = choose_packages(length, wanted, Prefer.DUMPS)
    assert (decided is not None and decided.taken) is taken, f"{said}: {decided}"
    assert (decided is not None) is bool(wanted.resources)


@pytest.mark.parametrize(("wanted", "taken"), [(0, False), (11, False), (12, True), (1_000_000, True)])
def test_from_a_dozen_on_small_resources_come_on_demand(wanted: int, taken: bool) -> None:
    demand = Demand(wanted, wanted * KIB)
    assert bool(why_on_demand(demand, Prefer.AUTO)) is taken
    assert bool(why_on_demand(demand, Prefer.DUMPS)) is bool(wanted)


def test_one_resource_is_told_in_the_singular() -> None:
    one = Demand(1, 4 * KIB)
    packages, on_demand = choose_packages(4 * KIB, one, Prefer.DUMPS), why_on_demand(one, Prefer.DUMPS)
    assert packages is not None
    assert packages.why.startswith("1 resource is wanted of it")
    assert on_demand is not None
    assert on_demand.startswith("1 resource that is not large")
