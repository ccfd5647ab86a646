"""When packages in which resources were left out are named, wait, or are refused: a table of decisions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from headwater.publish.resource_dumps.waiting import (
    FEW_TRIES,
    MASS_SECONDS,
    MOST_TRIES,
    PackageVerdict,
    PageOutcome,
    Waiting,
    judged,
)

NOW = 1_000.0


class Case(NamedTuple):
    what: str
    before: Waiting
    outcome: PageOutcome
    after: Waiting
    verdict: PackageVerdict


CASES = [
    Case("nothing is left out", Waiting(), PageOutcome(page=3), Waiting(), PackageVerdict.NAMED),
    Case(
        "what was left out is told by later changes",
        Waiting(tries={3: 4, 5: 1}, is_in_vain=True),
        PageOutcome(page=3, unsettled=2),
        Waiting(tries={5: 1}),
        PackageVerdict.NAMED,
    ),
    Case(
        "no change tells of it: the first look",
        Waiting(),
        PageOutcome(page=3, unsettled=2, untold=1),
        Waiting(tries={3: 1}, not_before=NOW + 1),
        PackageVerdict.WAITING,
    ),
    Case(
        "the last look but one: the pauses grow",
        Waiting(tries={3: MOST_TRIES - 2}),
        PageOutcome(page=3, unsettled=1, untold=1),
        Waiting(tries={3: MOST_TRIES - 1}, not_before=NOW + 64),
        PackageVerdict.WAITING,
    ),
    Case(
        "the last look: it is named without",
        Waiting(tries={3: MOST_TRIES - 1}),
        PageOutcome(page=3, unsettled=1, untold=1),
        Waiting(is_in_vain=True),
        PackageVerdict.NAMED,
    ),
    Case(
        "once in vain, few looks are enough",
        Waiting(tries={4: FEW_TRIES - 1}, is_in_vain=True),
        PageOutcome(page=4, unsettled=1, untold=1),
        Waiting(is_in_vain=True),
        PackageVerdict.NAMED,
    ),
    Case(
        "a page that lacks nothing says nothing of the others",
        Waiting(tries={3: 2}, is_in_vain=True),
        PageOutcome(page=4),
        Waiting(tries={3: 2}, is_in_vain=True),
        PackageVerdict.NAMED,
    ),
    Case(
        "too much cannot be had",
        Waiting(tries={3: 2}, is_in_vain=True),
        PageOutcome(page=3, unsettled=50, untold=50, is_mass=True),
        Waiting(tries={3: 2}, is_in_vain=True, held_until=NOW + MASS_SECONDS),
        PackageVerdict.REFUSED,
    ),
    Case(
        "it can be had again",
        Waiting(held_until=NOW - 1),
        PageOutcome(page=3),
        Waiting(),
        PackageVerdict.NAMED,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_what_becomes_of_packages(case: Case) -> None:
    """DST-F9 for what is refused; RS-RDM-07 for what is named without."""
    assert judged(case.before, case.outcome, NOW) == (case.after, case.verdict)


def test_a_page_is_looked_at_for_two_minutes() -> None:
    waiting, looks, now = Waiting(), 0, NOW
    verdict = PackageVerdict.WAITING
    while verdict is PackageVerdict.WAITING:
        now = max(now, waiting.not_before)
        waiting, verdict = judged(waiting, PageOutcome(page=0, unsettled=1, untold=1), now)
        looks += 1
    assert looks == MOST_TRIES
    assert 120 <= now - NOW <= 130
