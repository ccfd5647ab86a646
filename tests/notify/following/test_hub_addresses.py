"""Hubs and topics are connected to at no address further inside than the sources are (DST-S12)."""

from __future__ import annotations

import pytest

from headwater.http.callbacks import HubAddresses

PUBLIC, PRIVATE, LOCAL = "93.184.216.34", "10.0.0.1", "127.0.0.1"
NAMES = {"public.example": [PUBLIC], "intranet.example": [PRIVATE], "named.example": ["10.9.9.9"], "gone.example": []}


@pytest.mark.parametrize(
    ("sources", "allowed", "refused"),
    [
        (["http://public.example/"], [PUBLIC], [PRIVATE, LOCAL, "10.9.9.8", "::1", "169.254.169.254"]),
        (["http://intranet.example/"], [PUBLIC, PRIVATE], [LOCAL, "169.254.169.254"]),
        (["http://127.0.0.1:8000/"], [PUBLIC, PRIVATE, LOCAL, "::1"], []),
        (["http://public.example/", "https://intranet.example/"], [PRIVATE], [LOCAL]),
        (["http://gone.example/"], [PUBLIC], [PRIVATE, LOCAL]),
    ],
)
def test_addresses_are_judged_by_those_of_the_sources(
    sources: list[str], allowed: list[str], refused: list[str]
) -> None:
    addresses = HubAddresses(sources, ["named.example"], lambda host: NAMES.get(host, [host]))
    addresses.look()
    assert [addresses.objection(one) for one in [*allowed, "10.9.9.9"]] == [None] * (len(allowed) + 1)
    assert all("--allow-host" in (addresses.objection(one) or "") for one in refused)


def test_a_source_that_is_named_is_a_source() -> None:
    addresses = HubAddresses(["http://127.0.0.1:8000/"], ["127.0.0.1"], lambda host: [host])
    addresses.look()
    assert addresses.objection(PRIVATE) is None


def test_what_cannot_be_looked_up_is_looked_up_again() -> None:
    names: dict[str, list[str]] = {}
    addresses = HubAddresses(["http://late.example/"], [], lambda host: names.get(host, []))
    assert not addresses.look()
    assert addresses.objection(LOCAL) is not None
    names["late.example"] = [LOCAL]
    assert addresses.look()
    assert addresses.objection(LOCAL) is None
