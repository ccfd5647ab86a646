"""Which addresses a source can have asked for: the decision, over values (DST-S12)."""

from __future__ import annotations

import pytest

from headwater.transport.access import AddressGuard

SOURCE = "source.example"
PUBLIC, PRIVATE, LOCAL = "93.184.216.34", "10.0.0.1", "127.0.0.1"
ADDRESSES = {
    "public.example": [PUBLIC],
    "private.example": [PRIVATE],
    "local.example": [LOCAL],
    "both.example": [PUBLIC, LOCAL],
}


def guard(
    source: str | None = SOURCE, at: str = PUBLIC, *named: str, proxies: tuple[tuple[str, int], ...] = ()
) -> AddressGuard:
    known = {**ADDRESSES, SOURCE: [at]}
    return AddressGuard(source, named, resolve=lambda host: known.get(host, []), proxies=lambda: proxies)


@pytest.mark.parametrize(
    ("source_at", "allowed"),
    [(PUBLIC, [PUBLIC]), (PRIVATE, [PUBLIC, PRIVATE]), (LOCAL, [PUBLIC, PRIVATE, LOCAL])],
)
@pytest.mark.parametrize("address", [PUBLIC, PRIVATE, LOCAL])
def test_no_host_is_asked_further_inside_than_the_source_is(source_at: str, allowed: list[str], address: str) -> None:
    assert (guard(SOURCE, source_at).objection("other.example", address, 80) is None) is (address in allowed)


@pytest.mark.parametrize("seen", [[], [PUBLIC], [LOCAL], [LOCAL, PUBLIC], [PUBLIC, LOCAL]])
@pytest.mark.parametrize("named", [True, False])
def test_what_was_public_is_not_followed_inside(seen: list[str], named: bool) -> None:
    """A name that answers with another address later is how requests are led inside (rebinding)."""
    one = guard(SOURCE, PUBLIC, *(["other.example"] if named else []))
    host = "other.example" if named else SOURCE
    for address in seen:
        one.objection(host, address, 80)
    assert (one.objection(host, LOCAL, 80) is None) is (PUBLIC not in seen)


@pytest.mark.parametrize(
    ("source", "seen", "in_public", "is_near"),
    [
        (SOURCE, None, None, False),
        (SOURCE, PUBLIC, SOURCE, False),
        (SOURCE, PRIVATE, None, True),
        (SOURCE, LOCAL, None, True),
        (None, LOCAL, None, False),
    ],
)
def test_what_is_remembered_of_where_the_source_was_seen(
    source: str | None, seen: str | None, in_public: str | None, is_near: bool
) -> None:
    one = guard(source)
    if seen is not None:
        one.objection(SOURCE, seen, 80)
    assert (one.source_in_public, one.source_is_near) == (in_public, is_near)


@pytest.mark.parametrize(
    ("host", "named", "is_refused"),
    [(SOURCE, (), True), (SOURCE, (SOURCE,), False), ("other.example", (), False), (None, (), False)],
)
def test_what_an_earlier_run_saw_in_public_is_bound_to_it(
    host: str | None, named: tuple[str, ...], is_refused: bool
) -> None:
    """Unless the user names it anew; what was remembered of another host says nothing of this one."""
    one = guard(SOURCE, LOCAL, *named)
    one.was_public(host)
    assert (one.objection(SOURCE, LOCAL, 80) is not None) is is_refused


def test_a_proxy_is_reached_at_its_own_port_alone() -> None:
    one = guard(SOURCE, PUBLIC, proxies=(("local.example", 3128),))
    assert one.objection("other.example", LOCAL, 3128) is None
    assert one.objection("other.example", LOCAL, 80) is not None
    assert one.literal_objection(LOCAL) is not None
    assert one.literal_objection("other.example") is None
    assert guard(SOURCE, PUBLIC).literal_objection(LOCAL) is None  # is judged when it is connected to


def test_a_source_that_nobody_knows_is_taken_for_a_public_one() -> None:
    assert guard("unknown.example").objection("other.example", PRIVATE, 80) is not None
    assert guard(None).objection("other.example", LOCAL, 80) is None


def test_the_outermost_address_of_the_source_is_the_bound() -> None:
    assert guard("both.example").objection("other.example", PRIVATE, 80) is not None
    assert guard("local.example").objection("other.example", PRIVATE, 80) is None
