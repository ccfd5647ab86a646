"""Decompression of documents as they arrive: what comes before damage does not depend on how octets are cut."""

from __future__ import annotations

import gzip
import random

import pytest

from headwater.spec.decoding import Inflater
from headwater.spec.kinds import ReadLimits
from headwater.spec.text_values import BadCompression

PLAIN = random.Random(1).randbytes(200_000)


@pytest.mark.parametrize("level", [0, 6])
@pytest.mark.parametrize("piece", [1_000, 65_536, 1_000_000])
def test_what_comes_before_damage_is_given_however_octets_arrive(piece: int, level: int) -> None:
    """AMB-14: at most 4 KiB of the compressed form are lost before the damage that follows them."""
    whole = gzip.compress(PLAIN, level)
    damaged = whole[:-8] + b"\0" * 8
    inflater, given = Inflater(ReadLimits()), bytearray()

    def arrive() -> None:
        for start in range(0, len(damaged), piece):
            for block in inflater.push(damaged[start : start + piece]):
                given.extend(block)

    with pytest.raises(BadCompression):
        arrive()
    assert PLAIN.startswith(given)
    assert len(given) >= len(PLAIN) - 4_096 - 8
