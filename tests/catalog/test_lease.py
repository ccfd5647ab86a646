"""A lease by silence: what its holder and those who wait know of it, each by a clock of its own."""

from __future__ import annotations

from headwater.catalog.lease import HeldBy, LeaseTerm, renewal_seconds

LEASE = HeldBy("other", 10.0)


def test_it_is_renewed_when_a_third_of_it_has_passed_and_held_until_its_end() -> None:
    term = LeaseTerm(30)
    assert (term.is_held(0), term.is_due(0)) == (False, True)
    term.renewed(100)
    assert [(term.is_held(now), term.is_due(now)) for now in (100, 109.9, 110, 129.9, 130)] == [
        (True, False),
        (True, False),
        (True, True),
        (True, True),
        (False, True),
    ]
    term.end()
    assert (term.is_held(101), term.is_due(101)) == (False, True)
    assert renewal_seconds(30) == 10
