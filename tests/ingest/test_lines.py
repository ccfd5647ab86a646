"""Lines out of pieces: the same however they are cut, plain or as gzip; too much, too long and too steep is refused."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.push.feed import Line
from headwater.ingest.push.submission import Lines
from tests.support.failing import failing

BOM = b"\xef\xbb\xbf"


def read(octets: bytes, cut: random.Random, **bounds: int) -> list[Line]:
    lines = Lines(octets=bounds.pop("octets", 1 << 20), **bounds)
    found: list[Line] = []
    while octets:
        size = cut.randrange(1, 40)
        found += lines.push(octets[:size])
        octets = octets[size:]
    return found + list(lines.finish())


@given(st.lists(st.binary(max_size=30).filter(lambda text: b"\n" not in text)), st.booleans(), st.randoms())
def test_lines_are_the_same_however_they_are_cut(texts: list[bytes], packed: bool, cut: random.Random) -> None:
    whole = b"\n".join(texts)
    if whole.startswith(b"\x1f\x8b"):
        return
    told = [text.removeprefix(BOM) if number == 0 else text for number, text in enumerate(texts)]
    wanted = [Line(number, text) for number, text in enumerate(told, 1) if text.strip()]
    assert read(gzip.compress(whole) if packed else whole, cut) == wanted


def test_a_line_that_is_too_long_is_dropped_as_it_comes_and_counted() -> None:
    body = b"a\n" + b"x" * 5_000 + b"\nb\n" + b"y" * 101 + b"\n" + b"z" * 5_000
    found = read(body, random.Random(1), line_octets=100)
    assert found == [Line(1, b"a"), Line(2, None), Line(3, b"b"), Line(4, None), Line(5, None)]


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        (b"x\n" * 1_000_000, "HW-ING-56"),
        (gzip.compress(gzip.compress(gzip.compress(b"a"))), "HW-ING-56"),
        (gzip.compress(b"a\n" * 50)[:-4], "HW-ING-55"),
        (gzip.compress(b"a\n" * 50)[:-8] + b"\0" * 8, "HW-ING-55"),
    ],
    ids=["too much", "too many layers", "cut off", "damaged"],
)
def test_hostile_octets(octets: bytes, fault: str) -> None:
    with failing(fault):
        read_in_blocks(octets)


def test_a_bomb() -> None:
    bomb = gzip.compress(b"\n" * (1 << 26), 1)
    with failing("HW-ING-56"):
        read_in_blocks(bomb)


def read_in_blocks(octets: bytes) -> None:
    lines = Lines(octets=1 << 20)
    for start in range(0, len(octets), 1 << 14):
        list(lines.push(octets[start : start + (1 << 14)]))
    list(lines.finish())
